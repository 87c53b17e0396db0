"""The probe that records: activations by name, as many as patterns ask for."""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from collections.abc import Iterable

from gpt2np.errors import InputError, shown
from gpt2np.notebook import Shown
from gpt2np.params import Array
from gpt2np.trace import POINTS

# Others' names and ours: of Hugging Face's modules, and of TransformerLens' hooks. Its
# hook_normalized is before or after LayerNorm's gain and bias, by version and settings, and its
# hook_resid_pre of block i is our h.{i-1}: both are left out.
OTHERS = {
    "hidden_states":                    "h.*",
    "attentions":                       "h.*.attn.pattern",
    "h.{i}.attn":                       "h.{i}.attn.c_proj",
    "h.{i}.mlp":                        "h.{i}.mlp.c_proj",
    "h.{i}.attn.attn_dropout":          "h.{i}.attn.pattern",
    "h.{i}.attn.resid_dropout":         "h.{i}.attn.c_proj",
    "h.{i}.mlp.dropout":                "h.{i}.mlp.c_proj",
    "lm_head":                          "logits",
    "hook_embed":                       "wte",
    "hook_pos_embed":                   "wpe",
    "blocks.{i}.attn.hook_q":           "h.{i}.attn.q",
    "blocks.{i}.attn.hook_k":           "h.{i}.attn.k",
    "blocks.{i}.attn.hook_v":           "h.{i}.attn.v",
    "blocks.{i}.attn.hook_attn_scores": "h.{i}.attn.scores",
    "blocks.{i}.attn.hook_pattern":     "h.{i}.attn.pattern",
    "blocks.{i}.attn.hook_z":           "h.{i}.attn.z",
    "blocks.{i}.hook_attn_out":         "h.{i}.attn.c_proj",
    "blocks.{i}.hook_resid_mid":        "h.{i}.resid_mid",
    "blocks.{i}.mlp.hook_pre":          "h.{i}.mlp.c_fc",
    "blocks.{i}.mlp.hook_post":         "h.{i}.mlp.act",
    "blocks.{i}.hook_mlp_out":          "h.{i}.mlp.c_proj",
    "blocks.{i}.hook_resid_post":       "h.{i}",
    "unembed.hook_out":                 "logits",
}  # fmt: skip


class Trace(dict[str, Array], Shown):
    """A dict of name -> activation that fills as it is passed to a forward pass as ``probe=``.

    Parameters
    ----------
    patterns : str or iterable of str, optional
        Which activations to record, as globs: ``"h.*.attn.pattern"``, ``["h.3.*", "ln_f"]``.
        All unless given.
    copy : bool
        Keep copies. Without, the live arrays are kept, which costs nothing; they are views in
        part, but nothing changes them later.

    Raises
    ------
    InputError
        A pattern that no activation's name can match; or, as soon as a pass is through, one that
        matches none of this model.

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
        if patterns is not None and not isinstance(patterns, Iterable):
            raise InputError(f"patterns are texts like 'h.*.attn.pattern', not {shown(patterns)}")
        globs = ["*"] if patterns is None else [patterns] if isinstance(patterns, str) else patterns
        self._wanted = {glob: _compiled(glob) for glob in globs}
        self._unmatched = set(self._wanted)
        self._copy = copy
        self._block = ""  # the last that was seen

    def __call__(self, name: str, array: Array) -> None:
        """Record an activation, if its name is wanted."""
        matching = [glob for glob, pattern in self._wanted.items() if pattern.match(name)]
        if matching:
            self[name] = array.copy() if self._copy else array
            self._unmatched.difference_update(matching)
        if name.startswith("h."):
            self._block = ".".join(name.split(".")[:2])
        if name == "logits" and self._unmatched:  # the last of a pass
            raise InputError(
                f"{min(self._unmatched)!r} matches no activation of this model, "
                f"whose last block is {self._block}"
            )

    @property
    def nbytes(self) -> int:
        """The bytes of all activations together."""
        return sum(array.nbytes for array in self.values())

    def __missing__(self, name: object) -> Array:
        near = difflib.get_close_matches(str(name), self, 1)
        hint = f": did you mean {near[0]}?" if near else f", but {len(self)} others were"
        raise KeyError(f"{shown(name)} was not recorded{hint}")

    def __repr__(self) -> str:
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


def _compiled(glob: str) -> re.Pattern[str]:
    """Compile a glob, if there can be a name that it matches."""
    if not isinstance(glob, str):
        raise InputError(f"a pattern is a text like 'h.*.attn.pattern', not {shown(glob)}")
    pattern = re.compile(fnmatch.translate(glob))
    if not any(pattern.match(name) for name in _names(glob, POINTS)):
        raise InputError(f"{shown(glob)} matches no activation{_like(glob)}")
    return pattern


def _names(glob: str, kinds: Iterable[str]) -> list[str]:
    """Names of some kinds, in blocks 0 to 99 and those that a glob speaks of."""
    blocks = {*range(100), *map(int, re.findall(r"\d{1,9}", glob))}
    names = [kind.format(i=i) for kind in kinds if "{i}" in kind for i in blocks]
    return [*names, *(kind for kind in kinds if "{i}" not in kind)]


def _like(glob: str) -> str:
    """What to write instead."""
    plain = glob.removeprefix("transformer.")
    block = r"(?<=^h\.)[^.]+"
    number = next(iter(re.findall(r"\.([^.]+)", plain)), "0")
    theirs = {name.format(i=number): ours.format(i=number) for name, ours in OTHERS.items()}
    if plain in theirs or plain in _names(glob, POINTS):
        here = theirs.get(plain, plain)
        each = ["h.0", "h.1", "h.2"]  # "h.*" takes in all that is within the blocks
        return f": here it is called {f'as in {each}' if here == 'h.*' else repr(here)}"
    names = [kind.format(i=0) for kind in POINTS]
    near = difflib.get_close_matches(re.sub(block, "0", plain), names, 3, 0.4)
    if not near:
        return f"; there are {', '.join(POINTS)}"
    return f"; near it are {', '.join(re.sub(block, number, name) for name in near)}"
