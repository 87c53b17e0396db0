"""Files that are written whole: under whose name, to what kind of file, with which errors."""

import os
import stat
import threading

import pytest

from gpt2np.files import replacing, write_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, pipes and modes as on POSIX")


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
