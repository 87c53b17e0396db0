"""NumPy's .npz: a zip archive whose members are .npy arrays, one for each tensor.

np.savez and MLX store them as they are, np.savez_compressed deflates them.
https://numpy.org/doc/stable/reference/generated/numpy.savez.html
"""

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpt2np.checkpoints import npy
from gpt2np.checkpoints.base import Array, Bytes, Checkpoint, check_disjoint, parse_json, quote
from gpt2np.checkpoints.safetensors import stored
from gpt2np.checkpoints.zip_entries import LOCAL, Entry, zip_entries
from gpt2np.errors import CheckpointError
from gpt2np.files import replacing

# What gpt2np's own files hold beside the tensors, as the bytes of a file of this name.
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
MAX_JSON = 8_000_000  # bytes; the tokenizer of GPT-2 takes 1,400,000

ALIGNMENT = 64  # of the numbers, so that they can be mapped in place
_PADDING = 0xD935  # an extra field of this kind says nothing: Android's zipalign writes it

# Weights hardly shrink; a few bytes must not unfold to gigabytes.
MAX_GROWTH, MIN_ROOM = 8, 1 << 16


def recognises(data: Bytes) -> bool:
    """Whether it is a zip archive that begins with a .npy."""
    length = int.from_bytes(data[26:28].tobytes(), "little")
    name = data[30 : 30 + length].tobytes()
    return data[:4].tobytes() == b"PK\3\4" and name.endswith(b".npy")


def read(path: Path, data: Bytes, *, verify: bool = False) -> Checkpoint:
    """Read one file. What is compressed is checked against its checksum in any case."""
    entries = zip_entries(path, data)
    spans = ((entry.start, entry.stop, name) for name, entry in entries.items())
    check_disjoint(spans, f"{path} is damaged")
    unpacked = sum(entry.size for entry in entries.values() if not entry.stored)
    if unpacked > MIN_ROOM + MAX_GROWTH * len(data):
        raise CheckpointError(
            f"{path} says that its {len(data)} bytes unpack to {unpacked}, which weights do not: "
            "write it with np.savez if they do"
        )
    tensors: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    for member, entry in entries.items():
        where = f"{path}: {quote(member)}"
        name = member.removesuffix(".npy")
        if name == member:
            raise CheckpointError(f"{where} is not a .npy array, so this is no .npz of NumPy")
        tensors[name], dtypes[name] = npy.read_array(_bytes(data, entry, where, verify), where)
    config, tokenizer = (_json(tensors, name, path) for name in (CONFIG, TOKENIZER))
    dtypes = {name: dtypes[name] for name in tensors}
    return Checkpoint("npz", (path,), tensors, dtypes, {}, config or {}, tokenizer)


def _json(tensors: dict[str, Array], name: str, path: Path) -> dict[str, Any] | None:
    """Take out what is not a tensor but the bytes of a file, and read it."""
    if name not in tensors:
        return None
    array = tensors.pop(name)
    if array.nbytes > MAX_JSON:
        raise CheckpointError(
            f"{path}: {name} of {array.nbytes} bytes; at most {MAX_JSON} are read"
        )
    return parse_json(array.tobytes(), f"{name} in {path}")


def _bytes(data: Bytes, entry: Entry, where: str, verify: bool) -> Bytes:
    """A member as it was before it was packed."""
    if entry.encrypted:
        raise CheckpointError(f"{where} is encrypted: unpack it and write it again with np.savez")
    packed = data[entry.start : entry.stop]
    if not entry.stored:
        packed = _inflated(packed, entry, where)
    if (verify or not entry.stored) and zlib.crc32(packed.data) != entry.crc32:
        raise CheckpointError(f"{where} is damaged, its checksum is wrong: download it again")
    return packed


def _inflated(packed: Bytes, entry: Entry, where: str) -> Bytes:
    if entry.method != zipfile.ZIP_DEFLATED:
        raise CheckpointError(
            f"{where} is packed in a way that NumPy does not use: write it again with np.savez"
        )
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        unpacked = stream.decompress(packed.data, entry.size + 1)  # no more, whatever comes
    except zlib.error as error:
        raise CheckpointError(f"{where} is damaged ({error}): download it again") from error
    if len(unpacked) != entry.size or not stream.eof or stream.unused_data:
        raise CheckpointError(
            f"{where} should unpack to {entry.size} bytes, but does not: download it again"
        )
    return np.frombuffer(unpacked, np.uint8)


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    *,
    dtype: str = "float32",
    config: Mapping[str, Any] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
) -> None:
    """Write tensors as np.savez does, but aligned, so that they can be mapped in place.

    Parameters
    ----------
    path : the file; it appears under this name only when it is whole.
    tensors : name -> array.
    dtype : "float32" or "float16": what they are rounded to.
    config, tokenizer : the contents of config.json and tokenizer.json, which are kept as arrays of
        bytes under these names.

    Raises
    ------
    CheckpointError
        A number overflows to infinity.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder) / "a.npz", {"wpe": np.ones((2, 3))}, config={"n_layer": 1})
    ...     with np.load(Path(folder) / "a.npz") as arrays:
    ...         arrays["wpe"].dtype, bytes(arrays["config.json"])
    (dtype('float32'), b'{"n_layer": 1}')
    """
    beside = {
        name: np.frombuffer(json.dumps(value).encode(), np.uint8)
        for name, value in ((CONFIG, config), (TOKENIZER, tokenizer))
        if value is not None
    }
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {**beside, **tensors}.items():
            kept = array if name in beside else stored(name, array, dtype)
            _write(archive, f"{name}.npy", kept)


def _write(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    """Write one member, behind as much padding as aligns it."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    info = zipfile.ZipInfo(name)
    info.file_size = len(header.getvalue()) + array.nbytes
    start = archive.start_dir + LOCAL.size + len(name.encode()) + 4
    padding = -start % ALIGNMENT
    info.extra = _PADDING.to_bytes(2, "little") + padding.to_bytes(2, "little") + bytes(padding)
    with archive.open(info, "w") as member:
        member.write(header.getvalue())
        member.write(array.data)
