"""What goes wrong with a cache: its contents in the wrong place, or read at the wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

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
        kept = held.copy()
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


def decoding_faults(
    params: Params, ids: Ids, taken: Ids
) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Give the faults that show once the cache is read, and the logits [B, N, V] with each."""
    for layer in range(params.config.n_layer):
        cause = f"all layers share one cache, which holds layer {layer}'s"
        yield cause, partial(decode, params, ids, taken, read=_shared(layer))
    for cause, read in READS.items():
        yield cause, partial(decode, params, ids, taken, read=read)
    for cause, place in PLACES.items():
        yield cause, partial(decode, params, ids, taken, place=place)
    for cause, slot in (
        ("slots do not advance: each new token is written over the one before it", ids.shape[1]),
        ("slots do not advance: each token is written over the first one", 0),
    ):
        yield cause, partial(decode, params, ids, taken, read=_emptied(slot), slot=slot)
    cause = "the mask is counted from the upper left corner, as if nothing were cached"
    yield cause, partial(decode, params, ids, taken, sees_first=True)


def decode(
    params: Params,
    ids: Ids,
    taken: Ids,
    *,
    read: Read | None = None,
    place: Place | None = None,
    slot: int | None = None,
    sees_first: bool = False,
) -> Array:  # [B, N, V]
    """Decode token by token with a fault, whatever its logits say: the next ones are given."""
    T = ids.shape[1]
    cache = KVCache(params, len(ids))
    steps = [forward(params, ids, cache, last_only=True)]
    held = np.stack([cache.keys[..., :T, :], cache.values[..., :T, :]])
    for n in range(taken.shape[1] - 1):
        seen = held if read is None else read(held, T)
        at = T + n if place is None else place(T + n, T)

        def probe(name: str, array: Array, at: int = at) -> Array | None:
            if name == "wpe":
                return np.broadcast_to(params.wpe[at % len(params.wpe)], array.shape)
            if slot is not None and slot < cache.length and name.endswith(("attn.k", "attn.v")):
                side = cache.keys if name.endswith("k") else cache.values
                side[int(name.split(".")[1]), :, :, slot] = array[:, :, 0]
            if sees_first and name.endswith("attn.scores"):
                return np.where(np.arange(array.shape[-1]) > 0, -np.inf, array)
            return None

        cache.truncate(0)
        refill(cache, seen)
        new = taken[:, n : n + 1]
        steps.append(forward(params, new, cache, last_only=True, probe=probe))
        N = cache.length
        written = np.stack([cache.keys[..., N - 1 : N, :], cache.values[..., N - 1 : N, :]])
        held = np.concatenate([held, written], 4)
    return np.concatenate(steps, 1)


def refill(cache: KVCache, held: Array) -> None:
    """Let an empty cache hold keys and values [2, L, B, H, N, K]."""
    N = held.shape[4]
    cache.keys[..., :N, :], cache.values[..., :N, :] = held
    if N:
        cache.advance(np.zeros((held.shape[2], N), np.intp))
