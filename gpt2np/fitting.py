"""From a checkpoint's tensors to GPT-2's parameters: names, layout, and what is left over."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from gpt2np.checkpoints import Checkpoint
from gpt2np.checkpoints.base import map_file, mapping, release, sealed
from gpt2np.config import Config
from gpt2np.configs import config_of_shapes
from gpt2np.errors import CheckpointError, escaped
from gpt2np.params import Array, Params
from gpt2np.schema import BUFFERS, check_shapes, openai_name

END = 1 << 16  # bytes
NOT_GPT2 = "no part of a GPT-2"


# Wrappers put these into names, wherever they wrap: torch.compile, FSDP, activation checkpointing.
WRAPPERS = re.compile(r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
BEGINS = re.compile(r"((?:.*?\.)?)(?:wte\.weight$|h\.\d+\.)")  # behind what stands in front of all
HEAD = re.compile(r"(?:^|\.)lm_head\.(?:decoder\.)?weight$")

# What other models than language models have in place of a head, and what some have beside it.
OTHER_MODELS = {
    "score": "a sequence classifier",
    "classifier": "a classifier of tokens",
    "qa_outputs": "a model that answers questions",
}
OTHER_HEADS = ("multiple_choice_head", "v_head", "value_head")


@dataclass(frozen=True)
class Fitted:
    """The parameters that a checkpoint's tensors became, and what was done to them."""

    params: Params
    dropped: dict[str, str] = field(default_factory=dict)  # name in the file -> why
    renamed: dict[str, str] = field(default_factory=dict)  # name in the file -> canonical name
    notes: tuple[str, ...] = ()  # what whoever loads it should know, a line each


@dataclass
class _Work:
    """The tensors under way, and the account of it."""

    arrays: dict[str, Array] = field(default_factory=dict)  # canonical name -> tensor
    dropped: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def fit(checkpoint: Checkpoint, config: Config | None, dtype: str, *, copy: bool = False) -> Fitted:
    """Give a checkpoint's tensors their canonical names, layout and dtype.

    Without a config, the sizes are read off the shapes. With `copy`, none stays in its file.
    """
    try:
        return _fit(checkpoint, config, dtype, copy)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.files[0]}: {error}") from None


def _fit(checkpoint: Checkpoint, config: Config | None, dtype: str, copy: bool) -> Fitted:
    work = _renamed(checkpoint)
    arrays = work.arrays
    linear = _transpose_linear(arrays)
    masked = any(name.endswith(BUFFERS) for name in work.dropped)
    _embed_with_head(work, config)
    if config is None:
        own_head = "lm_head.weight" in arrays and not _same(
            arrays["lm_head.weight"], arrays.get("wte.weight")
        )
        shapes = {name: array.shape for name, array in arrays.items()}
        config = config_of_shapes(checkpoint, shapes, own_head, linear, masked, work.notes)
    _add_biases(arrays)
    if checkpoint.format == "llm.c":
        _unpad(work, config.vocab_size)
    if config.tie_word_embeddings:
        config = _tied(work, config)
    # Params checks them as well, but only after gigabytes may have been converted in vain.
    check_shapes(config, {name: array.shape for name, array in arrays.items()})
    converted = {name: _laid_out(name, array, dtype) for name, array in arrays.items()}
    if copy:
        converted = {name: a.copy("K") if mapping(a) else a for name, a in converted.items()}
    converted = {name: sealed(array) for name, array in converted.items()}
    params = Params(config, converted, identity=_identity(checkpoint, config, dtype))
    return Fitted(params, work.dropped, work.renamed, tuple(work.notes))


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


def _renamed(checkpoint: Checkpoint) -> _Work:
    """Give the tensors their canonical names, and account for those that are no part of GPT-2."""
    work = _Work()
    names = _canonical_names(checkpoint.tensors)
    for raw, array in checkpoint.tensors.items():
        name = names[raw]
        if name is None:
            work.dropped[raw] = _why_dropped(raw, "lm_head.weight" in names.values())
        elif name.endswith(BUFFERS):
            work.dropped[raw] = "a mask, not learned"
        else:
            _check_new(work, checkpoint, raw, name)
            if name != raw:
                work.renamed[raw] = name
            # OpenAI's conv1d has a leading axis of 1.
            conv1d = raw.startswith("model/") and array.ndim == 3 and len(array) == 1
            work.arrays[name] = array[0] if conv1d else array
    others = [raw for raw, why in work.dropped.items() if why == NOT_GPT2]
    if others:
        more = f" and {len(others) - 1} more like it" if len(others) > 1 else ""
        work.notes.append(f"{escaped(others[0])}{more} is no part of a GPT-2: dropped")
    return work


def _canonical_names(raws: Iterable[str]) -> dict[str, str | None]:
    """Name in the file -> canonical name; None for what is no part of GPT-2, nor in its place."""
    plain = {raw: WRAPPERS.sub("", openai_name(raw)) for raw in raws}
    prefixes = dict.fromkeys(m[1] for name in plain.values() if (m := BEGINS.match(name)))
    if not prefixes:
        listed = ", ".join(map(escaped, [*plain][:3]))
        more = f" and {len(plain) - 3} more" if len(plain) > 3 else ""
        raise CheckpointError(f"these are not the tensors of a GPT-2: {listed or 'none'}{more}")
    if len(prefixes) > 1:
        both = " and ".join(f"{escaped(prefix)}wte" for prefix in [*prefixes][:2])
        raise CheckpointError(f"there are two models, {both}: save the one to use by itself")
    (prefix,) = prefixes
    names: dict[str, str | None] = {}
    for raw, name in plain.items():
        own = name.removeprefix(prefix)
        if HEAD.search(name):
            names[raw] = "lm_head.weight"
        elif name.startswith(prefix) and own.split(".")[0] not in (*OTHER_MODELS, *OTHER_HEADS):
            names[raw] = own
        else:
            names[raw] = None
    return names


def _why_dropped(raw: str, has_head: bool) -> str:
    """Why a tensor is dropped; an error if what there is is no language model."""
    parts = raw.split(".")
    kind = next((kind for part, kind in OTHER_MODELS.items() if part in parts), None)
    if kind and not has_head:
        raise CheckpointError(f"this is {kind} ({escaped(raw)}): it has no language-model head")
    return "another head" if kind or any(head in parts for head in OTHER_HEADS) else NOT_GPT2


def _check_new(work: _Work, checkpoint: Checkpoint, raw: str, name: str) -> None:
    """Refuse a tensor that is there twice, or holds no weights."""
    if name in work.arrays:
        raise CheckpointError(
            f"tensor {escaped(name)} is there twice, the second time as {escaped(raw)}"
        )
    if ".lora_A." in name or ".lora_B." in name:
        raise CheckpointError(
            f"tensor {escaped(raw)} is of an adapter that is not merged: save the model of peft's "
            "merge_and_unload(), or the adapter alone"
        )
    if checkpoint.tensors[raw].dtype.kind != "f":
        raise CheckpointError(f"tensor {escaped(raw)} holds {checkpoint.dtypes[raw]}, not weights")


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


def _unpad(work: _Work, vocab_size: int) -> None:
    """Cut off the rows that llm.c pads the vocabulary with."""
    wte = work.arrays["wte.weight"]
    if len(wte) > vocab_size:
        work.arrays["wte.weight"] = wte[:vocab_size]
        work.dropped["padding"] = f"rows of wte beyond {vocab_size}"


def _embed_with_head(work: _Work, config: Config | None) -> None:
    """Where a tied model's tensor stands under the head's name alone, give it wte's."""
    tied = config is None or config.tie_word_embeddings
    if tied and "wte.weight" not in work.arrays and "lm_head.weight" in work.arrays:
        work.arrays["wte.weight"] = work.arrays.pop("lm_head.weight")
        raw = next((raw for raw, name in work.renamed.items() if name == "lm_head.weight"), None)
        work.renamed[raw or "lm_head.weight"] = "wte.weight"


def _tied(work: _Work, config: Config) -> Config:
    """Drop a head that is wte again; another head is used, as in transformers."""
    head = work.arrays.get("lm_head.weight")
    if head is None:
        return config
    if not _same(head, work.arrays.get("wte.weight")):
        work.notes.append(
            "lm_head.weight has other values than wte.weight, though the config ties them: "
            "the model is loaded untied"
        )
        return replace(config, tie_word_embeddings=False)
    del work.arrays["lm_head.weight"]
    raw = next((raw for raw, name in work.renamed.items() if name == "lm_head.weight"), None)
    work.dropped[raw or "lm_head.weight"] = "wte again"
    return config


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
