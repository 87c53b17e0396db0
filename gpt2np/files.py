"""Files: texts of any system are read as the same text, and what is written is whole or not there.

A file is written under another name, and renamed at the end.
"""

from __future__ import annotations

import codecs
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gpt2np.errors import InputError

_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write; it takes its name, and another's place, only if all goes well.

    A link stays a link, to the new file. A device or a pipe is written to as it is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a"
    ...     with replacing(path) as file:
    ...         _ = file.write(b"whole")
    ...     path.read_bytes()
    b'whole'
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        new = fresh.open("wb")
    except OSError as error:  # of a name that nobody knows
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with new as file:
            yield file
        if path.exists():
            shutil.copymode(path, fresh)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole text file, in UTF-8 and with the line ends as they are."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a text file; see `as_text`."""
    return as_text(Path(path).read_bytes(), os.fspath(path))


def as_text(data: bytes, name: str) -> str:
    r"""Give the text of a file in UTF-8, the same whatever system wrote it.

    A byte-order mark at its beginning is no text, and Windows' line break, ``\r\n``, is ``\n``.

    Raises
    ------
    InputError
        It is not UTF-8; `name` is what the message calls it.

    Examples
    --------
    >>> as_text(b"\xef\xbb\xbfone\r\ntwo", "a.txt")
    'one\ntwo'
    """
    for mark, encoding in _OTHER_MARKS.items():
        if data.startswith(mark):
            raise InputError(f"{name} is {encoding}: convert it to UTF-8")
    if len(data) > 3 and any(data[:64:2]) != any(data[1:64:2]):  # every other byte is 0
        raise InputError(f"{name} is UTF-16 without a mark: convert it to UTF-8")
    try:
        return data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}; "
            "convert it to UTF-8"
        ) from None
