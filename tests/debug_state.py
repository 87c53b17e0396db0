"""llm.c's debug state, as its train_gpt2.py writes it: write_state."""

import numpy as np

from gpt2np import forward
from gpt2np.golden.tiny import IDS


def debug_state(x, y, logits, loss, gradients=()):
    header = np.zeros(256, "<i4")
    header[:4] = 20240327, 2, *x.shape
    parts = [
        x.astype("<i4"),
        y.astype("<i4"),
        logits.astype("<f4"),
        np.array([loss], "<f4"),
        *(g.astype("<f4") for g in gradients),
    ]
    return header.tobytes() + b"".join(part.tobytes() for part in parts)


def state_of(model):
    x = np.array([IDS[:6], IDS[6:]])
    y = np.array([IDS[1:7], [*IDS[7:], 0]])
    logits = forward(model.params, x)
    wide = logits.astype(np.float64)
    logprobs = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    loss = -np.take_along_axis(logprobs, y[..., None], -1).mean()
    return x, y, logits, loss
