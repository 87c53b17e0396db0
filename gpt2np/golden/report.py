"""What a comparison of two recordings shows, as a table and as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpt2np.golden.faults import FORMULAS
from gpt2np.golden.measure import Distance
from gpt2np.golden.names import kind_and_block


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
