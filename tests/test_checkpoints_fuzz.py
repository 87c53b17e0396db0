"""Spoiled checkpoints of every format, some thousand of each run; see fuzz_checkpoints.py."""

import os
import random

import fuzz_loading
import pytest
from fuzz_checkpoints import MAKERS, fuzz, make_pytorch_legacy, make_pytorch_zip, make_safetensors

from gpt2np.checkpoints import open_checkpoint
from gpt2np.errors import CheckpointError

SECONDS = float(os.environ.get("GPT2NP_FUZZ_SECONDS", "0"))  # for each format


@pytest.mark.parametrize("kind", MAKERS)
def test_a_spoiled_file_is_opened_or_refused(kind):
    inputs = 10**9 if SECONDS else 1200 if kind == "anything" else 400  # few of those are good
    counts, longest = fuzz(SECONDS or 20, 0, (kind,), inputs)
    assert counts[kind, "opened"] > 0, "nothing gets through: the inputs are too wild"
    assert counts[kind, "refused"] > 0
    assert longest < 1


def test_a_spoiled_folder_is_loaded_or_refused():
    counts, longest = fuzz_loading.fuzz(SECONDS or 10, 0, 10**9 if SECONDS else 600)
    assert counts["loaded"] > 0
    assert counts["refused"] > 0
    assert longest < 1


def opened(path):
    try:
        return open_checkpoint(path), ""
    except CheckpointError as error:
        return None, str(error)


def test_the_official_safetensors_opens_the_same_files(tmp_path):
    """And reads the same from them. Where we are stricter, and where it is, is listed."""
    official = pytest.importorskip("safetensors")
    stricter = ("has the dtype", "stands twice", "impossible shape")
    agreed = 0
    for i in range(1500):
        (_, data), *_ = make_safetensors(random.Random(i))[0].items()
        (tmp_path / "x").write_bytes(data)
        ours, refusal = opened(tmp_path / "x")
        try:
            theirs = dict(official.deserialize(data))
        except official.SafetensorError:
            assert ours is None or b"\\ud800" in data, i  # half a character
            continue
        assert ours or any(reason in refusal for reason in stricter), (i, refusal)
        if not ours:
            continue
        assert ours.tensors.keys() == theirs.keys()
        for name, array in ours.tensors.items():
            assert array.shape == tuple(theirs[name]["shape"])
            if ours.dtypes[name] != "bfloat16":
                assert array.tobytes() == bytes(theirs[name]["data"])
        agreed += 1
    assert agreed > 50


@pytest.mark.parametrize("maker", [make_pytorch_zip, make_pytorch_legacy])
def test_what_is_opened_torch_reads_the_same(tmp_path, maker):
    """If torch reads it at all: it may be stricter, as about the zip's checksums."""
    torch = pytest.importorskip("torch")
    agreed = 0
    for i in range(150):
        (_, data), *_ = maker(random.Random(i))[0].items()
        (tmp_path / "x").write_bytes(data)
        ours, _ = opened(tmp_path / "x")
        try:
            theirs = torch.load(tmp_path / "x", weights_only=True) if ours else None
        except Exception:  # torch raises errors of any kind
            theirs = None
        if theirs is None:
            continue
        for key in ("model", "state_dict", "model_state_dict"):
            if isinstance(theirs, dict) and isinstance(theirs.get(key), dict):
                theirs = theirs[key]
        for name, array in ours.tensors.items():
            expected = theirs[name]
            expected = expected.float() if expected.dtype == torch.bfloat16 else expected
            assert array.dtype.name == str(expected.dtype).removeprefix("torch.")
            assert array.tobytes() == expected.numpy().tobytes()
        agreed += 1
    assert agreed > 5
