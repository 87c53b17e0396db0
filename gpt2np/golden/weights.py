"""Weights in a recording, held against the reference's by name: a loader can be tested alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from gpt2np.dumps import AnyArray
from gpt2np.golden.faulty import misread, to_bfloat16, to_float16
from gpt2np.golden.judge import Row
from gpt2np.golden.measure import measure
from gpt2np.golden.names import MAX_NAME
from gpt2np.schema import canonical_name


@dataclass
class Weights:
    """How the weights compare: a row for each that is another, and why it is."""

    rows: list[Row] = field(default_factory=list)
    causes: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare_weights(
    mine: Mapping[str, AnyArray],
    theirs: Mapping[str, AnyArray],
    params: Mapping[str, AnyArray] | None,
) -> Weights:
    """Compare the weights that mine has with the reference's, by their canonical names."""
    ours, reference = _by_name(mine), params or _by_name(theirs)
    common = [name for name in reference if name in ours]
    result = Weights()
    for name in common:
        array, right = ours[name], reference[name]
        fits = array.shape == right.shape
        if fits and np.array_equal(array, right):
            continue
        distance = measure(name, array, right) if fits else None
        if distance is not None and distance.relative <= 2**-23:  # one bit of float32
            continue
        causes = [cause for cause, made in _faults(name, array, reference) if _equal(array, made)]
        result.causes[name] = causes[:1]
        shapes = "" if fits else f": shape {list(array.shape)}, theirs {list(right.shape)}"
        result.rows.append(Row(name, distance, False, f"DIVERGES{shapes}", 0.0))
    if common:
        agreeing = len(common) - len(result.rows)
        result.notes.append(f"weights: {agreeing} of {len(common)} agree, by name")
    return result


def _by_name(arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    return {  # OpenAI's matrices are [1, in, out]
        canonical_name(name): array[0] if array.ndim == 3 and len(array) == 1 else array
        for name, array in arrays.items()
        if len(name) <= MAX_NAME and name.endswith(ENDINGS)
    }


ENDINGS = (".weight", ".bias", "/w", "/b", "/g", "/wte", "/wpe")


def _equal(mine: AnyArray, made: AnyArray) -> bool:
    return mine.shape == made.shape and bool(np.array_equal(mine, made, equal_nan=True))


def _faults(
    name: str, mine: AnyArray, reference: Mapping[str, AnyArray]
) -> Iterator[tuple[str, AnyArray]]:
    """What a loader may have made of a weight; a place that a fault leaves open is mine's."""
    right = reference[name]
    yield "it is all zeros", np.zeros_like(right)
    if right.ndim == 2:
        yield "it is transposed: [in, out] where [out, in] is, or the other way", right.T
        yield "it is transposed: [out, in] is read as [in, out]", misread(right)
        yield "it is transposed, its shape kept: read in Fortran order", misread(right.T).T
    for wider in (to_float16, to_bfloat16):
        yield f"it is rounded to {wider.__name__.removeprefix('to_')}", wider(right)
    yield from _padded(mine, right)
    for other, array in reference.items():
        if other != name and array.shape == right.shape:
            yield f"it is {other}", array
    for other, array in reference.items():
        if other != name and array.ndim == 2 and array.T.shape == right.shape:
            yield f"it is {other}, transposed", array.T
    yield from _moved(mine, right)
    yield "its bytes are in the other order", right.byteswap()


def _padded(mine: AnyArray, right: AnyArray) -> Iterator[tuple[str, AnyArray]]:
    if mine.ndim == right.ndim == 2 and mine.shape[1] == right.shape[1]:
        n = len(mine) - len(right)
        if n > 0:
            made = mine.copy()
            made[: len(right)] = right
            yield f"it has {n} rows of padding, which are to be left out", made
        elif n < 0:
            yield f"its last {-n} rows are missing", right[:n]


def _moved(mine: AnyArray, right: AnyArray) -> Iterator[tuple[str, AnyArray]]:
    """The same numbers, from a place some elements on or back."""
    a, b = mine.ravel(), right.ravel()
    if a.size != b.size or a.size < 4:
        return
    for at in np.flatnonzero(b == a[0])[:8]:
        if 0 < at < b.size // 2 and np.array_equal(a[: b.size - at], b[at:]):
            yield f"it is read {at} elements too late", mine
    for at in np.flatnonzero(a == b[0])[:8]:
        if 0 < at < a.size // 2 and np.array_equal(a[at:], b[: a.size - at]):
            yield f"it is read {at} elements too early", mine
