"""Decides, in order of the flow, which activations are right, and seeks why the first is not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from gpt2np.dumps import AnyArray
from gpt2np.golden.caches import Fault, contents, contents_of, decode, decoding_faults
from gpt2np.golden.causes import Candidates, find_causes, likeliest, step_causes
from gpt2np.golden.faulty import Site
from gpt2np.golden.measure import (
    HALF,
    PRECISIONS,
    Distance,
    aligned,
    measure,
    precision,
    tolerance,
)
from gpt2np.golden.names import IDS, LOGITS, flow_order, kind_and_block
from gpt2np.golden.record import PAST
from gpt2np.golden.reference import Reference
from gpt2np.golden.steps import (
    PRODUCTS,
    Asked,
    scale,
    sound,
    step_distance,
    step_tolerance,
)
from gpt2np.kernels import product

STEPS = 4  # of decoding, from the first wrong one on
GROWN = 1e-3  # how far errors may grow there
POOR = 1.6  # times the error of our own product is worth a remark, and so much at least
TELLING = 5e-7
FEW = 2  # different ids, of a greedy continuation that proves little
FIRST_PASS = "none that is known of a cache; is the first pass right by itself? Check it alone"
UNTOLD = "GELU's constants, epsilon, the order of sums"


class Row(NamedTuple):
    """One point of the comparison."""

    point: str
    distance: Distance | None  # None where the shapes do not fit
    same: bool
    verdict: str
    rtol: float  # how far apart, relatively, two arrays may be here
    step: Distance | None = None  # from what the step makes of my own inputs; None if not known
    wrong_step: bool = False


class Judge:
    """Judges my activations, each by its own inputs where they are there, and by the reference."""

    def __init__(
        self,
        reference: Reference,
        mine: Mapping[str, AnyArray],
        rtol: float | None,
        atol: float,
        derived: bool,
    ) -> None:
        self.reference, self.mine = reference, mine
        self.rtol, self.atol, self.derived = rtol, atol, derived
        self.level = 0  # in PRECISIONS, the coarsest so far; half precision lasts
        self.own_level = 0  # of mine alone
        self.failed = False
        self.proven: set[str] = set()  # points that are right, and all that they are made of
        self.asked: set[str] = set()  # what the last step was made of
        self.poor: tuple[float, float, str] = (0.0, 1.0, "")  # error, usual error, point
        self.own = reference.of(mine) if rtol is None and atol == 0 else None

    def row(self, point: str) -> Row | None:
        """Judge one point; None if there is nothing to hold it against."""
        mine, theirs = self.mine[point], self.reference.points.get(point)
        if theirs is None:
            row = self._row_of_mine(point, mine)
            if row is None:
                return None
        elif (pair := aligned(point, mine, theirs)) is None:
            verdict = f"DIVERGES: {_shapes(point, mine, theirs)}"
            row = Row(point, None, same=False, verdict=verdict, rtol=0.0)
        elif point in IDS:
            row = self._row_of_ids(point, measure(point, *pair))
        else:
            row = self._row_of_numbers(point, mine, pair)
            more = mine.shape[-1] - pair[1].shape[-1] if mine.ndim else 0
            if point in LOGITS and more > 0:
                extra = f"{mine.shape[-1]:,} columns: {more} of padding"
                row = row._replace(verdict=f"{row.verdict} ({extra})")
        if point == "embed" and self.derived:
            row = row._replace(verdict=f"{row.verdict} (derived: my wte + wpe)")
        self.failed |= not row.same
        return row

    def _row_of_mine(self, point: str, mine: AnyArray) -> Row | None:
        """Judge what the reference did not record by its inputs alone."""
        step, right = self._step(point, mine, None)
        if step is None:
            return None
        if right and self.asked <= self.proven:
            self.proven.add(point)
        verdict = "right by its inputs" if right else "DIVERGES"
        return Row(point, step, right, verdict, 0.0, step, not right)

    def _row_of_ids(self, point: str, distance: Distance) -> Row:
        excused = point == "greedy" and PRECISIONS[self.level] in HALF
        same = distance.difference == 0
        verdict = "same" if same else "other ids, in half precision" if excused else "DIVERGES"
        return Row(point, distance, same or excused, verdict, rtol=0.0)

    def _row_of_numbers(self, point: str, mine: AnyArray, pair: tuple[AnyArray, AnyArray]) -> Row:
        distance = measure(point, *pair)
        self._lower(*(array.dtype.name for array in pair))
        before = self.level
        if not self._is_near(point, distance):
            self._lower(*map(precision, pair))
        near = self._is_near(point, distance)
        if not near:
            self.level = before
        limit = tolerance(self.level, point) if self.rtol is None else self.rtol
        step, right = self._step(point, mine, pair[1])
        half = PRECISIONS[max(self.level, self.own_level)] in HALF and self.rtol is None
        same = near and half
        if step is None:
            same = near
        elif right:  # errors that only grew on their way are none
            same = near or self.asked <= self.proven
        if same:
            self.proven.add(point)
        as_half = f" as {PRECISIONS[max(self.level, self.own_level)]}" if half else ""
        follows = right and self.failed
        verdict = f"same{as_half}" if same else "follows" if follows else "DIVERGES"
        wrong_step = step is not None and not right and not same
        return Row(point, distance, same, verdict, limit, step, wrong_step)

    def _step(
        self, point: str, mine: AnyArray, theirs: AnyArray | None
    ) -> tuple[Distance | None, bool]:
        """How far my step is from what it makes of my own inputs, and whether that is in order."""
        site = self.site(point)
        if site is None:
            return None, False
        distance = step_distance(point, mine, site.clean, scale(site, site.clean))
        if distance is None:
            return None, False
        right = False
        for names in ([mine.dtype.name], [precision(mine)]):
            if not right:
                before = self.own_level
                levels = [PRECISIONS.index(name) for name in names if name in PRECISIONS]
                self.own_level = max([self.own_level, *levels])
                right = distance.relative <= step_tolerance(site, self.own_level)
                if not right:
                    self.own_level = before
        if not right and not self._is_of_the_reference(point, theirs):
            return None, False
        if right:
            self._note_poor_sums(site, mine)
        return distance, right

    def site(self, point: str) -> Site | None:
        """The point in my own computation, with what a sound step makes there, if that is known."""
        if self.own is None or kind_and_block(point)[0] in (*PAST, *LOGITS[1:], *IDS, "loss"):
            return None
        self.asked = set()
        own = replace(self.own, at=Asked(self.own.at, self.asked))
        try:
            clean = sound(Site(own, point, self.own.at[point]))
            return Site(self.own, point, clean)
        except (KeyError, ValueError, IndexError):  # inputs that are not there, or do not fit
            return None

    def _is_of_the_reference(self, point: str, theirs: AnyArray | None) -> bool:
        """Whether the reference's model makes what its recording has here, or at its end."""
        if theirs is None:
            point = max(self.reference.points.keys() & self.reference.run.at, key=flow_order)
            theirs = self.reference.points[point]
        at = self.reference.run.at.get(point)
        pair = None if at is None else aligned(point, theirs, at)
        if pair is None:
            return False
        level = max(self.level, PRECISIONS.index("float32"))
        return measure(point, *pair).relative <= tolerance(level, point)

    def _note_poor_sums(self, site: Site, mine: AnyArray) -> None:
        if kind_and_block(site.point)[0] not in PRODUCTS or PRECISIONS[self.own_level] != "float32":
            return
        x, W = (
            (site["ln_f"], site.head.T)
            if site.point == "logits"
            else (site.input, site.parameter("weight"))
        )
        rows = x.reshape(-1, x.shape[-1])[-8:]  # in the form of more: BLAS adds up others better
        columns = slice(0, 512)
        pair = aligned(site.point, mine, site.clean)
        if pair is None or not np.isfinite(rows).all():
            return
        usual = product(rows.astype(np.float32), W[:, columns].astype(np.float32))
        exact = rows @ W[:, columns].astype(float)
        off = (pair[0].astype(float) - pair[1])[..., columns]
        size = _rms(exact)
        if size:
            error, common = _rms(off) / size, max(_rms(usual - exact) / size, 1e-8)
            if error > max(POOR * common, TELLING, self.poor[0]):
                self.poor = (error, common, site.point)

    def _lower(self, *precisions: str) -> None:
        levels = [PRECISIONS.index(name) for name in precisions if name in PRECISIONS]
        self.level = max([self.level, *levels])

    def _is_near(self, point: str, distance: Distance) -> bool:
        limit = tolerance(self.level, point) if self.rtol is None else self.rtol
        return distance.difference <= self.atol or distance.relative <= limit

    # Why.

    def explain(self, rows: tuple[Row, ...], first: Row) -> tuple[list[str], str]:
        """Why the first point that diverges does, or what to do to learn more."""
        point = first.point
        if point == "ids":
            return [], "none sought: these are runs on different ids"
        if first.distance is None:
            missing = _missing_columns(point, self.mine[point], self.reference.points[point])
            return [f"{missing} columns are missing"] if missing else [], ""
        if point in PAST:
            causes = self._causes_in_the_cache(point, first)
            return causes, "" if causes else FIRST_PASS
        if point in ("greedy", "greedy.logits"):
            return self._causes_of_decoding(first), ""
        site = self.site(point) if first.wrong_step else None
        if site is not None:
            limit = step_tolerance(site, self.own_level)
            causes = step_causes(site, self.mine, limit, derived=self.derived)
            return causes, "" if causes else self._advice(point, [])
        return self._causes_from_the_reference(rows, first)

    def _causes_from_the_reference(
        self, rows: tuple[Row, ...], first: Row
    ) -> tuple[list[str], str]:
        point, name, run = first.point, self.reference.name, self.reference.run
        recorded = self.reference.points[point]
        if run.config is not None and point not in run.at:
            return [], f"none sought: {name} has {point} in a shape that is not its config's"
        run = replace(run, at={point: recorded, **run.at})
        pair = aligned(point, recorded, run.at[point])
        if pair is None or measure(point, *pair).relative > first.rtol:
            return [], f"none sought: {name} is not a run of the model given"
        agreeing = [row.point for row in rows[: rows.index(first)]]
        causes = find_causes(run, self.mine, point, agreeing, first.rtol)
        return causes, "" if causes else self._advice(point, agreeing)

    def _advice(self, point: str, agreeing: list[str]) -> str:
        """What to do where no known fault makes the difference."""
        run, mine = self.reference.run, self.mine
        after = flow_order(agreeing[-1]) if agreeing else flow_order("ids")
        between = [p for p in run.at if after < flow_order(p) < flow_order(point) and p not in mine]
        between.sort(key=flow_order)
        if not run.params:
            return (
                "none found, but most need the weights: give --model, or record theirs with "
                "--with-weights"
            )
        if between and self.site(point) is None:
            return f"none that is known does this alone; record what comes before: {some(between)}"
        return "none that is known; what it is made of agrees, as far as it was compared"

    def _causes_in_the_cache(self, point: str, first: Row) -> list[str]:
        past = self.reference.past
        pair = past and aligned(point, self.mine[point], past[PAST.index(point)])
        if not past or not pair:
            return []
        which, mine = point.removeprefix("past."), pair[0]
        placed: Candidates = (
            (cause, {point: partial(np.asarray, made)})
            for cause, made in contents(which, past, mine)
        )
        limit = max(first.rtol, min(GROWN, measure(point, *pair).relative / 20))
        return likeliest(
            (placed, self._written_one_by_one(which, mine)),
            lambda at, made: measure(at, mine, made).relative,
            limit,
        )

    def _written_one_by_one(self, which: str, mine: AnyArray) -> Candidates:
        """What is in the cache if the first pass is one of each token, with each fault."""
        reference, config = self.reference, self.reference.config
        params, ids = reference.params, reference.ids
        if params is None or config is None or ids is None:
            return

        def compute(fault: Fault) -> AnyArray:
            taken = ids[:, 1 : reference.held + 1]
            return contents_of(which, decode(params, ids[:, :1], taken, fault)[1], fault, mine)

        for cause, fault in decoding_faults(config.n_layer, 1).items():
            yield cause, {f"past.{which}": partial(compute, fault)}

    def _causes_of_decoding(self, first: Row) -> list[str]:
        """Decode again with each fault of a cache, as far as three steps behind the first error.

        Errors of float32 grow from step to step, and with a fault faster.
        """
        reference, config = self.reference, self.reference.config
        params, ids = reference.params, reference.ids
        theirs, mine = reference.points.get("greedy.logits"), self.mine.get("greedy.logits")
        taken = self.mine.get("greedy", reference.points.get("greedy"))
        pair = aligned("logits", mine, theirs) if mine is not None and theirs is not None else None
        if params is None or config is None or ids is None or taken is None or pair is None:
            return []
        B, N, _ = pair[1].shape
        if taken.size != B * N or taken.dtype.kind not in "iu" or len(ids) != B:
            return []
        if N == 0 or not 0 <= taken.min() <= taken.max() < config.vocab_size:
            return []
        wrong = [n for n in range(N) if self._apart(pair, n) > first.rtol]
        steps = slice(0, (wrong[0] if wrong else N) + STEPS)
        limit = max(first.rtol, min(GROWN, self._apart(pair, steps) / 20))
        taken = taken.reshape(B, N)[:, steps].astype(np.intp)
        faults = decoding_faults(config.n_layer, ids.shape[1])
        candidates: Candidates = (
            (cause, {first.point: partial(lambda f: decode(params, ids, taken, f)[0], fault)})
            for cause, fault in faults.items()
        )
        return likeliest(
            (candidates,),
            lambda point, made: measure("logits", pair[0][:, steps], made).relative,
            limit,
        )

    @staticmethod
    def _apart(pair: tuple[AnyArray, AnyArray], steps: int | slice) -> float:
        return measure("logits", pair[0][:, steps], pair[1][:, steps]).relative

    # What else there is to say.

    def remarks(self, rows: tuple[Row, ...]) -> Iterator[str]:
        """Tell what is no failure, what was not tested, and what is wrong besides the first."""
        first = next((row for row in rows if not row.same), None)
        own = [row.point for row in rows if row is not first and row.wrong_step]
        if own:
            yield f"wrong by their own inputs as well: {some(own)}"
        odd = (told for row in rows for told in _not_numbers(row.point, self.mine))
        yield from itertools.islice(odd, 1)
        error, usual, point = self.poor
        if point:
            yield (
                f"no failure, but the sums of {point} could be more exact: an error of "
                f"{error:.1g} (RMS), where {usual:.1g} is usual; add up in several partial sums"
            )
        level = PRECISIONS[max(self.level, self.own_level)]
        if level in HALF and self.rtol is None:
            yield (
                f"in {level}, errors below its rounding cannot be told: {UNTOLD}; check in float32"
            )
        compared = {row.point for row in rows}
        if not compared & {*PAST, "greedy.logits"}:
            yield (
                "the cache was not tested: dump greedy.logits, or hold a second pass against a "
                "recording made with --cache-split, past.keys and past.values included"
            )
        greedy = self.reference.points.get("greedy")
        if "greedy" in compared and greedy is not None and (few := few_greedy_ids(greedy)):
            yield few


def few_greedy_ids(greedy: AnyArray) -> str:
    """Say so if a greedy continuation proves little, as it repeats itself.

    >>> few_greedy_ids(np.array([[7, 7, 7, 7]]))
    'the greedy ids prove little: of 4, 1 differ'
    """
    different = len(np.unique(greedy))
    if greedy.size <= FEW or different > FEW:
        return ""
    return f"the greedy ids prove little: of {greedy.size}, {different} differ"


def _not_numbers(point: str, mine: Mapping[str, AnyArray]) -> Iterator[str]:
    """How many are NaN or infinite, and where the first is."""
    if point not in mine or mine[point].dtype.kind != "f":
        return
    x = mine[point]
    masked = kind_and_block(point)[0] == "h.{i}.attn.scores"
    odd = np.isnan(x) | (np.isinf(x) & ~(masked & (x < 0)))
    if odd.any():
        where = [int(n) for n in np.argwhere(odd)[0]]
        yield f"{point}: {int(odd.sum())} of {x.size} are NaN or infinite, first {where}"


def _shapes(point: str, mine: AnyArray, theirs: AnyArray) -> str:
    shapes = f"shape {list(mine.shape)}, theirs {list(theirs.shape)}"
    missing = _missing_columns(point, mine, theirs)
    return f"{shapes}: {missing} columns are missing" if missing else shapes


def _missing_columns(point: str, mine: AnyArray, theirs: AnyArray) -> int:
    has_columns = point in LOGITS and mine.ndim and theirs.ndim
    return max(0, theirs.shape[-1] - mine.shape[-1]) if has_columns else 0


def _rms(x: AnyArray) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=float))))


def some(names: list[str]) -> str:
    """Write out some names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    return ", ".join(names[: 5 if more else 6]) + more
