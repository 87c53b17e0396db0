"""Why two runs part: the fault that turns the reference's activations into mine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.golden.faults import ANYWHERE, FAULTS, ORDER, QKV
from gpt2np.golden.faulty import Computation, Site, another_head, factor
from gpt2np.golden.measure import aligned, measure
from gpt2np.golden.names import flow_order, kind_and_block
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


def find_causes(
    run: Computation, mine: Mapping[str, Array], point: str, agreeing: list[str], rtol: float
) -> list[str]:
    """Name the faults that give my activation at the point where two runs part, likeliest first.

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
    run = replace(run, at={**run.at, "mine": pair[0]})
    limit = min(rtol, measure(point, *pair).relative / 4)
    site = Site(run, point, pair[1])
    for candidates in (
        _at_the_point(run, mine, point),
        _before_it(run, point, agreeing),
        _anywhere(site),
        _at_last(site, agreeing),
    ):
        distances = {
            cause: max(distance, limit / 20)  # what is nearer than that is so by chance
            for cause, activations in candidates
            if (distance := _distance(mine, activations)) <= limit
        }
        if distances:
            near = 2 * min(distances.values())
            return sorted((c for c in distances if distances[c] <= near), key=distances.__getitem__)
    return []


def _distance(mine: Mapping[str, Array], activations: dict[str, Callable[[], Array]]) -> float:
    distance = 0.0
    for point, compute in activations.items():
        with np.errstate(all="ignore"):
            try:
                pair = aligned(point, mine[point], compute())
            except KeyError:  # what it is computed from was not recorded
                return np.inf
            distance = max(distance, measure(point, *pair).relative if pair else np.inf)
    return distance


def _at_the_point(run: Computation, mine: Mapping[str, Array], point: str) -> Candidates:
    kind, i = kind_and_block(point)
    for points, faults in FAULTS.items():
        if kind in points.split() and points != ORDER:
            # One cut makes q, k and v.
            here = [p for p in (k.format(i=i) for k in points.split()) if p in mine and p in run.at]
            here = here if points == QKV else [point]
            for cause, compute in faults.items():
                yield cause, {p: partial(compute, Site(run, p, run.at[p])) for p in here}


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
    for points, faults in FAULTS.items():
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
