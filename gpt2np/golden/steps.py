"""Each step of GPT-2 by itself: in float64 from its own inputs, and how near a sound one comes.

A recording is judged step by step: what a step makes of the inputs that were recorded with it is
held against what it should make of them. Errors do not add up then, and show where they arise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gpt2np.dumps import AnyArray
from gpt2np.golden.faulty import (
    Site,
    cut,
    linear,
    norm,
    positions,
    product,
    scores,
    tokens,
)
from gpt2np.golden.measure import HIDDEN, PRECISIONS, TOLERANCE, Distance, aligned
from gpt2np.golden.names import kind_and_block
from gpt2np.layers import ACTIVATIONS, softmax

# The relative rounding error of one operation.
ROUNDING = {"float64": 2**-53, "float32": 2**-24, "float16": 2**-11, "bfloat16": 2**-8}
OPERATIONS = 16  # roundings that one element may suffer, besides those of sums
HALF_OPERATIONS = 10  # the same where each is as large as those of half precision


def merged(s: Site) -> AnyArray:  # [B, T, H, K]
    z: AnyArray = (s["h.{i}.attn.pattern"] @ s.keys(1)).swapaxes(1, 2)
    return z


def added(s: Site) -> AnyArray:
    if s.point.endswith("resid_mid"):
        return s.x + s["h.{i}.attn.c_proj"]
    return s["h.{i}.resid_mid"] + s["h.{i}.mlp.c_proj"]


SOUND: dict[str, Callable[[Site], AnyArray]] = {
    "wte":                lambda s: tokens(s, 0),
    "wpe":                lambda s: positions(s, s.run.held),
    "embed":              lambda s: s["wte"] + s["wpe"],
    "h.{i}.ln_1":         norm,
    "h.{i}.attn.c_attn":  linear,
    "h.{i}.attn.q":       cut,
    "h.{i}.attn.k":       cut,
    "h.{i}.attn.v":       cut,
    "h.{i}.attn.scores":  scores,
    "h.{i}.attn.pattern": lambda s: softmax(s["h.{i}.attn.scores"]),
    "h.{i}.attn.z":       merged,
    "h.{i}.attn.c_proj":  linear,
    "h.{i}.resid_mid":    added,
    "h.{i}.ln_2":         norm,
    "h.{i}.mlp.c_fc":     linear,
    "h.{i}.mlp.act":      lambda s: ACTIVATIONS[s.config.activation_function](s["h.{i}.mlp.c_fc"]),
    "h.{i}.mlp.c_proj":   linear,
    "h.{i}":              added,
    "ln_f":               norm,
    "logits":             lambda s: product(s["ln_f"], s.head.T),
}  # fmt: skip

LINEAR = ("h.{i}.attn.c_attn", "h.{i}.attn.c_proj", "h.{i}.mlp.c_fc", "h.{i}.mlp.c_proj")
PRODUCTS = (*LINEAR, "logits")  # sums of very many terms, where their order shows


def sound(s: Site) -> AnyArray:
    """What the step makes of its inputs. A KeyError tells which was not recorded."""
    return SOUND[kind_and_block(s.point)[0]](s)


def scale(s: Site, expected: AnyArray) -> AnyArray:
    """How large the numbers are that the step adds up: errors are in proportion to them."""
    kind, _ = kind_and_block(s.point)
    result: AnyArray
    if kind in PRODUCTS:
        x, W = (s["ln_f"], s.head.T) if kind == "logits" else (s.input, s.parameter("weight"))
        result = _length(x, -1)[..., None] * _length(W, 0)
        result = result if kind == "logits" else result + np.abs(s.parameter("bias"))
    elif kind == "h.{i}.attn.scores":
        q, k = _length(s["h.{i}.attn.q"], -1), _length(s.keys(), -1)
        result = q[..., None] * k[..., None, :] * s.config.score_scale(s.i)
    elif kind == "h.{i}.attn.z":
        result = (s["h.{i}.attn.pattern"] @ np.abs(s.keys(1))).swapaxes(1, 2)
    elif kind == "h.{i}.attn.pattern":
        x = s["h.{i}.attn.scores"]
        x = np.where(x < HIDDEN, 0, x)
        result = expected * (1 + x.max(-1, keepdims=True) - x)
    elif kind in ("h.{i}.resid_mid", "h.{i}"):
        branch = "h.{i}.attn.c_proj" if kind.endswith("mid") else "h.{i}.mlp.c_proj"
        result = np.abs(s[branch]) + np.abs(expected - s[branch])
    elif kind in ("h.{i}.ln_1", "h.{i}.ln_2", "ln_f"):
        x, gain, bias = s.input, s.parameter("weight"), s.parameter("bias")
        mean, std = x.mean(-1, keepdims=True), x.std(-1, keepdims=True)
        spread = (np.abs(x) + np.abs(mean)) / (std + s.config.layer_norm_epsilon**0.5 + 1e-30)
        result = (1 + spread) * np.abs(gain) + np.abs(bias)
    elif kind == "h.{i}.mlp.act":
        result = np.abs(s["h.{i}.mlp.c_fc"])
    else:
        result = np.abs(expected)
    return np.maximum(result, TINY)


TINY = 1e-30  # below which float32 has few digits


def _length(x: AnyArray, axis: int) -> AnyArray:
    """The Euclidean length along an axis, summed in float64 without a copy of a large matrix."""
    subscripts = {(3, -1): "btd,btd->bt", (4, -1): "bhtk,bhtk->bht", (2, 0): "iv,iv->v"}
    squares: AnyArray = np.einsum(subscripts[x.ndim, axis], x, x, dtype=x.dtype)
    return np.sqrt(squares.astype(np.float64))


def terms(s: Site) -> int:
    """How many numbers each of the step's sums has."""
    kind, _ = kind_and_block(s.point)
    if kind in LINEAR:
        return len(s.parameter("weight"))
    if kind == "h.{i}.attn.scores":
        return s.config.head_width
    if kind in ("h.{i}.attn.z", "h.{i}.attn.pattern"):
        before = "h.{i}.attn.pattern" if kind.endswith("z") else "h.{i}.attn.scores"
        return int(s[before].shape[-1])
    return s.config.n_embd if kind in ("h.{i}.ln_1", "h.{i}.ln_2", "ln_f", "logits") else 1


def step_tolerance(s: Site, level: int) -> float:
    """How far a sound step may be off, in the precision of a level, as a part of its scale.

    Adding up n terms one after the other, each sum rounded, makes an error of about sqrt(n)
    roundings, whatever their order; four times the usual one is allowed.
    """
    name = PRECISIONS[level]
    if name in ("float16", "bfloat16"):
        return min(HALF_OPERATIONS * ROUNDING[name], TOLERANCE[name])
    return float(ROUNDING[name] * (OPERATIONS + terms(s) ** 0.5))


def step_distance(
    point: str, mine: AnyArray, expected: AnyArray, size: AnyArray
) -> Distance | None:
    """Measure how far a step is from what it should be, relative to the size of its terms."""
    pair = aligned(point, mine, expected)
    if pair is None:
        return None
    a, b = (np.atleast_1d(x) for x in pair)
    if b.size == 0:
        return Distance(0.0, 0.0, (), 0.0, 0.0)
    if kind_and_block(point)[0] == "h.{i}.attn.scores":
        a, b = (np.where(x < HIDDEN, -np.inf, x) for x in (a, b))
    size = np.broadcast_to(size, expected.shape)
    size = size if size.shape == b.shape else (aligned(point, b, size) or (b, b))[1]
    d = np.abs(np.subtract(a, b, dtype=np.float64))
    d[np.isnan(d)] = np.inf
    d[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
    relative = d / size
    relative[np.isnan(relative)] = np.inf
    relative[d == 0] = 0
    where = np.unravel_index(int(relative.argmax()), d.shape)
    return Distance(
        float(d.max()),
        float(relative[where]),
        tuple(map(int, where)),
        float(a[where]),
        float(b[where]),
    )


class Asked(Mapping[str, AnyArray]):
    """Arrays that note which of them were asked for."""

    def __init__(self, arrays: Mapping[str, AnyArray], asked: set[str]) -> None:
        self._arrays, self._asked = arrays, asked

    def __getitem__(self, name: str) -> AnyArray:
        self._asked.add(name)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


class Widened(Mapping[str, AnyArray]):
    """Arrays in float64, each as it is asked for."""

    def __init__(self, arrays: Mapping[str, AnyArray]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> AnyArray:
        return self._arrays[name].astype(np.float64, copy=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
