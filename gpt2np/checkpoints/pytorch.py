"""What torch.save writes, read without torch: the zip format and the one before torch 1.6.

Both hold a pickle, in which each tensor is a view (offset, shape, strides) of a storage that has a
key, and the bytes of the storages. In the zip these are members, <root>/data.pkl and
<root>/data/<key>. In the older format four pickles (a magic number, the version, the system, the
object) are followed by the list of keys and by each storage: its number of elements and these.
https://github.com/pytorch/pytorch/blob/main/torch/serialization.py
"""

import math
import pickle
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gpt2np.checkpoints.base import (
    DTYPES,
    Array,
    Bytes,
    Checkpoint,
    check_disjoint,
    check_shape,
    quote,
    view,
)
from gpt2np.checkpoints.unpickle import Inert, Machine
from gpt2np.checkpoints.zip_entries import zip_entries
from gpt2np.errors import CheckpointError

ZIP = b"PK\3\4"
MAGIC = 0x1950A86A20F9469CFC6C
MAGIC_BYTES = MAGIC.to_bytes(10, "little")
PROTOCOL = 1001

# Where the weights stand if not at the top: nanoGPT says "model", Lightning "state_dict".
NESTED = (
    "model",
    "state_dict",
    "model_state_dict",
    "module",
    "model_state",
    "net",
    "weights",
    "params",
    "state",
)

# What GPT-2's tensors are called, by Hugging Face and those who follow OpenAI, and by others.
GPT2 = re.compile(
    r"(?:^|\.)(?:wte\.weight$|h\.0\.|lm_head\.|tok_emb\.weight$|embed\.W_E$|trf_blocks\.0\.)"
)

# So many dictionaries are looked through. An entry of the metadata has at most so many values,
# nested so deep, and all have ten times as many.
MAX_PLACES, MAX_PLAIN, MAX_DEPTH = 1_000, 10_000, 20
NOT_PLAIN: Any = object()

# Tied weights share a storage, but a few bytes must not unfold to gigabytes.
MAX_SHARING = 4

Spans = dict[str, tuple[int, int]]  # key of a storage -> the bytes where it stands


@dataclass(frozen=True)
class Storage:
    key: str
    dtype: str
    size: int  # in elements


@dataclass(frozen=True)
class Tensor:
    storage: Storage
    offset: int  # this and the strides count elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def recognises(data: Bytes) -> bool:
    head = data[:32].tobytes()
    return head.startswith(ZIP) or (head[:1] == pickle.PROTO and MAGIC_BYTES in head)


def read(path: Path, data: Bytes, *, verify: bool = False) -> Checkpoint:
    """Read one file.

    The tensors are those of the only dictionary in it that is a GPT-2's by its names, else of the
    first of NESTED that has any, else those at the top, else any. The metadata is what else stands
    at the top and is plain (or a tensor of one number).
    """
    read_format = _read_zip if data[:4].tobytes() == ZIP else _read_legacy
    top, spans = read_format(path, data, verify)
    try:
        where = _find_weights(top)
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from None
    tensors = _tensors(_at(top, where))
    rest = {k: v for k, v in _entries(top).items() if isinstance(k, str) and k not in where[:1]}
    numbers = {key: tensor for key, tensor in _tensors(rest).items() if where and not tensor.shape}
    arrays = _arrays(path, data, spans, [*tensors.values(), *numbers.values()])
    values = dict(zip(numbers, (array.item() for array in arrays[len(tensors) :]), strict=True))
    return Checkpoint(
        "pytorch",
        (path,),
        dict(zip(tensors, arrays, strict=False)),
        {name: tensor.storage.dtype for name, tensor in tensors.items()},
        _metadata(rest) | values,
    )


def _entries(value: Any) -> dict[Any, Any]:
    """The items of a dictionary, or of what stands for some kind of dictionary."""
    if isinstance(value, Inert):
        return value.values()
    return value if type(value) is dict else {}


def _tensors(value: Any) -> dict[str, Tensor]:
    items = _entries(value).items()
    return {key: t for key, t in items if isinstance(key, str) and isinstance(t, Tensor)}


def _at(top: Any, where: tuple[str, ...]) -> Any:
    for key in where:
        top = _entries(top)[key]
    return top


def _find_weights(top: Any) -> tuple[str, ...]:
    """The keys that lead to the model's tensors: none if they stand at the top."""
    places = dict(_places(top))
    fits: dict[tuple[str, ...], dict[str, Tensor]] = {}
    for where, tensors in places.items():
        if any(GPT2.search(name) for name in tensors) and tensors not in fits.values():
            fits[where] = tensors
    if len(fits) > 1:
        named = [" > ".join(map(quote, where)) or "its top" for where in fits]
        raise CheckpointError(
            f"holds {len(fits)} models, {', '.join(named[:-1])} and {named[-1]}: "
            "save the one to use by itself"
        )
    order = [*fits, *((key,) for key in NESTED), (), *places] if type(top) is dict else [*fits]
    found = next((where for where in order if where in places), None)
    contents = top if found is None else _at(top, found)
    for key, value in _entries(contents).items():
        if isinstance(value, Inert) and value.name.startswith("torch."):
            raise CheckpointError(
                f"has a tensor {quote(key)} of the kind {quote(value.name)}, which is not read"
            )
    if found is None:
        what = "no tensors"
        if type(top) is not dict:
            what = f"an object of {quote(top.name)}" if isinstance(top, Inert) else quote(top)
            what += ", not the dictionary of a model's tensors"
        raise CheckpointError(f"holds {what}: load it in torch and save model.state_dict()")
    return found


def _places(top: Any) -> Iterator[tuple[tuple[str, ...], dict[str, Tensor]]]:
    """The dictionaries that have tensors, by the keys that lead to them: few and not deep."""
    places: list[tuple[tuple[str, ...], Any]] = [((), top)]
    seen = {id(top)}
    for where, value in places:
        tensors = _tensors(value)
        if tensors:
            yield where, tensors
        for key, item in _entries(value).items() if len(where) < 3 else ():
            if isinstance(key, str) and id(item) not in seen and len(places) < MAX_PLACES:
                seen.add(id(item))
                if _entries(item):
                    places.append(((*where, key), item))


def _metadata(entries: dict[str, Any]) -> dict[str, Any]:
    """What is plain of each entry."""
    result, parts = {}, 0
    for key, entry in entries.items():
        left = [MAX_PLAIN]
        value = _plain(entry, MAX_DEPTH, left)
        if value is not NOT_PLAIN:
            result[key] = value
        parts += MAX_PLAIN - left[0]
        if parts > 10 * MAX_PLAIN:
            break
    return result


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    """The value if it is a number, text, or a list of such; of a dictionary, what is plain.

    It may have `left` parts, `depth` deep, however they are shared.
    """
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        return NOT_PLAIN
    if type(value) in (list, tuple):
        items = [_plain(item, depth - 1, left) for item in value[: left[0] + 1]]
        return NOT_PLAIN if any(item is NOT_PLAIN for item in items) else type(value)(items)
    if type(value) is dict or isinstance(value, Inert):
        some = islice(_entries(value).items(), left[0] + 1)
        pairs = {key: _plain(item, depth - 1, left) for key, item in some}
        pairs = {key: item for key, item in pairs.items() if item is not NOT_PLAIN}
        return pairs if pairs and left[0] >= 0 else NOT_PLAIN
    if isinstance(value, int) and value.bit_length() > 256:
        return NOT_PLAIN
    return value if isinstance(value, str | int | float | None) else NOT_PLAIN


def _arrays(path: Path, data: Bytes, spans: Spans, tensors: list[Tensor]) -> list[Array]:
    """Views of the file for the tensors, of which several may share a storage."""
    size = sum(math.prod(t.shape) * DTYPES[t.storage.dtype].itemsize for t in tensors)
    if size > MAX_SHARING * len(data):
        raise CheckpointError(
            f"{path}: the tensors take {size} bytes, the file has {len(data)}: "
            "they are views of the same numbers"
        )
    storages = {t.storage.key: _storage(path, data, spans, t.storage) for t in tensors}
    check_disjoint([(*spans[key], f"storage {key}") for key in storages], str(path))
    return [_strided(tensor, storages[tensor.storage.key]) for tensor in tensors]


def _storage(path: Path, data: Bytes, spans: Spans, storage: Storage) -> Array:
    where = f"storage {quote(storage.key)}"
    if storage.key not in spans:
        raise CheckpointError(f"{path} is damaged: {where} is missing")
    start, stop = spans[storage.key]
    if stop - start != storage.size * DTYPES[storage.dtype].itemsize:
        raise CheckpointError(
            f"{path} is damaged: {where} should hold {storage.size} numbers of {storage.dtype} "
            f"but has {stop - start} bytes"
        )
    return view(data, start, storage.dtype, (storage.size,))


def _strided(tensor: Tensor, storage: Array) -> Array:
    step = storage.itemsize
    strides = tuple(stride * step for stride in tensor.strides)
    buffer: Any = storage  # NumPy checks once more that the view lies inside
    result: Array = np.ndarray(tensor.shape, storage.dtype, buffer, tensor.offset * step, strides)
    return result


def _read_zip(path: Path, data: Bytes, verify: bool) -> tuple[Any, Spans]:
    """The object, and where the storages stand, of a file in the zip format."""
    entries = zip_entries(path, data)
    roots = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1 or roots[0].count("/") != 1:
        raise CheckpointError(
            f"{path} is a zip archive, but not one of torch.save: use the model's "
            "model.safetensors or pytorch_model.bin instead"
        )
    members = {n.removeprefix(roots[0]): e for n, e in entries.items() if n.startswith(roots[0])}
    for name, entry in members.items():
        if not entry.stored:
            raise CheckpointError(f"{path}: {quote(name)} is compressed: torch.save never does it")
        if verify and zlib.crc32(data[entry.start : entry.stop].data) != entry.crc32:
            raise CheckpointError(f"{path} is damaged: the checksum of {quote(name)} is wrong")
    order = members.get("byteorder")
    if order and data[order.start : order.stop].tobytes() == b"big":
        raise CheckpointError(f"{path} is big-endian: save it again on a little-endian machine")
    pickled = members["data.pkl"]
    machine = Machine(data[pickled.start : pickled.stop], NAMES, Storages().find)
    top = machine.load(f"{path}, data.pkl")
    inside = [(name.removeprefix("data/"), e) for name, e in members.items() if name[:5] == "data/"]
    return top, {key: (entry.start, entry.stop) for key, entry in inside}


def _read_legacy(path: Path, data: Bytes, verify: bool) -> tuple[Any, Spans]:
    """The same of a file in the format before torch 1.6, which has no checksums to verify."""
    storages = Storages()
    machine = Machine(data, NAMES, storages.find)
    magic, protocol, system, top, keys = (machine.load(str(path)) for _ in range(5))
    position = machine.stream.position
    if magic != MAGIC or protocol != PROTOCOL or type(system) is not dict or type(keys) is not list:
        raise CheckpointError(f"{path} is damaged, or was written by an unknown version of torch")
    if system.get("little_endian") is not True:
        raise CheckpointError(f"{path} is big-endian: save it again on a little-endian machine")
    spans: Spans = {}
    for key in keys:
        if not isinstance(key, str) or key not in storages:
            raise CheckpointError(f"{path} is damaged: no tensor uses its storage {quote(key)}")
        start = position + 8  # behind the number of elements
        size = int.from_bytes(data[position:start].tobytes(), "little")
        position = start + size * DTYPES[storages[key].dtype].itemsize
        if position > len(data):
            raise CheckpointError(
                f"{path} is cut short: storage {quote(key)} ends at byte {position}, the file at "
                f"{len(data)}: download it again"
            )
        spans[key] = start, position
    return top, spans


class Storages(dict[str, Storage]):
    """The storages that a pickle refers to, by their keys."""

    def find(self, identity: Any) -> Storage | Inert:
        """Give the storage of a persistent id."""
        match identity:
            case ("storage", Inert() as kind, _, _, _):
                return kind  # of a type that no weights have; in the zip, it can be passed over
            # ("storage", type, key, device, size); the older format adds None, or a view of another
            case ("storage", str(dtype), str(key), _, int(size), *rest) if dtype in DTYPES:
                storage = Storage(key, dtype, size)
                if rest in ([], [None]) and self.setdefault(key, storage) == storage:
                    return storage
        raise CheckpointError("it refers to a storage in a way that is not understood")


def _rebuild_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any
) -> Tensor | Inert:
    """A view of a storage, if it lies inside: what `rest` says is for training."""
    if isinstance(storage, Inert):
        return storage  # complex numbers, say, in an optimizer's state
    if not isinstance(storage, Storage) or type(shape) is not tuple or type(strides) is not tuple:
        raise CheckpointError("it makes a tensor of what is no storage, shape and strides")
    where = f"a tensor in storage {quote(storage.key)}"
    shape = check_shape(shape, where)
    if len(strides) != len(shape) or any(type(n) is not int or n < 0 for n in (offset, *strides)):
        raise CheckpointError(f"{where} has an impossible offset or strides")
    size = math.prod(shape)
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if size and (last >= storage.size or size > storage.size):
        raise CheckpointError(f"{where} reaches beyond its {storage.size} numbers")
    # Any number may stand where there is no second element to step to, or no element at all.
    strides = tuple(s if n > 1 and size else 0 for n, s in zip(shape, strides, strict=True))
    return Tensor(storage, offset if size else 0, shape, strides)


# What a pickle may refer to: a storage's type stands for our name of it, a function for its result.
NAMES: dict[str, Any] = {
    "torch.DoubleStorage":   "float64",
    "torch.FloatStorage":    "float32",
    "torch.HalfStorage":     "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage":     "int64",
    "torch.IntStorage":      "int32",
    "torch.ShortStorage":    "int16",
    "torch.CharStorage":     "int8",
    "torch.ByteStorage":     "uint8",
    "torch.BoolStorage":     "bool",
    "torch._utils._rebuild_tensor":    _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": lambda data, requires_grad, hooks: data,
    "collections.OrderedDict":         dict,
    # These stand in a configuration that was saved beside the tensors.
    "torch.Size":     tuple,
    "torch.device":   lambda kind, index=None: kind,
    "torch.float64":  "torch.float64",
    "torch.float32":  "torch.float32",
    "torch.float16":  "torch.float16",
    "torch.bfloat16": "torch.bfloat16",
}  # fmt: skip
