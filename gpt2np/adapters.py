"""LoRA adapters, merged into their base as peft's merge_and_unload does.

https://github.com/huggingface/peft: an adapter's folder has adapter_config.json and, of each module
that it changes, A [r, in] and B [out, r]: the module's matrix becomes W + (B A) alpha / r.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpt2np.checkpoints import Checkpoint, open_checkpoint
from gpt2np.checkpoints.base import read_json, sealed
from gpt2np.config import Config
from gpt2np.errors import CheckpointError, escaped, shown
from gpt2np.params import Array, Params

SETTINGS = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")

# What changes what an adapter computes, beside what is computed here.
REFUSED = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "layer_replication",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "target_parameters",
    "velora_config",
    "monteclora_config",
    "arrow_config",
    "kasa_config",
    "megatron_config",
)
# How A and B began, where that left the base as it was.
BEGINNINGS = (True, False, None, "gaussian", "eva", "orthogonal")

PART = re.compile(
    r"(?:base_model\.model\.)?(?:transformer\.)?(?P<module>.+?)"
    r"(?:\.modules_to_save(?:\.default)?)?\.(?P<part>base_layer\.(?:weight|bias)"
    r"|lora_(?:embedding_)?[AB](?:\.default)?(?:\.weight|\.bias)?|weight|bias)"
)


class Matrices(NamedTuple):
    """What an adapter adds to one module."""

    A: Array  # [r, in]; of an embedding [r, V]
    B: Array  # [out, r]; of an embedding [D, r]
    bias: Array | None


def adapter_folder(path: Path) -> Path | None:
    """The folder of the adapter that a path leads to, if it does."""
    if path.name in WEIGHTS:
        path = path.parent
    return path if (path / SETTINGS).is_file() else None


def base_of(folder: Path) -> str | None:
    """The name of an adapter's base; None if it lies beside the adapter."""
    settings = read_json(folder / SETTINGS)
    _check(folder, settings)
    if (folder / "config.json").is_file():
        others = [file for file in folder.iterdir() if file.name not in WEIGHTS]
        if any(file.suffix in (".safetensors", ".bin") for file in others):
            return None
    base = settings.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise CheckpointError(f"{folder / SETTINGS} does not say what the adapter's base is")
    revision = settings.get("revision")
    return f"{base}@{revision}" if revision and not Path(base).exists() else base


def _check(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse by name what is not computed."""
    kind = settings.get("peft_type")
    if kind != "LORA":
        raise CheckpointError(f"{folder} is an adapter of the kind {shown(kind)}: LORA's are read")
    for name in REFUSED:
        if settings.get(name):
            raise CheckpointError(
                f"{folder} is an adapter with {name}, which gpt2np does not compute: "
                "save the model of peft's merge_and_unload()"
            )
    if settings.get("init_lora_weights") not in BEGINNINGS:
        raise CheckpointError(
            f"{folder} is an adapter that began as {shown(settings['init_lora_weights'])}, which "
            "changes the base too: save the model of peft's merge_and_unload()"
        )


def merge(folder: Path, base: Params) -> tuple[Params, Checkpoint]:
    """Give the base's weights with an adapter's merged into them, and the adapter's checkpoint."""
    settings = read_json(folder / SETTINGS)
    _check(folder, settings)
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise CheckpointError(f"{folder} has an {SETTINGS}, but no {' or '.join(WEIGHTS)}")
    checkpoint = open_checkpoint(file)
    try:
        config, arrays = _merged(checkpoint, settings, base)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from None
    mark = zlib.crc32(b"".join(array.tobytes() for array in checkpoint.tensors.values()))
    identity = f"{base.identity}, with the adapter {file.parent.name}, {mark:08x}"
    return Params(config, arrays, identity=identity), checkpoint


def _merged(
    checkpoint: Checkpoint, settings: Mapping[str, Any], base: Params
) -> tuple[Config, dict[str, Array]]:
    """Give the config and the tensors; where the adapter has a head or wte of its own, untied."""
    modules: dict[str, dict[str, Array]] = {}
    for raw, array in checkpoint.tensors.items():
        match = PART.fullmatch(raw)
        if match is None or array.dtype.kind != "f":
            raise CheckpointError(f"tensor {escaped(raw)} is no part of a LoRA adapter of GPT-2")
        modules.setdefault(match["module"], {})[match["part"].replace(".default", "")] = array
    config, arrays = base.config, dict(base)
    if config.tie_word_embeddings and any(
        "weight" in modules.get(n, ()) for n in ("wte", "lm_head")
    ):
        config = replace(config, tie_word_embeddings=False)
        arrays["lm_head.weight"] = arrays["wte.weight"]
    for module, parts in modules.items():
        for kind in ("weight", "bias"):
            for part in (f"base_layer.{kind}", kind):  # trained as it is, or saved once more
                if part in parts:
                    name = _stored(arrays, f"{module}.{kind}", parts[part].shape)
                    arrays[name] = _like(arrays[name], parts.pop(part))
        if parts:
            _add(arrays, module, _matrices(module, parts), settings)
    return config, {name: sealed(array) for name, array in arrays.items()}


def _matrices(module: str, parts: Mapping[str, Array]) -> Matrices:
    """A and B, which a linear module and an embedding call by different names."""
    stem, end = ("lora_embedding_", "") if "lora_embedding_A" in parts else ("lora_", ".weight")
    names = [f"{stem}A{end}", f"{stem}B{end}"]
    if not {*names} <= {*parts} <= {*names, "lora_B.bias"}:
        listed = ", ".join(map(escaped, parts))
        raise CheckpointError(f"{escaped(module)} has {listed}: an adapter has A and B")
    A, B = (parts[name] for name in names)
    if A.ndim != 2 or B.ndim != 2 or A.shape[0] != B.shape[1]:
        raise CheckpointError(f"{escaped(module)}: A {A.shape} and B {B.shape} do not fit together")
    return Matrices(A, B, parts.get("lora_B.bias"))


def _add(
    arrays: dict[str, Array], module: str, given: Matrices, settings: Mapping[str, Any]
) -> None:
    """Add B A, scaled, to a module: as [in, out] to a block's, as [out, in] to the head.

    That is decided by what the module is. (peft's fan_in_fan_out says the same, if it is right.)
    """
    shape = given.B.shape[0], given.A.shape[1]
    shape = shape if module == "lm_head" else shape[::-1]
    name = _stored(arrays, f"{module}.weight", shape)
    old = arrays[name]
    scaling = old.dtype.type(_scaling(settings, module, len(given.A)))
    A, B = given.A.astype(old.dtype), given.B.astype(old.dtype)
    with np.errstate(all="ignore"):  # Accelerate raises flags that mean nothing
        product = B @ A if module == "lm_head" else A.T @ B.T
    arrays[name] = _like(old, old + product * scaling)
    if given.bias is not None:
        name = _stored(arrays, f"{module}.bias", given.bias.shape)
        arrays[name] = arrays[name] + given.bias.astype(old.dtype) * scaling


def _like(old: Array, new: Array) -> Array:
    """The new numbers in the old ones' dtype and layout."""
    result = np.empty_like(old)
    result[...] = new
    return result


def _stored(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> str:
    """The name under which a tensor of this shape stands: a tied head is wte itself."""
    if name == "lm_head.weight" and name not in arrays:
        name = "wte.weight"
    if name not in arrays:
        raise CheckpointError(f"{escaped(name)} is no part of the base")
    if arrays[name].shape != shape:
        raise CheckpointError(
            f"it makes {name} {list(shape)}, which in the base is {list(arrays[name].shape)}"
        )
    return name


def _scaling(settings: Mapping[str, Any], module: str, rank: int) -> float:
    """alpha / r, or alpha over its root: those of the module, if a pattern names it."""
    key = module if module == "lm_head" else f"transformer.{module}"
    r = _by_pattern(settings, "rank_pattern", key, "r")
    alpha = _by_pattern(settings, "alpha_pattern", key, "lora_alpha")
    if r != rank:
        raise CheckpointError(f"{module} has rank {rank}, but {SETTINGS} says {shown(r)}")
    return alpha / (math.sqrt(r) if settings.get("use_rslora") else r)


def _by_pattern(settings: Mapping[str, Any], patterns: str, key: str, usual: str) -> float:
    """What the first pattern says that the end of a module's name fits; else the usual."""
    value = settings.get(usual, 8)
    found = settings.get(patterns) or {}
    if not isinstance(found, dict):
        raise CheckpointError(f"{SETTINGS}: {patterns} is {shown(found)}")
    # For its time limit: a pattern is as untrusted as the rest of the file.
    import regex  # only patterns need it

    for pattern, special in found.items():
        try:
            fits = regex.match(rf"(.*\.)?({pattern})$", key, timeout=0.5)
        except (regex.error, TimeoutError):
            raise CheckpointError(f"{SETTINGS}: {patterns} has {shown(pattern)}") from None
        if fits:
            value = special
            break
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise CheckpointError(f"{SETTINGS}: {usual} is {shown(value)}, not a positive number")
    return value
