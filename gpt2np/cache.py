"""The key-value cache: what attention has seen of each sequence, so that it is never read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpt2np.errors import ContextError, InputError
from gpt2np.params import Array, Params, as_params


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
    ids : int array [B, capacity]
        The tokens held.

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
        config = as_params(params).config
        capacity = config.n_ctx if capacity is None else capacity
        if not 1 <= capacity <= config.n_ctx:
            raise ContextError(
                f"capacity is {capacity}; a cache for this model has 1 to {config.n_ctx} positions"
            )
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; a cache holds 1 sequence or more")
        shape = (config.n_layer, batch_size, config.n_head, capacity, config.head_width)
        self.keys: Array = np.empty(shape, params.dtype)
        self.values: Array = np.empty(shape, params.dtype)
        self.ids: npt.NDArray[np.intp] = np.zeros((batch_size, capacity), np.intp)
        self._hold(np.zeros(batch_size, np.intp))

    def _hold(self, lengths: npt.NDArray[np.intp]) -> None:
        """Set the lengths, and group the rows of equal length: all as one, or each by itself."""
        self.lengths = lengths
        if (lengths == lengths[:1]).all():
            self._groups = [(slice(None), self.length)]
        else:
            self._groups = [(slice(b, b + 1), int(n)) for b, n in enumerate(lengths)]

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
        return int(self.lengths.max(initial=0))

    def extend(self, layer: int, k: Array, v: Array) -> list[tuple[slice, Array, Array]]:
        """Put keys and values [B, H, T, K] of new positions behind those held of each sequence.

        Returns
        -------
        list of (rows, keys, values)
            Which sequences, and their keys and values [b, H, S, K] so far, the new ones included:
            all sequences at once where they hold the same number of positions, else one by one,
            so that nothing is ever padded.
        """
        T = k.shape[2]
        spans = []
        for rows, held in self._groups:
            keys, values = self.keys[layer, rows], self.values[layer, rows]
            keys[:, :, held : held + T], values[:, :, held : held + T] = k[rows], v[rows]
            spans.append((rows, keys[:, :, : held + T], values[:, :, : held + T]))
        return spans

    def advance(self, ids: npt.NDArray[np.integer[Any]]) -> None:  # [B, T]
        """Count T more positions as held, once every layer has put in its keys and values."""
        T = ids.shape[1]
        for rows, held in self._groups:
            self.ids[rows, held : held + T] = ids[rows]
        self._hold(self.lengths + T)

    def put(self, rows: npt.ArrayLike, other: KVCache) -> None:
        """Let sequences hold what those of another cache hold, which has as many."""
        rows, n, lengths = np.asarray(rows, np.intp), other.length, self.lengths.copy()
        self.keys[:, rows, :, :n] = other.keys[:, :, :, :n]
        self.values[:, rows, :, :n] = other.values[:, :, :, :n]
        self.ids[rows, :n] = other.ids[:, :n]
        lengths[rows] = other.lengths
        self._hold(lengths)

    def truncate(self, length: int | npt.NDArray[Any]) -> None:
        """Forget the positions from ``length`` on (one number for all, or one per sequence)."""
        if np.any(length < 0) or np.any(length > self.lengths):
            raise ContextError(f"cannot cut to {length} a cache that holds {self.lengths.tolist()}")
        self._hold(np.broadcast_to(length, self.lengths.shape).astype(np.intp))

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
        new._hold(self.lengths[rows])
        new.ids = self.ids[rows]
        used = new.length
        shape = (*self.keys.shape[:1], len(new.lengths), *self.keys.shape[2:])
        new.keys, new.values = np.empty(shape, self.keys.dtype), np.empty(shape, self.keys.dtype)
        new.keys[:, :, :, :used] = self.keys[:, rows, :, :used]
        new.values[:, :, :, :used] = self.values[:, rows, :, :used]
        return new

    def copy(self) -> KVCache:
        """Copy the cache, so that one prefix can be continued in several ways."""
        return self.select(np.arange(self.batch_size))

    def __repr__(self) -> str:
        return (
            f"KVCache({self.batch_size} x {self.capacity} positions, held: {self.lengths.tolist()})"
        )
