"""Safetensors against the official library: what it writes is read, what it reads is written."""

import json
import os
import stat

import numpy as np
import pytest
from checkpoint_files import safetensors_bytes, tensor_entry
from shared import SHARED, needs_posix, needs_shared

from gpt2np.checkpoints import open_checkpoint, safetensors
from gpt2np.checkpoints.base import bfloat16_to_float32, float32_to_bfloat16
from gpt2np.errors import CheckpointError

TYPES = (
    "float64",
    "float32",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
)


def some_tensors():
    random = np.random.RandomState(0)
    tensors = {f"b.{kind}": random.randint(0, 2, (3, 5)).astype(kind) for kind in TYPES}
    tensors |= {"a.wte": random.randn(7, 4).astype(np.float32), "ü\n": np.zeros((2, 0, 3))}
    return tensors | {"scalar": np.array(2.5, np.float32), "odd": np.ones(3, np.uint8)}


def rooted_in_a_map(array):
    while array.base is not None:
        array = array.base
        if isinstance(array, np.memmap):
            return True
    return False


def test_reads_what_the_official_library_writes(tmp_path):
    official = pytest.importorskip("safetensors.numpy")
    tensors = some_tensors()
    official.save_file(tensors, tmp_path / "x", metadata={"format": "np"})
    checkpoint = open_checkpoint(tmp_path / "x")
    assert checkpoint.format == "safetensors"
    assert checkpoint.files == (tmp_path / "x",)
    assert checkpoint.metadata == {"format": "np"}
    assert checkpoint.tensors.keys() == checkpoint.dtypes.keys() == tensors.keys()
    for name, tensor in tensors.items():
        read = checkpoint.tensors[name]
        assert read.dtype == tensor.dtype, name
        assert checkpoint.dtypes[name] == tensor.dtype.name
        np.testing.assert_array_equal(read, tensor, strict=True)
        assert not read.flags.writeable
        assert read.flags.aligned
        assert not read.size or rooted_in_a_map(read), "a copy was made"


def test_reads_bfloat16_as_float32(tmp_path):
    torch = pytest.importorskip("torch")
    official = pytest.importorskip("safetensors.torch")
    values = torch.randn(50, 3, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    official.save_file({"w": values, "f": torch.ones(2)}, tmp_path / "x")
    checkpoint = open_checkpoint(tmp_path / "x")
    assert checkpoint.dtypes == {"w": "bfloat16", "f": "float32"}
    np.testing.assert_array_equal(checkpoint.tensors["w"], values.float().numpy(), strict=True)


@needs_shared
def test_reads_a_published_model():
    checkpoint = open_checkpoint(SHARED / "gpt-nano-sort")
    assert checkpoint.tensors["transformer.wte.weight"].shape == (3, 48)
    assert {array.dtype.name for array in checkpoint.tensors.values()} == {"float32"}


def test_unaligned_tensors_are_copied_to_be_aligned(tmp_path):
    body = b"\1" + np.arange(6, dtype="<f4").tobytes()
    header = {"m": tensor_entry((1,), 0, 1, "U8"), "w": tensor_entry(start=1, stop=25)}
    (tmp_path / "x").write_bytes(safetensors_bytes(header, body))
    read = open_checkpoint(tmp_path / "x").tensors["w"]
    assert read.flags.aligned
    assert not read.flags.writeable
    np.testing.assert_array_equal(read, np.arange(6).reshape(2, 3))


def test_tensors_come_in_the_order_of_the_file(tmp_path):
    header = {"late": tensor_entry(start=24, stop=48), "early": tensor_entry()}
    (tmp_path / "x").write_bytes(safetensors_bytes(header, bytes(48)))
    assert list(open_checkpoint(tmp_path / "x").tensors) == ["early", "late"]


# The writer.


@pytest.mark.parametrize("metadata", [{"format": "pt"}, {"ü": 'a "quoted"\nline'}, {}])
def test_writes_the_official_library_s_bytes(tmp_path, metadata):
    official = pytest.importorskip("safetensors.numpy")
    tensors = some_tensors()
    safetensors.save(tmp_path / "ours", tensors, metadata=metadata)
    official.save_file(tensors, tmp_path / "theirs", metadata=metadata)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def official_header(data):
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_writes_what_torch_rounds_to(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    official = pytest.importorskip("safetensors.torch")
    random = np.random.RandomState(3)
    tensors = {
        "single": (random.randn(300, 7) * 10.0 ** random.randint(-9, 4, (300, 7))).astype("f4"),
        "double": random.randn(40, 40),
        "transposed": random.randn(5, 6).astype(np.float32).T,
        "half": random.randn(9).astype(np.float16),
        "mask": np.tril(np.ones((3, 3), bool)),
    }
    safetensors.save(tmp_path / "ours", tensors, dtype=dtype)
    read = official.load_file(tmp_path / "ours")
    for name, array in tensors.items():
        expected = torch.tensor(array)
        expected = expected if name == "mask" else expected.to(getattr(torch, dtype))
        assert read[name].dtype == expected.dtype
        assert torch.equal(read[name], expected), name


def test_transformers_finds_the_metadata_it_asks_for(tmp_path):
    official = pytest.importorskip("safetensors")
    safetensors.save(tmp_path / "x", {"w": np.ones(2, np.float32)})
    with official.safe_open(tmp_path / "x", "np") as file:
        assert file.metadata() == {"format": "pt"}
    assert (8 + len(official_header((tmp_path / "x").read_bytes()))) % 8 == 0


def test_bfloat16_rounds_to_nearest_even():
    """As torch does, for any bits: ties, denormals, infinities and all that is between."""
    torch = pytest.importorskip("torch")
    bits = np.random.RandomState(0).randint(0, 1 << 32, 300_000, np.uint64).astype(np.uint32)
    bits[:100_000] = bits[:100_000] & 0xFFFF0000 | 0x8000  # halfway
    bits[100_000:200_000] ^= (bits[100_000:200_000] ^ 0x8000) & 0xFFFC  # and beside it
    values = bits.view(np.float32)
    expected = torch.tensor(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(float32_to_bfloat16(values)[number], expected[number])
    assert np.isnan(bfloat16_to_float32(float32_to_bfloat16(values[~number]))).all()


def test_every_bfloat16_survives():
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = bfloat16_to_float32(bits)
    kept = float32_to_bfloat16(wide)
    np.testing.assert_array_equal(kept[~np.isnan(wide)], bits[~np.isnan(wide)])
    assert np.isnan(bfloat16_to_float32(kept[np.isnan(wide)])).all()


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("float16", np.array([1, -65520], np.float32)),
        ("float16", np.array([70000.0])),
        ("bfloat16", np.array([3.4e38], np.float32)),
        ("float32", np.array([1e39])),
        ("bfloat16", np.array([1e39])),
    ],
)
def test_an_overflow_is_refused_and_leaves_no_file(tmp_path, dtype, values):
    with pytest.raises(CheckpointError, match=r"tensor 'h\.0\.w' holds .*: too large for " + dtype):
        safetensors.save(tmp_path / "x", {"a": np.ones(2), "h.0.w": values}, dtype=dtype)
    assert list(tmp_path.iterdir()) == []


@needs_posix  # a file that is mapped is replaced
def test_infinity_and_nan_are_no_overflow(tmp_path):
    values = np.array([np.inf, -np.inf, np.nan, 65504], np.float32)
    for dtype in ("float16", "bfloat16", "float32"):
        safetensors.save(tmp_path / "x", {"w": values}, dtype=dtype)
        read = open_checkpoint(tmp_path / "x").tensors["w"]
        np.testing.assert_array_equal(read[:3], values[:3])


@needs_posix  # a file that is mapped is replaced
def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path):
    safetensors.save(tmp_path / "x", {"w": np.ones(2, np.float32)})
    before = (tmp_path / "x").read_bytes()
    with pytest.raises(CheckpointError):
        safetensors.save(tmp_path / "x", {"w": np.array([1e9])}, dtype="float16")
    assert (tmp_path / "x").read_bytes() == before
    opened = open_checkpoint(tmp_path / "x").tensors["w"]
    safetensors.save(tmp_path / "x", {"w": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(opened, 1)  # the mapped file is replaced, not overwritten
    assert os.listdir(tmp_path) == ["x"]


def test_a_written_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    safetensors.save(tmp_path / "x", {})
    modes = {stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("plain", "x")}
    assert len(modes) == 1


@pytest.mark.parametrize("array", [np.ones(2, complex), np.array(["text"]), np.array([None])])
def test_other_types_are_not_written(tmp_path, array):
    with pytest.raises(CheckpointError, match=r"tensor 'w' is .*: safetensors has no such type"):
        safetensors.save(tmp_path / "x", {"w": array})


def test_an_unknown_dtype_is_not_written(tmp_path):
    with pytest.raises(CheckpointError, match="dtype 'int8': float32, float16 or bfloat16"):
        safetensors.save(tmp_path / "x", {"w": np.ones(2)}, dtype="int8")


# Damage: each message names the file and the fault.


def one(size=24, **entry):
    """A file of one tensor, for which there are `size` bytes."""
    return safetensors_bytes({"w": tensor_entry(**entry)}, bytes(size))


TWO = {"v": tensor_entry(), "w": tensor_entry(start=20, stop=44)}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (safetensors_bytes({}, length=1 << 62), "cut short: its header has 4611686018427387904 "),
        (safetensors_bytes({}, bytes(3 << 20), length=3 << 20), "a header of 3145728 bytes; at mo"),
        (safetensors_bytes(b'{"w":'), "the header of .* is not valid JSON"),
        (safetensors_bytes(b'{"\xff": 1}'), "the header of .* is not valid JSON"),
        (safetensors_bytes(b'{"w": 1, "w": 2}'), "the key 'w' stands twice"),
        (safetensors_bytes({"w": 3}), "tensor 'w' lacks a proper dtype, shape and data_offsets"),
        (safetensors_bytes({"__metadata__": {"a": 1}}), "__metadata__ is not a map of strings"),
        (safetensors_bytes({"__metadata__": [1]}), "__metadata__ is not a map of strings"),
        (one(23), "is cut short: its tensors take 24 bytes, the file has 23 for them"),
        (one(25), "is damaged: its tensors take 24 bytes, the file has 25 for them"),
        (one(dtype="F8_E5M2"), "tensor 'w' has the dtype 'F8_E5M2'"),
        (one(shape=(2, 4)), r"tensor 'w', F32 \[2, 4\], needs 32 bytes but .* are 0 to 24"),
        (one(shape=(-1, -6)), r"tensor 'w' has an impossible shape: \[-1, -6\]"),
        (one(shape=(2.0, 3)), r"impossible shape: \[2.0, 3\]"),
        (one(shape=(True, 6)), r"impossible shape: \[True, 6\]"),
        (one(shape=([2], "3")), r"impossible shape: \[a list, '3'\]"),
        (one(shape=(1,) * 9, stop=4), "impossible shape"),
        (one(shape=(1 << 40, 1 << 40, 0), stop=0), "impossible shape"),
        (one(start=-24, stop=0), "begins at byte -24, not 0: it overlaps"),
        (one(32, start=8, stop=32), "begins at byte 8, not 0: it leaves a gap"),
        (safetensors_bytes(TWO, bytes(44)), "tensor 'w' begins at byte 20, not 24: it overlaps"),
    ],
)
def test_damage_is_named(tmp_path, data, message):
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as error:
        open_checkpoint(tmp_path)
    assert "model.safetensors" in str(error.value)


# Sharded.


def shards(folder, index, **files):
    for name, tensors in files.items():
        safetensors.save(folder / f"{name}.safetensors", tensors)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_reads_what_save_pretrained_shards(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=3, n_head=2, n_embd=16, vocab_size=50, n_positions=9)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.files[0].name == "model.safetensors.index.json"
    assert len(checkpoint.files) == 1 + len(list(tmp_path.glob("*.safetensors")))
    expected = {k: v.numpy() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    assert checkpoint.tensors.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], array, strict=True)
    assert open_checkpoint(checkpoint.files[0]).tensors.keys() == expected.keys()


@needs_posix
def test_shards_through_symbolic_links(tmp_path):
    """As a Hugging Face cache has them: snapshots/<commit>/<name> -> ../../blobs/<digest>."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    safetensors.save(blobs / "abc", {"w": np.ones(2, np.float32)})
    (snapshot / "a.safetensors").symlink_to("../../blobs/abc")
    shards(snapshot, {"weight_map": {"w": "a.safetensors"}})
    assert list(open_checkpoint(snapshot).tensors) == ["w"]


@pytest.mark.parametrize(
    "name",
    [
        "../a.safetensors",
        "/etc/passwd",
        "x/a.safetensors",
        "x\\a.safetensors",
        "C:a.safetensors",
        "..",
        ".",
        "",
        "a\n.safetensors",
        "a\0",
        "\ud800",
        "x" * 300,
    ],
)
def test_a_shard_must_stand_beside_the_index(tmp_path, name):
    (tmp_path / "model").mkdir()
    safetensors.save(tmp_path / "a.safetensors", {"w": np.ones(2)})
    shards(tmp_path / "model", {"weight_map": {"w": name}})
    with pytest.raises(CheckpointError, match="which is not a plain file name") as error:
        open_checkpoint(tmp_path / "model")
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"w": "b.safetensors"}, "b.safetensors is missing, which .*index.json names"),
        ({"w": 3}, "the weight_map is not a map of strings to strings"),
        ({"w": {}}, "the weight_map is not a map of strings to strings"),
        ({}, "no index of a sharded checkpoint"),
        ([], "no index of a sharded checkpoint"),
        (None, "no index of a sharded checkpoint"),
        ({"w": "a.safetensors", "v": "a.safetensors"}, "places tensor 'v' in a.safetensors: it is"),
        ({"w": "a.safetensors", "u": "c.safetensors"}, "tensor 'w' stands in c.safetensors again"),
        ({"w": "model.safetensors.index.json"}, "is a JSON file, which holds no weights"),
    ],
)
def test_a_wrong_index_is_named(tmp_path, places, message):
    one = np.ones(2)
    shards(tmp_path, {"weight_map": places}, a={"w": one}, c={"w": one, "u": one})
    with pytest.raises(CheckpointError, match=message) as error:
        open_checkpoint(tmp_path / "model.safetensors.index.json")
    assert "\n" not in str(error.value)
