"""NumPy's files: an .npz, and a folder of .npy, under the names of several families."""

import json

import numpy as np
import pytest
from checkpoint_files import npy_bytes, npz_bytes
from models import random_params

import gpt2np
from gpt2np import Config, Model
from gpt2np.checkpoints import open_checkpoint
from gpt2np.errors import CheckpointError
from gpt2np.golden.tiny import tiny_model, write_weights
from gpt2np.schema import tensors

CONFIG = Config(vocab_size=11, n_ctx=6, n_embd=8, n_head=2, n_layer=2)
PARAMS = random_params(CONFIG)


def hugging_face(params):
    return {f"transformer.{name}": array for name, array in params.items()}


def openai(params):
    """As OpenAI's TensorFlow checkpoints: matrices as [1, in, out]."""
    arrays = {}
    for name, _, row in tensors(params.config):
        block = name.split(".")[1] if name.startswith("h.") else ""
        array = params[name]
        key = row.openai.format(i=block)
        arrays[key] = array[None] if array.ndim == 2 and block else array
    return arrays


def mlx(params):
    """As mlx-lm's: matrices as [out, in]."""
    return {
        f"model.{name}": array.T if array.ndim == 2 and name.startswith("h.") else array
        for name, array in params.items()
    }


def save_npz(folder, arrays):
    np.savez(folder / "model.npz", **arrays)


def save_compressed(folder, arrays):
    np.savez_compressed(folder / "weights.npz", **arrays)


def save_npy(folder, arrays):
    for name, array in arrays.items():
        file = folder / f"{name}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, array)


def save_column_wise(folder, arrays):
    save_npz(folder, {name: np.asfortranarray(array) for name, array in arrays.items()})


@pytest.mark.parametrize("save", [save_npz, save_compressed, save_npy, save_column_wise])
@pytest.mark.parametrize("family", [hugging_face, openai, mlx])
def test_equals_the_safetensors(tmp_path, save, family):
    (tmp_path / "numpy").mkdir()
    save(tmp_path / "numpy", family(PARAMS))
    (tmp_path / "numpy" / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    gpt2np.save(Model(PARAMS), tmp_path / "safetensors")
    ours, theirs = (gpt2np.load(tmp_path / name).params for name in ("numpy", "safetensors"))
    assert ours.config == theirs.config
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, strict=True)


def test_gpt2nps_own_golden_weights(tmp_path):
    model = tiny_model()
    write_weights(model, tmp_path)
    for source in (tmp_path / "openai", tmp_path / "openai" / "model.npz"):
        params = gpt2np.load(source).params
        assert all((params[name] == array).all() for name, array in model.params.items())


def test_what_is_stored_is_mapped(tmp_path):
    big = np.arange(1 << 16, dtype=np.float32)
    np.save(tmp_path / "w.npy", big)
    array = open_checkpoint(tmp_path).tensors["w"]
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    assert (array == big).all()
    assert not array.flags.writeable


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u8", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1, 2, 3)])
def test_every_kind_of_numbers(tmp_path, dtype, shape):
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    np.savez(tmp_path / "x", a=array, b=array.copy(order="F"))
    found = open_checkpoint(tmp_path / "x.npz").tensors
    np.testing.assert_array_equal(found["a"], array, strict=True)
    np.testing.assert_array_equal(found["b"], array, strict=True)


HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}"
ONES = np.ones(6, "<f4")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (npy_bytes(ONES.astype(">f4")), "is big-endian: save it again"),
        (
            npy_bytes(ONES, HEADER.format("'|O'", "(6,)").encode()),
            "Python objects, which are never",
        ),
        (npy_bytes(np.array(["text"])), "holds '<U4', not numbers"),
        (npy_bytes(np.zeros(2, [("a", "f4")])), "is not an array of plain numbers"),
        (npy_bytes(ONES, HEADER.format("'<f4'", "(7,)").encode()), "should have 28 bytes"),
        (npy_bytes(ONES)[:-1], "should have 24 bytes"),
        (npy_bytes(ONES)[:40], "is cut short, in its header"),
        (npy_bytes(ONES, HEADER.format("'<f4'", "(9" + "9" * 30 + ",)").encode()), "not an array"),
        (npy_bytes(ONES, HEADER.format("'<f4'", f"({1 << 61},)").encode()), "impossible shape"),
        (npy_bytes(ONES, b" " * 9000), "has a header of 9000 bytes"),
        (b"\x93NUMPY\x09\0" + bytes(90), "unknown version"),
        (b"text", "is not a .npy array"),
    ],
)
def test_what_is_refused(tmp_path, array, message):
    (tmp_path / "a.npz").write_bytes(npz_bytes({"w.npy": npy_bytes(ONES), "x.npy": array}))
    with pytest.raises(CheckpointError, match=message) as error:
        open_checkpoint(tmp_path)
    assert "'x.npy'" in str(error.value)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x.npy").write_bytes(array)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def test_a_member_of_another_kind(tmp_path):
    data = npz_bytes({"w.npy": npy_bytes(ONES), "config.json": b"{}"})
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"'config.json' is not a .npy array"):
        open_checkpoint(tmp_path)


def test_a_compressed_member_that_is_damaged(tmp_path):
    data = bytearray(npz_bytes({"w.npy": npy_bytes(np.random.RandomState(0).randn(99))}, 8))
    data[400] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"is damaged.*download it again"):
        open_checkpoint(tmp_path)


def test_verify_reads_the_checksums_of_what_is_stored(tmp_path):
    data = bytearray(npz_bytes({"w.npy": npy_bytes(ONES)}))
    data[30 + len("w.npy") + 128] ^= 1  # the first number
    (tmp_path / "a.npz").write_bytes(data)
    open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="its checksum is wrong"):
        open_checkpoint(tmp_path, verify=True)


def test_one_npy_is_no_checkpoint(tmp_path):
    np.save(tmp_path / "w.npy", ONES)
    with pytest.raises(CheckpointError, match=r"is a NumPy .npy array.*: give its folder"):
        open_checkpoint(tmp_path / "w.npy")
