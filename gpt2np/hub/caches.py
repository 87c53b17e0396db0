"""The folders on this machine that hold models: Hugging Face's cache and gpt2np's own."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from gpt2np import adapters
from gpt2np.config import BY_NAME
from gpt2np.errors import CheckpointError, DownloadError
from gpt2np.files import read_text

WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # or an index of shards; the first there is
OPENAI = (
    "checkpoint",
    "encoder.json",
    "hparams.json",
    "vocab.bpe",
    "model.ckpt.index",
    "model.ckpt.meta",
    "model.ckpt.data-00000-of-00001",
)
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(safetensors|bin)")


def own_cache() -> Path:
    """Return the folder in which gpt2np keeps what it fetched."""
    if home := os.environ.get("GPT2NP_HOME"):
        return _expanded(home)
    if sys.platform == "win32":
        return _expanded(os.environ.get("LOCALAPPDATA") or "~/AppData/Local") / "gpt2np"
    if sys.platform == "darwin":
        return _expanded("~/Library/Caches/gpt2np")
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "gpt2np"


def _hf_home() -> Path:
    if home := os.environ.get("HF_HOME"):
        return _expanded(home)
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"


def hf_cache() -> Path:
    moved = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _expanded(moved) if moved else _hf_home() / "hub"


def hf_token() -> str | None:
    """Return the token that Hugging Face's tools would send, if there is one."""
    file = _expanded(os.environ.get("HF_TOKEN_PATH") or str(_hf_home() / "token"))
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    try:
        token = (token or file.read_text(encoding="utf-8-sig")).strip()
    except (OSError, ValueError):
        return None
    if not re.fullmatch("[!-~]*", token):
        raise DownloadError(
            f"the Hugging Face token, in HF_TOKEN or {file}, has characters that no token has"
        )
    return token or None


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))


def cached(repo: str, revision: str | None) -> Path | None:
    """Return the folder of a whole model in a cache on this machine, if there is one."""
    known = BY_NAME.get(repo)
    legacy = known.names[0] if known else repo  # "gpt2", before it had an owner
    for cache in (hf_cache(), own_cache() / "hf"):
        for name in dict.fromkeys((repo, legacy)):
            folder = _snapshot(cache / folder_name(name), revision or "main")
            if folder and is_whole(folder):
                return folder
    if known and known.original and revision is None:
        originals = own_cache() / "openai" / known.original
        return originals if is_whole(originals) else None
    return None


def folder_name(repo: str) -> str:
    return f"models--{repo.replace('/', '--')}"


def _snapshot(model: Path, revision: str) -> Path | None:
    """Return the folder of one revision in a model's folder of a cache, if it is known there."""
    try:
        commit = (model / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = revision
    return model / "snapshots" / commit if is_commit(commit) else None


def is_commit(revision: str) -> bool:
    return re.fullmatch("[0-9a-f]{40}", revision) is not None


def is_whole(folder: Path) -> bool:
    """Return whether a folder holds a config and all weights of one kind, or an adapter."""

    def there(*names: str) -> bool:
        return all(os.path.isfile(folder / name) for name in names)

    def all_shards(index: str) -> bool:
        try:
            return there(index) and there(*shards(folder / index))
        except CheckpointError:
            return False

    if there(adapters.SETTINGS):
        return any(there(name) for name in adapters.WEIGHTS)
    return there(*OPENAI) or (
        there("config.json")
        and any(there(single) or all_shards(f"{single}.index.json") for single in WEIGHTS)
    )


def shards(index: Path) -> list[str]:
    """Return the names of the files that an index spreads the weights over, in order."""
    weight_map = read_json(index).get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) and _SHARD.fullmatch(name) for name in names):
        raise CheckpointError(
            f"{index}: weight_map must map each tensor to a plain *.safetensors or *.bin name"
        )
    return sorted(set(names))


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return value
