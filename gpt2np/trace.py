"""Named activations: what a forward pass computes on its way, shown under Hugging Face's names.

A probe is any function (name, array) -> array or None, called at every point of `POINTS`, block
after block, in order of the flow. What it returns takes the activation's place: that is how to
ablate, patch or steer. `Trace` is the probe that records. A `Tap` stands in the flow at every
point, and calls the probe if there is one.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterable
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
    "wpe":                  "B T D",
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
    return [
        *before,
        *(name.format(i=i) for i in range(config.n_layer) for name in blocks),
        "ln_f",
        "logits",
    ]


class Trace(dict[str, Array]):
    """A dict of name -> activation that fills as it is passed to a forward pass as ``probe=``.

    Parameters
    ----------
    patterns : str or iterable of str, optional
        Which activations to record, as globs: ``"h.*.attn.pattern"``, ``["h.3.*", "ln_f"]``.
        All unless given.
    copy : bool
        Keep copies. Without, the live arrays are kept, which costs nothing; they are views in
        part, but nothing changes them later.

    Notes
    -----
    Of several forward passes, as in `generate`, each name keeps what the last one gave it.

    Examples
    --------
    >>> import gpt2np
    >>> trace = Trace("h.*.attn.pattern")
    >>> _ = gpt2np.forward(gpt2np.load().params, [[5962, 22307, 25]], probe=trace)
    >>> sorted(trace)[0], trace["h.0.attn.pattern"].shape
    ('h.0.attn.pattern', (1, 4, 3, 3))
    >>> print(trace)                                         # doctest: +ELLIPSIS
    h.0.attn.pattern  [1, 4, 3, 3]  float32  144 bytes
    ...
    4 activations, 576 bytes
    """

    def __init__(self, patterns: str | Iterable[str] | None = None, *, copy: bool = True) -> None:
        super().__init__()
        globs = ["*"] if patterns is None else [patterns] if isinstance(patterns, str) else patterns
        self._wanted = [re.compile(fnmatch.translate(glob)) for glob in globs]
        self._copy = copy

    def __call__(self, name: str, array: Array) -> None:
        """Record an activation, if its name is wanted."""
        if any(glob.match(name) for glob in self._wanted):
            self[name] = array.copy() if self._copy else array

    @property
    def nbytes(self) -> int:
        """The bytes of all activations together."""
        return sum(array.nbytes for array in self.values())

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        lines = [
            f"{name:<{width}}  {list(array.shape)}  {array.dtype}  {array.nbytes:,} bytes"
            for name, array in self.items()
        ]
        return "\n".join([*lines, f"{len(self)} activations, {self.nbytes:,} bytes"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the activations to a ``.npz`` or ``.safetensors`` file, or a folder of ``.npy``.

        A name without an ending is a folder's.

        Raises
        ------
        InputError
            The name ends otherwise.
        """
        from gpt2np.dumps import save

        save(path, self)
