"""Words: which tokens are theirs, and the boundaries between them.

A boundary is a set of tokens: those that may follow where a word has ended. GPT-2's tokens carry
the space before a word, so that p(its tokens) alone says nothing of where the word ends.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np.errors import InputError, shown
from gpt2np.tokenizer import Tokenizer

Boundary: TypeAlias = Literal["whitespace", "space"]
BOUNDARIES: tuple[Boundary, ...] = ("whitespace", "space")
Span: TypeAlias = tuple[int, int]


class Word(NamedTuple):
    """A word, or a region of a text.

    ``start`` and ``end`` are characters of the text, ``first`` and ``stop`` tokens of the score.
    ``surprisal`` is in bits, ``entropy`` that of the distribution before its first token, and
    ``entropy_reduction`` how much less it is after its last one (negative where it has grown).
    ``shared``: a token reaches over the word's edge; it counts where it begins.
    """

    text: str
    surprisal: float
    start: int
    end: int
    first: int
    stop: int
    entropy: float
    entropy_reduction: float
    shared: bool


@lru_cache(maxsize=4)
def token_classes(
    tokenizer: Tokenizer | None, ends: tuple[int, ...], V: int
) -> npt.NDArray[np.bool_]:  # [V, 4]
    """Which tokens may come after a word, and which may begin a text, for each boundary in turn.

    What ends a text is of both kinds.
    """
    classes = np.zeros((V, 2 * len(BOUNDARIES)), bool)
    if tokenizer is not None:
        for id in range(min(V, tokenizer.n_vocab)):
            token = tokenizer.token_bytes(id)
            for column, boundary in enumerate(BOUNDARIES):
                classes[id, 2 * column] = opens(token, boundary)
        classes[:, 1::2] = ~classes[:, ::2]
        classes[list(ends)] = True
    return classes


def opens(token: bytes, boundary: Boundary) -> bool:
    """Whether a token begins so that a word has ended before it."""
    if boundary == "space":
        return token[:1] == b" "
    return token.decode("utf-8", "replace")[:1].isspace()


def white_spans(text: str) -> list[Span]:
    """Find the words that white space separates."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def spans_of(words: Iterable[str], text: str) -> list[Span]:
    """Find words in a text, in their order and with nothing but white space between them.

    Examples
    --------
    >>> spans_of(["did", "n't", "go"], "didn't go")
    [(0, 3), (3, 6), (7, 9)]
    """
    spans, at = [], 0
    for number, word in enumerate(words, 1):
        if not isinstance(word, str) or not word.strip():
            raise InputError(f"word {number} must be a text that is not empty, not {shown(word)}")
        at, marks = _next_mark(text, at), word.strip()
        if not text.startswith(marks, at):
            raise InputError(
                f"word {number}, {shown(marks)}, does not come next in the text: after "
                f"{text[max(0, at - 20) : at]!r} it has {text[at : at + 20]!r}"
            )
        spans.append((at, at + len(marks)))
        at += len(marks)
    rest = text[_next_mark(text, at) :]
    if rest:
        raise InputError(f"the text goes on after the last of the words: {rest[:20]!r}")
    return spans


def checked_regions(regions: Iterable[Sequence[int]], text: str) -> list[Span]:
    """Check that regions are spans of characters, in their order."""
    spans, at = [], 0
    for region in regions:
        try:
            start, end = map(int, region)
        except (TypeError, ValueError):
            raise InputError(f"a region must be (start, end), not {shown(region)}") from None
        if not at <= start < end <= len(text):
            raise InputError(
                f"region {shown(region)} is out of place: regions come in order, do not overlap, "
                f"and lie in the {len(text)} characters of the text"
            )
        spans.append((start, end))
        at = end
    return spans


def share_out(
    text: str, offsets: Sequence[Span], spans: Sequence[Span]
) -> list[tuple[int, int, bool]]:
    """Give each span its tokens, [first, stop), and say whether one of them is shared.

    A token is that span's in which it begins, white space aside: what comes before a word counts
    as part of it, what comes at the end of the text as part of none.

    Examples
    --------
    >>> share_out("un do it", [(0, 2), (2, 8)], [(0, 2), (3, 5), (6, 8)])
    [(0, 1, False), (1, 2, True), (2, 2, True)]
    """
    marks = _next_marks(text)
    begins = [marks[start] for start, _ in offsets]
    lasts = [start + len(text[start:end].rstrip()) for start, end in offsets]
    shares = []
    for start, end in spans:
        first, stop = bisect_left(begins, start), bisect_left(begins, end)
        reaches_in = first > 0 and lasts[first - 1] > start
        shares.append((first, stop, reaches_in or (stop > first and lasts[stop - 1] > end)))
    return shares


def blanked(text: str, offsets: Sequence[Span], ids: Sequence[int], ends: Collection[int]) -> str:
    """Put spaces where ids that end a text are spelt: they are part of no word."""
    for id, (start, end) in zip(ids, offsets, strict=True):
        if id in ends:
            text = text[:start] + " " * (end - start) + text[end:]
    return text


def _next_mark(text: str, at: int) -> int:
    """Give the place of the next character that is not white space."""
    match = re.compile(r"\S").search(text, at)
    return match.start() if match else len(text)


def _next_marks(text: str) -> list[int]:
    """Give the same for every place of the text, its end included."""
    marks = [len(text)] * (len(text) + 1)
    for i in range(len(text) - 1, -1, -1):
        marks[i] = marks[i + 1] if text[i].isspace() else i
    return marks
