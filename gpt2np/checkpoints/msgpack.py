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


# First byte -> how what follows is packed.
NUMBERS = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
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
        raise CheckpointError(f"{where} is cut short or damaged: download it again") from error
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
        match kind:
            case "map":
                return self._map(size, depth)
            case "list":
                return [self.value(depth + 1) for _ in range(size)]
            case "text":
                start, stop = self._span(size)
                return self.data[start:stop].tobytes().decode("utf-8")
            case "bytes":
                return Span(*self._span(size))
            case "extension":
                code = self._number(">b")
                return Extension(code, *self._span(size))
        return size  # the value itself

    def _head(self) -> tuple[str, Any]:
        """What the next value is, with its size or, if it has none, with itself."""
        first = self.data[self.position]
        self.position += 1
        if first < 0x80:
            return "", first
        if first < 0xC0:
            kind, mask = (
                ("map", 15) if first < 0x90 else ("list", 15) if first < 0xA0 else ("text", 31)
            )
            return kind, first & mask
        if first >= 0xE0:
            return "", first - 0x100
        if first in CONSTANTS:
            return "", CONSTANTS[first]
        if first in NUMBERS:
            return "", self._number(NUMBERS[first])
        if first in SIZED:
            kind, form = SIZED[first]
            return kind, self._number(form)
        if 0xD4 <= first <= 0xD8:
            return "extension", 1 << (first - 0xD4)
        raise CheckpointError("is damaged: it has a value of a kind that does not exist")

    def _map(self, size: int, depth: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for _ in range(size):
            key = self.value(depth + 1)
            if not isinstance(key, str | int):
                raise CheckpointError(f"has {quote(key)} as a key")
            if key in result:
                raise CheckpointError(f"is damaged: the key {quote(key)} stands twice")
            result[key] = self.value(depth + 1)
        return result

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return number

    def _span(self, size: int) -> tuple[int, int]:
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise IndexError
        return start, self.position
