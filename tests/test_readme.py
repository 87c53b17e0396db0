"""README.md: every block of it runs, and prints what stands below it."""

import contextlib
import doctest
import glob
import io
import os
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

import gpt2np
from gpt2np.cli import main
from gpt2np.golden.tiny import IDS, tiny_model

ROOT = Path(__file__).parents[1]
README = Path(os.environ.get("GPT2NP_README", ROOT / "README.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = BLOCK.findall(README.read_text(encoding="utf-8"))
OUTPUTS = {"", "text"}
# What the examples read.
FILES = {
    "prompts.txt": "ROMEO:\nJULIET:\n",
    "corpus.txt": "What is thy name?\n",
    "stimuli.csv": 'item,sentence\n1,What is thy name?\n2,"My lord, I know not."\n',
    "corpus.jsonl": '{"text": "What is thy name?"}\n',
    "stories/one.txt": "It was the best of times.\n",
}


def what_follows(number):
    """The output that stands below a block, if one does."""
    kind, text = BLOCKS[number + 1] if number + 1 < len(BLOCKS) else ("", "")
    return text if kind == "text" else None


def assert_printed(printed, expected):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(expected, printed, flags), printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all blocks run, one after the other."""
    folder = tmp_path_factory.mktemp("readme")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    gpt2np.golden.record(tiny_model(), IDS).save(folder / "mine.npz")
    return folder


def embedded_for(source):
    """No weights are there: the embedded model takes the place of a known one."""
    return None if source in ("gpt2", "gpt2-medium") else source


def test_python(folder, monkeypatch):
    load, names = gpt2np.load, {"__name__": "readme"}
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        gpt2np, "load", lambda source=None, **settings: load(embedded_for(source), **settings)
    )
    for number, (kind, text) in enumerate(BLOCKS):
        if kind != "python" or ("dask" in text and find_spec("dask") is None):
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text, f"{README.name}, block {number}", "exec"), names)
        if (expected := what_follows(number)) is not None:
            assert_printed(printed.getvalue(), expected)


def commands():
    """Each command line of the shell's blocks, with the output that stands below its block."""
    for number, (kind, text) in enumerate(BLOCKS):
        if kind == "sh":
            for line in text.splitlines():
                yield line, what_follows(number)


def run(arguments, capsys):
    """Run gpt2np as a shell would, with the embedded model for weights that are not there."""
    argv = []
    for argument in arguments:
        argv += sorted(glob.glob(argument)) if "*" in argument else [argument]
    for at in [i for i, a in enumerate(argv) if a in ("-m", "--model")]:
        if embedded_for(argv[at + 1]) is None:
            argv[at : at + 2] = ["-m", "tiny-shakespeare"]
    try:
        code = main(argv)
    except SystemExit as end:
        code = end.code
    return code, capsys.readouterr()


def test_sh(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for line, expected in commands():  # in one test: some read what others wrote
        check_command(line, expected, capsys)


def check_command(line, expected, capsys):
    program, *arguments = shlex.split(line)
    if program in ("pip", "pytest", "python", "jupyter"):
        for argument in arguments:
            if "/" in argument:
                assert (ROOT / argument).exists()
        return
    assert program == "gpt2np"
    if arguments[0] == "download":  # there is no network: that it would be understood must do
        code, told = run(["download", "--help"], capsys)
        assert all(a.partition("=")[0] in told.out for a in arguments[1:] if a.startswith("-"))
    elif "--shape" in arguments or "-i" in arguments:  # minutes, or somebody who types
        code, told = run([arguments[0], "--help"], capsys)
        assert all(a in told.out for a in arguments[1:] if a.startswith("-"))
    else:
        code, told = run(arguments, capsys)
        if expected is not None:
            assert_printed(told.out, expected)
    assert code == 0, f"{line}: {told.err}"


def test_the_index_of_public_names_is_whole():
    text = README.read_text(encoding="utf-8")
    table = re.search(r"^### Public names\n\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert set(re.findall(r"`(\w+)`", "".join(first))) <= set(gpt2np.__all__)
    assert set(gpt2np.__all__) - {"__version__"} <= set(re.findall(r"`(\w+)`", table))
    assert gpt2np.__all__ == sorted(gpt2np.__all__)
    assert dir(gpt2np) == gpt2np.__all__


def test_no_block_is_of_another_kind():
    assert {kind for kind, _ in BLOCKS} <= {"python", "sh", *OUTPUTS}


def test_links_lead_somewhere():
    text = README.read_text(encoding="utf-8")
    places = re.findall(r"\]\(([^)#]+)\)|^\[\w+\]: (\S+)$", text, re.MULTILINE)
    for place in (a or b for a, b in places):
        assert place.startswith("https://") or (ROOT / place).exists(), place
