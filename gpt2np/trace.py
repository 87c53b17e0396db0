"""Named activations: what a forward pass computes on its way, shown under Hugging Face's names.

A probe is any function (name, array) -> array or None, called at every point of `POINTS`, block
after block, in order of the flow. What it returns takes the activation's place: that is how to
ablate, patch or steer. A `Tap` stands in the flow at every point, and calls the probe if there is
one. `gpt2np.Trace`, in recorder.py, is the probe that records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from gpt2np.config import Config
from gpt2np.errors import InputError, shown
from gpt2np.params import Array

Probe: TypeAlias = Callable[[str, Array], Array | None]

# In order of the flow, with their shapes; {i} is the block. Of a cached pass, T counts the new
# positions and S those it sees.
POINTS = {
    "wte":                  "B T D",
    "wpe":                  "B T D",  # without a cache 1 T D: the same for every sequence
    "h.{i}.ln_1":           "B T D",
    "h.{i}.attn.c_attn":    "B T 3D",
    "h.{i}.attn.q":         "B H T K",
    "h.{i}.attn.k":         "B H T K",
    "h.{i}.attn.v":         "B H T K",
    "h.{i}.attn.scores":    "B H T S",  # scaled and masked
    "h.{i}.attn.pattern":   "B H T S",
    "h.{i}.attn.z":         "B T H K",
    "h.{i}.attn.c_proj":    "B T D",
    "h.{i}.resid_mid":      "B T D",
    "h.{i}.ln_2":           "B T D",
    "h.{i}.mlp.c_fc":       "B T F",
    "h.{i}.mlp.act":        "B T F",
    "h.{i}.mlp.c_proj":     "B T D",
    "h.{i}":                "B T D",
    "ln_f":                 "B T D",
    "logits":               "B T V",
}  # fmt: skip


class Tap:
    """Shows activations to a probe, under a prefix; without a probe gives them straight back.

    A tap is true if somebody looks on: then all is computed whole and step by step.

    Examples
    --------
    >>> x = np.ones(2)
    >>> Tap(None)("ln_1", x) is x, bool(Tap(None))
    (True, False)
    >>> Tap(lambda name, array: 2 * array, "h.0")("ln_1", x)
    array([2., 2.])
    """

    __slots__ = ("_prefix", "_probe")

    def __init__(self, probe: Probe | None, prefix: str = "") -> None:
        self._probe, self._prefix = probe, prefix

    def __bool__(self) -> bool:
        return self._probe is not None

    def __call__(self, name: str, array: Array) -> Array:
        """Give the activation back, or what the probe puts in its place."""
        if self._probe is None:
            return array
        path = f"{self._prefix}.{name}".strip(".")
        seen = array.view()
        seen.flags.writeable = False
        given = self._probe(path, seen)
        return array if given is None or given is seen else _replacement(path, given, array)


def _replacement(path: str, given: object, array: Array) -> Array:
    """Check what a probe returned, and give it in the activation's dtype."""
    try:
        new = np.asarray(given)
    except ValueError:  # lists of different lengths
        new = np.array(None)
    if new.dtype.kind not in "fiu":
        raise InputError(f"the probe returned no numbers for {path}: {shown(given)}")
    if new.shape != array.shape:
        raise InputError(
            f"the probe returned an array of shape {list(new.shape)} for {path}, "
            f"which has {list(array.shape)}"
        )
    return new.astype(array.dtype, copy=False)


def point_names(config: Config) -> list[str]:
    """List the names of a model's activations, in order of the flow.

    Examples
    --------
    >>> names = point_names(Config())
    >>> len(names), names[:3], names[-1]
    (184, ['wte', 'wpe', 'h.0.ln_1'], 'logits')
    """
    before = [name for name in POINTS if name.startswith("w")]
    blocks = [name for name in POINTS if name.startswith("h.")]
    within = [name.format(i=i) for i in range(config.n_layer) for name in blocks]
    return [*before, *within, "ln_f", "logits"]
