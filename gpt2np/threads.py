"""Row-wise functions over large arrays: in blocks that stay in the L2 cache, on all threads.

Matrix products are spread over threads by NumPy's BLAS; what stands between them is not, and
would pass whole arrays through memory once for every operation.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gpt2np.params import Array

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

BLOCK = 1 << 15  # elements: two or three such temporaries fit in the L2 cache


@cache
def n_threads() -> int:
    """The threads that BLAS uses too: OPENBLAS_NUM_THREADS, OMP_NUM_THREADS, else all cores."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdigit():
            return max(1, int(os.environ[name]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and not always needed

    return ThreadPoolExecutor(n_threads() - 1, "gpt2np")


if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def by_rows(
    function: Callable[[Array, Array | None], Array], x: Array, out: Array | None = None
) -> Array:
    """Compute ``function(x, out)``, which works on each row (the last axis) by itself.

    ``out`` may be ``x``; without it the result is a new array.
    """
    if x.size <= BLOCK:
        return function(x, out)
    if out is None:
        out = np.empty_like(x)
    width = x.shape[-1]
    rows, results = x.reshape(-1, width), out.reshape(-1, width)
    step = max(1, BLOCK // width)
    starts = range(0, len(rows), step)

    def work(share: range) -> None:
        for start in share:
            function(rows[start : start + step], results[start : start + step])

    others = [_pool().submit(work, starts[i :: n_threads()]) for i in range(1, n_threads())]
    work(starts[:: n_threads()])
    for other in others:
        other.result()
    return out
