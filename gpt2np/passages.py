"""Texts to score, as the model reads them: with what comes before each, as token ids.

A prefix and a text are encoded as one, since a token may hold the end of the one and the beginning
of the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from gpt2np import ragged
from gpt2np.errors import InputError
from gpt2np.loading import Model
from gpt2np.params import Ids
from gpt2np.predictions import Window, after_prefix, strided
from gpt2np.tokenizer import without_surrogates
from gpt2np.words import Span


class Given(NamedTuple):
    """A text as it was given, where the tokenizer changes it, and where its tokens stand there."""

    text: str
    offsets: list[Span]


class Passage(NamedTuple):
    """A text with what comes before it."""

    ids: Ids  # of the whole
    first: int  # the first of the ids to be scored
    begins: bool  # whether the text begins there, with nothing before it but its bos
    merged: bool
    given: Given | None  # where the tokens do not spell the text

    def windows(self, begin: int, window: int, stride: int) -> Iterable[Window]:
        """Cover what is scored; the first of the ids is at `begin`."""
        end = begin + len(self.ids)
        if self.begins:
            return strided(begin, end, window, stride)
        return after_prefix(begin, begin + self.first - 1, end, window, stride)


def passages(
    model: Model, text_or_ids: Any, prefix: Any, *, bos: bool, eos: bool, special: bool
) -> tuple[list[Passage], bool, bool]:
    """Give each text with its prefix; whether there were several, and whether they begin alike."""
    texts, many = ragged.items(text_or_ids)
    prefixes, several = ([None], False) if prefix is None else ragged.items(prefix)
    if many and several and len(texts) != len(prefixes):
        raise InputError(f"{len(prefixes)} prefixes do not go with {len(texts)} texts")
    n = max(len(texts), len(prefixes))
    texts, prefixes = (
        items * (n if len(items) == 1 else 1) if not listed else items
        for items, listed in ((texts, many), (prefixes, several))
    )
    joined = []
    for number, (text, before) in enumerate(zip(texts, prefixes, strict=True), 1):
        with ragged.naming(number, many or several):
            joined.append(_joined(model, before, text, special))
    start = start_of(model) if bos else []
    end = end_of(model) if eos else []
    passages = [
        Passage(
            np.concatenate([start, ids, end]).astype(np.intp),
            len(start) + first,
            first == 0,
            merged,
            given,
        )
        for ids, first, merged, given in joined
    ]
    return passages, many or several, prefix is not None and not several


def _joined(
    model: Model, before: Any, text: Any, special: bool
) -> tuple[Ids, int, bool, Given | None]:
    """Give the ids of a prefix and a text, where the text begins, and whether inside a token; and
    what was given, where the tokens do not spell it."""
    if before is None:
        ids = ragged.row(model, text, special)
        return ids, 0, False, _given(model, text, ids, 0, special)
    if not isinstance(text, str) or not isinstance(before, str):
        prefix, rest = (ragged.row(model, item, special) for item in (before, text))
        given = _given(model, text, rest, 0, special)
        return np.concatenate([prefix, rest]), len(prefix), False, given
    kept = before.rstrip()
    whole = ragged.row(model, before + text, special)
    prefix = ragged.row(model, kept, special)
    n, merged = len(prefix), False
    if len(whole) < n or (whole[:n] != prefix).any():
        # Not the prefix's tokens: the first that holds anything of the text is the first scored.
        spans = model.tokenizer.spans(before + text, special=special)
        n = sum(end <= len(kept) for _, end in spans)
        merged = n < len(spans) and spans[n][0] < len(kept)
    return whole, n, merged, _given(model, before + text, whole, n, special)


def _given(model: Model, text: Any, ids: Ids, first: int, special: bool) -> Given | None:
    """Give what was given of the text of the tokens from `first` on, if they do not spell it."""
    if not isinstance(text, str):
        return None
    text = without_surrogates(text)
    if model.tokenizer.decode(ids) == text:
        return None
    spans = model.tokenizer.spans(text, special=special)
    begin = 0
    if first:
        begin = spans[first][0] if first < len(spans) else len(text)
    return Given(text[begin:], [(start - begin, end - begin) for start, end in spans[first:]])


def start_of(model: Model) -> list[int]:
    """Give what texts begin with: what the tokenizer's files ask for, or the model's own."""
    start = model.tokenizer.begins_with if model.has_tokenizer else None
    start = model.bos if start is None else start
    if start is None:
        raise InputError("the model has no <|endoftext|> to begin with: give bos=False")
    return [start]


def end_of(model: Model) -> list[int]:
    if not model.eos:
        raise InputError("the model has no <|endoftext|> to end with: give eos=False")
    return [model.eos[0]]
