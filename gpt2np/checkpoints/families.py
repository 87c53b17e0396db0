"""Models that are GPT-2 under other names: their tensors under Hugging Face's.

Flax's and GGUF's files differ in names alone. Others keep queries, keys and values apart, or lay
their matrices out in another way. A family is known by one name that all its models have; what
stands in front of it, such as a wrapper's "module.", stands in front of all.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gpt2np.checkpoints.base import Array, Checkpoint, quote
from gpt2np.config import PRESETS
from gpt2np.errors import CheckpointError

Arrays = dict[str, Array]
Names = dict[str, str]


class Family(NamedTuple):
    """Models whose tensors have the same names."""

    name: str
    mark: str  # a name that all have and that no other family has
    names: Names  # theirs -> Hugging Face's; {i} stands for the number of the block
    finish: Callable[[Arrays], dict[str, Any]] | None = None  # lays out; gives what it knows


# Hugging Face's name of a mask, which is not learned: the loader drops and lists it.
MASK = "h.{i}.attn.bias"
QUERY, KEY, VALUE = (f"h.{{i}}.attn.{part}" for part in ("query", "key", "value"))


def _both(names: Names, weight: str = "weight", bias: str = "bias") -> Names:
    """The names of weights and biases, from those of the layers that have both."""
    return {
        f"{theirs}.{a}": f"{ours}.{b}"
        for theirs, ours in names.items()
        for a, b in ((weight, "weight"), (bias, "bias"))
    }


GGUF = {"token_embd.weight": "wte.weight", "position_embd.weight": "wpe.weight"} | _both(
    {
        "blk.{i}.attn_norm":   "h.{i}.ln_1",
        "blk.{i}.attn_qkv":    "h.{i}.attn.c_attn",
        "blk.{i}.attn_output": "h.{i}.attn.c_proj",
        "blk.{i}.ffn_norm":    "h.{i}.ln_2",
        "blk.{i}.ffn_up":      "h.{i}.mlp.c_fc",
        "blk.{i}.ffn_down":    "h.{i}.mlp.c_proj",
        "output_norm":         "ln_f",
    }
) | {"output.weight": "lm_head.weight"}  # fmt: skip

FLAX = (
    {"wte/embedding": "wte.weight", "wpe/embedding": "wpe.weight", "lm_head/kernel": "head_in_out"}
    | {
        f"{layer}/{theirs}": f"{layer.replace('/', '.')}.{ours}"
        for layer in ("h/{i}/ln_1", "h/{i}/ln_2", "ln_f")
        for theirs, ours in (("scale", "weight"), ("bias", "bias"))
    }
    | {
        f"h/{{i}}/{layer}/{theirs}": f"h.{{i}}.{layer.replace('/', '.')}.{ours}"
        for layer in ("attn/c_attn", "attn/c_proj", "mlp/c_fc", "mlp/c_proj")
        for theirs, ours in (("kernel", "weight"), ("bias", "bias"))
    }
)

# https://github.com/rasbt/LLMs-from-scratch: GPTModel, from chapter 4 on.
FROM_SCRATCH = (
    {"tok_emb.weight": "wte.weight", "pos_emb.weight": "wpe.weight"}
    | {"out_head.weight": "lm_head.weight", "trf_blocks.{i}.att.mask": MASK}
    | _both(
        {
            "trf_blocks.{i}.att.W_query":   QUERY,
            "trf_blocks.{i}.att.W_key":     KEY,
            "trf_blocks.{i}.att.W_value":   VALUE,
            "trf_blocks.{i}.att.qkv":       "h.{i}.attn.c_attn",
            "trf_blocks.{i}.att.out_proj":  "h.{i}.attn.c_proj",
            "trf_blocks.{i}.att.proj":      "h.{i}.attn.c_proj",
            "trf_blocks.{i}.ff.layers.0":   "h.{i}.mlp.c_fc",
            "trf_blocks.{i}.ff.layers.2":   "h.{i}.mlp.c_proj",
            "trf_blocks.{i}.norm1":         "h.{i}.ln_1",
            "trf_blocks.{i}.norm2":         "h.{i}.ln_2",
            "final_norm":                   "ln_f",
        }
    )
    | _both(
        {
            "trf_blocks.{i}.norm1": "h.{i}.ln_1",
            "trf_blocks.{i}.norm2": "h.{i}.ln_2",
            "final_norm": "ln_f",
        },
        "scale",
        "shift",
    )
)  # fmt: skip

# https://github.com/karpathy/minGPT @ 4050db6, before it took over GPT-2's own names.
MIN_GPT = (
    {"tok_emb.weight": "wte.weight", "pos_emb": "wpe.weight", "head.weight": "lm_head.weight"}
    | {"blocks.{i}.attn.mask": MASK}
    | _both(
        {
            "blocks.{i}.ln1":        "h.{i}.ln_1",
            "blocks.{i}.ln2":        "h.{i}.ln_2",
            "blocks.{i}.attn.query": QUERY,
            "blocks.{i}.attn.key":   KEY,
            "blocks.{i}.attn.value": VALUE,
            "blocks.{i}.attn.proj":  "h.{i}.attn.c_proj",
            "blocks.{i}.mlp.0":      "h.{i}.mlp.c_fc",
            "blocks.{i}.mlp.2":      "h.{i}.mlp.c_proj",
            "ln_f":                  "ln_f",
        }
    )
)  # fmt: skip

# https://github.com/TransformerLensOrg/TransformerLens: HookedTransformer.
LENS = {
    "embed.W_E":             "wte.weight",
    "pos_embed.W_pos":       "wpe.weight",
    "blocks.{i}.ln1.w":      "h.{i}.ln_1.weight",
    "blocks.{i}.ln1.b":      "h.{i}.ln_1.bias",
    "blocks.{i}.attn.W_Q":   f"{QUERY}.weight",
    "blocks.{i}.attn.W_K":   f"{KEY}.weight",
    "blocks.{i}.attn.W_V":   f"{VALUE}.weight",
    "blocks.{i}.attn.W_O":   "h.{i}.attn.c_proj.weight",
    "blocks.{i}.attn.b_Q":   f"{QUERY}.bias",
    "blocks.{i}.attn.b_K":   f"{KEY}.bias",
    "blocks.{i}.attn.b_V":   f"{VALUE}.bias",
    "blocks.{i}.attn.b_O":   "h.{i}.attn.c_proj.bias",
    "blocks.{i}.attn.mask":  MASK,
    "blocks.{i}.attn.IGNORE": "h.{i}.attn.masked_bias",
    "blocks.{i}.ln2.w":      "h.{i}.ln_2.weight",
    "blocks.{i}.ln2.b":      "h.{i}.ln_2.bias",
    "blocks.{i}.mlp.W_in":   "h.{i}.mlp.c_fc.weight",
    "blocks.{i}.mlp.b_in":   "h.{i}.mlp.c_fc.bias",
    "blocks.{i}.mlp.W_out":  "h.{i}.mlp.c_proj.weight",
    "blocks.{i}.mlp.b_out":  "h.{i}.mlp.c_proj.bias",
    "ln_final.w":            "ln_f.weight",
    "ln_final.b":            "ln_f.bias",
    "unembed.W_U":           "head_in_out",
    "unembed.b_U":           "head_bias",
}  # fmt: skip


def _finish_flax(arrays: Arrays) -> dict[str, Any]:
    _turn_head(arrays)
    return {}


def _finish_scratch(arrays: Arrays) -> dict[str, Any]:
    head, wte = arrays.get("lm_head.weight"), arrays.get("wte.weight")
    if head is not None and wte is not None and head.shape[:1] != wte.shape[:1]:
        raise CheckpointError(
            f"this is a classifier into {len(head) if head.ndim else 0} classes, not a language "
            "model: its output is not as wide as the vocabulary"
        )
    _join_queries(arrays, axis=0)
    for i in _blocks(arrays):  # qkv_bias=False
        joined = arrays.get(f"h.{i}.attn.c_attn.weight")
        if joined is not None and joined.ndim == 2:
            zeros = np.zeros(len(joined), joined.dtype)
            arrays.setdefault(f"h.{i}.attn.c_attn.bias", zeros)
    return {"activation_function": "gelu_new"}


def _finish_min_gpt(arrays: Arrays) -> dict[str, Any]:
    _join_queries(arrays, axis=0)
    wpe = arrays.get("wpe.weight")
    if wpe is not None and wpe.ndim == 3 and len(wpe) == 1:
        arrays["wpe.weight"] = wpe[0]
    return {"activation_function": "gelu"}  # nn.GELU()


def _finish_lens(arrays: Arrays) -> dict[str, Any]:
    if "h.0.ln_1.weight" not in arrays:
        raise CheckpointError(
            "this is a model of TransformerLens whose LayerNorms are folded into its weights: "
            "save one of HookedTransformer.from_pretrained_no_processing"
        )
    bias = arrays.pop("head_bias", None)
    if bias is not None and bias.any():
        raise CheckpointError(
            "this model of TransformerLens has a bias in its head (unembed.b_U), which GPT-2 "
            "lacks: save one of HookedTransformer.from_pretrained_no_processing"
        )
    known: dict[str, Any] = {"activation_function": None}
    first = arrays.get("h.0.attn.query.weight")
    if first is not None and first.ndim == 3:
        known["n_head"] = first.shape[0]
        if first.shape[1] in {preset.n_embd for preset in PRESETS.values()}:
            known["activation_function"] = "gelu_new"  # others are trained with any of several
    for name, array in arrays.items():
        if name.endswith(("query.weight", "key.weight", "value.weight")) and array.ndim == 3:
            H, D, K = array.shape
            arrays[name] = np.moveaxis(array, 0, 1).reshape(D, H * K)
        elif name.endswith(("query.bias", "key.bias", "value.bias")):
            arrays[name] = array.reshape(array.size)  # [H, K]
        elif name.endswith("attn.c_proj.weight") and array.ndim == 3:
            H, K, D = array.shape
            arrays[name] = array.reshape(H * K, D)
    _join_queries(arrays, axis=1)
    _turn_head(arrays)
    return known


def _turn_head(arrays: Arrays) -> None:
    """The head as [V, D], where it is [D, V]."""
    head = arrays.pop("head_in_out", None)
    if head is not None:
        arrays["lm_head.weight"] = head.T


def _join_queries(arrays: Arrays, axis: int) -> None:
    """Put queries, keys and values side by side; a bias that is missing is zero."""
    for i in _blocks(arrays):
        parts = [f"{name.format(i=i)}.weight" for name in (QUERY, KEY, VALUE)]
        if not all(part in arrays and arrays[part].ndim == 2 for part in parts):
            continue
        weights = [arrays.pop(part) for part in parts]
        if len({weight.shape for weight in weights}) > 1:
            raise CheckpointError(f"the queries, keys and values of block {i} differ in shape")
        width = weights[0].shape[axis]
        zeros = np.zeros(width, weights[0].dtype)
        biases = [arrays.pop(f"{name.format(i=i)}.bias", zeros) for name in (QUERY, KEY, VALUE)]
        arrays[f"h.{i}.attn.c_attn.weight"] = np.concatenate(weights, axis)
        arrays[f"h.{i}.attn.c_attn.bias"] = np.concatenate(
            [bias.reshape(bias.size) for bias in biases]
        )


def _blocks(arrays: Arrays) -> list[str]:
    return list(dict.fromkeys(name.split(".")[1] for name in arrays if name.startswith("h.")))


FAMILIES = (
    Family("Flax", "wte/embedding", FLAX, _finish_flax),
    Family("GGUF", "token_embd.weight", GGUF),
    Family("LLMs from scratch", "trf_blocks.0.ff.layers.0.weight", FROM_SCRATCH, _finish_scratch),
    Family("TransformerLens", "embed.W_E", LENS, _finish_lens),
    Family("minGPT of 2020", "blocks.0.attn.query.weight", MIN_GPT, _finish_min_gpt),
)

_NUMBER = re.compile(r"(?<=[./])\d+(?=[./])")


def translated(checkpoint: Checkpoint) -> Checkpoint:
    """Give the tensors of another family Hugging Face's names and layout; others as they are."""
    for family in FAMILIES:
        for name in checkpoint.tensors:
            if name.endswith(family.mark):
                prefix = name.removesuffix(family.mark)
                if prefix[-1:] in ("", ".", "/"):
                    try:
                        return _translate(checkpoint, family, prefix)
                    except CheckpointError as error:
                        raise CheckpointError(f"{checkpoint.files[0]}: {error}") from None
    return checkpoint


def _translate(checkpoint: Checkpoint, family: Family, prefix: str) -> Checkpoint:
    arrays: Arrays = {}
    dtypes: dict[str, str] = {}
    for raw, array in checkpoint.tensors.items():
        # Flax's head stands beside the "transformer" that all else stands in.
        bare = raw.removeprefix(prefix).removeprefix(prefix.removesuffix("transformer/"))
        name = _translate_name(bare, family.names)
        if name in arrays:
            raise CheckpointError(f"tensor {quote(name)} is there twice, once as {quote(raw)}")
        arrays[name], dtypes[name] = array, checkpoint.dtypes[raw]
    known = family.finish(arrays) if family.finish else {}
    for array in arrays.values():
        array.flags.writeable = False
    stored = next(iter(checkpoint.dtypes.values()))
    return replace(
        checkpoint,
        tensors=arrays,
        dtypes={name: dtypes.get(name, stored) for name in arrays},
        family=family.name,
        config=known | dict(checkpoint.config),
    )


def _translate_name(name: str, names: Names) -> str:
    """Hugging Face's name of a tensor; one that the family does not have stays as it is."""
    number = _NUMBER.search(name)
    found = names.get(_NUMBER.sub("{i}", name, count=1))
    if found is None:
        return name
    return found.format(i=int(number[0])) if number else found
