"""Beam search: the likeliest text found by carrying several on side by side.

As Hugging Face's ``generate(do_sample=False, num_beams=n)`` does it: of all tokens that may follow
each of the n beams, the 2n best by summed log-probability are looked at. Those that end a text
and are among the best n of these become hypotheses, of which the n best are kept, by

    score = sum of log-probabilities / (number of tokens generated) ** length_penalty

and the best n of the others are the next beams. Penalties and processors act on the
log-probabilities, which are not normalized again after them. Where fewer than 2n tokens may
follow, Hugging Face makes up the number with texts of log-probability -1e9, and with
early_stopping=True it counts those that end; here there are none.

With early_stopping=True the search ends as soon as there are `num_beams` hypotheses; with False
also when the best beam, ended now, would not beat the worst of them; with "never", when it could
not by any length (judged by its present sum and the greatest length).

Wu et al., "Google's Neural Machine Translation System", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.errors import InputError
from gpt2np.generation.completion import Completion
from gpt2np.generation.predictor import Predictor
from gpt2np.generation.settings import Settings
from gpt2np.params import Array, Ids
from gpt2np.sampling import Sampling, quiet_log_softmax


class Beam(NamedTuple):
    """One text on the way."""

    ids: Ids  # the prompt and what was generated
    logprobs: list[float]
    total: float  # their sum


def normalized(settings: Settings, total: float, length: int) -> float:
    """Normalize a sum of log-probabilities by the length."""
    return float(total / length**settings.length_penalty)


def settled(
    settings: Settings, scores: list[float], best: float, length: int, longest: int
) -> bool:
    """Whether hypotheses of these scores are final, `best` being the sum of the best beam."""
    if len(scores) < settings.num_beams:
        return False
    if settings.early_stopping == "never" and settings.length_penalty > 0:
        length = longest
    return settings.early_stopping is True or normalized(settings, best, length) <= min(scores)


def continue_with_beams(
    predictor: Predictor,
    settings: Settings,
    completion: Completion,
    cache: KVCache,
    logits: Array,  # [V], those that follow what the cache holds
) -> Iterator[str]:
    """Complete one text; give "" for each step of the search, and the text at its end."""
    n, longest = settings.num_beams, completion.left
    beams, rows = [Beam(completion.ids, [], 0.0)], logits[None]
    hypotheses: list[tuple[float, Beam]] = []
    for length in range(1, longest + 1):
        parents, going = [], []
        for rank, (parent, beam) in enumerate(longer(beams, rows, settings, 2 * n)):
            if length < longest and not completion.would_end(beam.ids):
                parents.append(parent)
                going.append(beam)
            elif rank < n:
                hypotheses.append((normalized(settings, beam.total, length), beam))
        hypotheses = sorted(hypotheses, key=lambda hypothesis: -hypothesis[0])[:n]
        parents, beams = parents[:n], going[:n]
        scores = [score for score, _ in hypotheses]
        if not beams or settled(settings, scores, beams[0].total, length, longest):
            break
        yield ""
        cache = cache.select(parents)
        rows = predictor.after_last(np.array([beam.ids[-1:] for beam in beams]), cache)
    if not hypotheses:
        raise InputError(
            "all tokens of every beam are masked, none is left to choose: "
            "relax no_repeat_ngram or the processors"
        )
    best = hypotheses[0][1]
    tokens = best.ids[completion.n_prompt :].tolist()
    yield "".join(map(completion.add, tokens, best.logprobs))


def longer(
    beams: list[Beam], rows: Array, sampling: Sampling, count: int
) -> Iterator[tuple[int, Beam]]:
    """Give the best `count` beams that are one token longer, each after its parent's number."""
    logprobs = np.stack(
        [
            sampling.scores(beam.ids, quiet_log_softmax(row))
            for beam, row in zip(beams, rows, strict=True)
        ]
    )
    totals = (logprobs + np.array([[beam.total] for beam in beams])).ravel()
    count = min(count, int(np.count_nonzero(totals > -np.inf)))
    if not count:
        return
    best = np.argpartition(totals, -count)[-count:]
    for i in best[np.argsort(-totals[best])].tolist():
        parent, token = divmod(i, logprobs.shape[1])
        ids, so_far, _ = beams[parent]
        logprob = float(logprobs[parent, token])
        yield parent, Beam(np.append(ids, token), [*so_far, logprob], float(totals[i]))
