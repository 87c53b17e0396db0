"""Files that are whole or not there: written under another name, and renamed at the end."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


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
