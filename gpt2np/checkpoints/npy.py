"""NumPy's .npy, one array with a header in front, and a folder that has one for each tensor.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

import math
import re
from itertools import islice
from pathlib import Path

import numpy as np

from gpt2np.checkpoints.base import DTYPES, Array, Bytes, Checkpoint, check_shape, map_file, view
from gpt2np.checkpoints.base import quote as quoted
from gpt2np.errors import CheckpointError

MAGIC = b"\x93NUMPY"
MAX_HEADER = 4_096  # an array of numbers needs 128
MAX_FILES = 20_000
SMALL = 1 << 16  # bytes; each mapping keeps its file open, and some systems allow only 256

# What stands for an element type behind the sign of its byte order.
CODES = {
    "f8": "float64", "f4": "float32", "f2": "float16",
    "i8": "int64",   "i4": "int32",   "i2": "int16",  "i1": "int8",
    "u8": "uint64",  "u4": "uint32",  "u2": "uint16", "u1": "uint8",
    "b1": "bool",
}  # fmt: skip

# The header is the text of a Python dictionary; no more is understood than what NumPy, MLX and
# others write for an array of numbers, and nothing is evaluated.
ENTRY = re.compile(
    r"\s*'(?:(descr)':\s*'([^'\\]*)'|(fortran_order)':\s*(True|False)"
    r"|(shape)':\s*\(((?:\s*\d{1,19}L?\s*,)*(?:\s*\d{1,19}L?)?\s*)\))\s*(?:,|$)"
)


def recognises(data: Bytes) -> bool:
    return data[: len(MAGIC)].tobytes() == MAGIC


def read_array(data: Bytes, where: str) -> tuple[Array, str]:
    """The array that these bytes are, a view of them where it can be, and its element type."""
    start, header = _header(data, where)
    code, order, sizes = _parse(header, where)
    if code[1:] not in CODES or code[0] not in "<>|=":
        kind = "Python objects, which are never loaded" if code[1:2] == "O" else f"{quoted(code)}"
        raise CheckpointError(f"{where} holds {kind}, not numbers")
    dtype = CODES[code[1:]]
    if code[0] == ">":
        raise CheckpointError(f"{where} is big-endian: save it again as little-endian")
    shape = check_shape(sizes, where)
    size = math.prod(shape) * DTYPES[dtype].itemsize
    if len(data) - start != size:
        raise CheckpointError(
            f"{where}, {dtype} {list(shape)}, should have {size} bytes behind its header but has "
            f"{len(data) - start}: save or download it again"
        )
    array = view(data, start, dtype, shape if order == "False" else shape[::-1])
    return (array if order == "False" else array.T), dtype


def _header(data: Bytes, where: str) -> tuple[int, str]:
    """Where the numbers begin, and the text before them."""
    if not recognises(data):
        raise CheckpointError(f"{where} is not a .npy array")
    width = {1: 2, 2: 4, 3: 4}.get(int(data[6]) if len(data) > 6 else 0)
    if width is None:
        raise CheckpointError(f"{where} is a .npy array of an unknown version")
    begin = 8 + width
    length = int.from_bytes(data[8:begin].tobytes(), "little")
    if begin + length > len(data):
        raise CheckpointError(f"{where} is cut short, in its header: save or download it again")
    if length > MAX_HEADER:
        raise CheckpointError(f"{where} has a header of {length} bytes, which no numbers need")
    return begin + length, data[begin : begin + length].tobytes().decode("latin-1").strip()


def _parse(header: str, where: str) -> tuple[str, str, list[int]]:
    """Code of the element type, "True" for Fortran's order or "False", and the shape."""
    found: dict[str, str] = {}
    inside, position = header[1:-1].rstrip(), 0
    while position < len(inside):
        match = ENTRY.match(inside, position)
        if match is None:
            break
        pairs = zip(match.groups()[::2], match.groups()[1::2], strict=True)
        found |= {key: value for key, value in pairs if key}
        position = match.end()
    whole = header[:1] == "{" and header[-1:] == "}" and position >= len(inside)
    if not whole or len(found) != 3 or not found["descr"]:
        raise CheckpointError(
            f"{where} is not an array of plain numbers: its header is {quoted(header)}"
        )
    sizes = [int(size.strip().rstrip("L")) for size in found["shape"].split(",") if size.strip()]
    return found["descr"], found["fortran_order"], sizes


def files_in(folder: Path) -> list[Path]:
    """The .npy files of a folder; else those of its `model`, as OpenAI's names make paths."""
    inside = folder / "model"
    openai = inside.rglob("*.npy") if (inside / "wte.npy").is_file() else ()
    for found in (folder.glob("*.npy"), openai):
        files = sorted(islice((file for file in found if file.is_file()), MAX_FILES + 1))
        if len(files) > MAX_FILES:
            raise CheckpointError(f"{folder} holds more than {MAX_FILES} arrays: no GPT-2 does")
        if files:
            return files
    return []


def read_folder(folder: Path) -> Checkpoint:
    """Read all arrays of a folder, each under the name of its file."""
    tensors: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    files = files_in(folder)
    for file in files:
        name = file.relative_to(folder).with_suffix("").as_posix()
        data = map_file(file)
        data = data if len(data) > SMALL else np.frombuffer(data.tobytes(), np.uint8)
        tensors[name], dtypes[name] = read_array(data, str(file))
    return Checkpoint("npy", tuple(files), tensors, dtypes)
