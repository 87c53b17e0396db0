"""Reading tokens into a cache: prompts of any lengths, one step of a batch, a full window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.model import LAST, hidden, unembed
from gpt2np.params import Array, Ids, Params
from gpt2np.sampling import mask_from
from gpt2np.trace import Probe

GROUP = 1024  # positions of a rectangle of prompts that are read at a time


@dataclass(frozen=True)
class Reader:
    """Runs a model on ids, and gives logits of the `n_vocab` tokens that there are."""

    params: Params
    n_vocab: int
    probe: Probe | None = None

    def read(self, ids: Ids, cache: KVCache) -> Array:  # [B, T] -> [B, T, V]
        """Read the same number of new tokens of each sequence; give logits after every one."""
        return self._logits(hidden(self.params, ids, cache, self.probe))

    def last(self, ids: Ids, cache: KVCache) -> Array:  # [B, T] -> [B, V]
        """Read as above; give the logits after the last one alone."""
        return self._logits(hidden(self.params, ids, cache, self.probe, LAST))[:, 0]

    def _logits(self, x: Array) -> Array:
        logits = unembed(self.params, x, self.probe)
        if self.n_vocab < logits.shape[-1]:
            return mask_from(logits, self.n_vocab)
        return logits

    def resume(self, prompt: Ids, cache: KVCache) -> Array:  # [1, V]
        """Read what of a prompt the cache does not hold yet; give the logits that follow it.

        The cache keeps as many tokens as it has in common with the prompt's beginning. A prompt
        that is longer than the cache is cut as by `slide`.
        """
        prompt = _fitting(prompt, cache.capacity)
        n = min(cache.length, len(prompt) - 1)  # the last token is read for its logits
        same = cache.ids[0, :n] == prompt[:n]
        cache.truncate(n if same.all() else int(same.argmin()))
        return self.last(prompt[None, cache.length :], cache)

    def prompts(self, prompts: Sequence[Ids], capacity: int) -> tuple[KVCache, Array]:
        """Read prompts of any lengths: a cache that holds them, and the logits [B, V] that follow.

        Those of similar length are read as one rectangle, filled up at the right: attention is
        causal, so no token of a prompt sees the filling, and the cache forgets it again.
        """
        prompts = [_fitting(prompt, capacity) for prompt in prompts]
        lengths = np.array([len(prompt) for prompt in prompts])
        cache = KVCache(self.params, len(prompts), capacity)
        logits = np.empty((len(prompts), self.params.config.vocab_size), self.params.dtype)
        for rows in map(sorted, _groups(lengths)):
            longest = int(lengths[rows].max())
            ids = np.zeros((len(rows), longest), np.intp)
            for row, b in zip(ids, rows, strict=True):
                row[: lengths[b]] = prompts[b]
            all_at_once = len(rows) == len(prompts)
            part = cache if all_at_once else KVCache(self.params, len(rows), longest)
            if (lengths[rows] == longest).all():
                logits[rows] = self.last(ids, part)
            else:
                x = hidden(self.params, ids, part, self.probe)
                x = x[np.arange(len(rows)), lengths[rows] - 1]
                logits[rows] = self._logits(x[:, None])[:, 0]
                part.truncate(lengths[rows])
            if not all_at_once:
                cache.put(rows, part)
        return cache, logits

    def slide(self, sequences: Sequence[Ids], cache: KVCache) -> None:
        """Where a sequence fills the cache, read the last half of its window again instead.

        The last token of each sequence is left for the next step to read.
        """
        for b in np.flatnonzero(cache.lengths == cache.capacity).tolist():
            tail = _half_window(sequences[b], cache.capacity)[:-1]
            part = KVCache(self.params, 1, max(1, len(tail)))
            if len(tail):
                hidden(self.params, tail[None], part, self.probe)
            cache.put([b], part)


def _half_window(ids: Ids, window: int) -> Ids:
    return ids[-max(1, window // 2) :]


def _fitting(ids: Ids, window: int) -> Ids:
    return ids if len(ids) <= window else _half_window(ids, window)


def _groups(lengths: Ids) -> Iterator[list[int]]:
    """Group prompts so that a rectangle wastes little and is not needlessly large."""
    group: list[int] = []
    for b in np.argsort(lengths, kind="stable").tolist():
        longest, shortest = lengths[b], lengths[group[0]] if group else 0
        if group and (longest > 1.25 * shortest + 2 or longest * (len(group) + 1) > GROUP):
            yield group
            group = []
        group.append(b)
    yield group
