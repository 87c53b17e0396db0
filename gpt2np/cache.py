"""The key-value cache: what attention has seen of each sequence, so that it is never read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpt2np.errors import ContextError, InputError
from gpt2np.params import Array, Params


class KVCache:
    """Keys and values of the positions read so far: plain arrays, filled from the left.

    Parameters
    ----------
    params : Params
        The model's weights; they give the shape and the dtype.
    batch_size : int
        B, the number of sequences.
    capacity : int, optional
        The most positions a sequence may come to hold: n_ctx unless given.

    Attributes
    ----------
    keys, values : array [L, B, H, capacity, K]
    lengths : int array [B]
        The positions held of each sequence. They may differ: rows of a batch are independent.

    Examples
    --------
    >>> import gpt2np
    >>> params = gpt2np.load().params
    >>> cache = KVCache(params)
    >>> _ = gpt2np.forward(params, [5962, 22307], cache)
    >>> cache.length
    2
    >>> cache.truncate(1)
    >>> cache.length
    1
    """

    def __init__(self, params: Params, batch_size: int = 1, capacity: int | None = None) -> None:
        config = params.config
        capacity = config.n_ctx if capacity is None else capacity
        if not 1 <= capacity <= config.n_ctx:
            raise ContextError(
                f"capacity is {capacity}; a cache for this model holds 1 to {config.n_ctx} positions"
            )
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; a cache holds 1 sequence or more")
        shape = (config.n_layer, batch_size, config.n_head, capacity, config.head_width)
        self.keys: Array = np.empty(shape, params.dtype)
        self.values: Array = np.empty(shape, params.dtype)
        self.lengths: npt.NDArray[np.intp] = np.zeros(batch_size, np.intp)

    @property
    def batch_size(self) -> int:
        """B, the number of sequences."""
        return len(self.lengths)

    @property
    def capacity(self) -> int:
        """The most positions a sequence can hold."""
        return int(self.keys.shape[3])

    @property
    def length(self) -> int:
        """The positions held of each sequence; of the longest where they differ."""
        return int(self.lengths.max())

    @property
    def even(self) -> bool:
        """Whether all sequences hold the same number of positions."""
        return bool((self.lengths == self.lengths[0]).all())

    def write(self, layer: int, k: Array, v: Array) -> None:  # [B, H, T, K] twice
        """Put the keys and values of T new positions behind those held of each sequence."""
        T = k.shape[2]
        if self.even:
            new = slice(self.length, self.length + T)
            self.keys[layer, :, :, new] = k
            self.values[layer, :, :, new] = v
            return
        for b, length in enumerate(self.lengths):
            self.keys[layer, b, :, length : length + T] = k[b]
            self.values[layer, b, :, length : length + T] = v[b]

    def truncate(self, length: int | npt.NDArray[Any]) -> None:
        """Forget the positions from ``length`` on (one number for all, or one per sequence)."""
        if np.any(length < 0) or np.any(length > self.lengths):
            raise ContextError(f"cannot cut to {length} a cache that holds {self.lengths.tolist()}")
        self.lengths[:] = length

    def select(self, rows: npt.ArrayLike) -> KVCache:
        """Copy the given sequences, in the order given, repeats included, to a cache of their own.

        Examples
        --------
        >>> import gpt2np
        >>> KVCache(gpt2np.load().params, batch_size=2).select([1, 1, 0]).batch_size
        3
        """
        new: KVCache = object.__new__(KVCache)
        rows = np.asarray(rows, np.intp)
        new.lengths = self.lengths[rows]
        used = int(new.lengths.max(initial=0))
        shape = (*self.keys.shape[:1], len(new.lengths), *self.keys.shape[2:])
        new.keys, new.values = np.empty(shape, self.keys.dtype), np.empty(shape, self.keys.dtype)
        new.keys[:, :, :, :used] = self.keys[:, rows, :, :used]
        new.values[:, :, :, :used] = self.values[:, rows, :, :used]
        return new

    def copy(self) -> KVCache:
        """Copy the cache, so that one prefix can be continued in several ways."""
        return self.select(np.arange(self.batch_size))

    def __repr__(self) -> str:
        return (f"KVCache({self.batch_size} x {self.capacity} positions, "
                f"held: {self.lengths.tolist()})")
