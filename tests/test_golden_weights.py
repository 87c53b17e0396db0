"""Weights in a recording are compared by name, so that a loader can be tested alone."""

import numpy as np
import pytest

from gpt2np.golden import Golden, check, record
from gpt2np.golden.tiny import HARSH_IDS, harsh_model, write_weights

MODEL = harsh_model()
GOLDEN = record(MODEL, HARSH_IDS, points="ln_f", weights=True)
WEIGHTS = {name: np.array(array) for name, array in MODEL.params.items()}
FC, PROJ, NORM = "h.1.mlp.c_fc.weight", "h.1.attn.c_proj.weight", "h.1.ln_1.weight"


def shifted(a, by):
    return np.roll(a.ravel(), by).reshape(a.shape)


# The weight -> what the loader made of it, and what the cause says.
PLANTED = [
    (FC, lambda w: w[FC].T, "it is transposed"),
    (FC, lambda w: np.ascontiguousarray(w[FC].T).reshape(w[FC].shape), "[out, in] is read as"),
    (PROJ, lambda w: w[PROJ].T, "it is transposed"),
    (FC, lambda w: w["h.2.mlp.c_fc.weight"], "it is h.2.mlp.c_fc.weight"),
    (NORM, lambda w: w["h.1.ln_2.weight"], "it is h.1.ln_2.weight"),
    (NORM, lambda w: w["h.1.ln_1.bias"], "it is h.1.ln_1.bias"),
    (FC, lambda w: np.zeros_like(w[FC]), "all zeros"),
    (FC, lambda w: w[FC].astype(np.float16).astype(np.float32), "rounded to float16"),
    ("wte.weight", lambda w: np.pad(w["wte.weight"], [(0, 75), (0, 0)]), "75 rows of padding"),
    ("wte.weight", lambda w: w["wte.weight"][:50], "its last 3 rows are missing"),
    ("wpe.weight", lambda w: shifted(w["wpe.weight"], 18), "18 elements too early"),
    (FC, lambda w: shifted(w[FC], -5), "5 elements too late"),
    (FC, lambda w: w[FC].byteswap(), "bytes are in the other order"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "load", "cause"), PLANTED)
def test_a_loaders_fault_is_named(name, load, cause):
    mine = Golden({**WEIGHTS, name: load(WEIGHTS)}, name="mine")
    report = check(mine, GOLDEN)
    assert report.first.point == name
    assert cause in report.causes[0]
    assert "weights: 39 of 40 agree, by name" in report.notes
    assert f"first divergence: {name}" in str(report)


@pytest.mark.parametrize("name", [str, lambda n: f"transformer.{n}", lambda n: f"module.{n}"])
def test_right_weights_agree(name):
    report = check(Golden({name(n): a for n, a in WEIGHTS.items()}), GOLDEN)
    assert report.first is None
    assert "weights: 40 of 40 agree, by name" in report.notes


def test_weights_of_openai_agree(tmp_path):
    write_weights(MODEL, tmp_path)
    report = check(tmp_path / "openai" / "model.npz", GOLDEN)
    assert report.first is None
    assert "weights: 40 of 40 agree, by name" in report.notes
