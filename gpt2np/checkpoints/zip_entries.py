"""Where the members of a zip archive stand in its file, which zipfile all but tells.

torch.save stores its tensors in a zip uncompressed and aligned so that they can be mapped in place.
"""

import io
import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

from gpt2np.checkpoints.base import Bytes, quote
from gpt2np.errors import CheckpointError

MAX_DIRECTORY = 4_000_000  # bytes: of some 20,000 members

LOCAL = struct.Struct("<4s22xHH")  # in front of a member: the lengths of name and extra field


class Entry(NamedTuple):
    """A member: its bytes' span, and what they are."""

    start: int
    stop: int
    crc32: int
    stored: bool  # that is, neither packed nor encrypted
    method: int  # by which it is packed
    encrypted: bool
    size: int  # when unpacked


def zip_entries(path: Path, data: Bytes) -> dict[str, Entry]:
    """Name -> the span of its bytes, for every member of the archive."""
    entries: dict[str, Entry] = {}
    try:
        with _File(path) as file, zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if info.orig_filename in entries:
                    name = quote(info.orig_filename)
                    raise CheckpointError(f"{path} is damaged: it has two members {name}")
                entries[info.orig_filename] = _entry(info, data)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{path} is cut short or damaged, its zip directory is broken: download it again"
        ) from error
    return entries


def _entry(info: zipfile.ZipInfo, data: Bytes) -> Entry:
    """Find the bytes of a member behind its own header, which must be there and carry its name."""
    begin = info.header_offset + LOCAL.size
    signature, *lengths = LOCAL.unpack(data[info.header_offset : begin].tobytes())
    start = begin + sum(lengths)
    stop = start + info.compress_size
    name = data[begin : begin + lengths[0]].tobytes()
    encoding = "utf-8" if info.flag_bits & 0x800 else "cp437"
    if signature != b"PK\3\4" or name.decode(encoding) != info.orig_filename or stop > len(data):
        raise zipfile.BadZipFile("a member is not where it should be")
    method, size, encrypted = info.compress_type, info.file_size, bool(info.flag_bits & 1)
    stored = method == zipfile.ZIP_STORED and not encrypted and size == info.compress_size
    return Entry(start, stop, info.CRC, stored, method, encrypted, size)


class _File(io.FileIO):
    """A file whose directory zipfile cannot read if it has too many members to keep."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY:
            raise CheckpointError(
                f"{self.name!s} is a zip with a directory of {size} bytes: too many members"
            )
        return super().read(size) or b""
