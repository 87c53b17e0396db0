"""Files that are often taken for a checkpoint gpt2np reads, told by how they begin."""

from pathlib import Path

from gpt2np.checkpoints.base import Bytes
from gpt2np.errors import CheckpointError

_USE = "use the model's model.safetensors or pytorch_model.bin instead"
_FOLDER = "give its folder, if that has one for each tensor"
_UNPACK = "unpack it first"
_AGAIN = "download the file itself"

# (where the mark stands, the mark, what the file is, what to do)
MARKS = [
    (0,   b"\x89HDF\r\n\x1a\n",        "an HDF5 file (as Keras writes: tf_model.h5)", _USE),
    (0,   b"lmgg",                     "a GGML file (llama.cpp)",                     _USE),
    (0,   b"fmgg",                     "a GGML file (llama.cpp)",                     _USE),
    (0,   b"tjgg",                     "a GGML file (llama.cpp)",                     _USE),
    (4,   b"TFL3",                     "a TensorFlow Lite file",                      _USE),
    (0,   b"\x93NUMPY",                "a NumPy .npy array, one tensor",              _FOLDER),
    (0,   b"version https://git-lfs",  "a git-LFS pointer, not the file it stands for",
                                       "run `git lfs pull`, or " + _AGAIN),
    (0,   b"<!doctype html",           "an HTML page, not a checkpoint",              _AGAIN),
    (0,   b"<html",                    "an HTML page, not a checkpoint",              _AGAIN),
    (0,   b"<?xml",                    "an XML file (a server's error?)",             _AGAIN),
    (0,   b"{",                        "a JSON file, which holds no weights",         _USE),
    (0,   b"\x1f\x8b",                 "a gzip archive",                              _UNPACK),
    (0,   b"BZh",                      "a bzip2 archive",                             _UNPACK),
    (0,   b"\xfd7zXZ\0",               "an xz archive",                               _UNPACK),
    (0,   b"\x28\xb5\x2f\xfd",         "a zstd archive",                              _UNPACK),
    (0,   b"7z\xbc\xaf\x27\x1c",       "a 7-zip archive",                             _UNPACK),
    (0,   b"Rar!",                     "a RAR archive",                               _UNPACK),
    (257, b"ustar",                    "a tar archive",                               _UNPACK),
]  # fmt: skip


def identify(data: Bytes) -> tuple[str, str] | None:
    """What the file is and what to do, if it is of a kind known not to be readable."""
    head = data[:512].tobytes().ljust(8, b"\0")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for offset, mark, kind, advice in MARKS:
        if head.startswith(mark, offset) or (mark[:1] == b"<" and text.startswith(mark)):
            return kind, advice
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "a plain pickle, not a checkpoint of torch.save", _USE
    # A protobuf that begins with ir_version and goes on with opset, producer or graph.
    if head[:1] == b"\x08" and 0 < head[1] < 32 and head[2] in (0x12, 0x1A, 0x22, 0x3A):
        return "an ONNX file", _USE
    return None


def refuse(path: Path, data: Bytes) -> CheckpointError:
    """The error for a file that no reader recognises."""
    known = identify(data)
    if known:
        return CheckpointError("{} is {}: {}".format(path, *known))
    begin = data[:8].tobytes()
    return CheckpointError(
        f"{path} is of an unknown format (it begins with {begin!r}): read are safetensors, "
        "torch.save files, OpenAI's TensorFlow checkpoints, llm.c's .bin, GGUF, Flax's msgpack "
        "and NumPy's .npz"
    )
