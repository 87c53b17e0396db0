"""TensorFlow's checkpoints (version 2, the "tensor bundle") read without TensorFlow.

model.ckpt.index is a LevelDB table of names and protobuf messages, each of which says where in
which file model.ckpt.data-00000-of-00001 a tensor stands. The table: blocks of entries in the order
of their keys, a block that indexes them, and a footer. A key omits what it shares with the one
before it.
https://github.com/google/leveldb/blob/main/doc/table_format.md
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpt2np.checkpoints.base import (
    DTYPES,
    Bytes,
    Checkpoint,
    check_disjoint,
    check_shape,
    map_file,
    quote,
    sibling,
    view,
)
from gpt2np.checkpoints.crc32c import masked_crc32c
from gpt2np.errors import CheckpointError

MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
FOOTER = 48
TRAILER = 5  # of a block: how it is compressed, and its checksum

# GPT-2 XL with its optimizer: 1,700 entries in 120,000 bytes and 30 blocks; names of 30 bytes.
MAX_INDEX, MAX_BLOCKS, MAX_NAME = 500_000, 500, 256

# tensorflow/core/framework/types.proto
CODES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    19: "float16",
    22: "uint32",
    23: "uint64",
}

Message = dict[int, list[Any]]  # the number of a field -> its values: int, or bytes


class Entry(NamedTuple):
    """A BundleEntryProto."""

    code: int
    shape: list[int]
    shard: int
    start: int
    size: int
    crc32c: int
    sliced: bool


def recognises(data: Bytes) -> bool:
    return data[-8:].tobytes() == MAGIC


def read(path: Path, data: Bytes, *, verify: bool = False) -> Checkpoint:
    """Read the tensors that an index lists; `verify` checks the checksum of each."""
    if len(data) > MAX_INDEX:
        raise CheckpointError(f"{path} is an index of {len(data)} bytes: too long for GPT-2")
    try:
        messages = {name.decode(): _message(value) for name, value in _table(data)}
        count = _shard_count(messages.pop("", {}))
        entries = {name: _entry(message) for name, message in messages.items()}
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or of another kind: {error}") from error
    shards = {shard: _shard(path, shard, count) for shard in {e.shard: 0 for e in entries.values()}}
    mapped = {shard: map_file(file) for shard, file in shards.items()}
    for name, entry in entries.items():
        _check(f"{shards[entry.shard]}: tensor {quote(name)}", entry, mapped[entry.shard])
    for shard, file in shards.items():
        spans = [(e.start, e.start + e.size, n) for n, e in entries.items() if e.shard == shard]
        check_disjoint(spans, str(file))
    if verify:
        for name, entry in entries.items():
            found = masked_crc32c(mapped[entry.shard][entry.start : entry.start + entry.size])
            if found != entry.crc32c:
                raise CheckpointError(
                    f"{shards[entry.shard]} is damaged: the checksum of {quote(name)} is wrong"
                )
    dtypes = {name: CODES[entry.code] for name, entry in entries.items()}
    tensors = {
        name: view(mapped[entry.shard], entry.start, dtypes[name], tuple(entry.shape))
        for name, entry in entries.items()
    }
    return Checkpoint("tensorflow", (path, *shards.values()), tensors, dtypes)


def _shard(path: Path, shard: int, count: int) -> Path:
    """The data file of a number, which stands beside the index."""
    name = f"{path.name.removesuffix('.index')}.data-{shard:05d}-of-{count:05d}"
    return sibling(path.parent, name, str(path))


def _check(where: str, entry: Entry, data: Bytes) -> None:
    """The entry must be of a known kind, agree with itself, and lie in its file."""
    if entry.code not in CODES:
        kind = "TensorFlow 2's description of objects" if entry.code == 7 else f"type {entry.code}"
        raise CheckpointError(f"{where} is {kind}: read are numbers, as OpenAI's checkpoints have")
    if entry.sliced:
        raise CheckpointError(f"{where} is in slices: save the model without a partitioner")
    shape, dtype = check_shape(entry.shape, where), CODES[entry.code]
    if entry.size != math.prod(shape) * DTYPES[dtype].itemsize:
        raise CheckpointError(f"{where}, {dtype} {list(shape)}, cannot have {entry.size} bytes")
    if entry.start + entry.size > len(data):
        raise CheckpointError(
            f"{where} ends at byte {entry.start + entry.size}, the file already at {len(data)}: "
            "it is cut short, download it again"
        )


def _shard_count(header: Message) -> int:
    """From a BundleHeaderProto."""
    if type(header.get(1, [None])[-1]) is not int:
        raise ValueError("a TensorFlow checkpoint of version 1, perhaps; read is version 2")
    if _integer(header, 2) != 0:
        raise ValueError("it is big-endian: save it again on a little-endian machine")
    return _integer(header, 1)


def _entry(message: Message) -> Entry:
    shape = _message(message.get(2, [b""])[-1])
    sizes = [_integer(_message(dimension), 1) for dimension in shape.get(2, [])]
    code, shard, start, size, crc32c = (_integer(message, number) for number in (1, 3, 4, 5, 6))
    return Entry(code, sizes, shard, start, size, crc32c, sliced=7 in message)


def _integer(message: Message, number: int) -> int:
    value = message.get(number, [0])[-1]
    if type(value) is not int:
        raise ValueError(f"field {number} of a message is no number")
    return value


def _message(data: Any) -> Message:
    """A protobuf message, as far as its structure shows without a schema."""
    if type(data) is not bytes:
        raise ValueError("a number stands where a message should")
    message: Message = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        value: int | bytes
        if tag & 7 == 0:
            value, position = _varint(data, position)
        elif tag & 7 == 2:
            size, position = _varint(data, position)
            value, position = data[position : position + size], position + size
        elif tag & 7 in (1, 5):
            size = 8 if tag & 7 == 1 else 4
            value = int.from_bytes(data[position : position + size], "little")
            position += size
        else:
            raise ValueError(f"a field of a message is of wire type {tag & 7}")
        message.setdefault(tag >> 3, []).append(value)
    if position > len(data):
        raise ValueError("a message ends too early")
    return message


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first; and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number has more than ten bytes")


def _table(data: Bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys, which ascend, and values of a LevelDB table."""
    footer = data[-FOOTER:].tobytes()
    position = 0
    for _ in range(2):  # the handle of the metaindex, which is empty, and that of the index
        offset, position = _varint(footer, position)
        size, position = _varint(footer, position)
    before, total = None, 0
    for number, (_, handle) in enumerate(_block(data, offset, size)):
        offset, position = _varint(handle, 0)
        size, _ = _varint(handle, position)
        total += size
        if number >= MAX_BLOCKS or total > len(data):
            raise ValueError("its index lists too many blocks")
        for key, value in _block(data, offset, size):
            if before is not None and key <= before:
                raise ValueError(f"the key {quote(key)} is out of order")
            yield key, value
            before = key


def _block(data: Bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block, behind which stand its compression and its checksum."""
    block = data[offset : offset + size + TRAILER].tobytes()
    if len(block) < size + TRAILER:
        raise ValueError(f"the block at byte {offset} reaches beyond the end")
    if masked_crc32c(data[offset : offset + size + 1]) != int.from_bytes(block[-4:], "little"):
        raise ValueError(f"the checksum of the block at byte {offset} is wrong")
    if block[size] != 0:
        raise ValueError("it is compressed (by Snappy), which TensorFlow does not do by itself")
    restarts = int.from_bytes(block[size - 4 : size], "little")  # to search it, not to read it
    end = size - 4 - 4 * restarts
    key, position = b"", 0
    while position < end:
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        length, position = _varint(block, position)
        stop = position + unshared
        if shared > len(key) or shared + unshared > MAX_NAME or stop + length > end:
            raise ValueError(f"the block at byte {offset} has an impossible entry")
        key = key[:shared] + block[position:stop]
        yield key, block[stop : stop + length]
        position = stop + length
