"""Flax's flax_model.msgpack: nested maps in MessagePack, whose leaves are arrays.

An array is an extension of type 1 that holds its shape, the name of its type and its bytes; one of
a gigabyte or more is a map of flat parts. Hugging Face's Flax GPT-2 keeps matrices as [out, in].
https://flax.readthedocs.io/en/latest/api_reference/flax.serialization.html
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpt2np.checkpoints import msgpack
from gpt2np.checkpoints.base import DTYPES, Array, Bytes, Checkpoint, check_shape, quote, view
from gpt2np.errors import CheckpointError

ARRAY, SCALAR = 1, 3  # the types of extension
CHUNKED = "__msgpack_chunked_array__"
MAX_DEPTH = 20


# First byte of a map or of a text -> how many bytes of its size follow; others follow none.
MAPS = {0xDE: 2, 0xDF: 4} | dict.fromkeys(range(0x81, 0x90), 0)
TEXTS = {0xD9: 1} | dict.fromkeys(range(0xA1, 0xC0), 0)


def recognises(data: Bytes) -> bool:
    """Whether it is a map whose first key begins as a word."""
    head = data[:8].tobytes().ljust(8, b"\0")
    at = 1 + MAPS.get(head[0], 7)
    key = at + 1 + TEXTS.get(head[at], 7) if at < len(head) else len(head)
    return head[key : key + 1].isalpha() or head[key : key + 1] == b"_"


def read(path: Path, data: Bytes, *, verify: bool = False) -> Checkpoint:
    """Read one file. The format has no checksums, so `verify` has nothing to add."""
    top = msgpack.load(data, str(path))
    arrays = {name: _array(data, leaf, name, path) for name, leaf in _leaves(top, path)}
    if not arrays:
        raise CheckpointError(f"{path} is a MessagePack file without arrays: not one of Flax's")
    return Checkpoint(
        "flax",
        (path,),
        {name: array for name, (array, _) in arrays.items()},
        {name: dtype for name, (_, dtype) in arrays.items()},
    )


def _leaves(top: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """The arrays of nested maps, each under the keys that lead to it; other values are left out."""
    rest: list[tuple[str, Any, int]] = [("", top, 0)]
    while rest:
        name, value, depth = rest.pop()
        if isinstance(value, dict) and CHUNKED not in value:
            if depth == MAX_DEPTH:
                raise CheckpointError(f"{path} is nested more than {MAX_DEPTH} deep")
            for key, inner in reversed(value.items()):
                if not isinstance(key, str):
                    raise CheckpointError(f"{path} has the key {quote(key)}, which is no name")
                rest.append((f"{name}/{key}" if name else key, inner, depth + 1))
        elif isinstance(value, dict) or (
            isinstance(value, msgpack.Extension) and value.code in (ARRAY, SCALAR)
        ):
            yield name, value


def _array(data: Bytes, leaf: Any, name: str, path: Path) -> tuple[Array, str]:
    """The array of a leaf and its element type."""
    where = f"{path}: tensor {quote(name)}"
    if not isinstance(leaf, dict):
        return _whole(data, leaf, where)
    shape = check_shape(_listed(leaf.get("shape"), where), where)
    parts = [_whole(data, part, where) for part in _listed(leaf.get("chunks"), where)]
    dtypes = {dtype for _, dtype in parts}
    if len(dtypes) != 1 or any(part.ndim != 1 for part, _ in parts):
        raise CheckpointError(f"{where} is damaged: its parts do not fit together")
    if sum(part.size for part, _ in parts) != math.prod(shape):
        raise CheckpointError(f"{where}, {list(shape)}, has parts of another size")
    array = np.concatenate([part for part, _ in parts]).reshape(shape)
    array.flags.writeable = False
    return array, dtypes.pop()


def _listed(value: Any, where: str) -> list[Any]:
    """The list that a map with the keys "0", "1", "2" ... stands for."""
    if not isinstance(value, Mapping) or list(value) != [str(i) for i in range(len(value))]:
        raise CheckpointError(f"{where} is damaged: it is in parts that are not numbered")
    return list(value.values())


def _whole(data: Bytes, leaf: Any, where: str) -> tuple[Array, str]:
    """The array of an extension: its shape, the name of its type, its bytes."""
    if not isinstance(leaf, msgpack.Extension) or leaf.code not in (ARRAY, SCALAR):
        raise CheckpointError(f"{where} is not an array")
    match msgpack.load(data[: leaf.stop], where, leaf.start):
        case [list(sizes), str(dtype), msgpack.Span(start, stop)]:
            shape = check_shape(sizes, where)
        case _:
            raise CheckpointError(f"{where} lacks a proper shape, type and bytes")
    if dtype not in DTYPES:
        raise CheckpointError(f"{where} is of the type {quote(dtype)}, which is not read")
    size = math.prod(shape) * DTYPES[dtype].itemsize
    if stop - start != size:
        raise CheckpointError(
            f"{where}, {dtype} {list(shape)}, needs {size} bytes but has {stop - start}"
        )
    return view(data, start, dtype, shape), dtype
