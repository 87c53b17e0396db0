"""Hold one recording against another: where do they part first, and why?"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gpt2np.checkpoints.base import quote
from gpt2np.config import Config
from gpt2np.dumps import AnyArray
from gpt2np.errors import CheckpointError, InputError
from gpt2np.fitting import canonical_name
from gpt2np.golden.causes import find_causes
from gpt2np.golden.faults import FORMULAS
from gpt2np.golden.faulty import Computation
from gpt2np.golden.measure import (
    HALF,
    PRECISIONS,
    Distance,
    aligned,
    measure,
    precision,
    tolerance,
)
from gpt2np.golden.names import (
    MAX_NAME,
    arrangements,
    by_point,
    flow_order,
    kind_and_block,
    shape_of,
)
from gpt2np.golden.record import PAST, Golden, run_model
from gpt2np.loading import Model
from gpt2np.model import check_ids
from gpt2np.params import Params
from gpt2np.recorder import Trace
from gpt2np.schema import tensors


class Row(NamedTuple):
    """One point of the comparison."""

    point: str
    distance: Distance | None  # None where the shapes do not fit
    same: bool
    verdict: str
    rtol: float  # how far apart, relatively, two arrays may be here


@dataclass(frozen=True)
class Report:
    """What a comparison shows."""

    rows: tuple[Row, ...]  # in order of the flow
    causes: tuple[str, ...]  # of the first divergence, nearest first
    notes: tuple[str, ...]  # what was not compared
    advice: str = ""  # why no cause is named

    @property
    def first(self) -> Row | None:
        """The first point that diverges."""
        return next((row for row in self.rows if not row.same), None)

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain values, for JSON (numbers that are not finite as text)."""
        return {
            "same": self.first is None,
            "first": self.first and self.first.point,
            "causes": list(self.causes),
            "points": [
                {"point": row.point, "same": row.same, "verdict": row.verdict}
                | ({} if row.distance is None else _plain(row.distance))
                for row in self.rows
            ],
            "notes": list(self.notes),
            "advice": self.advice,
        }

    def __str__(self) -> str:
        head = ("point", "max |diff|", "relative", "worst at", "verdict")
        table = [head, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                f"{cell:{'>' if i in (1, 2) else '<'}{w}}"
                for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in table
        ]
        return "\n".join([*lines, "", *self.notes, *self._conclusion()])

    def _conclusion(self) -> list[str]:
        row = self.first
        if row is None:
            return [f"all {len(self.rows)} agree"]
        lines = [f"first divergence: {row.point}  ({FORMULAS[kind_and_block(row.point)[0]]})"]
        if row.distance is not None:
            d = row.distance
            lines.append(f"  at {list(d.where)}: mine {d.mine:.7g}, theirs {d.theirs:.7g}")
        causes = self.causes or ((self.advice,) if self.advice else ())
        heads = ["  cause: ", *["     or: "] * len(causes)]
        return [*lines, *(f"{head}{cause}" for head, cause in zip(heads, causes, strict=False))]


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    if row.distance is None:
        return row.point, "", "", "", row.verdict
    d = row.distance
    where = str(list(d.where)) if d.difference else ""
    return row.point, f"{d.difference:.2g}", f"{d.relative:.2g}", where, row.verdict


def _plain(distance: Distance) -> dict[str, Any]:
    """JSON has no infinities and no NaN."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in distance._asdict().items()
    }


def check(
    mine: str | os.PathLike[str] | Golden,
    theirs: str | os.PathLike[str] | Golden,
    *,
    model: Model | None = None,
    rtol: float | None = None,
    atol: float = 0.0,
) -> Report:
    """Compare two recordings, name the first point at which they part, and seek the cause.

    Parameters
    ----------
    mine, theirs : path or Golden
        A ``.npz`` or ``.safetensors`` file, a folder of ``.npy`` files, or an llm.c debug state,
        with names and layouts of this package, Hugging Face's or TransformerLens's. `theirs` is
        the reference.
    model : Model, optional
        The reference's, where its recording has no weights: many causes cannot be told without.
    rtol : float, optional
        The relative error up to which two arrays are the same (see `gpt2np.golden.measure`).
        Unless given it goes by precision: an array whose numbers all are float16 or bfloat16 is
        judged as such, and so is everything after it.
    atol : float
        An absolute error that is allowed besides.

    Returns
    -------
    Report
        ``rows``, ``first``, ``causes``; ``str(report)`` is the table.

    Raises
    ------
    InputError
        A file cannot be read, or the two have nothing in common.

    Examples
    --------
    >>> import gpt2np
    >>> from gpt2np.golden import Golden, check, record
    >>> theirs = record(gpt2np.load(), "First Citizen:", points="h.0.*", new_tokens=0)
    >>> scores = theirs.arrays["h.0.attn.scores"] * 32**0.5
    >>> mine = Golden({**theirs.arrays, "h.0.attn.scores": scores})
    >>> report = check(mine, theirs)
    >>> report.first.point, report.causes
    ('h.0.attn.scores', ('the scores are not scaled by 1/sqrt(K)',))
    """
    mine, theirs = _read_both(mine, theirs, model)
    (ours, more_mine), (points, more_theirs) = by_point(mine.arrays), by_point(theirs.arrays)
    common = sorted(ours.keys() & points.keys(), key=flow_order)
    if not common:
        raise InputError(
            f"{mine.name} and {theirs.name} have no activation in common: "
            f"{_some(mine.arrays)}; {_some(theirs.arrays)}"
        )
    judge = _Judge(rtol, atol)
    rows = tuple(judge.row(point, ours[point], points[point]) for point in common)
    notes = [
        f"not compared: {_some(names)} {what}"
        for names, what in (
            (more_mine, f"of {mine.name}, which are no activations known"),
            (more_theirs, f"of {theirs.name}, which are no activations known"),
            (sorted(ours.keys() - points.keys(), key=flow_order), f"only in {mine.name}"),
            (sorted(points.keys() - ours.keys(), key=flow_order), f"only in {theirs.name}"),
        )
        if names
    ]
    causes, advice = _explain(rows, ours, points, theirs, model)
    return Report(rows, causes, tuple(notes), advice)


def _explain(
    rows: tuple[Row, ...],
    mine: Mapping[str, AnyArray],
    points: Mapping[str, AnyArray],
    theirs: Golden,
    model: Model | None,
) -> tuple[tuple[str, ...], str]:
    """Why the first point that diverges does, if one does, or what to do to learn more."""
    first = next((row for row in rows if not row.same), None)
    if first is None or first.distance is None:
        return (), ""
    if first.point == "ids":
        return (), "none sought: these are runs on different ids"
    run = reference_run(theirs, points, points.get("ids", mine.get("ids")), model)
    point, recorded = first.point, points[first.point]
    if run.config is not None and point not in run.at:
        return (
            (),
            f"none sought: {theirs.name} has {point} in a shape that its config does not make",
        )
    run = replace(run, at={point: recorded, **run.at})
    pair = aligned(point, recorded, run.at[point])
    if pair is None or measure(point, *pair).relative > first.rtol:
        return (), f"none sought: {theirs.name} is not a run of the model given"
    agreeing = [row.point for row in rows[: rows.index(first)]]
    causes = find_causes(run, mine, point, agreeing, first.rtol)
    return tuple(causes), "" if causes else _advice(run, mine, point, agreeing)


def _advice(run: Computation, mine: Mapping[str, AnyArray], point: str, agreeing: list[str]) -> str:
    """What to do where no known fault makes the difference."""
    after = flow_order(agreeing[-1]) if agreeing else flow_order("ids")
    between = [p for p in run.at if after < flow_order(p) < flow_order(point) and p not in mine]
    between.sort(key=flow_order)
    if not run.params:
        return (
            "none found, but most need the weights: give --model, or record theirs with "
            "--with-weights"
        )
    if between:
        return f"none that is known does this alone; record what comes before: {_some(between)}"
    return "none that is known; what it is made of agrees, as far as it was compared"


class _Judge:
    """Decides, in order of the flow, which arrays are the same; half precision lasts."""

    def __init__(self, rtol: float | None, atol: float) -> None:
        self.rtol, self.atol = rtol, atol
        self.level = 0  # in PRECISIONS, the coarsest so far

    def row(self, point: str, mine: AnyArray, theirs: AnyArray) -> Row:
        pair = aligned(point, mine, theirs)
        if pair is None:
            shapes = f"shape {list(mine.shape)}, theirs {list(theirs.shape)}"
            return Row(point, None, same=False, verdict=f"DIVERGES: {shapes}", rtol=0.0)
        distance = measure(point, *pair)
        if point in ("ids", "greedy"):
            excused = point == "greedy" and PRECISIONS[self.level] in HALF
            same = distance.difference == 0
            verdict = "same" if same else "other ids, in half precision" if excused else "DIVERGES"
            return Row(point, distance, same or excused, verdict, rtol=0.0)
        self._lower(*(array.dtype.name for array in pair))
        before = self.level
        if not self._is_same(point, distance):
            self._lower(*map(precision, pair))
        same = self._is_same(point, distance)
        if not same:
            self.level = before
        half = PRECISIONS[self.level] in HALF and self.rtol is None
        verdict = "same" + (f" as {PRECISIONS[self.level]}" if half else "")
        return Row(point, distance, same, verdict if same else "DIVERGES", self._limit(point))

    def _lower(self, *precisions: str) -> None:
        levels = [PRECISIONS.index(name) for name in precisions if name in PRECISIONS]
        self.level = max([self.level, *levels])

    def _limit(self, point: str) -> float:
        return tolerance(self.level, point) if self.rtol is None else self.rtol

    def _is_same(self, point: str, distance: Distance) -> bool:
        return distance.difference <= self.atol or distance.relative <= self._limit(point)


def _read_both(
    mine: str | os.PathLike[str] | Golden,
    theirs: str | os.PathLike[str] | Golden,
    model: Model | None,
) -> tuple[Golden, Golden]:
    """Read both; last an llm.c debug state, which does not say how many logits there are."""
    sizes = [model.config.vocab_size] if model else []
    sources, both = [mine, theirs], {}
    for source in sorted(sources, key=lambda source: str(source).endswith(".bin")):
        golden = source if isinstance(source, Golden) else Golden.load(source, sizes)
        for name, array in golden.arrays.items():
            if array.dtype.kind not in "fiub":
                raise CheckpointError(
                    f"{golden.name}: {quote(name)} is of dtype {array.dtype}, which are no numbers"
                )
        points, _ = by_point(golden.arrays)
        if "logits" in points and points["logits"].ndim:
            sizes.append(points["logits"].shape[-1])
        both[id(source)] = golden
    return both[id(mine)], both[id(theirs)]


def reference_run(
    theirs: Golden, points: Mapping[str, AnyArray], ids: AnyArray | None, model: Model | None
) -> Computation:
    """What is known of the reference: all of it where its weights are, else what it recorded."""
    config = model.config if model else theirs.config
    if config is None:
        return Computation({}, None, {}, None, None)
    params = model.params if model else _weights(theirs.arrays, config)
    ids = None if ids is None else check_ids(config, ids)
    past = _past(theirs, config)
    held = past[0].shape[3] if past else 0
    if params is not None and ids is not None:
        trace = Trace(copy=False)
        _, past = run_model(params, ids, trace, held)
        at = {"embed": trace["wte"] + trace["wpe"], **trace}
        return Computation(at, config, params, ids, past)
    shape = next((a.shape for p, a in points.items() if p not in ("ids", "loss", "greedy")), ())
    B, T = (1, 1) if len(shape) < 3 else (shape[0], shape[1 if len(shape) == 3 else 2])
    B, T = (B, T) if ids is None else (ids.shape[0], ids.shape[1] - held)
    at = {}
    for point, array in points.items():
        like = np.broadcast_to(0, shape_of(point, config, B, T, held + T))
        for arranged in arrangements(array, like):
            at.setdefault(point, arranged)
    return Computation(at, config, {}, ids, past)


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


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    return ", ".join(names[: 5 if more else 6]) + more
