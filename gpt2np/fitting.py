"""From a checkpoint's tensors to GPT-2's parameters: names, layout, and what is left over."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpt2np.checkpoints import Checkpoint
from gpt2np.checkpoints.base import map_file, release, sealed
from gpt2np.config import PRESETS, Config
from gpt2np.errors import CheckpointError, escaped
from gpt2np.params import Array, Params
from gpt2np.schema import BUFFERS, canonical_name, check_shapes

END = 1 << 16  # bytes


@dataclass(frozen=True)
class Fitted:
    """The parameters that a checkpoint's tensors became, and what was done to them."""

    params: Params
    dropped: dict[str, str] = field(default_factory=dict)  # name in the file -> why
    renamed: dict[str, str] = field(default_factory=dict)  # name in the file -> canonical name


def fit(checkpoint: Checkpoint, config: Config | None, dtype: str) -> Fitted:
    """Give a checkpoint's tensors their canonical names, layout and dtype.

    Without a config, the sizes are read off the shapes.
    """
    try:
        return _fit(checkpoint, config, dtype)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.files[0]}: {error}") from None


def _fit(checkpoint: Checkpoint, config: Config | None, dtype: str) -> Fitted:
    arrays, dropped, renamed = _rename(checkpoint)
    linear = _transpose_linear(arrays)
    config = config or _config_of_shapes(arrays, linear, bool(dropped), checkpoint.config)
    _add_biases(arrays)
    if checkpoint.format == "llm.c":
        _unpad(arrays, config.vocab_size, dropped)
    if config.tie_word_embeddings:
        _tie(arrays, dropped)
    # Params checks them as well, but only after gigabytes may have been converted in vain.
    check_shapes(config, {name: array.shape for name, array in arrays.items()})
    converted = {name: sealed(_laid_out(name, array, dtype)) for name, array in arrays.items()}
    params = Params(config, converted, identity=_identity(checkpoint, config, dtype))
    return Fitted(params, dropped, renamed)


def _identity(checkpoint: Checkpoint, config: Config, dtype: str) -> str:
    """Tell these weights from others, in words; the same whenever and wherever they are loaded.

    Of each file it takes the size and the ends, where the formats' headers and directories are.
    """
    mark, size = zlib.crc32(repr(config).encode()), 0
    for file in checkpoint.files:
        data = map_file(file)
        size += len(data)
        for end in (data[:END], data[-END:]):
            mark = zlib.crc32(end.tobytes(), mark)
    return f"{checkpoint.files[0].name}, {size:,} bytes, as {dtype}, {mark:08x}"


def _rename(checkpoint: Checkpoint) -> tuple[dict[str, Array], dict[str, str], dict[str, str]]:
    """Give the arrays by canonical name; what was dropped and why; and what had another name."""
    arrays: dict[str, Array] = {}
    dropped: dict[str, str] = {}
    renamed: dict[str, str] = {}
    for raw, array in checkpoint.tensors.items():
        name = canonical_name(raw)
        if name.endswith(BUFFERS):
            dropped[raw] = "a mask, not learned"
            continue
        if name in arrays:
            raise CheckpointError(
                f"tensor {escaped(name)} is there twice, the second time as {escaped(raw)}"
            )
        if array.dtype.kind != "f":
            raise CheckpointError(
                f"tensor {escaped(raw)} holds {checkpoint.dtypes[raw]}, not weights"
            )
        if name != raw:
            renamed[raw] = name
        # OpenAI's conv1d has a leading axis of 1.
        conv1d = raw.startswith("model/") and array.ndim == 3 and len(array) == 1
        arrays[name] = array[0] if conv1d else array
    return arrays, dropped, renamed


def _transpose_linear(arrays: dict[str, Array]) -> bool:
    """Turn the matrices of nn.Linear, [out, in], to [in, out]; say whether they were.

    c_attn tells which they are: c_proj is square, and no shape would ever show it.
    """
    first = arrays.get("h.0.attn.c_attn.weight")
    if first is None or first.ndim != 2 or first.shape[0] != 3 * first.shape[1]:
        return False
    for name, array in arrays.items():
        if name.startswith("h.") and array.ndim == 2:
            arrays[name] = array.T
    return True


def _add_biases(arrays: dict[str, Array]) -> None:
    """Where no tensor has a bias, as in nanoGPT with bias=False, give each one of zeros."""
    if any(name.endswith(".bias") for name in arrays):
        return
    arrays |= {
        name.removesuffix("weight") + "bias": np.zeros(array.shape[-1], array.dtype)
        for name, array in arrays.items()
        if name.startswith(("h.", "ln_f")) and array.ndim
    }


def _unpad(arrays: dict[str, Array], vocab_size: int, dropped: dict[str, str]) -> None:
    """Cut off the rows that llm.c pads the vocabulary with."""
    if arrays["wte.weight"].shape[0] > vocab_size:
        arrays["wte.weight"] = arrays["wte.weight"][:vocab_size]
        dropped["padding"] = f"rows of wte beyond {vocab_size}"


def _tie(arrays: dict[str, Array], dropped: dict[str, str]) -> None:
    """Drop a head that is wte again; refuse another, which would change every logit."""
    head = arrays.pop("lm_head.weight", None)
    if head is None:
        return
    if not _same(head, arrays.get("wte.weight")):
        raise CheckpointError(
            "the config ties the head to wte, but there is a lm_head.weight of other values; "
            "set tie_word_embeddings to false in config.json to use it"
        )
    dropped["lm_head.weight"] = "wte again"


def _same(a: Array, b: Array | None) -> bool:
    if b is None or a.shape != b.shape:
        return False
    same_memory = a.__array_interface__["data"] == b.__array_interface__["data"]
    return (same_memory and a.strides == b.strides) or np.array_equal(a, b)


def _laid_out(name: str, array: Array, dtype: str) -> Array:
    """Convert to the dtype, and lay out for speed; what needs neither stays mapped to its file.

    The MLP's second matrix is tall, [F, D]: BLAS reads it 1.6 times as fast column by column.
    """
    if not name.endswith(".mlp.c_proj.weight") or array.flags.f_contiguous:
        return np.asarray(array, dtype)
    copy = np.empty(array.shape, dtype, order="F")
    for start in range(0, len(array), 64):  # rows at a time that stay in the cache: twice as fast
        copy[start : start + 64] = array[start : start + 64]
    release(array)
    return copy


def _config_of_shapes(
    arrays: Mapping[str, Array], linear: bool, masks: bool, known: Mapping[str, Any]
) -> Config:
    """Read the sizes off the tensors where there is no config.json; `known` tells of the rest.

    Only the number of heads leaves no trace in the shapes, and only the four published widths
    make it known. Matrices as [out, in] with masks and a head of its own are minGPT's.
    """
    try:
        (V, D), (n_ctx, _) = arrays["wte.weight"].shape, arrays["wpe.weight"].shape
        F = arrays["h.0.mlp.c_fc.weight"].shape[1]
    except (KeyError, ValueError, IndexError):
        raise CheckpointError("these are not the tensors of a GPT-2") from None
    heads = known.get("n_head", {p.n_embd: p.n_head for p in PRESETS.values()}.get(D))
    activation = known.get("activation_function")
    untied = "lm_head.weight" in arrays and not _same(
        arrays["lm_head.weight"], arrays["wte.weight"]
    )
    told = activation is not None or "activation_function" not in known
    if heads is None or not told or (linear and not activation and not (masks and untied)):
        what = "how many heads there are" if heads is None else "which GELU the model has"
        raise CheckpointError(f"the file does not say {what}: put its config.json beside it")
    layers = {name.split(".")[1] for name in arrays if name.startswith("h.")}
    return Config(
        vocab_size=V,
        n_ctx=n_ctx,
        n_embd=D,
        n_head=heads,
        n_layer=len(layers),
        n_inner=F,
        activation_function=activation or "gelu_new",
        tie_word_embeddings=not untied,
    )
