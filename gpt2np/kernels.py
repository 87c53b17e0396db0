"""What is only about speed: how work is cut into blocks, and how NumPy's BLAS is best asked.

Nothing here is needed to understand GPT-2. The equations in `gpt2np.layers` pass through these
functions and decorators unchanged; each holds one trick, and the reason for it.

Shapes as in `gpt2np.layers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec

import numpy as np

from gpt2np.params import Array

P = ParamSpec("P")
Attention = Callable[[Array, Array, Array, float], Array]

# What is worked on at a time, so that it stays in a core's L2 cache of 512 KiB or more.
ROW_BLOCK = 1 << 15  # elements of rows, with two or three temporaries
SCORE_BLOCK = 1 << 17  # attention scores
QUERY_BLOCK = 128  # queries; their scores end at the last key that one of them sees
SUMMED = 384  # terms of a product's sums; fewer are more exact, but take longer


def by_rows(
    function: Callable[Concatenate[Array, P], Array],
) -> Callable[Concatenate[Array, P], Array]:
    """Compute a function of each row by itself, x [..., N] -> [..., N], a block of rows at a time.

    Over whole arrays, each of its operations would go through memory once.
    """

    @wraps(function)
    def blocked(x: Array, /, *args: P.args, **kwargs: P.kwargs) -> Array:
        if x.size <= ROW_BLOCK:
            return function(x, *args, **kwargs)
        y = np.empty(x.shape, x.dtype)  # in C order, whatever x is in
        rows, results = x.reshape(-1, x.shape[-1]), y.reshape(-1, x.shape[-1])
        step = max(1, ROW_BLOCK // x.shape[-1])
        for start in range(0, len(rows), step):
            block = slice(start, start + step)
            results[block] = function(rows[block], *args, **kwargs)
        return y

    return blocked


def by_queries(attention: Attention) -> Attention:
    """Compute attention a few heads and a block of queries at a time, so that scores stay cached.

    Only the keys that a block's queries see are looked at, which is half of the work. As the mask
    is counted from the lower right corner, each block is attention itself.
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
    """x W, as one matrix product of all rows.

    Up to three rows are multiplied one by one: BLAS copies W for a product of matrices, which
    takes longer than reading it three times. A few more are filled up to a multiple of eight,
    which BLAS's kernels take at a time: what is left over takes them longer than eight.

    BLAS adds up as many as 320 terms one after the other, and the error grows with their number.
    So `SUMMED` rows of W are taken at a time, which BLAS halves. For many rows of x that would
    take 10 to 20 % longer, and is left.
    """
    rows = x.reshape(-1, 1, x.shape[-1])
    n = len(rows)
    if n <= 3:
        return (rows @ W).reshape(*x.shape[:-1], W.shape[1])
    rows = rows[:, 0]
    if n < 16 and n % 8:
        rows = np.zeros((n + -n % 8, rows.shape[1]), x.dtype)
        rows[:n] = x.reshape(n, -1)
    step = SUMMED if n <= 128 else len(W)
    y: Array = rows[:, :step] @ W[:step]
    for k in range(step, len(W), step):
        y += rows[:, k : k + step] @ W[k : k + step]
    return y[:n].reshape(*x.shape[:-1], W.shape[1])


# log(erfc(x) exp(x^2) / t) as a polynomial in u, for t = 1 / (1 + x/2), u = (8t - 5) / 3 and x
# from 0 to 6, beyond which erf(x) is 1: Chebyshev interpolation at 50 digits. The substitution
# is that of W. J. Cody's and later rational approximations of erfc; test_layers.py holds the
# result against math.erf.
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
