"""Random weights that bring out every part of the model, and when two answers are the same."""

import math

import numpy as np

from gpt2np import Params


def random_params(config, seed=0, dtype=np.float32):
    """Params.random with wider matrices, so that what they multiply keeps its size.

    As GPT-2 starts its training, attention is all but even: an error in it hardly shows. Here it
    is as uneven as in a trained model, and float32 still tells the logits to six digits.
    """
    spread = (50 if config.scale_attn_weights else 25) / math.sqrt(config.n_embd)
    params = Params.random(config, seed, dtype)
    wider = {k: a if a.ndim == 1 else a * a.dtype.type(spread) for k, a in params.items()}
    return Params(config, wider)


def near(ours, theirs):
    """Equal but for the order of additions, which the shapes decide."""
    tolerance = {np.float32: 1e-5, np.float64: 1e-13}[ours.dtype.type]
    return ours.shape == theirs.shape and (
        np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()
    )
