"""Files that are written whole: under whose name, to what kind of file, with which errors."""

import codecs
import os
import stat
import threading

import pytest

from gpt2np.errors import InputError
from gpt2np.files import read_text, replacing, write_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, pipes and modes as on POSIX")


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


def test_nothing_changes_unless_all_goes_well(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", "not bytes"])
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("target")
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_private_file_stays_private(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    write_text(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


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
