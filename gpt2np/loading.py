"""From a name or a path to a model: find the files, read them, hold them against the schema."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gpt2np import tokenizer_files
from gpt2np.adapters import adapter_folder, base_of, merge
from gpt2np.answers import answering
from gpt2np.assets_path import assets
from gpt2np.beside import Beside
from gpt2np.checkpoints import (
    LATER_SUFFIXES,
    SUFFIXES,
    Checkpoint,
    is_there,
    open_checkpoint,
)
from gpt2np.checkpoints.base import mapping
from gpt2np.config import BY_NAME, Config
from gpt2np.configs import find_config, says_all
from gpt2np.errors import CheckpointError, GPT2Error, InputError, TokenizerError, no_tensor, shown
from gpt2np.fitting import Fitted, fit
from gpt2np.notebook import Shown
from gpt2np.params import Array, Immutable, Params
from gpt2np.tokenizer import Tokenizer

TINY = "tiny-shakespeare"  # the embedded model
TOKENIZER_FILES = (*tokenizer_files.FILES, *tokenizer_files.BESIDE)
MADE_WITHOUT = "it was made without one"
GPT2_VOCABULARY = range(50257, 50305)  # the vocabulary itself, to it padded to 128's multiple


class Model(Immutable, Shown):
    """A GPT-2 with its tokenizer, as `load` gives it. It never changes.

    Pickling one keeps only its source: whoever unpickles it opens the files again, once in each
    process, and processes on one machine share the memory that they are mapped to.

    Parameters
    ----------
    params : Params
        The weights; ``config`` is theirs.
    tokenizer : Tokenizer, optional
    source : str, optional
        What was loaded; None for a model put together by hand, which pickles whole.
    why_no_tokenizer : str
        What the error says where a tokenizer is needed, and there is none.
    beside : Beside, optional
        What its folder says beside the weights, for `save` to say again.
    other_tokenizer : bool
        Whether the tokenizer is not the source's own, so that it is pickled too.
    """

    def __init__(
        self,
        params: Params,
        tokenizer: Tokenizer | None = None,
        source: str | None = None,
        *,
        why_no_tokenizer: str = MADE_WITHOUT,
        beside: Beside | None = None,
        other_tokenizer: bool = False,
    ) -> None:
        self.params = params
        self.source = source
        self._tokenizer = tokenizer
        self._why_no_tokenizer = why_no_tokenizer
        self._other_tokenizer = other_tokenizer
        V = params.config.vocab_size
        self.beside = beside or Beside()
        self._begins = self.beside.boundary("bos_token_id", tokenizer, V)
        self._ends = self.beside.boundary("eos_token_id", tokenizer, V)

    @property
    def config(self) -> Config:
        """The hyperparameters."""
        return self.params.config

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns text into ids and back; a TokenizerError says why there is none."""
        if self._tokenizer is None:
            raise TokenizerError(
                f"the model has no tokenizer ({self._why_no_tokenizer}): give token ids, or load "
                "it with a tokenizer (tokenizer=..., --tokenizer)"
            )
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a tokenizer."""
        return self._tokenizer is not None

    @property
    def why_no_tokenizer(self) -> str | None:
        """Why the tokenizer that the model has elsewhere is none here; None for a model of ids."""
        no_word = self._tokenizer is not None or self._why_no_tokenizer == MADE_WITHOUT
        return None if no_word else self._why_no_tokenizer

    @property
    def bos(self) -> int | None:
        """The id that texts begin with, if there is one.

        It is generation_config.json's bos_token_id; without that file config.json's; where
        neither has one, the tokenizer's <|endoftext|>. `gpt2np info` says which it is.
        """
        return self._begins.ids[0] if self._begins.ids else None

    @property
    def eos(self) -> tuple[int, ...]:
        """The ids that end a text, by the same rule from eos_token_id."""
        return self._ends.ids

    def replace(self, arrays: Mapping[str, Array]) -> Model:
        """Give a model with some of its weights replaced, and the rest as they are.

        Parameters
        ----------
        arrays : mapping of str to array
            New weights, by name.

        Returns
        -------
        Model
            Its source is None: it pickles whole.

        Raises
        ------
        CheckpointError
            A name or a shape is not the model's.
        InputError
            What is given is no array.

        Examples
        --------
        >>> import gpt2np, numpy as np
        >>> model = gpt2np.load()
        >>> name = "h.0.attn.c_proj.weight"
        >>> without = model.replace({name: np.zeros_like(model.params[name])})
        >>> bool(without.params[name].any()), without.source
        (False, None)
        """
        for name, array in arrays.items():
            if name not in self.params:
                raise CheckpointError(no_tensor(name, self.params))
            if not isinstance(array, np.ndarray):
                raise InputError(f"{name}: give an array, not {shown(array)}")
        params = Params(self.config, {**self.params, **arrays})
        return _by_hand(params, self._tokenizer, self._why_no_tokenizer, self.beside)

    def __repr__(self) -> str:
        return f"Model({self.source or 'made by hand'}: {self.params!r})"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.source is None:
            return _by_hand, (self.params, self._tokenizer, self._why_no_tokenizer, self.beside)
        tokenizer = self._tokenizer if self._other_tokenizer else None
        copied = mapping(self.params.wte) is None
        dtype, identity = str(self.params.dtype), self.params.identity
        return _load_again, (self.source, dtype, identity, tokenizer, copied)


def _by_hand(params: Params, tokenizer: Tokenizer | None, why_not: str, beside: Beside) -> Model:
    return Model(params, tokenizer, why_no_tokenizer=why_not, beside=beside)


def as_model(given: Any) -> Model:
    """Give back a model, or say what to write instead of what was given for it."""
    if isinstance(given, Model):
        return given
    if isinstance(given, str):
        raise InputError(f"the model comes first, not its name: load it, gpt2np.load({given!r})")
    if isinstance(given, Params):
        raise InputError("give the model itself, not model.params (or Model(params, tokenizer))")
    raise InputError(f"give a model, as gpt2np.load() gives it, not {shown(given)}")


@answering()
def load(
    source: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "float32",
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    copy: bool = False,
) -> Model:
    """Load a model.

    Parameters
    ----------
    source : str or path, optional
        Nothing or ``"tiny-shakespeare"``: the embedded model. A name: ``"gpt2"``,
        ``"gpt2-medium"``, ``"gpt2-large"``, ``"gpt2-xl"``, ``"distilgpt2"``, a size from
        ``"124M"`` to ``"1558M"``, or any ``"owner/name"`` of the Hugging Face hub. Or a
        folder, or a file with weights. A LoRA adapter, by its folder or name, is merged into its
        base.
    dtype : {"float32", "float64"}
        float64 computes the whole forward pass in double precision.
    tokenizer : Tokenizer, str or path, optional
        Another tokenizer than the model's own: as it is, or the file or folder that it is in, or
        another model's name.
    copy : bool
        Read the weights into memory of their own, for a file that will change while the model is
        in use: see Notes.

    Returns
    -------
    Model
        It computes with ids also where there is no tokenizer that gpt2np could use; whatever needs
        text then says why.

    Raises
    ------
    CheckpointError
        There is no such model, or its files cannot be used, or they changed meanwhile.
    DownloadError
        It could not be fetched.

    Warns
    -----
    UserWarning
        In one line: what was assumed, or dropped and is no part of GPT-2.

    Notes
    -----
    Weights that are stored as float32 stay in the file, which is mapped to memory: each page of it
    is read when it is first used, and processes share it. So the file must stay as it is. If it is
    replaced, as programs do that write another file and rename it, the model keeps the old one. But
    if it is written over in place, as ``torch.save`` does, the model's numbers change with it, and
    where the file has become shorter, reading on ends the process (SIGBUS), which nothing can
    catch. ``copy=True`` takes the time and the memory of reading all of it now, and is safe after
    that.

    Examples
    --------
    >>> import gpt2np
    >>> model = gpt2np.load()
    >>> model.config.n_layer, model.config.n_embd
    (4, 128)
    """
    opened = inspect(source, dtype=dtype, tokenizer=tokenizer, copy=copy)
    for note in opened.fitted.notes:
        warnings.warn(f"{opened.name}: {note}", stacklevel=2)
    return Model(
        opened.fitted.params,
        opened.tokenizer,
        opened.name,
        why_no_tokenizer=opened.why_no_tokenizer,
        beside=opened.beside,
        other_tokenizer=tokenizer is not None,
    )


@lru_cache(maxsize=1)  # a worker gets the model anew with every task
def _load_again(
    source: str, dtype: str, identity: str, tokenizer: Tokenizer | None, copied: bool
) -> Model:
    model = load(source, dtype=dtype, tokenizer=tokenizer, copy=copied)
    if model.params.identity != identity:
        raise CheckpointError(
            f"{source} has changed, or is another here: the model that was pickled has the weights "
            f"of {identity}; here they are {model.params.identity}. Load it again"
        )
    return model


def _find(source: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """Where the files are, and the name that finds them again from any working directory."""
    if source is None or source == TINY:
        return assets() / TINY, TINY
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"give a model's name or path, not {shown(source)}")
    path = Path(os.path.expanduser(source))  # Path's fails without such a user
    if is_there(path):
        return path.absolute(), str(path.absolute())
    from gpt2np import hub  # only names need it, and what it imports

    return hub.resolve(source), os.fspath(source)


@dataclass(frozen=True)
class Opened:
    """All that there is to know about a source."""

    name: str
    checkpoint: Checkpoint
    fitted: Fitted
    tokenizer: Tokenizer | None
    why_no_tokenizer: str
    beside: Beside
    adapter: str = ""  # what was merged into the weights, and into whose


def inspect(
    source: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "float32",
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    copy: bool = False,
    verify: bool = False,
) -> Opened:
    """Load a model as `load` does, and keep account of how; `verify` checks all checksums."""
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype is {dtype!r}; give 'float32' or 'float64'")
    path, name = _find(source)
    folder = adapter_folder(path)
    read = _inspect if folder is None else _inspect_adapter
    opened = read(folder or path, name, dtype, copy, verify)
    if tokenizer is None:
        return opened
    return replace(opened, tokenizer=find_tokenizer(tokenizer), why_no_tokenizer="")


def _inspect(path: Path, name: str, dtype: str, copy: bool, verify: bool) -> Opened:
    before = _states(path if path.is_dir() else path.parent)
    checkpoint = open_checkpoint(path, verify=verify)
    folder = path if path.is_dir() else checkpoint.files[0].parent
    fitted = fit(checkpoint, find_config(checkpoint, folder), dtype, copy=copy)
    tokenizer, why_not = _own_tokenizer(checkpoint, folder, fitted.params.config)
    own = Beside(checkpoint.config, config_file=checkpoint.files[0].name)
    beside = own if says_all(checkpoint) else Beside.read(folder)
    if path.is_file() and adapter_folder(path.parent) is not None:
        note = f"the adapter in {path.parent.name} is not applied to a file: load the folder"
        fitted = replace(fitted, notes=(*fitted.notes, note))
    after = _states(folder)
    for file in checkpoint.files:
        if before.get(file.name, after.get(file.name)) != after.get(file.name):
            raise CheckpointError(f"{file} changed while it was read: try again when it is written")
    return Opened(name, checkpoint, fitted, tokenizer, why_not, beside)


def _inspect_adapter(folder: Path, name: str, dtype: str, copy: bool, verify: bool) -> Opened:
    """Load the base of an adapter, and merge the adapter into it."""
    base = base_of(folder)
    path = folder
    if base is not None:
        try:
            path, _ = _find(base)
        except (GPT2Error, OSError, ValueError) as error:
            raise CheckpointError(f"{folder}, an adapter, lacks its base: {error}") from None
        if adapter_folder(path) is not None:
            raise CheckpointError(f"{folder}: the base of this adapter, {base}, is an adapter too")
    opened = _inspect(path, name, dtype, copy, verify)
    params, adapter = merge(folder, opened.fitted.params)
    tokenizer, why_not = opened.tokenizer, opened.why_no_tokenizer
    if any((folder / file).is_file() for file in tokenizer_files.FILES):
        tokenizer, why_not = _own_tokenizer(adapter, folder, params.config)
    files = (*opened.checkpoint.files, *adapter.files)
    return replace(
        opened,
        checkpoint=replace(opened.checkpoint, files=files),
        fitted=replace(opened.fitted, params=params),
        tokenizer=tokenizer,
        why_no_tokenizer=why_not,
        adapter=f"{adapter.files[0].name}, merged into {base or 'what lies beside it'}",
    )


def _states(folder: Path) -> dict[str, tuple[int, int]]:
    """The size of each file in a folder that may be listed, and when it was last written."""
    states = {}
    with suppress(OSError), os.scandir(folder) as entries:
        states = {entry.name: entry.stat() for entry in entries if entry.is_file()}
    return {name: (state.st_size, state.st_mtime_ns) for name, state in states.items()}


def _own_tokenizer(
    checkpoint: Checkpoint, folder: Path, config: Config
) -> tuple[Tokenizer | None, str]:
    """The file's own tokenizer, or that beside it, or GPT-2's; else why there is none.

    GPT-2's own is meant where the vocabulary has its size, and nothing points elsewhere.
    """
    try:
        if checkpoint.tokenizer is not None:
            file = checkpoint.files[0]
            return Tokenizer(tokenizer_files.of_json(file, checkpoint.tokenizer)), ""
        if any((folder / name).is_file() for name in tokenizer_files.FILES):
            return Tokenizer.from_files(folder), ""
        reason = tokenizer_files.reason_against(folder)
    except TokenizerError as error:
        return None, str(error)
    if reason is None and config.vocab_size in GPT2_VOCABULARY:
        return Tokenizer.gpt2(), ""
    reason = reason or tokenizer_files.one_level_up(folder)
    return None, reason or f"{folder} has none, and {config.vocab_size} tokens are not GPT-2's"


def find_tokenizer(source: Tokenizer | str | os.PathLike[str]) -> Tokenizer:
    """Give a tokenizer, given itself, its files or a model that has it."""
    if isinstance(source, Tokenizer):
        return source
    path = Path(os.path.expanduser(source))
    if source in BY_NAME and not path.exists():
        return Tokenizer.gpt2()
    if path.is_file() and path.suffix not in (*SUFFIXES, *LATER_SUFFIXES):
        return Tokenizer.from_files(path)
    if path.is_dir() and tokenizer_files.lookalikes(path):
        return Tokenizer.from_files(path)
    return load(source).tokenizer
