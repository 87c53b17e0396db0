"""A model that fits on a screen, in the layouts in which GPT-2's weights come."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from gpt2np.checkpoints import llmc
from gpt2np.config import Config
from gpt2np.files import replacing, write_text
from gpt2np.loading import Model
from gpt2np.params import Params
from gpt2np.saving import save
from gpt2np.schema import tensors

CONFIG = Config(vocab_size=20, n_ctx=16, n_embd=8, n_head=2, n_layer=2)
IDS = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8)


def tiny_model(dtype: str = "float32") -> Model:
    """Draw a model of 2,048 random weights, in which each part makes a difference.

    The matrices are those of `Params.random` times 16, so that attention is as uneven and the
    MLP as bent as in a trained model.

    Examples
    --------
    >>> tiny_model()
    Model(made by hand: Params(2,048 float32 in 28 tensors))
    """
    drawn = Params.random(CONFIG, dtype=dtype)
    return Model(Params(CONFIG, {k: a * 16 if a.ndim == 2 else a for k, a in drawn.items()}))


def write_weights(
    model: Model, folder: str | os.PathLike[str], *, overwrite: bool = False
) -> list[Path]:
    """Write a model's weights in three layouts.

    Returns
    -------
    list of Path
        ``huggingface/``: config.json and model.safetensors, matrices as [in, out].
        ``openai/``: hparams.json and model.npz, with the names and shapes of OpenAI's TensorFlow
        checkpoints: matrices as [1, in, out].
        ``llm.c/model.bin``: version 3, float32, matrices as [out, in], the vocabulary padded to
        a multiple of 128.
    """
    folder = Path(folder)
    huggingface = save(model, folder / "huggingface", overwrite=overwrite)
    openai, c = folder / "openai", folder / "llm.c" / "model.bin"
    openai.mkdir(parents=True, exist_ok=True)
    c.parent.mkdir(exist_ok=True)
    _write_openai(model, openai)
    with replacing(c) as file:
        file.write(_llmc_bytes(model))
    return [huggingface, openai, c]


def _write_openai(model: Model, folder: Path) -> None:
    arrays: dict[str, Any] = {}
    for name, _, row in tensors(model.config):
        block = name.split(".")[1] if name.startswith("h.") else ""
        array = model.params[name].astype(np.float32)
        is_matrix = array.ndim == 2 and bool(block)
        arrays[row.openai.format(i=block)] = array[None] if is_matrix else array
    config = model.config
    hparams = {
        "n_vocab": config.vocab_size,
        "n_ctx": config.n_ctx,
        "n_embd": config.n_embd,
        "n_head": config.n_head,
        "n_layer": config.n_layer,
    }
    with replacing(folder / "model.npz") as file:
        np.savez(file, **arrays)
    write_text(folder / "hparams.json", json.dumps(hparams) + "\n")


def _llmc_bytes(model: Model) -> bytes:
    """llm.c's write_model: a header of 256 int32, then each kind of weight across all layers."""
    config, params = model.config, model.params
    padded = -(-config.vocab_size // 128) * 128
    header = np.zeros(256, "<i4")
    header[:8] = (
        llmc.MAGIC,
        3,
        config.n_ctx,
        config.vocab_size,
        config.n_layer,
        config.n_head,
        config.n_embd,
        padded,
    )
    wte = np.zeros((padded, config.n_embd), np.float32)
    wte[: config.vocab_size] = params.wte
    kinds = dict.fromkeys(row.name for _, _, row in tensors(config) if "{i}" in row.name)
    blocks = [
        params[kind.format(i=i)].T  # nn.Linear's [out, in]
        for kind in kinds
        for i in range(config.n_layer)
    ]
    arrays = [wte, params.wpe, *blocks, *params.ln_f]
    return header.tobytes() + b"".join(array.astype("<f4").tobytes() for array in arrays)
