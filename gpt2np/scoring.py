"""How likely a text is: log-probability, surprisal, rank and entropy of every token and word.

    ids -> windows of at most n_ctx inputs, each overlapping the one before
      -> hidden()                       one pass a window, several short texts at once
      -> unembed(), 128 positions at a time: whole matrices of logits [T, V] would be large
      -> log-softmax -> the target's log-probability and rank, the entropy of the prediction
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpt2np.errors import InputError
from gpt2np.layers import log_softmax
from gpt2np.loading import Model
from gpt2np.model import check_ids, hidden, unembed
from gpt2np.params import Array
from gpt2np.sampling import Ids
from gpt2np.tokenizer import Tokenizer

POSITIONS = 1024  # positions that are read at a time
LOGIT_ROWS = 128  # rows of logits that are held at a time


class Word(NamedTuple):
    """A word and its surprisal in bits; ``start`` and ``end`` are characters of the text."""

    text: str
    surprisal: float
    start: int
    end: int


@dataclass(frozen=True)
class Score:
    """What a model makes of a text, token by token.

    Attributes
    ----------
    ids : list of int
    tokens : list of str
        The text of each token; a part of a character shows as U+FFFD.
    offsets : list of (int, int)
        Where each token begins and ends in ``text``, in characters. A token that holds a part of
        a character spans that character.
    logprobs : float array [T]
        log p(token | what comes before it), in nats. Without `bos` nothing comes before the
        first token, and its entry is NaN here and below.
    surprisal : float array [T]
        The same in bits: -log2 p.
    rank : int array [T]
        1 where the token is the likeliest, 2 where one is likelier, ...; 0 for no prediction.
    entropy : float array [T]
        Of the distribution that predicts the token, in bits.
    text : str
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    logprobs: npt.NDArray[np.float64]
    rank: npt.NDArray[np.intp]
    entropy: npt.NDArray[np.float64]
    text: str
    # log p(a word ends here): before the first token, after it, ... after the last one [T + 1].
    _boundary: npt.NDArray[np.float64] = field(repr=False)

    @property
    def surprisal(self) -> npt.NDArray[np.float64]:
        """-log2 p of each token, in bits."""
        return self.logprobs / -math.log(2)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability, over the tokens that have one."""
        return math.exp(-float(np.nanmean(self.logprobs)))

    def words(self, *, correction: bool = True) -> list[Word]:
        """Sum the tokens into the words that whitespace separates.

        Parameters
        ----------
        correction : bool
            GPT-2's tokens begin with the space before a word, so the plain sum leaves out that a
            word ends where it does, and charges it to the next one. The correction gives the
            probability of the boundary to the word it ends: p(word) = p(its tokens) times
            p(boundary after it) / p(boundary before it), where p(boundary) sums over all tokens
            that begin with whitespace, and <|endoftext|>. False gives the plain sum, for
            comparison with work before 2024.

        Returns
        -------
        list of Word
            Whitespace tokens before a word count as part of it; those at the end of the text as
            part of none.

        References
        ----------
        Oh and Schuler, "Leading Whitespaces of Language Models' Subword Vocabulary Pose a
        Confound for Calculating Word Probabilities", EMNLP 2024, arXiv:2406.10851.
        Pimentel and Meister, "How to Compute the Probability of a Word", EMNLP 2024,
        arXiv:2406.14561.

        Examples
        --------
        >>> import gpt2np
        >>> s = gpt2np.score(gpt2np.load(), "What is thy name?")
        >>> [word.text for word in s.words()]
        ['What', 'is', 'thy', 'name?']
        >>> plain = s.words(correction=False)
        >>> bool(np.isclose(sum(word.surprisal for word in plain), s.surprisal.sum()))
        True
        """
        words = []
        for (start, end), (first, stop) in _word_spans(self.text, self.offsets):
            logprob = float(self.logprobs[first:stop].sum())
            if correction:
                logprob += self._boundary[stop]
                if self.text[self.offsets[first][0]].isspace():
                    logprob -= self._boundary[first]
            words.append(Word(self.text[start:end], -logprob / math.log(2), start, end))
        return words


def score(
    model: Model,
    text_or_ids: Any,
    *,
    bos: bool = True,
    window: int | None = None,
    stride: int | None = None,
) -> Any:
    """Score a text: how likely each token is after what comes before it.

    Parameters
    ----------
    model : Model
    text_or_ids : str, token ids, or a list of either
        The texts of a list are read together, which is faster for short ones.
    bos : bool
        Condition the first token on <|endoftext|>, which texts began with in training.
    window : int, optional
        The most tokens read at a time, <|endoftext|> included: n_ctx unless given.
    stride : int, optional
        Longer texts are read in windows that move on by so many tokens: window // 2 unless
        given. Every token has at least window - stride tokens before it, or all there are.

    Returns
    -------
    Score, or a list of them for a list

    Raises
    ------
    InputError
        There is nothing to score, or window and stride do not fit the model.

    Examples
    --------
    >>> import gpt2np
    >>> s = gpt2np.score(gpt2np.load(), "ROMEO:")
    >>> s.tokens, s.rank.shape, s.offsets
    (['ROM', 'EO', ':'], (3,), [(0, 3), (3, 5), (5, 6)])
    """
    window, stride = _check_windows(model, window, stride)
    many = isinstance(text_or_ids, list | tuple) and (
        not text_or_ids or not isinstance(text_or_ids[0], int | np.integer)
    )
    texts = list(text_or_ids) if many else [text_or_ids]
    if not texts:
        raise InputError("there is nothing to score: the list is empty")
    sequences = [_ids(model, text, bos) for text in texts]
    starts = _word_starts(model.tokenizer) if model.tokenizer is not None else None
    found = _predictions(model, sequences, window, stride, starts)
    scores = [
        _score(model.tokenizer, ids[1:] if bos else ids, predictions, bos)
        for ids, predictions in zip(sequences, found, strict=True)
    ]
    return scores if many else scores[0]


class Perplexity(float):
    """A perplexity per token: a float that also knows how it was made.

    Attributes
    ----------
    per_word : float
        exp of the text's negative log-likelihood over its whitespace-separated words.
    window, stride, n_tokens, n_words : int
        The recipe's settings, and the numbers of tokens and words that it averages over.
    """

    per_word: float
    window: int
    stride: int
    n_tokens: int
    n_words: int


def perplexity(
    model: Model, text: str, *, window: int | None = None, stride: int | None = None
) -> Perplexity:
    """Compute the perplexity of a text, by the strided recipe of Hugging Face's documentation.

    The text is read in windows that move on by `stride`; of each, only the tokens that no window
    before it has scored count. The first token of the text is not scored: nothing comes before
    it, not even <|endoftext|>. Like the recipe, this takes each window's mean and weighs it by
    its new tokens less one, though only where windows do not overlap is one of them left out.

    Parameters
    ----------
    model : Model
    text : str or token ids
    window : int, optional
        n_ctx unless given.
    stride : int, optional
        window // 2 unless given. window itself is fastest; the smaller, the lower the result.

    Returns
    -------
    Perplexity
        A float, with the perplexity per word and the settings as attributes.

    References
    ----------
    "Perplexity of fixed-length models", in the documentation of transformers.

    Examples
    --------
    >>> import gpt2np
    >>> text = "Before we proceed any further, hear me speak."
    >>> value = gpt2np.perplexity(gpt2np.load(), text)
    >>> 1 < value < value.per_word, value.window, value.stride, value.n_words
    (True, 512, 256, 8)
    """
    window, stride = _check_windows(model, window, stride)
    ids = _ids(model, text, bos=False)
    if len(ids) < 2:
        raise InputError("a perplexity needs 2 tokens or more: the first one is not predicted")
    total = weights = nll = 0.0
    counted = 0
    previous = 0
    for start in range(0, len(ids), stride):
        stop = min(start + window, len(ids))
        new = stop - previous  # their predictions come from the positions before them
        x = hidden(model.params, ids[None, start:stop])[0]
        first = max(previous - start, 1)
        if stop - start > first:
            targets = ids[start + first : stop]
            logprobs = np.concatenate([
                _log_probabilities(model, x[first - 1 + at : first - 1 + at + len(part)], part)
                for at, part in _parts(targets)
            ])
            weight = new - 1
            total -= weight * float(logprobs.mean())
            weights += weight
            nll -= float(logprobs.sum())
            counted += len(logprobs)
        previous = stop
        if stop == len(ids):
            break
    result = Perplexity(math.exp(total / weights) if weights else math.exp(nll / counted))
    decoded = text if isinstance(text, str) else ""
    if not decoded and model.tokenizer is not None:
        decoded = model.tokenizer.decode(ids.tolist())
    result.n_words = len(decoded.split())
    result.per_word = math.exp(min(700.0, nll / max(1, result.n_words)))
    result.window, result.stride, result.n_tokens = window, stride, counted
    return result


def _log_probabilities(model: Model, x: Array, targets: Ids) -> npt.NDArray[np.float64]:
    logprobs = log_softmax(unembed(model.params, x[None])[0])
    picked: npt.NDArray[np.float64] = logprobs[np.arange(len(targets)), targets].astype(np.float64)
    return picked


def _parts(array: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    for at in range(0, len(array), LOGIT_ROWS):
        yield at, array[at : at + LOGIT_ROWS]


def _check_windows(model: Model, window: int | None, stride: int | None) -> tuple[int, int]:
    n_ctx = model.config.n_ctx
    window = n_ctx if window is None else window
    if not isinstance(window, int) or isinstance(window, bool) or not 2 <= window <= n_ctx:
        raise InputError(f"window is {window!r}; give 2 to {n_ctx}, the model's context")
    stride = window // 2 if stride is None else stride
    if not isinstance(stride, int) or isinstance(stride, bool) or not 1 <= stride <= window:
        raise InputError(f"stride is {stride!r}; give 1 to {window}, the window")
    return window, stride


def _ids(model: Model, text: Any, bos: bool) -> Ids:
    """Give the ids of a text, with <|endoftext|> in front if asked for."""
    tokenizer = model.tokenizer
    if isinstance(text, str):
        if tokenizer is None:
            raise InputError("the model has no tokenizer: give token ids")
        text = tokenizer.encode(text)
    if not isinstance(text, list | tuple | np.ndarray):
        raise InputError(f"a text or token ids can be scored, not {type(text).__name__}")
    if len(text) == 0:
        raise InputError("there is nothing to score: the text is empty")
    ids = check_ids(model.config, text)
    if len(ids) > 1:
        raise InputError(f"one text of a list is itself a list of {len(ids)}")
    if not bos:
        return ids[0].astype(np.intp)
    if tokenizer is None or tokenizer.eot is None:
        raise InputError("the model has no <|endoftext|> to begin with: give bos=False")
    return np.concatenate([[tokenizer.eot], ids[0]]).astype(np.intp)


class _Window(NamedTuple):
    """Inputs [start, stop) of a sequence, of which the predictions from ``first`` on are new."""

    sequence: int
    start: int
    first: int
    stop: int


class _Predictions(NamedTuple):
    """After every token of a sequence: what was predicted of the next one, and of a boundary."""

    logprobs: npt.NDArray[np.float64]
    rank: npt.NDArray[np.intp]
    entropy: npt.NDArray[np.float64]
    boundary: npt.NDArray[np.float64]


def _windows(n: int, sequence: int, window: int, stride: int) -> Iterator[_Window]:
    first = 0
    for start in range(0, n, stride):
        stop = min(start + window, n)
        yield _Window(sequence, start, first, stop)
        if stop == n:
            return
        first = stop


def _predictions(
    model: Model, sequences: Sequence[Ids], window: int, stride: int, starts: Ids | None
) -> list[_Predictions]:
    """Read every window of every sequence, several of similar length at a time."""
    found = [
        _Predictions(np.full(n, np.nan), np.zeros(n, np.intp), np.full(n, np.nan),
                     np.full(n, np.nan))
        for n in map(len, sequences)
    ]  # fmt: skip
    windows = [w for s, ids in enumerate(sequences) for w in _windows(len(ids), s, window, stride)]
    windows.sort(key=lambda w: w.start - w.stop)
    while windows:
        longest = windows[0].stop - windows[0].start
        n = max(1, POSITIONS // longest)
        group, windows = windows[:n], windows[n:]
        # Filled up at the right: attention is causal, so no token sees the filling.
        inputs = np.zeros((len(group), longest), np.intp)
        for row, w in zip(inputs, group, strict=True):
            row[: w.stop - w.start] = sequences[w.sequence][w.start : w.stop]
        x = hidden(model.params, inputs)
        for row_x, w in zip(x, group, strict=True):
            ids, into = sequences[w.sequence], found[w.sequence]
            for at in range(w.first, w.stop, LOGIT_ROWS):
                rows = slice(at, min(at + LOGIT_ROWS, w.stop))
                part = row_x[rows.start - w.start : rows.stop - w.start]
                targets = np.append(ids, -1)[rows.start + 1 : rows.stop + 1]
                logits = unembed(model.params, part[None])[0]
                _fill(into, rows, logits, targets, starts)
    return found


def _fill(
    into: _Predictions, rows: slice, logits: Array, targets: Ids, starts: Ids | None
) -> None:
    """Sum up logits [T, V]; the target -1 stands for no next token."""
    logprobs = log_softmax(logits)
    probabilities = np.exp(logprobs)
    each = np.arange(len(targets))
    target = logprobs[each, targets]
    known = targets >= 0
    into.logprobs[rows] = np.where(known, target, np.nan)
    into.rank[rows] = np.where(known, (logprobs > target[:, None]).sum(-1) + 1, 0)
    finite = np.where(probabilities > 0, logprobs, 0)
    into.entropy[rows] = -np.einsum("tv,tv->t", probabilities, finite) / math.log(2)
    if starts is not None:
        in_vocabulary = starts[starts < logits.shape[-1]]
        with np.errstate(divide="ignore"):
            into.boundary[rows] = np.log(probabilities[:, in_vocabulary].sum(-1))


def _score(tokenizer: Tokenizer | None, ids: Ids, found: _Predictions, bos: bool) -> Score:
    """Line the predictions up with the tokens that they are of."""
    def of_tokens(after: npt.NDArray[Any], nothing: float) -> npt.NDArray[Any]:
        return after[:-1] if bos else np.append(np.asarray([nothing], after.dtype), after[:-1])

    listed = ids.tolist()
    pieces = [] if tokenizer is None else [tokenizer.token_bytes(i) for i in listed]
    text, offsets = _offsets(pieces)
    boundary = found.boundary if bos else np.append(np.nan, found.boundary)
    return Score(
        ids=listed,
        tokens=[piece.decode("utf-8", "replace") for piece in pieces],
        offsets=offsets,
        logprobs=of_tokens(found.logprobs, np.nan),
        rank=of_tokens(found.rank, 0),
        entropy=of_tokens(found.entropy, np.nan),
        text=text,
        _boundary=boundary,
    )


def _offsets(pieces: Sequence[bytes]) -> tuple[str, list[tuple[int, int]]]:
    """Decode a text piece by piece, and say which characters each piece spans."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    offsets = []
    parts: list[str] = []
    n = 0
    for piece in pieces:
        start = n
        part = decoder.decode(piece)
        parts.append(part)
        n += len(part)
        offsets.append((start, n + bool(decoder.getstate()[0])))
    text = "".join([*parts, decoder.decode(b"", final=True)])
    return text, offsets


@lru_cache(maxsize=4)
def _word_starts(tokenizer: Tokenizer) -> Ids:
    """The ids of the tokens before which a word is over: they begin with whitespace, or end it."""
    starts = [
        i for i in range(tokenizer.n_vocab)
        if i == tokenizer.eot
        or tokenizer.token_bytes(i).decode("utf-8", "ignore")[:1].isspace()
    ]  # fmt: skip
    ids: Ids = np.array(starts, np.intp)
    return ids


def _word_spans(
    text: str, offsets: Sequence[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield (start, end) in the text and (first, stop) among the tokens of every word."""
    token = 0
    for match in re.finditer(r"\S+", text):
        first = token
        while token < len(offsets) and offsets[token][0] < match.end():
            token += 1
        yield match.span(), (first, token)
