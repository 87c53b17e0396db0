"""Models that fit on a screen, in the layouts in which GPT-2's weights come."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from gpt2np.checkpoints import llmc
from gpt2np.config import Config
from gpt2np.errors import GPT2Error
from gpt2np.files import replacing, write_text
from gpt2np.loading import Model, load
from gpt2np.params import Params
from gpt2np.saving import save
from gpt2np.schema import tensors

CONFIG = Config(vocab_size=20, n_ctx=16, n_embd=8, n_head=2, n_layer=2)
IDS = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8)
HARSH_CONFIG = Config(vocab_size=53, n_ctx=40, n_embd=18, n_head=3, n_layer=3)
HARSH_IDS = tuple(np.random.RandomState(53).randint(0, 53, 14).tolist())
PADDING = 9.0


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


def harsh_model(dtype: str = "float32") -> Model:
    """Draw a model that is harsher to ports, of sizes that no mistake leaves as they are.

    Its scores reach 105, beyond exp's range in float32; a row of logits is all negative; its
    heads are 6 wide, which is no square; its greedy ids vary; and the padding of its vocabulary,
    in llm.c's file, holds large numbers.

    Examples
    --------
    >>> harsh_model()
    Model(made by hand: Params(14,076 float32 in 40 tensors))
    """
    drawn = Params.random(HARSH_CONFIG, 53, dtype)
    arrays = {}
    for name, array in drawn.items():
        arrays[name] = array * (64 if name.endswith("c_attn.weight") else 16) ** (array.ndim - 1)
    arrays["wte.weight"] = arrays["wte.weight"] + 0.9 * arrays["wte.weight"][:1]
    return Model(Params(HARSH_CONFIG, {k: a.astype(dtype) for k, a in arrays.items()}))


MODELS = {"tiny": (tiny_model, IDS), "harsh": (harsh_model, HARSH_IDS)}


def write_weights(
    model: Model, folder: str | os.PathLike[str], *, overwrite: bool = False
) -> list[Path]:
    """Write a model's weights in three layouts, over those of another of `MODELS` too.

    Returns
    -------
    list of Path
        ``huggingface/``: config.json and model.safetensors, matrices as [in, out].
        ``openai/``: hparams.json and model.npz, with the names and shapes of OpenAI's TensorFlow
        checkpoints: matrices as [1, in, out].
        ``llm.c/model.bin``: version 3, float32, matrices as [out, in], the vocabulary padded to
        a multiple of 128, with rows that the harsh model fills with large numbers.
    """
    folder = Path(folder)
    overwrite = overwrite or _is_ours(folder / "huggingface")
    huggingface = save(model, folder / "huggingface", overwrite=overwrite)
    openai, c = folder / "openai", folder / "llm.c" / "model.bin"
    openai.mkdir(parents=True, exist_ok=True)
    c.parent.mkdir(exist_ok=True)
    _write_openai(model, openai)
    padding = PADDING if model.config == HARSH_CONFIG else 0.0
    llmc.save(c, model.params, n_head=model.config.n_head, padding=padding)
    return [huggingface, openai, c]


def _is_ours(folder: Path) -> bool:
    """Whether a folder has the weights of one of `MODELS`: then nobody will miss it."""
    try:
        there = load(folder).params
    except GPT2Error:
        return False
    ours = (make().params for make, _ in MODELS.values())
    return any(
        there.config == params.config and all(np.allclose(there[k], params[k]) for k in params)
        for params in ours
    )


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
