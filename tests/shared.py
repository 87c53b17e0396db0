"""What some tests need: reference data that is no part of the repository, a system like POSIX."""

from pathlib import Path

import pytest

from gpt2np.files import WINDOWS

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"the reference data is not there: {SHARED}"
)
# Windows has none of them, and lets only some users make links; winsim.py imitates it.
needs_posix = pytest.mark.skipif(WINDOWS, reason="links, pipes, signals and modes as on POSIX")
