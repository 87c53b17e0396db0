"""What is only about speed: how work is cut into blocks, and how NumPy's BLAS is best asked.

Nothing here is needed to understand GPT-2. The equations in `gpt2np.layers` pass through these
functions and decorators unchanged; each holds one trick, and the reason for it.

Shapes as in `gpt2np.layers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from gpt2np.params import Array

AttentionFunction = Callable[[Array, Array, Array, float], Array]

# What is worked on at a time, so that it stays in a core's L2 cache of 512 KiB or more.
ROW_BLOCK = 1 << 15  # elements of rows, with two or three temporaries
SCORE_BLOCK = 1 << 17  # attention scores
QUERY_BLOCK = 128  # queries; their scores end at the last key that one of them sees
COLUMNS = 1536  # of a matrix that are multiplied at a time, if it lies column by column


def by_rows(function: Callable[..., Array]) -> Callable[..., Array]:
    """Compute a function of each row by itself, [..., N] -> [..., N], a block of rows at a time.

    Over whole arrays, each of its operations would go through memory once. With ``out=x`` there
    are no new pages for the system to find, which takes as long as the computing.
    """

    @wraps(function)
    def blocked(x: Array, *args: Any, out: Array | None = None, **options: Any) -> Array:
        if x.size <= ROW_BLOCK:
            return function(x, *args, out=out, **options)
        if out is None:
            out = np.empty(x.shape, x.dtype)  # in C order, whatever x is in
        rows, results = x.reshape(-1, x.shape[-1]), out.reshape(-1, x.shape[-1])
        step = max(1, ROW_BLOCK // x.shape[-1])
        for start in range(0, len(rows), step):
            block = slice(start, start + step)
            function(rows[block], *args, out=results[block], **options)
        return out

    return blocked


def by_queries(attention: AttentionFunction) -> AttentionFunction:
    """Compute attention a few heads and a block of queries at a time, so that scores stay cached.

    Only the keys that a block's queries see are looked at, which is half of the work. As the mask
    is counted from the lower right corner, each block [heads, T, K] is attention itself.
    """

    @wraps(attention)
    def blocked(q: Array, k: Array, v: Array, scale: float) -> Array:
        (B, H, T, K), S = q.shape, k.shape[2]
        if H * T * S <= SCORE_BLOCK:
            return attention(q, k, v, scale)
        if not k[0, 0].flags.c_contiguous:  # cut out of c_attn's rows, from where BLAS is slower
            k, v = k.copy(), v.copy()
        # In the order in which the heads are merged, so that merging them copies nothing.
        z: Array = np.empty((B, T, H, K), q.dtype).swapaxes(1, 2)
        n = max(1, SCORE_BLOCK // (min(T, QUERY_BLOCK) * S))
        for b, heads in [(b, slice(h, h + n)) for b in range(B) for h in range(0, H, n)]:
            for start in range(0, T, QUERY_BLOCK):
                queries = slice(start, min(start + QUERY_BLOCK, T))
                seen = slice(S - T + queries.stop)
                z[b, heads, queries] = attention(
                    q[b, heads, queries], k[b, heads, seen], v[b, heads, seen], scale
                )
        return z

    return blocked


def joined(parts: Sequence[Array]) -> Array:
    """Put rows of a batch behind one another; a lone part stays as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def product(x: Array, W: Array) -> Array:  # [..., in], [in, out] -> [..., out]
    """x W, in the form that takes NumPy's BLAS the least time.

    rows of x   W in memory        form         because
    up to 6     row by row         row by row   for a product of matrices BLAS copies W, which
    up to 2     column by column   row by row   takes longer than reading it that often
    up to in/10 column by column   (W^T x^T)^T  BLAS copies W as it lies, which is faster; some
                                                columns at a time, and turned back while cached
    more        either             x W          turning so much would take longer than it saves
    """
    rows = x.reshape(-1, x.shape[-1])
    n, n_out = len(rows), W.shape[1]
    by_columns = not W.flags.c_contiguous
    if n <= (2 if by_columns else 6):
        y = (rows[:, None] @ W)[:, 0]
    elif by_columns and 10 * n <= W.shape[0]:
        y = np.empty((n, n_out), x.dtype)
        for start in range(0, n_out, COLUMNS):
            columns = slice(start, start + COLUMNS)
            y[:, columns] = (W.T[columns] @ rows.T).T
    else:
        y = rows @ W
    return y.reshape(*x.shape[:-1], n_out)


# log(erfc(x) exp(x^2) / t) as a polynomial in u, lowest power first, for t = 1 / (1 + x/2),
# u = (8t - 5) / 3 and x from 0 to 6, beyond which erf(x) is 1. Interpolated at Chebyshev's points
# with 50 digits; test_layers.py holds the result against math.erf.
_ERFC = (
    -0.5014367259211941,
    0.5153126870212842,
    0.005570761974861326,
    -0.021523642465411375,
    0.0004935317206162211,
    0.0020287640450708526,
    -0.0003302199972833441,
    -0.00019494556456968944,
    8.147013121134481e-05,
    9.023229752243822e-06,
    -1.36012055653271e-05,
    2.117562533281115e-06,
    1.4091650871645508e-06,
    -6.942854367610564e-07,
    -8.427007899189324e-09,
    1.040409296875347e-07,
    -2.8580502513456496e-08,
    -7.559853861426372e-09,
    5.528882835949396e-09,
    2.7450226804702058e-11,
    -4.408545494154179e-10,
)


def erf(x: Array) -> Array:
    """The error function, to 4e-16 in float64 and 3e-7 in float32.

    Examples
    --------
    >>> import math
    >>> (erf(np.array([-np.inf, 0.0, 0.5])) - [-1.0, 0.0, math.erf(0.5)]).round(15)
    array([0., 0., 0.])
    """
    a = np.minimum(np.abs(x), 6.0)
    t = 1.0 / (1.0 + 0.5 * a)
    u = (8.0 * t - 5.0) / 3.0
    terms = _ERFC if x.dtype == np.float64 else _ERFC[:14]
    log_erfc = np.full_like(u, terms[-1])
    for coefficient in reversed(terms[:-1]):
        log_erfc *= u
        log_erfc += coefficient
    y: Array = np.copysign(1.0 - t * np.exp(log_erfc - a * a), x)
    return y
