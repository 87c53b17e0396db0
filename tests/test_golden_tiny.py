"""The small model's weights, in the layouts in which GPT-2's come."""

import json

import numpy as np
import pytest
from checkpoint_files import llmc_order

import gpt2np
from gpt2np import forward
from gpt2np.golden.tiny import CONFIG, IDS, tiny_model, write_weights


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture
def written(tmp_path, model):
    write_weights(model, tmp_path)
    return tmp_path


def test_hugging_face_layout(written, model):
    assert dict(gpt2np.load(written / "huggingface").params).keys() == model.params.keys()
    for name, array in gpt2np.load(written / "huggingface").params.items():
        assert np.array_equal(array, model.params[name])
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(written / "huggingface").eval()
    with torch.no_grad():
        logits = theirs(torch.tensor([IDS])).logits.numpy()
    np.testing.assert_allclose(logits, forward(model.params, IDS), atol=1e-5)


def test_openai_layout(written, model):
    with np.load(written / "openai" / "model.npz") as arrays:
        assert len(arrays.files) == len(model.params)
        block = "model/h1/"
        assert arrays[block + "attn/c_attn/w"].shape == (1, 8, 24)
        for ours, theirs in {
            "wte.weight": "model/wte",
            "wpe.weight": "model/wpe",
            "ln_f.bias": "model/ln_f/b",
            "h.1.ln_2.weight": block + "ln_2/g",
            "h.1.attn.c_attn.bias": block + "attn/c_attn/b",
        }.items():
            assert np.array_equal(arrays[theirs], model.params[ours]), theirs
        for ours in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            matrix = arrays[block + ours.replace(".", "/") + "/w"]
            assert np.array_equal(matrix[0], model.params[f"h.1.{ours}.weight"])
    hparams = json.loads((written / "openai" / "hparams.json").read_text())
    assert hparams == {"n_vocab": 20, "n_ctx": 16, "n_embd": 8, "n_head": 2, "n_layer": 2}


def test_llmc_layout(written, model):
    """Byte by byte what a writer of its own makes of the same weights, and what is read again."""
    data = (written / "llm.c" / "model.bin").read_bytes()
    header = np.frombuffer(data[:1024], "<i4")
    assert header[:8].tolist() == [20240326, 3, 16, 20, 2, 2, 8, 128]
    assert not header[8:].any()
    linear = {
        name: a.T if a.ndim == 2 and name.startswith("h.") else a
        for name, a in model.params.items()
    }
    linear["wte.weight"] = np.pad(linear["wte.weight"], [(0, 108), (0, 0)])
    state = {f"transformer.{name}": array for name, array in linear.items()}
    body = b"".join(a.astype("<f4").tobytes() for a in llmc_order(state, layers=2).values())
    assert data[1024:] == body
    again = gpt2np.load(written / "llm.c" / "model.bin").params
    assert again.config == CONFIG
    assert all(np.array_equal(again[name], array) for name, array in model.params.items())
