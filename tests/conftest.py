"""Fixtures that more than one test module uses."""

import pytest

from gpt2np import Params
from gpt2np.config import PRESETS


@pytest.fixture(scope="session")
def params_124m():
    """Random weights of the 124M model's shape, those of assets/golden/124M.npz.

    Drawn once, as that takes seconds.
    """
    return Params.random(PRESETS["gpt2"], 20190214)
