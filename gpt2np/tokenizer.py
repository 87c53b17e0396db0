"""Byte-level byte-pair encoding: text to token ids and back, exactly as OpenAI's encoder.py.

Text is cut into pieces (words, numbers, punctuation, white space), a piece becomes the bytes of
its UTF-8 form, and pairs of neighbours are merged, the pair that stands first in the list of
merges first, until no listed pair is left. What remains are the tokens.

As in GPT-2's own files, a byte is written as one printable character throughout (a space as
``Ġ``), so that a line ``Ġ t`` of vocab.bpe is itself the key under which its rank is found.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from gpt2np.assets_path import assets
from gpt2np.errors import TokenizerError

END_OF_TEXT = "<|endoftext|>"

# The rule that cuts text into pieces: openai/gpt-2 @ 9b63575, src/encoder.py.
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# The same for ASCII text, for which the standard library's faster `re` will do. White space is
# spelt out: the \s of `re` also takes in \x1c-\x1f.
ASCII_PATTERN = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\t-\r A-Za-z0-9]+"
    r"|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)

# Bytes that are printable characters stand for themselves and come first in the vocabulary;
# the other 68 are written as the characters from U+0100 on.
_PRINTABLE   = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTE_ORDER  = [*_PRINTABLE, *(byte for byte in range(256) if byte not in _PRINTABLE)]
_CHARACTERS  = [*map(chr, _PRINTABLE), *map(chr, range(0x100, 0x144))]
_BYTE_TO_CHR = "".join(char for _, char in sorted(zip(_BYTE_ORDER, _CHARACTERS, strict=True)))
_CHR_TO_BYTE = codecs.charmap_build(_BYTE_TO_CHR)

_CACHE_PIECES = 1 << 17    # at most this many pieces are remembered (some 30 MB) ...
_CACHE_LENGTH = 64         # ... none of more characters than this


def _written(data: bytes) -> str:
    """Return bytes as the vocabulary writes them."""
    return codecs.charmap_decode(data, "strict", _BYTE_TO_CHR)[0]


def _unwritten(token: str) -> bytes:
    """Return the bytes for which a token of the vocabulary stands."""
    return codecs.charmap_encode(token, "strict", _CHR_TO_BYTE)[0]


class _PieceIds(dict[str, list[int]]):
    """The ids of every piece seen so far; a new piece is encoded when it is looked up."""

    def __init__(self, encode_piece: Callable[[str], list[int]]) -> None:
        self._encode_piece = encode_piece

    def __missing__(self, piece: str) -> list[int]:
        ids = self._encode_piece(piece)
        if len(piece) <= _CACHE_LENGTH:
            if len(self) >= _CACHE_PIECES:
                self.clear()
            self[piece] = ids
        return ids


class Tokenizer:
    """A byte-level BPE tokenizer; `Tokenizer.gpt2` and `Tokenizer.from_files` make one.

    Attributes
    ----------
    n_vocab : int
        The number of ids: 0 .. n_vocab - 1.
    eot : int or None
        The id of ``<|endoftext|>``, which separates documents.

    Examples
    --------
    >>> tokenizer = Tokenizer.gpt2()
    >>> tokenizer.encode("Hello world")
    [15496, 995]
    >>> tokenizer.decode([15496, 995])
    'Hello world'
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[str],
        added: Mapping[str, tuple[int, bool]],
        *,
        add_prefix_space: bool = False,
        split: bool = True,
        unknown: str | None = None,
    ) -> None:
        self._vocabulary = dict(vocabulary)    # token as written -> id
        self._merges = tuple(merges)           # "left right", the first to be merged first
        self._added = dict(added)              # text -> (id, whether it is special)
        self._add_prefix_space = add_prefix_space
        self._split = split
        self._unknown = unknown

        written = {id: token for token, id in vocabulary.items()}
        written.update((id, _written(text.encode())) for text, (id, _) in added.items())
        self._tokens = [written[id] for id in range(len(written))]
        self._ranks = dict(zip(merges, range(len(merges)), strict=True))
        # A byte that the vocabulary lacks becomes the unknown token, or nothing.
        self._symbols = {
            char: char if char in vocabulary else unknown or "" for char in _BYTE_TO_CHR
        }
        self._piece_ids = _PieceIds(self._encode_piece)
        self._patterns = {special: self._added_pattern(special) for special in (False, True)}
        self.n_vocab = len(self._tokens)
        self.eot = next((id for text, (id, _) in added.items() if text == END_OF_TEXT), None)

    @staticmethod
    @cache
    def gpt2() -> Tokenizer:
        """Return GPT-2's tokenizer: 50,257 tokens, from the merges that come with gpt2np."""
        return _from_merges(_read(assets() / "vocab.bpe")[1])

    @staticmethod
    def from_files(*paths: str | os.PathLike[str]) -> Tokenizer:
        """Read a tokenizer from its files.

        Parameters
        ----------
        paths : path
            ``vocab.bpe``; or ``vocab.json`` and ``merges.txt`` (OpenAI's ``encoder.json`` and
            ``vocab.bpe``), in any order; or ``tokenizer.json``; or a folder that holds these.

        Raises
        ------
        TokenizerError
            If the files are missing, damaged, or of another kind of tokenizer.
        """
        files = [Path(path) for path in paths]
        if len(files) == 1 and files[0].is_dir():
            files = _files_in(files[0])
        read = {file: _read(file) for file in files}
        match sorted(read.items(), key=lambda item: item[1][0]):
            case [(file, ("merges", merges))]:
                _check_order(file, merges)
                return _from_merges(merges)
            case [(file, ("merges", merges)), (vocabulary_file, ("vocabulary", vocabulary))]:
                _check_ids(vocabulary_file, vocabulary.items())
                _check_merges(file, merges, 0, vocabulary)
                return _from_vocabulary(vocabulary, merges)
            case [(file, ("tokenizer", content))]:
                return _from_tokenizer_json(file, content)
        names = ", ".join(map(str, paths)) or "no file"
        raise TokenizerError(f"{names}: expected {_EXPECTED}")

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Return the token ids of a text.

        Any text can be encoded: half of a surrogate pair counts as U+FFFD.

        Parameters
        ----------
        text : str
        special : bool
            Whether ``<|endoftext|>`` (and any other special token) in the text means that
            token. Otherwise it is plain text, as it must be in text from strangers.

        Examples
        --------
        >>> Tokenizer.gpt2().encode("The end.<|endoftext|>", special=True)
        [464, 886, 13, 50256]
        """
        if not isinstance(text, str):
            hint = "; decode it first" if isinstance(text, bytes | bytearray) else ""
            raise TokenizerError(f"a text to encode is a str, not {type(text).__name__}{hint}")
        if not text.isascii():
            text = _without_surrogates(text)
        pattern = self._patterns[bool(special)]
        if pattern is None:
            return self._encode_plain(text)
        parts = pattern.split(text)    # plain, added, plain, ..., added, plain
        ids = self._encode_plain(parts[0])
        for token, plain in zip(parts[1::2], parts[2::2], strict=True):
            ids.append(self._added[token][0])
            ids += self._encode_plain(plain)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids; bytes that are not UTF-8 show as U+FFFD.

        Raises
        ------
        TokenizerError
            If an id is not an int, or not one of 0 .. n_vocab - 1.

        Examples
        --------
        >>> Tokenizer.gpt2().decode([47249, 222])
        '😀'
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of token ids, which need not be whole characters.

        Raises
        ------
        TokenizerError
            If an id is not an int, or not one of 0 .. n_vocab - 1.

        Examples
        --------
        >>> Tokenizer.gpt2().decode_bytes([47249])
        b'\\xf0\\x9f\\x98'
        """
        ids = list(ids)
        try:
            if min(ids, default=0) >= 0:
                return _unwritten("".join(map(self._tokens.__getitem__, ids)))
        except (TypeError, IndexError):
            pass
        wrong = next(i for i in ids if not hasattr(i, "__index__") or not 0 <= i < self.n_vocab)
        raise TokenizerError(f"{wrong!r} is not a token id: ids are ints, 0 to {self.n_vocab - 1}")

    def token_bytes(self, id: int) -> bytes:
        """Return the bytes of one token."""
        return self.decode_bytes([id])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``vocab.json`` and ``merges.txt`` into a folder, as Hugging Face does."""
        vocabulary = self._vocabulary | {text: id for text, (id, _) in self._added.items()}
        ordered = dict(sorted(vocabulary.items(), key=lambda item: item[1]))
        _write(Path(folder) / "vocab.json", json.dumps(ordered))
        _write(Path(folder) / "merges.txt", "\n".join(["#version: 0.2", *self._merges, ""]))

    def _encode_plain(self, text: str) -> list[int]:
        """Encode a text in which no token is special."""
        if self._add_prefix_space and text and not text.startswith(" "):
            text = " " + text
        if not self._split:
            pieces = [text] if text else []
        elif text.isascii():
            pieces = _ascii_pieces()(text)
        else:
            pieces = _unicode_pieces()(text)
        return list(chain.from_iterable(map(self._piece_ids.__getitem__, pieces)))

    def _encode_piece(self, piece: str) -> list[int]:
        """Encode one piece: merge the pair of lowest rank, the leftmost first, while there is one."""
        ranks = self._ranks
        symbols = [s for c in _written(piece.encode()) if (s := self._symbols[c])]
        n = len(symbols)
        # A chain of symbols; the empty one at its end (and, by index -1, before its start)
        # takes part in no merge.
        symbols.append("")
        before = list(range(-1, n))
        after = [*range(1, n + 1), n]
        rank_at = [ranks.get(f"{left} {right}") for left, right in pairwise(symbols)]
        rank_at.append(None)
        # Rank and position as one number: the least is the next to merge.
        queue = [rank * n + i for i, rank in enumerate(rank_at) if rank is not None]
        heapify(queue)
        while queue:
            rank, i = divmod(heappop(queue), n)
            if rank_at[i] != rank:
                continue    # a neighbour was merged meanwhile
            j = after[i]
            symbols[i] += symbols[j]
            symbols[j], rank_at[j] = "", None
            after[i] = after[j]
            before[after[j]] = i
            for left in (before[i], i):
                new = rank_at[left] = ranks.get(f"{symbols[left]} {symbols[after[left]]}")
                if new is not None:
                    heappush(queue, new * n + left)
        return [self._vocabulary[symbol] for symbol in symbols if symbol]

    def _added_pattern(self, special: bool) -> re.Pattern[str] | None:
        """Return the pattern that finds added tokens, the longest of several at one place."""
        tokens = [text for text, (_, is_special) in self._added.items() if special or not is_special]
        tokens.sort(key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, tokens)) + ")") if tokens else None


@cache
def _ascii_pieces() -> Callable[[str], list[str]]:
    return re.compile(ASCII_PATTERN).findall


@cache
def _unicode_pieces() -> Callable[[str], list[str]]:
    import regex    # only text beyond ASCII needs it

    return regex.compile(PATTERN).findall


def _without_surrogates(text: str) -> str:
    """Join surrogate pairs to characters and put U+FFFD for what is left of them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


# Reading and writing the files

_EXPECTED = (
    "vocab.bpe, or vocab.json with merges.txt (encoder.json with vocab.bpe), "
    "or the tokenizer.json of a byte-level BPE, or a folder that holds them"
)
_FOLDER_FILES = (
    ("tokenizer.json",), ("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"),
    ("vocab.bpe",),
)


def _files_in(folder: Path) -> list[Path]:
    for names in _FOLDER_FILES:
        files = [folder / name for name in names]
        if all(file.is_file() for file in files):
            return files
    others = sorted(file for file in folder.iterdir() if "token" in file.name)
    hint = f" (it has {', '.join(file.name for file in others)})" if others else ""
    raise TokenizerError(f"{folder} holds no tokenizer{hint}: expected {_EXPECTED}")


def _read(file: Path) -> tuple[str, Any]:
    """Return what a file is, "merges", "vocabulary" or "tokenizer", and its content."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        kind = "a SentencePiece model" if file.read_bytes()[:1] == b"\n" else "not text in UTF-8"
        raise TokenizerError(f"{file} is {kind}: expected {_EXPECTED}") from error
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error.strerror}") from error
    if text.lstrip()[:1] == "{":
        try:
            content = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise TokenizerError(f"{file} is not whole or not JSON: {error}") from error
        return ("tokenizer" if isinstance(content.get("model"), dict) else "vocabulary"), content
    lines = text.rstrip("\n").split("\n")
    if not lines[0].startswith("#version") and lines[0].count(" ") != 1:
        kind = "a WordPiece vocabulary" if "[UNK]" in lines else "no list of merges"
        raise TokenizerError(f"{file} is {kind}: expected {_EXPECTED}")
    if re.fullmatch(r"(?:[\w+/=]{4})+ \d+", lines[0]):
        raise TokenizerError(f"{file} is a tiktoken vocabulary: expected {_EXPECTED}")
    return "merges", lines[lines[0].startswith("#version"):]


def _from_merges(merges: Sequence[str]) -> Tokenizer:
    """Make OpenAI's tokenizer: the bytes, one token per merge, and the end of text."""
    tokens = [*_CHARACTERS, *(merge.replace(" ", "") for merge in merges)]
    vocabulary = dict(zip(tokens, range(len(tokens)), strict=True))
    return Tokenizer(vocabulary, merges, {END_OF_TEXT: (len(tokens), True)})


def _from_vocabulary(vocabulary: Mapping[str, int], merges: Sequence[str]) -> Tokenizer:
    """Make a tokenizer whose special tokens are those that no merge makes."""
    made = {*_CHARACTERS, *(merge.replace(" ", "") for merge in merges)}
    added = {token: (id, True) for token, id in vocabulary.items() if token not in made}
    plain = {token: id for token, id in vocabulary.items() if token in made}
    return Tokenizer(plain, merges, added)


def _from_tokenizer_json(file: Path, content: Mapping[str, Any]) -> Tokenizer:
    """Make the tokenizer of a file of Hugging Face's tokenizers, or say what it is instead."""
    model = content["model"]
    splitter = content.get("pre_tokenizer") or {"type": None}
    for name, value, allowed in (
        ("model.type",                     model.get("type", "BPE"),                 ("BPE",)),
        ("model.dropout",                  model.get("dropout"),                     (None, 0)),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix"),  (None, "")),
        ("model.end_of_word_suffix",       model.get("end_of_word_suffix"),          (None, "")),
        ("model.fuse_unk",                 model.get("fuse_unk"),                    (None, False)),
        ("model.byte_fallback",            model.get("byte_fallback"),               (None, False)),
        ("model.ignore_merges",            model.get("ignore_merges"),               (None, False)),
        ("normalizer",                     content.get("normalizer"),                (None,)),
        ("pre_tokenizer.type",             splitter["type"],                         ("ByteLevel",)),
        ("decoder.type", (content.get("decoder") or splitter)["type"],               ("ByteLevel",)),
    ):
        if value not in allowed:
            shown = value["type"] if isinstance(value, dict) and "type" in value else value
            raise TokenizerError(
                f"{file}: {name} is {json.dumps(shown)}, where GPT-2's byte-level BPE has "
                f"{json.dumps(allowed[0])}; other tokenizers are not supported"
            )
    vocabulary = model["vocab"]
    added = {}
    for token in content.get("added_tokens") or ():
        text = token["content"]
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.get(flag):
                raise TokenizerError(f"{file}: {flag} of the added token {text!r} is not supported")
        if vocabulary.get(text, token["id"]) != token["id"]:
            raise TokenizerError(
                f"{file}: {text!r} has id {vocabulary[text]} and, as an added token, {token['id']}"
            )
        added[text] = (token["id"], bool(token.get("special")))
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    _check_merges(file, merges, 0, vocabulary)
    plain = {token: id for token, id in vocabulary.items() if token not in added}
    _check_ids(file, [*plain.items(), *((text, id) for text, (id, _) in added.items())])
    return Tokenizer(
        vocabulary, merges, added,
        add_prefix_space=splitter.get("add_prefix_space", True),
        split=splitter.get("use_regex", True),
        unknown=model.get("unk_token"),
    )


def _check_ids(file: Path, items: Iterable[tuple[str, int]]) -> None:
    """Refuse a vocabulary whose ids are not 0, 1, 2, ... once each."""
    holder: dict[int, str] = {}
    for token, id in items:
        if type(id) is not int or id < 0:
            raise TokenizerError(f"{file}: the id of {token!r} is {id!r}, not a whole number")
        if id in holder:
            raise TokenizerError(f"{file}: {holder[id]!r} and {token!r} have the same id, {id}")
        holder[id] = token
    missing = next((id for id in range(len(holder)) if id not in holder), None)
    if missing is not None:
        raise TokenizerError(f"{file}: no token has id {missing}, yet ids go up to {max(holder)}")


def _check_order(file: Path, merges: Sequence[str]) -> None:
    """Refuse merges from which no vocabulary follows: each makes a new token of known ones."""
    known = set(_CHARACTERS)
    for number, merge in enumerate(merges):
        parts = merge.split(" ")
        if len(parts) != 2 or not known.issuperset(parts) or "".join(parts) in known:
            raise TokenizerError(
                f"{file}: merge {number}, {merge!r}, does not make a new token of two known ones"
            )
        known.add("".join(parts))


def _check_merges(
    file: Path, merges: Sequence[str], first: int, vocabulary: Mapping[str, int]
) -> None:
    """Refuse merges that are not two tokens which make a third."""
    for number, merge in enumerate(merges, first):
        parts = merge.split(" ")
        if len(parts) != 2:
            raise TokenizerError(f"{file}: merge {number}, {merge!r}, is not two tokens and a space")
        for token in (*parts, "".join(parts)):
            if token not in vocabulary:
                raise TokenizerError(
                    f"{file}: merge {number}, {merge!r}: the vocabulary lacks {token!r}"
                )


def _write(file: Path, text: str) -> None:
    part = file.with_name(file.name + ".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, file)
