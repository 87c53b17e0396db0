"""Named arrays on disk, as recordings and traces are kept: in files that any language reads.

.npz            NumPy's own
.safetensors    every language has a reader
a folder        one .npy file for each array

Facts about the arrays go with them as JSON, under the name "meta".
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np.checkpoints import open_checkpoint, safetensors
from gpt2np.checkpoints.base import parse_json
from gpt2np.errors import InputError
from gpt2np.files import replacing, write_text

AnyArray: TypeAlias = npt.NDArray[Any]  # of numbers of any kind

META = "meta"


def save(
    path: str | os.PathLike[str],
    arrays: Mapping[str, AnyArray],
    meta: Mapping[str, Any] | None = None,
) -> None:
    """Write named arrays to a .npz or .safetensors file or a folder; each file whole or not at
    all, each array in C order, so that a reader may trust its shape alone."""
    path = Path(path)
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(meta, indent=1) if meta else ""
    if path.suffix == ".npz":
        entries: dict[str, Any] = {**arrays, **({META: np.array(text)} if text else {})}
        with replacing(path) as file:
            np.savez(file, **entries)
    elif path.suffix == ".safetensors":
        safetensors.save(path, arrays, metadata={META: text} if text else {})
    elif path.suffix == "":
        path.mkdir(parents=True, exist_ok=True)
        if any(path.glob("*.npy")):
            raise InputError(
                f"{path} holds .npy files already, and would mix two recordings: "
                "remove them, or name another folder"
            )
        for name, array in arrays.items():
            with replacing(path / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
        if text:
            write_text(path / f"{META}.json", text + "\n")
    else:
        raise InputError(
            f"{path}: activations are written to .npz, .safetensors, or a folder (no ending)"
        )


def load(path: str | os.PathLike[str]) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Load named arrays in any of the three forms, and the facts that go with them.

    Raises
    ------
    InputError
        The file is of none of the forms, or damaged.
    """
    path = Path(path)
    if path.is_dir():
        arrays, text = _load_folder(path)
    elif path.suffix == ".npz":
        arrays, text = _load_npz(path)
    elif path.suffix == ".safetensors":
        checkpoint = open_checkpoint(path)
        arrays, text = dict(checkpoint.tensors), checkpoint.metadata.get(META, "")
    else:
        path.stat()  # says so if it is not there
        raise InputError(
            f"{path}: activations are read from .npz, .safetensors, .bin (llm.c's "
            "debug state) or a folder of .npy files"
        )
    return arrays, parse_json(text.encode(), f"{META} of {path}") if text else {}


def _load_npz(path: Path) -> tuple[dict[str, AnyArray], str]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file of plain arrays: {error}") from None
    return arrays, str(arrays.pop(META, ""))


def _load_folder(path: Path) -> tuple[dict[str, AnyArray], str]:
    files = sorted(path.glob("*.npy"))
    if not files:
        raise InputError(f"{path} holds no .npy files")
    arrays = {}
    for file in files:
        try:
            arrays[file.name.removesuffix(".npy")] = np.load(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InputError(f"{file} is not an .npy file of a plain array: {error}") from None
    meta = path / f"{META}.json"
    return arrays, meta.read_text("utf-8") if meta.is_file() else ""
