"""float64 as an oracle: it is Hugging Face's double, and float32 is as near to it as theirs."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import oracle
from closeness import assert_close
from huggingface import hf_logits, hf_model
from models import random_params

from gpt2np import Config, forward
from gpt2np.config import PRESETS

CONFIG = Config(vocab_size=301, n_ctx=64, n_embd=192, n_head=6, n_layer=4)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_oracle_is_hugging_faces_double(seed):
    params = random_params(CONFIG, seed, np.float64)
    ids = np.random.default_rng(seed).integers(301, size=(2, 64))
    ours, theirs = forward(params, ids), hf_logits(hf_model(params), ids)
    assert ours.dtype == theirs.dtype == np.float64
    assert_close(ours, theirs, 1e-13)


def test_errors_of_float32_are_those_of_hugging_face():
    """What differs is the order in which each BLAS adds, so the two are alike, not equal."""
    params = oracle.weights(CONFIG)
    found = oracle.measure(params, texts=3, positions=[1, 4, 16, 63], batches=[4, 16])
    hows = {how for how, _ in found.pairs}
    assert hows == {"one pass", oracle.TORCHS, "token by token", "16 at a time", "batch"}
    for how, n in found.pairs:
        assert 1e-9 < found.rms(how, n)[1] < 1e-6
        assert 0.1 < found.ratio(how, n) <= 1.3, (how, n)


@pytest.mark.slow
def test_errors_at_the_124m_shape():
    found = oracle.measure(oracle.weights(PRESETS["gpt2"]), texts=1, positions=[16, 64])
    # OpenBLAS may add up twice as many terms at a time as MKL does.
    assert all(found.ratio(*key) <= 2 for key in found.pairs)


def test_a_block_that_is_not_there_is_the_nearest_one():
    parts = {f"h.{i}.ln_1.bias": np.full(192, i, np.float32) for i in (0, 3)}
    params = oracle.weights(CONFIG, parts)
    assert [params[f"h.{i}.ln_1.bias"][0] for i in range(4)] == [0, 0, 3, 3]
    assert abs(params["wte.weight"].std() - 0.14) < 0.01
    assert params["h.0.mlp.c_proj.weight"].flags.f_contiguous


def test_the_table():
    errors = oracle.Errors()
    errors.add("one pass", 4, np.array([4e-14, 0.0]), np.array([1e-14, 1e-14]))
    errors.add("one pass", 4, np.array([6e-14]), np.array([1e-14]))
    assert errors.table("positions", ["one pass", "16 at a time"], [1, 1024, 4]).splitlines() == [
        "| positions | 1 | 1,024 | 4 |",
        "|---|---|---|---|",
        "| one pass | - | - | 2.00 (1.0e-07) |",
    ]
