"""Writers of checkpoint files by hand, of every format, so that wrong ones can be written too."""

import io
import json
import pickle
import struct
import zipfile
from functools import cache
from typing import NamedTuple

import numpy as np

# Safetensors.


def safetensors_bytes(header, body=b"", length=None):
    """`header` is a dictionary, or the bytes to take for one."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def tensor_entry(shape=(2, 3), start=0, stop=24, dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


# Pickles, opcode by opcode: what pickle.dumps never writes can be written too.


def number(n):
    if abs(n) < 1 << 31:
        return b"J" + struct.pack("<i", n)
    return b"\x8a\x20" + n.to_bytes(32, "little", signed=True)


def text(s):
    data = s.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def numbers(sizes):
    return tuple_of(*map(number, sizes))


def dict_of(items):
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def storage(key, kind="FloatStorage", size=6, *rest):
    identity = [text("storage"), name("torch", kind), text(key), text("cpu"), number(size), *rest]
    return tuple_of(*identity) + b"Q"


def tensor(stored, offset=0, shape=(2, 3), strides=(3, 1)):
    hooks = name("collections", "OrderedDict") + b")R"
    arguments = [stored, number(offset), numbers(shape), numbers(strides), b"\x89", hooks]
    return name("torch._utils", "_rebuild_tensor_v2") + tuple_of(*arguments) + b"R"


def stream(value, protocol=2):
    return b"\x80" + bytes([protocol]) + value + b"."


def torch_zip(
    pickled, storages, *, root="archive", byteorder="little", extra=(), compress=zipfile.ZIP_STORED
):
    """What torch.save writes; `storages` maps the key to bytes, `extra` other members' names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as archive:
        archive.writestr(f"{root}/data.pkl", pickled)
        archive.writestr(f"{root}/byteorder", byteorder)
        archive.writestr(f"{root}/version", "3\n")
        for key, data in storages.items():
            archive.writestr(f"{root}/data/{key}", data)
        for member, data in dict(extra).items():
            archive.writestr(member, data)
    return buffer.getvalue()


MAGIC = 0x1950A86A20F9469CFC6C
SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}


def torch_legacy(pickled, storages, *, magic=MAGIC, protocol=1001, system=None, keys=None):
    """What torch.save wrote before 1.6; `storages` maps the key to elements, an array."""
    parts = [pickle.dumps(part, 2) for part in (magic, protocol, system or SYSTEM)]
    parts += [pickled, pickle.dumps(list(storages) if keys is None else keys, 2)]
    for array in storages.values():
        parts += [struct.pack("<q", array.size), array.tobytes()]
    return b"".join(parts)


# TensorFlow.


@cache
def _crc_table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


def crc32c(data):
    """Byte by byte, from the definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _crc_table()[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(n):
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(tag, value):
    """A field of a protobuf message: an integer, or a message."""
    if isinstance(value, bytes):
        return varint(tag << 3 | 2) + varint(len(value)) + value
    return varint(tag << 3) + varint(value)


def fixed32(tag, value):
    return varint(tag << 3 | 5) + struct.pack("<I", value)


def bundle_header(shards=1, endianness=0):
    return field(1, shards) + (field(2, endianness) if endianness else b"") + field(3, field(1, 1))


def bundle_entry(shape=(2, 3), *, shard=0, offset=0, size=24, crc=0, code=1, more=b""):
    sizes = b"".join(field(2, field(1, n)) for n in shape)
    message = field(1, code) + field(2, sizes)
    message += field(3, shard) if shard else b""
    message += field(4, offset) if offset else b""
    return message + field(5, size) + fixed32(6, crc) + more


def block(items, every=16):
    """The contents of a block: keys without what they share with the one before."""
    out, restarts, before = b"", [], b""
    for i, (key, value) in enumerate(items):
        shared = 0
        if i % every == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        before = key
    restarts = restarts or [0]
    return out + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def sealed(contents, kind=0):
    """A block with its trailer."""
    data = contents + bytes([kind])
    return data + struct.pack("<I", masked(crc32c(data)))


def table(items, per_block=10, *, kind=0, change=lambda contents: contents):
    """A LevelDB table; `change` may spoil the contents of each block before they are sealed."""
    out, handles = b"", []
    for i in range(0, len(items), per_block):
        part = items[i : i + per_block]
        contents = change(block(part))
        handles.append((part[-1][0], varint(len(out)) + varint(len(contents))))
        out += sealed(contents, kind)
    places = b""
    for contents in (block([]), change(block(handles, every=1))):
        places += varint(len(out)) + varint(len(contents))
        out += sealed(contents)
    return out + places.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def bundle(arrays, **options):
    """Index and data file of arrays of float32."""
    items, data = [(b"", bundle_header())], b""
    for key, array in sorted(arrays.items()):
        raw = array.astype("<f4").tobytes()
        entry = bundle_entry(array.shape, offset=len(data), size=len(raw), crc=masked(crc32c(raw)))
        items.append((key.encode(), entry))
        data += raw
    return table(items, **options), data


# llm.c, as write_model of its train_gpt2.py does.


def llmc_order(state, layers):
    """The tensors of a state dict in nn.Linear layout, each kind across all layers."""
    kinds = (
        "ln_1.weight",
        "ln_1.bias",
        "attn.c_attn.weight",
        "attn.c_attn.bias",
        "attn.c_proj.weight",
        "attn.c_proj.bias",
        "ln_2.weight",
        "ln_2.bias",
        "mlp.c_fc.weight",
        "mlp.c_fc.bias",
        "mlp.c_proj.weight",
        "mlp.c_proj.bias",
    )
    names = ["wte.weight", "wpe.weight"]
    names += [f"h.{i}.{kind}" for kind in kinds for i in range(layers)]
    names = [f"transformer.{name}" for name in [*names, "ln_f.weight", "ln_f.bias"]]
    return {name: state[name] for name in names}


def llmc_header(version=3, *, T=8, V=11, L=2, H=2, D=4, V_padded=16, magic=20240326):
    header = np.zeros(256, "<i4")
    header[:8] = magic, version, T, V, L, H, D, V_padded
    return header.tobytes()


def llmc_shapes(*, T=8, L=2, D=4, V_padded=16):
    layer = {
        "ln_1.weight": (D,),
        "ln_1.bias": (D,),
        "ln_2.weight": (D,),
        "ln_2.bias": (D,),
        "attn.c_attn.weight": (3 * D, D),
        "attn.c_attn.bias": (3 * D,),
        "attn.c_proj.weight": (D, D),
        "attn.c_proj.bias": (D,),
        "mlp.c_fc.weight": (4 * D, D),
        "mlp.c_fc.bias": (4 * D,),
        "mlp.c_proj.weight": (D, 4 * D),
        "mlp.c_proj.bias": (D,),
    }
    shapes = {"wte.weight": (V_padded, D), "wpe.weight": (T, D)}
    shapes |= {f"h.{i}.{kind}": shape for i in range(L) for kind, shape in layer.items()}
    shapes |= {"ln_f.weight": (D,), "ln_f.bias": (D,)}
    return {f"transformer.{key}": shape for key, shape in shapes.items()}


def llmc_state(seed=0, **sizes):
    random = np.random.RandomState(seed)
    shapes = llmc_shapes(**sizes)
    return {key: random.randn(*shape).astype(np.float32) for key, shape in shapes.items()}


# NumPy's .npy and .npz.


def npy_bytes(array, header=None):
    """What np.save writes, or the same with another header."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    if header is None:
        return buffer.getvalue()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + array.tobytes("A")


def npz_bytes(members, compress=zipfile.ZIP_STORED):
    """`members` maps the name, with its .npy, to bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return buffer.getvalue()


# MessagePack, and Flax's arrays in it.


def packed(value):
    """A value as flax.serialization.msgpack_serialize packs it; an array becomes an extension."""
    size = len(value) if isinstance(value, str | bytes | dict | list) else 0
    match value:
        case np.ndarray():
            out = extension(1, packed([list(value.shape), value.dtype.name, value.tobytes()]))
        case None | bool():
            out = {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
        case int():
            out = b"\xd3" + struct.pack(">q", value) if abs(value) > 31 else struct.pack("b", value)
        case float():
            out = b"\xcb" + struct.pack(">d", value)
        case str():
            out = (bytes([0xA0 | size]) if size < 32 else b"\xd9" + bytes([size])) + value.encode()
        case bytes():
            out = b"\xc6" + struct.pack(">I", size) + value
        case dict():
            out = bytes([0x80 | size]) if size < 16 else b"\xde" + struct.pack(">H", size)
            out += b"".join(packed(key) + packed(item) for key, item in value.items())
        case list():
            out = b"\xdc" + struct.pack(">H", size) + b"".join(map(packed, value))
    return out


def extension(code, data):
    return b"\xc9" + struct.pack(">Ib", len(data), code) + data


# GGUF.


class Typed(NamedTuple):
    """A number of the header with the type that it is written in."""

    kind: int
    value: object


def gguf_text(s):
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value):
    """Type and value: numbers are uint32 or float32 unless they are Typed."""
    if isinstance(value, Typed):
        form = {0: "B", 4: "I", 6: "f", 7: "?", 10: "Q", 12: "d"}.get(value.kind, "I")
        return struct.pack("<I", value.kind) + struct.pack("<" + form, value.value)
    if isinstance(value, str | bytes):
        return struct.pack("<I", 8) + gguf_text(value)
    if isinstance(value, list):
        parts = [gguf_value(item) for item in value]
        kind = parts[0][:4] if parts else struct.pack("<I", 8)
        return (
            struct.pack("<I", 9)
            + kind
            + struct.pack("<Q", len(value))
            + b"".join(part[4:] for part in parts)
        )
    return gguf_value(Typed(6 if isinstance(value, float) else 4, value))


class Place(NamedTuple):
    """A tensor of GGUF: its sizes innermost first, its type, where it begins, its bytes."""

    sizes: tuple[int, ...]
    kind: int
    data: bytes
    offset: int | None = None


def gguf_bytes(fields, tensors, *, version=3, counts=None, alignment=32):
    out = b"GGUF" + struct.pack("<I", version)
    out += struct.pack("<QQ", *(counts or (len(tensors), len(fields))))
    for key, value in fields.items():
        out += gguf_text(key) + gguf_value(value)
    body = b""
    for key, place in tensors.items():
        body += bytes(-len(body) % alignment)
        offset = len(body) if place.offset is None else place.offset
        out += gguf_text(key) + struct.pack(
            f"<I{len(place.sizes)}Q", len(place.sizes), *place.sizes
        )
        out += struct.pack("<IQ", place.kind, offset)
        body += place.data
    return out + bytes(-len(out) % alignment) + body
