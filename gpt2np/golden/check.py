"""Hold one recording against another: where do they part first, and why?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpt2np.config import Config
from gpt2np.errors import InputError
from gpt2np.golden.causes import find_causes
from gpt2np.golden.files import Golden, read
from gpt2np.golden.measure import (
    HALF,
    PRECISIONS,
    Distance,
    aligned,
    measure,
    precision,
    tolerance,
)
from gpt2np.golden.names import Array, by_point, flow_order
from gpt2np.golden.record import PAST, run_model
from gpt2np.golden.report import Report, Row
from gpt2np.golden.site import Run
from gpt2np.loading import Model
from gpt2np.model import check_ids
from gpt2np.params import Params
from gpt2np.schema import canonical_name, tensors
from gpt2np.trace import Trace


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
    first = next((row for row in rows if not row.same), None)
    if first is None or first.distance is None:
        return Report(rows, (), tuple(notes))
    if first.point == "ids":
        return Report(rows, (), tuple(notes), "none sought: these are runs on different ids")
    run = reference_run(theirs, points, points.get("ids", ours.get("ids")), model)
    point, recorded = first.point, points[first.point]
    run = replace(run, at={point: recorded, **run.at})
    pair = aligned(point, recorded, run.at[point])
    if pair is None or measure(point, *pair).relative > first.rtol:
        advice = f"none sought: {theirs.name} is not a run of the model given"
        return Report(rows, (), tuple(notes), advice)
    agreeing = [row.point for row in rows[: rows.index(first)]]
    causes = find_causes(run, ours, point, agreeing, first.rtol)
    advice = "" if causes else _advice(run, ours, point, agreeing)
    return Report(rows, tuple(causes), tuple(notes), advice)


def _advice(run: Run, mine: Mapping[str, Array], point: str, agreeing: list[str]) -> str:
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

    def row(self, point: str, mine: Array, theirs: Array) -> Row:
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
        golden = source if isinstance(source, Golden) else read(source, sizes)
        points, _ = by_point(golden.arrays)
        if "logits" in points:
            sizes.append(points["logits"].shape[-1])
        both[id(source)] = golden
    return both[id(mine)], both[id(theirs)]


def reference_run(
    theirs: Golden, points: Mapping[str, Array], ids: Array | None, model: Model | None
) -> Run:
    """What is known of the reference: all of it where its weights are, else what it recorded."""
    config = Config.from_dict(theirs.meta["config"]) if "config" in theirs.meta else None
    params = model.params if model else _weights(theirs.arrays, config)
    past = None
    if all(name in theirs.arrays for name in PAST):
        past = theirs.arrays[PAST[0]], theirs.arrays[PAST[1]]
    if params is None or ids is None:
        return Run(points if config else {}, config, {}, ids, past)
    trace, ids = Trace(copy=False), check_ids(params.config, ids)
    _, past = run_model(params, ids, trace, past[0].shape[3] if past else 0)
    at = {"embed": trace["wte"] + trace["wpe"], **trace}
    return Run(at, params.config, params, ids, past)


def _weights(arrays: Mapping[str, Array], config: Config | None) -> Params | None:
    """The weights, if a recording has them all."""
    if config is None:
        return None
    names = [name for name, _, _ in tensors(config)]
    found = {canonical_name(name): array for name, array in arrays.items()}
    if not all(name in found for name in names):
        return None
    return Params(config, {name: found[name] for name in names})


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    return ", ".join(names[: 5 if more else 6]) + more
