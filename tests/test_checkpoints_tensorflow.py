"""TensorFlow's checkpoints: those that TensorFlow wrote, and hand-made ones that are damaged."""

import importlib.util
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import (
    block,
    bundle,
    bundle_entry,
    bundle_header,
    crc32c,
    field,
    masked,
    sealed,
    table,
    varint,
)
from shared import SHARED, needs_shared

from gpt2np.checkpoints import crc32c as ours
from gpt2np.checkpoints import open_checkpoint
from gpt2np.errors import CheckpointError

GOLDEN = Path(__file__).resolve().parents[1] / "assets" / "golden"


def recorded_weights():
    file = GOLDEN / "record_tensorflow.py"
    spec = importlib.util.spec_from_file_location("record_tensorflow", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.weights()


def test_reads_a_sharded_checkpoint_of_tensorflow():
    checkpoint = open_checkpoint(GOLDEN / "tf-sharded", verify=True)
    assert checkpoint.format == "tensorflow"
    assert sorted(file.name for file in checkpoint.files) == [
        "model.ckpt.data-00000-of-00003",
        "model.ckpt.data-00001-of-00003",
        "model.ckpt.data-00002-of-00003",
        "model.ckpt.index",
    ]
    expected = recorded_weights()
    assert list(checkpoint.tensors) == sorted(expected)
    assert set(checkpoint.dtypes.values()) == {"float32"}
    assert checkpoint.metadata == {}
    for name, array in expected.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], array, strict=True)
        assert not checkpoint.tensors[name].flags.writeable


@needs_shared
def test_reads_a_checkpoint_of_openai_s_own_code():
    """Its checksums, which TensorFlow computed, are those of the bytes; its sizes add up."""
    checkpoint = open_checkpoint(SHARED / "openai-tf-tiny", verify=True)
    V, T, D, L = 101, 24, 32, 3
    sizes = [math.prod(array.shape) for array in checkpoint.tensors.values()]
    assert sum(sizes) == V * D + T * D + L * (12 * D * D + 13 * D) + 2 * D
    assert checkpoint.tensors["model/h2/mlp/c_fc/w"].shape == (1, D, 4 * D)


@pytest.mark.parametrize("name", ["", "checkpoint", "model.ckpt", "model.ckpt.index"])
def test_any_of_its_names_leads_to_it(name):
    assert len(open_checkpoint(GOLDEN / "tf-sharded" / name).tensors) == 148


def test_a_pointer_to_where_it_was_saved_once(tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(GOLDEN / "tf-sharded", folder)
    (folder / "checkpoint").write_text('model_checkpoint_path: "/home/me/run/model.ckpt"\n')
    assert len(open_checkpoint(folder).tensors) == 148
    (folder / "checkpoint").write_bytes(b'\xef\xbb\xbfmodel_checkpoint_path: "model.ckpt"\r\n\r\n')
    assert len(open_checkpoint(folder).tensors) == 148
    (folder / "checkpoint").write_text('model_checkpoint_path: "model-9"\n')
    with pytest.raises(CheckpointError, match=r"model-9\.index is missing, which .* names"):
        open_checkpoint(folder)


def test_a_missing_shard_is_named(tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(GOLDEN / "tf-sharded", folder)
    (folder / "model.ckpt.data-00001-of-00003").unlink()
    with pytest.raises(CheckpointError, match=r"data-00001-of-00003 is missing"):
        open_checkpoint(folder)


def test_wrong_bytes_are_found_when_asked_for(tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(GOLDEN / "tf-sharded", folder)
    file = folder / "model.ckpt.data-00002-of-00003"
    data = bytearray(file.read_bytes())
    data[-1] ^= 0x80
    file.write_bytes(data)
    open_checkpoint(folder)
    with pytest.raises(CheckpointError, match="00002-of-00003 is damaged: the checksum of 'mo"):
        open_checkpoint(folder, verify=True)


def test_other_types(tmp_path):
    values = np.arange(6)
    codes = {1: "f4", 2: "f8", 3: "i4", 4: "u1", 5: "i2", 6: "i1", 9: "i8", 10: "?", 19: "f2"}
    items, data = [(b"", bundle_header())], b""
    for code, kind in sorted(codes.items()):
        raw = values.astype(kind).tobytes()
        entry = bundle_entry(offset=len(data), size=len(raw), code=code)
        items.append((b"%02d" % code, entry))
        data += raw
    wide = np.arange(6, dtype=np.float32).tobytes()
    items.append((b"bfloat16", bundle_entry(offset=len(data), size=12, code=14)))
    data += b"".join(wide[i + 2 : i + 4] for i in range(0, 24, 4))
    (tmp_path / "m.index").write_bytes(table(items))
    (tmp_path / "m.data-00000-of-00001").write_bytes(data)
    checkpoint = open_checkpoint(tmp_path / "m")
    for code, kind in codes.items():
        expected = values.astype(kind).reshape(2, 3)
        np.testing.assert_array_equal(checkpoint.tensors[f"{code:02}"], expected, strict=True)
    assert checkpoint.dtypes["bfloat16"] == "bfloat16"
    np.testing.assert_array_equal(checkpoint.tensors["bfloat16"].ravel(), np.arange(6))


@pytest.mark.parametrize("per_block", [1, 3, 1000])
def test_blocks_of_any_length(tmp_path, per_block):
    random = np.random.RandomState(0)
    arrays = {f"model/h{i}/x": random.randn(2, i).astype(np.float32) for i in range(40)}
    index, data = bundle(arrays, per_block=per_block)
    (tmp_path / "m.index").write_bytes(index)
    (tmp_path / "m.data-00000-of-00001").write_bytes(data)
    checkpoint = open_checkpoint(tmp_path / "m", verify=True)
    assert list(checkpoint.tensors) == sorted(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], array, strict=True)


# Damage. Checksums are made to fit, so that what lies behind them is reached.

HEADER = (b"", bundle_header())
GOOD = (b"w", bundle_entry())


def index(*entries):
    return table([HEADER, *entries])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (index(GOOD)[:-60] + index(GOOD)[-48:], "a block|checksum|reaches beyond"),
        (index(GOOD)[:3] + b"\xff" + index(GOOD)[4:], "checksum of the block at byte 0 is wrong"),
        (table([HEADER, GOOD], kind=1), "it is compressed .by Snappy."),
        (table([GOOD]), "version 1, perhaps; read is version 2"),
        (table([(b"", field(1, b"meta")), GOOD]), "version 1, perhaps; read is version 2"),
        (table([(b"", bundle_header(endianness=1)), GOOD]), "it is big-endian"),
        (table([(b"", bundle_header(shards=2)), GOOD]), "data-00000-of-00002 is missing"),
        (index((b"w", bundle_entry(shard=1))), "m.data-00001-of-00001 is missing"),
        (index((b"w", bundle_entry(shard=1 << 63))), "is missing"),
        (index((b"w", bundle_entry(code=7))), "is TensorFlow 2's description of objects"),
        (index((b"w", bundle_entry(code=8))), "is type 8: read are numbers"),
        (index((b"w", bundle_entry(code=0))), "is type 0: read are numbers"),
        (index((b"w", bundle_entry(more=field(7, b"")))), "tensor 'w' is in slices"),
        (index((b"w", bundle_entry(size=20))), r"float32 \[2, 3\], cannot have 20 bytes"),
        (index((b"w", bundle_entry((1 << 40, 1 << 40)))), "has an impossible shape"),
        (index((b"w", bundle_entry(((1 << 64) - 1, 3)))), "has an impossible shape"),
        (index((b"w", bundle_entry(offset=1 << 63))), "ends at byte .* the file already at 24"),
        (index((b"w", bundle_entry(offset=1))), "ends at byte 25, the file already at 24"),
        (index((b"v", bundle_entry()), (b"w", bundle_entry())), "'v' and 'w' overlap"),
        (index((b"w", bundle_entry()), (b"v", bundle_entry())), "the key b'v' is out of order"),
        (index(GOOD, GOOD), "the key b'w' is out of order"),
        (index((b"w", b"\xff" * 11)), "a number has more than ten bytes"),
        (index((b"w", b"\x0b")), "a field of a message is of wire type 3"),
        (index((b"w", field(2, b"xx")[:-1])), "a message ends too early"),
        (index((b"w", field(1, b"xx"))), "field 1 of a message is no number"),
        (index((b"w", field(2, 3))), "a number stands where a message should"),
        (index((b"\xff", bundle_entry())), "can't decode byte 0xff"),
        (index((b"x" * 300, bundle_entry())), "has an impossible entry"),
        (table([HEADER, GOOD], change=lambda b: b[:-1] + b"\x7f"), "is damaged or of another kind"),
        (table([HEADER, GOOD], change=lambda b: b"\x05" + b[1:]), "has an impossible entry"),
        (table([HEADER, GOOD], change=lambda b: b""), "is damaged or of another kind"),
        (b"x" * 40 + index(GOOD)[-8:], "reaches beyond the end|more than ten bytes"),
        (index(GOOD)[-8:], "is damaged or of another kind"),
        (bytes(5_000_000) + index(GOOD)[-8:], "too long for GPT-2"),
    ],
)
def test_damage_is_named(tmp_path, data, message):
    (tmp_path / "m.index").write_bytes(data)
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(24))
    with pytest.raises(CheckpointError, match=message) as error:
        open_checkpoint(tmp_path / "m.index")
    assert str(error.value).isprintable()


def test_a_block_is_not_read_again_and_again(tmp_path):
    """A thousand entries of the index that all lead to one long block without a key."""
    empty = bytes(400_000) + (100_000).to_bytes(4, "little")
    handle = varint(0) + varint(len(empty))
    places = block([(b"%04d" % i, handle) for i in range(1000)], every=1)
    start = len(sealed(empty))
    footer = b"\0\0" + varint(start) + varint(len(places))
    data = sealed(empty) + sealed(places) + footer.ljust(40, b"\0") + index(GOOD)[-8:]
    (tmp_path / "m.index").write_bytes(data)
    with pytest.raises(CheckpointError, match="its index lists too many blocks"):
        open_checkpoint(tmp_path / "m.index")


# The checksum.


def test_crc32c_is_that_of_the_definition():
    random = np.random.RandomState(0)
    for size in range(300):
        data = random.randint(0, 256, size).astype(np.uint8)
        assert ours.crc32c(data) == crc32c(data.tobytes())
        assert ours.masked_crc32c(data) == masked(crc32c(data.tobytes()))


@pytest.mark.parametrize("size", [0, 3, 32_764, 32_765, 32_768, 65_536, 100_001])
def test_crc32c_at_the_seams_of_its_rows(size):
    data = np.random.RandomState(size).randint(0, 256, size).astype(np.uint8)
    assert ours.crc32c(data) == crc32c(data.tobytes())


def test_crc32c_of_the_standard():
    """RFC 3720, appendix B.4."""
    for data, expected in [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ]:
        assert ours.crc32c(np.frombuffer(data, np.uint8)) == expected
