"""Raw readers of GPT-2's weights: one module per file format, chosen by the files' content."""

import os
import re
from pathlib import Path
from types import ModuleType

from gpt2np.checkpoints import (
    families,
    flax,
    foreign,
    gguf,
    llmc,
    npy,
    npz,
    pytorch,
    safetensors,
    sharded,
    tf_bundle,
)
from gpt2np.checkpoints.base import Checkpoint, map_file, sibling
from gpt2np.errors import CheckpointError

__all__ = ["Checkpoint", "is_there", "open_checkpoint"]

FORMATS: tuple[ModuleType, ...] = (llmc, tf_bundle, npz, pytorch, safetensors, flax, gguf)

# The file to open in a folder, the first that is there.
USUAL = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "checkpoint",
    "model.ckpt.index",
    "ckpt.pt",
    "flax_model.msgpack",
    "flax_model.msgpack.index.json",
)

# Else the only file of these kinds, those beside it that Trainer writes left out.
SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".index")
LATER_SUFFIXES = (".npz", ".msgpack", ".gguf")
NOT_WEIGHTS = {
    "training_args.bin",
    "optimizer.pt",
    "optimizer.bin",
    "scheduler.pt",
    "scaler.pt",
    "rng_state.pth",
    "adapter_model.safetensors",
    "adapter_model.bin",
}

# These are looked for last, only to say why they are not read.
UNREADABLE = (".h5", ".onnx", ".tflite")


def open_checkpoint(path: str | os.PathLike[str], *, verify: bool = False) -> Checkpoint:
    """Open a checkpoint and check its structure, but neither its names nor its shapes.

    Parameters
    ----------
    path : a file of any format that is read, whatever its name; or a folder, of which the file of
        the first of these names is taken: model.safetensors, pytorch_model.bin (or the index of
        either), TensorFlow's `checkpoint` or model.ckpt.index, ckpt.pt; else its only checkpoint.
    verify : also check the checksums of the tensors where the format has them (TensorFlow's, and
        torch.save's zip), which reads the whole file.

    Returns
    -------
    Checkpoint
        Names and arrays as they are in the file; arrays are views of it, read as they are used.

    Raises
    ------
    CheckpointError
        The file is missing, cut short, damaged, hostile, or of a format that is not read.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "model.safetensors"
    >>> safetensors.save(file, {"wpe": np.ones((4, 2), np.float32)})
    >>> checkpoint = open_checkpoint(folder.name)
    >>> checkpoint.format, checkpoint.tensors["wpe"].shape
    ('safetensors', (4, 2))
    >>> del checkpoint  # Windows removes no file that is mapped
    >>> folder.cleanup()
    """
    path = Path(path)
    if "\0" in str(path):
        raise CheckpointError(f"{str(path)!r} is not a possible path")
    try:
        return families.translated(_open_file(_find(path), verify=verify))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def _open_file(path: Path, *, verify: bool, shard: bool = False) -> Checkpoint:
    """Read one file by the format that recognises it; a shard must not lead to more files."""
    if path.is_dir():
        return npy.read_folder(path)
    data = map_file(path)
    for form in FORMATS:
        if form.recognises(data):
            checkpoint: Checkpoint = form.read(path, data, verify=verify)
            return checkpoint
    if sharded.recognises(data) and not shard:
        return sharded.read(path, data, lambda p: _open_file(p, verify=verify, shard=True))
    raise foreign.refuse(path, data)


def is_there(path: Path) -> bool:
    """Whether a path leads to a checkpoint, of whatever kind."""
    return path.exists() or _index(path).is_file()


def _index(path: Path) -> Path:
    """The index of "model.ckpt", which is no file but what TensorFlow calls the set of them."""
    return path.parent / f"{path.name}.index"


def _find(path: Path) -> Path:
    """The file to open: for a folder, the usual one; for TensorFlow's names, the index."""
    if path.is_dir():
        path = _find_in_folder(path)
    if not path.is_file() and _index(path).is_file():
        return _index(path)
    if path.name == "checkpoint":
        text = map_file(path)[:4096].tobytes().decode("utf-8-sig", "replace")
        if match := re.search(r'^model_checkpoint_path: "(.+)"\r?$', text, re.MULTILINE):
            # TensorFlow writes where it saved to; that the folder has moved since is normal.
            return sibling(path.parent, re.split(r"[/\\]", match[1])[-1] + ".index", str(path))
    return _whole(path)


# A file of several: Hugging Face's have an index in JSON, TensorFlow's one of their own.
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")
TF_PART = re.compile(r"(.+)\.(?:data-\d{5}-of-\d{5}|meta)")


def _whole(path: Path) -> Path:
    """The index of the files that a part of a checkpoint belongs to; another file itself."""
    if path.is_file() and (match := TF_PART.fullmatch(path.name)):
        raise CheckpointError(
            f"{path} is part of a TensorFlow checkpoint: give its folder, or {match[1]}.index in it"
        )
    match = SHARD.fullmatch(path.name)
    if not path.is_file() or match is None or int(match[3]) < 2:
        return path
    index = path.parent / f"{match[1]}{match[4]}.index.json"
    if index.is_file():
        return index
    raise CheckpointError(
        f"{path} is shard {int(match[2])} of {int(match[3])}, and {index.name} is not beside it: "
        "download that and the other shards, and give their folder"
    )


def _find_in_folder(folder: Path) -> Path:
    for name in USUAL:
        if (folder / name).is_file():
            return folder / name
    files = sorted(file for file in folder.iterdir() if file.name not in NOT_WEIGHTS)
    for suffixes in (SUFFIXES, LATER_SUFFIXES, UNREADABLE):
        found = [file for file in files if file.suffix in suffixes and file.is_file()]
        if len(found) == 1:
            return found[0]
        if found:
            _whole(found[0])  # a shard whose index is missing says so
            names = ", ".join(file.name for file in found[:5])
            raise CheckpointError(f"{folder} holds {len(found)} checkpoints ({names}): name one")
        if suffixes is LATER_SUFFIXES and npy.files_in(folder):
            return folder
    inner = sorted(part.name for part in folder.glob("checkpoint-*") if _has_usual(part))
    if inner:
        latest = max(inner, key=lambda name: (len(name), name))
        raise CheckpointError(f"{folder} holds no model itself: give {folder / latest}, for one")
    raise CheckpointError(f"{folder} holds no checkpoint: looked for {', '.join(USUAL)}")


def _has_usual(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (*USUAL, "adapter_model.safetensors"))
