"""Spoiled recordings of every form, some hundreds of each run; see fuzz_dumps.py."""

import contextlib
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
from fuzz_dumps import GOOD, fuzz

from gpt2np.errors import CheckpointError
from gpt2np.golden import Golden, check


def test_a_spoiled_recording_is_checked_or_refused():
    counts, longest = fuzz(10, inputs=300)
    outcomes = {outcome for _, outcome in counts}
    assert outcomes == {"checked", "refused"}, "the inputs are too wild, or too tame"
    assert longest < 2


@pytest.mark.parametrize(
    "config",
    [{"n_layer": 10**9}, {"n_layer": 999}, {"n_embd": 10**9, "n_head": 10**9}, {"n_ctx": 10**30}],
)
@pytest.mark.parametrize("kind", GOOD)
def test_a_huge_config_costs_nothing(config, kind):
    golden = GOOD[kind]
    huge = {**golden.meta["config"], **config}
    logits = golden.arrays["logits"] + np.float32(1)
    tracemalloc.start()
    start = time.process_time()
    with contextlib.suppress(CheckpointError):
        check(Golden({"logits": logits}), Golden(golden.arrays, {"config": huge}))
    seconds, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 1
    assert peak < 4 << 20


def test_a_bomb_costs_nothing(tmp_path):
    """256 MiB of zeros in 260 KB; and as many that the directory calls a hundred bytes."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1 << 28))
    honest = path.read_bytes()
    at = honest.rindex(b"PK\1\2") + 24
    for data in (honest, honest[:at] + (100).to_bytes(4, "little") + honest[at + 4 :]):
        path.write_bytes(data)
        tracemalloc.start()
        with pytest.raises(CheckpointError):
            Golden.load(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 16 << 20
