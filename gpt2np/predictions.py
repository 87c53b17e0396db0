"""What a model predicts at every position of texts of any lengths.

token ids, all texts behind one another, each after what it begins with     [N]
  -> windows of at most n_ctx tokens, of which each overlaps the one before
  -> hidden(), windows of similar length together                           [B, T, D]
  -> unembed(), some rows at a time, as all the logits are large            [rows, V]
  -> what a row predicts: log p and rank of the next token, the entropy,
     log p that a word ends here                                            [rows]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np import ragged
from gpt2np.cache import KVCache
from gpt2np.errors import InputError
from gpt2np.loading import Model
from gpt2np.model import LAST, hidden, unembed
from gpt2np.params import Array, Ids
from gpt2np.sampling import quietly
from gpt2np.words import BOUNDARIES, token_classes

POSITIONS = 1024  # that are read at a time
LOGIT_ROWS = 256  # that are held at a time
CACHED_ROWS = 16  # of them, that stay in a processor's cache while they are worked on

Predictions: TypeAlias = npt.NDArray[np.void]


def prediction(top: int = 0) -> np.dtype[np.void]:
    """What is predicted after a position, one record each.

    Of each boundary, "ends" is log p of the tokens before which a word has ended, and "begins"
    of those that a text may begin with: see `gpt2np.words`.
    """
    return np.dtype(
        [
            ("logprob", "f8"),
            ("rank", "i8"),
            ("entropy", "f8"),
            ("ends", "f8", len(BOUNDARIES)),
            ("begins", "f8", len(BOUNDARIES)),
            ("top_ids", "i8", top),
            ("top_logprobs", "f8", top),
        ]
    )


def nothing(n: int, top: int = 0) -> Predictions:
    """Give `n` records of where nothing is predicted."""
    records = np.zeros(n, prediction(top))
    for name in ("logprob", "entropy", "ends", "begins", "top_logprobs"):
        records[name] = math.nan
    records["top_ids"] = -1
    return records


class Window(NamedTuple):
    """Tokens [start, stop) are read, and what is predicted after [first, stop) is kept."""

    start: int
    first: int
    stop: int


def strided(begin: int, end: int, window: int, stride: int) -> Iterator[Window]:
    """Cover [begin, end) so that each position is kept once."""
    first = begin
    for start in range(begin, end, stride):
        stop = min(start + window, end)
        yield Window(start, first, stop)
        if stop == end:
            return
        first = stop


def disjoint(end: int, window: int) -> Iterator[Window]:
    """Cover [0, end) by windows of which each predicts as many new tokens as it holds.

    The last one is drawn back to hold as many as the others: lm-eval's rolling windows.
    """
    for first in range(0, end, window):
        stop = min(first + window, end)
        yield Window(max(0, stop - window), first, stop)


def after_prefix(begin: int, first: int, end: int, window: int, stride: int) -> Iterator[Window]:
    """Keep [first, end) of what begins earlier, with as much before it as the window holds.

    The last position, which predicts what follows the whole text, has a window of its own where
    the others would otherwise see less.
    """
    if end - begin <= window:
        yield Window(begin, first, end)
    elif end - 1 - first <= window:
        yield Window(end - 1 - window, first, end - 1)
        yield Window(end - window, end - 1, end)
    else:
        start = max(begin, first + stride - window)
        yield from (
            w._replace(first=max(first, w.first)) for w in strided(start, end, window, stride)
        )


def predict(
    model: Model, ids: Ids, windows: Sequence[Window], *, top: int = 0, progress: bool = False
) -> Predictions:
    """Say what is predicted after each of the ids [N] that a window keeps."""
    next_ids = np.append(ids[1:], 0)  # the last is none, and what is said of it not used
    found = nothing(len(ids), top)
    total = sum(w.stop - w.first for w in windows)
    with counting(total, "tokens", shown=progress) as count:
        for rows in ragged.groups([w.stop - w.start for w in windows], POSITIONS):
            group = [windows[b] for b in rows]
            x = hidden(model.params, ragged.rectangle([ids[w.start : w.stop] for w in group]))
            kept = np.concatenate(
                [row[w.first - w.start : w.stop - w.start] for row, w in zip(x, group, strict=True)]
            )
            at = np.concatenate([np.arange(w.first, w.stop) for w in group])
            found[at] = _described(model, kept, next_ids[at], top)
            count(len(at))
    return found


def predict_choices(
    model: Model, sequences: Sequence[Ids], first: Sequence[int], *, top: int = 0
) -> list[Predictions]:
    """Say what is predicted after [first, end) of sequences that begin alike.

    What they have in common is read once, and its keys and values serve them all.
    """
    n = min(1 + min(first), common(sequences))
    lengths = [*map(len, sequences)]
    longest = max(lengths)
    prefix = KVCache(model.params, 1, longest)
    last = hidden(model.params, sequences[0][None, :n], prefix, wanted=LAST)  # [1, 1, D]
    positions = np.arange(longest)
    kept = (np.c_[first] <= positions) & (positions < np.c_[lengths])  # [N, longest]
    next_ids = np.roll(ragged.rectangle(sequences), -1, axis=1)  # the last is none, and not used
    found = nothing(kept.size, top).reshape(kept.shape)
    for rows in map(np.array, ragged.groups([longest] * len(sequences), POSITIONS)):
        rests = [sequences[b][n:] for b in rows]
        x = np.repeat(last, len(rows), axis=0)
        if any(map(len, rests)):
            cache = prefix.select([0] * len(rows))
            x = np.concatenate([x, hidden(model.params, ragged.rectangle(rests), cache)], axis=1)
        b, t = np.nonzero(kept[rows])  # all described together: the head's matrix is read once
        found[rows[b], t] = _described(model, x[b, t - (n - 1)], next_ids[rows[b], t], top)
    return [row[:length] for row, length in zip(found, lengths, strict=True)]


def common(sequences: Sequence[Ids]) -> int:
    """Count the ids that all sequences begin with."""
    rows = ragged.rectangle(sequences)[:, : min(map(len, sequences))]
    same = (rows == rows[:1]).all(axis=0)
    return len(same) if same.all() else int(same.argmin())


@quietly
def _described(model: Model, x: Array, targets: Ids, top: int) -> Predictions:  # [N, D] -> [N]
    """Say what residual streams predict of the targets."""
    tokenizer = model.tokenizer if model.has_tokenizer else None
    classes = token_classes(tokenizer, model.eos, model.config.vocab_size)
    weights: Array = classes.astype(model.params.dtype)
    found = np.empty(len(x), prediction(top))
    for i in range(0, len(x), LOGIT_ROWS):
        part = slice(i, i + LOGIT_ROWS)
        # Held until the next are there: else the system takes the memory back and clears it anew.
        logits = unembed(model.params, x[None, part])[0]
        for j in range(0, len(logits), CACHED_ROWS):
            rows = slice(j, j + CACHED_ROWS)
            found[part][rows] = _predictions(logits[rows], targets[part][rows], weights, top)
    return found


def _predictions(logits: Array, targets: Ids, classes: Array, top: int) -> Predictions:
    """Say what logits [rows, V] predict of the targets [rows]; the logits are used up."""
    highest = logits.max(-1, keepdims=True)
    if not np.isfinite(highest).all():
        raise InputError(
            "the model's logits are not numbers: its weights hold NaN or infinity, or "
            f"are too large for {logits.dtype}"
        )
    logits -= highest
    p = np.exp(logits)
    total = p.sum(-1)
    log_total = np.log(total)
    target = logits[np.arange(len(targets)), targets]
    found = np.empty(len(targets), prediction(top))
    found["logprob"] = target - log_total
    # Row by row: along an axis, NumPy makes integers of them first.
    above = [np.count_nonzero(row > own) for row, own in zip(logits, target, strict=True)]
    found["rank"] = np.array(above) + 1
    entropy = log_total - np.vecdot(p, logits) / total
    if np.isnan(entropy).any():  # 0 times the infinite logit of what cannot come
        entropy = log_total - np.vecdot(p, np.maximum(logits, np.finfo(p.dtype).min)) / total
    found["entropy"] = entropy / math.log(2)
    of_classes = np.log(p @ classes) - log_total[:, None]
    found["ends"], found["begins"] = of_classes[:, ::2], of_classes[:, 1::2]
    if top:
        best = np.sort(np.argpartition(logits, -top)[:, -top:])
        values = np.take_along_axis(logits, best, 1)
        order = np.argsort(-values, kind="stable")
        found["top_ids"] = np.take_along_axis(best, order, 1)
        found["top_logprobs"] = np.take_along_axis(values, order, 1) - log_total[:, None]
    return found


@contextmanager
def counting(total: int, unit: str, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """Give a function that counts what is done, in a bar on standard error if it is shown."""
    if not shown:
        yield lambda n: None
        return
    from tqdm import tqdm  # only a progress bar needs it

    with tqdm(total=total, unit=f" {unit}", unit_scale=True) as bar:
        yield bar.update
