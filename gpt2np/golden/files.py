"""The four forms in which named arrays are stored: what `gpt2np golden` writes and reads.

.npz            NumPy's own
.safetensors    every language has a reader
a folder        one .npy file for each array
.bin            llm.c's debug state, which is read only
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt2np.checkpoints import open_checkpoint, safetensors
from gpt2np.checkpoints.base import parse_json
from gpt2np.errors import InputError
from gpt2np.files import replacing, write_text
from gpt2np.layers import log_softmax

Arrays = Mapping[str, npt.NDArray[Any]]

META = "meta"  # the name under which the facts about a recording stand, as JSON
DEBUG_STATE = 20240327  # how llm.c's debug state begins


@dataclass(frozen=True)
class Golden:
    """Named arrays, and the facts about them: which model, config, text and versions."""

    arrays: Arrays
    meta: Mapping[str, Any] = field(default_factory=dict)
    name: str = "the recording"  # what messages call it

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.npz`` or ``.safetensors`` file, or a folder of ``.npy`` files."""
        write(path, self.arrays, self.meta)


def write(
    path: str | os.PathLike[str], arrays: Arrays, meta: Mapping[str, Any] | None = None
) -> None:
    """Write named arrays to a .npz or .safetensors file or a folder; each file whole or not at
    all."""
    path = Path(path)
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


def read(path: str | os.PathLike[str], vocab_sizes: Iterable[int] = ()) -> Golden:
    """Read named arrays in any of the four forms.

    Parameters
    ----------
    path : str or path
    vocab_sizes : iterable of int
        How many logits there may be at each position of an llm.c debug state, which does not say;
        50257 is tried as well.

    Raises
    ------
    InputError
        The file is of none of the forms, or damaged.
    """
    path = Path(path)
    if path.is_dir():
        arrays, text = _read_folder(path)
    elif path.suffix == ".npz":
        arrays, text = _read_npz(path)
    elif path.suffix == ".safetensors":
        checkpoint = open_checkpoint(path)
        arrays, text = dict(checkpoint.tensors), checkpoint.metadata.get(META, "")
    elif path.suffix == ".bin":
        arrays, text = _read_debug_state(path, vocab_sizes), ""
    else:
        path.stat()  # says so if it is not there
        raise InputError(
            f"{path}: activations are read from .npz, .safetensors, .bin (llm.c's "
            "debug state) or a folder of .npy files"
        )
    meta = parse_json(text.encode(), f"{META} of {path}") if text else {}
    return Golden(arrays, meta, str(path))


def _read_npz(path: Path) -> tuple[dict[str, Any], str]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file of plain arrays: {error}") from None
    return arrays, str(arrays.pop(META, ""))


def _read_folder(path: Path) -> tuple[dict[str, Any], str]:
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


def _read_debug_state(path: Path, vocab_sizes: Iterable[int]) -> dict[str, Any]:
    """llm.c's write_state: a header of 256 int32; ids and targets [B, T]; logits [B, T, V]; the
    loss; gradients, which are left out.

    V is not in the file: it is the size for which the logits make the loss that follows them.
    """
    data = np.fromfile(path, np.uint8)
    header = data[:1024].view("<i4") if len(data) >= 1024 else [0]
    if header[0] != DEBUG_STATE:
        raise InputError(f"{path} is not a debug state of llm.c, as write_state writes it")
    B, T = int(header[2]), int(header[3])
    rest = data[1024 : len(data) // 4 * 4].view("<i4")
    if B < 1 or T < 1 or len(rest) < 2 * B * T:
        raise InputError(f"{path} is cut short: it should have {B} x {T} ids and targets")
    ids, targets = rest[: 2 * B * T].reshape(2, B, T)
    numbers = rest[2 * B * T :].view("<f4")
    sizes = [*vocab_sizes, 50257]
    for V in sizes:
        n = B * T * V
        if n < len(numbers) and targets.min() >= 0 and targets.max() < V:
            logits, loss = numbers[:n].reshape(B, T, V), numbers[n]
            picked = np.take_along_axis(log_softmax(logits), targets[..., None].astype(int), -1)
            if math.isclose(-picked.mean(dtype=float), loss, rel_tol=1e-3):
                return {"ids": ids, "logits": logits, "loss": loss}
    raise InputError(
        f"{path}: its loss is not that of {' or '.join(map(str, sizes))} logits at "
        "each position: it is damaged, or of another model than the one given"
    )
