"""What comes next, by the model: prompts of any lengths, one step of a batch, a full window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpt2np import ragged
from gpt2np.cache import KVCache
from gpt2np.model import EVERY, LAST, hidden, unembed
from gpt2np.params import Array, Ids, Params
from gpt2np.sampling import mask_from
from gpt2np.trace import Probe

GROUP = 1024  # positions of a rectangle of prompts that are read at a time


@dataclass(frozen=True)
class Predictor:
    """Runs a model on ids, and gives logits of the `n_vocab` tokens that there are."""

    params: Params
    n_vocab: int
    probe: Probe | None = None

    def after_each(self, ids: Ids, cache: KVCache) -> Array:  # [B, T] -> [B, T, V]
        """Read the same number of new tokens of each sequence; give logits after every one."""
        return self._logits(self._hidden(ids, cache))

    def after_last(self, ids: Ids, cache: KVCache) -> Array:  # [B, T] -> [B, V]
        """Read as above; give the logits after the last one alone."""
        return self._logits(self._hidden(ids, cache, LAST))[:, 0]

    def _hidden(self, ids: Ids, cache: KVCache, wanted: slice = EVERY) -> Array:
        return hidden(self.params, ids, cache, self.probe, wanted)

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
        return self.after_last(prompt[None, cache.length :], cache)

    def prefill(self, prompts: Sequence[Ids], capacity: int) -> tuple[KVCache, Array]:
        """Read prompts of any lengths: a cache that holds them, and the logits [B, V] that follow.

        Those of similar length are read as one rectangle, whose filling the cache forgets again.
        """
        prompts = [_fitting(prompt, capacity) for prompt in prompts]
        cache = KVCache(self.params, len(prompts), capacity)
        logits = np.empty((len(prompts), self.params.config.vocab_size), self.params.dtype)
        for rows in map(sorted, ragged.groups([*map(len, prompts)], GROUP, ratio=1.25)):
            ids = ragged.rectangle([prompts[b] for b in rows])
            lengths = np.array([len(prompts[b]) for b in rows])
            all_at_once = len(rows) == len(prompts)
            part = cache if all_at_once else KVCache(self.params, len(rows), ids.shape[1])
            if (lengths == ids.shape[1]).all():
                logits[rows] = self.after_last(ids, part)
            else:
                x = self._hidden(ids, part)[np.arange(len(rows)), lengths - 1]
                logits[rows] = self._logits(x[:, None])[:, 0]
                part.truncate(lengths)
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
                self._hidden(tail[None], part)
            cache.put([b], part)


def _half_window(ids: Ids, window: int) -> Ids:
    return ids[-max(1, window // 2) :]


def _fitting(ids: Ids, window: int) -> Ids:
    return ids if len(ids) <= window else _half_window(ids, window)
