"""Hold one recording against another: where do they part first, and why?"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpt2np.checkpoints.base import quote
from gpt2np.errors import CheckpointError, InputError
from gpt2np.golden.faults import FORMULAS
from gpt2np.golden.judge import Judge, Row
from gpt2np.golden.measure import Distance
from gpt2np.golden.names import by_point, flow_order, kind_and_block, point_of
from gpt2np.golden.record import Golden
from gpt2np.golden.reference import Reference
from gpt2np.golden.weights import compare_weights
from gpt2np.loading import Model


@dataclass(frozen=True, repr=False)
class Report:
    """What a comparison shows; as text it is the table."""

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
                | ({} if row.step is None else {"step": _plain(row.step)})
                for row in self.rows
            ],
            "notes": list(self.notes),
            "advice": self.advice,
        }

    def __repr__(self) -> str:
        head = ("point", "max |diff|", "relative", "step", "worst at", "verdict")
        table = [head, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                f"{cell:{'>' if i in (1, 2, 3) else '<'}{w}}"
                for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in table
        ]
        return "\n".join([*lines, "", *self.notes, *self._conclusion()])

    def _conclusion(self) -> list[str]:
        row = self.first
        if row is None:
            return [self._agreement()]
        formula = FORMULAS.get(kind_and_block(row.point)[0], "a weight")
        lines = [f"first divergence: {row.point}  ({formula})"]
        if row.distance is not None:
            d = row.distance
            lines.append(f"  at {list(d.where)}: mine {d.mine:.7g}, theirs {d.theirs:.7g}")
        if row.step is not None and row.step.relative:
            d = row.step
            lines.append(
                f"  from its own inputs: mine {d.mine:.9g}, expected {d.theirs:.9g} "
                f"at {list(d.where)}"
            )
        causes = self.causes or ((self.advice,) if self.advice else ())
        heads = ["  cause: ", *["     or: "] * len(causes)]
        return [*lines, *(f"{head}{cause}" for head, cause in zip(heads, causes, strict=False))]

    def _agreement(self) -> str:
        """What may be said where nothing diverges: from few points, not that all is right."""
        close = [row for row in self.rows if row.distance is not None and row.distance.relative]
        if not close or any(row.step is not None for row in self.rows):
            return f"all {len(self.rows)} agree"
        worst = max(row.distance.relative for row in close if row.distance is not None)
        return (
            f"close, not equal: apart by {worst:.2g} of the largest number of a row at most; what "
            "lies below that cannot be told without the activations before it and the weights"
        )


def _cells(row: Row) -> tuple[str, ...]:
    if row.distance is None:
        return row.point, "", "", "", "", row.verdict
    d = row.distance
    where = str(list(d.where)) if d.difference else ""
    step = "" if row.step is None else f"{row.step.relative:.2g}"
    return row.point, f"{d.difference:.2g}", f"{d.relative:.2g}", step, where, row.verdict


def _plain(distance: Distance) -> dict[str, Any]:
    """JSON has no infinities and no NaN."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in distance._asdict().items()
    }


@np.errstate(all="ignore")  # what is wrong may be infinite; and Accelerate raises any flag
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
    ours, more_mine = by_point(mine.arrays)
    reference = Reference(theirs, ours, model)
    points, more_theirs = reference.points, reference.unknown
    common = sorted(ours.keys() & points.keys(), key=flow_order)
    weights = compare_weights(mine.arrays, theirs.arrays, reference.params)
    if not common and not weights.notes:
        raise InputError(
            f"{mine.name} and {theirs.name} have no activation in common: "
            f"{_some(mine.arrays)}; {_some(theirs.arrays)}"
        )
    derived = "embed" in ours and all(point_of(name) != "embed" for name in mine.arrays)
    judge = Judge(reference, ours, rtol, atol, derived)
    judged = [judge.row(point) for point in sorted(ours, key=flow_order)]
    rows = (*weights.rows, *(row for row in judged if row is not None))
    at = {row.point for row in rows}
    notes = [
        f"not compared: {_some(names)} {what}"
        for names, what in (
            (more_mine, f"of {mine.name}, which are no activations known"),
            (more_theirs, f"of {theirs.name}, which are no activations known"),
            ([p for p in sorted(ours, key=flow_order) if p not in at], f"only in {mine.name}"),
            (sorted(points.keys() - ours.keys(), key=flow_order), f"only in {theirs.name}"),
        )
        if names
    ]
    first = next((row for row in rows if not row.same), None)
    causes: list[str] = []
    advice = ""
    if first is not None and first.point in weights.causes:
        causes = weights.causes[first.point]
    elif first is not None:
        causes, advice = judge.explain(rows, first)
    notes += [*weights.notes, *judge.remarks(rows)]
    return Report(rows, tuple(causes), tuple(notes), advice)


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


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    return ", ".join(names[: 5 if more else 6]) + more
