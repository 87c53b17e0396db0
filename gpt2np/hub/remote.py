"""Models on the web: which files make one, and their way into gpt2np's own cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from gpt2np import adapters, tokenizer_files
from gpt2np.config import MODELS, Config
from gpt2np.errors import CheckpointError, DownloadError
from gpt2np.files import rename, write_text
from gpt2np.hub import fetching
from gpt2np.hub.caches import (
    OPENAI,
    WEIGHTS,
    folder_name,
    hf_token,
    is_commit,
    is_whole,
    own_cache,
    read_json,
    shards,
)
from gpt2np.streams import say

_TOKENIZER = ("vocab.json", "merges.txt", "tokenizer.json")
_BESIDE = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
           "added_tokens.json")  # fmt: skip
_OTHER_TOKENIZERS = ("vocab.txt", "spiece.model", "tokenizer.model")  # so that they are not missed

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
    **{(model.original, "encoder.json"): _VOCAB for model in MODELS if model.original},
    **{(model.original, "vocab.bpe"): _MERGES for model in MODELS if model.original},
}


def from_hub(repo: str, revision: str, progress: bool) -> Path:
    """Fetch a model from the Hugging Face hub: every file at one commit."""
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    model = own_cache() / "hf" / folder_name(repo)
    with _or_by_hand(repo, ("config.json", WEIGHTS[0], *_TOKENIZER[:2]), f"{endpoint}/{repo}"):
        token = hf_token()
        commit = (
            revision
            if is_commit(revision)
            else _commit_of(f"{endpoint}/{repo}/resolve/{quote(revision, safe='')}", token)
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
        _assemble(
            folder, f"{model.name}--{commit}", lambda there: _fetch_model(fetch, there, progress)
        )
        if commit != revision:
            ref = model / "refs" / revision
            with fetching.writing(ref):
                ref.parent.mkdir(parents=True, exist_ok=True)
                write_text(ref, commit)
    return folder


def _commit_of(revision: str, token: str | None) -> str:
    """The commit that a revision is just now; every model has one of two files."""
    try:
        return fetching.commit_of(f"{revision}/config.json", token)
    except fetching.NotFoundError:
        with suppress(fetching.NotFoundError):
            return fetching.commit_of(f"{revision}/{adapters.SETTINGS}", token)
        raise


def _fetch_model(fetch: Callable[[str, Path], None], folder: Path, progress: bool) -> None:
    """Fetch the files of a model, with the first kind of weights there is, or of an adapter.

    The small ones come first: what cannot be used is said before gigabytes are fetched.
    """

    def fetch_if_there(name: str) -> bool:
        try:
            fetch(name, folder)
        except fetching.NotFoundError:
            return False
        return True

    adapter = fetch_if_there(adapters.SETTINGS)
    if adapter:
        adapters.base_of(folder)  # refuses what gpt2np does not compute
    else:
        fetch("config.json", folder)
        _judge_config(folder / "config.json")
    weights = adapters.WEIGHTS if adapter else WEIGHTS
    vocabulary, merges, whole = [fetch_if_there(name) for name in _TOKENIZER]
    others = () if whole or (vocabulary and merges) else _OTHER_TOKENIZERS
    for name in (*_BESIDE, *others):
        fetch_if_there(name)
    if progress and not adapter and (reason := tokenizer_files.why_unusable(folder)):
        say(f"gpt2np: {reason}: the model will take token ids alone")
    for name in weights:
        if fetch_if_there(name):
            return
        if fetch_if_there(f"{name}.index.json"):
            for shard in shards(folder / f"{name}.index.json"):
                fetch(shard, folder)
            return
    raise DownloadError(f"there is neither {' nor '.join(weights)}, whole or in shards")


def _judge_config(file: Path) -> None:
    """Refuse what gpt2np does not compute before gigabytes of it are fetched."""
    values = read_json(file)
    kind = values.get("model_type", "gpt2")
    if kind != "gpt2":
        raise CheckpointError(f"{file}: a {kind!r} model, not a 'gpt2' one")
    try:
        Config.from_dict(values)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from None


def from_openai(size: str, progress: bool) -> Path:
    """Fetch the files that OpenAI published."""
    endpoint = os.environ.get("GPT2NP_OPENAI_ENDPOINT") or (
        "https://openaipublic.blob.core.windows.net/gpt-2/models"
    )
    url = f"{endpoint.rstrip('/')}/{size}"
    folder = own_cache() / "openai" / size

    def fetch_all(there: Path) -> None:
        for name in OPENAI:
            fetching.fetch(
                f"{url}/{name}", there / name, pinned=_PINNED.get((size, name)), progress=progress
            )

    with _or_by_hand(f"OpenAI's {size}", OPENAI, f"{url}/<file>"):
        _assemble(folder, f"openai--{size}", fetch_all)
    return folder


def _assemble(folder: Path, key: str, fetch_all: Callable[[Path], None]) -> None:
    """Make `folder` a whole model, while no other process does: moved in when all is there."""
    partial = own_cache() / "partial"
    with fetching.writing(partial), fetching.locked(partial / f"{key}.lock"):
        if is_whole(folder):
            return
        if folder.exists():  # it lost a file: keep the others
            rename(folder, partial / key)
        (partial / key).mkdir(exist_ok=True)
        fetch_all(partial / key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        rename(partial / key, folder)


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
