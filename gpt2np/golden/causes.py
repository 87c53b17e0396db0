"""Why two runs part: the fault that turns the reference's activations into mine."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.golden.faults import ANYWHERE, EMBEDDING, FAULTS, GUESSED, ORDER, QKV
from gpt2np.golden.faulty import Computation, Site, another_head, factor
from gpt2np.golden.fits import FITS
from gpt2np.golden.measure import aligned, measure
from gpt2np.golden.names import flow_order, kind_and_block
from gpt2np.golden.steps import scale, sound, step_distance
from gpt2np.model import block, embed, position_ids, unembed
from gpt2np.params import Array, Params
from gpt2np.trace import Tap, point_names

# Agreement at these clears nothing that comes before them in order: others stand beside them.
BESIDE = (
    "ids",
    "wte",
    "wpe",
    "h.{i}.attn.q",
    "h.{i}.attn.k",
    "h.{i}.attn.v",
    "h.{i}.attn.scores",
    "h.{i}.attn.pattern",
)

# A candidate is a cause, and what it makes of one activation or of several.
Candidates = Iterator[tuple[str, dict[str, Callable[[], Array]]]]
# How far what a candidate makes of a point is from mine; infinity where they cannot be compared.
Measure = Callable[[str, Array], float]


def step_causes(
    site: Site, mine: Mapping[str, Array], limit: float, *, derived: bool = False
) -> list[str]:
    """Name the faults that make my activation of what I recorded before it, likeliest first.

    Parameters
    ----------
    site : Site
        The point in my own computation, with what a sound step makes there.
    mine : mapping of str to array
        My activations, by point, as they were recorded.
    limit : float
        How far a sound step may be off, as a part of the size of its terms.
    derived : bool
        Whether the embedding was not recorded, but is the sum of my wte and wpe.
    """
    pair = aligned(site.point, mine[site.point], site.clean)
    if pair is None:
        return []
    site = with_mine(site, pair[0], pair[1])

    def strict(made: Array) -> float:
        found = step_distance(site.point, mine[site.point], made, size)
        return found.relative if found else np.inf

    def distance(point: str, made: Array) -> float:
        """By the largest terms of a row: a fault may exchange them, or make them larger."""
        terms = size if point == site.point else np.abs(made)
        terms = np.maximum(terms, np.abs(made, where=np.isfinite(made), out=np.zeros_like(made)))
        found = step_distance(point, mine[point], made, terms.max(-1, keepdims=True))
        return found.relative if found else np.inf

    size = scale(site, site.clean)
    off = strict(site.clean)
    for slack in (1, SLACK):  # a fault that spans two steps has the errors of both
        near = min(limit * slack, off / 4)
        fitted = list(_fitted(site, partial(_is_within, near, strict)))
        constants = {cause for cause, _ in fitted}
        causes = likeliest(
            (
                itertools.chain(
                    _at_the_point(site.run, mine, site.point, by_step=True),
                    _in_the_embedding(site) if derived else (),
                    fitted,
                ),
                _anywhere(site),
                _at_last(site, ["ln_f"]),
            ),
            distance,
            near,
        )
        # What has a name of its own needs no constant to explain it.
        if causes:
            return [cause for cause in causes if cause not in constants] or causes
    return []


SLACK = 50


def _is_within(limit: float, distance: Callable[[Array], float], made: Array) -> bool:
    return distance(made) <= limit


def find_causes(
    run: Computation, mine: Mapping[str, Array], point: str, agreeing: list[str], rtol: float
) -> list[str]:
    """Name the faults that make my activation of what the reference has before it.

    Parameters
    ----------
    run : Computation
        The reference's. With weights, faults at points that were not recorded are found too.
    mine : mapping of str to array
        My activations, by point.
    point : str
        The first that diverges.
    agreeing : list of str
        Those before it that agree.
    rtol : float
        When two activations are the same.
    """
    pair = aligned(point, mine[point], run.at[point])
    if pair is None:
        return []
    site = with_mine(Site(run, point, pair[1]), pair[0], pair[1])

    def distance(at: str, made: Array) -> float:
        pair = aligned(at, mine[at], made)
        return measure(at, *pair).relative if pair else np.inf

    return likeliest(
        (
            _at_the_point(site.run, mine, point),
            _before_it(site.run, point, agreeing),
            _anywhere(site),
            _at_last(site, agreeing),
        ),
        distance,
        min(rtol, measure(point, *pair).relative / 4),
    )


def with_mine(site: Site, mine: Array, clean: Array) -> Site:
    """The same place, where my own activation can be asked for."""
    run = replace(site.run, at={**site.run.at, "mine": mine})
    return Site(run, site.point, clean)


def likeliest(groups: Iterable[Candidates], distance: Measure, limit: float) -> list[str]:
    """Those of the first group in which any explain the activation that explain it best."""
    for candidates in groups:
        distances = {
            cause: max(found, limit / 20)  # what is nearer than that is so by chance
            for cause, activations in candidates
            if (found := _distance(distance, activations)) <= limit
        }
        if distances:
            near = 2 * min(distances.values())
            return sorted((c for c in distances if distances[c] <= near), key=distances.__getitem__)
    return []


def _distance(distance: Measure, activations: dict[str, Callable[[], Array]]) -> float:
    farthest = 0.0
    for point, compute in activations.items():
        try:
            farthest = max(farthest, distance(point, compute()))
        except (KeyError, np.linalg.LinAlgError):  # it lacks what was not recorded
            return np.inf
    return farthest


def _at_the_point(
    run: Computation, mine: Mapping[str, Array], point: str, *, by_step: bool = False
) -> Candidates:
    """Faults in the step itself; what is right there is the run's, or what its step should make."""

    def site(at: str) -> Site:
        there = Site(run, at, run.at[at])
        return replace(there, clean=sound(there)) if by_step else there

    kind, i = kind_and_block(point)
    for points, faults in FAULTS.items():
        if kind in points.split() and points != ORDER:
            # One cut makes q, k and v.
            here = [p for p in (k.format(i=i) for k in points.split()) if p in mine and p in run.at]
            here = here if points == QKV else [point]
            for cause, compute in faults.items():
                yield cause, {p: partial(compute, site(p)) for p in here}


def _in_the_embedding(site: Site) -> Candidates:
    """Faults between wte and wpe and the first LayerNorm, where nothing was recorded."""
    if site.point == "h.0.ln_1":
        for cause, compute in EMBEDDING.items():
            yield cause, {site.point: partial(compute, site)}


def _fitted(site: Site, near: Callable[[Array], bool]) -> Candidates:
    """Constants, whose values come from my activation."""
    for fit in FITS.get(kind_and_block(site.point)[0], ()):
        with contextlib.suppress(KeyError, np.linalg.LinAlgError):
            for cause, made in fit(site, near):
                if near(made):
                    yield cause, {site.point: partial(np.asarray, made)}


def _before_it(run: Computation, point: str, agreeing: list[str]) -> Candidates:
    """Faults between the last point that agrees and this one, wherever they occur there."""
    params = run.params
    if not isinstance(params, Params):
        return
    cleared = [p for p in agreeing if kind_and_block(p)[0] not in BESIDE]
    after = max(cleared, key=flow_order, default="ids")
    between = {
        kind_and_block(p)[0]: p
        for p in reversed(point_names(params.config))
        if p not in agreeing and flow_order(after) < flow_order(p) <= flow_order(point)
    }
    own, _ = kind_and_block(point)
    for points, faults in [*FAULTS.items(), *GUESSED.items()]:
        kinds = [kind for kind in points.split() if kind in between]
        # At all of them, as where LayerNorm is one function; or at one, as where it is forgotten.
        alone = [[kind] for kind in kinds if points != QKV and len(kinds) > 1]
        for where in (where for where in (kinds, *alone) if where not in ([], [own])):
            place = _listed([between[kind] for kind in where[: 1 if points == QKV else None]])
            for cause, compute in faults.items():
                activation = partial(replay, run, params, compute, where, after, point)
                yield f"{cause}, at {place}", {point: activation}


def _listed(names: list[str]) -> str:
    """Write a list out.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _anywhere(site: Site) -> Candidates:
    for cause, compute in ANYWHERE.items():
        yield cause, {site.point: partial(compute, site)}
    by = factor(site["mine"], site.clean)
    yield f"it is multiplied by {by:.4g}", {site.point: lambda: site.clean * by}


def _at_last(site: Site, agreeing: list[str]) -> Candidates:
    """Where nothing else is left: logits are made of ln_f and the head alone."""
    if site.point == "logits" and site.clean.ndim == 3 and site.run.config is not None:
        B, T, _ = site.clean.shape
        enough = site.config.n_embd < B * T  # positions, so that not any logits fit a matrix
        if "ln_f" in agreeing or enough:
            yield (
                "the head is another matrix: it is not tied to wte",
                {"logits": partial(another_head, site)},
            )


def replay(
    run: Computation,
    params: Params,
    fault: Callable[[Site], Array],
    kinds: list[str],
    after: str,
    until: str,
) -> Array:
    """Compute an activation with a fault in all points of some kinds that follow a given one."""
    cache = refilled_cache(params, run)
    at: dict[str, Array] = {}
    live = replace(run, at=at)

    def probe(name: str, array: Array) -> Array:
        kind, _ = kind_and_block(name)
        if kind in kinds and flow_order(name) > flow_order(after):
            array = fault(Site(live, name, array)).astype(array.dtype)
        at[name] = array
        return array

    inside, start, _ = flow_order(after)
    start += after == f"h.{start}"
    entry = f"h.{start - 1}" if start else "embed"
    if inside or after == "embed":
        x = run.at[entry]
    else:
        ids = Site(run, after, np.empty(0)).ids
        x = embed(params, ids, position_ids(params, ids, cache), Tap(probe))
    at[entry] = x
    for i in range(start, len(params.blocks)):
        if until not in at:
            x = block(x, params.blocks[i], i, params.config, cache, Tap(probe, f"h.{i}"))
    if until not in at:
        unembed(params, x, probe)
    return at[until]


def refilled_cache(params: Params, run: Computation) -> KVCache | None:
    """Make a cache that holds what was read before, if anything was."""
    if run.past is None or run.ids is None:
        return None
    keys, values = run.past  # [L, B, H, N, K]
    N = run.held
    cache = KVCache(params, keys.shape[1])
    cache.keys[:, :, :, :N], cache.values[:, :, :, :N] = keys, values
    cache.advance(run.ids[:, :N])
    return cache
