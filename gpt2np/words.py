"""Words: which tokens they are of, and the boundaries between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpt2np.tokenizer import Tokenizer


class Word(NamedTuple):
    """A word and its surprisal in bits; ``start`` and ``end`` are characters of the text."""

    text: str
    surprisal: float
    start: int
    end: int


@lru_cache(maxsize=4)
def token_classes(tokenizer: Tokenizer | None, V: int) -> npt.NDArray[np.bool_]:  # [V, 2]
    """Which tokens begin with whitespace, and which without; <|endoftext|> counts as both."""
    classes = np.zeros((V, 2), bool)
    if tokenizer is not None:
        for id in range(min(V, tokenizer.n_vocab)):
            classes[id, 0] = begins_with_space(tokenizer.token_bytes(id))
            classes[id, 1] = not classes[id, 0]
        if tokenizer.eot is not None:
            classes[tokenizer.eot : tokenizer.eot + 1] = True
    return classes


def begins_with_space(token: bytes) -> bool:
    return token.decode("utf-8", "replace")[:1].isspace()


def word_spans(
    text: str, offsets: Sequence[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield (start, end) in the text and (first, stop) among the tokens of every word."""
    token = 0
    for match in re.finditer(r"\S+", text):
        first = token
        while token < len(offsets) and offsets[token][0] < match.end():
            token += 1
        yield match.span(), (first, token)
