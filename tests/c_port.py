"""The ports in tests/c, compiled once where there is a compiler, and run on the kit's files."""

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from gpt2np.golden import Golden

SOURCES = Path(__file__).parent / "c"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler: cc, gcc or clang")


@cache
def compiled(name):
    """The path of a program, kept as long as the tests run."""
    program = Path(tempfile.mkdtemp(prefix="gpt2np-c-")) / name
    flags = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILER, *flags, "-o", program, SOURCES / f"{name}.c", "-lm"], check=True)
    return program


def run_port(weights, recording, out, *words):
    """What the port computes of a recording's ids; `words` are its settings and faults."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    subprocess.run([compiled("gpt2"), weights, recording, out, *words], check=True)
    return Golden.load(out)
