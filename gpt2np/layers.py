"""The equations of GPT-2 as pure functions on arrays. None changes the dtype, nor its input, unless
that is given as ``out``.

Shapes: B batch, T new positions, S cached + new positions, H heads, K width of a head,
D model width, F MLP width, V vocabulary; ``...`` stands for any leading axes.

``by_rows`` and ``by_queries`` only cut the arrays into blocks that stay in a processor's cache,
and call the function on each: see `gpt2np.kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gpt2np.kernels import by_queries, by_rows, erf, product
from gpt2np.params import Affine, Array


@by_rows
def layer_norm(  # [..., D] -> [..., D]
    x: Array, p: Affine, epsilon: float, out: Array | None = None
) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * gain + bias, over the last axis.

    The variance is the biased one (divided by D), and epsilon goes inside the root.

    Examples
    --------
    >>> x = np.array([[1.0, 3.0]])
    >>> layer_norm(x, Affine(np.ones(2), np.zeros(2)), epsilon=0.0)
    array([[-1.,  1.]])
    """
    D = x.shape[-1]
    # Summed in float64: in a trained model, a few channels dwarf the rest.
    mean = np.add.reduce(x, -1, dtype=np.float64, keepdims=True) / D
    x = x - mean.astype(x.dtype)
    variance = np.add.reduce(x * x, -1, dtype=np.float64, keepdims=True) / D
    x /= np.sqrt(variance + epsilon).astype(x.dtype)
    x *= p.weight
    return np.add(x, p.bias, out=out)


def linear(x: Array, p: Affine) -> Array:  # [..., in] -> [..., out]
    """x W + b, with W as [in, out] (OpenAI's conv1d, Hugging Face's Conv1D)."""
    y = product(x, p.weight)
    y += p.bias
    return y


@by_queries
def attention(q: Array, k: Array, v: Array, scale: float) -> Array:
    """softmax(scale q k^T + mask) v: each new position looks at itself and what came before.

    q [B, H, T, K]; k, v [B, H, S, K] -> [B, H, T, K]
    """
    scores = attention_scores(q, k, scale)
    return softmax(scores, out=scores) @ v


def attention_scores(q: Array, k: Array, scale: float) -> Array:
    """scale q k^T + mask: [..., T, K], [..., S, K] -> [..., T, S].

    The T queries are the last T of the S positions, so the mask is counted from the lower right
    corner: query t sees keys 0 ... S - T + t.
    """
    T = q.shape[-2]
    scores: Array = (q * scale) @ k.swapaxes(-1, -2)
    if T > 1:
        scores[..., -T:] += future_mask(T, scores.dtype)
    return scores


@lru_cache(maxsize=4)
def future_mask(T: int, dtype: np.dtype[Any]) -> Array:  # [T, T]
    """Make what hides the future from each of T queries: -inf above the diagonal, else 0."""
    return np.triu(np.full((T, T), -np.inf, dtype), 1)


@by_rows
def softmax(x: Array, out: Array | None = None) -> Array:  # [..., S] -> [..., S]
    """exp(x) / sum(exp(x)) over the last axis, with the maximum taken off first.

    Examples
    --------
    >>> softmax(np.array([0.0, 1000.0, 1000.0, -np.inf]))
    array([0. , 0.5, 0.5, 0. ])
    """
    x = np.subtract(x, np.maximum.reduce(x, -1, keepdims=True), out=out)
    np.exp(x, out=x)
    x /= np.add.reduce(x, -1, keepdims=True)
    return x


def log_softmax(x: Array) -> Array:  # [..., V] -> [..., V]
    """x - log(sum(exp(x))) over the last axis, with the maximum taken off first."""
    x = x - x.max(-1, keepdims=True)
    x -= np.log(np.exp(x).sum(-1, keepdims=True))
    return x


@by_rows
def gelu_tanh(  # [..., F] -> [..., F]
    x: Array, c: float = math.sqrt(2.0 / math.pi), out: Array | None = None
) -> Array:
    """x/2 (1 + tanh(u)) = x sigmoid(2u), u = c (x + 0.044715 x^3): OpenAI's GELU, ``gelu_new``.

    Examples
    --------
    >>> gelu_tanh(np.array([-1.0, 0.0, 1.0])).round(6)
    array([-0.158808,  0.      ,  0.841192])
    """
    y = x * x  # in place to y = -2u
    y *= -2.0 * c * 0.044715
    y -= 2.0 * c
    y *= x
    return times_sigmoid(x, y, out)


@by_rows
def gelu_erf(x: Array, out: Array | None = None) -> Array:  # [..., F] -> [..., F]
    """x/2 (1 + erf(x / sqrt(2))): the exact GELU, ``gelu``."""
    y = erf(x * math.sqrt(0.5))
    y += 1.0
    y *= 0.5
    return np.multiply(x, y, out=out)


@by_rows
def silu(x: Array, c: float = 1.0, out: Array | None = None) -> Array:  # [..., F] -> [..., F]
    """x sigmoid(c x): SiLU or Swish, and with c = 1.702 the sigmoid form of GELU."""
    return times_sigmoid(x, x * -c, out)


def relu(x: Array, out: Array | None = None) -> Array:  # [..., F] -> [..., F]
    """max(x, 0)."""
    return np.maximum(x, 0.0, out=out)


# By the names that Hugging Face's config.json gives them; its own functions are in transformers'
# activations.py.
ACTIVATIONS: dict[str, Callable[..., Array]] = {
    "gelu_new":          gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu_fast":         partial(gelu_tanh, c=0.7978845608),  # sqrt(2/pi), to ten digits there
    "gelu":              gelu_erf,
    "gelu_python":       gelu_erf,
    "quick_gelu":        partial(silu, c=1.702),
    "silu":              silu,
    "swish":             silu,
    "relu":              relu,
    "tanh":              np.tanh,
}  # fmt: skip


def times_sigmoid(x: Array, y: Array, out: Array | None) -> Array:
    """x sigmoid(-y) = x / (1 + exp(y)), which overwrites y: a third of the time of tanh."""
    with np.errstate(over="ignore"):  # exp(y) may be infinite: x over it is 0, as it should be
        np.exp(y, out=y)
    y += 1.0
    return np.divide(x, y, out=out)


def split_heads(qkv: Array, n_head: int) -> tuple[Array, Array, Array]:
    """Cut [B, T, 3D] into queries, keys and values, each a view [B, H, T, K]."""
    B, T, D3 = qkv.shape
    parts = qkv.reshape(B, T, 3, n_head, D3 // 3 // n_head).transpose(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


def merge_heads(z: Array) -> Array:
    """Lay what the heads gathered side by side: [B, T, H, K] -> [B, T, D]."""
    return z.reshape(*z.shape[:2], -1)
