"""The parts of GPT-2 as pure functions on arrays. None changes its input or its dtype.

Shapes: B batch, T new positions, S cached + new positions, H heads, K width of a head,
D model width, F MLP width, V vocabulary; ``...`` stands for any leading axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from gpt2np.params import MLP, Affine, Array

# A tap is called at every named activation and gives it back, or a replacement (see model.py).
Tap = Callable[[str, Array], Array]

# What is worked on at a time, so that it stays in a core's L2 cache of 512 KiB or more.
ROW_BLOCK = 1 << 15  # elements of rows, with two or three temporaries
SCORE_BLOCK = 1 << 17  # attention scores
QUERY_BLOCK = 128  # queries; their scores end at the last key that one of them sees
SUMMED = 384  # terms of a product's sums; fewer are more exact, but take longer


def untapped(name: str, array: Array) -> Array:
    """Give the activation back as it is."""
    return array


def by_rows(
    function: Callable[[Array, Array | None], Array], x: Array, out: Array | None = None
) -> Array:
    """Compute ``function(x, out)``, which takes each row by itself, a block of rows at a time.

    Over whole arrays, each of its operations would go through memory once. ``out`` may be ``x``.
    """
    if x.size <= ROW_BLOCK:
        return function(x, out)
    if out is None:
        out = np.empty(x.shape, x.dtype)  # in C order, whatever x is in
    rows, results = x.reshape(-1, x.shape[-1]), out.reshape(-1, x.shape[-1])
    step = max(1, ROW_BLOCK // x.shape[-1])
    for start in range(0, len(rows), step):
        function(rows[start : start + step], results[start : start + step])
    return out


def layer_norm(x: Array, p: Affine, epsilon: float) -> Array:  # [..., D] -> [..., D]
    """(x - mean) / sqrt(variance + epsilon) * gain + bias, over the last axis.

    The variance is the biased one (divided by D), and epsilon goes inside the root.

    Examples
    --------
    >>> x = np.array([[1.0, 3.0]])
    >>> layer_norm(x, Affine(np.ones(2), np.zeros(2)), epsilon=0.0)
    array([[-1.,  1.]])
    """

    if x.size == x.shape[-1]:
        return layer_norm_of_row(x.reshape(-1), p, epsilon).reshape(x.shape)

    def normalise(x: Array, out: Array | None) -> Array:
        D = x.shape[-1]
        x = x - np.add.reduce(x, -1, keepdims=True) / D
        variance = np.vecdot(x, x)[..., None] / D
        x *= (variance + epsilon) ** -0.5
        x *= p.weight
        return np.add(x, p.bias, out=out)

    return by_rows(normalise, x)


def layer_norm_of_row(x: Array, p: Affine, epsilon: float) -> Array:  # [D] -> [D]
    """The same for one row, as when decoding: plain numbers take less time than arrays of one."""
    D = len(x)
    x = x - float(np.add.reduce(x)) / D
    variance = float(x.dot(x)) / D
    x /= math.sqrt(variance + epsilon)
    x *= p.weight
    x += p.bias
    return x


def linear(x: Array, p: Affine) -> Array:  # [..., in] -> [..., out]
    """x W + b, with W as [in, out] (OpenAI's conv1d, Hugging Face's Conv1D)."""
    y = product(x, p.weight)
    y += p.bias
    return y


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


def softmax(x: Array, out: Array | None = None) -> Array:  # [..., S] -> [..., S]
    """exp(x) / sum(exp(x)) over the last axis, with the maximum taken off first.

    Examples
    --------
    >>> softmax(np.array([0.0, 1000.0, 1000.0, -np.inf]))
    array([0. , 0.5, 0.5, 0. ])
    """

    def normalise(x: Array, out: Array | None) -> Array:
        x = exponentiate(x, out)
        x /= np.add.reduce(x, -1, keepdims=True)
        return x

    return by_rows(normalise, x, out)


def exponentiate(x: Array, out: Array | None = None) -> Array:  # [..., S] -> [..., S]
    """exp(x - max(x)) over the last axis: what softmax divides by its sum."""
    x = np.subtract(x, np.maximum.reduce(x, -1, keepdims=True), out=out)
    return np.exp(x, out=x)


def log_softmax(x: Array) -> Array:  # [..., V] -> [..., V]
    """x - log(sum(exp(x))) over the last axis, with the maximum taken off first.

    Examples
    --------
    >>> log_softmax(np.array([7.0, 7.0])) == -np.log(2)
    array([ True,  True])
    """
    x = x - x.max(-1, keepdims=True)
    x -= np.log(np.exp(x).sum(-1, keepdims=True))
    return x


def gelu_tanh(x: Array, out: Array | None = None) -> Array:  # [..., F] -> [..., F]
    """x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3): OpenAI's GELU, ``gelu_new``.

    Computed as x / (1 + exp(-2u)), which is the same and takes a third of the time.

    Examples
    --------
    >>> gelu_tanh(np.array([-1.0, 0.0, 1.0])).round(6)
    array([-0.158808,  0.      ,  0.841192])
    """
    y = x * x
    y *= -2.0 * math.sqrt(2.0 / math.pi) * 0.044715
    y -= 2.0 * math.sqrt(2.0 / math.pi)
    y *= x
    with np.errstate(over="ignore"):  # exp(-2u) may be infinite: x over it is 0, as it should be
        np.exp(y, out=y)
    y += 1.0
    return np.divide(x, y, out=out)


def gelu_erf(x: Array, out: Array | None = None) -> Array:  # [..., F] -> [..., F]
    """x/2 (1 + erf(x / sqrt(2))): the exact GELU, ``gelu``.

    Examples
    --------
    >>> gelu_erf(np.array([-1.0, 0.0, 1.0])).round(6)
    array([-0.158655,  0.      ,  0.841345])
    """
    y = erf(x * math.sqrt(0.5))
    y += 1.0
    y *= 0.5
    return np.multiply(x, y, out=out)


GELU = {
    "gelu_new":          gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu":              gelu_erf,
}  # fmt: skip


def gelu(x: Array, kind: str, out: Array | None = None) -> Array:  # [..., F] -> [..., F]
    """GELU of the kind that the config names."""
    return by_rows(GELU[kind], x, out)


def attention(  # [B, H, T, K], [B, H, S, K] twice -> [B, T, H, K]
    q: Array, k: Array, v: Array, scale: float, tap: Tap = untapped
) -> Array:
    """softmax(scale q k^T + mask) v: each new position looks at itself and what came before.

    The T queries are the last T of the S positions, so the mask is counted from the lower right
    corner: query t sees keys 0 ... S - T + t.

    Large ones are taken a few heads and a block of queries at a time, against the keys that the
    block sees. A tap wants whole matrices.
    """
    B, H, T, K = q.shape
    S = k.shape[2]
    if H * T * S <= SCORE_BLOCK or tap is not untapped:
        z: Array = attend(q, k, v, scale, tap).swapaxes(1, 2)
        return z
    if not k[0, 0].flags.c_contiguous:  # cut out of c_attn's rows, from where BLAS is slower
        k, v = k.copy(), v.copy()
    z = np.empty((B, T, H, K), q.dtype)
    n = max(1, SCORE_BLOCK // (min(T, QUERY_BLOCK) * S))
    for b, heads in [(b, slice(h, h + n)) for b in range(B) for h in range(0, H, n)]:
        for start in range(0, T, QUERY_BLOCK):
            queries = slice(start, min(start + QUERY_BLOCK, T))
            seen = slice(S - T + queries.stop)
            scores = attention_scores(q[b, heads, queries], k[b, heads, seen], scale)
            z[b, queries, heads] = softmax_times(scores, v[b, heads, seen]).swapaxes(0, 1)
    return z


def attend(  # [..., T, K], [..., S, K] twice -> [..., T, K]
    q: Array, k: Array, v: Array, scale: float, tap: Tap = untapped
) -> Array:
    """Attention with all scores [..., T, S] at once."""
    scores = tap("attn.scores", attention_scores(q, k, scale))
    # In place, unless somebody has seen the scores and may still look at them.
    pattern = tap("attn.pattern", softmax(scores, out=scores if tap is untapped else None))
    z: Array = pattern @ v
    return z


def attention_scores(q: Array, k: Array, scale: float) -> Array:
    """scale q k^T + mask: [..., T, K], [..., S, K] -> [..., T, S]."""
    T = q.shape[-2]
    scores: Array = (q * scale) @ k.swapaxes(-1, -2)
    if T > 1:
        scores[..., -T:] += future_mask(T, scores.dtype)
    return scores


def softmax_times(scores: Array, v: Array) -> Array:  # [..., T, S], [..., S, K] -> [..., T, K]
    """softmax(scores) v, divided by the sums at the end: K numbers a row are fewer than S.

    Overwrites the scores.
    """
    weights = by_rows(exponentiate, scores, out=scores)
    z: Array = weights @ v
    z /= np.add.reduce(weights, -1, keepdims=True)
    return z


@lru_cache(maxsize=4)
def future_mask(T: int, dtype: np.dtype[Any]) -> Array:  # [T, T]
    """Make what hides the future from each of T queries: -inf above the diagonal, else 0."""
    return np.triu(np.full((T, T), -np.inf, dtype), 1)


def mlp(x: Array, p: MLP, kind: str, tap: Tap = untapped) -> Array:  # [..., D] -> [..., D]
    """W2 gelu(W1 x + b1) + b2: each position by itself, through a layer of width F."""
    fc = tap("mlp.c_fc", linear(x, p.c_fc))
    act = tap("mlp.act", gelu(fc, kind, out=fc if tap is untapped else None))
    return tap("mlp.c_proj", linear(act, p.c_proj))


def split_heads(qkv: Array, n_head: int) -> tuple[Array, Array, Array]:
    """Cut [B, T, 3D] into queries, keys and values, each a view [B, H, T, K]."""
    B, T, D3 = qkv.shape
    parts = qkv.reshape(B, T, 3, n_head, D3 // 3 // n_head).transpose(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


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
    >>> bool(np.abs(erf(np.array([-np.inf, 0.0, 0.5])) - [-1.0, 0.0, math.erf(0.5)]).max() < 4e-16)
    True
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
