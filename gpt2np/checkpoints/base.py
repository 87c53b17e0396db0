"""What the readers of every format share: the result, mapped files and checked views."""

from __future__ import annotations

import json
import math
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt2np.errors import CheckpointError, InputError
from gpt2np.files import read_text

try:
    import mmap
except ImportError:  # Python on WebAssembly
    mmap = None  # type: ignore[assignment]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

# The element types that may stand in a file, all little-endian. NumPy has no bfloat16: its
# two bytes are read as an integer and widened to float32.
DTYPES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"),
    "int8": np.dtype("i1"),
    "uint64": np.dtype("<u8"),
    "uint32": np.dtype("<u4"),
    "uint16": np.dtype("<u2"),
    "uint8": np.dtype("u1"),
    "bool": np.dtype("?"),
}


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint under the names its files give them.

    Attributes
    ----------
    format : "safetensors", "pytorch", "tensorflow", "llm.c", "npz", "npy", "flax" or "gguf".
    files : the files that were read, the index first where there is one.
    tensors : name -> read-only array, in the order of the file; views of the mapped file
        wherever the bytes allow. float16 stays float16; bfloat16 has become float32.
    dtypes : name -> element type as stored ("float32", "bfloat16", ...).
    metadata : what the files say about the model beside the tensors.
    config : hyperparameters that the file itself tells, under the names of config.json.
    tokenizer : the contents of the tokenizer.json that the file itself amounts to, if any.
    family : whose names and layout the tensors had, if they were turned into Hugging Face's.
    """

    format: str
    files: tuple[Path, ...]
    tensors: Mapping[str, Array]
    dtypes: Mapping[str, str]
    metadata: dict[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] | None = None
    family: str = ""


def map_file(path: Path) -> Bytes:
    """The bytes of a file, mapped read-only."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would block, a device never end
        raise CheckpointError(f"{path} is not a regular file")
    if status.st_size == 0:
        raise CheckpointError(f"{path} is empty: download it again")
    if status.st_size > sys.maxsize:
        raise CheckpointError(f"{path} is too large for a Python of 32 bits: use one of 64")
    try:
        return np.asarray(np.memmap(path, np.uint8, mode="r"))
    except (OSError, ImportError):  # on some network drives, and in browsers, nothing is mapped
        return np.frombuffer(path.read_bytes(), np.uint8)


def check_shape(shape: Sequence[object], where: str) -> tuple[int, ...]:
    """The shape as a tuple, if NumPy can hold an array of it (Python ints: no overflow)."""
    sizes = tuple(n for n in shape if type(n) is int and n >= 0)
    if len(sizes) != len(shape) or len(sizes) > 8 or math.prod(n or 1 for n in sizes) >= 1 << 60:
        listed = ", ".join(quote(n) for n in shape[:9])
        raise CheckpointError(f"{where} has an impossible shape: [{listed}]")
    return sizes


def view(data: Bytes, start: int, dtype: str, shape: tuple[int, ...]) -> Array:
    """The array that begins at byte `start` of `data`: the caller has checked that it ends there.

    BLAS takes only aligned arrays, and NumPy would copy any other at every product: so it is
    copied here, once.
    """
    kind = DTYPES[dtype]
    array: Array = data[start : start + math.prod(shape) * kind.itemsize].view(kind).reshape(shape)
    if dtype == "bfloat16":
        array = bfloat16_to_float32(array)
    elif not array.flags.aligned:
        array = array.copy()
    return sealed(array)


def sealed(array: Array) -> Array:
    """The array, now read-only, and so is whatever it is a view of."""
    part: object = array
    while isinstance(part, np.ndarray):
        part.flags.writeable = False
        part = part.base
    return array


def mapping(array: Array) -> mmap.mmap | None:
    """The file's mapping that an array is a view of, if it is of one."""
    part: Any = array
    while isinstance(part, np.ndarray):
        part = part.base
    return part if mmap is not None and isinstance(part, mmap.mmap) else None


def offset_in_file(array: Array) -> int | None:
    """The byte of its file at which an array begins; None if it is no view of a mapped file."""
    mapped = mapping(array)
    if mapped is None or not array.size:
        return None
    begin, _ = np.lib.array_utils.byte_bounds(array)
    return int(begin - np.frombuffer(mapped, np.uint8).ctypes.data)


def release(array: Array) -> None:
    """Give back the memory that a file's array was mapped to; it can still be read again."""
    mapped = mapping(array)
    if mapped is None or not hasattr(mapped, "madvise"):
        return
    begin, end = np.lib.array_utils.byte_bounds(array)
    origin = np.frombuffer(mapped, np.uint8).ctypes.data
    first = -(-(begin - origin) // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (end - origin) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length > 0:
        mapped.madvise(mmap.MADV_DONTNEED, first, length)


def bfloat16_to_float32(bits: Array) -> Array:
    """Widen bfloat16, the upper half of a float32, given as uint16.

    >>> bfloat16_to_float32(np.array([0x3F80, 0xC040], np.uint16))
    array([ 1., -3.], dtype=float32)
    """
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def float32_to_bfloat16(array: Array) -> Array:
    """Round float32 to bfloat16, to nearest even, as the uint16 that is stored; NaN stays NaN.

    >>> float32_to_bfloat16(np.array([1, -3], np.float32)) == [0x3F80, 0xC040]
    array([ True,  True])
    """
    bits = array.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def check_disjoint(spans: Iterable[tuple[int, int, str]], where: str) -> None:
    """No two spans (start, stop, name) of a file may share bytes."""
    end, before = 0, ""
    for start, stop, name in sorted(spans):
        if start < end:
            raise CheckpointError(f"{where}: {quote(before)} and {quote(name)} overlap")
        end, before = max(end, stop), name


def quote(value: object) -> str:
    """A value from a file, fit for a one-line message whatever it holds."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= 80 else repr(value[:77]) + "..."
    if isinstance(value, int) and value.bit_length() > 256:
        return "an enormous number"  # Python itself refuses to write some
    return repr(value) if isinstance(value, int | float | None) else f"a {type(value).__name__}"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds, whatever system wrote it."""
    try:
        return parse_json(read_text(path), str(path))
    except InputError as error:
        raise CheckpointError(str(error)) from None


def parse_json(text: bytes | str, where: str) -> dict[str, Any]:
    """A JSON object, in which no key stands twice."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_distinct_keys)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} is not a JSON object")
    return value


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise CheckpointError(f"the key {quote(key)} stands twice")
        result[key] = value
    return result


def sibling(folder: Path, name: object, where: str) -> Path:
    """A file beside an index that names it: a plain file name, so that none leads elsewhere."""
    plain = isinstance(name, str) and 0 < len(name) <= 255 and name.isprintable()
    if not plain or name in (".", "..") or any(sign in str(name) for sign in "/\\:"):
        raise CheckpointError(f"{where} names {quote(name)}, which is not a plain file name")
    path = folder / str(name)
    if not path.is_file():
        raise CheckpointError(f"{path} is missing, which {where} names: download it as well")
    return path
