"""Beam search: the likeliest text found by carrying several on side by side.

As Hugging Face's ``generate(do_sample=False, num_beams=n)`` does it: of all tokens that may follow
each of the n beams, the 2n best by summed log-probability are looked at. Those that end a text
and are among the best n of these become hypotheses, of which the n best are kept, by

    score = sum of log-probabilities / (number of tokens generated) ** length_penalty

and the best n of the others are the next beams. Penalties and processors act on the
log-probabilities, which are not normalized again after them. Where fewer than 2n tokens may
follow, Hugging Face makes up the number with texts of log-probability -1e9, and with
early_stopping=True it counts those that end; here there are none.

Wu et al., "Google's Neural Machine Translation System", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.completion import Completion
from gpt2np.errors import InputError
from gpt2np.layers import log_softmax
from gpt2np.params import Array, Ids
from gpt2np.reading import Reader
from gpt2np.sampling import Sampling


class Beam(NamedTuple):
    """One text on the way."""

    ids: Ids  # the prompt and what was generated
    logprobs: list[float]
    total: float  # their sum


@dataclass(frozen=True)
class BeamSearch:
    """The settings: how many beams, how scores are normalized, and when to stop.

    With early_stopping=True the search ends as soon as there are `num_beams` hypotheses; with
    False also when the best beam, ended now, would not beat the worst of them; with "never", when
    it could not by any length (judged by its present sum and the greatest length).
    """

    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False

    def __post_init__(self) -> None:
        n, penalty = self.num_beams, self.length_penalty
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
            raise InputError(f"num_beams must be an integer >= 1, not {n!r}")
        # 50,000 tokens to the power of 50 are still a number.
        if isinstance(penalty, bool) or not isinstance(penalty, Real) or not -50 <= penalty <= 50:
            raise InputError(f"length_penalty must be a number from -50 to 50, not {penalty!r}")
        if not isinstance(self.early_stopping, bool) and str(self.early_stopping) != "never":
            raise InputError(
                f"early_stopping must be True, False or 'never', not {self.early_stopping!r}"
            )

    def score(self, total: float, length: int) -> float:
        """Normalize a sum of log-probabilities by the length."""
        return float(total / length**self.length_penalty)

    def settled(self, scores: list[float], best: float, length: int, longest: int) -> bool:
        """Whether hypotheses of these scores are final, `best` being the sum of the best beam."""
        if len(scores) < self.num_beams:
            return False
        if self.early_stopping == "never" and self.length_penalty > 0:
            length = longest
        return self.early_stopping is True or self.score(best, length) <= min(scores)


def continue_with_beams(
    reader: Reader,
    sampling: Sampling,
    completion: Completion,
    cache: KVCache,
    logits: Array,  # [V], those that follow what the cache holds
    *,
    search: BeamSearch,
) -> Iterator[str]:
    """Complete one text; give "" for each step of the search, and the text at its end."""
    n, longest = search.num_beams, completion.left
    beams, rows = [Beam(completion.ids, [], 0.0)], logits[None]
    hypotheses: list[tuple[float, Beam]] = []
    for length in range(1, longest + 1):
        parents, going = [], []
        for rank, (parent, beam) in enumerate(longer(beams, rows, sampling, 2 * n)):
            if length < longest and not completion.would_end(beam.ids):
                parents.append(parent)
                going.append(beam)
            elif rank < n:
                hypotheses.append((search.score(beam.total, length), beam))
        hypotheses = sorted(hypotheses, key=lambda hypothesis: -hypothesis[0])[:n]
        parents, beams = parents[:n], going[:n]
        scores = [score for score, _ in hypotheses]
        if not beams or search.settled(scores, beams[0].total, length, longest):
            break
        yield ""
        cache = cache.select(parents)
        rows = reader.last(np.array([beam.ids[-1:] for beam in beams]), cache)
    best = hypotheses[0][1]
    tokens = best.ids[completion.n_prompt :].tolist()
    yield "".join(map(completion.add, tokens, best.logprobs))


def longer(
    beams: list[Beam], rows: Array, sampling: Sampling, count: int
) -> Iterator[tuple[int, Beam]]:
    """Give the best `count` beams that are one token longer, each after its parent's number."""
    logprobs = np.stack(
        [sampling.logits(beam.ids, log_softmax(row)) for beam, row in zip(beams, rows, strict=True)]
    )
    totals = (logprobs + np.array([[beam.total] for beam in beams])).ravel()
    count = min(count, int(np.count_nonzero(totals > -np.inf)))
    best = np.argpartition(totals, -count)[-count:]
    for i in best[np.argsort(-totals[best])].tolist():
        parent, token = divmod(i, logprobs.shape[1])
        ids, so_far, _ = beams[parent]
        logprob = float(logprobs[parent, token])
        yield parent, Beam(np.append(ids, token), [*so_far, logprob], float(totals[i]))
