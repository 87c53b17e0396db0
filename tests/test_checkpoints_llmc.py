"""llm.c's files: written as its train_gpt2.py does, from a model in nn.Linear layout."""

import json
import math

import numpy as np
import pytest
from checkpoint_files import llmc_header, llmc_order, llmc_state
from models import SMALL

import gpt2np
from gpt2np import Config, Model, Params, Tokenizer
from gpt2np.checkpoints import llmc, open_checkpoint
from gpt2np.errors import CheckpointError, InputError

FIELDS = {
    "max_seq_len": 8,
    "vocab_size": 11,
    "num_layers": 2,
    "num_heads": 2,
    "channels": 4,
    "padded_vocab_size": 16,
}


def float32_file(state):
    return llmc_header() + b"".join(a.tobytes() for a in llmc_order(state, layers=2).values())


def test_reads_every_tensor(tmp_path):
    state = llmc_state()
    (tmp_path / "gpt2_124M.bin").write_bytes(float32_file(state))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.format == "llm.c"
    assert checkpoint.metadata == FIELDS
    assert checkpoint.tensors.keys() == state.keys()
    assert set(checkpoint.dtypes.values()) == {"float32"}
    for name, array in state.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], array, strict=True)
        assert not checkpoint.tensors[name].flags.writeable
        assert checkpoint.tensors[name].base is not None, "a copy was made"


def test_reads_bfloat16(tmp_path):
    torch = pytest.importorskip("torch")
    state = {name: torch.tensor(array).bfloat16() for name, array in llmc_state().items()}
    body = [t.view(torch.int16).numpy().tobytes() for t in llmc_order(state, layers=2).values()]
    (tmp_path / "x").write_bytes(llmc_header(version=5) + b"".join(body))
    checkpoint = open_checkpoint(tmp_path / "x")
    assert set(checkpoint.dtypes.values()) == {"bfloat16"}
    for name, tensor in state.items():
        expected = tensor.float().numpy()
        np.testing.assert_array_equal(checkpoint.tensors[name], expected, strict=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (llmc_header(), "should have 3392 bytes by its header but has 1024"),
        (llmc_header()[:1000], "is cut short, in its header"),
        (float32_file(llmc_state())[:-4], "should have 3392 bytes by its header but has 3388"),
        (float32_file(llmc_state()) + b"\0", "should have 3392 bytes by its header but has 3393"),
        (llmc_header(version=1), "is of version 1; read are 3 .float32. and 5 .bfloat16."),
        (llmc_header(version=2), "is of version 2"),
        (llmc_header(magic=20240327), "holds the activations of llm.c's debug state, not a model"),
        (llmc_header(magic=20240328), "holds llm.c's tokenizer, not a model"),
        (llmc_header(magic=20240520), "holds tokens to train on, not a model"),
        (llmc_header(L=2**31 - 1), "has an impossible header"),
        (llmc_header(L=-1), "has an impossible header"),
        (llmc_header(D=0), "has an impossible header"),
        (llmc_header(D=2**31 - 1), "should have .* bytes by its header"),
        (llmc_header(V=17), "has an impossible header"),
    ],
)
def test_damage_is_named(tmp_path, data, message):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path / "x")


def test_writes_what_llm_c_reads(tmp_path):
    """Byte by byte what a writer of its own makes of the same weights."""
    params = Params.random(Config(**SMALL))
    llmc.save(tmp_path / "model.bin", params, n_head=SMALL["n_head"], padding=7.0)
    data = (tmp_path / "model.bin").read_bytes()
    V, D, L = SMALL["vocab_size"], SMALL["n_embd"], SMALL["n_layer"]
    header = np.frombuffer(data[:1024], "<i4")
    assert header[:8].tolist() == [20240326, 3, SMALL["n_ctx"], V, L, SMALL["n_head"], D, 128]
    state = {
        f"transformer.{name}": a.T if a.ndim == 2 and name.startswith("h.") else a
        for name, a in params.items()
    }
    wte = state["transformer.wte.weight"]
    padding = np.full((128 - V, D), 7.0, np.float32)
    state["transformer.wte.weight"] = np.concatenate([wte, padding])
    body = b"".join(a.astype("<f4").tobytes() for a in llmc_order(state, layers=L).values())
    assert data[1024:] == body
    again = gpt2np.load(tmp_path / "model.bin").params
    assert all(np.array_equal(again[name], array) for name, array in params.items())


def test_convert_writes_a_model_and_its_tokenizer(tmp_path, run):
    """The tokenizer as llm.c's write_tokenizer does: lengths and bytes, after a header."""
    assert run("convert", "tiny-shakespeare", str(tmp_path / "a.bin"))[0] == 0
    data = (tmp_path / "a_tokenizer.bin").read_bytes()
    assert np.frombuffer(data[:16], "<i4").tolist() == [20240328, 2, 50257, 50256]
    at = 1024
    for id in range(50257):
        token = data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
        assert token == Tokenizer.gpt2().token_bytes(id)
    assert at == len(data)
    ours, again = gpt2np.load(), gpt2np.load(tmp_path / "a.bin")
    assert all(np.array_equal(again.params[name], array) for name, array in ours.params.items())
    code, _, err = run("convert", "tiny-shakespeare", str(tmp_path / "a.bin"))
    assert code == 2
    assert "is there already" in err
    erf = Model(Params.random(Config(**SMALL, activation_function="gelu")))
    with pytest.raises(InputError, match="as OpenAI has it alone"):
        gpt2np.save(erf, tmp_path / "b.bin")


def test_info_tells_where_each_tensor_begins(tmp_path, run):
    params = Params.random(Config(**SMALL))
    llmc.save(tmp_path / "model.bin", params, n_head=SMALL["n_head"])
    code, out, _ = run("info", str(tmp_path / "model.bin"), "--tensors", "--json")
    assert code == 0
    data = (tmp_path / "model.bin").read_bytes()
    for name, facts in json.loads(out)["tensors"].items():
        size = 4 * math.prod(facts["shape"])
        array = np.frombuffer(data[facts["offset"] :][:size], "<f4").reshape(facts["shape"])
        ours = params[name.removeprefix("transformer.")]
        ours = ours.T if ours.ndim == 2 and ".h." in name else ours
        assert np.array_equal(array[: len(ours)], ours)
    assert "at byte 1,024" in run("info", str(tmp_path / "model.bin"), "--tensors")[1]
