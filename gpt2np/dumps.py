"""Named arrays on disk, as recordings and traces are kept: in files that any language reads.

.npz            NumPy's own
.safetensors    every language has a reader
a folder        one .npy file for each array

Facts about the arrays go with them as JSON, under the name "meta".
"""

from __future__ import annotations

import json
import math
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

from gpt2np.checkpoints import open_checkpoint, safetensors
from gpt2np.checkpoints.base import check_shape, map_file, parse_json, quote
from gpt2np.errors import CheckpointError, InputError
from gpt2np.files import replacing, write_text

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
    return arrays, parse_json(
        text.encode("utf-8", "surrogatepass"), f"{META} of {path}"
    ) if text else {}


def _load_folder(path: Path) -> tuple[dict[str, AnyArray], str]:
    files = sorted(path.glob("*.npy"))
    if not files:
        raise CheckpointError(f"{path} holds no .npy files")
    arrays = {file.name.removesuffix(".npy"): parse_npy(map_file(file), file) for file in files}
    meta = path / f"{META}.json"
    return arrays, _text(meta) if meta.exists() else ""


def _text(path: Path) -> str:
    try:
        return map_file(path).tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error}") from None


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
        arrays[name] = parse_npy(np.frombuffer(data, np.uint8), where, text=name == META)
    try:
        return arrays, str(arrays.pop(META, ""))
    except ValueError as error:  # no characters
        raise CheckpointError(f"{path}: {META} is no text: {error}") from None


def parse_npy(data: AnyArray, where: object, *, text: bool = False) -> AnyArray:
    """Parse the bytes of an .npy file, which holds an array of numbers, or a text and no array.

    https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.eye(2))
    >>> parse_npy(np.frombuffer(file.getvalue(), np.uint8), "a").tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    start = bytes(data[:12])
    width = {1: 2, 2: 4, 3: 4}.get(start[6]) if start[:6] == b"\x93NUMPY" and start[6:] else None
    if width is None or len(start) < 12:
        raise CheckpointError(f"{where} is not an .npy file")
    begin = 8 + width
    end = begin + int.from_bytes(start[8:begin], "little")
    header = bytes(data[begin : min(end, begin + MAX_HEADER)]).decode("latin-1")
    fields = dict(_NPY_FIELD.findall(header))
    if fields.keys() != {"descr", "fortran_order", "shape"} or not _NPY_HEADER.fullmatch(header):
        raise CheckpointError(f"{where} is not an .npy file of a plain array: {quote(header)}")
    code, sizes = fields["descr"][1:-1], fields["shape"][1:-1].replace(" ", "")
    if not (_TEXT if text else _NUMBERS).fullmatch(code):
        raise CheckpointError(f"{where} is of dtype {quote(code)}, which are no numbers")
    shape = check_shape([int(n[:20]) for n in sizes.split(",") if n], str(where))
    dtype, size = np.dtype(code), math.prod(shape)
    if (text and shape) or end + size * dtype.itemsize != len(data):
        raise CheckpointError(
            f"{where} is cut short or damaged: {code} {list(shape)} in {len(data) - end} bytes"
        )
    if not size:
        return np.empty(shape, dtype.newbyteorder("="))
    order: Any = "F" if fields["fortran_order"] == "True" else "C"
    array: AnyArray = data[end:].view(dtype).reshape(shape, order=order)
    return array.astype(dtype.newbyteorder("="), copy=False)


_NPY_VALUE = r"""(?:'[^']*'|"[^"]*"|True|False|\([0-9, ]*\))"""
_NPY_FIELD = re.compile(rf"""['"](\w+)['"]\s*:\s*({_NPY_VALUE})""")
_NPY_HEADER = re.compile(rf"""\s*\{{\s*(?:['"]\w+['"]\s*:\s*{_NPY_VALUE}\s*,?\s*){{3}}\}}\s*""")
_NUMBERS = re.compile(r"[<>=|]?(?:f[248]|[iu][1248]|b1|\?)")
_TEXT = re.compile(r"[<>=]U[1-9][0-9]{0,6}")
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
