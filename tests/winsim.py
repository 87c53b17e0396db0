"""Imitate some of Windows' rules in this process:

    PYTHONPATH=tests pytest -p winsim

No file that is open or mapped can be removed, renamed or replaced; nobody has the right to make
links; modules, signals and functions that Windows lacks are missing; and what is written as text
without naming the line ends gets Windows' own.
"""

# What itself needs the modules below is imported before they go.
import asyncio  # noqa: F401
import builtins
import contextlib
import ctypes  # noqa: F401
import doctest  # noqa: F401
import errno
import fcntl
import getpass  # noqa: F401
import http.server  # noqa: F401
import importlib.abc
import io
import multiprocessing  # noqa: F401
import os
import pathlib
import pdb  # noqa: F401
import shutil
import signal
import socketserver  # noqa: F401
import ssl  # noqa: F401
import subprocess
import sys
import tempfile  # noqa: F401
import types
import unittest  # noqa: F401

import _pytest.capture  # noqa: F401

ABSENT = {"fcntl", "resource", "readline", "pty", "termios", "tty", "grp", "pwd"}


class Absent(importlib.abc.MetaPathFinder):
    """Finds none of the modules that Windows lacks."""

    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


open_, listdir, unlink_, rename_, replace_ = (
    builtins.open, os.listdir, os.unlink, os.rename, os.replace,
)  # fmt: skip


def in_use(path):
    """Whether this process has a file open or mapped, or one in a folder."""
    held = set()
    with open_("/proc/self/maps", encoding="utf-8") as maps:
        held |= {fields[5].rstrip("\n") for line in maps if len(fields := line.split(None, 5)) == 6}
    for number in listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            held.add(os.readlink(f"/proc/self/fd/{number}"))
    path = os.path.realpath(path)
    return any(each == path or each.startswith(f"{path}/") for each in held)


def denied(*paths):
    """The error of Windows, which names both files."""
    first, second = (*map(str, paths), None)[:2]
    return PermissionError(errno.EACCES, "Access is denied [winsim]", first, None, second)


def unlink(path, *, dir_fd=None):
    if dir_fd is None and in_use(path):
        raise denied(path)
    unlink_(path, dir_fd=dir_fd)


def replace(source, target, **others):
    if in_use(source) or in_use(target) or os.path.isdir(target):
        raise denied(source, target)
    replace_(source, target, **others)


def rename(source, target, **others):
    if in_use(source) or os.path.exists(target):
        raise denied(source, target)
    rename_(source, target, **others)


def symlink(*_, **__):
    raise OSError(errno.EPERM, "A required privilege is not held by the client [winsim]")


def write_text(self, data, encoding=None, errors=None, newline=None):
    with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
        return file.write(data)


def open_as_windows(
    file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *more, **named
):
    if "b" not in mode and newline is None and set(mode) & set("wax+"):
        newline = "\r\n"
    return open_(file, mode, buffering, encoding, errors, newline, *more, **named)


def locking(descriptor, mode, count):
    """Windows' locks, as far as they are asked for here."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied [winsim]") from None


def pytest_load_initial_conftests():
    """Begin, if this is asked for as a plugin; that a module is just imported is no reason."""
    sys.meta_path.insert(0, Absent())
    for name in ABSENT:
        sys.modules.pop(name, None)
    sys.modules["msvcrt"] = types.ModuleType("msvcrt")
    sys.modules["msvcrt"].LK_NBLCK, sys.modules["msvcrt"].locking = 2, locking
    os.unlink = os.remove = unlink
    os.replace, os.rename, os.symlink = replace, rename, symlink
    shutil._use_fd_functions = False  # which would get past these
    builtins.open = io.open = open_as_windows
    pathlib.Path.write_text = write_text
    for name in ("SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGPIPE"):
        delattr(signal, name)
    for name in ("setitimer", "alarm", "pthread_sigmask"):
        delattr(signal, name)
    for name in ("mkfifo", "sched_getaffinity"):
        delattr(os, name)

    subprocess.Popen.kill = subprocess.Popen.terminate

    from gpt2np import files

    files.WINDOWS, files.PATIENCE = True, 0.2
