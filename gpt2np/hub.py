"""Where a model's files come from: the package itself, a path, a cache on this machine, the web.

A name is looked for in the Hugging Face cache, then in gpt2np's own, and only then on the web.
gpt2np's own cache is a folder with three parts::

    hf/models--<owner>--<name>/snapshots/<commit>/   laid out as Hugging Face's, whose tools can
    hf/models--<owner>--<name>/refs/<revision>         read it; a ref holds the name of a commit
    openai/<size>/                                   OpenAI's original files
    partial/                                         downloads under way, and their locks

A model is put together in ``partial`` and moved to its place when whole.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpt2np import fetching
from gpt2np.assets_path import assets
from gpt2np.errors import CheckpointError, DownloadError, InputError
from gpt2np.files import read_text, write_text

# repository on the hub, OpenAI's name of the size, all the names it is known by
_MODELS = (
    ("openai-community/gpt2", "124M", ("gpt2", "124M", "117M")),
    ("openai-community/gpt2-medium", "355M", ("gpt2-medium", "355M", "345M")),
    ("openai-community/gpt2-large", "774M", ("gpt2-large", "774M", "762M")),
    ("openai-community/gpt2-xl", "1558M", ("gpt2-xl", "1558M", "1542M")),
    ("distilbert/distilgpt2", None, ("distilgpt2",)),
)
_REPOSITORIES = {name: repo for repo, _, names in _MODELS for name in names}
_SIZES = {repo: size for repo, size, _ in _MODELS}

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # or an index of shards; the first there is
_TOKENIZER = ("vocab.json", "merges.txt", "tokenizer.json")
_OPENAI = (
    "checkpoint",
    "encoder.json",
    "hparams.json",
    "vocab.bpe",
    "model.ckpt.index",
    "model.ckpt.meta",
    "model.ckpt.data-00000-of-00001",
)

# Published digests, which hold whatever a server says of its own files.
_VOCAB = "sha256:196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
_MERGES = "sha256:1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
_PINNED = {
    ("607a30d783dfa663caf39e06633721c8d4cfcd7e", "model.safetensors"):  # gpt2
    "sha256:248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
    ("607a30d783dfa663caf39e06633721c8d4cfcd7e", "vocab.json"): _VOCAB,
    ("607a30d783dfa663caf39e06633721c8d4cfcd7e", "merges.txt"): _MERGES,
    ("2290a62682d06624634c1f46a6ad5be0f47f38aa", "model.safetensors"):  # distilgpt2
    "sha256:e1ff18884359fe8beb795a5f414feb85a6ce3d929ad019c0d958c039d2b94a1b",
    ("124M", "model.ckpt.data-00000-of-00001"): "md5:f48b9cf1a525a603be52258f69bf9162",
    **{(size, "encoder.json"): _VOCAB for size in _SIZES.values() if size},
    **{(size, "vocab.bpe"): _MERGES for size in _SIZES.values() if size},
}

_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_NAME = re.compile(rf"({_WORD}(?:/{_WORD})?)(?:@({_WORD}(?:/{_WORD})*))?")
_SHARD = re.compile(rf"{_WORD}\.(safetensors|bin)")
_FILE_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".index", ".json", ".gguf")


def resolve(source: str | os.PathLike[str] | None, *, download: bool = True) -> Path:
    """Return the folder or file that a model is to be read from, fetching it if need be.

    Parameters
    ----------
    source : str, path or None
        - None or ``"tiny-shakespeare"``: the model that comes with gpt2np;
        - a folder or file that exists: itself. As with Hugging Face, a folder ``gpt2`` in the
          working directory comes before the model of that name;
        - ``"gpt2"``, ``"gpt2-medium"``, ``"gpt2-large"``, ``"gpt2-xl"``, ``"distilgpt2"``, a size
          (``"124M"`` ... ``"1558M"``, or its old name, ``"117M"`` ...), or the ``"owner/name"`` of
          any model on the Hugging Face hub; ``"@revision"`` may follow: a branch, a tag, or a
          commit in full. Looked for in the Hugging Face cache and in gpt2np's own, which are
          taken as they are if they hold the whole model; then fetched from the hub.
    download : bool
        False: never use the network.

    Returns
    -------
    Path
        Of a folder, except where `source` is a file.

    Raises
    ------
    CheckpointError
        There is no such path, and it is not the name of a model; or the model is not a GPT-2.
    DownloadError
        It is nowhere on this machine, and could not be, or was not to be, fetched.

    Notes
    -----
    The environment is read as Hugging Face's tools read it: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT (a
    mirror), HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE; proxies as requests does. GPT2NP_HOME moves
    gpt2np's own cache.

    Examples
    --------
    >>> from gpt2np.hub import resolve
    >>> resolve("tiny-shakespeare").name
    'tiny-shakespeare'
    >>> resolve("gtp2")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    gpt2np.errors.CheckpointError: 'gtp2' is neither a file or folder here nor the name of a \
model; did you mean 'gpt2'? Known are ...
    """
    if source is None or source == "tiny-shakespeare":
        return assets() / "tiny-shakespeare"
    path = os.path.expanduser(os.fspath(source))
    if os.path.exists(path):
        return Path(path)
    if not isinstance(source, str):
        raise CheckpointError(f"{path!r}: there is no such file or folder")
    repo, revision = _parse(source)
    if cached := _cached(repo, revision):
        return cached
    if not download:
        raise DownloadError(
            f"{source!r} is in neither {_hf_cache()} nor {own_cache()}; run: "
            f"gpt2np download {source}"
        )
    return _from_hub(repo, revision or "main", progress=True)


def download(
    name: str, *, origin: str = "hf", revision: str | None = None, progress: bool = True
) -> Path:
    """Fetch a model into gpt2np's own cache, even if another cache has it.

    Parameters
    ----------
    name : str
        As for `resolve`: of a model, not a path.
    origin : {"hf", "openai"}
        The Hugging Face hub, or OpenAI's original TensorFlow checkpoints (those of the four sizes
        of GPT-2; GPT2NP_OPENAI_ENDPOINT may name a mirror).
    revision : str, optional
        On the hub: a branch, a tag, or a commit in full; else ``main`` as it is now.
    progress : bool
        Draw a bar for each file on stderr, if that is a terminal.

    Returns
    -------
    Path
        The folder, with all files whole. Files that are there already are not fetched again.

    Raises
    ------
    InputError, CheckpointError
        There can be no such model.
    DownloadError
        It could not be fetched whole: what happened, what to do, and how to do without.
    """
    repo, named = _parse(name)
    if revision and (named or not _NAME.fullmatch(f"{repo}@{revision}") or ".." in revision):
        raise InputError(f"revision {revision!r} of {name!r}: give one branch, tag or commit")
    if origin == "hf":
        return _from_hub(repo, revision or named or "main", progress)
    if origin != "openai":
        raise InputError(f"origin is {origin!r}, not 'hf' or 'openai'")
    size = _SIZES.get(repo)
    if size is None or revision or named:
        raise InputError(
            f"{name!r}: OpenAI published gpt2, gpt2-medium, gpt2-large and gpt2-xl, each once; "
            "for any other model or revision use origin='hf'"
        )
    return _from_openai(size, progress)


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


def _hf_cache() -> Path:
    moved = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _expanded(moved) if moved else _hf_home() / "hub"


def _hf_token() -> str | None:
    """Return the token that Hugging Face's tools would send, if there is one."""
    file = _expanded(os.environ.get("HF_TOKEN_PATH") or str(_hf_home() / "token"))
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    try:
        token = (token or file.read_text(encoding="utf-8")).strip()
    except (OSError, ValueError):
        return None
    if not re.fullmatch("[!-~]*", token):
        raise DownloadError(
            f"the Hugging Face token, in HF_TOKEN or {file}, has characters that no token has"
        )
    return token or None


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))


def _parse(source: str) -> tuple[str, str | None]:
    """Return the repository and the revision that a model's name stands for."""
    match = _NAME.fullmatch(source)
    if not match or ".." in source or source.endswith(_FILE_SUFFIXES):
        raise CheckpointError(f"{source!r}: there is no such file or folder")
    name, revision = match.groups()
    repo = _REPOSITORIES.get(name, name)
    if "/" not in repo:
        close = " or ".join(map(repr, get_close_matches(name, _REPOSITORIES)))
        raise CheckpointError(
            f"{name!r} is neither a file or folder here nor the name of a model"
            f"{f'; did you mean {close}?' if close else '.'} Known are tiny-shakespeare, "
            f"{', '.join(_REPOSITORIES)}, any owner/name on the Hugging Face hub, a folder's or a "
            "checkpoint file's path"
        )
    return repo, revision


def _cached(repo: str, revision: str | None) -> Path | None:
    """Return the folder of a whole model in a cache on this machine, if there is one."""
    legacy = repo.split("/")[1] if repo in _SIZES else repo  # "gpt2", before it had an owner
    for cache in (_hf_cache(), own_cache() / "hf"):
        for name in dict.fromkeys((repo, legacy)):
            folder = _snapshot(cache / _folder_name(name), revision or "main")
            if folder and _is_whole(folder):
                return folder
    originals = own_cache() / "openai" / str(_SIZES.get(repo))
    return originals if revision is None and _is_whole(originals) else None


def _folder_name(repo: str) -> str:
    return f"models--{repo.replace('/', '--')}"


def _snapshot(model: Path, revision: str) -> Path | None:
    """Return the folder of one revision in a model's folder of a cache, if it is known there."""
    try:
        commit = (model / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = revision
    return model / "snapshots" / commit if _is_commit(commit) else None


def _is_commit(revision: str) -> bool:
    return re.fullmatch("[0-9a-f]{40}", revision) is not None


def _is_whole(folder: Path) -> bool:
    """Return whether a folder holds a config and all weights of one kind."""

    def there(*names: str) -> bool:
        return all(os.path.isfile(folder / name) for name in names)

    def all_shards(index: str) -> bool:
        try:
            return there(index) and there(*_shards(folder / index))
        except CheckpointError:
            return False

    return there(*_OPENAI) or (
        there("config.json")
        and any(there(single) or all_shards(f"{single}.index.json") for single in _WEIGHTS)
    )


def _shards(index: Path) -> list[str]:
    """Return the names of the files that an index spreads the weights over, in order."""
    weight_map = _read_json(index).get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) and _SHARD.fullmatch(name) for name in names):
        raise CheckpointError(
            f"{index}: weight_map must map each tensor to a plain *.safetensors or *.bin name"
        )
    return sorted(set(names))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return value


def _from_hub(repo: str, revision: str, progress: bool) -> Path:
    """Fetch a model from the Hugging Face hub: every file at one commit."""
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    model = own_cache() / "hf" / _folder_name(repo)
    with _or_by_hand(repo, ("config.json", _WEIGHTS[0], *_TOKENIZER[:2]), f"{endpoint}/{repo}"):
        token = _hf_token()
        commit = (
            revision
            if _is_commit(revision)
            else fetching.commit_of(
                f"{endpoint}/{repo}/resolve/{quote(revision, safe='')}/config.json", token
            )
        )

        def fetch(name: str, folder: Path) -> None:
            fetching.fetch(
                f"{endpoint}/{repo}/resolve/{commit}/{name}",
                folder / name,
                token=token,
                pinned=_PINNED.get((commit, name)),
                progress=progress,
            )

        folder = model / "snapshots" / commit
        _assemble(folder, f"{model.name}--{commit}", lambda there: _fetch_model(fetch, there))
        if commit != revision:
            ref = model / "refs" / revision
            with fetching.writing(ref):
                ref.parent.mkdir(parents=True, exist_ok=True)
                write_text(ref, commit)
    return folder


def _fetch_model(fetch: Callable[[str, Path], None], folder: Path) -> None:
    """Fetch the files of a model, the small ones first, with the first kind of weights there is."""

    def fetch_if_there(name: str) -> bool:
        try:
            fetch(name, folder)
        except fetching.NotFoundError:
            return False
        return True

    fetch("config.json", folder)
    kind = _read_json(folder / "config.json").get("model_type", "gpt2")
    if kind != "gpt2":
        raise CheckpointError(f"{folder / 'config.json'}: a {kind!r} model, not a 'gpt2' one")
    for name in _TOKENIZER:
        fetch_if_there(name)
    for name in _WEIGHTS:
        if fetch_if_there(name):
            return
        if fetch_if_there(f"{name}.index.json"):
            for shard in _shards(folder / f"{name}.index.json"):
                fetch(shard, folder)
            return
    raise DownloadError(f"there is neither {' nor '.join(_WEIGHTS)}, whole or in shards")


def _from_openai(size: str, progress: bool) -> Path:
    """Fetch the files that OpenAI published."""
    endpoint = os.environ.get("GPT2NP_OPENAI_ENDPOINT") or (
        "https://openaipublic.blob.core.windows.net/gpt-2/models"
    )
    url = f"{endpoint.rstrip('/')}/{size}"
    folder = own_cache() / "openai" / size

    def fetch_all(there: Path) -> None:
        for name in _OPENAI:
            fetching.fetch(
                f"{url}/{name}", there / name, pinned=_PINNED.get((size, name)), progress=progress
            )

    with _or_by_hand(f"OpenAI's {size}", _OPENAI, f"{url}/<file>"):
        _assemble(folder, f"openai--{size}", fetch_all)
    return folder


def _assemble(folder: Path, key: str, fetch_all: Callable[[Path], None]) -> None:
    """Make `folder` a whole model, while no other process does: moved in when all is there."""
    partial = own_cache() / "partial"
    with fetching.writing(partial), fetching.locked(partial / f"{key}.lock"):
        if _is_whole(folder):
            return
        if folder.exists():  # it lost a file: keep the others
            os.replace(folder, partial / key)
        (partial / key).mkdir(exist_ok=True)
        fetch_all(partial / key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial / key, folder)


@contextmanager
def _or_by_hand(what: str, files: tuple[str, ...], page: str) -> Iterator[None]:
    """Say with any failure to download how to do without."""
    try:
        yield
    except DownloadError as error:
        raise DownloadError(
            f"{what} could not be fetched: {error}; or save {', '.join(files)} from "
            f"{fetching.shown(page)} into a folder of your own, and load that folder by its path"
        ) from error
