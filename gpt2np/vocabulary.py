"""What a byte-level BPE tokenizer is made of, and how bytes are written as characters.

For GPT-2 all of it follows from the list of merges, vocab.bpe. `tokenizer_files` reads the other
forms there are.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import NamedTuple

END_OF_TEXT = "<|endoftext|>"

# Bytes that are printable stand for themselves and come first in GPT-2's vocabulary; the other 68
# are written as the characters from U+0100 on. So the writing is a one-byte character encoding.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTE_ORDER = [*_PRINTABLE, *(byte for byte in range(256) if byte not in _PRINTABLE)]
CHARACTERS = [*map(chr, _PRINTABLE), *map(chr, range(0x100, 0x144))]
ALPHABET = "".join(char for _, char in sorted(zip(_BYTE_ORDER, CHARACTERS, strict=True)))
_CHR_TO_BYTE = codecs.charmap_build(ALPHABET)

# What a tokenizer may do to a text first. Lowercase knows no context: a final sigma is any sigma.
NORMALIZERS: dict[str, Callable[[str], str]] = {
    **{form: partial(unicodedata.normalize, form) for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "Lowercase": lambda text: "".join(map(str.lower, text)) if "Σ" in text else text.lower(),
}


def written(data: bytes) -> str:
    """Return bytes as the vocabulary writes them."""
    return codecs.charmap_decode(data, "strict", ALPHABET)[0]


def unwritten(token: str) -> bytes:
    """Return the bytes that the vocabulary writes so."""
    return codecs.charmap_encode(token, "strict", _CHR_TO_BYTE)[0]


class Added(NamedTuple):
    """A text that is a token by itself, and where it counts as one."""

    id: int
    special: bool = True  # only where it is asked for: it may be a command
    lstrip: bool = False  # with the white space before it
    rstrip: bool = False  # with the white space after it
    single_word: bool = False  # not within a word
    normalized: bool = False  # is looked for in the text as it is normalized


class Split(NamedTuple):
    """A rule that cuts text further, before it is cut into GPT-2's pieces."""

    pattern: str
    behavior: str = "Isolated"
    invert: bool = False

    def parts(self, text: str, found: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Give the parts of a text, given where the pattern is found: as tokenizers does."""
        parts: list[tuple[int, int, bool]] = []
        last = 0
        for start, end in found:
            if start == end == last and parts:
                continue
            if last < start:
                parts.append((last, start, self.invert))
            parts.append((start, end, not self.invert))
            last = end
        if last < len(text):
            parts.append((last, len(text), self.invert))
        if self.behavior == "Removed":
            return [(start, end) for start, end, match in parts if not match and start < end]
        backwards = self.behavior == "MergedWithNext"
        merged: list[tuple[int, int]] = []
        before = False
        for start, end, match in reversed(parts) if backwards else parts:
            joins = {"Isolated": False, "Contiguous": match == before}.get(
                self.behavior, match and not before
            )
            if joins and merged:
                first, last = merged.pop()
                merged.append((min(first, start), max(last, end)))
            else:
                merged.append((start, end))
            before = match
        return [(start, end) for start, end in sorted(merged) if start < end]


class Vocabulary(NamedTuple):
    """What a byte-level BPE tokenizer is made of."""

    ids: dict[str, int]  # of the tokens, as written
    merges: tuple[str, ...]  # "left right", the first to be merged first
    added: dict[str, Added]  # texts that are tokens
    add_prefix_space: bool = False  # before a text that does not begin with one
    cut: bool = True  # into pieces; or is the whole text one piece?
    unknown: str | None = None  # the token for bytes that have none
    normalizers: tuple[str, ...] = ()  # names of NORMALIZERS, in turn
    splits: tuple[Split, ...] = ()
    begins_with: int | None = None  # the id that is put before every text
    named: tuple[tuple[str, str], ...] = ()  # "pad_token": "<pad>" and the like, for others


def of_merges(merges: Sequence[str]) -> Vocabulary:
    """Return OpenAI's vocabulary: the bytes, a token for each merge, the end of text."""
    tokens = [*CHARACTERS, *(merge.replace(" ", "") for merge in merges)]
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    return Vocabulary(ids, tuple(merges), {END_OF_TEXT: Added(len(ids))})


def normalizer(names: Sequence[str]) -> Callable[[str], str] | None:
    """Give the function that does these in turn."""
    if not names:
        return None
    return lambda text: reduce(lambda done, name: NORMALIZERS[name](done), names, text)


def aligned(text: str, change: Callable[[str], str]) -> tuple[str, list[int], list[int]]:
    """Change a text; say of each character that comes out where it starts and ends in the text.

    What changes together (a letter with its accents) is one place: it begins at a character that
    joins nothing before it.
    """
    if change(text) == text:
        return text, list(range(len(text))), list(range(1, len(text) + 1))
    starts: list[int] = []
    ends: list[int] = []
    changed: list[str] = []
    begin = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and _joins(text[begin:end], text[end], change):
            continue
        changed.append(change(text[begin:end]))
        same = changed[-1] == text[begin:end]
        starts += range(begin, end) if same else [begin] * len(changed[-1])
        ends += range(begin + 1, end + 1) if same else [end] * len(changed[-1])
        begin = end
    whole = change(text)
    if "".join(changed) != whole:  # then all of it is one place
        return whole, [0] * len(whole), [len(text)] * len(whole)
    return whole, starts, ends


def _joins(before: str, char: str, change: Callable[[str], str]) -> bool:
    if char.isascii():
        return False
    if unicodedata.combining(unicodedata.normalize("NFKD", char)[0]):
        return True
    return change(before + char) != change(before) + change(char)
