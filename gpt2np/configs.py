"""What a model's hyperparameters are: told by its files, or read off its tensors' shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpt2np.checkpoints import Checkpoint
from gpt2np.checkpoints.base import read_json
from gpt2np.config import PRESETS, Config
from gpt2np.errors import CheckpointError

CONFIG_FILES = ("config.json", "hparams.json")  # Hugging Face's and OpenAI's

# What leaves no trace in the shapes of the tensors.
UNSHAPED = (
    "n_head",
    "activation_function",
    "layer_norm_epsilon",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "reorder_and_upcast_attn",
)

LAYERS = ("n_layer", "num_hidden_layers", "num_layers")

# What those who write their own training loop call the number of heads, and the activation.
NAMES = {
    "n_head": ("n_head", "num_attention_heads", "num_heads", "n_heads"),
    "activation_function": ("activation_function", "activation", "hidden_act"),
} | {name: (name,) for name in UNSHAPED[2:]}


def says_all(checkpoint: Checkpoint) -> bool:
    """Whether the file needs no config.json, as a GGUF and gpt2np's own .npz do not."""
    return "n_layer" in checkpoint.config or checkpoint.format == "gguf"


def find_config(checkpoint: Checkpoint, folder: Path) -> Config | None:
    """Give a checkpoint's config: in the file itself, else in the folder; else None."""
    if says_all(checkpoint):
        return Config.from_dict(checkpoint.config)
    metadata = checkpoint.metadata
    if isinstance(metadata.get("model_args"), Mapping):
        return _nano_gpt_config(metadata["model_args"])
    if checkpoint.format == "llm.c":
        return Config(
            vocab_size=metadata["vocab_size"],
            n_ctx=metadata["max_seq_len"],
            n_embd=metadata["channels"],
            n_head=metadata["num_heads"],
            n_layer=metadata["num_layers"],
        )
    for file in (folder / name for name in CONFIG_FILES):
        if file.is_file():
            values = read_json(file)
            try:
                return Config.from_dict({**checkpoint.config, **values})
            except CheckpointError as error:
                raise CheckpointError(f"{file}: {error}") from None
    return None


def _nano_gpt_config(arguments: Mapping[str, Any]) -> Config:
    """nanoGPT's model_args: it trains with the exact GELU, and ties the head."""
    values = {**arguments, "n_ctx": arguments.get("block_size"), "activation_function": "gelu"}
    return Config.from_dict(values)


def config_of_shapes(
    checkpoint: Checkpoint,
    shapes: Mapping[str, tuple[int, ...]],
    own_head: bool,
    linear: bool,
    masks: bool,
    notes: list[str],
) -> Config:
    """Read the sizes off the tensors where there is no config.json.

    The number of heads leaves no trace in the shapes, but the published widths make it known, or a
    configuration that lies in the pickle. Matrices as [out, in] with masks and a head of its own
    are minGPT's. What is assumed is noted.
    """
    try:
        (V, D), (n_ctx, _) = shapes["wte.weight"], shapes["wpe.weight"]
        F = shapes["h.0.mlp.c_fc.weight"][1]
    except (KeyError, ValueError, IndexError):
        raise CheckpointError(
            "the sizes cannot be read off the tensors: put the model's config.json beside them"
        ) from None
    known: dict[str, Any] = {"n_head": {p.n_embd: p.n_head for p in PRESETS.values()}.get(D)}
    if not linear or (masks and own_head):
        known["activation_function"] = "gelu_new"
    known |= _pickled(checkpoint.metadata, notes) | dict(checkpoint.config)
    for name, what in (
        ("n_head", "how many heads there are"),
        ("activation_function", "which GELU the model has"),
    ):
        if known.get(name) is None:
            raise CheckpointError(f"the file does not say {what}: put its config.json beside it")
    unshaped: dict[str, Any] = {name: known[name] for name in UNSHAPED if name in known}
    return Config(
        **unshaped,
        vocab_size=V,
        n_ctx=n_ctx,
        n_embd=D,
        n_layer=len({name.split(".")[1] for name in shapes if name.startswith("h.")}),
        n_inner=F,
        tie_word_embeddings=not own_head,
    )


def _pickled(metadata: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """What a configuration beside the tensors says that the shapes do not.

    Which GELU goes without saying in the code that trains: nanoGPT's, whose configuration has bias
    and dropout, takes the exact one; minGPT's and that of Karpathy's lecture take the tanh form.
    """
    known: dict[str, Any] = {}
    for values in _configurations(metadata):
        for name, aliases in NAMES.items():
            value = next((values[alias] for alias in aliases if alias in values), None)
            if value is not None and known.setdefault(name, value) != value:
                raise CheckpointError(
                    f"its configurations differ: {name} is {known[name]}, {value}"
                )
        if "block_size" in values and "activation_function" not in known:
            exact = values.keys() >= {"bias", "dropout"}
            known["activation_function"] = "gelu" if exact else "gelu_new"
            form = "the exact GELU, as nanoGPT has" if exact else "GELU's tanh form"
            notes.append(f"the file does not say which GELU the model has: it is taken for {form}")
    return known


def _configurations(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The dictionaries that have a GPT's sizes, at the top or below a name."""
    for value in metadata.values():
        for inner in (value, *(value.values() if isinstance(value, dict) else ())):
            if isinstance(inner, dict) and {"n_layer", "num_hidden_layers", "num_layers"} & {
                *inner
            }:
                yield inner
