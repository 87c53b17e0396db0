"""One name and one layout for an activation, whatever program recorded it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import mul

import numpy as np

from gpt2np.config import Config
from gpt2np.dumps import AnyArray
from gpt2np.recorder import OTHERS
from gpt2np.schema import canonical_name, sizes
from gpt2np.trace import POINTS

# Everything that is compared, in order of the flow. `embed`, the sum of wte and wpe, is no point
# of its own, but what others record instead.
ORDER = (
    "ids",
    "past.keys",
    "past.values",
    "wte",
    "wpe",
    "embed",
    *(name for name in POINTS if name not in ("wte", "wpe")),
    "loss",
    "greedy.logits",
    "greedy",
)

ALIASES = {"input_ids": "ids", "drop": "embed", **OTHERS}

NOT_ACTIVATIONS = (".weight", ".bias")

LOGITS = ("logits", "greedy.logits")
IDS = ("ids", "greedy")  # which are the same or not

_BLOCK = re.compile(r"^(h|blocks)\.([0-9]{1,4})(?![0-9])")
MAX_NAME = 200  # characters
_RANK = {kind: rank for rank, kind in enumerate(ORDER)}


def kind_and_block(point: str) -> tuple[str, int]:
    """Split a point's name into that of `ORDER` and the number of the block, 0 outside of them.

    >>> kind_and_block("h.11.attn.q"), kind_and_block("ln_f")
    (('h.{i}.attn.q', 11), ('ln_f', 0))
    """
    block = _BLOCK.match(point)
    return _BLOCK.sub(r"\1.{i}", point), int(block[2]) if block else 0


def flow_order(point: str) -> tuple[int, int, int]:
    """Give the key that sorts points in order of the flow."""
    kind, i = kind_and_block(point)
    stage = (kind.startswith("h."), _RANK[kind] > _RANK["h.{i}"])
    return 2 * stage[1] + stage[0], i, _RANK[kind]


def point_of(name: str) -> str | None:
    """Find the point that a program's name stands for, if any.

    >>> point_of("transformer.h.3.mlp"), point_of("blocks.3.hook_resid_pre"), point_of("mask")
    ('h.3.mlp.c_proj', 'h.2', None)
    """
    if len(name) > MAX_NAME:
        return None
    kind, i = kind_and_block(canonical_name(name.replace("/", ".")))
    if kind == "blocks.{i}.hook_resid_pre":
        return f"h.{i - 1}" if i else "embed"
    kind = ALIASES.get(kind, kind)
    return kind.format(i=i) if kind in _RANK else None


def by_point(arrays: Mapping[str, AnyArray]) -> tuple[dict[str, AnyArray], list[str]]:
    """Give arrays under the names of their points, and the names that stand for none known."""
    points: dict[str, AnyArray] = {}
    others = []
    for name, array in arrays.items():
        point = point_of(name)
        if point is not None:
            points.setdefault(point, array)
        elif not name.endswith(NOT_ACTIVATIONS):
            others.append(name)
    wte, wpe = points.get("wte"), points.get("wpe")
    # wpe may be there once for all sequences.
    once = wte is not None and wpe is not None and wpe.shape == (1, *wte.shape[1:])
    if wte is not None and wpe is not None and (once or wpe.shape == wte.shape[-wpe.ndim :]):
        points.setdefault("embed", wte + wpe)
    return points, others


def shape_of(point: str, config: Config, B: int, T: int, S: int) -> tuple[int, ...]:
    """Give the shape of an activation of T positions that see S.

    >>> shape_of("h.0.attn.scores", Config(), 1, 2, 5)
    (1, 12, 2, 5)
    """
    H, D = config.n_head, config.n_embd
    by_symbol = {"B": B, "H": H, "T": T, "S": S, "K": D // H} | sizes(config)
    kind, _ = kind_and_block(point)
    return tuple(by_symbol[symbol] for symbol in POINTS.get(kind, "B T D").split())


def fitted(point: str, mine: AnyArray, theirs: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Cut or repeat what one program computes more of than another: positions, the vocabulary's
    padding, position embeddings of every sequence."""
    if point in LOGITS and mine.ndim and theirs.ndim and mine.shape[-1] > theirs.shape[-1]:
        mine = mine[..., : theirs.shape[-1]]
    if point in ("logits", "ln_f") and theirs.ndim == 3:
        B, T, V = theirs.shape
        if T > 1 and mine.size == B * V:
            theirs = theirs[:, -1:]
    once = point == "wpe" and mine.ndim == theirs.ndim == 3 and 1 in (len(mine), len(theirs))
    if once and mine.size and theirs.size:
        B = max(len(mine), len(theirs))
        mine, theirs = (np.broadcast_to(x, (B, *x.shape[1:])) for x in (mine, theirs))
    return mine, theirs


def arrangements(mine: AnyArray, theirs: AnyArray) -> Iterator[AnyArray]:
    """Give my array in the shape of the other, in each way in which it can be meant.

    Axes of 1 may be there or not, neighbouring axes be one, and heads stand before or after
    positions: [B, H, T, K] or [B, T, H, K].
    """
    for order in _orders(theirs):
        shape = theirs.transpose(order).shape
        if _differ_by_merged_axes(mine.shape, shape):
            yield mine.reshape(shape).transpose(order)
    if mine.ndim == 4 and theirs.ndim < 4:
        for order in _orders(mine):
            turned = mine.transpose(order)
            if _differ_by_merged_axes(turned.shape, theirs.shape):
                yield turned.reshape(theirs.shape)


def _orders(array: AnyArray) -> list[tuple[int, ...]]:
    return [(0, 1, 2, 3), (0, 2, 1, 3)] if array.ndim == 4 else [tuple(range(array.ndim))]


def _differ_by_merged_axes(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether one shape is the other with neighbouring axes taken together.

    >>> _differ_by_merged_axes((2, 3, 4), (2, 12)), _differ_by_merged_axes((2, 3, 4), (3, 2, 4))
    (True, False)
    """
    cuts = [{1, *accumulate(shape, mul)} for shape in (a, b)]
    return max(cuts[0]) == max(cuts[1]) and (cuts[0] <= cuts[1] or cuts[1] <= cuts[0])
