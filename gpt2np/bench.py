"""What to expect on this machine: decoding and prefill, and the limits that they run against."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpt2np.params import Array, Params


def matrices(params: Params) -> list[Array]:
    """Give the matrices of the layers, [in, out], in the order in which they are read."""
    return [
        p.weight
        for block in params.blocks
        for p in (block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj)
    ]


def layer_products(params: Params, rows: int) -> Callable[[], None]:
    """Make a function that multiplies every matrix of the layers by `rows` rows."""
    inputs = {m.shape[0]: np.ones((rows, m.shape[0]), m.dtype) for m in matrices(params)}
    outputs = {m.shape[1]: np.empty((rows, m.shape[1]), m.dtype) for m in matrices(params)}

    def run() -> None:
        for m in matrices(params):
            np.matmul(inputs[m.shape[0]], m, out=outputs[m.shape[1]])

    return run


def vector_products(params: Params, rows: int = 1) -> Callable[[], None]:
    """Make a function that reads every weight once, as a decoding step of `rows` sequences does."""
    layers = layer_products(params, rows)
    head = params.lm_head.T
    x = np.ones((rows, head.shape[0]), head.dtype)
    logits = np.empty((rows, head.shape[1]), head.dtype)

    def run() -> None:
        layers()
        np.matmul(x, head, out=logits)

    return run


def peak_memory() -> int | None:
    """The most bytes of memory this process had in use at once, mapped files among them."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
