"""Fixtures that more than one test module uses."""

import pytest

from gpt2np import Params
from gpt2np.config import PRESETS


@pytest.fixture(scope="session")
def params_124m():
    """Random weights of the 124M model's shape, of the seed of assets/golden: drawn once, as that takes seconds."""
    return Params.random(PRESETS["gpt2"], 20190214)
