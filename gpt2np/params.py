"""The weights of a model: arrays by canonical name, and the same arrays as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from gpt2np.config import Config
from gpt2np.errors import CheckpointError, InputError, no_tensor, shown
from gpt2np.notebook import Shown
from gpt2np.schema import check_shapes, tensors

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Ids: TypeAlias = npt.NDArray[np.intp]  # of tokens, or of positions

Self_ = TypeVar("Self_")


def as_params(given: object) -> Params:
    """Give back the weights, or say what to write instead of what was given for them."""
    if isinstance(given, Params):
        return given
    if isinstance(getattr(given, "params", None), Params):
        raise InputError("the weights are wanted, not the model: give model.params")
    raise InputError(f"give a model's weights, model.params, not {shown(given)}")


class Affine(NamedTuple):
    """A gain or matrix and what is added after it: LayerNorm's [D], [D]; a linear map's
    [in, out], [out]."""

    weight: Array
    bias: Array

    def __repr__(self) -> str:
        return f"Affine({list(self.weight.shape)}, {list(self.bias.shape)})"


class Attention(NamedTuple):
    c_attn: Affine  # D -> 3D: queries, keys and values side by side
    c_proj: Affine  # D -> D


class MLP(NamedTuple):
    c_fc: Affine  # D -> F
    c_proj: Affine  # F -> D


class Block(NamedTuple):
    ln_1: Affine
    attn: Attention
    ln_2: Affine
    mlp: MLP


class Immutable:
    """Sets each attribute once; copies are the thing itself, and nothing else is equal to it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self) or hasattr(type(self), name):
            raise AttributeError(f"a {type(self).__name__} never changes: {name} cannot be set")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} never changes: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __copy__(self: Self_) -> Self_:
        return self

    def __deepcopy__(self: Self_, memo: object) -> Self_:
        return self


class Params(Immutable, Mapping[str, Array], Shown):
    """The weights of a GPT-2, checked against its config: a read-only mapping, name -> array.

    The forward pass reads the same arrays by attribute: ``wte`` [V, D], ``wpe`` [n_ctx, D],
    ``blocks`` (L of them), ``ln_f``, ``lm_head`` [V, D] (``wte`` itself where the head is tied).

    Parameters
    ----------
    config : Config
    arrays : mapping of str to array
        Every tensor of the model under its canonical name, all float32 or all float64. They are
        not copied: Params holds read-only views of them, so whoever keeps a writable array must
        leave it as it is.
    identity : str, optional
        What tells these weights from others, in words; a `KVCache` holds it. It survives
        pickling. Weights put together by hand get one that is never given twice.

    Raises
    ------
    CheckpointError
        A tensor is missing, unexpected, or of the wrong shape or dtype.

    Examples
    --------
    >>> from gpt2np.config import Config
    >>> params = Params.random(Config(vocab_size=10, n_ctx=8, n_embd=4, n_head=2, n_layer=1))
    >>> params["h.0.attn.c_attn.weight"].shape, params.n_params
    ((4, 12), 324)
    >>> params.blocks[0].attn.c_attn.weight is params["h.0.attn.c_attn.weight"]
    True
    """

    def __init__(
        self, config: Config, arrays: Mapping[str, Array], *, identity: str | None = None
    ) -> None:
        check_shapes(config, {name: array.shape for name, array in arrays.items()})
        dtypes = {array.dtype for array in arrays.values()}
        if dtypes not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
            found = ", ".join(sorted(map(str, dtypes)))
            raise CheckpointError(f"weights are {found}: make all float32 or all float64")
        self.config = config
        self.identity = identity or f"weights made by hand, {uuid4().hex[:12]}"
        self._arrays = {name: read_only(array) for name, array in arrays.items()}
        self.dtype = dtypes.pop()
        self.wte = self["wte.weight"]
        self.wpe = self["wpe.weight"]
        self.blocks = tuple(self._block(i) for i in range(config.n_layer))
        self.ln_f = self._affine("ln_f")
        self.lm_head = self.wte if config.tie_word_embeddings else self["lm_head.weight"]

    def _affine(self, name: str) -> Affine:
        return Affine(self[f"{name}.weight"], self[f"{name}.bias"])

    def _block(self, i: int) -> Block:
        return Block(
            self._affine(f"h.{i}.ln_1"),
            Attention(self._affine(f"h.{i}.attn.c_attn"), self._affine(f"h.{i}.attn.c_proj")),
            self._affine(f"h.{i}.ln_2"),
            MLP(self._affine(f"h.{i}.mlp.c_fc"), self._affine(f"h.{i}.mlp.c_proj")),
        )

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            raise KeyError(no_tensor(name, self))
        return self._arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Params, identity=self.identity), (self.config, self._arrays)

    def __repr__(self) -> str:
        return f"Params({self.n_params:,} {self.dtype} in {len(self)} tensors)"

    @property
    def n_params(self) -> int:
        """The number of parameters, a tied head counted once."""
        return sum(array.size for array in self.values())

    @classmethod
    def random(cls, config: Config, seed: int = 0, dtype: npt.DTypeLike = np.float32) -> Params:
        """Draw weights that any implementation can draw again, and that make every one matter.

        The generator is ``numpy.random.RandomState(seed)``, whose stream is frozen. Tensors are
        drawn in the order of the table: ``standard_normal(shape)`` in float64, times 0.02 for
        matrices and 0.1 for the rest, plus 1 for LayerNorm gains, rounded to float32.

        Parameters
        ----------
        config : Config
        seed : int
        dtype : float32 or float64
            The float64 weights are the float32 ones, widened.
        """
        generator = np.random.RandomState(seed)
        arrays = {}
        for name, shape, _ in tensors(config):
            draw = generator.standard_normal(shape)
            draw *= 0.02 if len(shape) == 2 else 0.1
            if len(shape) == 1 and name.endswith(".weight"):
                draw += 1.0
            arrays[name] = draw.astype(np.float32).astype(dtype, copy=False)
        return cls(config, arrays, identity=f"Params.random({config}, {seed}, {np.dtype(dtype)})")


def read_only(array: Array) -> Array:
    """Give an array that cannot be written to: itself, or a view."""
    if not array.flags.writeable:
        return array
    view: Array = array.view()
    view.flags.writeable = False
    return view
