"""Spoil checkpoints at random and open them: a Checkpoint or a CheckpointError, nothing else.

    PYTHONPATH=. python tests/fuzz_checkpoints.py --seconds 600 [--seed 1] [--format pytorch]

Each format has a few good files, which are changed as bytes (flipped, cut, extended, spliced, with
numbers overwritten by extreme ones) and by their structure, so that checksums and lengths still fit
and the change reaches the code behind them. test_checkpoints_fuzz.py runs the same for seconds.
"""

import argparse
import json
import pickletools
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from checkpoint_files import (
    Place,
    Typed,
    block,
    bundle_entry,
    bundle_header,
    crc32c,
    dict_of,
    extension,
    field,
    gguf_bytes,
    llmc_header,
    llmc_order,
    llmc_state,
    masked,
    name,
    npy_bytes,
    npz_bytes,
    number,
    numbers,
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
    varint,
)

from gpt2np.checkpoints import open_checkpoint
from gpt2np.errors import CheckpointError

EXTREMES = [0, 1, 3, 7, 8, 127, 128, 255, 256, 65535, 2**31, 2**32 - 1, 2**63, 2**64 - 1]

# Bytes.


def flip(data, rng):
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return data


def overwrite(data, rng):
    """A number, little- or big-endian, of one to eight bytes."""
    size = rng.choice([1, 2, 4, 8])
    value = (rng.choice(EXTREMES) + rng.randint(-2, 2)) % (1 << 8 * size)
    at = rng.randrange(len(data))
    data[at : at + size] = value.to_bytes(size, rng.choice(["little", "big"]))
    return data


def cut(data, rng):
    return data[: rng.randrange(len(data))]


def cut_front(data, rng):
    return data[rng.randrange(min(len(data), 64)) :]


def extend(data, rng):
    return data + bytes(rng.choice([b"\0", b"\xff", data[:9], data[-9:]])) * rng.randrange(1, 99)


def remove(data, rng):
    at = rng.randrange(len(data))
    del data[at : at + rng.choice([1, 2, 4, 8, 64])]
    return data


def repeat(data, rng):
    at, size = rng.randrange(len(data)), rng.choice([1, 2, 4, 8, 64, 512])
    return data[: at + size] + data[at:]


def swap(data, rng):
    size = rng.choice([1, 4, 8, 40])
    one, two = rng.randrange(len(data)), rng.randrange(len(data))
    part = data[one : one + size]
    data[one : one + size] = data[two : two + size]
    data[two : two + size] = part
    return data


BYTEWISE = [flip, flip, overwrite, overwrite, cut, cut_front, extend, remove, repeat, swap]


def spoil(data, rng, changes=(1, 1, 2, 4)):
    data = bytearray(data)
    for _ in range(rng.choice(changes)):
        if data:
            data = rng.choice(BYTEWISE)(data, rng)
    return bytes(data)


def splice(one, two, rng):
    return one[: rng.randrange(len(one) + 1)] + two[rng.randrange(len(two) + 1) :]


# JSON: the header of safetensors, and the index of shards.

ODD_VALUES = [
    None,
    True,
    -1,
    0,
    1,
    2.5,
    1e308,
    1 << 31,
    1 << 62,
    1 << 64,
    10**40,
    "",
    "F64",
    "BF16",
    "BOOL",
    "\0",
    "\n",
    "\ud800",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "x" * 3000,
    [],
    {},
    [[]],
    [0],
    [1 << 40, 1 << 40],
    [-1, 24],
    [24, 0],
    [0, 1 << 63],
    {"": {}},
    "__metadata__",
]


def spoil_json(value, rng):
    """The same with one value or key somewhere inside changed."""
    if rng.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return rng.choice(ODD_VALUES)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        return [spoil_json(v, rng) if i == at else v for i, v in enumerate(value)]
    at = rng.choice(list(value))
    items = [(key, spoil_json(v, rng) if key == at else v) for key, v in value.items()]
    if rng.random() < 0.2:
        key = str(rng.choice([*value, *ODD_VALUES]))
        items.append((key, rng.choice([*value.values(), *ODD_VALUES])))
    return dict(items)


def duplicate_keys(encoded, rng):
    """JSON text in which, at times, a key stands twice."""
    return encoded.replace("{", '{"w": 1, "w": 2, ', 1) if rng.random() < 0.02 else encoded


# Each maker returns {file name: bytes} and the name of the file, or "" for the folder, to open.

HEADER = {
    "__metadata__": {"format": "pt"},
    "wte": tensor_entry(),
    "m": tensor_entry((3,), 24, 27, "BOOL"),
    "h": tensor_entry((2, 2), 27, 35, "BF16"),
    "e": tensor_entry((0, 5), 35, 35),
    "s": tensor_entry((), 35, 43, "I64"),
}
BODY = bytes(range(1, 44))


def harmless(header, rng):
    """The same tensors in another order, under other names, with more said of them."""
    items = [
        (f"{key}\n{rng.randrange(9)}" if rng.random() < 0.3 else key, value)
        for key, value in header.items()
        if key != "__metadata__"
    ]
    rng.shuffle(items)
    more = {"__metadata__": rng.choice([None, {}, {"ü": "\0"}])} if rng.random() < 0.5 else {}
    return more | {key: {**value, "note": 1} for key, value in items}


def make_safetensors(rng):
    good = safetensors_bytes(HEADER, BODY)
    kind = rng.random()
    if kind < 0.1:
        text_of_it = json.dumps(harmless(HEADER, rng), indent=rng.choice([None, 1]))
        data = safetensors_bytes(text_of_it.encode(), BODY)
    elif kind < 0.4:
        header = HEADER
        for _ in range(rng.choice([1, 1, 2, 3])):
            header = spoil_json(header, rng)
        encoded = duplicate_keys(json.dumps(header), rng)
        data = safetensors_bytes(encoded.encode("utf-8", "surrogatepass"), BODY)
    elif kind < 0.8:
        data = spoil(good, rng)
    else:
        other = safetensors_bytes({"w": tensor_entry((4,), 0, 32, "F64")}, bytes(32))
        data = splice(good, other, rng)
    return {"model.safetensors": data}, rng.choice(["", "model.safetensors"])


INDEX = {"metadata": {"total_size": 86}, "weight_map": {"a": "1.bin", "b": "1.bin", "c": "2.bin"}}
SHARDS = {
    "1.bin": safetensors_bytes({"a": tensor_entry(), "b": tensor_entry((), 24, 28)}, bytes(28)),
    "2.bin": safetensors_bytes({"c": tensor_entry()}, bytes(24)),
}


def make_sharded(rng):
    kind = rng.random()
    files = dict(SHARDS)
    encoded = json.dumps(INDEX)
    if kind < 0.5:
        index = spoil_json(INDEX, rng)
        index = index if rng.random() < 0.7 else spoil_json(index, rng)
        encoded = duplicate_keys(json.dumps(index), rng)
    elif kind < 0.7:
        one = rng.choice(list(files))
        files[one] = spoil(files[one], rng)
    data = encoded.encode("utf-8", "surrogatepass")
    files["model.safetensors.index.json"] = spoil(data, rng) if kind > 0.7 else data
    return files, rng.choice(["", "model.safetensors.index.json"])


def pickled(legacy):
    """A checkpoint like nanoGPT's: nested, tied, strided, with plain values beside it."""
    more = [b"N"] if legacy else []
    first = storage("0", "FloatStorage", 6, *more)
    model = {
        "wte": tensor(first),
        "head": tensor(first),
        "odd": tensor(storage("1", "HalfStorage", 8, *more), 1, (2, 3), (1, 2)),
        "bf": tensor(storage("2", "BFloat16Storage", 4, *more), 0, (4,), (1,)),
        "one": tensor(storage("3", "LongStorage", 1, *more), 0, (), ()),
    }
    ordered = name("collections", "OrderedDict") + b")R" + dict_of(model)[1:]
    arguments = dict_of({"n_layer": number(2), "bias": b"\x89", "betas": tuple_of(text("x"), b"N")})
    return dict_of({"model": ordered, "model_args": arguments, "iter_num": number(7)})


STORAGES = {
    "0": np.arange(6, dtype="<f4"),
    "1": np.arange(8, dtype="<f2"),
    "2": np.arange(4, dtype="<u2"),
    "3": np.arange(1, dtype="<i8"),
}

ODD_OPCODES = [
    b"0",
    b"1",
    b"2",
    b"(",
    b")",
    b"]",
    b"}",
    b"t",
    b"\x85",
    b"\x86",
    b"\x87",
    b"a",
    b"e",
    b"s",
    b"u",
    b"R",
    b"b",
    b"Q",
    b".",
    b"N",
    b"\x88",
    b"\x93",
    b"\x94",
    b"\x81",
    b"\x92",
    b"o",
    b"\x8f",
    b"q\0",
    b"h\0",
    b"r\xff\xff\xff\xff",
    b"j\0\0\0\0",
    b"K\1",
    b"J\xff\xff\xff\xff",
    b"\x8a\1\x80",
    b"\x8b\xff\xff\xff\x7f",
    b"\x8d" + b"\xff" * 8,
    b"\x8e" + b"\xff" * 8,
    b"\x96" + b"\xff" * 8,
    b"X\xff\xff\xff\xff",
    b"\x95" + b"\xff" * 8,
    b"\x82\1",
    b"I9\n",
    b"L9\n",
    b"F9\n",
    b"V\\u1\n",
    b"S'\\d'\n",
    b"p0\n",
    b"g0\n",
    b"G\x7f\xf8\0\0\0\0\0\0",
    b"iposix\nsystem\n",
    name("posix", "system") + tuple_of(text("echo owned")) + b"R",
    name("builtins", "exec") + tuple_of(text("1/0")) + b"R",
    text("posix") + text("system") + b"\x93" + tuple_of(text("echo owned")) + b"R",
    name("torch", "Size"),
    name("torch", "device"),
    name("torch", "float32"),
    name("torch._utils", "_rebuild_parameter"),
    storage("0"),
    storage("9"),
    tensor(storage("0")),
    number(1 << 40),
    number(-1),
    numbers([1 << 40, 1 << 40]),
    numbers([]),
    text("\ud800"),
]


def opcodes(data):
    """The pickle cut before each of its opcodes."""
    starts = [position for _, _, position in pickletools.genops(data)]
    return [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]


def spoil_pickle(data, rng):
    if rng.random() < 0.3:
        return spoil(data, rng)
    parts = opcodes(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(1, len(parts))
        change = rng.randrange(5)
        if change == 0:
            parts.insert(at, rng.choice(ODD_OPCODES))
        elif change == 1:
            parts[at] = rng.choice(ODD_OPCODES)
        elif change == 2:
            parts[at] = rng.choice(parts)
        elif change == 3:
            parts.insert(at, b"".join(parts[rng.randrange(len(parts)) :][: rng.choice([1, 3, 30])]))
        elif len(parts) > 2:
            del parts[at]
    return b"".join(parts)


def make_pytorch_zip(rng):
    good = stream(pickled(legacy=False))
    members = {key: array.tobytes() for key, array in STORAGES.items()}
    kind = rng.random()
    if kind < 0.5:
        data = torch_zip(spoil_pickle(good, rng), members)
    elif kind < 0.55:
        members[rng.choice(["0", "3", "x", "../../x", ""])] = spoil(b"\0" * 24, rng)
        data = torch_zip(good, members, root=rng.choice(["archive", "a/b", "..", "/", "x" * 300]))
    else:
        data = torch_zip(good, members)
        at = data.index(b"PK\1\2")  # half of the time, only the zip's directory
        data = data[:at] + spoil(data[at:], rng) if rng.random() < 0.5 else spoil(data, rng)
    return {"pytorch_model.bin": data}, rng.choice(["", "pytorch_model.bin"])


def make_pytorch_legacy(rng):
    good = stream(pickled(legacy=True))
    kind = rng.random()
    if kind < 0.5:
        data = torch_legacy(spoil_pickle(good, rng), STORAGES)
    elif kind < 0.7:
        keys = rng.choice([[], ["0"], ["3", "2", "1", "0"], ["9"], [()], {}, None, "0123", [0, 1]])
        data = torch_legacy(good, STORAGES, keys=keys)
    else:
        data = spoil(torch_legacy(good, STORAGES), rng)
    return {"ckpt.pt": data}, rng.choice(["", "ckpt.pt"])


ARRAYS = {f"model/h{i}/w": np.full((1, i, 3), i, "<f4") for i in range(12)}


def tensorflow_items():
    items, offset = [(b"", bundle_header(2))], [0, 0]
    for i, (key, array) in enumerate(sorted(ARRAYS.items())):
        shard, raw = i % 2, array.tobytes()
        crc = masked(crc32c(raw))
        entry = {"shard": shard, "offset": offset[shard], "size": len(raw), "crc": crc}
        items.append((key.encode(), bundle_entry(array.shape, **entry)))
        offset[shard] += len(raw)
    parts = [b"".join(a.tobytes() for _, a in sorted(ARRAYS.items())[shard::2]) for shard in (0, 1)]
    return items, {f"model.ckpt.data-0000{i}-of-00002": part for i, part in enumerate(parts)}


ITEMS, DATA = tensorflow_items()
ODD_MESSAGES = [
    bundle_entry((1 << 40, 1 << 40)),
    bundle_entry(((1 << 64) - 1,)),
    bundle_entry(offset=1 << 63),
    bundle_entry(shard=1 << 40),
    bundle_entry(shard=-1 % (1 << 64)),
    bundle_entry(size=1 << 62),
    bundle_entry((), size=0),
    bundle_entry(code=7),
    bundle_entry(code=1 << 40),
    b"",
    b"\xff" * 11,
    bundle_entry(more=field(7, b"")),
    bundle_header(1 << 31),
    bundle_header(0),
    field(2, 5),
    b"\v",
    bundle_entry((2,) * 9),
    bundle_entry((0,) * 60, size=0),
    bundle_entry(code=14, size=12),
]


def make_tensorflow(rng):
    files = dict(DATA)
    kind = rng.random()
    items = list(ITEMS)
    if kind < 0.4:
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(items))
            key, message = items[at]
            key = spoil(key, rng) if rng.random() < 0.2 else key
            items[at] = key, rng.choice([spoil(message, rng), rng.choice(ODD_MESSAGES)])
        if rng.random() < 0.8:
            items.sort()
        index = table(items, rng.choice([1, 4, 100]))
    elif kind < 0.7:
        chance = rng.choice([0.3, 1])
        index = table(items, 5, change=lambda b: spoil(b, rng) if rng.random() < chance else b)
    elif kind < 0.75:
        places = varint(rng.choice(EXTREMES)) + varint(rng.choice(EXTREMES))
        index = table(items)[:-48] + (places * 2).ljust(40, b"\0")[:40] + table(items)[-8:]
    elif kind < 0.8:
        one = rng.choice(list(files))
        files[one] = spoil(files[one], rng)
        index = table(items)
    elif kind < 0.85:
        contents = block([(b"%03d" % i, b"\0" + varint(90)) for i in range(300)])
        index = splice(table(items), contents, rng) + table(items)[-48:]
    else:
        index = spoil(table(items), rng)
    files["model.ckpt.index"] = index
    pointer = b'model_checkpoint_path: "model.ckpt"\n'
    if rng.random() < 0.1:
        files["checkpoint"] = spoil(pointer, rng) if rng.random() < 0.7 else pointer
    return files, rng.choice(["", "model.ckpt", "model.ckpt.index"])


LLMC = llmc_header() + b"".join(a.tobytes() for a in llmc_order(llmc_state(), 2).values())


def make_llmc(rng):
    if rng.random() < 0.5:
        header = np.frombuffer(LLMC[:1024], "<i4").copy()
        for _ in range(rng.choice([1, 1, 2])):
            odd = [*EXTREMES[:10], -1, 2**31 - 1, 5, 20240327, 20240328]
            header[rng.randrange(8)] = rng.choice(odd)
        data = header.tobytes() + LLMC[1024:]
    else:
        data = spoil(LLMC, rng)
    return {"gpt2_124M.bin": data}, rng.choice(["", "gpt2_124M.bin"])


# NumPy's files: a header of text in front of numbers, and zip archives of such.

NPY_HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2)}",
    "{'shape': (6L,), 'fortran_order': False, 'descr': '<f4'}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (6,), }",
    "{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }",
    "{'descr': '<U4', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').abort(),), }",
    "(" * 3000,
    "",
]
NUMBERS = np.arange(6, dtype="<f4")


def make_npy_array(rng):
    if rng.random() < 0.5:
        header = rng.choice(NPY_HEADERS).encode()
        return npy_bytes(NUMBERS, spoil(header, rng) if rng.random() < 0.5 else header)
    array = rng.choice([NUMBERS, NUMBERS.reshape(2, 3), NUMBERS.astype("<f2"), NUMBERS > 2])
    return npy_bytes(array) if rng.random() < 0.5 else spoil(npy_bytes(array), rng)


def make_npy(rng):
    files = {f"{key}.npy": npy_bytes(NUMBERS) for key in ("wte.weight", "wpe.weight")}
    files |= {"h.0.ln_1.weight.npy": make_npy_array(rng)}
    return files, rng.choice(["", "", "", "wte.weight.npy"])


def make_npz(rng):
    compress = rng.choice([0, 8])  # stored or deflated
    members = {f"{key}.npy": npy_bytes(NUMBERS) for key in ("wte", "model/h0/attn/c_attn/w")}
    kind = rng.random()
    if kind < 0.5:
        members["b.npy"] = make_npy_array(rng)
        data = npz_bytes(members, compress)
    elif kind < 0.6:
        members[rng.choice(["config.json", "../x.npy", "x" * 300, "\n.npy"])] = b"{}"
        data = npz_bytes(members, compress)
    elif kind < 0.7:
        text_of_it = json.dumps(spoil_json({"n_layer": 2, "eos_token_id": [1]}, rng)).encode()
        key = rng.choice(["config.json", "tokenizer.json"])
        members[f"{key}.npy"] = npy_bytes(np.frombuffer(spoil(text_of_it, rng, (0, 1)), np.uint8))
        data = npz_bytes(members, compress)
    else:
        data = npz_bytes(members, compress)
        at = data.index(b"PK\1\2")
        data = data[:at] + spoil(data[at:], rng) if rng.random() < 0.5 else spoil(data, rng)
    return {"model.npz": data}, rng.choice(["", "model.npz"])


# MessagePack: a tree whose leaves are arrays.

PARTS = {"0": NUMBERS[:4], "1": NUMBERS[4:]}
CHUNKED = {"__msgpack_chunked_array__": True, "shape": {"0": 2, "1": 3}, "chunks": PARTS}
LAYER = {"kernel": NUMBERS.reshape(3, 2), "bias": NUMBERS[:3]}
TREE = {"transformer": {"wte": {"embedding": CHUNKED}, "h": {"0": {"attn": {"c_attn": LAYER}}}}}
ODD_LEAVES = [
    None,
    True,
    -1,
    2.5,
    "text",
    b"bytes",
    [],
    {},
    {1: 2},
    NUMBERS.astype("<f2"),
    np.array(1, np.float32),
    {"__msgpack_chunked_array__": True},
    CHUNKED | {"shape": {"0": 1 << 62}},
    CHUNKED | {"chunks": {"1": NUMBERS}},
    CHUNKED | {"chunks": {"0": NUMBERS.reshape(2, 3)}},
    CHUNKED | {"chunks": {}},
]
ODD_PACKED = [
    extension(1, packed([[1 << 40, 1 << 40], "float32", b""])),
    extension(1, packed([[6], "object", bytes(24)])),
    extension(1, packed([[6], "float32", bytes(23)])),
    extension(1, packed([[-6], "float32", bytes(24)])),
    extension(1, packed([6, "float32", bytes(24)])),
    extension(1, b""),
    extension(2, packed([1.0, 2.0])),
    extension(77, b"x"),
    b"\x91" * 300,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xc1",
    b"\xa4\xff\xff\xff\xff",
]


def spoil_tree(tree, rng):
    """The same with one leaf or key somewhere inside changed."""
    if not isinstance(tree, dict) or not tree or rng.random() < 0.1:
        return rng.choice(ODD_LEAVES)
    at = rng.choice(list(tree))
    return {key: spoil_tree(value, rng) if key == at else value for key, value in tree.items()}


def make_flax(rng):
    kind = rng.random()
    if kind < 0.4:
        data = packed(spoil_tree(TREE, rng))
    elif kind < 0.6:
        data = packed({"params": TREE, "x": "MARK"}).replace(b"\xa4MARK", rng.choice(ODD_PACKED))
    else:
        data = spoil(packed(TREE), rng)
    return {"flax_model.msgpack": data}, rng.choice(["", "flax_model.msgpack"])


# GGUF: typed values, then tensors of many types.

GGUF_FIELDS = {
    "general.architecture": "gpt2",
    "general.alignment": 32,
    "gpt2.block_count": 1,
    "gpt2.attention.layer_norm_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<|endoftext|>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 3,
}
GGUF_TENSORS = {
    "token_embd.weight": Place((2, 4), 0, bytes(32)),
    "half": Place((3,), 1, bytes(6)),
    "brain": Place((2, 2), 30, bytes(8)),
    "double": Place((), 28, bytes(8)),
    "q4_0": Place((32, 2), 2, bytes(range(36))),
    "q4_1": Place((32,), 3, bytes(range(20))),
    "q5_0": Place((64,), 6, bytes(range(44))),
    "q5_1": Place((32,), 7, bytes(range(24))),
    "q8_0": Place((32, 1), 8, bytes(range(34))),
}
ODD_FIELDS = [
    None,
    "",
    "llama",
    b"\xff\xfe",
    0,
    1 << 31,
    -0.0,
    [],
    ["x"] * 40,
    [[1]],
    ["a", "a"],
    [1.5],
    Typed(13, 0),
    Typed(9, 1),
    Typed(7, 1),
    Typed(10, 1 << 63),
]
ODD_PLACES = [
    Place((32,), 14, bytes(210)),
    Place((32,), 99, bytes(32)),
    Place((33,), 2, bytes(18)),
    Place((1 << 40, 1 << 40), 0, b""),
    Place((2,) * 9, 0, b""),
    Place((1 << 63,), 0, b""),
    Place((4,), 0, bytes(16), 0),
    Place((4,), 0, bytes(16), 1),
    Place((4,), 0, bytes(16), (1 << 64) - 32),
    Place((0, 4), 0, b""),
    Place((0,), 8, b""),
    Place((), 2, bytes(18)),
]


def make_gguf(rng):
    fields, tensors = dict(GGUF_FIELDS), dict(GGUF_TENSORS)
    kind = rng.random()
    if kind < 0.5:
        if rng.random() < 0.7:
            value = rng.choice(ODD_FIELDS)
            key = rng.choice([*fields, "split.count", "gpt2.context_length", "x" * 300])
            fields.pop(key, None)
            fields |= {} if value is None else {key: value}
        if rng.random() < 0.7:
            tensors[rng.choice([*tensors, "\n", ""])] = rng.choice(ODD_PLACES)
        some = rng.choice(EXTREMES)
        data = gguf_bytes(
            fields,
            tensors,
            version=rng.choice([2, 3, 3, 3, 3, 1, 4, 3 << 24]),
            counts=rng.choice([None] * 6 + [(some, len(fields)), (len(tensors), some)]),
        )
    else:
        data = spoil(gguf_bytes(fields, tensors), rng)
    return {"model.gguf": data}, rng.choice(["", "model.gguf"])


# Other families' names, with tensors that do not fit together.

FAMILY_NAMES = [
    [
        "wte/embedding",
        "wpe/embedding",
        "h/0/attn/c_attn/kernel",
        "h/0/ln_1/scale",
        "lm_head/kernel",
    ],
    ["token_embd.weight", "blk.0.attn_qkv.weight", "output.weight", "output_norm.bias"],
    [
        "tok_emb.weight",
        "trf_blocks.0.ff.layers.0.weight",
        "trf_blocks.0.att.W_query.weight",
        "trf_blocks.0.att.W_key.weight",
        "trf_blocks.0.att.W_value.weight",
        "trf_blocks.0.att.W_key.bias",
        "trf_blocks.0.norm1.scale",
        "trf_blocks.0.norm1.weight",
    ],
    [
        "embed.W_E",
        "blocks.0.ln1.w",
        "blocks.0.attn.W_Q",
        "blocks.0.attn.W_K",
        "blocks.0.attn.W_V",
        "blocks.0.attn.W_O",
        "blocks.0.attn.b_Q",
        "unembed.W_U",
        "unembed.b_U",
    ],
    [
        "tok_emb.weight",
        "pos_emb",
        "blocks.0.attn.query.weight",
        "blocks.0.attn.key.weight",
        "blocks.0.attn.value.weight",
        "blocks.0.attn.value.bias",
        "head.weight",
    ],
]
FAMILY_SHAPES = [(4,), (2, 4), (4, 2), (4, 4), (2, 4, 2), (1, 4, 4), (), (0,), (0, 4), (2, 2, 2, 2)]


def make_families(rng):
    names = [*rng.choice(FAMILY_NAMES)]
    if rng.random() < 0.3:
        names += rng.choice(FAMILY_NAMES)
    prefix = rng.choice(["", "", "module.", "_orig_mod.", "x", "transformer/"])
    same = rng.choice(FAMILY_SHAPES)
    header, body = {}, b""
    for key in dict.fromkeys(names):
        if rng.random() < 0.1:
            continue
        shape = rng.choice(FAMILY_SHAPES) if rng.random() < 0.2 else same
        size = 4 * int(np.prod(shape))
        header[prefix + key] = tensor_entry(shape, len(body), len(body) + size)
        body += bytes([rng.choice([0, 0, 1])] * size)
    return {"model.safetensors": safetensors_bytes(header, body)}, ""


MAGICS = [
    b"\x89HDF\r\n\x1a\n",
    b"GGUF",
    b"lmgg",
    b"PK\3\4",
    b"PK\5\6",
    b"\x80\2",
    b"\x80\4\x95",
    b"{",
    b"<!DOCTYPE html>",
    b"version https://git-lfs",
    b"\x08\7\x12",
    b"\x81\xa5param",
    b"\x93NUMPY",
    b"model_checkpoint_path: ",
    b"\x1f\x8b",
    b"\0" * 8 + b"{",
    LLMC[:8],
    table(ITEMS)[-8:],
]


def make_anything(rng):
    """Bytes of no format, and of all formats at once."""
    makers = [maker for maker in MAKERS.values() if maker is not make_anything]
    kind = rng.random()
    if kind < 0.4:
        data = rng.choice(MAGICS) + rng.randbytes(rng.choice([0, 1, 7, 40, 600]))
    elif kind < 0.5:
        data = rng.randbytes(rng.choice([0, 1, 9, 600])) + rng.choice(MAGICS)
    else:
        first = rng.choice(makers)
        second = first if rng.random() < 0.5 else rng.choice(makers)
        one, two = (rng.choice(list(maker(rng)[0].values())) for maker in (first, second))
        data = splice(one, two, rng)
    file = rng.choice(["model.safetensors", "pytorch_model.bin", "x", "checkpoint", "tf_model.h5"])
    return {file: data}, rng.choice(["", file])


MAKERS = {
    "safetensors": make_safetensors,
    "sharded": make_sharded,
    "pytorch": make_pytorch_zip,
    "legacy": make_pytorch_legacy,
    "tensorflow": make_tensorflow,
    "llm.c": make_llmc,
    "npy": make_npy,
    "npz": make_npz,
    "flax": make_flax,
    "gguf": make_gguf,
    "families": make_families,
    "anything": make_anything,
}


def try_one(folder, files, to_open, verify):
    """Open, and check what comes of it; "opened" or "refused"."""
    size = 0
    for file, data in files.items():
        (folder / file).write_bytes(data)
        size += len(data)
    start = time.process_time()  # others' work on the machine does not count
    try:
        checkpoint = open_checkpoint(folder / to_open, verify=verify)
    except CheckpointError as error:
        message = str(error)
        assert message.isprintable(), f"not one line of text: {message!r}"
        assert len(message) < 600, f"too long: {message!r}"
        return "refused", time.process_time() - start
    seconds = time.process_time() - start
    assert checkpoint.tensors.keys() == checkpoint.dtypes.keys()
    assert all(file.resolve().parent == folder.resolve() for file in checkpoint.files)
    held = sum(array.nbytes for array in checkpoint.tensors.values())
    assert held <= 8 * size + (1 << 16), f"{held} bytes of tensors from {size}"
    for array in checkpoint.tensors.values():
        array.tobytes()  # every byte can be reached
        assert not array.flags.writeable
        assert array.flags.aligned
    json.dumps([checkpoint.metadata, checkpoint.config, checkpoint.tokenizer])
    return "opened", seconds


def fuzz(seconds, seed=0, formats=tuple(MAKERS), inputs=sys.maxsize):
    """Counts by format and outcome, and the longest time; an input follows from its number."""
    counts, longest = Counter(), 0.0
    folder = Path(tempfile.mkdtemp())
    end = time.monotonic() + seconds
    try:
        for i in range(seed << 40, (seed << 40) + min(inputs, 1 << 40)):
            if time.monotonic() > end:
                break
            kind = formats[i % len(formats)]
            rng = random.Random(i)
            files, to_open = MAKERS[kind](rng)
            try:
                outcome, taken = try_one(folder, files, to_open, verify=rng.random() < 0.3)
            except Exception as error:
                raise AssertionError(f"input {i} of {kind}, opened as {to_open!r}") from error
            counts[kind, outcome] += 1
            longest = max(longest, taken)
            for file in folder.iterdir():
                file.unlink()
    finally:
        shutil.rmtree(folder)
    return counts, longest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=list(MAKERS), action="append")
    options = parser.parse_args()
    warnings.simplefilter("error")
    counts, longest = fuzz(options.seconds, options.seed, tuple(options.format or MAKERS))
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{kind:12} {outcome:8} {count:9,}")
    print(f"{sum(counts.values()):,} inputs; the longest took {longest:.3f} s")


if __name__ == "__main__":
    sys.exit(main())
