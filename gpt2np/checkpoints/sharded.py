"""Hugging Face's sharded checkpoints: an index in JSON that names the file of each tensor."""

import codecs
from collections.abc import Callable
from pathlib import Path

from gpt2np.checkpoints.base import Array, Bytes, Checkpoint, parse_json, quote, sibling
from gpt2np.errors import CheckpointError

MAX_INDEX = 2_000_000  # GPT-2 XL needs some 50,000 bytes


def recognises(data: Bytes) -> bool:
    return data[:64].tobytes().removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{"


def read(path: Path, data: Bytes, read_shard: Callable[[Path], Checkpoint]) -> Checkpoint:
    """Read all files that the index names, through `read_shard`."""
    if len(data) > MAX_INDEX:
        raise CheckpointError(f"{path} is JSON of {len(data)} bytes, which is no checkpoint")
    index = parse_json(data.tobytes().removeprefix(codecs.BOM_UTF8), str(path))
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(
            f"{path} is JSON but no index of a sharded checkpoint (it has no weight_map): "
            "give the folder or the file with the weights"
        )
    if not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{path}: the weight_map is not a map of strings to strings")
    files = [sibling(path.parent, name, str(path)) for name in dict.fromkeys(places.values())]
    shards = [read_shard(file) for file in files]
    tensors: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    for shard in shards:
        for name, tensor in shard.tensors.items():
            if name in tensors:
                raise CheckpointError(
                    f"{path}: tensor {quote(name)} stands in {shard.files[0].name} again"
                )
            tensors[name], dtypes[name] = tensor, shard.dtypes[name]
    for name, file in places.items():
        if name not in tensors:
            raise CheckpointError(f"{path} places tensor {quote(name)} in {file}: it is not there")
    return Checkpoint(shards[0].format, (path, *files), tensors, dtypes, shards[0].metadata)
