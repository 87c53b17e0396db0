"""Write a model, whatever it was read from: as a Hugging Face folder, or as one file."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from gpt2np import exporting, tokenizer_files
from gpt2np.answers import answering
from gpt2np.beside import GENERATION
from gpt2np.checkpoints import SUFFIXES, USUAL, safetensors
from gpt2np.config import Config
from gpt2np.configs import CONFIG_FILES
from gpt2np.errors import InputError
from gpt2np.files import write_text
from gpt2np.loading import GPT2_VOCABULARY, TOKENIZER_FILES, Model, as_model

SAVE_DTYPES = ("float32", "float16", "bfloat16")
# What config.json says of the weights' file, and not of the model.
_OWNED = ("dtype", "torch_dtype", "architectures", "auto_map", "tie_word_embeddings")


@answering()
def save(
    model: Model,
    folder: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a model as a folder that Hugging Face transformers loads, and so does `load`.

    A name that ends in ``.gguf`` or ``.npz`` makes one file instead. A GGUF is what llama.cpp's
    converter makes: llama.cpp loads it, and transformers with ``gguf_file=`` (which assumes 1,024
    positions and an MLP of 4 D). A ``.npz`` has Hugging Face's names, and config.json as an array
    of bytes beside them.

    Parameters
    ----------
    model : Model
    folder : str or path
        Made if it is not there. Gets ``config.json`` and ``model.safetensors``, and with a
        tokenizer ``vocab.json`` and ``merges.txt`` (and ``tokenizer.json`` where those do not
        say all). Or the file.
    dtype : {"float32", "float16", "bfloat16"}, optional
        What the weights are rounded to, to nearest; float32 unless given. GGUF keeps vectors and
        the positions in float32.
    overwrite : bool
        Replace these files in a folder that holds a model, or part of one, already, and remove
        another model's vocabulary and ``generation_config.json``.

    Returns
    -------
    Path
        The folder or file.

    Raises
    ------
    CheckpointError
        A weight is too large for float16.
    InputError
        Another dtype; a name that ends as another kind of file does; a folder that holds a model,
        or a file that is there, already, without `overwrite`; something that GGUF's header
        cannot say, such as an activation.

    Examples
    --------
    >>> import gpt2np, tempfile
    >>> model = gpt2np.load()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = gpt2np.load(gpt2np.save(model, folder, dtype="float16"))
    ...     bool((again.params.wte == model.params.wte).all())
    True
    """
    model, dtype = as_model(model), dtype or "float32"
    if dtype not in SAVE_DTYPES:
        raise InputError(f"dtype is {dtype!r}; give one of {', '.join(SAVE_DTYPES)}")
    folder = Path(folder)
    if folder.suffix in exporting.FILES and not folder.is_dir():
        return exporting.export(model, folder, dtype, overwrite=overwrite)
    check_name(folder)
    if not overwrite and (there := model_files(folder)):
        raise InputError(
            f"{folder} holds a model already ({', '.join(there)}): name another folder, or replace "
            "it with overwrite=True"
        )
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name if name.startswith("lm_head") else f"transformer.{name}": array
        for name, array in model.params.items()
    }
    safetensors.save(folder / "model.safetensors", tensors, dtype=dtype)
    for name in (GENERATION, *TOKENIZER_FILES):  # what the model does not have would be another's
        (folder / name).unlink(missing_ok=True)
    if model.has_tokenizer:
        model.tokenizer.save(folder, overwrite=True)
    elif model.why_no_tokenizer and model.config.vocab_size in GPT2_VOCABULARY:
        # So that it is not taken for one with GPT-2's own.
        other = {"tokenizer_class": "PreTrainedTokenizer"}
        write_text(folder / tokenizer_files.CONFIG, json.dumps(other) + "\n")
    if model.beside.generation is not None:
        write_text(folder / GENERATION, json.dumps(model.beside.generation, indent=2) + "\n")
    # Last: a folder without it is no model, so one that is half written is never taken for one.
    write_text(folder / "config.json", json.dumps(_config(model), indent=2) + "\n")
    return folder


def check_name(path: Path) -> None:
    """Refuse the name of a file of a kind that is not written: it would become a folder."""
    if re.fullmatch(r"\.[A-Za-z]\w*", path.suffix) and not path.is_dir():
        if path.suffix in exporting.FILES:
            return
        raise InputError(
            f"{path}: no {path.suffix} file is written: name a folder (no suffix), in which "
            f"model.safetensors will be, or a file that ends in {', '.join(exporting.FILES)}"
        )


def model_files(folder: Path) -> list[str]:
    """The files in a folder that are a model's, whatever its format."""
    names = {*CONFIG_FILES, GENERATION, *TOKENIZER_FILES, *USUAL}
    return sorted(
        file.name
        for file in (folder.iterdir() if folder.is_dir() else ())
        if file.name in names or file.suffix in SUFFIXES
    )


def _config(model: Model) -> dict[str, Any]:
    """The config.json that it was read from, but for what describes the new weights' file.

    Where none was read, the ids of begin and end are written: Hugging Face's default is GPT-2's.
    """
    ours, read = model.config.to_dict(), model.beside.config
    if not read:
        return ours | {"bos_token_id": model.bos, "eos_token_id": next(iter(model.eos), None)}
    kept = {name: value for name, value in read.items() if name not in _OWNED}
    own = {name: ours[name] for name in _OWNED if name in ours}
    # The weights' own file may have said other sizes than the config.json beside it.
    return ours | kept | own if Config.from_dict(ours | kept | own) == model.config else kept | ours
