"""MessagePack, as far as a checkpoint needs it: bytes and extensions stay where they are.

https://github.com/msgpack/msgpack/blob/master/spec.md
"""

import struct
from typing import Any, NamedTuple

from gpt2np.checkpoints.base import Bytes, quote
from gpt2np.errors import CheckpointError

MAX_VALUES = 200_000  # GPT-2 XL has some 4,000
MAX_DEPTH = 40


class Span(NamedTuple):
    """Bytes, by where they stand."""

    start: int
    stop: int


class Extension(NamedTuple):
    """A value of an application's own type."""

    code: int
    start: int
    stop: int


# From which first byte to which, what the value is; how far in, its size or itself.
SMALL = (
    (0x00, 0x80, ""), (0x80, 0x90, "map"), (0x90, 0xA0, "list"), (0xA0, 0xC0, "text"),
)  # fmt: skip
# First byte -> how what follows is packed.
NUMBERS = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
NEGATIVE = 0xE0  # from here on
FIXED = {0xD4 + n: 1 << n for n in range(5)}  # the sizes of extensions
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
# First byte -> what it is, and how its length is packed.
SIZED = {
    0xC4: ("bytes", ">B"), 0xC5: ("bytes", ">H"), 0xC6: ("bytes", ">I"),
    0xC7: ("extension", ">B"), 0xC8: ("extension", ">H"), 0xC9: ("extension", ">I"),
    0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"),
    0xDC: ("list", ">H"), 0xDD: ("list", ">I"),
    0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip


def load(data: Bytes, where: str, start: int = 0) -> Any:
    """The value that stands at `start` and ends with `data`."""
    reader = Reader(data, start)
    try:
        value = reader.value()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{where} is MessagePack (as Flax writes), cut short or damaged: download it again"
        ) from error
    except CheckpointError as error:
        raise CheckpointError(f"{where} {error}") from None
    if reader.position != len(data):
        raise CheckpointError(f"{where} is damaged: {len(data) - reader.position} bytes are left")
    return value


class Reader:
    """Values one after another, each counted."""

    def __init__(self, data: Bytes, position: int) -> None:
        self.data, self.position = data.data, position
        self.values = 0

    def value(self, depth: int = 0) -> Any:
        """Read the value at the position, and those inside it."""
        self.values += 1
        if self.values > MAX_VALUES or depth > MAX_DEPTH:
            limit = f"{MAX_VALUES} values" if depth <= MAX_DEPTH else f"{MAX_DEPTH} levels"
            raise CheckpointError(f"has more than {limit}, which no checkpoint needs")
        kind, size = self._head()
        if kind in ("map", "list"):
            many = [self.value(depth + 1) for _ in range(size << (kind == "map"))]
            return many if kind == "list" else _map(many[::2], many[1::2])
        if kind == "text":
            start, stop = self._span(size)
            return self.data[start:stop].tobytes().decode("utf-8")
        if kind == "bytes":
            return Span(*self._span(size))
        if kind == "extension":
            code = self._number(">b")
            return Extension(code, *self._span(size))
        return size  # the value itself

    def _head(self) -> tuple[str, Any]:
        """What the next value is, with its size or, if it has none, with itself."""
        first = self.data[self.position]
        self.position += 1
        for begin, stop, kind in SMALL:
            if begin <= first < stop:
                return kind, first - begin
        if first >= NEGATIVE:
            return "", first - 0x100
        if first in FIXED:
            return "extension", FIXED[first]
        if first in CONSTANTS:
            return "", CONSTANTS[first]
        if first in NUMBERS:
            return "", self._number(NUMBERS[first])
        if first in SIZED:
            kind, form = SIZED[first]
            return kind, self._number(form)
        raise CheckpointError("is damaged: it has a value of a kind that does not exist")

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return number

    def _span(self, size: int) -> tuple[int, int]:
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise IndexError
        return start, self.position


def _map(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        if not isinstance(key, str | int):
            raise CheckpointError(f"has {quote(key)} as a key")
        if key in result:
            raise CheckpointError(f"is damaged: the key {quote(key)} stands twice")
        result[key] = value
    return result
