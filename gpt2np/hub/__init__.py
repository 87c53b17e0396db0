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

import os
import re
from difflib import get_close_matches
from pathlib import Path

from gpt2np.assets_path import assets
from gpt2np.config import BY_NAME, MODELS
from gpt2np.errors import CheckpointError, DownloadError, InputError
from gpt2np.hub.caches import cached, hf_cache, own_cache
from gpt2np.hub.remote import from_hub, from_openai

__all__ = ["download", "own_cache", "resolve"]

_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_NAME = re.compile(rf"({_WORD}(?:/{_WORD})?)(?:@({_WORD}(?:/{_WORD})*))?")
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
    if there := cached(repo, revision):
        return there
    if not download:
        raise DownloadError(
            f"{source!r} is in neither {hf_cache()} nor {own_cache()}; run: "
            f"gpt2np download {source}"
        )
    return from_hub(repo, revision or "main", progress=True)


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
        return from_hub(repo, revision or named or "main", progress)
    if origin != "openai":
        raise InputError(f"origin is {origin!r}, not 'hf' or 'openai'")
    size = BY_NAME[repo].original if repo in BY_NAME else None
    if size is None or revision or named:
        raise InputError(
            f"{name!r}: OpenAI published gpt2, gpt2-medium, gpt2-large and gpt2-xl, each once; "
            "for any other model or revision use origin='hf'"
        )
    return from_openai(size, progress)


def _parse(source: str) -> tuple[str, str | None]:
    """Return the repository and the revision that a model's name stands for."""
    match = _NAME.fullmatch(source)
    if not match or ".." in source or source.endswith(_FILE_SUFFIXES):
        raise CheckpointError(f"{source!r}: there is no such file or folder")
    name, revision = match.groups()
    if name == "tiny-shakespeare":
        raise InputError(f"{name} is embedded: there is nothing to download")
    repo = BY_NAME[name].repository if name in BY_NAME else name
    if "/" not in repo:
        known = [short for model in MODELS for short in model.names]
        lower = {short.lower(): short for short in known}
        close = " or ".join(repr(lower[n]) for n in get_close_matches(name.lower(), lower))
        raise CheckpointError(
            f"{name!r} is neither a file or folder here nor the name of a model"
            f"{f'; did you mean {close}?' if close else '.'} Known are tiny-shakespeare, "
            f"{', '.join(known)}, any owner/name on the Hugging Face hub, a folder's or a "
            "checkpoint file's path"
        )
    return repo, revision
