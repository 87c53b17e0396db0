"""llm.c's .bin: a header of 256 int32, then each kind of weight across all layers.

https://github.com/karpathy/llm.c (write_model in train_gpt2.py, gpt2_build_from_checkpoint in
train_gpt2.c). The matrices are [out, in], as nn.Linear has them; the token embedding has the rows
of the padded vocabulary.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gpt2np.checkpoints.base import DTYPES, Array, Bytes, Checkpoint, view
from gpt2np.errors import CheckpointError
from gpt2np.files import replacing
from gpt2np.schema import TABLE

MAGIC = 20240326
TOKENIZER_MAGIC = 20240328
PADDED_TO = 128  # rows of wte come in multiples of so many
HEADER = 256 * 4
DTYPE_OF_VERSION = {3: "float32", 5: "bfloat16"}

# Number of the header -> what it says.
FIELDS = {
    2: "max_seq_len",
    3: "vocab_size",
    4: "num_layers",
    5: "num_heads",
    6: "channels",
    7: "padded_vocab_size",
}
MAX_LAYERS = 1_000

# llm.c's other files, which begin in the same way.
OTHERS = {
    20240327: "the activations of llm.c's debug state",
    20240328: "llm.c's tokenizer",
    20240520: "tokens to train on",
}


def recognises(data: Bytes) -> bool:
    return int.from_bytes(data[:4].tobytes(), "little") in (MAGIC, *OTHERS)


def read(path: Path, data: Bytes, *, verify: bool = False) -> Checkpoint:
    """Read one file. The format has no checksums, so `verify` has nothing to add."""
    if len(data) < HEADER:
        raise CheckpointError(f"{path} is cut short, in its header: download it again")
    header = data[:HEADER].view("<i4").tolist()
    if header[0] in OTHERS:
        raise CheckpointError(f"{path} holds {OTHERS[header[0]]}, not a model")
    if header[1] not in DTYPE_OF_VERSION:
        raise CheckpointError(
            f"{path} is of version {header[1]}; read are 3 (float32) and 5 (bfloat16): "
            "write it again with today's llm.c"
        )
    dtype = DTYPE_OF_VERSION[header[1]]
    fields = {name: header[number] for number, name in FIELDS.items()}
    padding = fields["padded_vocab_size"] - fields["vocab_size"]
    if min(fields.values()) < 1 or padding < 0 or fields["num_layers"] > MAX_LAYERS:
        raise CheckpointError(f"{path} has an impossible header: {fields}")
    kinds = _kinds(fields)
    size = HEADER + DTYPES[dtype].itemsize * sum(math.prod(shape) for _, shape in kinds)
    if size != len(data):
        raise CheckpointError(
            f"{path} should have {size} bytes by its header but has {len(data)}: download it again"
        )
    tensors: dict[str, Array] = {}
    start = HEADER
    for name, shape in kinds:
        array = view(data, start, dtype, shape)
        start += math.prod(shape) * DTYPES[dtype].itemsize
        if "{i}" in name:
            tensors |= {name.format(i=i): layer for i, layer in enumerate(array)}
        else:
            tensors[name] = array
    return Checkpoint("llm.c", (path,), tensors, dict.fromkeys(tensors, dtype), fields)


def _kinds(fields: dict[str, int]) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of each kind of weight, in the order of the file, which is the table's."""
    D = fields["channels"]
    size = {
        "V": fields["padded_vocab_size"],
        "n_ctx": fields["max_seq_len"],
        "D": D,
        "3D": 3 * D,
        "F": 4 * D,
    }
    kinds = []
    for row in TABLE:
        if row.component == "lm_head":
            continue  # always tied
        shape = [size[symbol] for symbol in row.shape.split()]
        if "{i}" in row.name:
            shape = [fields["num_layers"], *shape[::-1]]
        kinds.append((f"transformer.{row.name}", tuple(shape)))
    return kinds


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    *,
    n_head: int,
    padding: float = 0.0,
) -> None:
    """Write a model as llm.c's write_model does, in float32.

    Parameters
    ----------
    path : the file; it appears under this name only when it is whole.
    tensors : canonical name -> array, matrices as [in, out]; the head is tied.
    padding : what the rows of wte behind the vocabulary hold, which no reader should read.

    Raises
    ------
    CheckpointError
        The format has no place for a head of its own, nor for an MLP that is not 4 D wide.
    """
    wte, wpe = tensors["wte.weight"], tensors["wpe.weight"]
    V, D = wte.shape
    if "lm_head.weight" in tensors or tensors["h.0.mlp.c_fc.weight"].shape != (D, 4 * D):
        raise CheckpointError("llm.c's file has a tied head, and an MLP of 4 times the width")
    fields = {
        "max_seq_len": len(wpe),
        "vocab_size": V,
        "num_layers": sum(name.endswith(".ln_1.weight") for name in tensors),
        "num_heads": n_head,
        "channels": D,
        "padded_vocab_size": -(-V // PADDED_TO) * PADDED_TO,
    }
    header = np.zeros(HEADER // 4, "<i4")
    header[:2] = MAGIC, 3
    for number, name in FIELDS.items():
        header[number] = fields[name]
    with replacing(path) as file:
        file.write(header.tobytes())
        for name, shape in _kinds(fields):
            ours = name.removeprefix("transformer.")
            if "{i}" in ours:
                for i in range(fields["num_layers"]):
                    _write(file, tensors[ours.format(i=i)].T)  # nn.Linear's [out, in]
            else:
                _write(file, tensors[ours])
            if ours == "wte.weight":
                _write(file, np.full((shape[0] - V, D), padding))


def _write(file: BinaryIO, array: Array) -> None:
    file.write(np.ascontiguousarray(array, "<f4").data)


def save_tokenizer(path: str | os.PathLike[str], tokens: Sequence[bytes], eot: int) -> None:
    """Write the bytes of each token as llm.c's write_tokenizer does, for its decoder."""
    header = np.zeros(HEADER // 4, "<i4")
    header[:4] = TOKENIZER_MAGIC, 2, len(tokens), eot
    if max(map(len, tokens)) > 255:
        raise CheckpointError("llm.c's file has no place for a token of more than 255 bytes")
    with replacing(path) as file:
        file.write(header.tobytes())
        for token in tokens:
            file.write(bytes([len(token)]) + token)
