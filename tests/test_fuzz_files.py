"""What commands write, aimed at what they read, ended half-way, without streams: fuzz_files.py."""

import random

import pytest

from gpt2np.files import WINDOWS

if WINDOWS:
    pytest.skip("links, signals and shells as on POSIX", allow_module_level=True)
from fuzz_files import fuzz_ends, fuzz_outputs, fuzz_streams


def test_no_output_destroys_what_is_read_or_foreign():
    counts = fuzz_outputs(random.Random(0), 60)
    for command in ("score", "golden", "explain", "convert"):
        assert counts[command, "refused"] > 0
    assert sum(n for (_, how), n in counts.items() if how == "written") > 5


def test_an_output_is_the_old_or_the_new_however_a_command_ends():
    counts = fuzz_ends(random.Random(0), 6)
    assert sum(counts.values()) == 6


def test_closed_streams_lose_nothing_in_silence():
    counts = fuzz_streams(random.Random(0), 24)
    assert len(counts) == 2
