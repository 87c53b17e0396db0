"""Dumps: named arrays on disk, in every form, whole or refused."""

import json
import os
import zipfile

import numpy as np
import pytest

from gpt2np import dumps
from gpt2np.errors import CheckpointError, InputError
from gpt2np.golden import Golden, record
from gpt2np.golden.tiny import IDS, tiny_model

FORMS = ["a.npz", "a.safetensors", "folder"]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_a_folder_holds_one_recording(model, tmp_path):
    record(model, IDS).save(tmp_path / "run")
    with pytest.raises(InputError, match="would mix two recordings"):
        record(model, IDS[:2]).save(tmp_path / "run")
    assert np.array_equal(Golden.load(tmp_path / "run").arrays["ids"], [IDS])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same(tmp_path, model, form):
    golden = record(model, IDS, cache_split=2, weights=True)
    golden.save(tmp_path / form)
    again = Golden.load(tmp_path / form)
    assert again.arrays.keys() == golden.arrays.keys()
    assert again.meta == golden.meta
    for name, array in golden.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, strict=True)


def test_numpy_alone_reads_them(tmp_path, model):
    """Without pickles, which would be code."""
    golden = record(model, IDS)
    golden.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert json.loads(str(file["meta"])) == golden.meta
    golden.save(tmp_path / "folder")
    assert json.loads((tmp_path / "folder" / "meta.json").read_text()) == golden.meta
    q = np.load(tmp_path / "folder" / "h.1.attn.q.npy", allow_pickle=False)
    assert np.array_equal(q, golden.arrays["h.1.attn.q"])


def test_facts_that_a_windows_editor_saved(tmp_path, model):
    golden = record(model, IDS)
    golden.save(tmp_path / "folder")
    meta = tmp_path / "folder" / "meta.json"
    meta.write_bytes(b"\xef\xbb\xbf" + meta.read_bytes().replace(b"\n", b"\r\n"))
    assert Golden.load(tmp_path / "folder").meta == golden.meta
    meta.write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"meta.json is not UTF-8: byte 0 is 0xff"):
        Golden.load(tmp_path / "folder")


@pytest.mark.parametrize("form", ["a.npz", "folder"])
def test_everything_is_in_c_order(tmp_path, form):
    """A matrix in Fortran order, read by a program that trusts its shape, comes out transposed."""
    dumps.save(tmp_path / form, {"a": np.asfortranarray(np.arange(6.0).reshape(2, 3))})
    if form == "a.npz":
        with zipfile.ZipFile(tmp_path / form) as archive:
            data = archive.read("a.npy")
    else:
        data = (tmp_path / "folder" / "a.npy").read_bytes()
    assert b"'fortran_order': False" in data
    assert np.frombuffer(data[-48:], "<f8").tolist() == [0, 1, 2, 3, 4, 5]


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.npy").write_bytes(b"nothing")
    (tmp_path / "a.txt").write_text("")
    np.savez(tmp_path / "meta.npz", meta=np.array("{", "<U1"))
    np.savez(tmp_path / "pickled.npz", a=np.array([{}], dtype=object))
    np.savez(tmp_path / "text.npz", ids=np.array(["1"], "<U1"))
    np.savez(tmp_path / "records.npz", ids=np.zeros(2, [("a", "i4")]))
    np.savez_compressed(tmp_path / "bomb.npz", ids=np.zeros(1 << 26, np.int8))
    for name, message in {
        "bad.npz": "is not an .npz file",
        "empty": "holds no .npy files",
        "bad": "x.npy' is not a .npy array",
        "a.txt": "activations are read from .npz",
        "meta.npz": "is not valid JSON",
        "pickled.npz": "'a.npy' holds Python objects, which are never loaded",
        "text.npz": "'ids.npy' holds '<U1', not numbers",
        "records.npz": "'ids.npy' is not an array of plain numbers",
        "bomb.npz": "which no recording packs as small",
    }.items():
        with pytest.raises(CheckpointError, match=message):
            Golden.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Golden.load(tmp_path / "missing.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.bin", "folder"])
def test_a_pipe_does_not_hang(tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / name / "a.npy" if name == "folder" else tmp_path / name)
    with pytest.raises(CheckpointError, match="is not a regular file"):
        Golden.load(tmp_path / name)


def test_golden_is_made_by_hand_too(tmp_path):
    Golden({"a": np.ones(3)}).save(tmp_path / "a.npz")
    assert Golden.load(tmp_path / "a.npz").meta == {}


@pytest.mark.parametrize("form", ["a.npz", "a.safetensors", "a"])
def test_arrays_are_written_little_endian(tmp_path, form):
    arrays = {"x": np.linspace(0, 1, 6).reshape(2, 3), "ids": np.arange(4)}
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}
    for name, kind in (("little", arrays), ("big", swapped)):
        (tmp_path / name).mkdir()
        dumps.save(tmp_path / name / form, kind)
    little, big = (dumps.load(tmp_path / name / form)[0] for name in ("little", "big"))
    for name, array in little.items():
        assert array.dtype == big[name].dtype == arrays[name].dtype
        assert np.array_equal(array, big[name])
