"""NumPy's .npz: a zip archive whose members are .npy arrays, one for each tensor.

np.savez and MLX store them as they are, np.savez_compressed deflates them.
https://numpy.org/doc/stable/reference/generated/numpy.savez.html
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from gpt2np.checkpoints import npy
from gpt2np.checkpoints.base import Array, Bytes, Checkpoint, check_disjoint, quote
from gpt2np.checkpoints.zip_entries import Entry, zip_entries
from gpt2np.errors import CheckpointError

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
    return Checkpoint("npz", (path,), tensors, dtypes)


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
    if len(unpacked) != entry.size or not stream.eof:
        raise CheckpointError(
            f"{where} should unpack to {entry.size} bytes, but does not: download it again"
        )
    return np.frombuffer(unpacked, np.uint8)
