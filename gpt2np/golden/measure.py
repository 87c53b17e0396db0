"""How far two activations are apart, and how far they may be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpt2np.dumps import AnyArray
from gpt2np.golden.names import arrangements, fitted, kind_and_block

# The relative error up to which two runs are the same, by the precision of the coarser one: what
# the order of additions and the rounding of each result may come to through 48 blocks.
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 1e-2, "bfloat16": 8e-2}
PRECISIONS = list(TOLERANCE)
HALF = ("float16", "bfloat16")
SOFTMAX = 5  # times as much for patterns: absolute errors of scores become relative ones of e^x

HIDDEN = -9e3  # masks are minus infinity, -1e10, -1e4 or the least number of a dtype


class Distance(NamedTuple):
    """How far an array is from the reference."""

    difference: float  # the largest
    relative: float  # the largest, to the largest number of its row
    where: tuple[int, ...]  # the element that is relatively farthest
    mine: float
    theirs: float


def measure(point: str, mine: AnyArray, theirs: AnyArray) -> Distance:
    """Measure the distance of two arrays of one shape.

    The errors of a row (the last axis) are in proportion to its largest numbers. A row of
    small ones may be what large ones left when they cancelled: it is held against the median row.

    Examples
    --------
    >>> measure("ln_f", np.array([[1.0, 2.0]]), np.array([[1.0, 4.0]]))
    Distance(difference=2.0, relative=0.5, where=(0, 1), mine=2.0, theirs=4.0)
    """
    if theirs.size == 0:
        return Distance(0.0, 0.0, (), 0.0, 0.0)
    mine, theirs = np.atleast_1d(mine), np.atleast_1d(theirs)
    if kind_and_block(point)[0] == "h.{i}.attn.scores":
        mine, theirs = (np.where(x < HIDDEN, -np.inf, x) for x in (mine, theirs))
    dtype = np.result_type(mine, theirs, np.float32)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        d = np.abs(np.subtract(mine, theirs, dtype=dtype))
        d[np.isnan(d)] = np.inf
        d[(mine == theirs) | (np.isnan(mine) & np.isnan(theirs))] = 0  # infinities among them
        rows = np.where(np.isfinite(theirs), np.abs(theirs), 0).max(-1, keepdims=True)
        relative = d / np.maximum(rows, np.median(rows))
        relative[d == 0] = 0
    where = np.unravel_index(int(relative.argmax()), d.shape)
    return Distance(
        float(d.max()),
        float(relative[where]),
        tuple(map(int, where)),
        float(mine[where]),
        float(theirs[where]),
    )


def tolerance(level: int, point: str) -> float:
    """Give the relative error that is allowed at a point, in the precision of a level."""
    is_pattern = kind_and_block(point)[0] == "h.{i}.attn.pattern"
    return TOLERANCE[PRECISIONS[level]] * (SOFTMAX if is_pattern else 1)


def aligned(point: str, mine: AnyArray, theirs: AnyArray) -> tuple[AnyArray, AnyArray] | None:
    """Give both in the layout of the reference: of those in which mine can be meant, the nearest.

    None if it can be meant in none.
    """
    mine, theirs = fitted(point, mine, theirs)
    candidates = list(arrangements(mine, theirs))
    if len(candidates) > 1:
        candidates.sort(key=lambda x: measure(point, x, theirs).relative)
    return (candidates[0], theirs) if candidates else None


def precision(array: AnyArray) -> str:
    """Name the coarsest floating-point type that holds all of an array's numbers.

    Examples
    --------
    >>> precision(np.array([0.1], np.float32)), precision(np.array([1.5, 3.0], np.float32))
    ('float32', 'bfloat16')
    """
    x = array[np.isfinite(array) & (array != 0)]
    with np.errstate(over="ignore"):
        wide = x.astype(np.float32)
        if x.size and np.array_equal(wide, x):
            if not (wide.view(np.uint32) & 0xFFFF).any():
                return "bfloat16"
            return "float16" if np.array_equal(wide.astype(np.float16), x) else "float32"
    return str(array.dtype)
