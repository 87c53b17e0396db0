"""llm.c's files: written as its train_gpt2.py does, from a model in nn.Linear layout."""

import numpy as np
import pytest
from checkpoint_files import llmc_header, llmc_order, llmc_state

from gpt2np.checkpoints import open_checkpoint
from gpt2np.errors import CheckpointError

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
