"""Safetensors: eight bytes of header length, a JSON header, and the tensors end to end.

https://github.com/huggingface/safetensors (the format is described in its README)
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gpt2np.checkpoints.base import (
    DTYPES,
    Array,
    Bytes,
    Checkpoint,
    check_shape,
    float32_to_bfloat16,
    parse_json,
    quote,
    view,
)
from gpt2np.errors import CheckpointError
from gpt2np.files import replacing

# Name in the header -> our name, in the order in which the official writer puts them into the
# file: the widest first, which keeps every tensor aligned. Float8 and complex are left out.
CODES = {
    "U64":  "uint64",   "I64": "int64",   "F64": "float64",
    "F32":  "float32",  "U32": "uint32",  "I32": "int32",
    "BF16": "bfloat16", "F16": "float16", "U16": "uint16", "I16": "int16",
    "I8":   "int8",     "U8":  "uint8",   "BOOL": "bool",
}  # fmt: skip
RANKS = {code: rank for rank, code in enumerate(CODES)}

MAX_HEADER = 2_000_000  # GPT-2 XL needs some 60,000 bytes

Entry = tuple[int, int, str, tuple[int, ...], str]  # start, stop, dtype, shape, name


def recognises(data: Bytes) -> bool:
    return data[8:9].tobytes() == b"{" and 0 in data[:8]


def read(path: Path, data: Bytes, *, verify: bool = False) -> Checkpoint:
    """Read one file. The format has no checksums, so `verify` has nothing to add."""
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > len(data) - 8:
        raise CheckpointError(
            f"{path} is cut short: its header has {length} bytes, the file {len(data)}: "
            "download it again"
        )
    if length > MAX_HEADER:
        raise CheckpointError(f"{path}: a header of {length} bytes; at most {MAX_HEADER} are read")
    header = parse_json(data[8 : 8 + length].tobytes(), f"the header of {path}")
    metadata = header.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(f"{path}: __metadata__ is not a map of strings to strings")
    body = data[8 + length :]
    entries = sorted(_entry(path, name, entry) for name, entry in header.items())
    _check_contiguous(path, entries, len(body))
    return Checkpoint(
        "safetensors",
        (path,),
        {name: view(body, start, dtype, shape) for start, _, dtype, shape, name in entries},
        {name: dtype for _, _, dtype, _, name in entries},
        metadata,
    )


def _entry(path: Path, name: str, entry: Any) -> Entry:
    """One tensor's place, dtype and shape, which agree with each other."""
    where = f"{path}: tensor {quote(name)}"
    match entry:
        case {"dtype": str(code), "shape": list(sizes), "data_offsets": [int(start), int(stop)]}:
            shape = check_shape(sizes, where)
        case _:
            raise CheckpointError(f"{where} lacks a proper dtype, shape and data_offsets")
    if code not in CODES:
        raise CheckpointError(f"{where} has the dtype {quote(code)}; read are {', '.join(CODES)}")
    size = math.prod(shape) * DTYPES[CODES[code]].itemsize
    if stop - start != size:
        raise CheckpointError(
            f"{where}, {code} {list(shape)}, needs {size} bytes "
            f"but its data_offsets are {start} to {stop}"
        )
    return start, stop, CODES[code], shape, name


def _check_contiguous(path: Path, entries: list[Entry], size: int) -> None:
    """As the format demands, every byte of the file belongs to exactly one tensor."""
    end = 0
    for start, stop, *_, name in entries:
        if start != end:
            fault = "overlaps the tensor before it" if start < end else "leaves a gap before it"
            raise CheckpointError(
                f"{path} is damaged: tensor {quote(name)} begins at byte {start}, not {end}: "
                f"it {fault}"
            )
        end = stop
    if end != size:
        raise CheckpointError(
            f"{path} is {'cut short' if end > size else 'damaged'}: its tensors take {end} bytes, "
            f"the file has {size} for them: download it again"
        )


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    *,
    dtype: str | None = None,
    metadata: Mapping[str, str] = MappingProxyType({"format": "pt"}),
) -> None:
    """Write tensors as the official library does, byte for byte.

    Parameters
    ----------
    path : the file; it appears under this name only when it is whole.
    tensors : name -> array of any layout.
    dtype : "float32", "float16" or "bfloat16": floating-point tensors are rounded to it, to
        nearest even. None keeps each tensor's own.
    metadata : strings for the header; Hugging Face's readers expect {"format": "pt"}.

    Raises
    ------
    CheckpointError
        A number overflows to infinity in `dtype`, or an array is of a type the format lacks.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "model.safetensors"
    >>> save(file, {"wte": np.eye(3), "wpe": np.ones((2, 3))}, dtype="bfloat16")
    >>> file.stat().st_size  # 8 of length, 152 of header, 15 elements of 2
    190
    >>> folder.cleanup()
    """
    if dtype not in (None, "float32", "float16", "bfloat16"):
        raise CheckpointError(f"dtype {dtype!r}: float32, float16 or bfloat16 can be written")
    codes = {name: _code(name, tensor, dtype) for name, tensor in tensors.items()}
    order = sorted(tensors, key=lambda name: (RANKS[codes[name]], name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        start, end = end, end + tensors[name].size * DTYPES[CODES[codes[name]]].itemsize
        header[name] = {
            "dtype": codes[name],
            "shape": list(tensors[name].shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(stored(name, tensors[name], CODES[codes[name]]).data)


def _code(name: str, tensor: Array, dtype: str | None) -> str:
    """The header's name for the type in which a tensor is written."""
    floating = np.issubdtype(tensor.dtype, np.floating)
    wanted = dtype if dtype and floating else tensor.dtype.name
    for code, ours in CODES.items():
        if ours == wanted:
            return code
    raise CheckpointError(f"tensor {quote(name)} is {tensor.dtype}: safetensors has no such type")


def stored(name: str, tensor: Array, dtype: str) -> Array:
    """The tensor in C order and in the type that is written, to which nothing may overflow."""
    tensor = np.ascontiguousarray(tensor)
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            bits = float32_to_bfloat16(tensor.astype(np.float32, copy=False))
            result = bits.astype(DTYPES[dtype], copy=False)
            overflowed = (result & 0x7FFF) == 0x7F80
        else:
            result = tensor.astype(DTYPES[dtype], copy=False)
            overflowed = np.isinf(result) if result.dtype != tensor.dtype else np.False_
    if (overflowed & np.isfinite(tensor)).any():
        worst = np.abs(tensor, where=np.isfinite(tensor), out=np.zeros_like(tensor)).max()
        raise CheckpointError(f"tensor {quote(name)} holds {worst:.4g}: too large for {dtype}")
    return result
