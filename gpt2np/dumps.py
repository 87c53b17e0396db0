"""Named arrays on disk, as recordings and traces are kept: in files that any language reads.

.npz            NumPy's own
.safetensors    every language has a reader
a folder        one .npy file for each array

Facts about the arrays go with them as JSON, under the name "meta".
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np.checkpoints import npy, open_checkpoint, safetensors
from gpt2np.checkpoints.base import map_file, parse_json, quote
from gpt2np.errors import CheckpointError, InputError
from gpt2np.files import as_text, replacing, write_text

AnyArray: TypeAlias = npt.NDArray[Any]  # of numbers of any kind

META = "meta"
MAX_HEADER = 4096  # of an .npy file
MAX_MEMBERS = 20_000
UNPACKED_FREE, UNPACKED_TIMES = 1 << 24, 32  # what an .npz may unpack to: bytes, times its size


def save(
    path: str | os.PathLike[str],
    arrays: Mapping[str, AnyArray],
    meta: Mapping[str, Any] | None = None,
) -> None:
    """Write named arrays to a .npz or .safetensors file or a folder; each file whole or not at
    all, each array in C order and little-endian, so that a reader may trust its shape alone."""
    path = Path(path)
    arrays = {
        name: np.asarray(array, np.asarray(array).dtype.newbyteorder("<"), order="C")
        for name, array in arrays.items()
    }
    text = json.dumps(meta, indent=1) if meta else ""
    if path.suffix == ".npz":
        beside = {META: np.array(text, f"<U{len(text)}")} if text else {}
        entries: dict[str, Any] = {**arrays, **beside}
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
    """Load named arrays of numbers in any of the three forms, and the facts that go with them.

    A file may come from anywhere: nothing of it is executed, and what it unpacks to is bounded.

    Raises
    ------
    CheckpointError
        The file is of none of the forms, damaged, or holds something else than numbers.
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
        raise CheckpointError(
            f"{path}: activations are read from .npz, .safetensors, .bin (llm.c's "
            "debug state) or a folder of .npy files"
        )
    arrays = {
        name: array.astype(array.dtype.newbyteorder("="), copy=False)  # as this machine has them
        for name, array in arrays.items()
    }
    return arrays, parse_json(
        text.encode("utf-8", "surrogatepass"), f"{META} of {path}"
    ) if text else {}


def _load_folder(path: Path) -> tuple[dict[str, AnyArray], str]:
    files = sorted(path.glob("*.npy"))
    if not files:
        raise CheckpointError(f"{path} holds no .npy files")
    arrays = {
        file.name.removesuffix(".npy"): npy.read_array(map_file(file), quote(str(file)))[0]
        for file in files
    }
    meta = path / f"{META}.json"
    return arrays, _text(meta) if meta.exists() else ""


def _text(path: Path) -> str:
    try:
        return as_text(map_file(path).tobytes(), str(path))
    except InputError as error:
        raise CheckpointError(str(error)) from None


def _load_npz(path: Path) -> tuple[dict[str, AnyArray], str]:
    map_file(path)  # says so if it is missing, empty or no regular file
    try:
        with zipfile.ZipFile(path) as archive:
            return _load_members(path, archive)
    except _ZIP_ERRORS as error:
        reason = quote(str(error))
        raise CheckpointError(f"{path} is not an .npz file of plain arrays: {reason}") from None


def _load_members(path: Path, archive: zipfile.ZipFile) -> tuple[dict[str, AnyArray], str]:
    members = archive.infolist()
    packed, unpacked = path.stat().st_size, sum(member.file_size for member in members)
    if len(members) > MAX_MEMBERS or unpacked > UNPACKED_FREE + UNPACKED_TIMES * packed:
        raise CheckpointError(
            f"{path}: {len(members)} arrays of {unpacked:,} bytes in {packed:,}, which no "
            "recording packs as small"
        )
    arrays: dict[str, AnyArray] = {}
    text = ""
    for member in members:
        name = member.filename.removesuffix(".npy")
        where = f"{path}: {quote(member.filename)}"
        if name == member.filename or name in arrays:
            raise CheckpointError(f"{where} is no array, or stands there twice")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CheckpointError(f"{where} is packed as NumPy never packs")
        with archive.open(member) as file:
            data = file.read(member.file_size)  # a number, or a bomb would unpack whole
        if len(data) != member.file_size:
            raise CheckpointError(f"{where} is cut short")
        if name == META:
            text = _text_in(np.frombuffer(data, np.uint8), where)
        else:
            arrays[name], _ = npy.read_array(np.frombuffer(data, np.uint8), where)
    return arrays, text


def _text_in(data: AnyArray, where: str) -> str:
    """The text in the bytes of an .npy file, as NumPy writes a single one."""
    begin = bytes(data[:MAX_HEADER])
    header = _TEXT.match(begin)
    size = int(header[1]) * 4 if header else 0
    if header is None or len(data) != header.end() + size:
        raise CheckpointError(f"{where} is no text as NumPy writes it")
    try:
        return data[header.end() :].tobytes().decode("utf-32-le", "surrogatepass").rstrip("\0")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where} is no text: {error}") from None


_TEXT = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '<U([0-9]{1,7})', 'fortran_order': False, 'shape': \(\), \}"
    rb"[ ]*\n",
    re.DOTALL,
)
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # of packing methods
    RuntimeError,  # of encryption
    struct.error,
    OverflowError,
    UnicodeError,
)
