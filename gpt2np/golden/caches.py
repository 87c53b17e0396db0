"""What goes wrong with a cache: its contents in the wrong place, or read at the wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.model import forward
from gpt2np.params import Array, Ids, Params


def contents(which: str, past: tuple[Array, Array], mine: Array) -> Iterator[tuple[str, Array]]:
    """Give the faults that past.keys or past.values [L, B, H, N, K] may show, and what they make.

    What a fault leaves free is mine.
    """
    clean, other = past if which == "keys" else past[::-1]
    L, N = len(clean), clean.shape[3]
    yield "the cache is empty: all zeros", np.zeros_like(clean)
    yield "keys and values are exchanged", other
    for i in range(L if L > 1 else 0):
        yield f"all layers share one cache, layer {i}'s", np.repeat(clean[i : i + 1], L, 0)
    if L > 1:
        for by, place in ((1, "next"), (-1, "previous")):
            moved = np.roll(clean, by, 0)
            yield f"each layer's is written at the {place} layer's place", moved
            free = 0 if by == 1 else -1
            moved = moved.copy()
            moved[free] = mine[free]
            yield f"each layer's is written at the {place} layer's place", moved
    for by, where in ((1, "behind"), (-1, "before")) if N > 1 else ():
        moved = np.roll(clean, by, 3)
        end = 0 if by == 1 else -1
        moved[..., end, :] = mine[..., end, :]
        yield f"the slots are off by one: what belongs to one stands in the one {where} it", moved
    for slot in {0, N - 1}:
        alone = np.zeros_like(clean)
        alone[..., slot, :] = clean[..., -1, :]
        yield "positions do not advance: each is written over the one before it", alone
        free = mine.copy()
        free[..., slot, :] = clean[..., -1, :]
        if N > 2 and not np.allclose(mine[..., 1, :], clean[..., 1, :]):
            yield "positions do not advance: each is written over the one before it", free
    yield (
        "[N, H, K] is read as [H, N, K], without moving the axis of the heads",
        clean.swapaxes(2, 3).reshape(clean.shape),
    )


# What is read of the keys and values [2, L, B, H, N, K] that were written, of which T are the
# prompt's; and where the new token stands, by how many were read before it.
Read = Callable[[Array, int], Array]
Place = Callable[[int, int], int]


def _layers_moved(by: int) -> Read:
    return lambda held, T: np.roll(held, by, 1)


def _shared(layer: int) -> Read:
    return lambda held, T: np.repeat(held[:, layer : layer + 1], held.shape[1], 1)


def _slots_moved(by: int) -> Read:
    """Each slot holds what belongs to another one; the free one holds nothing."""

    def read(held: Array, T: int) -> Array:
        moved: Array = np.roll(held, by, 4)
        moved[..., 0 if by > 0 else -1, :] = 0
        return moved

    return read


def _emptied(slot: int) -> Read:
    """Nothing is ever written behind a slot."""

    def read(held: Array, T: int) -> Array:
        kept: Array = held.copy()
        kept[..., slot:, :] = 0
        return kept

    return read


READS: dict[str, Read] = {
    "keys and values are exchanged": lambda held, T: held[::-1],
    "the cache holds zeros": lambda held, T: np.zeros_like(held),
    "the cache is not read: each new token sees itself alone": lambda held, T: held[..., :0, :],
    "the cache keeps the prompt alone": lambda held, T: held[..., :T, :],
    "the cache does not keep the prompt": lambda held, T: held[..., T:, :],
    "the slots are off by one: the last token is not seen": lambda held, T: held[..., :-1, :],
    "the slots are off by one: what belongs to one stands in the one behind it": _slots_moved(1),
    "the slots are off by one: what belongs to one stands in the one before it": _slots_moved(-1),
    "each layer's keys and values are written at the next layer's place": _layers_moved(1),
    "each layer's keys and values are written at the previous layer's place": _layers_moved(-1),
}  # fmt: skip

PLACES: dict[str, Place] = {
    "the new token's position is 0: counted anew in each pass": lambda read, T: 0,
    "positions are counted from 0 again, behind the prompt": lambda read, T: read - T,
    "the position does not advance: each new token has the prompt's last": lambda read, T: T - 1,
    "the position does not advance: each new token has the first new one's": lambda read, T: T,
    "the new token's position is one too large": lambda read, T: read + 1,
    "the new token's position is one too small": lambda read, T: read - 1,
}


@dataclass(frozen=True)
class Fault:
    """One way in which decoding through a cache goes wrong."""

    read: Read | None = None  # what lies in the cache
    place: Place | None = None  # the position of the new token
    slot: int | None = None  # where all that is new is written
    mask: Callable[[Array], Array] | None = None  # of scores [B, H, 1, S]
    start: int = 0  # the position of the first token of all


def _sees_the_first_alone(scores: Array) -> Array:
    return np.where(np.arange(scores.shape[-1]) > 0, -np.inf, scores)


def _hides_itself(scores: Array) -> Array:
    return np.where(np.arange(scores.shape[-1]) == scores.shape[-1] - 1, -np.inf, scores)


def decoding_faults(n_layer: int, T: int) -> dict[str, Fault]:
    """Give the faults that show once the cache is read, behind a first pass of T tokens."""
    return {
        **{f"all layers share one cache, which holds layer {i}'s": Fault(read=_shared(i))
           for i in range(n_layer)},
        **{cause: Fault(read=read) for cause, read in READS.items()},
        **{cause: Fault(place=place) for cause, place in PLACES.items()},
        "slots do not advance: each new token is written over the one before it":
            Fault(read=_emptied(T), slot=T),
        "slots do not advance: each token is written over the first one":
            Fault(read=_emptied(0), slot=0),
        "the mask is counted from the upper left corner, as if nothing were cached":
            Fault(mask=_sees_the_first_alone),
        "the mask is off by one: no position sees itself": Fault(mask=_hides_itself),
        "positions are counted from 1": Fault(start=1),
    }  # fmt: skip


def decode(  # [B, T], [B, N] -> [B, N, V], [2, L, B, H, T + N - 1, K]
    params: Params, ids: Ids, taken: Ids, fault: Fault
) -> tuple[Array, Array]:
    """Decode token by token with a fault, whatever its logits say: the next ones are given.

    Returns the logits that each is taken from, and the keys and values in the order of writing.
    """
    T = ids.shape[1]
    cache = KVCache(params, len(ids))
    rows = params.wpe[(np.arange(T) + fault.start) % len(params.wpe)]

    def first(name: str, array: Array) -> Array | None:
        return np.broadcast_to(rows, array.shape) if name == "wpe" else None

    steps = [forward(params, ids, cache, last_only=True, probe=first)]
    held = np.stack([cache.keys[..., :T, :], cache.values[..., :T, :]])
    for n in range(taken.shape[1] - 1):
        seen = held if fault.read is None else fault.read(held, T)
        at = T + n + fault.start if fault.place is None else fault.place(T + n, T)

        def probe(name: str, array: Array, at: int = at) -> Array | None:
            slot = fault.slot
            if name == "wpe":
                return np.broadcast_to(params.wpe[at % len(params.wpe)], array.shape)
            if slot is not None and slot < cache.length and name.endswith(("attn.k", "attn.v")):
                side = cache.keys if name.endswith("k") else cache.values
                side[int(name.split(".")[1]), :, :, slot] = array[:, :, 0]
            if fault.mask is not None and name.endswith("attn.scores"):
                return fault.mask(array)
            return None

        cache.truncate(0)
        refill(cache, seen)
        new = taken[:, n : n + 1]
        steps.append(forward(params, new, cache, last_only=True, probe=probe))
        N = cache.length
        written = np.stack([cache.keys[..., N - 1 : N, :], cache.values[..., N - 1 : N, :]])
        held = np.concatenate([held, written], 4)
    return np.concatenate(steps, 1), held


def contents_of(which: str, held: Array, fault: Fault, mine: Array) -> Array:
    """What the cache holds, keys or values [L, B, H, N, K], after tokens one by one with a fault.

    Layers in which I hold nothing may be of no use with the fault: they are left as they are.
    """
    N = held.shape[4]
    buffer = held if fault.read is None else fault.read(held, 1)
    if fault.slot is not None and fault.slot < N:
        buffer = buffer.copy()
        buffer[..., fault.slot, :] = held[..., -1, :]
    made: Array = buffer[0 if which == "keys" else 1]
    if made.shape != mine.shape:
        return np.full_like(mine, np.nan)
    empty = (mine == 0).all((1, 2, 3, 4), keepdims=True)
    return np.where(empty & ~empty.all(), mine, made)


def refill(cache: KVCache, held: Array) -> None:
    """Let an empty cache hold keys and values [2, L, B, H, N, K]."""
    N = held.shape[4]
    cache.keys[..., :N, :], cache.values[..., :N, :] = held
    if N:
        cache.advance(np.zeros((held.shape[2], N), np.intp))
