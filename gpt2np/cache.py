"""The key-value cache: what attention has seen of each sequence, so that it is never read again."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np.errors import ContextError, InputError, as_integer
from gpt2np.notebook import Shown
from gpt2np.params import Array, Ids, Params, as_params

# Rows of a batch, and the keys and values [b, H, S, K] of the positions that they see.
Span: TypeAlias = tuple[slice, Array, Array]


class KVCache(Shown):
    """Keys and values of the positions read so far: plain arrays, filled from the left.

    Parameters
    ----------
    params : Params
        The model's weights; they give the shape and the dtype, and the cache is theirs alone.
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
    identity : str
        That of the weights: a pass with others is refused.

    Notes
    -----
    What is beyond `lengths` has no meaning, and everything is written there first: whatever
    interrupts a pass, the cache holds what it says it holds. It is not for two threads at a time:
    give each its own (`copy`).

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
        batch_size = as_integer("batch_size", batch_size, 1)
        capacity = config.n_ctx if capacity is None else as_integer("capacity", capacity)
        if not 1 <= capacity <= config.n_ctx:
            raise ContextError(
                f"capacity is {capacity}; a cache for this model has 1 to {config.n_ctx} positions"
            )
        shape = (config.n_layer, batch_size, config.n_head, capacity, config.head_width)
        self.identity = params.identity
        self.keys: Array = np.empty(shape, params.dtype)
        self.values: Array = np.empty(shape, params.dtype)
        self.ids: Ids = np.zeros((batch_size, capacity), np.intp)
        self.lengths: Ids = np.zeros(batch_size, np.intp)

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

    def check(self, params: Params, B: int, T: int) -> None:
        """Refuse weights that are not the cache's, another batch, or more than there is room for.

        Raises
        ------
        InputError
            Naming the cache's weights and the others.
        ContextError
            T new positions are too many.
        """
        if self.identity != params.identity:
            raise InputError(
                f"this cache holds keys and values of other weights ({self.identity}) than those "
                f"of this pass ({params.identity}): make one with gpt2np.KVCache(model.params)"
            )
        if self.batch_size != B:
            raise InputError(f"{B} sequences for a cache of {self.batch_size}")
        if self.length + T > self.capacity:
            n_ctx = params.config.n_ctx
            what = "the model's context" if self.capacity == n_ctx else "the cache's capacity"
            raise ContextError(
                f"{self.length} cached and {T} new positions make {self.length + T}, "
                f"but {what} is {self.capacity}"
            )

    def _groups(self) -> list[tuple[slice, int]]:
        """Rows that hold the same number of positions: all as one, or each by itself."""
        lengths = self.lengths.tolist()
        if lengths.count(lengths[0]) == len(lengths):
            return [(slice(None), lengths[0])]
        return [(slice(b, b + 1), n) for b, n in enumerate(lengths)]

    def extend(self, layer: int, k: Array, v: Array) -> list[Span]:
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
        for rows, held in self._groups():
            keys, values = self.keys[layer, rows], self.values[layer, rows]
            keys[:, :, held : held + T], values[:, :, held : held + T] = k[rows], v[rows]
            spans.append((rows, keys[:, :, : held + T], values[:, :, : held + T]))
        return spans

    def advance(self, ids: Ids) -> None:  # [B, T]
        """Count T more positions as held, once every layer has put in its keys and values."""
        T = ids.shape[1]
        for rows, held in self._groups():
            self.ids[rows, held : held + T] = ids[rows]
        self.lengths = self.lengths + T

    def put(self, rows: npt.ArrayLike, other: KVCache) -> None:
        """Let sequences hold what those of another cache hold, which has as many."""
        rows, n = np.asarray(rows, np.intp), other.length
        before, after = self.lengths.copy(), self.lengths.copy()
        before[rows], after[rows] = 0, other.lengths
        self.lengths = before  # nothing, while it is written over
        self.keys[:, rows, :, :n] = other.keys[:, :, :, :n]
        self.values[:, rows, :, :n] = other.values[:, :, :, :n]
        self.ids[rows, :n] = other.ids[:, :n]
        self.lengths = after

    def truncate(self, length: int | npt.NDArray[Any]) -> None:
        """Forget the positions from ``length`` on (one number for all, or one per sequence)."""
        each = length if isinstance(length, list | tuple | np.ndarray) else [length]
        whole = np.array([as_integer("length", n) for n in np.ravel(each).tolist()], np.intp)
        if whole.size not in (1, self.batch_size):
            raise InputError(f"{whole.size} lengths for a cache of {self.batch_size} sequences")
        if (whole < 0).any() or (whole > self.lengths).any():
            raise ContextError(f"cannot cut to {length} a cache that holds {self.lengths.tolist()}")
        self.lengths = np.broadcast_to(whole, self.lengths.shape).copy()

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
        new.identity = self.identity
        new.lengths = self.lengths[rows]
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
