"""flax_model.msgpack: one that Flax wrote, and others laid out by its rules."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import extension, packed
from closeness import near
from models import random_params

import gpt2np
from gpt2np import Config
from gpt2np.checkpoints import open_checkpoint
from gpt2np.errors import CheckpointError

WRITTEN_BY_FLAX = Path(__file__).parent / "flax"
TIED = Config(vocab_size=11, n_ctx=6, n_embd=8, n_head=2, n_layer=2)
UNTIED = Config(vocab_size=11, n_ctx=6, n_embd=8, n_head=2, n_layer=2, tie_word_embeddings=False)


def test_answers_as_flax_did():
    model = gpt2np.load(WRITTEN_BY_FLAX)
    with np.load(WRITTEN_BY_FLAX / "expected.npz") as expected:
        assert near(gpt2np.forward(model.params, expected["ids"]), expected["logits"])
    checkpoint = open_checkpoint(WRITTEN_BY_FLAX)
    assert (checkpoint.format, checkpoint.family) == ("flax", "Flax")


def flat(params):
    """By the names of Flax, as FlaxGPT2LMHeadModel lays them out: kernels are [out, in]."""
    arrays = {}
    for name, array in params.items():
        *path, kind = name.split(".")
        is_norm = path[-1].startswith("ln_")
        kind = {"weight": "scale" if is_norm else "kernel"}.get(kind, kind)
        kind = "embedding" if path[-1] in ("wte", "wpe") else kind
        turned = kind == "kernel"  # nn.Dense has the head as [in, out]
        root = [] if path == ["lm_head"] else ["transformer"]
        arrays["/".join([*root, *path, kind])] = array.T if turned else array
    return arrays


def tree(arrays):
    root = {}
    for name, array in arrays.items():
        *path, last = name.split("/")
        node = root
        for key in path:
            node = node.setdefault(key, {})
        node[last] = array
    return root


def chunked(array, size):
    """What flax.serialization does to arrays of more than a gigabyte."""
    parts = [array.reshape(-1)[i : i + size] for i in range(0, array.size, size)]
    return {
        "__msgpack_chunked_array__": True,
        "shape": {str(i): n for i, n in enumerate(array.shape)},
        "chunks": {str(i): part for i, part in enumerate(parts)},
    }


@pytest.mark.parametrize("config", [TIED, UNTIED], ids=["tied", "untied"])
@pytest.mark.parametrize("cut", [None, 1, 7, 1000])
@pytest.mark.parametrize("outer", [(), ("params",)], ids=["bare", "params"])
def test_equals_what_was_laid_out(tmp_path, config, cut, outer):
    params = random_params(config)
    arrays = flat(params)
    leaves = tree(
        {k: chunked(a, cut) if cut else np.ascontiguousarray(a) for k, a in arrays.items()}
    )
    for name in outer:
        leaves = {name: leaves}
    (tmp_path / "flax_model.msgpack").write_bytes(packed(leaves))
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    loaded = gpt2np.load(tmp_path).params
    for name, array in params.items():
        np.testing.assert_array_equal(loaded[name], array, strict=True)


def test_shards(tmp_path):
    """As save_pretrained(max_shard_size=...) writes them: each holds flat names."""
    params = random_params(TIED)
    arrays = {name: np.ascontiguousarray(array) for name, array in flat(params).items()}
    places = {}
    for i, names in enumerate((["transformer/wte/embedding"], [*arrays][1:9], [*arrays][9:])):
        file = f"flax_model-0000{i}-of-00003.msgpack"
        places |= dict.fromkeys(names, file)
        (tmp_path / file).write_bytes(packed({name: arrays[name] for name in names}))
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (tmp_path / "flax_model.msgpack.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text(json.dumps(TIED.to_dict()))
    loaded = gpt2np.load(tmp_path).params
    assert all((loaded[name] == array).all() for name, array in params.items())


def test_reads_bfloat16(tmp_path):
    halves = np.array([0x3F80, 0xC040], "<u2")
    data = packed([[2], "bfloat16", halves.tobytes()])
    (tmp_path / "x").write_bytes(b"\x81\xa1w" + extension(1, data))
    checkpoint = open_checkpoint(tmp_path / "x")
    assert checkpoint.dtypes == {"w": "bfloat16"}
    np.testing.assert_array_equal(checkpoint.tensors["w"], np.array([1, -3], np.float32))


def test_the_pytorch_file_beside_it_comes_first(tmp_path):
    gpt2np.save(gpt2np.Model(random_params(TIED)), tmp_path)
    shutil.copy(WRITTEN_BY_FLAX / "flax_model.msgpack", tmp_path)
    assert open_checkpoint(tmp_path).format == "safetensors"


ONE = packed({"w": np.ones(6, np.float32)})
PARTS = {"0": np.ones(4, np.float32), "1": np.ones(2, np.float32)}
CHUNKED = {"__msgpack_chunked_array__": True, "shape": {"0": 2, "1": 3}, "chunks": PARTS}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ONE[:-1], "is MessagePack .as Flax writes., cut short"),
        (ONE + b"\0", "is damaged: 1 bytes are left"),
        (packed({"step": 3}), "without arrays"),
        (packed({"w": {7: np.ones(2)}}), "has the key 7, which is no name"),
        (packed({"w": CHUNKED | {"shape": {"0": 7}}}), "has parts of another size"),
        (packed({"w": CHUNKED | {"shape": {"0": 1 << 62}}}), "impossible shape"),
        (packed({"w": CHUNKED | {"chunks": {"1": PARTS["1"]}}}), "parts that are not numbered"),
        (packed({"w": CHUNKED | {"chunks": {"0": 1}}}), "is not an array"),
        (packed({"w": CHUNKED | {"chunks": {"0": np.ones((2, 3))}}}), "do not fit together"),
        (b"\x81\xa1w" + extension(1, packed([[7], "float32", bytes(24)])), "needs 28 bytes but"),
        (b"\x81\xa1w" + extension(1, packed([[6], "complex64", bytes(48)])), "type 'complex64'"),
        (b"\x81\xa1w" + extension(1, packed(["x"])), "lacks a proper shape, type and bytes"),
        (b"\x82" + ONE[1:] * 2, "the key 'w' stands twice"),
    ],
)
def test_damage_is_named(tmp_path, data, message):
    (tmp_path / "flax_model.msgpack").write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path)
