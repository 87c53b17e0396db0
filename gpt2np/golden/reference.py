"""What two recordings tell of the computations that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from gpt2np.config import Config
from gpt2np.dumps import AnyArray
from gpt2np.errors import CheckpointError
from gpt2np.golden.faulty import Computation
from gpt2np.golden.measure import aligned
from gpt2np.golden.names import (
    IDS,
    MAX_NAME,
    arrangements,
    by_point,
    kind_and_block,
    shape_of,
)
from gpt2np.golden.record import PAST, Golden, run_model
from gpt2np.golden.steps import Widened
from gpt2np.loading import Model
from gpt2np.model import check_ids
from gpt2np.params import Ids, Params
from gpt2np.recorder import Trace
from gpt2np.schema import canonical_name, tensors
from gpt2np.trace import POINTS


class Reference:
    """The recording to hold others against, and the model it is of, where that is known.

    Attributes
    ----------
    points : arrays by point; of a full recording for a second pass, its last positions alone
    config, params, ids, past : None where they are not known; ids [B, N + T]
    """

    def __init__(self, theirs: Golden, mine: Mapping[str, AnyArray], model: Model | None) -> None:
        self.name = theirs.name
        self.points, self.unknown = by_point(theirs.arrays)
        self.config = model.config if model else theirs.config
        self.params: Params | None = None
        self.ids: Ids | None = None
        self.past: tuple[AnyArray, AnyArray] | None = None
        if self.config is None:
            return
        self.params = model.params if model else _weights(theirs.arrays, self.config)
        ids = self.points.get("ids", mine.get("ids"))
        self.ids = None if ids is None else check_ids(self.config, ids)
        self.past = _past(theirs, self.config)
        if self.ids is not None and self.held >= self.ids.shape[1]:
            raise CheckpointError(
                f"{theirs.name}: {PAST[0]} holds {self.held} positions, of "
                f"{self.ids.shape[1]} ids in all"
            )
        if self.past is None:
            self._slice(_held_by(mine, self.points))

    def _slice(self, held: int) -> None:
        """Keep of a full recording what a second pass computes, behind `held` positions."""
        if not held or self.config is None:
            return
        B, T = _batch_and_positions(self.points, self.ids, 0)
        if held >= T:
            return
        kv = []
        for letter in "kv":
            names = [f"h.{i}.attn.{letter}" for i in range(self.config.n_layer)]
            like = np.broadcast_to(0, shape_of(names[0], self.config, B, T, T))
            if all(name in self.points for name in names):
                parts = [_arranged(self.points[name], like) for name in names]
                if not any(part is None for part in parts):
                    kv.append(np.stack([part[:, :, :held] for part in parts if part is not None]))
        if len(kv) == len("kv"):
            self.past = kv[0], kv[1]
        elif self.params is not None and self.ids is not None:
            self.past = run_model(self.params, self.ids, Trace("ids"), held)[1]
        sliced = dict(self.points)
        for point, array in self.points.items():
            axes = POINTS.get(kind_and_block(point)[0], "B T D").split()
            if point not in IDS and array.ndim == len(axes) and array.shape[axes.index("T")] == T:
                index = [slice(None)] * array.ndim
                index[axes.index("T")] = slice(held, None)
                sliced[point] = array[tuple(index)]
        if self.past is not None:
            sliced |= dict(zip(PAST, self.past, strict=True))
        self.points = sliced

    @property
    def held(self) -> int:
        """N, how many positions were read in a first pass."""
        return int(self.past[0].shape[3]) if self.past else 0

    @cached_property
    def run(self) -> Computation:
        """All of the computation where its weights are known, else what was recorded of it."""
        if self.config is None:
            return Computation({})
        if self.params is None or self.ids is None:
            at = arranged(self.points, self.config, self.ids, self.held, {})
            return Computation(at, self.config, {}, self.ids, self.past)
        trace = Trace(copy=False)
        _, past = run_model(self.params, self.ids, trace, self.held)
        at = {"embed": trace["wte"] + trace["wpe"], **trace}
        return Computation(at, self.config, self.params, self.ids, past)

    def of(self, mine: Mapping[str, AnyArray]) -> Computation | None:
        """My computation as it was recorded, with the reference's weights, in float64."""
        if self.config is None:
            return None
        ids = self.ids
        if "ids" in mine and ids is not None and mine["ids"].shape == ids.shape:
            own = mine["ids"]
            valid = own.dtype.kind in "iu" and 0 <= own.min() <= own.max() < self.config.vocab_size
            ids = own.astype(np.intp) if valid else ids
        past = self.past
        if past is not None and all(name in mine and mine[name].size for name in PAST):
            pairs = [aligned(n, mine[n], a) for n, a in zip(PAST, past, strict=True)]
            if pairs[0] and pairs[1]:
                past = pairs[0][0], pairs[1][0]
        at = arranged(mine, self.config, ids, self.held, self.points)
        wide = None if past is None else (past[0].astype(float), past[1].astype(float))
        return Computation(Widened(at), self.config, self.params or {}, ids, wide)


def arranged(
    points: Mapping[str, AnyArray],
    config: Config,
    ids: Ids | None,
    held: int,
    likely: Mapping[str, AnyArray],
) -> dict[str, AnyArray]:
    """Give arrays in this package's layout: of those that are possible, the nearest to likely ones.

    What can have no place in the computation is left out.
    """
    B, T = _batch_and_positions(points, ids, held)
    at = {}
    for point, array in points.items():
        if kind_and_block(point)[0] not in (*POINTS, "embed"):
            continue
        shape = shape_of(point, config, B, T, held + T)
        if point == "wpe" and array.size == shape[1] * shape[2]:
            shape = (1, *shape[1:])
        theirs = likely.get(point)
        found = None
        if theirs is not None and theirs.shape == shape:
            pair = aligned(point, array, theirs)
            found = pair and pair[0]
        else:
            padded = point == "logits" and array.ndim and array.shape[-1] > shape[-1]
            unpadded = array[..., : shape[-1]] if padded else array
            found = _arranged(unpadded, np.broadcast_to(0, shape))
        if found is not None and found.shape[1:-1] == shape[1:-1]:
            at[point] = found
    return at


def _arranged(array: AnyArray, like: AnyArray) -> AnyArray | None:
    return next(arrangements(array, like), None)


def _batch_and_positions(
    points: Mapping[str, AnyArray], ids: Ids | None, held: int
) -> tuple[int, int]:
    """B and T, from the ids or from the first activation that has them."""
    if ids is not None:
        return ids.shape[0], ids.shape[1] - held
    for point, array in points.items():
        axes = POINTS.get(kind_and_block(point)[0], "").split()
        if axes and array.ndim == len(axes):
            return int(array.shape[0]), int(array.shape[axes.index("T")])
    return 1, 1


def _held_by(mine: Mapping[str, AnyArray], theirs: Mapping[str, AnyArray]) -> int:
    """How many positions mine read before, by its cache or by what it lacks of theirs."""
    if PAST[0] in mine and mine[PAST[0]].ndim == 5:
        return int(mine[PAST[0]].shape[3])
    for point in ("wte", "embed", "h.0", "h.0.ln_1", "h.0.attn.c_attn"):
        if point in mine and point in theirs and mine[point].ndim == theirs[point].ndim == 3:
            return max(0, int(theirs[point].shape[1] - mine[point].shape[1]))
    return 0


def _past(theirs: Golden, config: Config) -> tuple[AnyArray, AnyArray] | None:
    """The keys and values of a first pass, if a recording has them."""
    if not all(name in theirs.arrays for name in PAST):
        return None
    keys, values = theirs.arrays[PAST[0]], theirs.arrays[PAST[1]]
    L, H, K = config.n_layer, config.n_head, config.head_width
    if (
        keys.shape != values.shape
        or keys.ndim != 5
        or (len(keys), keys.shape[2], keys.shape[4]) != (L, H, K)
    ):
        raise CheckpointError(
            f"{theirs.name}: {' and '.join(PAST)} have the shapes {list(keys.shape)} and "
            f"{list(values.shape)}; by its config they have [{L}, B, {H}, N, {K}]"
        )
    return keys, values


def _weights(arrays: Mapping[str, AnyArray], config: Config) -> Params | None:
    """The weights, if a recording has them all."""
    if config.n_layer > len(arrays):
        return None
    names = [name for name, _, _ in tensors(config)]
    found = {canonical_name(name): array for name, array in arrays.items() if len(name) < MAX_NAME}
    if not all(name in found for name in names):
        return None
    return Params(config, {name: found[name] for name in names})
