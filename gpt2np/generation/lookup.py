"""Speculation by prompt lookup: guess that the text repeats itself, and check many tokens at once.

What followed the last few tokens when they last occurred is the draft of what follows now. One
forward pass over the whole draft tells, after each of its tokens, what the model would have
chosen; the draft counts up to the first token that is not that. So a pass, which costs little
more than reading all weights once, may give many tokens where text repeats: code, quotations,
the loops of greedy decoding. Nothing but time is at stake, and little of that: see `Credit`.

Saxena, "Prompt Lookup Decoding", 2023; Leviathan et al., "Fast Inference from Transformers via
Speculative Decoding", 2023.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.generation.completion import Completion
from gpt2np.generation.predictor import Predictor
from gpt2np.generation.settings import Settings
from gpt2np.params import Array, Ids
from gpt2np.sampling import Sampling, accept, quiet_log_softmax

NGRAMS = (3, 2)  # the tokens to look up: three; if they are nowhere, two
SHORT = 7  # the length of a draft, unless the one before it was all true


def draft(ids: Ids, k: int) -> Ids:
    """Give `k` tokens that may follow, or none: those after the latest earlier occurrence of the
    last n-gram. Where they reach the end, they go on with themselves, as a loop would.

    >>> draft(np.array([5, 6, 7, 8, 5, 6, 7]), 6).tolist()
    [8, 5, 6, 7, 8, 5]
    >>> draft(np.array([5, 6, 7]), 6).tolist()
    []
    """
    for n in NGRAMS:
        if len(ids) > n:
            earlier = np.lib.stride_tricks.sliding_window_view(ids[:-1], n)
            found = np.flatnonzero((earlier == ids[-n:]).all(axis=1))
            if len(found):
                start = int(found[-1]) + n
                return ids[start + np.arange(k) % (len(ids) - start)]
    return ids[:0]


class Credit:
    """How much drafting may cost, in steps of plain decoding.

    A pass over n tokens takes as long as about 1.75 + n/12 steps (in NumPy's BLAS, for 4 to 32
    rows), and is worth as many steps as it gives tokens. Profit is put by, up to a limit, and
    every token adds a little. A draft is made only if its failure can be afforded, so text
    without repetition takes at most 1/20 longer, and 2.5 steps.
    """

    START, PER_TOKEN, MOST = 2.5, 0.05, 8.0

    def __init__(self) -> None:
        self.steps = self.START
        self.longest = SHORT

    def affords(self) -> int:
        """How many tokens may be drafted: even if all are wrong, the pass gives one."""
        return min(self.longest, int(12 * (self.steps - 0.75) - 1))

    def settle(self, drafted: int, tokens: int) -> None:
        """Book a pass over the last token and `drafted` more that gave `tokens`."""
        cost = 1.0
        if drafted:
            cost = 1.75 + (drafted + 1) / 12
            self.longest = 2 * drafted + 1 if tokens > drafted else SHORT
        self.steps = min(self.MOST, self.steps + tokens * (1 + self.PER_TOKEN) - cost)


def continue_with_lookup(
    predictor: Predictor,
    settings: Settings,
    completion: Completion,
    cache: KVCache,
    logits: Array,  # [V], those that follow what the cache holds
) -> Iterator[str]:
    """Complete one text, with drafts of what `lookup` allows; give the text of each new token."""
    credit = Credit()
    guess, rows = completion.ids[:0], logits[None]
    while True:
        held = cache.length - len(guess)
        for j, row in enumerate(rows):
            if j < len(guess):
                token, logprob = verify(settings, completion, row, int(guess[j]))
            else:
                token, logprob = settings.pick(completion.ids, row, completion.rng)
            yield completion.add(token, logprob)
            if completion.finish_reason or j == len(guess) or token != guess[j]:
                break
        cache.truncate(held + j)
        if completion.finish_reason:
            return
        credit.settle(len(guess), j + 1)
        predictor.slide([completion.ids], cache)
        room = min(completion.left - 1, cache.capacity - cache.length - 1)
        most = min(settings.lookup or 0, credit.affords(), room)
        guess = draft(completion.ids, most) if most > 1 else guess[:0]  # one token cannot pay
        rows = predictor.after_each(np.append(completion.ids[-1:], guess)[None], cache)[0]


def verify(
    sampling: Sampling, completion: Completion, logits: Array, guess: int
) -> tuple[int, float]:
    """Choose the next token as `Sampling.pick` does, but so that it is `guess` if it can be."""
    row = sampling.logits(completion.ids, logits)
    token = int(row.argmax())
    if sampling.temperature > 0:
        _, token = accept(guess, row, completion.rng)
    return token, float(quiet_log_softmax(row)[token])
