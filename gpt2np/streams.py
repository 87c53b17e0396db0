"""Standard input, output and error, each of which may be closed, full, broken or a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


def say(text: str) -> None:
    """Tell the user something on standard error, and nobody if that cannot be written to."""
    if sys.stderr is not None:  # else print would take standard output for it
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Let all three streams be there in the body, and no character fail to be read or shown.

    What is written to a closed standard output or read from a closed standard input fails with
    the OSError EBADF; it never reaches a file that happens to be opened under that number.

    Files and pipes are UTF-8 with ``\\n`` whatever the system, as all files are that gpt2np
    writes. A terminal keeps its encoding, in which a character that it lacks becomes a question
    mark.
    """
    missing = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in missing:
        setattr(sys, name, _stand_in(name))
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            keep = stream.isatty() or "PYTHONIOENCODING" in os.environ
            # A byte-order mark in front of what is read is no text.
            encoding = "utf-8-sig" if stream is sys.stdin else "utf-8"
            stream.reconfigure(encoding=None if keep else encoding, errors="replace")
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(newline="\n")
    try:
        try:
            yield
        finally:
            # Now, while a failure can still be told: the interpreter's own flush at exit is too
            # late.
            flush(sys.stdout)
    finally:
        with suppress(OSError, ValueError):
            flush(sys.stderr)
        for name in missing:
            setattr(sys, name, None)


def flush(stream: TextIO) -> None:
    """Write what is buffered; after a failure, nothing is left to fail again at exit."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError):  # of a stream that is no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise


def _stand_in(name: str) -> TextIO:
    """Open nothing in place of a stream that is closed; no other file gets its number then."""
    flags = os.O_RDONLY if name == "stdout" else os.O_WRONLY
    descriptor = os.open(os.devnull, flags)
    return open(
        descriptor,
        "r" if name == "stdin" else "w",
        encoding="utf-8",
        errors="replace",
        closefd=descriptor > 2,
    )


def takes_colours(terminal: TextIO) -> bool:
    """Whether a terminal takes escape codes, and the user wants them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return os.name != "nt" or _takes_escape_codes_on_windows(terminal)


def _takes_escape_codes_on_windows(stream: TextIO) -> bool:
    """Ask the console to take them, as one before Windows 10 cannot."""
    import ctypes
    import msvcrt

    try:
        kernel32 = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
        handle = msvcrt.get_osfhandle(stream.fileno())  # type: ignore[attr-defined,unused-ignore]
        mode = ctypes.c_ulong()
        processing = 0x0004
        return bool(
            kernel32.GetConsoleMode(handle, ctypes.byref(mode))
            and kernel32.SetConsoleMode(handle, mode.value | processing)
        )
    except (OSError, AttributeError):
        return False
