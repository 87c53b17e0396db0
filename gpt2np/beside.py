"""What lies beside the weights, as it was written: the config, and where texts begin and end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gpt2np.checkpoints.base import read_json
from gpt2np.errors import CheckpointError, shown
from gpt2np.tokenizer import Tokenizer
from gpt2np.vocabulary import END_OF_TEXT

CONFIG = "config.json"
GENERATION = "generation_config.json"


class Boundary(NamedTuple):
    """The ids that texts begin or end with, and how that is known."""

    ids: tuple[int, ...]
    said_by: str  # the file, or the tokenizer
    dropped: tuple[int, ...]  # ids that are said too, outside the vocabulary

    def __str__(self) -> str:
        ids = ", ".join(map(str, self.ids)) or "nothing"
        dropped = ", ".join(map(str, self.dropped))
        also = f"; {dropped} dropped, outside the vocabulary" if dropped else ""
        return f"{ids} ({self.said_by}{also})"


@dataclass(frozen=True)
class Beside:
    """What config.json and generation_config.json say, kept whole so that it can be saved again."""

    config: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] | None = None  # None: there is no such file
    config_file: str = CONFIG  # where the config stands: a GGUF holds its own

    @classmethod
    def read(cls, folder: Path) -> Beside:
        """Read the files that there are in a folder."""
        config, generation = (
            _read_checked(file) if file.is_file() else None
            for file in (folder / CONFIG, folder / GENERATION)
        )
        return cls(config or {}, generation)

    def boundary(self, key: str, tokenizer: Tokenizer | None, vocab_size: int) -> Boundary:
        """Give what "bos_token_id" or "eos_token_id" is, by transformers' rule.

        A generation_config.json decides alone, then config.json does; the tokenizer's
        <|endoftext|> is for models that come without a word.
        """
        if self.generation is not None:
            said_by, said = GENERATION, self.generation.get(key)
        elif key in self.config:
            said_by, said = self.config_file, self.config[key]
        elif tokenizer is not None and tokenizer.eot is not None:
            said_by, said = f"the tokenizer's {END_OF_TEXT}", tokenizer.eot
        else:
            said_by, said = "no file says", None
        ids = _ids(said_by, key, said)
        inside = tuple(dict.fromkeys(id for id in ids if 0 <= id < vocab_size))
        return Boundary(inside, said_by, tuple(id for id in ids if id not in inside))


def _read_checked(file: Path) -> dict[str, Any]:
    values = read_json(file)
    for key in ("bos_token_id", "eos_token_id"):
        _ids(str(file), key, values.get(key))
    return values


def _ids(where: str, key: str, said: object) -> list[int]:
    """Give what a file says as a list: nothing, an id or several."""
    ids: list[Any] = [] if said is None else said if isinstance(said, list) else [said]
    if not all(type(id) is int for id in ids):
        raise CheckpointError(
            f"{where}: {key} is {shown(said)}; it takes a token id, a list of them, or null"
        )
    return ids
