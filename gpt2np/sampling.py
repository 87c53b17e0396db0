"""From logits to the next token: each step a pure function on one row of logits [V].

The steps and their order are those of Hugging Face's ``GenerationMixin._get_logits_processor``:

    repetition_penalty   RepetitionPenaltyLogitsProcessor
    no_repeat_ngram      NoRepeatNGramLogitsProcessor
    the user's own       its ``logits_processor`` list; here functions (ids, logits) -> logits
    temperature          TemperatureLogitsWarper, and from here on only when sampling
    top_k                TopKLogitsWarper
    top_p                TopPLogitsWarper
    min_p                MinPLogitsWarper

A masked token has the logit -inf. No step changes its input, each keeps its dtype, and one with
nothing to do returns the row itself. `ids` is the whole sequence so far, the prompt included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np.errors import InputError, as_integer, as_number, shown
from gpt2np.layers import log_softmax, softmax
from gpt2np.params import Array, Ids

Processor: TypeAlias = Callable[[Ids, Array], Array]


# Exponentials underflow by design, whatever a caller makes of that by np.seterr.
quietly = np.errstate(all="ignore")
quiet_log_softmax = quietly(log_softmax)


def mask_from(logits: Array, n_vocab: int) -> Array:  # [..., V] -> [..., V]
    """Mask the ids from `n_vocab` on: rows that pad the embedding and stand for no token.

    >>> mask_from(np.array([1.0, 2.0, 3.0]), 2).tolist()
    [1.0, 2.0, -inf]
    """
    masked: Array = logits.copy()
    masked[..., n_vocab:] = -np.inf
    return masked


@quietly  # a token masked with the lowest float may become -inf
def repetition_penalty(ids: npt.ArrayLike, logits: Array, penalty: float) -> Array:
    """Divide positive logits of the tokens in `ids` by `penalty`, multiply negative ones.

    Once per distinct token, however often it occurs. Keskar et al. (2019, CTRL) divide all logits,
    which would make a token with a negative one likelier.

    >>> repetition_penalty([0, 1, 1], np.array([3.0, -3.0, 3.0]), 1.5).tolist()
    [2.0, -4.5, 3.0]
    """
    ids, penalty = np.asarray(ids, np.intp), float(penalty)
    row: Array = logits.copy()
    seen = row[ids]
    row[ids] = np.where(seen < 0, seen * penalty, seen / penalty)
    return row


def no_repeat_ngram(ids: npt.ArrayLike, logits: Array, n: int) -> Array:
    """Mask every token that would complete an n-gram already in `ids`.

    >>> no_repeat_ngram([0, 1, 2, 0], np.zeros(3), 2).tolist()
    [0.0, -inf, 0.0]
    """
    ids = np.asarray(ids, np.intp)
    if ids.size < n:
        return logits
    ngrams = np.lib.stride_tricks.sliding_window_view(ids, n)
    begun = (ngrams[:, :-1] == ids[ids.size - n + 1 :]).all(axis=1)
    row: Array = logits.copy()
    row[ngrams[begun, -1]] = -np.inf
    return row


@quietly  # what overflows becomes infinite, which Sampling refuses or masks
def temperature(logits: Array, t: float) -> Array:
    """Divide by `t` > 0: below 1 sharpens the distribution, above 1 flattens it."""
    row: Array = logits / float(t)
    return row


def top_k(logits: Array, k: int) -> Array:
    """Keep exactly the `k` largest logits; of equal ones, those with the lower ids.

    Hugging Face keeps all that equal the k-th largest: more than `k` where there are ties.

    >>> top_k(np.array([1.0, 2.0, 2.0, 3.0]), 2).tolist()
    [-inf, 2.0, -inf, 3.0]
    """
    return logits if k >= logits.size else _largest(logits, np.partition(logits, -k)[-k], k)


@quietly
def top_p(logits: Array, p: float) -> Array:
    """Keep the smallest set of likeliest tokens whose mass reaches `p` (Holtzman et al. 2020).

    The token that crosses `p` is kept, as by Hugging Face; OpenAI's sample.py keeps the largest
    set with a mass of at most `p`. p=0 keeps the likeliest token, p=1 all that have any mass. Of
    equal tokens the lower ids are kept; in Hugging Face an unstable sort decides.

    >>> top_p(np.log([0.1, 0.2, 0.7]), 0.75).round(2).tolist()
    [-inf, -1.61, -0.36]
    """
    p, probs = float(p), softmax(logits)
    # Tokens up to (1 - p) / 2V are outside: all together they have less mass than 1 - p. So most
    # of the vocabulary is summed, and only the rest sorted.
    likely = np.flatnonzero(probs > (1 - p) / (2 * probs.size))
    ascending = np.sort(probs[likely]).astype(np.float64)
    probs[likely] = 0
    mass = probs.sum(dtype=np.float64) + np.cumsum(ascending)
    k = max(int(np.count_nonzero(mass.astype(probs.dtype) > 1 - p)), 1)
    return _largest(logits, np.partition(logits[likely], -k)[-k], k)


@quietly
def min_p(logits: Array, p: float) -> Array:
    """Keep the tokens at least `p` times as likely as the likeliest (Nguyen et al. 2024).

    >>> min_p(np.log([0.1, 0.2, 0.7]), 0.25).round(2).tolist()
    [-inf, -1.61, -0.36]
    """
    probs = softmax(logits)
    return _only(logits, np.flatnonzero(probs >= float(p) * probs.max()))


@quietly
def accept(draft: int, logits: Array, rng: np.random.Generator) -> tuple[bool, int]:
    """Verify a drafted token, so that the id returned is distributed as softmax(`logits`).

    The draft is accepted with its own probability; else the token is drawn from the other ones
    (Leviathan et al. 2023 for a draft that is not itself random). Returns (accepted, id).

    >>> accept(2, np.array([0.0, -np.inf, -np.inf]), np.random.default_rng(0))
    (False, 0)
    """
    weights: Array = np.exp(logits - logits.max())
    if rng.random() < float(weights[draft]) / weights.sum(dtype=np.float64):
        return True, draft
    weights[draft] = 0
    return False, _draw(weights, rng)


def _only(logits: Array, kept: Ids) -> Array:
    row = np.full_like(logits, -np.inf)
    row[kept] = logits[kept]
    return row


def _largest(logits: Array, kth: Any, k: int) -> Array:
    """Only the `k` largest logits, of which `kth` is the least: of its equals the lower ids."""
    above, ties = np.flatnonzero(logits > kth), np.flatnonzero(logits == kth)
    return _only(logits, np.concatenate([above, ties[: k - above.size]]))


def _draw(weights: Array, rng: np.random.Generator) -> int:
    """An index with probability in proportion to its weight: the inverse CDF at one uniform
    number, first over blocks of weights, then inside the block, which spares the CDF of all V.

    As random() < 1, u < cdf[-1] even when rounded. So some cdf[i] > u, and for the first of them
    cdf[i] > cdf[i - 1]: neither a block nor a token without weight can be drawn.
    """
    starts = np.arange(0, weights.size, 256)
    cdf = np.cumsum(np.add.reduceat(weights, starts, dtype=np.float64))
    u = rng.random() * cdf[-1]
    block = int(np.searchsorted(cdf, u, side="right"))
    u -= cdf[block - 1] if block else 0.0
    start = int(starts[block])
    cdf = np.cumsum(weights[start : start + 256], dtype=np.float64)
    u = min(u, np.nextafter(cdf[-1], 0))  # the two sums of a block may be rounded differently
    return start + int(np.searchsorted(cdf, u, side="right"))


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The defaults draw from the model's own distribution.

    temperature=0 is greedy: the largest logit after the penalties and processors, of equal ones
    the lowest id. An `InputError` names a setting out of range.

    >>> Sampling(top_p=1.5)
    Traceback (most recent call last):
    gpt2np.errors.InputError: top_p must be a number from 0 to 1, not 1.5
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    no_repeat_ngram: int | None = None
    processors: Sequence[Processor] = ()

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)  # frozen, but for what makes its values Python's
        put("temperature", as_number("temperature", self.temperature, 0))
        for name in ("top_k", "no_repeat_ngram"):
            if (value := getattr(self, name)) is not None:
                put(name, as_integer(name, value, 1))
        for name in ("top_p", "min_p"):
            if (value := getattr(self, name)) is not None:
                put(name, as_number(name, value, 0, 1))
        try:
            least = math.ulp(0)
            put("repetition_penalty", as_number("", self.repetition_penalty, least))
        except InputError:
            wrong = shown(self.repetition_penalty)
            raise InputError(f"repetition_penalty must be a number > 0, not {wrong}") from None
        if not isinstance(self.processors, list | tuple) or not all(map(callable, self.processors)):
            raise InputError(
                "processors must be a list of functions (ids, logits) -> logits, "
                f"not {shown(self.processors)}"
            )
        put("processors", tuple(self.processors))

    def logits(self, ids: npt.ArrayLike, logits: Array) -> Array:
        """The logits [V] that `pick` chooses from; greedy, those whose largest it takes.

        `InputError` if they leave nothing to choose, or hold NaN or +inf. A processor gets a copy
        of the logits, so it may edit and return that; the ids are read-only.
        """
        row = self.scores(ids, logits)
        if row.max() == -np.inf:
            raise InputError(
                f"all {row.size} tokens are masked, none is left to choose: "
                "relax no_repeat_ngram or the processors"
            )
        return row

    def scores(self, ids: npt.ArrayLike, logits: Array) -> Array:
        """The same, where all tokens may be masked: one beam of several ends so."""
        ids, row = np.asarray(ids, np.intp), logits
        if self.repetition_penalty != 1:
            row = repetition_penalty(ids, row, self.repetition_penalty)
        if self.no_repeat_ngram is not None:
            row = no_repeat_ngram(ids, row, self.no_repeat_ngram)
        for processor in self.processors:
            row = _processed(processor, ids, row)
        if self.temperature not in (0, 1):
            row = temperature(row, self.temperature)
        top = int(row.argmax())  # the first NaN, if there is one
        if not row[top] < np.inf:
            raise InputError(
                f"the logit of token {top} is {row[top]} at temperature {self.temperature}: "
                "logits must be numbers, or -inf for a masked token"
            )
        if self.temperature == 0 or row[top] == -np.inf:
            return row
        if self.top_k is not None:
            row = top_k(row, self.top_k)
        if self.top_p is not None and self.top_p < 1:
            row = top_p(row, self.top_p)
        if self.min_p is not None:
            row = min_p(row, self.min_p)
        return row

    def pick(
        self, ids: npt.ArrayLike, logits: Array, rng: np.random.Generator
    ) -> tuple[int, float]:
        """The next token: its id, and its log-probability (nats) under what it was chosen from.

        That is log_softmax(self.logits(ids, logits))[id], as from Hugging Face's
        ``compute_transition_scores(normalize_logits=True)``: for plain greedy decoding the model's
        own. Sampling takes one number from `rng`, greedy none.

        >>> id, logprob = Sampling(temperature=0).pick([], np.log([0.2, 0.8]), None)
        >>> id, round(math.exp(logprob), 6)
        (1, 0.8)
        """
        row = self.logits(ids, logits)
        with np.errstate(all="ignore"):
            best = int(row.argmax())
            weights = np.exp(row - row[best])
            token = best if self.temperature == 0 else _draw(weights, rng)
            return token, float(row[token]) - float(row[best]) - math.log(weights.sum())


def _processed(processor: Processor, ids: Ids, logits: Array) -> Array:
    ids = ids.view()
    ids.flags.writeable = False
    name = getattr(processor, "__name__", repr(processor))
    try:
        given = processor(ids, logits.copy())
    except StopIteration:  # which would end the generators around it, and say nothing
        raise InputError(f"processor {name} raised StopIteration: it has no more to give") from None
    try:
        row = np.asarray(given)
    except ValueError:  # lists of different lengths
        row = np.array(None)
    if row.shape != logits.shape or row.dtype.kind not in "fiu":
        raise InputError(
            f"processor {name} must return logits of shape {logits.shape}, "
            f"not a {type(given).__name__} of shape {row.shape} and dtype {row.dtype}"
        )
    return row.astype(logits.dtype, copy=False)
