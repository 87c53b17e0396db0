"""Constants that a step seems to have been computed with, where they are not GPT-2's.

Each fit gives causes with what they make of the activation, as the tables of faults do. A constant
is named by its fewest digits that explain the activation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gpt2np.golden.faulty import Site, factor, linear, norm, scores, softmax_over
from gpt2np.golden.measure import HIDDEN
from gpt2np.layers import ACTIVATIONS, gelu_tanh
from gpt2np.params import Array

Near = Callable[[Array], bool]  # whether an array is the activation that is to be explained
Fitted = Iterator[tuple[str, Array]]

ROOT = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def rounded(value: float, compute: Callable[[float], Array], near: Near) -> tuple[float, Array]:
    """Give the shortest number by which the activation is explained, and what it makes."""
    for digits in range(1, 7):
        short = float(f"{value:.{digits}g}")
        if near(made := compute(short)):
            return short, made
    return value, compute(value)


def epsilons(s: Site, near: Near) -> Fitted:
    """The epsilon inside the root, from the length of each row."""
    gain, bias, x = s.parameter("weight"), s.parameter("bias"), s.input
    x = x - x.mean(-1, keepdims=True)
    variance, y = (x * x).mean(-1), x * gain
    slope = ((s["mine"] - bias) * y).sum(-1) / (y * y).sum(-1)
    weights = variance**-2.0
    epsilon = float(((slope**-2.0 - variance) * weights).sum() / weights.sum())
    right = s.config.layer_norm_epsilon
    for fitted in {max(epsilon, 0.0), 0.0}:
        short, made = rounded(fitted, lambda e: norm(s, epsilon=e), near)
        yield f"LayerNorm's epsilon is {short:.6g}, not {right:g}", made


def gelu_of(x: Array, root: float, cubic: float) -> Array:
    y: Array = x / (1 + np.exp(-2 * root * (x + cubic * x**3)))
    return y


def gelu_constants(s: Site, near: Near) -> Fitted:
    """The two constants of GELU's tanh form, together and each by itself."""
    x, y = s["h.{i}.mlp.c_fc"], s["mine"]
    if ACTIVATIONS[s.config.activation_function] is not gelu_tanh:
        return
    telling = (np.abs(x) > 0.2) & (np.abs(x) < 2.5) & (y / x > 1e-3) & (y / x < 1 - 1e-3)
    x_, t = x[telling], np.arctanh(2 * y[telling] / x[telling] - 1)
    if not x_.size:
        return
    steep = 1 / np.cosh(t) ** 2  # how much of an error of y is one of t
    design = np.stack([x_, x_**3], 1) * steep[:, None]
    root, both = np.linalg.lstsq(design, t * steep)[0] if len(x_) > 1 else (ROOT, 0.0)
    weights = (ROOT * x_**3 * steep) ** 2
    cubic = float(((t / ROOT - x_) / x_**3 * weights).sum() / weights.sum())
    short, cubed = rounded(cubic, lambda c: gelu_of(x, ROOT, c), near)
    yield f"GELU's constant is {short:.6g}, not {CUBIC}", cubed
    right = x_ + CUBIC * x_**3
    short, rooted = rounded(
        float((t * right * steep).sum() / (right * right * steep).sum()),
        lambda r: gelu_of(x, r, CUBIC),
        near,
    )
    yield f"GELU's factor is {short:.6g}, not sqrt(2/pi) = {ROOT:.6f}", rooted
    if near(cubed) or near(rooted):
        return
    yield (
        f"GELU's constants are {root:.6g} and {both / root:.6g}, not {ROOT:.6f} and {CUBIC}",
        gelu_of(x, float(root), float(both / root)),
    )


def score_factor(s: Site, near: Near) -> Fitted:
    """The factor of q k^T, and what hides the future."""
    mine, right = s["mine"], s.config.score_scale(s.i)
    seen = np.isfinite(s.clean) & np.isfinite(mine)
    by = factor(np.where(seen, mine, np.nan), np.where(seen, s.clean, np.nan)) * right
    short, made = rounded(by, lambda f: scores(s, scale=f), near)
    yield f"the scores are multiplied by {short:.6g}, not by {right:.6g}", made
    hidden = mine[np.isneginf(s.clean)]
    if hidden.size and HIDDEN <= hidden[0] < 0:
        fill = float(hidden[0])
        yield f"the mask sets {fill:g}, which still can be seen", scores(s, fill=fill)


def softmax_factor(s: Site, near: Near) -> Fitted:
    """A temperature in the softmax."""
    x, p = s["h.{i}.attn.scores"], s["mine"]
    telling = np.isfinite(x) & (p > 1e-6)
    count = np.maximum(telling.sum(-1, keepdims=True), 1)
    x, logs = np.where(telling, x, 0), np.log(np.where(telling, p, 1))
    x, logs = (np.where(telling, a - a.sum(-1, keepdims=True) / count, 0) for a in (x, logs))
    before = s["h.{i}.attn.scores"]

    def warmed(by: float) -> Array:
        return softmax_over(_with(s, "h.{i}.attn.scores", before * by), -1)

    by, made = rounded(float((x * logs).sum() / (x * x).sum()), warmed, near)
    yield f"the scores are multiplied by {by:.5g} before the softmax", made


def _with(s: Site, name: str, array: Array) -> Site:
    """The same place, with another activation before it."""
    at = {**s.run.at, name.format(i=s.i): array}
    return Site(replace(s.run, at=at), s.point, s.clean)


def other_block(s: Site, near: Near) -> Fitted:
    """The weights of each other block, and of each kind of LayerNorm."""
    parts = s.point.split(".", 2)
    compute = norm if parts[-1].startswith("ln") else linear
    for j in range(s.config.n_layer if parts[0] == "h" else 0):
        if j != s.i:
            module = f"h.{j}.{parts[2]}"
            if s.parameter("weight", module).shape == s.parameter("weight").shape:
                yield f"the weights are those of block {j}", compute(s, module=module)
    if compute is linear:
        bias = s.parameter("bias")
        for j in range(s.config.n_layer):
            module = f"h.{j}.{parts[2]}"
            if j != s.i:
                made = linear(s, bias=False) + s.parameter("bias", module)
                yield f"the bias is that of block {j}", made
        yield "the bias is added twice", linear(s) + bias
        yield "the bias is taken off, not added", linear(s, bias=False) - bias


def position_shift(s: Site, near: Near) -> Fitted:
    """Rows of wpe from another place; what stands before its first is the end of wte."""
    wpe, wte = s.run.params["wpe.weight"], s.run.params["wte.weight"]
    mine = s["mine"].reshape(-1, *s["mine"].shape[-2:])[0]
    T, n_ctx = len(mine), len(wpe)
    rows = np.arange(T) + s.run.held
    if (mine == mine[0, 0]).all() and mine[0, 0] != 0:
        made = np.broadcast_to(mine, s.clean.shape)
        yield f"all rows hold {mine[0, 0]:g}: wte's padding is read for wpe", made
    last = np.abs(wpe - mine[-1]).max(-1)
    for at in np.flatnonzero(last <= 1e-6 * np.abs(wpe).max() + 0.0):
        by = int(rows[-1] - at)
        if by > 0:
            from_wpe = rows - by >= 0
            made = np.where(from_wpe[:, None], wpe[np.maximum(rows - by, 0)], mine)
            if not from_wpe.all():
                yield (
                    f"wpe is read {by} rows too early: wte's padding is read as wpe",
                    np.broadcast_to(made, s.clean.shape),
                )
    tail = np.concatenate([wte[-n_ctx:], wpe])
    for at in np.flatnonzero(np.abs(tail - mine[0]).max(-1) == 0):
        if at + T <= len(tail) and at < len(wte[-n_ctx:]):
            made = np.broadcast_to(tail[at : at + T], s.clean.shape)
            by = len(wte[-n_ctx:]) - int(at) + s.run.held
            yield f"wpe is read {by} rows too early: the end of wte is read as wpe", made


FITS: dict[str, list[Callable[[Site, Near], Fitted]]] = {
    "wpe":                [position_shift],
    "h.{i}.ln_1":         [epsilons, other_block],
    "h.{i}.ln_2":         [epsilons, other_block],
    "ln_f":               [epsilons],
    "h.{i}.attn.c_attn":  [other_block],
    "h.{i}.attn.c_proj":  [other_block],
    "h.{i}.mlp.c_fc":     [other_block],
    "h.{i}.mlp.c_proj":   [other_block],
    "h.{i}.attn.scores":  [score_factor],
    "h.{i}.attn.pattern": [softmax_factor],
    "h.{i}.mlp.act":      [gelu_constants],
}  # fmt: skip
