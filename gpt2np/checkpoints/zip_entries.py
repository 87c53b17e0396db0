"""Where the members of a zip archive stand in it.

torch.save stores its tensors in a zip uncompressed and aligned so that they can be mapped in
place; the standard library's zipfile does not tell where a member's bytes begin.
https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpt2np.checkpoints.base import Bytes, quote
from gpt2np.errors import CheckpointError

MAX_ENTRIES = 20_000

END = struct.Struct("<4s6xH4xI2x")  # entries; where the directory begins
LOCATOR = struct.Struct("<4s4xQ4x")  # where END64 begins
END64 = struct.Struct("<4s28xQ8xQ")  # as END
# flags, method, crc, two sizes, three lengths, offset
CENTRAL = struct.Struct("<4s4xHH4xIIIHHH8xI")
LOCAL = struct.Struct("<4s22xHH")  # the lengths of name and extra field


ENCRYPTED = 1  # the flag
DEFLATED = 8  # the method


class Entry(NamedTuple):
    start: int
    stop: int
    crc32: int
    stored: bool  # that is, neither compressed nor encrypted
    deflated: bool
    encrypted: bool
    size: int  # when unpacked


def zip_entries(path: Path, data: Bytes) -> dict[str, Entry]:
    """Name -> the span of its bytes, for every member of the archive."""
    view = data.data
    entries: dict[str, Entry] = {}
    try:
        count, position = _directory(view)
        if count > MAX_ENTRIES:
            raise CheckpointError(f"{path} is a zip of {count} members: no checkpoint has as many")
        for _ in range(count):
            name, entry, position = _entry(view, position)
            if name in entries:
                raise CheckpointError(f"{path} is damaged: it has two members {quote(name)}")
            entries[name] = entry
    except struct.error as error:
        raise CheckpointError(
            f"{path} is cut short or damaged, its zip directory is broken: download it again"
        ) from error
    return entries


def _directory(view: memoryview) -> tuple[int, int]:
    """How many members there are, and where the first one's directory entry stands."""
    first = max(0, len(view) - END.size - 0xFFFF)  # a comment may follow
    position = first + bytes(view[first:]).rfind(b"PK\5\6")
    count, start = _unpack(END, view, position, b"PK\5\6")
    if bytes(view[max(0, position - LOCATOR.size) : position]).startswith(b"PK\6\7"):
        (position,) = _unpack(LOCATOR, view, position - LOCATOR.size, b"PK\6\7")
        count, start = _unpack(END64, view, position, b"PK\6\6")
    return count, start


def _entry(view: memoryview, position: int) -> tuple[str, Entry, int]:
    """Name and span of the member whose directory entry is at `position`; where the next one is."""
    numbers = _unpack(CENTRAL, view, position, b"PK\1\2")
    flags, method, crc32, packed, size, *lengths, offset = numbers
    position += CENTRAL.size
    after = position + sum(lengths)
    name = bytes(view[position : position + lengths[0]])
    wide = _zip64_extra(bytes(view[position + lengths[0] : after]))
    size, packed, offset = (next(wide) if n == 0xFFFFFFFF else n for n in (size, packed, offset))
    start = offset + LOCAL.size + sum(_unpack(LOCAL, view, offset, b"PK\3\4"))
    named = view[offset + LOCAL.size : offset + LOCAL.size + len(name)] == name
    if not named or max(start + packed, after) > len(view):
        raise struct.error("a member is not where it should be")
    encrypted = bool(flags & ENCRYPTED)
    stored = method == 0 and size == packed and not encrypted
    entry = Entry(start, start + packed, crc32, stored, method == DEFLATED, encrypted, size)
    return name.decode("utf-8", "replace"), entry, after


def _zip64_extra(extra: bytes) -> Iterator[int]:
    """The eight-byte numbers that stand for those of four bytes that are all ones."""
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            yield from struct.unpack_from(f"<{size // 8}Q", extra, position + 4)
        position += 4 + size
    raise struct.error("a number of zip64 is missing")


def _unpack(form: struct.Struct, view: memoryview, position: int, signature: bytes) -> list[int]:
    """The numbers of a record, which begins with its signature."""
    found, *numbers = form.unpack_from(view, min(position, len(view)))
    if found != signature:
        raise struct.error(f"no {signature!r} at byte {position}")
    return numbers
