"""Dot products term by term: of the strongest cells of each linear map, the largest terms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpt2np.explorer.run import Run, largest
from gpt2np.params import Affine, Array

CELLS = 4  # of a vector, for which terms are kept; of c_attn so many for each of q, k and v
TERMS = 6  # that are kept of each


class Terms(NamedTuple):
    """Of N cells, where they are, and how each comes about.

    A cell is the sum of M largest terms x w, of all others together, and a bias.
    """

    cell: npt.NDArray[np.intp]  # [..., N]
    at: npt.NDArray[np.intp]  # [..., N, M]: which numbers of x
    x: Array  # [..., N, M]
    w: Array  # [..., N, M]
    others: Array  # [..., N]
    bias: Array  # [..., N]


def terms(
    x: Array, w: Array, cell: npt.NDArray[np.intp], bias: Array | None = None
) -> Terms:  # [..., n], [..., N, n], [..., N]
    """Take dot products of x with rows of w apart.

    >>> part = terms(np.array([1.0, 2, 3]), np.array([[5.0, 0, 4]]), np.array([7]))
    >>> part.at, part.others
    (array([[2, 0, 1]]), array([0.]))
    """
    products = x[..., None, :].astype(np.float64) * w
    at = largest(np.abs(products), TERMS).at
    kept = np.take_along_axis(products, at, -1)
    return Terms(
        cell,
        at,
        np.take_along_axis(np.broadcast_to(x[..., None, :], products.shape), at, -1),
        np.take_along_axis(np.broadcast_to(w, products.shape), at, -1),
        products.sum(-1) - kept.sum(-1),
        np.zeros(cell.shape) if bias is None else bias[cell],
    )


def of_linear(x: Array, p: Affine, strength: Array, parts: int) -> Terms:  # [T, in], [T, out]
    """Take the strongest cells of x W + b apart, of each of so many parts of it."""
    width = strength.shape[-1] // parts
    strongest = largest(strength.reshape(len(x), parts, width), CELLS).at
    cell = (strongest + width * np.arange(parts)[:, None]).reshape(len(x), -1)
    return terms(x, p.weight.T[cell], cell, p.bias)


def of_run(run: Run, tokens: slice) -> dict[str, Terms]:
    """Take apart what can be, of these tokens: each map of each block, and the logits."""
    blocks, parts = run.model.params.blocks, {}
    for name, source, strength, of in (
        ("attn.c_attn", "ln_1", "attn.c_attn", 3),
        ("attn.c_proj", "attn.z", "attn.c_proj", 1),
        ("mlp.c_fc", "ln_2", "mlp.act", 1),  # the units that GELU lets through
        ("mlp.c_proj", "mlp.act", "mlp.c_proj", 1),
    ):
        x = run.vectors(f"h.{{i}}.{source}")[:, tokens]
        y = np.abs(run.vectors(f"h.{{i}}.{strength}")[:, tokens])
        parts[name] = _stacked(
            [of_linear(x[i], _get(block, name), y[i], of) for i, block in enumerate(blocks)]
        )
    best = largest(run.logits[tokens], CELLS).at
    head = run.model.params.lm_head[best]
    parts["logits"] = _stacked([terms(run.vectors("ln_f")[0, tokens], head, best)])
    return parts


def of_attention(run: Run) -> dict[str, Terms]:
    """Take apart, of the last token in each head, its strongest score and the strongest of z."""
    config, scores, z = run.config, [], []
    for i in range(config.n_layer):
        q, k, v = (run.trace[f"h.{i}.attn.{name}"][0] for name in "qkv")  # [H, T, K]
        pattern = run.trace[f"h.{i}.attn.pattern"][0, :, -1]  # [H, T]
        key = pattern.argmax(-1, keepdims=True)  # [H, 1]
        scores.append(terms(q[:, -1], np.take_along_axis(k, key[..., None], 1), key))
        gathered = run.trace[f"h.{i}.attn.z"][0, -1]  # [H, K]
        cell = np.abs(gathered).argmax(-1)[:, None]
        values = np.take_along_axis(v, cell[:, None], 2).swapaxes(1, 2)  # [H, 1, T]
        z.append(terms(pattern, values, cell))
    return {"attn.scores": _stacked(scores), "attn.z": _stacked(z)}


def _get(block: Any, name: str) -> Affine:
    for part in name.split("."):
        block = getattr(block, part)
    return block  # type: ignore[no-any-return]


def _stacked(parts: list[Terms]) -> Terms:
    return Terms(*(np.stack(arrays) for arrays in zip(*parts, strict=True)))
