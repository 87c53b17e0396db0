"""Fixtures that more than one test module uses."""

import os
import signal
import subprocess
import sys
import sysconfig
import venv
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gpt2np import Params
from gpt2np.cli import main
from gpt2np.config import PRESETS

# What made files that tests read, with packages of its own; and a plugin, which is for Linux.
collect_ignore_glob = ["*/make.py", "*/record.py", "*/winsim.py"]


def pytest_addoption(parser):
    parser.addoption(
        "--skipped-before",
        action="store_true",
        help="run only what the last run without this option skipped",
    )


def pytest_configure(config):
    # A shell has what it starts in the background ignore Ctrl-C, and so would what tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Accelerate on an M4 raises flags after products, also after those that tests make themselves:
    # test_flags.py has what must warn nobody.
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        np.ones((32, 32)) @ np.ones((32, 32))
    if warned:
        config.addinivalue_line("filterwarnings", "ignore:.* encountered in:RuntimeWarning")
    # Of several workers, the one that hands out the tests hears of all of them. There may be no
    # memory at all: -p no:cacheprovider.
    if not hasattr(config, "workerinput") and hasattr(config, "cache"):
        config.pluginmanager.register(Skipped(config))


class Skipped:
    """Remembers tests and modules that were skipped: what another environment may not skip."""

    KEY = "gpt2np/skipped"

    def __init__(self, config):
        self.config, self.names = config, set()

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self.names.add(report.nodeid)

    def pytest_collectreport(self, report):
        if report.skipped:
            self.names.add(report.nodeid)

    def pytest_sessionfinish(self):
        if not self.config.getoption("--skipped-before"):
            self.config.cache.set(self.KEY, sorted(self.names))


def pytest_collection_modifyitems(config, items):
    if config.getoption("--skipped-before"):
        names = set(config.cache.get(Skipped.KEY, []))
        chosen = [i for i in items if {i.nodeid, i.nodeid.partition("::")[0]} & names]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.fixture(scope="session")
def params_124m():
    """Random weights of the 124M model's shape, those of assets/golden/124M.npz.

    Drawn once, as that takes seconds.
    """
    return Params.random(PRESETS["gpt2"], 20190214)


@pytest.fixture
def run(capsys):
    """Run a command in this process: its exit code, standard output and standard error."""

    def run(*argv):
        try:
            code = main(list(argv))
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Build a "wheel", an "editable" or an "sdist" of this tree: the file."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: nothing can be built")

    def build(kind):
        folder = tmp_path_factory.mktemp(kind)
        code = f"from hatchling.build import build_{kind} as build; build({str(folder)!r})"
        root = Path(__file__).parents[1]
        subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True)
        return next(folder.iterdir())

    return build


@pytest.fixture(scope="session", params=["wheel", "editable"])
def python(request, build, tmp_path_factory):
    """The Python of an environment with gpt2np, and with what is installed here behind it."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=os.name != "nt")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    site = Path(found.stdout.strip())
    zipfile.ZipFile(build(request.param)).extractall(site)
    (site / "zz_behind.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python
