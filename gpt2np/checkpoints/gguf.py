"""GGUF, llama.cpp's format: a header of typed values, the places of the tensors, the tensors.

Read are GPT-2's with the types below; what comes in blocks is turned into float32. Sizes stand
innermost first, and the matrices are nn.Linear's: [out, in] as NumPy counts them.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpt2np.checkpoints import ggml_blocks
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
from gpt2np.checkpoints.safetensors import stored
from gpt2np.errors import CheckpointError
from gpt2np.files import replacing

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ARCHITECTURE = "gpt2"
ALIGNMENT = 32  # of the tensors, unless general.alignment says otherwise

MAX_TENSORS, MAX_FIELDS = 20_000, 10_000
MAX_ITEMS = 2_000_000  # in all arrays together; GPT-2's header has 150,000

TEXT, LIST = 8, 9
# Number of a type of value -> how it is packed.
NUMBERS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip

# Number of a type of tensor -> its name, where that is one of ours.
PLAIN = {0: "float32", 1: "float16", 28: "float64", 30: "bfloat16"}
BLOCKS = {
    2: ggml_blocks.Q4_0, 3: ggml_blocks.Q4_1, 6: ggml_blocks.Q5_0, 7: ggml_blocks.Q5_1,
    8: ggml_blocks.Q8_0, 10: ggml_blocks.Q2_K, 11: ggml_blocks.Q3_K, 12: ggml_blocks.Q4_K,
    13: ggml_blocks.Q5_K, 14: ggml_blocks.Q6_K,
}  # fmt: skip
OTHERS = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16",
    26: "I32", 27: "I64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
    41: "Q1_0",
}  # fmt: skip

# What the header says of the model -> its name in config.json.
CONFIG = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "attention.head_count": "n_head",
    "block_count": "n_layer",
    "feed_forward_length": "n_inner",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
SPECIAL = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "padding_token_id": "pad_token_id",
}

# Kinds of tokens: a text's, special ones, those found in any text, and mere filling.
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
# How text is cut into pieces: these are GPT-2's ways. Files of 2023 do not say.
CUTTERS = (None, "gpt-2", "gpt2", "default")


class Place(NamedTuple):
    """Where a tensor stands, from the start of the tensors, and what it is."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


def recognises(data: Bytes) -> bool:
    return data[:4].tobytes() == MAGIC


def read(path: Path, data: Bytes, *, verify: bool = False) -> Checkpoint:
    """Read one file. The format has no checksums, so `verify` has nothing to add."""
    header = Header(data)
    try:
        fields, places = header.read()
    except (struct.error, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path} is cut short or damaged, in its header: download it again"
        ) from error
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from None
    _check_kind(path, fields)
    start = header.position + -header.position % _alignment(path, fields)
    spans = {place: _span(path, data, start, place) for place in places}
    check_disjoint(((*span, place.name) for place, span in spans.items()), str(path))
    tensors = {place.name: _tensor(data[a:b], place) for place, (a, b) in spans.items()}
    dtypes = {
        place.name: PLAIN[place.type] if place.type in PLAIN else BLOCKS[place.type].name
        for place in places
    }
    config = _config(fields, tensors)
    rest = {key: value for key, value in fields.items() if not isinstance(value, list)}
    return Checkpoint("gguf", (path,), tensors, dtypes, rest, config, _tokenizer(fields))


class Header:
    """The values of the header, one after another."""

    def __init__(self, data: Bytes) -> None:
        self.data, self.position = data.data, 4
        self.items = 0

    def read(self) -> tuple[dict[str, Any], list[Place]]:
        """The values by their keys, and the places of the tensors."""
        version = self.number("<I")
        if version & 0xFFFF == 0:
            raise CheckpointError("is a big-endian GGUF: convert it with gguf-convert-endian")
        if version not in VERSIONS:
            raise CheckpointError(
                f"is a GGUF of version {version}; read are 2 and 3: convert the model again with "
                "today's llama.cpp"
            )
        n_tensors, n_fields = self.number("<Q"), self.number("<Q")
        if n_tensors > MAX_TENSORS or n_fields > MAX_FIELDS:
            raise CheckpointError(
                f"says it has {n_tensors} tensors and {n_fields} values: no GPT-2 has as many"
            )
        fields: dict[str, Any] = {}
        for _ in range(n_fields):
            key = self.text()
            if key in fields:
                raise CheckpointError(f"is damaged: the key {quote(key)} stands twice")
            fields[key] = self.value(self.number("<I"))
        places: dict[str, Place] = {}
        for _ in range(n_tensors):
            place = self.place()
            if place.name in places:
                raise CheckpointError(f"is damaged: the tensor {quote(place.name)} stands twice")
            places[place.name] = place
        return fields, list(places.values())

    def number(self, form: str) -> Any:
        (number,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return number

    def text(self) -> str:
        start = self.position + 8
        self.position = start + int.from_bytes(self.data[self.position : start], "little")
        if self.position > len(self.data):
            raise struct.error("a text ends behind the file")
        return self.data[start : self.position].tobytes().decode("utf-8")

    def value(self, kind: int) -> Any:
        """A number, a text or a list of either."""
        if kind == TEXT:
            return self.text()
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind != LIST:
            raise CheckpointError(f"is damaged: it has a value of type {kind}")
        inner, size = self.number("<I"), self.number("<Q")
        self.items += size
        if self.items > MAX_ITEMS:
            raise CheckpointError(f"has lists of more than {MAX_ITEMS} values: no GPT-2 has")
        if inner == TEXT:
            return [self.text() for _ in range(size)]
        if inner not in NUMBERS:
            raise CheckpointError(f"is damaged: it has a list of values of type {inner}")
        form = f"<{size}{NUMBERS[inner][1]}"
        values = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return list(values)

    def place(self) -> Place:
        """The name, shape, type and place of a tensor."""
        name, n_sizes = self.text(), self.number("<I")
        where = f"has a tensor, {quote(name)}, that"
        if n_sizes > 8:
            raise CheckpointError(f"{where} has {n_sizes} axes")
        sizes = [self.number("<Q") for _ in range(n_sizes)]
        return Place(name, check_shape(sizes[::-1], where), self.number("<I"), self.number("<Q"))


def _check_kind(path: Path, fields: dict[str, Any]) -> None:
    """Refuse what is another model, or part of one."""
    architecture = fields.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise CheckpointError(f"{path} is a GGUF of the architecture {quote(architecture)}: "
                              "gpt2np computes 'gpt2'")  # fmt: skip
    count = fields.get("split.count", 1)
    if count != 1:
        raise CheckpointError(
            f"{path} is one of {quote(count)} parts: join them with llama-gguf-split --merge"
        )


def _alignment(path: Path, fields: dict[str, Any]) -> int:
    alignment = fields.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment not in (1 << n for n in range(3, 21)):
        raise CheckpointError(f"{path} has an impossible general.alignment, {quote(alignment)}")
    return alignment


def _span(path: Path, data: Bytes, start: int, place: Place) -> tuple[int, int]:
    """The bytes of a tensor, which lie in the file."""
    where = f"{path}: tensor {quote(place.name)}"
    size = math.prod(place.shape)
    if place.type in PLAIN:
        size *= DTYPES[PLAIN[place.type]].itemsize
    elif place.type in BLOCKS:
        form = BLOCKS[place.type]
        if not place.shape or place.shape[-1] % form.numbers:
            raise CheckpointError(
                f"{where}, {list(place.shape)}, does not consist of blocks of {form.numbers}"
            )
        size = size // form.numbers * form.bytes
    else:
        name = OTHERS.get(place.type, f"of the unknown type {place.type}")
        read = ", ".join(["F32", "F16", "BF16", *(form.name for form in BLOCKS.values())])
        raise CheckpointError(
            f"{where} is {name}, which gpt2np does not read (it reads {read}): use the model's "
            "F16 or Q8_0 file"
        )
    begin = start + place.offset
    if begin + size > len(data):
        raise CheckpointError(
            f"{where} ends at byte {begin + size}, the file at {len(data)}: download it again"
        )
    return begin, begin + size


def _tensor(data: Bytes, place: Place) -> Array:
    if place.type in PLAIN:
        return view(data, 0, PLAIN[place.type], place.shape)
    array = BLOCKS[place.type].unpack(data).reshape(place.shape)
    array.flags.writeable = False
    return array


def _config(fields: dict[str, Any], tensors: dict[str, Array]) -> dict[str, Any]:
    """The contents of config.json, as far as the header tells them; the rest is GPT-2's own."""
    head, embedding = tensors.get("output.weight"), tensors.get("token_embd.weight")
    tied = head is None or (embedding is not None and np.array_equal(head, embedding))
    config: dict[str, Any] = {"model_type": "gpt2", "tie_word_embeddings": tied}
    for key, name in CONFIG.items():
        if f"{ARCHITECTURE}.{key}" in fields:
            config[name] = fields[f"{ARCHITECTURE}.{key}"]
    epsilon = config.get("layer_norm_epsilon")
    if isinstance(epsilon, float):  # the decimal number that became this float32
        config["layer_norm_epsilon"] = float(str(np.float32(epsilon)))
    for key, name in SPECIAL.items():
        if f"tokenizer.ggml.{key}" in fields:
            config[name] = fields[f"tokenizer.ggml.{key}"]
    if embedding is not None and embedding.ndim == 2:
        config["vocab_size"] = embedding.shape[0]
    return config


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any] | None:
    """The contents of the tokenizer.json that the header amounts to; its own checks follow."""
    tokens, merges = (fields.get(f"tokenizer.ggml.{key}") for key in ("tokens", "merges"))
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return None
    kinds = fields.get("tokenizer.ggml.token_type")
    kinds = kinds if isinstance(kinds, list) and len(kinds) == len(tokens) else [0] * len(tokens)
    if "tokenizer.ggml.token_type" not in fields and isinstance(merges, list):
        kinds = _kinds(tokens, merges)
    cutter = fields.get("tokenizer.ggml.pre")
    byte_level = {
        "type": "ByteLevel" if cutter in CUTTERS else str(cutter),
        "add_prefix_space": False,  # what the header says of that is for SentencePiece
        "use_regex": True,
    }
    model = fields.get("tokenizer.ggml.model")
    return {
        "added_tokens": [
            {"id": id, "content": token, "special": kind == CONTROL}
            for id, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in (CONTROL, USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": _processor(fields, tokens),
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE" if model == "gpt2" else str(model),
            "vocab": {token: id for id, token in enumerate(tokens) if kinds[id] != UNUSED},
            "merges": merges if isinstance(merges, list) else [],
        },
    }


def _processor(fields: dict[str, Any], tokens: list[str]) -> dict[str, Any] | None:
    """What puts the first token before each text, if the header asks for it."""
    bos = fields.get("tokenizer.ggml.bos_token_id")
    asked = fields.get("tokenizer.ggml.add_bos_token") is True
    if not asked or type(bos) is not int or bos >= len(tokens):
        return None
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": tokens[bos]}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {tokens[bos]: {"ids": [bos]}},
    }


def _kinds(tokens: list[str], merges: list[Any]) -> list[int]:
    """Where the header is silent: what neither is a byte nor comes of a merge is special."""
    made = {str(merge).replace(" ", "") for merge in merges}
    return [0 if len(token) == 1 or token in made else CONTROL for token in tokens]


def save(
    path: str | os.PathLike[str],
    fields: Mapping[str, Any],
    tensors: Mapping[str, tuple[Array, str]],
) -> None:
    """Write a file of version 3, as PyPI's gguf does.

    Parameters
    ----------
    path : the file; it appears under this name only when it is whole.
    fields : the header's values: text, bool, int (as uint32), float (as float32), or a list of
        text or of int (as int32).
    tensors : name -> array and "float32" or "float16", to which it is rounded.

    Raises
    ------
    CheckpointError
        A number overflows to infinity.

    Examples
    --------
    >>> import tempfile
    >>> from gpt2np.checkpoints.base import map_file
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "model.gguf"
    >>> save(file, {"general.architecture": "gpt2"}, {"w": (np.ones((2, 3)), "float16")})
    >>> read(file, map_file(file)).tensors["w"].shape
    (2, 3)
    >>> folder.cleanup()
    """
    codes = {name: code for code, name in PLAIN.items()}
    header = [MAGIC, struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(fields))]
    header += [part for key, value in fields.items() for part in (_text(key), _value(value))]
    offset = 0
    for name, (array, dtype) in tensors.items():
        sizes = struct.pack(f"<I{array.ndim}Q", array.ndim, *array.shape[::-1])
        header += [_text(name), sizes, struct.pack("<IQ", codes[dtype], offset)]
        size = array.size * DTYPES[dtype].itemsize
        offset += size + -size % ALIGNMENT
    with replacing(path) as file:
        start = file.write(b"".join(header))
        file.write(bytes(-start % ALIGNMENT))
        for name, (array, dtype) in tensors.items():
            size = file.write(stored(name, array, dtype).data)
            file.write(bytes(-size % ALIGNMENT))


def _text(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """A value of the header behind the number of its type."""
    if isinstance(value, list):
        kind = 5 if value and isinstance(value[0], int) else TEXT
        items = map(_text, value) if kind == TEXT else [struct.pack(f"<{len(value)}i", *value)]
        return struct.pack("<IIQ", LIST, kind, len(value)) + b"".join(items)
    if isinstance(value, str):
        return struct.pack("<I", TEXT) + _text(value)
    kind = {bool: 7, int: 4, float: 6}[type(value)]
    return struct.pack("<I", kind) + struct.pack(NUMBERS[kind], value)
