"""Where models come from: names, paths, caches; and downloads from a server that does all wrong."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from pathlib import Path

import faulty_server as fs
import numpy as np
import pytest
from models import random_params
from shared import SHARED, needs_posix, needs_shared

import gpt2np
from gpt2np import Config, files, hub
from gpt2np.assets_path import assets
from gpt2np.checkpoints import safetensors
from gpt2np.errors import CheckpointError, DownloadError, InputError
from gpt2np.files import WINDOWS
from gpt2np.hub import caches, fetching, remote

REPO = "someone/model"
COMMIT = "c0ffee" + "0" * 34
OTHER = "decade" + "1" * 34
WEIGHTS = bytes(range(251)) * 1200  # some chunks long, and no two chunks alike
FILES = {
    "config.json": b'{"model_type": "gpt2"}',
    "vocab.json": b'{"a": 0}',
    "merges.txt": b"#version: 0.2\n",
    "tokenizer.json": b'{"model": {"vocab": {"a": 0}, "merges": []}, '
    b'"pre_tokenizer": {"type": "ByteLevel"}}',
    "model.safetensors": WEIGHTS,
}
INDEX = json.dumps(
    {
        "weight_map": {
            "wte.weight": "model-00001-of-00002.safetensors",
            "wpe.weight": "model-00002-of-00002.safetensors",
            "ln_f.bias": "model-00001-of-00002.safetensors",
        }
    }
).encode()
KEPT = 70_000  # all that come before a cut
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A user's machine with nothing on it and no settings: home, caches, working directory."""
    for name in list(os.environ):
        if re.match(r"(HF|HUGGING|TRANSFORMERS|GPT2NP|XDG)|.*(PROXY|_CA_BUNDLE)$", name.upper()):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.setenv("GPT2NP_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nothing answers
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # it takes most of the time
    return tmp_path


@pytest.fixture
def waits(monkeypatch):
    """The seconds that would have been slept between tries."""
    waits = []
    monkeypatch.setattr(fetching, "sleep", waits.append)
    return waits


@pytest.fixture
def servers(monkeypatch, waits):
    """A hub that has someone/model, and the storage that it redirects to."""
    with fs.serving(fs.FaultyServer()) as front, fs.serving(fs.FaultyServer()) as storage:
        monkeypatch.setenv("HF_ENDPOINT", front.url + "/")
        fs.publish(front, storage, REPO, COMMIT, FILES)
        yield front, storage


@pytest.fixture
def part(machine):
    """Where half of someone/model's weights would lie."""
    return machine / "own/partial" / f"models--someone--model--{COMMIT}/model.safetensors.part"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    assert "save config.json, model.safetensors" in text  # what to do by hand
    assert text.count("http") >= 1
    return text


def write_model(folder, files=None):
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in (FILES if files is None else files).items():
        (folder / name).write_bytes(body)
    return folder


def write_cache(root, repo=REPO, *, commit=COMMIT, revision="main", files=None):
    """Lay a model out as huggingface_hub does: blobs, and snapshots of links to them."""
    model = root / f"models--{repo.replace('/', '--')}"
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir(exist_ok=True)
    for name, body in (FILES if files is None else files).items():
        blob = model / "blobs" / hashlib.sha256(body).hexdigest()
        blob.write_bytes(body)
        if WINDOWS:  # where few users may make links
            (snapshot / name).write_bytes(body)
        else:
            (snapshot / name).symlink_to(Path("../../blobs") / blob.name)
    ref = model / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit)
    return snapshot


def run(code, stderr=subprocess.PIPE):
    """Start a Python process with this one's environment."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        text=True,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


# Paths and names


@pytest.mark.parametrize("source", [None, "tiny-shakespeare"])
def test_the_embedded_model(source):
    assert hub.resolve(source) == assets() / "tiny-shakespeare"


def test_a_path_that_exists_is_itself(machine):
    folder = write_model(machine / "home" / "models")
    assert hub.resolve(folder) == hub.resolve(str(folder)) == hub.resolve("~/models") == folder
    assert hub.resolve(folder / "model.safetensors") == folder / "model.safetensors"


def test_a_folder_comes_before_a_model_of_its_name(machine):
    write_cache(machine / "home/.cache/huggingface/hub", "openai-community/gpt2")
    assert hub.resolve("gpt2").name == COMMIT
    Path("gpt2").mkdir()
    assert hub.resolve("gpt2") == Path("gpt2")


@pytest.mark.parametrize(
    "source",
    [
        "./x",
        "../x",
        "/x",
        "~/x",
        "a/b/c",
        "a/",
        "a\\b",
        "C:\\x",
        "a..b/c",
        "a/..",
        "",
        "x y",
        "x\n",
        "\0",
        "é/x",
        "-x/y",
        "weights/ckpt.pt",
        "model.safetensors",
        "a/b@c..d",
        "a@",
        "a/b@/etc",
        "a/b@x@y",
        "a/b?x=1",
        "http://x",
        "x" * 5000 + "/" + "..",
        Path("nowhere"),
        Path("someone/model"),
        Path("gpt2"),
    ],
)
def test_what_can_only_be_a_path_is_not_sought_on_the_web(servers, source):
    with pytest.raises(CheckpointError, match=r"no such file or folder") as error:
        hub.resolve(source)
    assert "\n" not in str(error.value)
    assert servers[0].seen == []


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("gtp2", "'gpt2'"),
        ("gpt2-larg", "'gpt2-large'"),
        ("124m", "'124M'"),
        ("distillgpt2", "'distilgpt2'"),
    ],
)
def test_a_typo_gets_a_suggestion(servers, typo, meant):
    with pytest.raises(CheckpointError, match=f"did you mean .*{meant}.*owner/name") as error:
        hub.resolve(typo)
    assert "\n" not in str(error.value)
    with pytest.raises(CheckpointError, match="tiny-shakespeare, gpt2, 124M, 117M"):
        hub.download("nothing-like-it")
    assert servers[0].seen == []


@pytest.mark.parametrize(
    ("repo", "names"),
    [
        ("openai-community/gpt2", ["gpt2", "124M", "117M", "openai-community/gpt2"]),
        ("openai-community/gpt2-medium", ["gpt2-medium", "355M", "345M"]),
        ("openai-community/gpt2-large", ["gpt2-large", "774M", "762M"]),
        ("openai-community/gpt2-xl", ["gpt2-xl", "1558M", "1542M"]),
        ("distilbert/distilgpt2", ["distilgpt2"]),
    ],
)
def test_every_name_of_a_model(servers, repo, names):
    fs.publish(*servers, repo, COMMIT, FILES)
    folders = {hub.resolve(name) for name in names}
    assert len(folders) == 1
    assert {r.path.split("/resolve/")[0] for r in servers[0].seen} == {f"/{repo}"}


# Caches on this machine


def test_a_hugging_face_cache_is_used(machine):
    snapshot = write_cache(machine / "home/.cache/huggingface/hub")
    assert hub.resolve(REPO) == hub.resolve(f"{REPO}@main") == snapshot
    assert hub.resolve(f"{REPO}@{COMMIT}", download=False) == snapshot
    with pytest.raises(DownloadError, match=r"gpt2np download someone/model@v2"):
        hub.resolve(f"{REPO}@v2", download=False)


def test_a_cached_revision_of_several_words(machine):
    snapshot = write_cache(machine / "home/.cache/huggingface/hub", revision="refs/pr/1")
    assert hub.resolve(f"{REPO}@refs/pr/1") == snapshot


def test_a_cache_from_before_the_models_had_owners(machine):
    cache = machine / "home/.cache/huggingface/hub"
    snapshot = write_cache(cache, "gpt2")
    assert hub.resolve("gpt2") == hub.resolve("openai-community/gpt2") == snapshot
    assert hub.resolve("gpt2") != write_cache(cache, "openai-community/gpt2") == hub.resolve("gpt2")


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["config.json", "model.safetensors"], True),
        (["config.json", "pytorch_model.bin"], True),
        (["config.json", "model.safetensors.index.json", *SHARDS], True),
        (["config.json", "model.safetensors.index.json", SHARDS[0]], False),
        (["config.json", "model.safetensors.index.json", SHARDS[0], "pytorch_model.bin"], True),
        (["config.json", "model.safetensors.index.json"], False),
        (["config.json", "vocab.json", "tf_model.h5"], False),
        (["model.safetensors"], False),
        ([], False),
    ],
)
def test_only_a_whole_model_counts(machine, names, whole):
    files = {name: INDEX if name.endswith("index.json") else b"{}" for name in names}
    snapshot = write_cache(machine / "home/.cache/huggingface/hub", files=files)
    if whole:
        assert hub.resolve(REPO, download=False) == snapshot
    else:
        with pytest.raises(DownloadError):
            hub.resolve(REPO, download=False)


@pytest.mark.parametrize(
    "damage",
    [
        lambda model: (model / "snapshots" / COMMIT / "model.safetensors").resolve().unlink(),
        lambda model: (model / "refs/main").unlink(),
        lambda model: (model / "refs/main").write_text("../../elsewhere"),
        lambda model: (model / "refs/main").write_bytes(b"\xff\xfe"),
        lambda model: (model / "refs/main").write_text(OTHER),
    ],
    ids=["a dead link", "no ref", "a ref out of the cache", "a binary ref", "a ref to nothing"],
)
def test_a_damaged_cache_is_passed_over(servers, machine, damage):
    snapshot = write_cache(machine / "home/.cache/huggingface/hub")
    write_model(snapshot.parents[2] / "elsewhere")
    damage(snapshot.parents[1])
    assert hub.resolve(REPO).is_relative_to(machine / "own")


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b"{}",
        b'{"weight_map": []}',
        b'{"weight_map": {}}',
        b'{"weight_map": {"a": 1}}',
        b'{"weight_map": {"a": ["x.bin"]}}',
        b'{"weight_map": {"a": "../x.bin"}}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_damaged_index_is_no_model(machine, index):
    files = {"config.json": b"{}", "model.safetensors.index.json": index}
    write_cache(machine / "home/.cache/huggingface/hub", files=files)
    with pytest.raises(DownloadError, match="gpt2np download"):
        hub.resolve(REPO, download=False)


def test_the_order_of_caches(servers, machine, monkeypatch):
    assert hub.resolve(REPO) == machine / f"own/hf/models--someone--model/snapshots/{COMMIT}"
    theirs = write_cache(machine / "hf/hub")
    monkeypatch.setenv("HF_HOME", str(machine / "hf"))
    assert hub.resolve(REPO) == theirs
    assert hub.download(REPO).is_relative_to(machine / "own")


SETTINGS = [
    {},
    {"XDG_CACHE_HOME": "/x"},
    {"XDG_CACHE_HOME": "/x", "HF_HOME": "/h"},
    {"HF_HOME": "~/h"},
    {"HF_HOME": "$HOME/h", "HF_TOKEN_PATH": "/t"},
    {"HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/old"},
    {"HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/old", "HF_HUB_CACHE": "/new"},
]


def test_the_hugging_face_settings_mean_what_they_mean_there(monkeypatch):
    pytest.importorskip("huggingface_hub")
    code = f"""
import importlib, json, os
from huggingface_hub import constants
for settings in {SETTINGS!r}:
    os.environ.update(settings)
    importlib.reload(constants)
    print(json.dumps([constants.HF_HUB_CACHE, constants.HF_TOKEN_PATH]))
    for name in settings: del os.environ[name]
"""
    out, err = run(code).communicate()
    assert len(out.splitlines()) == len(SETTINGS), err
    read = []
    monkeypatch.setattr(Path, "read_text", lambda path, **_: read.append(path) or "")
    for settings, line in zip(SETTINGS, out.splitlines(), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            caches.hf_token()
            assert [caches.hf_cache(), read[-1]] == [Path(path) for path in json.loads(line)]


@pytest.mark.parametrize(
    ("platform", "settings", "expected"),
    [
        ("linux", {}, "~/.cache/gpt2np"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/gpt2np"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "~/Library/Caches/gpt2np"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/gpt2np"),
        ("win32", {"GPT2NP_HOME": "~/models"}, "~/models"),
    ],
)
def test_the_own_cache(monkeypatch, platform, settings, expected):
    monkeypatch.delenv("GPT2NP_HOME")
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert hub.own_cache() == Path(expected).expanduser()


# Downloads that go well


def test_a_download(servers, machine):
    front, storage = servers
    folder = hub.resolve(REPO)
    assert contents(folder) == FILES
    assert (machine / "own/hf/models--someone--model/refs/main").read_text() == COMMIT
    assert [path.suffix for path in (machine / "own/partial").iterdir()] == [".lock"]
    assert all(r.headers["accept-encoding"] == "identity" for r in front.seen + storage.seen)
    before = len(front.seen)
    assert hub.resolve(REPO) == hub.resolve(f"{REPO}@{COMMIT}") == hub.download(f"{REPO}@{COMMIT}")
    assert len(front.seen) == before  # all of it from the cache
    assert hub.download(REPO, revision="main") == folder
    assert len(front.seen) == before + 1  # what main is now
    assert os.listdir(machine / "own/hf/models--someone--model/refs") == ["main"]
    assert len(storage.seen) == 1


def test_a_file_is_on_the_disk_before_it_has_its_name(servers, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("sync"))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(Path(b).name), replace(a, b)))
    hub.resolve(REPO)
    assert done == [step for name in FILES for step in ("sync", name)] + [COMMIT, "main"]


def test_a_model_never_mixes_revisions(servers, machine):
    front, storage = servers
    new = {name: body + b" " for name, body in FILES.items()}

    def main_moves_on(handler, file):
        fs.honest(handler, file)
        fs.publish(front, storage, REPO, OTHER, new)

    front.fail("config.json", main_moves_on)
    assert contents(hub.resolve(REPO)) == FILES
    asked, *then = [r.path.split("/")[4] for r in front.seen]
    assert asked == "main"
    assert set(then) == {COMMIT}
    assert contents(hub.download(REPO)) == new  # another folder
    assert contents(hub.resolve(REPO)) == new
    assert contents(hub.resolve(f"{REPO}@{COMMIT}")) == FILES


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"config.json": b'{"model_type": "bert"}'}, "a 'bert' model"),
        ({"config.json": b'{"activation_function": "mish"}'}, "activation_function is 'mish'"),
        ({"tokenizer.json": b'{"model": {"type": "Unigram"}}'}, 'model is "Unigram"'),
        ({"tokenizer.json": None, "vocab.json": None, "vocab.txt": b"[UNK]"}, "txt, vocab.txt"),
    ],
    ids=str,
)
def test_small_files_are_judged_before_the_weights_are_fetched(
    servers, machine, capsys, changed, says
):
    files = {name: body for name, body in {**FILES, **changed}.items() if body is not None}
    repo = "someone/else"
    fs.publish(*servers, repo, COMMIT, files)
    told = []

    def weights(handler, file):
        told.append(capsys.readouterr().err)
        fs.honest(handler, file)

    servers[0].fail("model.safetensors", weights)
    if "config.json" in changed:
        with pytest.raises(CheckpointError, match=says):
            hub.resolve(repo)
        assert not told
    else:
        hub.resolve(repo)
        assert says in told[0]
        assert told[0].count("\n") == 1


def test_a_revision_of_several_words(servers, machine):
    fs.publish(*servers, REPO, OTHER, FILES, revisions=["refs/pr/1"])
    folder = hub.resolve(f"{REPO}@refs/pr/1")
    assert folder.name == OTHER
    assert servers[0].seen[0].path == f"/{REPO}/resolve/refs%2Fpr%2F1/config.json"
    assert hub.resolve(f"{REPO}@refs/pr/1", download=False) == folder
    assert hub.download(REPO, revision="refs/pr/1") == folder != hub.download(REPO)


@pytest.mark.parametrize("revision", ["../x", "a..b", "/x", "", "a b", "a\n", "a?b", "a@b"])
def test_a_revision_that_cannot_be(servers, revision):
    if revision:
        with pytest.raises(InputError, match="one branch, tag or commit"):
            hub.download(REPO, revision=revision)
        assert servers[0].seen == []
    else:
        assert hub.download(REPO, revision=revision).name == COMMIT
    with pytest.raises(InputError, match="one branch"):
        hub.download(f"{REPO}@main", revision="main")


@pytest.mark.parametrize(
    ("there", "fetched"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (
            ["model.safetensors.index.json", *SHARDS, "pytorch_model.bin"],
            ["model.safetensors.index.json", *SHARDS],
        ),
        (["pytorch_model.bin", "tf_model.h5"], ["pytorch_model.bin"]),
        (["pytorch_model.bin.index.json", *SHARDS], ["pytorch_model.bin.index.json", *SHARDS]),
    ],
)
def test_the_first_kind_of_weights_is_taken(servers, there, fetched):
    files = {name: INDEX if name.endswith("index.json") else name.encode() for name in there}
    files["config.json"] = b"{}"
    fs.publish(*servers, "some/other", COMMIT, files)
    assert sorted(contents(hub.resolve("some/other"))) == sorted(["config.json", *fetched])


def test_an_adapter_and_its_base(servers, tmp_path):
    base = gpt2np.Model(random_params(Config(vocab_size=50257, n_ctx=8, n_embd=8, n_head=2)))
    folder = gpt2np.save(base, tmp_path / "base")
    fs.publish(*servers, "some/base", OTHER, contents(folder))
    A, B = np.ones((2, 8), "f4"), np.ones((24, 2), "f4")
    name = "base_model.model.transformer.h.0.attn.c_attn.lora_{}.weight"
    safetensors.save(tmp_path / "adapter", {name.format("A"): A, name.format("B"): B})
    settings = {"peft_type": "LORA", "base_model_name_or_path": "some/base", "r": 2,
                "lora_alpha": 1, "fan_in_fan_out": True, "target_modules": ["c_attn"]}  # fmt: skip
    files = {
        "adapter_config.json": json.dumps(settings).encode(),
        "adapter_model.safetensors": (tmp_path / "adapter").read_bytes(),
    }
    fs.publish(*servers, "some/adapter", COMMIT, files)
    model = gpt2np.load("some/adapter")
    changed = "h.0.attn.c_attn.weight"
    np.testing.assert_allclose(model.params[changed], base.params[changed] + 1, rtol=1e-6)
    assert all((model.params[n] == base.params[n]).all() for n in base.params if n != changed)
    before = len(servers[0].seen)
    assert contents(hub.resolve("some/adapter")) == files
    assert len(servers[0].seen) == before  # both are in the cache now

    fs.publish(*servers, "some/dora", COMMIT, {**files, "adapter_config.json": json.dumps(
        {**settings, "use_dora": True}).encode()})  # fmt: skip
    with pytest.raises(CheckpointError, match="is an adapter with use_dora"):
        gpt2np.load("some/dora")
    assert servers[1].requests_of("adapter_model.safetensors")[1:] == []


def test_a_repository_without_weights(servers):
    fs.publish(*servers, "some/other", COMMIT, {"config.json": b"{}", "tf_model.h5": b""})
    with pytest.raises(DownloadError, match=r"neither model\.safetensors nor py") as error:
        hub.resolve("some/other")
    one_line(error)


def test_another_kind_of_model_is_refused_before_its_weights_come(servers):
    files = {**FILES, "config.json": b'{"model_type": "llama"}'}
    fs.publish(*servers, "some/llama", COMMIT, files)
    with pytest.raises(CheckpointError, match="a 'llama' model, not a 'gpt2' one"):
        hub.resolve("some/llama")
    assert servers[1].seen == []


@pytest.mark.parametrize(
    "name",
    [
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/b.safetensors",
        "a\\b.safetensors",
        "config.json",
        "C:x.safetensors",
        ".safetensors",
        "x.safetensors\n",
        "",
        "..",
        None,
        3,
        ["x.bin"],
        {"a": "b"},
    ],
)
def test_an_index_names_plain_files_or_nothing(machine, name):
    index = machine / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"wte.weight": "a.bin", "wpe.weight": name}}))
    with pytest.raises(CheckpointError, match="weight_map must map each tensor to") as error:
        caches.shards(index)
    assert "\n" not in str(error.value)


def test_no_file_is_asked_for_that_an_index_may_not_name(servers, machine):
    index = b'{"weight_map": {"wte.weight": "../../evil.bin"}}'
    fs.publish(
        *servers, "some/evil", COMMIT, {"config.json": b"{}", "model.safetensors.index.json": index}
    )
    with pytest.raises(CheckpointError, match="weight_map"):
        hub.resolve("some/evil")
    assert servers[0].seen[-1].name == "model.safetensors.index.json"


def test_huggingface_hub_can_read_the_cache(servers, machine):
    theirs = pytest.importorskip("huggingface_hub")
    folder = hub.resolve(REPO)
    for name in FILES:
        found = theirs.try_to_load_from_cache(REPO, name, cache_dir=machine / "own/hf")
        assert found == str(folder / name)
    (repo,) = theirs.scan_cache_dir(machine / "own/hf").repos
    assert repo.repo_id == REPO
    assert repo.refs["main"].commit_hash == COMMIT


def test_a_cache_that_huggingface_hub_wrote(servers, machine):
    """Their client takes the tests' server for a hub; and what it leaves on the disk is found."""
    pytest.importorskip("huggingface_hub")
    code = f"""
from huggingface_hub import hf_hub_download
for name in {list(FILES)!r}: hf_hub_download({REPO!r}, name)
"""
    for server in servers:  # they ask for the headers first
        server.RequestHandlerClass = type("WithHead", (fs.Handler,), {"do_HEAD": head})
    process = run(code)
    _, err = process.communicate()
    assert process.returncode == 0, err
    before = len(servers[0].seen)
    folder = hub.resolve(REPO, download=False)
    assert folder.is_relative_to(machine / "home/.cache/huggingface")
    assert contents(folder) == FILES
    assert len(servers[0].seen) == before


def head(handler):
    file = handler.server.files.get(handler.path)
    headers = {} if file is None else dict(file.headers)
    if file is not None and file.location:
        headers["Location"] = file.location
    length = 0 if file is None else len(file.body)
    handler.answer(
        404 if file is None else 302 if file.location else 200, b"", headers, length=length
    )


# OpenAI's files


@pytest.fixture
def openai(servers, monkeypatch):
    """OpenAI's four sizes on the storage server; without the digests of the real files."""
    front, _ = servers
    monkeypatch.setenv("GPT2NP_OPENAI_ENDPOINT", f"{front.url}/gpt-2/models")
    monkeypatch.setattr(remote, "_PINNED", {})
    for size in ("124M", "355M", "774M", "1558M"):
        for name in OPENAI:
            body = f"{size} {name}".encode() * 10_000
            front.files[f"/gpt-2/models/{size}/{name}"] = fs.File(body, {"ETag": '"0x8D"'})
    return front


OPENAI = [
    "checkpoint",
    "encoder.json",
    "hparams.json",
    "model.ckpt.data-00000-of-00001",
    "model.ckpt.index",
    "model.ckpt.meta",
    "vocab.bpe",
]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("gpt2", "124M"),
        ("117M", "124M"),
        ("355M", "355M"),
        ("openai-community/gpt2-large", "774M"),
        ("gpt2-xl", "1558M"),
    ],
)
def test_the_original_files(openai, machine, name, size):
    folder = hub.download(name, origin="openai")
    assert folder == machine / "own/openai" / size
    assert sorted(contents(folder)) == OPENAI
    assert all(
        path.read_bytes() == f"{size} {path.name}".encode() * 10_000 for path in folder.iterdir()
    )
    assert {r.path.rpartition("/")[0] for r in openai.seen} == {f"/gpt-2/models/{size}"}
    assert hub.resolve(name) == folder  # where the hub's files are not here
    with pytest.raises(DownloadError, match="gpt2np download"):
        hub.resolve(f"{name}@main", download=False)  # they are of no revision on the hub
    (folder / "checkpoint").unlink()
    with pytest.raises(DownloadError, match="gpt2np download"):
        hub.resolve(name, download=False)
    before = len(openai.seen)
    assert hub.download(name, origin="openai") == folder
    assert [r.name for r in openai.seen[before:]] == ["checkpoint"]  # the others were kept


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "distilgpt2"},
        {"name": REPO},
        {"name": "gpt2@main"},
        {"name": "gpt2", "revision": "x"},
    ],
)
def test_what_openai_did_not_publish(openai, arguments):
    with pytest.raises(InputError, match="OpenAI published gpt2"):
        hub.download(**arguments, origin="openai")
    with pytest.raises(InputError, match="'hf' or 'openai'"):
        hub.download("gpt2", origin="google")
    assert openai.seen == []


@pytest.mark.parametrize("header", ["Content-MD5", "x-ms-blob-content-md5"])
def test_the_md5_that_azure_tells(openai, header):
    file = openai.files["/gpt-2/models/124M/vocab.bpe"]
    right = base64.b64encode(hashlib.md5(file.body).digest()).decode()
    file.headers[header] = right
    openai.fail("vocab.bpe", fs.corrupt)
    with pytest.raises(DownloadError, match=r"vocab.bpe: wrong content \(md5 ") as error:
        hub.download("124M", origin="openai")
    assert "save checkpoint, encoder.json" in str(error.value)
    assert f"{openai.url}/gpt-2/models/124M/<file>" in str(error.value)
    hub.download("124M", origin="openai")


def test_the_md5_of_a_part_is_not_that_of_the_file(openai):
    file = openai.files["/gpt-2/models/124M/vocab.bpe"]

    def rest(handler, file):
        fs.honest(handler, fs.File(file.body, {**file.headers, "Content-MD5": "AAAA"}))

    openai.fail("vocab.bpe", fs.cut(70_000), rest)
    assert (hub.download("124M", origin="openai") / "vocab.bpe").read_bytes() == file.body
    assert len(openai.requests_of("vocab.bpe")) == 2


def test_a_file_that_changed_is_not_patched_onto_its_old_half(openai):
    """Without a digest, only the ETag can tell: If-Range."""
    path, name = "/gpt-2/models/124M/vocab.bpe", "vocab.bpe"
    openai.fail(name, fs.cut(70_000), *[fs.hang_up] * 4)
    with pytest.raises(DownloadError, match="bytes are kept"):
        hub.download("124M", origin="openai")
    new = fs.File(openai.files[path].body[::-1], {"ETag": '"0x8E"'})
    openai.files[path] = new
    assert (hub.download("124M", origin="openai") / name).read_bytes() == new.body
    assert openai.requests_of(name)[-1].headers["if-range"] == '"0x8D"'


@pytest.mark.parametrize("etag", ['W/"weak"', "bare", '"nai\xefve"', ""])
def test_an_etag_that_may_not_stand_in_if_range(openai, etag):
    openai.files["/gpt-2/models/124M/vocab.bpe"].headers["ETag"] = etag
    openai.fail("vocab.bpe", fs.cut(70_000))
    hub.download("124M", origin="openai")
    assert openai.requests_of("vocab.bpe")[1].headers["range"] == f"bytes={KEPT}-"
    assert "if-range" not in openai.requests_of("vocab.bpe")[1].headers


@needs_shared
def test_the_pinned_digests():
    files = json.loads((SHARED / "pretrained-goldens.json").read_text(encoding="utf-8"))["files"]
    gpt2 = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
    distil = "2290a62682d06624634c1f46a6ad5be0f47f38aa"
    sizes = ("124M", "355M", "774M", "1558M")
    pinned = {
        "encoder.json (= vocab.json)": [
            (gpt2, "vocab.json"),
            *((size, "encoder.json") for size in sizes),
        ],
        "vocab.bpe (= merges.txt)": [
            (gpt2, "merges.txt"),
            *((size, "vocab.bpe") for size in sizes),
        ],
        "openai-community/gpt2@607a30d model.safetensors": [(gpt2, "model.safetensors")],
        "distilgpt2 model.safetensors": [(distil, "model.safetensors")],
        "OpenAI 124M model.ckpt.data-00000-of-00001": [("124M", "model.ckpt.data-00000-of-00001")],
    }
    assert pinned.keys() == files.keys()
    kinds = {file: "sha256" if "sha256" in files[file] else "md5" for file in files}
    expected = {
        key: f"{kinds[file]}:{files[file][kinds[file]]}"
        for file, keys in pinned.items()
        for key in keys
    }
    assert expected == remote._PINNED


def test_a_pinned_digest_holds_against_a_server_that_agrees_with_itself(servers):
    gpt2 = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
    fs.publish(*servers, "openai-community/gpt2", gpt2, FILES)
    with pytest.raises(DownloadError, match=r"vocab.json: wrong content \(sha256 .* not 19613966"):
        hub.resolve("gpt2")


# Faults. The weights come from the storage server, the small files from the hub.


def test_a_cut_is_resumed(servers, waits):
    _, storage = servers
    storage.fail("model.safetensors", fs.cut(70_000), fs.cut(70_000))
    assert contents(hub.resolve(REPO)) == FILES
    ranges = [r.headers.get("range") for r in storage.seen]
    assert ranges == [None, f"bytes={KEPT}-", f"bytes={2 * KEPT}-"]
    assert {r.headers.get("if-range") for r in storage.seen[1:]} == {storage_etag(storage)}
    assert 0.25 <= waits[0] <= 0.75
    assert 0.5 <= waits[1] <= 1.5  # doubled
    assert waits[1] != 2 * waits[0]  # with jitter


def storage_etag(storage):
    return storage.files[f"/storage/{COMMIT}/model.safetensors"].headers["ETag"]


def test_a_download_is_resumed_by_the_next_process(servers, part):
    _, storage = servers
    storage.fail("model.safetensors", fs.cut(70_000), *[fs.hang_up] * 4)
    with pytest.raises(DownloadError, match=r"\(70,000 bytes are kept for the next") as error:
        hub.resolve(REPO)
    assert "the connection was cut, 5 times in a row" in one_line(error)
    assert part.read_bytes() == WEIGHTS[:KEPT]
    with pytest.raises(DownloadError):
        hub.resolve(REPO, download=False)  # a half is not taken for a model
    small = {name: len(servers[0].requests_of(name)) for name in ("vocab.json", "merges.txt")}
    assert contents(hub.resolve(REPO)) == FILES
    assert storage.seen[-1].headers["range"] == f"bytes={KEPT}-"
    assert small == {name: len(servers[0].requests_of(name)) for name in small}  # not once more


def test_steps_forward_do_not_count_as_failures(servers, monkeypatch):
    monkeypatch.setattr(fetching, "CHUNK", 10_000)
    monkeypatch.setattr(fetching, "STEP", 20_000)
    servers[1].fail("model.safetensors", *[fs.cut(20_000)] * 10)
    assert contents(hub.resolve(REPO)) == FILES


def test_small_steps_forward_do(servers, monkeypatch):
    monkeypatch.setattr(fetching, "CHUNK", 10_000)
    servers[1].fail("model.safetensors", *[fs.cut(20_000)] * 10)
    with pytest.raises(DownloadError, match=r"5 times in a row.*100,000 bytes are kept"):
        hub.resolve(REPO)
    assert len(servers[1].seen) == 5


@pytest.mark.parametrize("fault", [fs.ignore_range, fs.wrong_range])
def test_a_server_that_does_not_do_ranges(servers, openai, fault):
    servers[1].fail("model.safetensors", fs.cut(70_000), fault)
    assert contents(hub.resolve(REPO)) == FILES
    openai.fail("vocab.bpe", fs.cut(70_000), fault)  # without a digest to tell
    body = (hub.download("124M", origin="openai") / "vocab.bpe").read_bytes()
    assert body == openai.files["/gpt-2/models/124M/vocab.bpe"].body


def test_a_server_that_never_does_ranges_and_always_hangs_up(servers):
    def cut_from_the_start(handler, file):
        handler.answer(200, file.body[:70_000], file.headers, length=len(file.body))

    servers[1].fail("model.safetensors", *[cut_from_the_start] * 10)
    with pytest.raises(DownloadError, match="5 times in a row"):
        hub.resolve(REPO)


@pytest.mark.parametrize(
    "left",
    [WEIGHTS, WEIGHTS[:-1], WEIGHTS + b"x", WEIGHTS[::-1], b"x", b""],
    ids=["whole", "nearly", "too long", "wrong", "wrong start", "empty"],
)
def test_what_an_old_part_may_be(servers, part, left):
    part.parent.mkdir(parents=True)
    part.write_bytes(left)
    assert contents(hub.resolve(REPO)) == FILES
    assert len(servers[1].seen) == (1 if WEIGHTS.startswith(left) else 2)


def test_wrong_content_is_deleted(servers, part, waits):
    servers[1].fail("model.safetensors", fs.corrupt)
    with pytest.raises(
        DownloadError,
        match=r"wrong content \(sha256 [0-9a-f]{64}, not [0-9a-f]{64}"
        r"\), deleted",
    ) as error:
        hub.resolve(REPO)
    one_line(error)
    assert not part.exists()
    assert waits == []
    assert contents(hub.resolve(REPO)) == FILES


def test_wrong_content_of_a_small_file(servers):
    servers[0].fail("merges.txt", fs.corrupt)
    with pytest.raises(DownloadError, match=r"merges.txt: wrong content \(git [0-9a-f]{40}, not"):
        hub.resolve(REPO)


def test_a_storage_that_has_less_than_the_hub_says(servers):
    servers[1].fail("model.safetensors", *[fs.short(10)] * 5)
    with pytest.raises(DownloadError, match=r"the connection was cut at 301,190 of 301,200 bytes"):
        hub.resolve(REPO)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (401, r"access refused \(401\); check the model's name .*or set HF_TOKEN"),
        (403, r"access refused \(403\); check the model's name .*or set HF_TOKEN"),
        (404, r"no such file \(404\); check the model's name and revision"),
        (204, r"unexpected answer \(204\)"),
        (400, r"unexpected answer \(400\)"),
        (410, r"unexpected answer \(410\)"),
        (416, r"unexpected answer \(416\)"),
    ],
)
def test_an_answer_that_will_stay_so(servers, waits, code, says):
    servers[0].fail("config.json", fs.status(code))
    with pytest.raises(DownloadError, match=says) as error:
        hub.resolve(REPO)
    assert f"{servers[0].url}/{REPO}/resolve/main/config.json" in one_line(error)
    assert waits == []


@pytest.mark.parametrize(
    ("name", "fault", "says"),
    [
        ("config.json", fs.status(408), r"the server is in trouble \(408\), 5 times in a row"),
        ("config.json", fs.status(429), r"too many requests \(429\), 5 times in a row; wait so"),
        ("config.json", fs.hang_up, r"the connection was cut, 5 times in a row; check the"),
        (
            "model.safetensors",
            fs.status(500),
            r"the server is in trouble \(500\), 5 times in a row; t",
        ),
        (
            "model.safetensors",
            fs.status(503),
            r"the server is in trouble \(503\), .* set HF_ENDPOINT",
        ),
        ("model.safetensors", fs.hang_up, r"the connection was cut, 5 times in a row; check the"),
    ],
)
def test_an_answer_that_may_change(servers, waits, name, fault, says):
    server = servers[name == "model.safetensors"]
    server.fail(name, *[fault] * 4)
    assert contents(hub.resolve(REPO)) == FILES
    assert len(waits) == 4
    assert all(0.25 * 2**i <= wait <= 0.75 * 2**i for i, wait in enumerate(waits))
    before = len(server.requests_of(name))
    server.fail(name, *[fault] * 5)
    fs.publish(*servers, REPO, OTHER, FILES)
    with pytest.raises(DownloadError, match=says) as error:
        hub.download(REPO)
    one_line(error)
    assert len(server.requests_of(name)) == before + 5


def test_retry_after(servers, waits):
    in_half_a_minute = formatdate(time.time() + 30)
    for name, values in {
        "config.json": ["7", "3600", in_half_a_minute],
        "vocab.json": ["0", "soon", "-5", ""],
        "merges.txt": [formatdate(0), "Mon, 99 Foo 2020", "9" * 400],
    }.items():
        servers[0].fail(name, *[fs.status(429, Retry_After=value) for value in values])
    hub.resolve(REPO)
    assert waits[:2] == [7, 60]
    assert 20 < waits[2] <= 30
    for i, wait in enumerate(waits[3:7]):
        assert 0.25 * 2**i <= wait <= 0.75 * 2**i
    for i, wait in enumerate(waits[7:]):
        assert 0.25 * 2**i <= wait <= 0.75 * 2**i
    assert len(waits) == 10


def test_tries_are_told(servers, capfd):
    servers[0].fail("vocab.json", fs.status(503))
    hub.resolve(REPO)
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"gpt2np: http\S*/vocab.json: the server is in trouble \(503\); trying "
        r"again in 0\.\d s\n",
        err,
    )


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "model.safetensors"])
@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_web_page_in_place_of_a_file(servers, part, name, content_type):
    server = servers[name == "model.safetensors"]
    server.fail(name, *[fs.web_page(content_type)] * 2)
    told = name != "config.json" or content_type.startswith("text/html")
    expected = "a web page came in place of the file; if" if told else "the answer names no commit"
    with pytest.raises(DownloadError, match=expected) as error:
        hub.resolve(REPO)
    one_line(error)
    assert not part.exists()


def test_a_web_page_in_place_of_the_rest_of_a_file(servers, part):
    servers[1].fail("model.safetensors", fs.cut(70_000), fs.web_page("text/html"))
    with pytest.raises(DownloadError, match="log in with a browser"):
        hub.resolve(REPO)
    assert part.read_bytes() == WEIGHTS[:KEPT]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_redirects_in_circles(servers, name):
    servers[name == "model.safetensors"].fail(name, fs.circle)
    with pytest.raises(DownloadError, match="redirects in circles") as error:
        hub.resolve(REPO)
    one_line(error)


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "http://[",
        "data:,x",
        "http://127.0.0.1:99999/",
    ],
)
def test_a_redirect_to_no_web_address(servers, location):
    servers[0].fail("vocab.json", fs.redirect(location))
    with pytest.raises(DownloadError, match="cannot be used") as error:
        hub.resolve(REPO)
    one_line(error)


@pytest.mark.parametrize("endpoint", ["file:///srv", "hf.co", "ftp://x", "http://[", "x y"])
def test_an_endpoint_that_is_no_web_address(monkeypatch, endpoint):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(DownloadError, match=r"cannot be used .*check HF_ENDPOINT"):
        hub.resolve(REPO)


def test_a_server_that_is_no_hub(servers):
    for headers in {}, {"X-Repo-Commit": "../x"}:
        servers[0].files[f"/{REPO}/resolve/main/config.json"] = fs.File(b"{}", headers)
        with pytest.raises(DownloadError, match=r"names no commit, .*check HF_ENDPOINT"):
            hub.resolve(REPO)


def test_a_file_of_unknown_length(servers, openai, part):
    servers[1].fail("model.safetensors", fs.without_length)
    assert contents(hub.resolve(REPO)) == FILES  # the hub told length and sha256
    openai.fail("vocab.bpe", fs.without_length)
    with pytest.raises(DownloadError, match="tells neither length nor digest"):
        hub.download("gpt2", origin="openai")


def test_a_compressed_answer(servers):
    servers[0].fail("vocab.json", fs.compressed)
    with pytest.raises(DownloadError, match="came compressed") as error:
        hub.resolve(REPO)
    one_line(error)


def test_a_missing_shard(servers):
    files = {"config.json": b"{}", "model.safetensors.index.json": INDEX, SHARDS[0]: b"x"}
    fs.publish(*servers, "some/other", COMMIT, files)
    with pytest.raises(DownloadError, match=rf"{SHARDS[1]}: no such file \(404\)"):
        hub.resolve("some/other")
    with pytest.raises(DownloadError, match="gpt2np download"):
        hub.resolve("some/other", download=False)


def test_nothing_listens(monkeypatch, waits):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(DownloadError, match="cannot be reached, 5 times in a row") as error:
            hub.resolve("gpt2")
    one_line(error)
    assert len(waits) == 4


def test_no_network(monkeypatch, waits):
    def fail(*args, **kwargs):
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.delenv("HF_ENDPOINT")
    with pytest.raises(DownloadError, match=r"name cannot be resolved \(no network\?\)") as error:
        hub.resolve("gpt2")
    assert "https://huggingface.co/openai-community/gpt2/resolve/main/config" in one_line(error)


def test_a_silent_server(servers, monkeypatch):
    monkeypatch.setattr(fetching, "TIMEOUT", (0.2, 0.2))
    servers[1].fail("model.safetensors", fs.silent(0.3), fs.trickle(70_000, 0.3))
    assert contents(hub.resolve(REPO)) == FILES
    assert servers[1].seen[-1].headers["range"] == f"bytes={KEPT}-"
    servers[0].fail("config.json", *[fs.silent(0.3)] * 5)
    with pytest.raises(DownloadError, match="the server went silent, 5 times"):
        hub.download(REPO)


def test_a_server_that_trickles(servers, openai, monkeypatch, part):
    """Bytes come often enough for each read, but the file would take days."""
    monkeypatch.setattr(fetching, "PERIOD", 0.2)
    monkeypatch.setattr(fetching, "RATE", 1_000_000)
    servers[1].fail("model.safetensors", *[fs.trickle(2_000, 0.02)] * 5)
    with pytest.raises(DownloadError, match="less than 1,000,000 bytes a second, 5 times in a row"):
        hub.resolve(REPO)
    assert 0 < part.stat().st_size < len(WEIGHTS)


@pytest.mark.parametrize("status", [200, 206])
def test_a_server_that_goes_on_after_the_declared_length(servers, openai, part, status):
    _, storage = servers
    endless = fs.endless(status)
    storage.fail("model.safetensors", *[fs.cut(70_000)] * (status == 206), endless)
    assert contents(hub.resolve(REPO)) == FILES  # what was declared came, and has its digest
    openai.fail("vocab.bpe", *[fs.cut(70_000)] * (status == 206), endless)
    folder = Path(os.environ["GPT2NP_HOME"]) / "partial" / "openai--124M"
    with pytest.raises(DownloadError, match=r"went on after the [\d,]+ bytes that the file has"):
        hub.download("124M", origin="openai")  # without a digest, who knows
    assert not (folder / "vocab.bpe.part").exists()
    assert sum(file.stat().st_size for file in folder.iterdir()) < 10_000_000


def test_an_answer_of_unknown_length_does_not_fill_the_disk(servers, monkeypatch, part):
    monkeypatch.setattr(fetching, "UNTOLD", 500_000)
    servers[0].files[f"/{REPO}/resolve/{COMMIT}/model.safetensors"].headers.pop("x-linked-size")
    servers[1].fail("model.safetensors", fs.endless(200, told=False))
    with pytest.raises(DownloadError, match="wrong content"):
        hub.resolve(REPO)
    assert not part.exists()


@pytest.mark.parametrize("note", [b"\xff\xfe", b"", b'"un\nclosed', b"x" * 10_000])
def test_a_damaged_etag_is_thrown_away(servers, part, note):
    part.parent.mkdir(parents=True)
    part.write_bytes(WEIGHTS[:KEPT])
    part.with_name(f"{part.name}.etag").write_bytes(note)
    assert contents(hub.resolve(REPO)) == FILES
    assert servers[1].seen[0].headers["range"] == f"bytes={KEPT}-"
    assert "if-range" not in servers[1].seen[0].headers


def test_a_file_system_without_locks(servers, monkeypatch, capsys):
    monkeypatch.setattr(fetching, "try_lock", lambda descriptor: None)
    assert contents(hub.resolve(REPO)) == FILES
    err = capsys.readouterr().err
    assert err.count("on a file system without locks: fetch a model only once there") == 1


def test_a_scanner_that_holds_a_download_on_windows(servers, monkeypatch, part):
    """What came is kept; when the file is free, nothing is fetched again."""
    real = os.replace

    def held(source, target):
        if Path(target).name == "model.safetensors":
            raise PermissionError(errno.EACCES, "Access is denied", str(source), None, str(target))
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", held)
        patch.setattr(files, "WINDOWS", True)
        patch.setattr(files, "PATIENCE", 0.05)
        with pytest.raises(DownloadError, match=r"/model.safetensors: is in use; close") as error:
            hub.resolve(REPO)
    assert ".part" not in one_line(error)
    assert part.read_bytes() == WEIGHTS
    assert contents(hub.resolve(REPO)) == FILES
    assert [r.headers.get("range") for r in servers[1].seen] == [None, f"bytes={len(WEIGHTS)}-"]


def test_tls_that_fails(servers, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", servers[0].url.replace("http:", "https:"))
    with pytest.raises(DownloadError, match=r"TLS failed .*REQUESTS_CA_BUNDLE"):
        hub.resolve(REPO)


@needs_posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without room")
def test_a_full_disk(servers, part, machine):
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with pytest.raises(DownloadError, match=r"No space left .*GPT2NP_HOME") as error:
        hub.resolve(REPO)
    assert str(part) in one_line(error)
    part.unlink()
    assert contents(hub.resolve(REPO)) == FILES


def test_a_cache_that_cannot_be_written(servers, machine):
    (machine / "own").write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match=r"cannot write .*GPT2NP_HOME") as error:
        hub.resolve(REPO)
    one_line(error)


def test_a_snapshot_that_lost_a_file_is_completed(servers):
    folder = hub.resolve(REPO)
    (folder / "config.json").unlink()
    assert hub.resolve(REPO) == folder
    assert contents(folder) == FILES
    assert len(servers[1].seen) == 1


# Offline, tokens, proxies


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline(servers, openai, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(DownloadError, match="or TRANSFORMERS_OFFLINE is set") as error:
        hub.resolve(REPO)
    one_line(error)
    with pytest.raises(DownloadError, match="unset it"):
        hub.download("gpt2", origin="openai")
    assert servers[0].seen == []
    monkeypatch.setenv(variable, "0")
    del servers[0].files[f"/{REPO}/resolve/{COMMIT}/tokenizer.json"]
    folder = hub.resolve(REPO)
    monkeypatch.setenv(variable, "yes")
    assert hub.resolve(REPO) == hub.download(REPO, revision=COMMIT) == folder


@pytest.mark.parametrize(
    ("settings", "file", "sent"),
    [
        ({}, None, None),
        ({}, ".cache/huggingface/token", "of-file"),
        ({"HF_TOKEN": " of-env\n"}, ".cache/huggingface/token", "of-env"),
        ({"HUGGING_FACE_HUB_TOKEN": "of-env"}, None, "of-env"),
        ({"HF_TOKEN": "new", "HUGGING_FACE_HUB_TOKEN": "old"}, None, "new"),
        ({"HF_HOME": "~/hf"}, "hf/token", "of-file"),
        ({"HF_TOKEN_PATH": "~/secret"}, "secret", "of-file"),
    ],
)
def test_a_token_goes_to_the_hub_alone(servers, monkeypatch, settings, file, sent):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    if file:
        (Path.home() / file).parent.mkdir(parents=True)
        (Path.home() / file).write_bytes(b"\xef\xbb\xbfof-file\r\n")  # as from Notepad
    servers[1].fail("model.safetensors", fs.cut(70_000))
    hub.resolve(REPO)
    authorizations = {r.headers.get("authorization") for r in servers[0].seen}
    assert authorizations == {f"Bearer {sent}" if sent else None}
    assert len(servers[1].seen) == 2
    assert all("authorization" not in r.headers for r in servers[1].seen)


def test_a_token_comes_before_netrc(servers, machine, monkeypatch):
    (machine / "home").mkdir()
    (machine / "home/.netrc").write_text("machine 127.0.0.1 login someone password secret\n")
    (machine / "home/.netrc").chmod(0o600)
    monkeypatch.setenv("HF_TOKEN", "of-env")
    hub.resolve(REPO)
    assert {r.headers["authorization"] for r in servers[0].seen} == {"Bearer of-env"}


@pytest.mark.parametrize("token", ["two words", "two\nlines", "naïve"])
def test_a_token_that_cannot_be_is_not_shown(servers, monkeypatch, token):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(DownloadError, match="the Hugging Face token, in HF_TOKEN or") as error:
        hub.resolve(REPO)
    assert token not in one_line(error)


def test_a_token_that_is_refused(servers, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    servers[0].fail("config.json", fs.status(403))
    with pytest.raises(DownloadError, match="and that the token may read it") as error:
        hub.resolve(REPO)
    assert "hf_secret" not in str(error.value)


def test_a_password_in_the_endpoint_is_not_shown(servers, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", servers[0].url.replace("//", "//me:hush@"))
    servers[0].fail("config.json", fs.status(404))
    with pytest.raises(DownloadError) as error:
        hub.resolve(REPO)
    assert "hush" not in one_line(error)
    assert servers[0].seen[0].headers["authorization"].startswith("Basic ")


def test_a_proxy(servers, monkeypatch):
    proxy, _ = servers
    fs.publish(proxy, proxy, REPO, COMMIT, FILES)
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    assert contents(hub.resolve(REPO)) == FILES
    assert {r.headers["host"] for r in proxy.seen} == {"hub.invalid", proxy.url[7:]}


def test_the_bar_is_for_terminals(servers, monkeypatch, capsys):
    hub.resolve(REPO)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fs.publish(*servers, REPO, OTHER, FILES)
    hub.download(REPO)
    assert re.search(r"model\.safetensors: 100%.*301k/301k", capsys.readouterr().err)
    fs.publish(*servers, REPO, COMMIT, FILES)
    hub.download(REPO, revision=COMMIT, progress=False)
    assert capsys.readouterr().err == ""


# Several processes


RESOLVE = f"from gpt2np.hub import resolve; print(resolve({REPO!r}))"


def test_two_processes_fetch_once(servers, machine):
    _, storage = servers
    second_waits = threading.Event()

    def in_time(handler, file):
        assert second_waits.wait(timeout=30)
        fs.honest(handler, file)

    storage.fail("model.safetensors", in_time)
    processes = [run(RESOLVE, stderr=subprocess.STDOUT) for _ in range(2)]
    first_lines = [None, None]

    def read_line(i):
        first_lines[i] = processes[i].stdout.readline()
        second_waits.set()  # the only line before there are weights

    readers = [threading.Thread(target=read_line, args=[i]) for i in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    rest = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], (first_lines, rest)
    done, waited = sorted(first_lines)
    assert waited.startswith("gpt2np: waiting for another process that holds ")
    assert "".join(rest) == done  # both end with the same folder
    assert contents(Path(done.strip())) == FILES
    for name in ("vocab.json", "merges.txt", "tokenizer.json"):
        assert len(servers[0].requests_of(name)) == 1
    assert len(storage.seen) == 1


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_leaves_neither_a_lock_nor_a_model(servers, part):
    _, storage = servers
    storage.fail("model.safetensors", fs.trickle(70_000, 0.5))
    process = run(RESOLVE)
    deadline = time.monotonic() + 20
    while not (part.exists() and part.stat().st_size >= 65_536):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with pytest.raises(DownloadError):
        hub.resolve(REPO, download=False)
    kept = part.stat().st_size
    assert contents(hub.resolve(REPO)) == FILES
    assert storage.seen[-1].headers["range"] == f"bytes={kept}-"


def test_the_network_is_not_even_imported_without_need(machine):
    write_cache(machine / "home/.cache/huggingface/hub")
    out, err = run(f"{RESOLVE}; import sys; print(*sys.modules)").communicate()
    loaded = set(out.splitlines()[-1].split())
    assert "gpt2np.hub.fetching" in loaded, err
    assert loaded.isdisjoint({"requests", "urllib3", "tqdm"})
