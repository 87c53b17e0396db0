"""Files: texts of any system read as the same text, and what is written is whole or not there.

A file is written beside its place under a name that nobody can guess, locked, and renamed at the
end. What a run leaves behind that was killed has no lock any more: the next run removes it.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gpt2np.errors import InputError
from gpt2np.streams import say

try:
    import fcntl
except ImportError:  # Windows, or Python in a browser
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:
    msvcrt = None  # type: ignore[assignment]

WINDOWS = os.name == "nt"
PATIENCE = 10.0  # seconds for which a virus scanner or an indexer may hold a file on Windows

_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_LEFTOVER = re.compile(r"\.gpt2np-[0-9a-f]{16}\.tmp")
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
_told: set[Path] = set()  # the folders whose lack of locks was told


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a text file; see `as_text`."""
    try:
        return as_text(Path(path).read_bytes(), os.fspath(path))
    except OverflowError:
        raise InputError(f"{path} is too large for a Python of 32 bits: use one of 64") from None


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


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole text file, in UTF-8 and with the line ends as they are."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


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
    path = Path(path)
    old = _mode(path)
    if old is not None and stat.S_ISDIR(old):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if old is not None and not stat.S_ISREG(old):
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))  # of a pipe, as /dev/stdout may be, it would lead nowhere
    _remove_leftovers(path.parent)
    descriptor, fresh = _create_beside(path, 0o666 if old is None else stat.S_IMODE(old))
    try:
        try:
            with open(descriptor, "wb", closefd=False) as file:  # which the caller may close
                yield file
            if old is not None:
                shutil.copymode(path, fresh)
            if not WINDOWS:  # there, no open file can be renamed
                rename(fresh, path)
        finally:
            os.close(descriptor)
        if WINDOWS:
            rename(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def rename(source: Path, target: Path) -> None:
    """Give a file or folder another's name and place; whatever fails is told of the target.

    On Windows, a file that another program just looks at cannot be replaced: wait for it.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            os.replace(source, target)
        except OSError as error:
            what = error.strerror
            if WINDOWS and isinstance(error, PermissionError):
                if time.monotonic() < end:
                    time.sleep(0.1)
                    continue
                what = (
                    "is in use; close what has it open, a model loaded from it too, and try again"
                )
            raise OSError(error.errno, what, str(target)) from error
        return


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file, for as long as it stays open: whether we have it; None where the file
    system has no locks."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            at = os.lseek(descriptor, 0, os.SEEK_CUR)
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # bytes that nobody reads: others may not
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(descriptor, at, os.SEEK_SET)
        else:
            return None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


def tell_of_no_locks(folder: Path, todo: str = "let one process at a time write there") -> None:
    """Say what to do where `try_lock` gave None; once of each folder, and not in a browser."""
    if folder not in _told and (fcntl or msvcrt):
        _told.add(folder)
        say(f"gpt2np: {folder} is on a file system without locks: {todo}")


def lock_holder(descriptor: int) -> str:
    """Say who has locked a file, where the system tells."""
    file = os.fstat(descriptor)
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with suppress(OSError), open("/proc/locks", encoding="ascii") as locks:
        for line in locks:
            match line.split():
                case [_, "FLOCK", _, "WRITE", process, where, *_] if where == place:
                    return f"process {process}"
    return "another process"


def check_output(
    path: str | os.PathLike[str],
    how: str,
    *,
    read: Iterable[str | os.PathLike[str]],
    own: re.Pattern[bytes] | None = None,
    force: bool = False,
) -> None:
    """Refuse to write over what is read, or over what somebody else may miss.

    Parameters
    ----------
    path : str or path
        What is to be written.
    how : str
        How it was given, for the message.
    read : iterable of str or path
        Files and folders that are read meanwhile: no output may be one of them or lie in one.
    own : re.Pattern of bytes, optional
        How an earlier output begins, which may be replaced.
    force : bool
        Replace any other file that is not read.

    Raises
    ------
    InputError
        The output would destroy something; it says what to do.
    """
    target = Path(os.path.realpath(path))
    for source in read:
        if os.path.isdir(source) and target.is_relative_to(os.path.realpath(source)):
            raise InputError(f"{path} lies in {source}, which is read: give another {how}")
        if target.exists() and os.path.exists(source) and os.path.samefile(source, target):
            raise InputError(f"{path} is one of the files to read: give another {how}")
    if force or not target.is_file():
        return
    with target.open("rb") as file:
        beginning = file.read(1024)
    if beginning and not (own and own.match(beginning)):
        foreign = ", and not as this command writes it" if own else ""
        raise InputError(
            f"{path} is there already{foreign}: give another {how}, or replace it by --force"
        )


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _create_beside(path: Path, mode: int) -> tuple[int, Path]:
    """Create and lock a file under a name that was free and cannot be guessed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        fresh = path.with_name(f".gpt2np-{secrets.token_hex(8)}.tmp")
        try:
            descriptor = os.open(fresh, flags, mode)
        except FileExistsError:
            continue
        except OSError as error:  # of a name that nobody knows
            raise OSError(error.errno, error.strerror, str(path)) from None
        try:
            if WINDOWS:
                return descriptor, fresh
            held = try_lock(descriptor)
            if held is None:
                tell_of_no_locks(path.parent)
            # Another run may have taken it for a leftover before it was locked.
            if held is not False and _is_at(descriptor, fresh):
                return descriptor, fresh
        except OSError:
            fresh.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_leftovers(folder: Path) -> None:
    """Remove what runs that were killed left in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _LEFTOVER.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(file: Path) -> None:
    if WINDOWS:  # no open file can be removed there, and this one may be about to be renamed
        if time.time() - file.stat().st_mtime > PATIENCE + 60:
            file.unlink()
        return
    descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if try_lock(descriptor) and _is_at(descriptor, file):
            file.unlink()
    finally:
        os.close(descriptor)
