"""Where tests find the reference data that is not part of the repository."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"the reference data is not there: {SHARED}"
)
