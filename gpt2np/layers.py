"""The parts of GPT-2 as pure functions on arrays. None changes its input or its dtype.

Shapes: B batch, T new positions, S cached + new positions, H heads, K width of a head,
D model width, F MLP width, V vocabulary; ``...`` stands for any leading axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gpt2np.params import MLP, Affine, Array
from gpt2np.threads import by_rows

# A tap is called at every named activation and gives it back, or a replacement (see model.py).
Tap = Callable[[str, Array], Array]

QUERY_BLOCK = 128  # queries at a time: half the products of whole score matrices


def untapped(name: str, array: Array) -> Array:
    """Give the activation back as it is."""
    return array


def layer_norm(x: Array, p: Affine, epsilon: float) -> Array:  # [..., D] -> [..., D]
    """(x - mean) / sqrt(variance + epsilon) * gain + bias, over the last axis.

    The variance is the biased one (divided by D), and epsilon goes inside the root.

    Examples
    --------
    >>> x = np.array([[1.0, 3.0]])
    >>> layer_norm(x, Affine(np.ones(2), np.zeros(2)), epsilon=0.0)
    array([[-1.,  1.]])
    """

    def normalise(x: Array, out: Array | None) -> Array:
        D = x.shape[-1]
        x = x - np.add.reduce(x, -1, keepdims=True) / D
        variance = np.vecdot(x, x)[..., None] / D
        x *= (variance + epsilon) ** -0.5
        x *= p.weight
        return np.add(x, p.bias, out=out)

    return by_rows(normalise, x)


def linear(x: Array, p: Affine) -> Array:  # [..., in] -> [..., out]
    """x W + b, with W as [in, out] (OpenAI's conv1d, Hugging Face's Conv1D)."""
    y: Array = x @ p.weight
    return by_rows(lambda y, out: np.add(y, p.bias, out=out), y, out=y)


def softmax(x: Array, out: Array | None = None) -> Array:  # [..., S] -> [..., S]
    """exp(x) / sum(exp(x)) over the last axis, with the maximum taken off first.

    Examples
    --------
    >>> softmax(np.array([0.0, 1000.0, 1000.0, -np.inf]))
    array([0. , 0.5, 0.5, 0. ])
    """

    def normalise(x: Array, out: Array | None) -> Array:
        x = np.subtract(x, np.maximum.reduce(x, -1, keepdims=True), out=out)
        np.exp(x, out=x)
        x /= np.add.reduce(x, -1, keepdims=True)
        return x

    return by_rows(normalise, x, out)


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
    np.minimum(y, 88.0, out=y)  # exp(88) is finite in float32, and x over it is 0 already
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
    "gelu_fast":         gelu_tanh,
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

    Many queries are taken in blocks, each against the keys that its last one sees. A tap wants
    whole matrices, so it gets all queries as one block.
    """
    T, S = q.shape[2], k.shape[2]
    if T <= QUERY_BLOCK or tap is not untapped:
        return attention_block(q, k, v, scale, tap)
    stops = [*range(T, 0, -QUERY_BLOCK)][::-1]
    return np.concatenate([
        attention_block(q[:, :, max(0, stop - QUERY_BLOCK) : stop],
                        k[:, :, : S - T + stop], v[:, :, : S - T + stop], scale, tap)
        for stop in stops
    ], axis=1)  # fmt: skip


def attention_block(  # [B, H, T, K], [B, H, S, K] twice -> [B, T, H, K]
    q: Array, k: Array, v: Array, scale: float, tap: Tap
) -> Array:
    """The same, with the scores of all T queries in one matrix [B, H, T, S]."""
    T, S = q.shape[2], k.shape[2]
    scores = (q * scale) @ k.swapaxes(2, 3)
    if T > 1:
        query, key = np.triu_indices(T, 1)
        scores[:, :, query, S - T + key] = -np.inf
    scores = tap("attn.scores", scores)
    # In place, unless somebody has seen the scores and may still look at them.
    pattern = tap("attn.pattern", softmax(scores, out=scores if tap is untapped else None))
    return (pattern @ v).swapaxes(1, 2)


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
    -0.5014367259211941, 0.5153126870212842, 0.005570761974861326,
    -0.021523642465411375, 0.0004935317206162211, 0.0020287640450708526,
    -0.0003302199972833441, -0.00019494556456968944, 8.147013121134481e-05,
    9.023229752243822e-06, -1.36012055653271e-05, 2.117562533281115e-06,
    1.4091650871645508e-06, -6.942854367610564e-07, -8.427007899189324e-09,
    1.040409296875347e-07, -2.8580502513456496e-08, -7.559853861426372e-09,
    5.528882835949396e-09, 2.7450226804702058e-11, -4.408545494154179e-10,
)


def erf(x: Array) -> Array:
    """The error function, to 4e-16 in float64 and 3e-7 in float32.

    Examples
    --------
    >>> erf(np.array([-np.inf, 0.0, 0.5])) - [-1.0, 0.0, math.erf(0.5)]
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
