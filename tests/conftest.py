"""Fixtures that more than one test module uses."""

import pytest

from gpt2np import Params
from gpt2np.cli import main
from gpt2np.config import PRESETS


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
