"""Files made to do harm: refused, or read, at once, in little memory, with no code run."""

import io
import json
import os
import struct
import sys
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
from checkpoint_files import (
    Place,
    bundle,
    bundle_entry,
    bundle_header,
    dict_of,
    extension,
    gguf_bytes,
    llmc_header,
    name,
    npy_bytes,
    npz_bytes,
    number,
    packed,
    safetensors_bytes,
    storage,
    stream,
    table,
    tensor,
    tensor_entry,
    text,
    torch_legacy,
    torch_zip,
    tuple_of,
)

from gpt2np.checkpoints import open_checkpoint, unpickle
from gpt2np.checkpoints.zip_entries import zip_entries
from gpt2np.errors import CheckpointError

MEGABYTE = 1 << 20

# What Python does while a checkpoint is opened: an audit hook cannot be removed, only ignored.
events = []
watching = False


def note(event, arguments):
    if watching:
        events.append((event, arguments))


sys.addaudithook(note)


def open_watched(folder, path):
    """The error, or None; with the limits of time and memory and of what may happen kept."""
    global watching  # noqa: PLW0603
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    events.clear()
    tracemalloc.start()
    start = time.process_time()
    watching = True
    try:
        open_checkpoint(path)
        error = None
    except CheckpointError as caught:
        error = str(caught)
    finally:
        watching = False
        seconds = time.process_time() - start
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 24 * MEGABYTE + 32 * size, f"{peak} bytes of memory for {size} of files"
    assert seconds < 4, seconds  # tracemalloc makes it several times slower
    for event, arguments in events:
        assert event not in {"os.system", "subprocess.Popen", "socket.connect", "os.remove"}, event
        if event == "open" and isinstance(arguments[0], str):
            inside = os.path.realpath(arguments[0]).startswith(os.path.realpath(folder))
            assert inside or arguments[0].endswith((".py", ".pyc")), arguments  # a lazy import
    assert error is None or error.isprintable(), error
    return error and error.replace(str(folder), "")  # whose name is that of the test


def check(tmp_path, data, message, file="x"):
    (tmp_path / file).write_bytes(data)
    error = open_watched(tmp_path, tmp_path / file)
    if message is None:
        assert error is None
    else:
        assert error is not None, "it was opened"
        assert message in error


# Safetensors.

DEEP = b'{"w":' + b"[" * 900_000
MANY = {f"{i:04}": tensor_entry((0,), 0, 0) for i in range(5_000)}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (safetensors_bytes({}, length=1 << 63), "is cut short: its header has 9223372036854775808"),
        (safetensors_bytes({}, length=(1 << 64) - 2), "of an unknown format"),
        (safetensors_bytes(DEEP), "is not valid JSON"),
        (safetensors_bytes(b'{"w":' + b'{"a":' * 300_000), "is not valid JSON"),
        (safetensors_bytes(b'{"w":' + b"9" * 1_000_000 + b"}"), "the header of"),
        (safetensors_bytes({"w": tensor_entry((1 << 62,), 0, 24)}, bytes(24)), "impossible shape"),
        (safetensors_bytes({"w": tensor_entry((1 << 31,), 0, 24)}, bytes(24)), "needs 8589934592"),
        (safetensors_bytes({"w": tensor_entry((), 0, 1 << 65)}, bytes(4)), "are 0 to 36893488147"),
        (safetensors_bytes({"w\n\r\x1b[31m\u202e": 1}), r"tensor 'w\n\r\x1b[31m\u202e' lacks"),
        (safetensors_bytes({"w" * 100_000: 1}), "'... lacks a proper"),
        (safetensors_bytes({"w": tensor_entry(dtype="F" * 100_000)}, bytes(24)), "...; read are"),
        (safetensors_bytes(json.dumps(MANY).encode()), None),
        (safetensors_bytes(b'{"a":1,' + b'"b":1,' * 100_000 + b'"c":1}'), "'b' stands twice"),
    ],
)
def test_safetensors(tmp_path, data, message):
    check(tmp_path, data, message)


# Pickles.

SYSTEM = name("posix", "system") + tuple_of(text("touch owned")) + b"R"
STACKED = text("os") + text("system") + b"\x93" + tuple_of(text("touch owned")) + b"R"
SHARED_TUPLES = b")" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(200))  # t = (t, t)


def beside(value):
    """A good checkpoint with the value at its top."""
    return dict_of({"w": tensor(storage("0")), "x": value})


@pytest.mark.parametrize("writer", [torch_zip, torch_legacy])
@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (SYSTEM, "holds an object of 'posix.system', not the dictionary"),
        (STACKED, "holds an object of 'os.system', not the dictionary"),
        (b"(" + text("touch owned") + b"iposix\nsystem\n", "it has the opcode INST"),
        (b"(" + name("posix", "system") + text("touch owned") + b"o", "it has the opcode OBJ"),
        (name("torch", "load") + tuple_of(text("x")) + b"R", "holds an object of 'torch.load'"),
        (
            name("torch._utils", "_rebuild_tensor_v2.__globals__"),
            "holds an object of 'torch._utils._reb",
        ),
        (name("numpy._core.multiarray", "_reconstruct"), "an object of 'numpy._core.multiarray."),
        (name("collections", "OrderedDict") + b")R" + dict_of({}) + b"b", "holds no tensors"),
        (b"\x82\1", "it has the opcode EXT1"),
        (b"Pposix\n", "it has the opcode PERSID"),
        (b"c" + b"a" * 20_000, "it has a line of more than 10000 bytes"),
        (SHARED_TUPLES, "holds a tuple, not the dictionary"),
        (b"}" + SHARED_TUPLES + b"Ns", "holds no tensors"),
        (SHARED_TUPLES + b"N\x93", "holds an object of 'a name that is no text'"),
        (name("collections", "OrderedDict") + SHARED_TUPLES + b"\x85R", "holds no tensors"),
        (
            name("collections", "OrderedDict") + b"]" + SHARED_TUPLES + b"N\x86a\x85R",
            "holds no tensors",
        ),
        (name("torch", "Size") + SHARED_TUPLES + b"\x85R", "holds a tuple, not the dictionary"),
        (SHARED_TUPLES + b"Q", "it refers to a storage in a way that is not understood"),
        (beside(SHARED_TUPLES), None),
        (beside(b"]" * 30_000 + b"a" * 29_999), None),
        (b"]" * 30_000, "holds a list"),
        (b"(" * 30_000 + b"t" * 30_000, "holds a tuple"),
        (b"}r\xff\xff\xff\xff", "it unfolds to far more than the file holds"),
        (b"j\xff\xff\xff\xff", "it recalls object 4294967295, which it never stored"),
        (b"X\xff\xff\xff\xffabc", "cannot be read"),
        (b"\x8d" + b"\xff" * 8, "cannot be read"),
        (b"\x8d" + struct.pack("<Q", 1 << 40), "cannot be read"),
        (b"\x8e" + struct.pack("<Q", 1 << 40), "cannot be read"),
        (b"\x96" + struct.pack("<Q", 1 << 33), "cannot be read"),
        (b"\x8b\xff\xff\xff\x7f", "cannot be read"),
        (b"\x95" + b"\xff" * 8 + b"}", "holds no tensors"),
        (b"I" + b"9" * 9_000 + b"\n", "cannot be read"),
        (b"Na", "cannot be read"),
        (b"t", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_pickles(tmp_path, writer, pickled, message):
    storages = {"0": np.arange(6, dtype="<f4")} if b"storage" in pickled else {}
    if writer is torch_legacy:
        pickled = pickled.replace(number(6) + b"tQ", number(6) + b"NtQ")
    check(tmp_path, writer(stream(pickled), storages), message)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (tensor(storage("0"), 0, (1_000_000_000,), (0,)), "reaches beyond its 6 numbers"),
        (tensor(storage("0"), 0, (1 << 40, 1 << 40), (0, 0)), "impossible shape"),
        (tensor(storage("0"), 0, (2, 3), (1 << 70, 1)), "reaches beyond its 6 numbers"),
        (tensor(storage("0"), 1 << 70, (2, 3), (3, 1)), "reaches beyond its 6 numbers"),
        (tensor(storage("0"), 0, (1, 1), (1 << 70, 1 << 70)), None),
        (tensor(storage("0"), 1 << 70, (0, 3), (1 << 70, 1)), None),
        (tensor(storage("0", size=1 << 70)), "should hold 1180591620717411303424 numbers"),
        (tensor(storage("0", size=-6)), "reaches beyond its -6 numbers"),
        (tensor(storage("../../../etc/passwd")), "storage '../../../etc/passwd' is missing"),
        (tensor(number(3)), "it makes a tensor of what is no storage"),
    ],
)
def test_tensors(tmp_path, what, message):
    data = torch_zip(stream(dict_of({"w": what})), {"0": bytes(24)})
    check(tmp_path, data, message)


def test_one_storage_under_many_types(tmp_path):
    kinds = ("FloatStorage", "IntStorage")
    both = dict_of({kind: tensor(storage("0", kind)) for kind in kinds})
    check(tmp_path, torch_zip(stream(both), {"0": bytes(24)}), "in a way that is not understood")


def test_a_zip_bomb(tmp_path):
    data = torch_zip(
        stream(dict_of({"w": tensor(storage("0", size=5 * MEGABYTE))})),
        {"0": bytes(20 * MEGABYTE)},
        compress=zipfile.ZIP_DEFLATED,
    )
    assert len(data) < MEGABYTE
    check(tmp_path, data, "is compressed")


def directory_record(data, position):
    """Where the nth record of a zip's directory begins."""
    at = -1
    for _ in range(position + 1):
        at = data.index(b"PK\1\2", at + 1)
    return at


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (42, 1 << 31, "its zip directory is broken"),  # where the member stands
        (42, 0, "its zip directory is broken"),
        (42, (1 << 32) - 1, "its zip directory is broken"),  # a zip64 field that is not there
        (24, (1 << 32) - 1, "is compressed"),  # the size
        (24, 1 << 30, "is compressed"),
        (20, 1 << 30, "its zip directory is broken"),
        (28, 0xFF, "its zip directory is broken"),  # the lengths of name and extra field
    ],
)
def test_a_zip_s_directory(tmp_path, offset, value, message):
    data = bytearray(torch_zip(stream(dict_of({"w": tensor(storage("0"))})), {"0": bytes(24)}))
    at = directory_record(bytes(data), 2 if offset == 28 else 3) + offset
    size = 2 if offset == 28 else 4
    data[at : at + size] = value.to_bytes(size, "little")
    check(tmp_path, bytes(data), message)


def test_members_that_overlap(tmp_path):
    """A member inside another one's bytes: with many, few bytes would widen to many floats."""
    inner = b"PK\3\4" + bytes(22) + struct.pack("<HH", 14, 0) + b"archive/data/1" + bytes(12)
    kinds = {"0": storage("0", "ByteStorage", len(inner)), "1": storage("1", "BFloat16Storage")}
    tensors = {"0": tensor(kinds["0"], 0, (len(inner),), (1,)), "1": tensor(kinds["1"])}
    data = bytearray(torch_zip(stream(dict_of(tensors)), {"0": inner, "1": bytes(12)}))
    at = directory_record(bytes(data), 4) + 42
    data[at : at + 4] = data.index(inner).to_bytes(4, "little")
    check(tmp_path, bytes(data), "'storage 0' and 'storage 1' overlap")


def test_a_zip_that_claims_a_huge_directory(tmp_path):
    data = bytearray(torch_zip(stream(b"}"), {}))
    end = data.rindex(b"PK\5\6")
    data[end + 12 : end + 16] = (5_000_000).to_bytes(4, "little")
    (tmp_path / "x").write_bytes(bytes(5_000_000) + data)
    with pytest.raises(CheckpointError, match="directory of 5000000 bytes: too many members"):
        zip_entries(tmp_path / "x", np.zeros(1, np.uint8))


LIST = b"](" + b"N" * 100_000 + b"eq\0"
TEXT = text("x" * 100_000) + b"q\0"
PAIRS = b"](" + (text("k") + b"N\x86") * 10_000 + b"eq\0"
TUPLE, ORDERED = name("torch", "Size"), name("collections", "OrderedDict")
UNFOLDS = "it unfolds to far more than the file holds"
OBJECT = LIST + name("a", "B") + b")\x81}" + text("s") + b"h\0sbq\1"  # a.B() with s = LIST
MANY_NAMES = b"".join(text(str(i)) + b"h\1" for i in range(10_000))
BOMBS = {
    "tuples of a list":       (LIST + (TUPLE + b"h\0\x85R") * 40_000, UNFOLDS),
    "tuples of a text":       (TEXT + (TUPLE + b"h\0\x85R") * 40_000, UNFOLDS),
    "dictionaries of a list": (PAIRS + (ORDERED + b"h\0\x85R") * 40_000, UNFOLDS),
    "bytes of a text":        (TEXT + (name("_codecs", "encode") + b"h\0\x85R") * 40_000, UNFOLDS),
    "long keys":              (TEXT + text("x" * 100_000) + b"q\1}" + b"h\1Ns" * 40_000, UNFOLDS),
    "numbers of one hash":    (b"}(" + (b"\x8a\x09" + bytes(8) + b"\1N") * 20_000 + b"u", None),
    "one thing, many names":  (OBJECT + b"}(" + MANY_NAMES + b"u", None),
    "a huge memo":            (b"N" + b"".join(b"r" + struct.pack("<I", 1 << n) for n in range(32)),
                               UNFOLDS),
}  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_pickle_that_unfolds(tmp_path, legacy, bomb):
    """A few bytes that would take gigabytes, or minutes."""
    pickled, message = BOMBS[bomb]
    good = dict_of({"w": tensor(storage("0", "FloatStorage", 6, *([b"N"] * legacy))), "x": pickled})
    floats = np.arange(6, dtype="<f4")
    data = (
        torch_legacy(stream(good), {"0": floats})
        if legacy
        else torch_zip(stream(good), {"0": floats.tobytes()})
    )
    check(tmp_path, data, message)


def test_a_pickle_of_very_many_opcodes(tmp_path, monkeypatch):
    """At the true limit it takes seconds."""
    monkeypatch.setattr(unpickle, "MAX_OPCODES", 10_000)
    check(tmp_path, torch_zip(stream(b"N0" * 5_000), {}), "it has more than 10000 opcodes")


def test_two_members_of_one_name(tmp_path):
    data = torch_zip(stream(b"}"), {"0": b"", "1": b""}).replace(b"data/1", b"data/0")
    check(tmp_path, data, "it has two members 'archive/data/0'")


# NumPy's zip archives.


def npz_with(tmp_path, change, data=bytes(1000), compress=8):
    """An .npz of one array, after its first directory record has been changed."""
    whole = bytearray(npz_bytes({"w.npy": npy_bytes(np.frombuffer(data, np.uint8))}, compress))
    at = whole.index(b"PK\1\2")
    change(whole, at)
    return bytes(whole)


def test_an_npz_bomb(tmp_path):
    """A gigabyte of zeros in a megabyte; and one that says that it is small."""
    zeros = npz_bytes({"w.npy": npy_bytes(np.zeros(1 << 26, np.uint8))}, 8)
    assert len(zeros) < 100_000
    check(tmp_path, zeros, "unpack to 67108992, which weights do not", "x.npz")

    lying = bytearray(zeros)
    at = lying.index(b"PK\1\2") + 24
    lying[at : at + 4] = (1000).to_bytes(4, "little")
    check(tmp_path, bytes(lying), "should unpack to 1000 bytes, but does not", "x.npz")


def test_objects_in_an_npz(tmp_path):
    """np.load(allow_pickle=True) would run what is in there."""
    buffer = io.BytesIO()
    np.savez(buffer, w=np.array([Runs()], dtype=object))
    check(tmp_path, buffer.getvalue(), "holds Python objects, which are never loaded", "x.npz")


class Runs:
    def __reduce__(self):
        return os.system, ("echo owned",)


def encrypt(whole, at):
    whole[at + 8] |= 1


def pack_otherwise(whole, at):
    whole[at + 10 : at + 12] = (14).to_bytes(2, "little")  # LZMA


def overlap(whole, at):
    whole[at + 20 : at + 24] = (at + 30).to_bytes(4, "little")  # reaches into the directory


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (encrypt, "'w.npy' is encrypted: unpack it"),
        (pack_otherwise, "'w.npy' is packed in a way that NumPy does not use"),
        (overlap, "should unpack to 1128 bytes, but does not"),
    ],
)
def test_a_member_packed_otherwise(tmp_path, change, message):
    check(tmp_path, npz_with(tmp_path, change), message, "x.npz")


def test_members_of_an_npz_that_overlap(tmp_path):
    """A thousand directory records for one member: each would be unpacked."""
    inner = npy_bytes(np.zeros(1 << 16, np.uint8))
    whole = npz_bytes({f"{i:03}.npy": inner for i in range(2)}, 0)
    at = whole.index(b"PK\1\2")
    at = whole.index(b"PK\1\2", at + 1)
    same = bytearray(whole)
    same[at + 42 : at + 46] = bytes(4)  # where the first stands, which has another name
    check(tmp_path, bytes(same), "its zip directory is broken", "x.npz")


# MessagePack.


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x81\xa1w" + b"\x91" * 100_000, "has more than 40 levels"),
        (b"\x81\xa1w\xdd\xff\xff\xff\xff" + b"\xc0" * 300_000, "has more than 200000 values"),
        (b"\x81\xa1w\xc6\xff\xff\xff\xff", "cut short or damaged"),
        (b"\x81\xa1w\xc9\xff\xff\xff\xff\1", "cut short or damaged"),
        (b"\x81\xa1w\xdf\xff\xff\xff\xff", "cut short or damaged"),
        (b"\x81\xa1w" + b"\x81\xa1w" * 30 + b"\xc0", "is nested more than 20 deep"),
        (b"\x81\xa1w" + extension(1, packed([[1 << 62], "float32", b""])), "impossible shape"),
    ],
)
def test_msgpack(tmp_path, data, message):
    check(tmp_path, data, message)


def test_one_part_of_flax_that_is_there_often(tmp_path):
    """Parts are copied out of the file, each once."""
    part = np.zeros(1000, np.float32)
    chunks = {str(i): part for i in range(100)}
    tree = {"__msgpack_chunked_array__": True, "shape": {"0": 100_000}, "chunks": chunks}
    check(tmp_path, packed({"w": tree}), None)


# GGUF.

GPT2 = {"general.architecture": "gpt2"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            gguf_bytes(GPT2, {}, counts=((1 << 64) - 1, 1)),
            "says it has 18446744073709551615",
        ),
        (gguf_bytes(GPT2, {}, counts=(0, (1 << 64) - 1)), "no GPT-2 has as many"),
        (gguf_bytes(GPT2 | {"x" * 1_000_000: "y" * 1_000_000}, {}), None),
        (gguf_bytes(GPT2 | {"t": [""] * 100_000}, {}), None),
        (gguf_bytes(GPT2, {str(i): Place((0,), 8, b"") for i in range(5000)}), None),
        (
            gguf_bytes(
                GPT2, {str(i): Place((32 << 10,), 2, bytes(18 << 10), 0) for i in range(99)}
            ),
            "overlap",
        ),
    ],
)
def test_gguf(tmp_path, data, message):
    check(tmp_path, data, message)


# TensorFlow.


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({b"": bundle_header(1 << 31), b"w": bundle_entry()}, "-of-2147483648 is missing"),
        ({b"w": bundle_entry((1 << 62,))}, "impossible shape"),
        ({b"w": bundle_entry((1 << 30,), size=1 << 32)}, "ends at byte 4294967296, the file"),
        ({b"w": bundle_entry(size=(1 << 64) - 24)}, "cannot have 18446744073709551592 bytes"),
        ({b"w": bundle_entry(offset=(1 << 64) - 24)}, "ends at byte 18446744073709551616"),
        ({b"%03d" % i: bundle_entry((12,), code=14) for i in range(300)}, "overlap"),
        ({b"x" * i: bundle_entry((0,), size=0) for i in range(1, 256)}, None),
    ],
)
def test_tensorflow(tmp_path, entries, message):
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(24))
    items = {b"": bundle_header()} | entries
    check(tmp_path, table(list(items.items()), 1000), message, "m.index")


def test_a_name_of_tensorflow_cannot_lead_away(tmp_path):
    index, _ = bundle({"w": np.ones(2)})
    (tmp_path / "m.index").write_bytes(index)
    pointer = b'model_checkpoint_path: "../../../../etc/passwd"\n'
    check(tmp_path, pointer, "passwd.index is missing", "checkpoint")


# llm.c.


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (llmc_header(L=2**31 - 1, D=1), "impossible header"),
        (llmc_header(L=1000, D=2**31 - 1, V_padded=2**31 - 1, V=1, T=2**31 - 1), "should have"),
        (llmc_header(L=-(2**31)), "impossible header"),
    ],
)
def test_llmc(tmp_path, header, message):
    check(tmp_path, header + bytes(4000), message)


# Shards.


def test_shards_outside_the_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(safetensors_bytes({"w": tensor_entry()}, bytes(24)))
    for place in ("../secret", str(tmp_path / "secret"), "./../secret", "x/../../secret"):
        index = json.dumps({"weight_map": {"w": place}}).encode()
        (folder / "model.safetensors.index.json").write_bytes(index)
        assert "not a plain file name" in open_watched(folder, folder)


def test_an_index_of_very_many_names(tmp_path):
    good = safetensors_bytes({"w": tensor_entry()}, bytes(24))
    (tmp_path / "a.safetensors").write_bytes(good)
    places = {f"{i:06}": "a.safetensors" for i in range(60_000)}
    index = json.dumps({"weight_map": places}).encode()
    check(tmp_path, index, "places tensor '000000' in a.safetensors", "z.json")
    check(tmp_path, b'{"weight_map":' + b"[" * 500_000, "is not valid JSON", "x.json")
    check(tmp_path, b'{"weight_map": "' + b"x" * 3_000_000 + b'"}', "JSON of 3000018", "y.json")
