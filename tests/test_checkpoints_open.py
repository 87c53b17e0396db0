"""Finding the file to open, and saying what a file is that cannot be."""

import errno
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from checkpoint_files import (
    bundle,
    dict_of,
    llmc_header,
    storage,
    stream,
    tensor,
    torch_legacy,
    torch_zip,
)
from shared import needs_posix

from gpt2np.checkpoints import open_checkpoint, safetensors
from gpt2np.errors import CheckpointError

PICKLE = stream(dict_of({"torch": tensor(storage("0"))}))
TORCH = torch_zip(PICKLE, {"0": bytes(24)})


def write_safetensors(path):
    safetensors.save(path, {"safetensors": np.ones(2, np.float32)})


def write_tensorflow(folder):
    index, data = bundle({"tensorflow": np.ones(2)})
    (folder / "model.ckpt.index").write_bytes(index)
    (folder / "model.ckpt.data-00000-of-00001").write_bytes(data)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["model.safetensors", "pytorch_model.bin", "model.ckpt.index"], "safetensors"),
        (["pytorch_model.bin", "model.ckpt.index", "flax_model.msgpack"], "torch"),
        (["model.ckpt.index", "ckpt.pt"], "tensorflow"),
        (["ckpt.pt", "other.pt"], "torch"),
        (["adapter.safetensors"], "safetensors"),
        (["run-9.pth", "config.json", "notes.txt"], "torch"),
        (["weights.bin", "training_args.bin", "optimizer.pt", "scheduler.pt"], "torch"),
        (["weights.bin", "scores.npz", "flax_model.msgpack", "model.gguf"], "torch"),
    ],
)
def test_the_usual_file_of_a_folder_is_found(tmp_path, files, found):
    for name in files:
        if name.endswith(".safetensors"):
            write_safetensors(tmp_path / name)
        elif name == "model.ckpt.index":
            write_tensorflow(tmp_path)
        else:
            (tmp_path / name).write_bytes(TORCH)
    assert list(open_checkpoint(tmp_path).tensors) == [found]
    assert list(open_checkpoint(str(tmp_path)).tensors) == [found]


def test_the_name_says_nothing_of_the_format(tmp_path):
    write_safetensors(tmp_path / "pytorch_model.bin")
    assert open_checkpoint(tmp_path).format == "safetensors"
    (tmp_path / "model.safetensors").write_bytes(TORCH)
    assert open_checkpoint(tmp_path).format == "pytorch"


def test_of_several_files_one_must_be_named(tmp_path):
    (tmp_path / "a.pt").write_bytes(TORCH)
    (tmp_path / "b.bin").write_bytes(TORCH)
    with pytest.raises(CheckpointError, match=r"holds 2 checkpoints \(a.pt, b.bin\): name one"):
        open_checkpoint(tmp_path)


def test_a_folder_without_a_checkpoint(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"holds no checkpoint: looked for model\.safe"):
        open_checkpoint(tmp_path)


def zip_of(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tar_of(data):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("x")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def npy():
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548118077\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [  # the dots stand for brackets
        (b"", "is empty: download it again"),
        (b"\x89HDF\r\n\x1a\n" + bytes(90), "is an HDF5 file .*tf_model.h5.*: use the"),
        (b"\x81\xabtransformer\x84\xa1h\x8c", "is MessagePack .as Flax writes.*, cut"),
        (b"\x08\x07\x12\x07pytorch\x1a\x06" + bytes(20), "is an ONNX file: use the model's"),
        (b"GGUF\3\0\0\0" + bytes(20), "is a GGUF of the architecture None: gpt2np"),
        (b"lmgg" + bytes(20), "is a GGML file .llama.cpp.: use the model's"),
        (b"\x1c\0\0\0TFL3" + bytes(20), "is a TensorFlow Lite file: use the model's"),
        (npy(), "is a NumPy .npy array, one tensor: give its folder"),
        (pickle.dumps({"a": 1}), "is a plain pickle, not a checkpoint of torch.save: use"),
        (pickle.dumps({"a": 1}, 2), "is a plain pickle, not a checkpoint of torch.save"),
        (b"\n<!DOCTYPE html>\n<html>", "is an HTML page, not a checkpoint: download the file"),
        (b"<html lang='en'>", "is an HTML page, not a checkpoint: download the file"),
        (b"<?xml version='1.0'?><Error>", "is an XML file .a server's error.*: download the"),
        (LFS, "is a git-LFS pointer, not the file it stands for: run `git lfs pull`, or"),
        (gzip.compress(b"x", mtime=0), "is a gzip archive: unpack it first"),
        (tar_of(TORCH), "is a tar archive: unpack it first"),
        (zip_of(**{"config.json": b"{}", "model.weights.h5": b""}), "is a zip archive, but not"),
        (zip_of(), "is of an unknown format"),
        (b'{"n_layer": 12}', "is JSON but no index of a sharded checkpoint"),
        (b"[1, 2]", r"is of an unknown format \(it begins with b'\[1, 2\]'\): read"),
        (b"The quick brown fox", "is of an unknown format .it begins with b'The quic'.: read are"),
        (llmc_header(magic=20240328), "holds llm.c's tokenizer, not a model"),
        (bytes(1000), "is of an unknown format"),
        (b"\xff", "is of an unknown format"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, data, message):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as error:
        open_checkpoint(tmp_path / "x")
    assert str(error.value).startswith(f"{tmp_path / 'x'} ")
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "name", ["tf_model.h5", "flax_model.msgpack", "model.onnx", "a.gguf", "a.npz", "model.tflite"]
)
def test_a_folder_of_only_such_files(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(90))
    with pytest.raises(CheckpointError, match=f"{name} is an HDF5 file"):
        open_checkpoint(tmp_path)


# Paths.


@needs_posix
def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    for path, message in [
        (tmp_path / "nothing", "nothing cannot be read: No such file or directory"),
        (tmp_path / "dangling", "dangling cannot be read: No such file or directory"),
        (tmp_path / "loop", "loop cannot be read: Too many levels of symbolic links"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        ("a\0b", "is not a possible path"),
        ("", "holds no checkpoint|holds .* checkpoints|unknown"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(path)


@needs_posix
def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(CheckpointError, match="is not a regular file"):
            open_checkpoint(path)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENODEV, "No such device"),
        OSError(errno.ENOSYS, "Function not implemented"),
        OSError("mmap is unavailable on wasm32-wasi"),  # as one Python says it
        ImportError("No module named 'mmap'"),
    ],
    ids=str,
)
def test_a_file_system_that_maps_nothing(tmp_path, monkeypatch, error):
    """As some network drives and Python in a browser: the file is read."""
    write_safetensors(tmp_path / "model.safetensors")
    [mapped] = open_checkpoint(tmp_path).tensors.values()

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(np, "memmap", fail)
    [read] = open_checkpoint(tmp_path).tensors.values()
    assert np.array_equal(read, mapped)
    assert read.dtype == mapped.dtype
    assert not read.flags.writeable


def test_a_python_without_mmap():
    """As CPython's own for WebAssembly."""
    code = "import sys; sys.modules['mmap'] = None; import gpt2np; print(gpt2np.load().source)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "tiny-shakespeare\n", done.stderr


def test_a_file_larger_than_32_bits_can_map(tmp_path, monkeypatch):
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.truncate(1 << 31)  # a hole: it takes no room
    monkeypatch.setattr(sys, "maxsize", (1 << 31) - 1)
    with pytest.raises(CheckpointError, match="too large for a Python of 32 bits"):
        open_checkpoint(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_without_permission(tmp_path):
    (tmp_path / "x").write_bytes(TORCH)
    (tmp_path / "x").chmod(0)
    with pytest.raises(CheckpointError, match="cannot be read: Permission denied"):
        open_checkpoint(tmp_path / "x")


def test_a_folder_in_place_of_a_shard(tmp_path):
    (tmp_path / "a.bin").mkdir()
    index = json.dumps({"weight_map": {"w": "a.bin"}})
    (tmp_path / "pytorch_model.bin.index.json").write_text(index)
    with pytest.raises(CheckpointError, match=r"a\.bin is missing"):
        open_checkpoint(tmp_path)


def test_the_older_format_is_known_under_any_protocol(tmp_path):
    old = stream(dict_of({"w": tensor(storage("0", "FloatStorage", 6, b"N"))}))
    (tmp_path / "x").write_bytes(torch_legacy(old, {"0": np.ones(6, np.float32)}))
    assert open_checkpoint(tmp_path / "x").tensors["w"].sum() == 6
