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
    results = [oracle.compare(CONFIG, seed, 64) for seed in range(3)]
    rms = {name: np.mean([result[name]["logits"][1] for result in results]) for name in results[0]}
    theirs = max(rms[f"HF transformers float32, {kind}"] for kind in ("eager", "sdpa"))
    assert 1e-9 < rms["gpt2np float32"] <= 1.1 * theirs
    # What is left when torch multiplies for both is as exact as theirs.
    assert 1e-9 < rms["gpt2np float32, torch's products"] <= 1.1 * theirs
    by_token = rms["gpt2np float32, token by token"]
    assert 1e-9 < by_token <= 1.1 * rms["HF transformers float32, token by token"]


@pytest.mark.slow
def test_errors_at_the_124m_shape():
    rms = {name: r["logits"][1] for name, r in oracle.compare(PRESETS["gpt2"], 0, 64).items()}
    assert rms["gpt2np float32"] <= 1.2 * rms["HF transformers float32, eager"]


def test_means_over_runs():
    runs = [{"a": {"h.1": (1.0, 2.0)}}, {"a": {"h.1": (3.0, 6.0)}}]
    assert oracle.mean(runs) == {"a": {"h.1": (2.0, 4.0)}}


def test_the_table():
    results = {"a": {"h.1": (1e-6, 2e-7), "logits": (3e-6, 4e-7)}, "b": {"logits": (1.0, 0.5)}}
    assert oracle.markdown(results).splitlines() == [
        "|  | h.1: largest error | RMS | logits: largest error | RMS |",
        "|---|---|---|---|---|",
        "| a | 1.00e-06 | 2.00e-07 | 3.00e-06 | 4.00e-07 |",
        "| b | - | - | 1.00e+00 | 5.00e-01 |",
    ]
