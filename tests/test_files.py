"""Files that are written whole: under whose name, to what kind of file, with which errors."""

import codecs
import errno
import math
import os
import secrets
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from shared import needs_posix

from gpt2np import files
from gpt2np.errors import InputError
from gpt2np.files import read_text, replacing, try_lock, write_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"\xef\xbb\xbf", ""),
        (b"\xef\xbb\xbfa\r\nb\n\r\n", "a\nb\n\n"),
        (b"\r\r\n\r", "\r\n\r"),
        (b"a\0b", "a\0b"),
        ("\ufeff\ufeffa \ufeff".encode(), "\ufeffa \ufeff"),  # only the first is a mark
    ],
)
def test_a_text_is_the_same_whatever_system_wrote_it(tmp_path, data, text):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert read_text(path) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("To be".encode("utf-16"), "a.txt is UTF-16: convert it to UTF-8"),
        (codecs.BOM_UTF16_BE + "To be".encode("utf-16-be"), "a.txt is UTF-16: convert"),
        ("To be".encode("utf-16-le"), "a.txt is UTF-16 without a mark: convert"),
        ("To be".encode("utf-16-be"), "a.txt is UTF-16 without a mark: convert"),
        ("To be".encode("utf-32"), "a.txt is UTF-32: convert"),
        ("\ufeffcaf\xe9".encode() + b"\xe9", "a.txt is not UTF-8: byte 8 is 0xe9; convert"),
    ],
)
def test_what_is_no_utf_8_is_named(tmp_path, data, message):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_text(path)


def test_what_no_bytes_can_hold_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_bytes", raising(OverflowError("unbounded read")))
    with pytest.raises(InputError, match=r"a.txt is too large for a Python of 32 bits"):
        read_text(tmp_path / "a.txt")


def test_nothing_changes_unless_all_goes_well(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", "not bytes"])
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


@needs_posix
def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("target")
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@needs_posix
def test_a_private_file_stays_private(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    write_text(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@needs_posix
def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "new")
    reader.join(10)
    assert read == ["new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    with pytest.raises(IsADirectoryError) as caught:
        write_text(tmp_path, "new")
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "none" / "a", "new")
    assert caught.value.filename == str(tmp_path / "none" / "a")


# Temporary files


def test_names_as_long_as_a_file_system_has_them(tmp_path):
    for length in (240, 255):
        write_text(tmp_path / ("n" * length), "new")
        assert (tmp_path / ("n" * length)).read_text() == "new"
    with pytest.raises(OSError, match=r".") as caught:
        write_text(tmp_path / ("n" * 256), "new")
    assert caught.value.filename == str(tmp_path / ("n" * 256))


@needs_posix
def test_no_name_can_be_planted(tmp_path, monkeypatch):
    """Even a name that was guessed is not written to: another one is taken."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    names = iter(["0" * 16, "1" * 16, "2" * 16])
    monkeypatch.setattr(secrets, "token_hex", lambda n: next(names))
    (tmp_path / f".gpt2np-{'0' * 16}.tmp").symlink_to(victim)
    (tmp_path / f".gpt2np-{'1' * 16}.tmp").symlink_to(tmp_path / "none")
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert victim.read_text() == "precious"
    assert not (tmp_path / "none").exists()


@needs_posix
def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from gpt2np.files import replacing\n"
        "with replacing(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush()\n"
        "    print('written', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, tmp_path / "a"]
    killed, working = (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in "ab"
    )
    for process in (killed, working):
        assert process.stdout.readline().strip() == b"written"
    killed.kill()
    killed.communicate()
    assert len(os.listdir(tmp_path)) == 2
    (tmp_path / ".mine.tmp").touch()
    write_text(tmp_path / "b", "new")
    [theirs] = set(os.listdir(tmp_path)) - {"b", ".mine.tmp"}  # of the one that is still working
    working.communicate()
    assert working.returncode == 0
    assert sorted(os.listdir(tmp_path)) == [".mine.tmp", "a", "b"]
    assert theirs.startswith(".gpt2np-")


def test_threads_that_write_one_path_tear_nothing(tmp_path):
    """One of them wins; nobody sees a mixture, and nothing is left."""
    sizes = [1, 100, 70_000, 300_000]

    def write(number):
        write_text(tmp_path / "a", str(number % 10) * sizes[number % 4])
        text = (tmp_path / "a").read_text()
        return len(set(text)) == 1 and len(text) in sizes

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, range(200)))
    assert os.listdir(tmp_path) == ["a"]


@needs_posix
def test_a_file_system_without_locks(tmp_path, monkeypatch, capsys):
    (tmp_path / f".gpt2np-{'0' * 16}.tmp").touch()  # perhaps somebody's who is writing it
    for code in (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP):
        monkeypatch.setattr(files.fcntl, "flock", raising(OSError(code, "no locks here")))
        write_text(tmp_path / "a", "new")
        assert sorted(os.listdir(tmp_path)) == [f".gpt2np-{'0' * 16}.tmp", "a"]
    assert capsys.readouterr().err == (  # once
        f"gpt2np: {tmp_path} is on a file system without locks: "
        "let one process at a time write there\n"
    )
    monkeypatch.setattr(files.fcntl, "flock", raising(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        write_text(tmp_path / "a", "new")


def raising(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize(
    ("code", "held"),
    [
        (errno.EACCES, False),
        (errno.EDEADLK, False),
        (errno.ENOSYS, None),
        (errno.ENOLCK, None),
    ],
)
def test_locks_as_on_windows(tmp_path, monkeypatch, code, held):
    class Msvcrt:
        LK_NBLCK = 2
        locking = staticmethod(raising(OSError(code, "as Windows says it")))

    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setattr(files, "msvcrt", Msvcrt)
    with open(tmp_path / "a", "ab") as file:
        assert try_lock(file.fileno()) is held
        assert file.tell() == 0
        Msvcrt.locking = staticmethod(lambda *_: None)
        assert try_lock(file.fileno())
        Msvcrt.locking = staticmethod(raising(OSError(errno.EINVAL, "what?")))
        with pytest.raises(OSError, match="what"):
            try_lock(file.fileno())


def test_renaming_waits_for_who_looks_at_the_file_on_windows(tmp_path, monkeypatch):
    refusals, slept, real = 3, [], os.replace

    def replace(source, target):
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise PermissionError(errno.EACCES, "Access is denied", str(source), None, str(target))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(files, "WINDOWS", True)
    monkeypatch.setattr(files.time, "sleep", slept.append)
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert len(slept) == 3

    refusals = math.inf
    monkeypatch.setattr(files, "PATIENCE", 0.01)
    with pytest.raises(PermissionError, match="is in use; close what has it open") as caught:
        write_text(tmp_path / "a", "newer")
    assert caught.value.filename == str(tmp_path / "a")  # not the hidden name
    assert (tmp_path / "a").read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]
