"""The tokenizer's kit: texts that break ports, the data that a port needs, and the fault it has.

A port reads each text and gives its ids. Where they are others, each known fault is computed on
all of the texts: the one named is the one whose ids are the port's.
"""

from __future__ import annotations

import codecs
import os
import random
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import regex

from gpt2np.assets_path import assets
from gpt2np.errors import CheckpointError, InputError
from gpt2np.files import write_text
from gpt2np.tokenizer import PIECE, Tokenizer
from gpt2np.vocabulary import unwritten

CASES, TOKENS, MERGES, HEADER = "cases.txt", "tokens.txt", "merges.txt", "unicode.h"
LONGEST = 4096  # bytes of a line of the cases, the line break included
MAX_FILE = 1 << 26

Cut = Callable[[str], list[str]]
Merge = Callable[[list[bytes]], list[bytes]]


def texts() -> list[str]:
    """Give the texts: some hundreds, each there for a reason, then some drawn at random."""
    words = ["", " ", "Hello world", "Hello,  world!", "a", "I'm", "they've", "it'll we'd you're"]
    contractions = [f"{w}{c}" for w in ("it", "IT", " it", "1", "é") for c in CONTRACTIONS]
    spaces = [
        f"a{s}b" for n in (1, 2, 3) for s in (" " * n, "\t" * n, "\n" * n, "\r\n" * n, " \n" * n)
    ]
    ends = [f"end{s}" for s in (" ", "  ", "\n", "\n\n", " \n", "\t ", "\u3000", "\xa0")]
    white = [f"x{chr(c)}y{chr(c)}{chr(c)}z" for c in SPACES]
    digits = ["1", "12", "123", "1234567890", "3.14159", "1,000,000", "2nd", "x86", "a1b2", "½²①Ⅷ५"]
    marks = [
        "...",
        "!?",
        "#hashtag",
        "e-mail",
        "C++",
        "a_b",
        "__init__",
        "$5",
        "a'b",
        "''",
        "'",
        "—",
    ]
    letters = ["naïve café", "ΑΒΓαβγ", "Привет, мир", "你好，世界", "こんにちは", "안녕하세요"]
    letters += ["שלום", "مرحبا"]
    accents = ["e\u0301", "é", "\u0301", "a\u200db", "क्षि", "ﬁ", "Ａ１", "ǅ", "ªº", "ʰ", "ℵ"]
    pairs = ["😀", "👨\u200d👩\u200d👧", "🇬🇧", "𝕏", "a𐍈b", "𝟘𝟙", "\ufffd", "\ufeffa", "\u2028"]
    pairs += ["\u0085", "\x00", "a\x00b", "\x7f"]
    runs = ["a" * 64, " " * 40 + "x", "\n" * 20, "ab" * 60, "!" * 50, "7" * 50, "é" * 40, "漢" * 30]
    order = ["hello", "lower", "newer", "ababab", "aaaa", "singing", "unbelievable", "mississippi"]
    special = ["<|endoftext|>", "a<|endoftext|>b", "<|endoftext", "</s>"]
    classes = [f"1{char}a" for char in _one_of_each_category()]
    fixed = [
        *words, *contractions, *spaces, *ends, *white, *digits, *marks, *letters, *accents, *pairs,
        *runs, *order, *special, *classes,
    ]  # fmt: skip
    draw = random.Random(2019)
    alphabet = [*"aab e  '\n\t.1", "é", "漢", "😀", "'s", "\xa0", "Th", "ing", " the"]
    drawn = ["".join(draw.choices(alphabet, k=draw.randint(2, 24))) for _ in range(60)]
    return list(dict.fromkeys([*fixed, *drawn]))


CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'Ll", "'x", "’s")
SPACES = (
    *(0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1F, 0x20, 0x85, 0xA0, 0x1680, 0x180E, 0x2000, 0x200A),
    *(0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF),
)


def _one_of_each_category() -> Iterator[str]:
    """A character of each of Unicode's categories, from ASCII, Latin-1 and beyond."""
    seen = set()
    for code in (*range(0x20, 0x3000), *range(0x1D400, 0x1F700)):
        kind = unicodedata.category(chr(code)), min(code >> 7, 2)
        if kind not in seen and kind[0] not in ("Cs", "Cn"):
            seen.add(kind)
            yield chr(code)


@dataclass(frozen=True)
class Case:
    """One text, in bytes, and its ids."""

    data: bytes
    ids: tuple[int, ...]


def write_kit(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the cases, the vocabulary, the merges and Unicode's classes, in lines for C.

    Returns
    -------
    list of Path
        ``cases.txt``: the text in hex, its pieces in hex, its ids; between the three a tab,
        within them spaces; an empty field is "-". No line is longer than 4,095 bytes.
        ``tokens.txt``: each id and its bytes in hex. ``merges.txt``: in order, the ids of both
        parts and of what they become. ``unicode.h``: ranges of \\p{L}, \\p{N} and \\s.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, piece = Tokenizer.gpt2(), regex.compile(PIECE)
    lines = []
    for text in texts():
        pieces = " ".join(_hex(found.encode()) for found in piece.findall(text))
        ids = " ".join(map(str, tokenizer.encode(text)))
        lines.append(f"{_hex(text.encode())}\t{pieces or '-'}\t{ids or '-'}")
    ids_of = {data: id for id, data in enumerate(_vocabulary())}
    contents = {
        CASES: "\n".join(lines),
        TOKENS: "\n".join(f"{id} {_hex(data)}" for id, data in enumerate(_vocabulary())),
        MERGES: "\n".join(f"{ids_of[a]} {ids_of[b]} {ids_of[a + b]}" for a, b in _merges()),
        HEADER: _header(),
    }
    for name, content in contents.items():
        write_text(folder / name, content + "\n")
    return [folder / name for name in contents]


def _hex(data: bytes) -> str:
    return data.hex() or "-"


@cache
def _merges() -> list[tuple[bytes, bytes]]:
    lines = (assets() / "vocab.bpe").read_text("utf-8").splitlines()[1:]
    parts = (line.split(" ") for line in lines if line)
    return [(unwritten(a), unwritten(b)) for a, b in parts]


@cache
def _ranks() -> dict[tuple[bytes, bytes], int]:
    return {pair: rank for rank, pair in enumerate(_merges())}


@cache
def _vocabulary() -> list[bytes]:
    tokenizer = Tokenizer.gpt2()
    return [tokenizer.token_bytes(id) for id in range(tokenizer.n_vocab)]


def _header() -> str:
    """The three classes of characters as C arrays of ranges, with the pattern that uses them."""
    parts = [
        "/* Which characters are letters, numbers and white space, as ranges: both ends belong to",
        "   them. Text is cut by this pattern, of which the first alternative that fits is taken:",
        f"   {PIECE} */",
    ]
    for name, kind in (("letters", r"\p{L}"), ("numbers", r"\p{N}"), ("spaces", r"\s")):
        fits = regex.compile(kind).fullmatch
        codes = [c for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000 and fits(chr(c))]
        gaps = [0, *(i for i, (a, b) in enumerate(pairwise(codes), 1) if b != a + 1), len(codes)]
        ranges = [f"{{{codes[a]:#x},{codes[b - 1]:#x}}}" for a, b in pairwise(gaps)]
        rows = [", ".join(ranges[at : at + 6]) for at in range(0, len(ranges), 6)]
        body = ",\n    ".join(rows)
        parts.append(f"static const unsigned {name}[][2] = {{ /* {kind} */\n    {body}}};")
    return "\n".join(parts)


def read_cases(path: str | os.PathLike[str]) -> list[Case]:
    """Read cases, or a port's answers to them: lines of ids alone, in the order of the cases."""
    path = Path(path)
    if not path.is_file() or path.stat().st_size > MAX_FILE:
        raise CheckpointError(f"{path} is no file of cases: missing, no plain file, or too large")
    cases = []
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(data.splitlines(), 1):
        fields = line.decode("latin-1").split("\t")
        words = fields[-1].split()
        words = [] if words == ["-"] else words
        try:
            data = bytes.fromhex(fields[0]) if len(fields) > 1 and fields[0] != "-" else b""
            if not all(word.isascii() and len(word) < 20 for word in words):
                raise ValueError("no ids")
            cases.append(Case(data, tuple(map(int, words))))
        except ValueError:
            raise CheckpointError(
                f"{path}, line {number}: expected ids with spaces between, behind a tab or alone, "
                "in UTF-8"
            ) from None
    return cases


# Faults: how a text is cut, how a piece is merged, and what becomes of the bytes.

_REST = PIECE.split("'d|")[1]  # behind the contractions
_BY_CHARACTER = {
    "contractions are cut whatever their case": f"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_REST}",
    "contractions are not cut": _REST,
    "the lookahead is missing: white space before a word is one piece":
        PIECE.replace(r"\s+(?!\S)|", ""),
    "words, numbers and marks are cut from the space before them": PIECE.replace(" ?", ""),
    r"\p{L} and \p{N} are ASCII's alone": (
        PIECE.replace(r"[^\s\p{L}\p{N}]", r"[^\sA-Za-z0-9]").replace(r"\p{L}", "[A-Za-z]")
        .replace(r"\p{N}", "[0-9]")
    ),
    r"\p{L}, \p{N} and \s are ASCII's alone": (
        PIECE.replace(r"[^\s\p{L}\p{N}]", r"[^\t-\r A-Za-z0-9]").replace(r"\p{L}", "[A-Za-z]")
        .replace(r"\p{N}", "[0-9]").replace(r"\s", r"[\t-\r ]").replace(r"\S", r"[^\t-\r ]")
    ),
    r"\s is ASCII's alone": (
        PIECE.replace(r"[^\s\p{L}", r"[^\t-\r \p{L}").replace(r"\s", r"[\t-\r ]")
        .replace(r"\S", r"[^\t-\r ]")
    ),
    "the text is not cut": r"(?s:.+)",
    "the text is cut at white space alone": r" ?\S+|\s+(?!\S)|\s+",
    "the pattern is that of GPT-4 (cl100k)": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}  # fmt: skip


def _by_rank(parts: list[bytes]) -> list[bytes]:
    """The pair of lowest rank first, at all of its places."""
    return _merged(parts, min)


def _merged(parts: list[bytes], choose: Callable[..., tuple[bytes, bytes]]) -> list[bytes]:
    ranks = _ranks()
    while pairs := [pair for pair in pairwise(parts) if pair in ranks]:
        chosen, at, merged = choose(pairs, key=ranks.__getitem__), 0, []
        while at < len(parts):
            whole = tuple(parts[at : at + 2]) == chosen
            merged.append(b"".join(chosen) if whole else parts[at])
            at += 2 if whole else 1
        parts = merged
    return parts


def _first_pair(parts: list[bytes]) -> list[bytes]:
    """The first pair that is in the list, whatever its rank."""
    return _merged(parts, lambda pairs, key: pairs[0])


def _one_pass(parts: list[bytes]) -> list[bytes]:
    """From left to right, once."""
    result: list[bytes] = []
    for part in parts:
        if result and (result[-1], part) in _ranks():
            result[-1] += part
        else:
            result.append(part)
    return result


def _longest(parts: list[bytes]) -> list[bytes]:
    """The longest token that fits, from the left."""
    data, known, result = b"".join(parts), _known(), []
    while data:
        n = next(n for n in range(len(data), 0, -1) if data[:n] in known)
        result.append(data[:n])
        data = data[n:]
    return result


@cache
def _known() -> frozenset[bytes]:
    return frozenset(_vocabulary()[:-1])


def _last_rank(parts: list[bytes]) -> list[bytes]:
    return _merged(parts, max)


@dataclass(frozen=True)
class Fault:
    """One way in which a port goes wrong."""

    pattern: str = PIECE
    merge: Merge = _by_rank
    before: Callable[[str], str] = str  # what becomes of the text
    bytes_of: Callable[[str], bytes] = str.encode
    ids_of: Callable[[list[int]], list[int]] = list

    def encode(self, text: str, ids_of: dict[bytes, int]) -> tuple[int, ...]:
        ids: list[int] = []
        for piece in regex.findall(self.pattern, self.before(text)):
            data = self.bytes_of(piece)
            ids += [
                ids_of[part] for part in self.merge([data[n : n + 1] for n in range(len(data))])
            ]
        return tuple(self.ids_of(ids))


def _by_value(ids: list[int]) -> list[int]:
    """Single bytes as their own values, not in the vocabulary's order of them."""
    tokens = _vocabulary()
    return [tokens[id][0] if id < 256 else id for id in ids]


def _surrogates(piece: str) -> bytes:
    """Each half of a surrogate pair in three bytes of its own, as CESU-8."""
    units = piece.encode("utf-16-le", "surrogatepass")
    halves = (
        units[n : n + 2].decode("utf-16-le", "surrogatepass") for n in range(0, len(units), 2)
    )
    return b"".join(half.encode("utf-8", "surrogatepass") for half in halves)


FAULTS: dict[str, Fault] = {
    **{cause: Fault(pattern=pattern) for cause, pattern in _BY_CHARACTER.items()},
    "the first pair that is listed is merged, not the one of lowest rank": Fault(merge=_first_pair),
    "pairs are merged from left to right in one pass": Fault(merge=_one_pass),
    "the pair of highest rank is merged, not of the lowest": Fault(merge=_last_rank),
    "the longest token that fits is taken, without merges": Fault(merge=_longest),
    "nothing is merged": Fault(merge=list),
    "char has a sign: bytes above 127 lose their highest bit":
        Fault(bytes_of=lambda piece: bytes(byte & 127 for byte in piece.encode())),
    "char has a sign: bytes above 127 are left out":
        Fault(bytes_of=lambda piece: bytes(byte for byte in piece.encode() if byte < 128)),
    "the order of bytes: single bytes have their values for ids": Fault(ids_of=_by_value),
    "text is cut by its bytes, as if it were Latin-1": Fault(
        before=lambda text: text.encode().decode("latin-1"),
        bytes_of=lambda piece: piece.encode("latin-1"),
    ),
    "characters are read as Latin-1, not UTF-8":
        Fault(before=lambda text: text.encode().decode("latin-1")),
    "characters are written as Latin-1, not UTF-8":
        Fault(bytes_of=lambda piece: piece.encode("latin-1", "replace")),
    "each half of a surrogate pair is written by itself": Fault(bytes_of=_surrogates),
    "the text is normalised (NFC)": Fault(before=partial(unicodedata.normalize, "NFC")),
    "the text is normalised (NFD)": Fault(before=partial(unicodedata.normalize, "NFD")),
    "the text is normalised (NFKC)": Fault(before=partial(unicodedata.normalize, "NFKC")),
    "the text is normalised (NFKD)": Fault(before=partial(unicodedata.normalize, "NFKD")),
    "the text is made lower case": Fault(before=str.lower),
    "white space at both ends is cut off": Fault(before=str.strip),
    "white space at the end is cut off": Fault(before=str.rstrip),
    "a space is put before the text": Fault(before=lambda text: " " + text),
    "line ends are made one: \\r\\n becomes \\n":
        Fault(before=lambda text: text.replace("\r\n", "\n")),
    "the text ends at its first NUL": Fault(before=lambda text: text.split("\0")[0]),
    "<|endoftext|> is put before the ids": Fault(ids_of=lambda ids: [50256, *ids]),
    "<|endoftext|> is put behind the ids": Fault(ids_of=lambda ids: [*ids, 50256]),
    "all ids are one too large": Fault(ids_of=lambda ids: [id + 1 for id in ids]),
    "all ids are one too small": Fault(ids_of=lambda ids: [id - 1 for id in ids]),
    "the order of bytes: all ids are 256 too small, as if merges came first":
        Fault(ids_of=lambda ids: [id - 256 for id in ids]),
}  # fmt: skip


def _special_inside(text: str) -> tuple[int, ...]:
    return tuple(Tokenizer.gpt2().encode(text, special=True))


@dataclass(frozen=True)
class TokenReport:
    """How a port's ids compare: the first case that differs, how many do, and why."""

    cases: int
    different: tuple[tuple[int, Case, Case], ...]  # number, mine, theirs
    causes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain values, for JSON."""
        first = self.different[0] if self.different else None
        return {
            "same": first is None,
            "cases": self.cases,
            "different": [number for number, _, _ in self.different],
            "first": first
            and {"case": first[0], "mine": list(first[1].ids), "theirs": list(first[2].ids)},
            "causes": list(self.causes),
        }

    def __str__(self) -> str:
        if not self.different:
            return f"all {self.cases} agree"
        number, mine, theirs = self.different[0]
        at = next(
            (n for n, (a, b) in enumerate(zip(mine.ids, theirs.ids, strict=False)) if a != b),
            min(len(mine.ids), len(theirs.ids)),
        )
        causes = self.causes or ("none that is known makes these ids",)
        heads = ["  cause: ", *["     or: "] * len(causes)]
        return "\n".join([
            f"{len(self.different)} of {self.cases} differ; first line {number}: "
            f"{theirs.data.decode('utf-8', 'replace')!r}",
            f"  from id {at} on: mine {_some(mine.ids[at:])}, theirs {_some(theirs.ids[at:])}",
            *(f"{head}{cause}" for head, cause in zip(heads, causes, strict=False)),
        ])  # fmt: skip


def _some(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids[:8])) + (" ..." if len(ids) > 8 else "") or "none"


def check_tokens(mine: str | os.PathLike[str], theirs: str | os.PathLike[str]) -> TokenReport:
    """Compare a port's ids with the kit's cases, and compute which fault makes them."""
    ours, cases = read_cases(mine), read_cases(theirs)
    if len(ours) != len(cases):
        raise InputError(f"{mine} has {len(ours)} lines, {theirs} {len(cases)}: one for each case")
    if not any(case.data for case in cases):
        raise InputError(f"{theirs} has no texts: give the kit's {CASES}")
    pairs = list(zip(range(1, len(cases) + 1), ours, cases, strict=True))
    different = tuple(pair for pair in pairs if pair[1].ids != pair[2].ids)
    return TokenReport(len(cases), different, tuple(_causes(pairs)) if different else ())


def _causes(pairs: list[tuple[int, Case, Case]]) -> Iterator[str]:
    """The faults that give my ids, each of them in all cases."""
    ids_of = {data: id for id, data in enumerate(_vocabulary()[:-1])}
    # Those that differ first: most faults fail at one of them.
    ordered = sorted(pairs, key=lambda pair: pair[1].ids == pair[2].ids)
    texts = [(case.data.decode("utf-8", "replace"), mine.ids) for _, mine, case in ordered]
    for cause, fault in FAULTS.items():
        if all(fault.encode(text, ids_of) == ids for text, ids in texts):
            yield cause
    if all(_special_inside(text) == ids for text, ids in texts):
        yield "<|endoftext|> within a text is the token, not the text that it is"
