"""The vocabulary of a byte-level BPE and its files: OpenAI's, and Hugging Face's two forms.

vocab.bpe (merges.txt) lists the merges, encoder.json (vocab.json) the ids of the tokens. For
GPT-2 these follow from the merges. tokenizer.json holds both, and how text is prepared.
"""

from __future__ import annotations

import codecs
import json
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpt2np.errors import TokenizerError
from gpt2np.files import write_text

END_OF_TEXT = "<|endoftext|>"

# Bytes that are printable stand for themselves and come first in GPT-2's vocabulary; the other 68
# are written as the characters from U+0100 on. So the writing is a one-byte character encoding.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTE_ORDER = [*_PRINTABLE, *(byte for byte in range(256) if byte not in _PRINTABLE)]
_CHARACTERS = [*map(chr, _PRINTABLE), *map(chr, range(0x100, 0x144))]
ALPHABET = "".join(char for _, char in sorted(zip(_BYTE_ORDER, _CHARACTERS, strict=True)))
_CHR_TO_BYTE = codecs.charmap_build(ALPHABET)


def written(data: bytes) -> str:
    """Return bytes as the vocabulary writes them."""
    return codecs.charmap_decode(data, "strict", ALPHABET)[0]


def unwritten(token: str) -> bytes:
    """Return the bytes that the vocabulary writes so."""
    return codecs.charmap_encode(token, "strict", _CHR_TO_BYTE)[0]


_EXPECTED = (
    "expected vocab.bpe, or vocab.json and merges.txt (encoder.json and vocab.bpe), or the "
    "tokenizer.json of a byte-level BPE, or a folder with one of these"
)
_FILES = (
    ("tokenizer.json",),
    ("vocab.json", "merges.txt"),
    ("encoder.json", "vocab.bpe"),
    ("vocab.bpe",),
)
_FOREIGN = ("vocab.txt", "*.model", "*.tiktoken", "*token*", "vocab*", "merges*", "encoder*")


class Vocabulary(NamedTuple):
    """What a byte-level BPE tokenizer is made of."""

    ids: dict[str, int]  # of the tokens, as written
    merges: tuple[str, ...]  # "left right", the first to be merged first
    added: dict[str, tuple[int, bool]]  # text that is a token: its id; is it special?
    add_prefix_space: bool = False  # before a text that does not begin with one
    cut: bool = True  # into pieces; or is the whole text one piece?
    unknown: str | None = None  # the token for bytes that have none

    @staticmethod
    def embedded(file: Path) -> Vocabulary:
        """Return GPT-2's vocabulary from gpt2np's own vocab.bpe, which needs no checks."""
        return _of_merges(_read(file)[1])

    @staticmethod
    def read(*paths: str | os.PathLike[str]) -> Vocabulary:
        """Read a vocabulary from its files or their folder; see `Tokenizer.from_files`."""
        files = [Path(path) for path in paths]
        if len(files) == 1 and files[0].is_dir():
            files = _files_in(files[0])
        found = sorted(((*_read(file), file) for file in files), key=operator.itemgetter(0))
        match found:
            case [("merges", merges, file)]:
                _check_order(file, merges)
                return _of_merges(merges)
            case [("merges", merges, file), ("vocabulary", ids, ids_file)]:
                _check_ids(ids_file, ids.items())
                _check_merges(file, merges, ids)
                return _of_ids(ids, merges)
            case [("tokenizer", content, file)]:
                return Vocabulary.of_json(file, content)
        kinds = ", ".join(f"{file} ({kind})" for kind, _, file in found) or "no files"
        raise TokenizerError(f"{kinds} make no tokenizer; {_EXPECTED}")

    @staticmethod
    def of_json(file: Path, content: Mapping[str, Any]) -> Vocabulary:
        """Return the vocabulary that the contents of a tokenizer.json describe."""
        try:
            return _of_tokenizer_json(file, content)
        except (AttributeError, KeyError, TypeError) as error:
            raise TokenizerError(
                f"{file} is not as Hugging Face's tokenizers writes it: {error!r}"
            ) from error

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the files into a folder; see `Tokenizer.save`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        ids = self._all_ids()
        write_text(folder / "vocab.json", json.dumps(ids))
        write_text(folder / "merges.txt", "\n".join(["#version: 0.2", *self.merges, ""]))
        whole = folder / "tokenizer.json"
        if whole.exists() or _of_ids(ids, self.merges) != self:
            write_text(whole, json.dumps(_tokenizer_json(self, ids)))

    def to_json(self) -> dict[str, Any]:
        """Return the contents of a tokenizer.json that describes it."""
        return _tokenizer_json(self, self._all_ids())

    def _all_ids(self) -> dict[str, int]:
        unordered = self.ids | {text: id for text, (id, _) in self.added.items()}
        return dict(sorted(unordered.items(), key=operator.itemgetter(1)))


def _of_merges(merges: Sequence[str]) -> Vocabulary:
    """Return OpenAI's vocabulary: the bytes, a token for each merge, the end of text."""
    tokens = [*_CHARACTERS, *(merge.replace(" ", "") for merge in merges)]
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    return Vocabulary(ids, tuple(merges), {END_OF_TEXT: (len(ids), True)})


def _of_ids(ids: Mapping[str, int], merges: Sequence[str]) -> Vocabulary:
    """Take as special what is neither a byte nor made by a merge."""
    made = {*_CHARACTERS, *(merge.replace(" ", "") for merge in merges)}
    plain = {token: id for token, id in ids.items() if token in made}
    added = {token: (id, True) for token, id in ids.items() if token not in made}
    return Vocabulary(plain, tuple(merges), added)


def _files_in(folder: Path) -> list[Path]:
    """Return the files of the tokenizer in a folder."""
    for names in _FILES:
        files = [folder / name for name in names]
        if all(file.is_file() for file in files):
            return files
    found = sorted({file.name for pattern in _FOREIGN for file in folder.glob(pattern)})
    raise TokenizerError(f"{folder} has {', '.join(found) or 'no tokenizer'}; {_EXPECTED}")


def _read(file: Path) -> tuple[str, Any]:
    """Return what a file is, "merges", "vocabulary" or "tokenizer", and what it says."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # a byte-order mark is no text
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        kind = {b"\n": "a SentencePiece model", b"\xff": "UTF-16", b"\xfe": "UTF-16"}.get(
            error.object[:1], "not text in UTF-8"
        )
        raise TokenizerError(f"{file} is {kind}; {_EXPECTED}") from error
    if text.lstrip()[:1] == "{":
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TokenizerError(f"{file} is not whole, or not JSON: {error}") from error
        return ("tokenizer" if isinstance(content.get("model"), dict) else "vocabulary"), content
    merges = text.rstrip("\n").split("\n")
    if merges[0].startswith("#version"):
        return "merges", merges[1:]
    if re.fullmatch(r"[\w+/=]{4,} \d+", merges[0]):
        raise TokenizerError(f"{file} is a tiktoken vocabulary; {_EXPECTED}")
    if merges[0].count(" ") != 1:
        kind = "a WordPiece vocabulary" if "[UNK]" in merges else "no list of merges"
        raise TokenizerError(f"{file} is {kind}; {_EXPECTED}")
    return "merges", merges


def _of_tokenizer_json(file: Path, content: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary that a file of Hugging Face's tokenizers describes."""
    _check_settings(file, content)
    model, cutter = content["model"], content["pre_tokenizer"]
    ids, merges = model["vocab"], tuple(map(_merge, model["merges"]))
    _check_merges(file, merges, ids)
    added = _added_tokens(file, content.get("added_tokens") or (), ids)
    unknown = None if ids.keys() >= set(ALPHABET) else model.get("unk_token")
    if unknown is not None and unknown not in ids:
        raise TokenizerError(f"{file}: the vocabulary lacks the unknown token, {unknown!r}")
    needed = {unknown, *_CHARACTERS, *(merge.replace(" ", "") for merge in merges)}
    plain = {token: id for token, id in ids.items() if token in needed or token not in added}
    _check_ids(file, (plain | {text: id for text, (id, _) in added.items()}).items())
    for token, id in plain.items():
        if not set(token).issubset(ALPHABET):
            raise TokenizerError(f"{file}: token {id}, {token!r}, is not written as bytes are")
    return Vocabulary(
        plain,
        merges,
        added,
        cutter.get("add_prefix_space", True),
        cutter.get("use_regex", True),
        unknown,
    )


def _merge(merge: str | list[str]) -> str:
    """Return a merge as vocab.bpe has it; newer files hold pairs."""
    return merge if isinstance(merge, str) else " ".join(merge)


def _check_settings(file: Path, content: Mapping[str, Any]) -> None:
    """Refuse what would make other tokens than byte-level BPE does."""
    model = content["model"]
    kinds = {name: (content.get(name) or {}).get("type") for name in ("pre_tokenizer", "decoder")}
    for name, value, allowed in (
        ("model",                     model.get("type", "BPE"),               ("BPE",)),
        ("pre_tokenizer",             kinds["pre_tokenizer"],                 ("ByteLevel",)),
        ("decoder",                   kinds["decoder"],                       ("ByteLevel", None)),
        ("normalizer",                content.get("normalizer"),              (None,)),
        ("dropout",                   model.get("dropout"),                   (None, 0)),
        ("continuing_subword_prefix", model.get("continuing_subword_prefix"), (None, "")),
        ("end_of_word_suffix",        model.get("end_of_word_suffix"),        (None, "")),
        ("fuse_unk",                  model.get("fuse_unk"),                  (None, False)),
        ("byte_fallback",             model.get("byte_fallback"),             (None, False)),
        ("ignore_merges",             model.get("ignore_merges"),             (None, False)),
    ):  # fmt: skip
        if value not in allowed:
            shown = value.get("type") if isinstance(value, dict) else value
            raise TokenizerError(
                f"{file}: {name} is {json.dumps(shown)}, which gpt2np does not have; {_EXPECTED}"
            )


def _added_tokens(
    file: Path, tokens: Iterable[Mapping[str, Any]], vocabulary: Mapping[str, int]
) -> dict[str, tuple[int, bool]]:
    """Return the added tokens: their text, with the id and whether it is special."""
    added: dict[str, tuple[int, bool]] = {}
    for token in tokens:
        text, id = token["content"], token["id"]
        if not isinstance(text, str) or text in added:
            raise TokenizerError(f"{file}: added token {id}, {text!r}, is no text or there twice")
        if vocabulary.get(text, id) != id:
            raise TokenizerError(
                f"{file}: {text!r} has the id {vocabulary[text]} and, as an added token, {id}"
            )
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.get(flag):
                raise TokenizerError(
                    f"{file}: added token {id}, {text!r}, has {flag}, which gpt2np does not"
                )
        added[text] = (id, bool(token.get("special")))
    return added


def _check_ids(file: Path, ids: Iterable[tuple[str, int]]) -> None:
    """Refuse ids that are not 0, 1, 2 ... once each."""
    token_of: dict[int, str] = {}
    surrogate = re.compile("[\ud800-\udfff]").search
    for token, id in ids:
        if type(id) is not int or id < 0:
            raise TokenizerError(f"{file}: token {token!r} has the id {id!r}, no whole number")
        if not token or surrogate(token):
            raise TokenizerError(f"{file}: token {id} is {token!r}, which no text contains")
        if id in token_of:
            raise TokenizerError(f"{file}: {token_of[id]!r} and {token!r} both have the id {id}")
        token_of[id] = token
    missing = next((id for id in range(len(token_of)) if id not in token_of), None)
    if missing is not None:
        raise TokenizerError(f"{file}: no token has the id {missing}; ids go to {max(token_of)}")


def _check_merges(file: Path, merges: Sequence[str], vocabulary: Iterable[str]) -> None:
    """Refuse merges that are not two tokens of the vocabulary that make a third."""
    known = set(vocabulary)
    for number, merge in enumerate(merges, 1):
        parts = merge.split(" ")
        if len(parts) != 2:
            raise TokenizerError(f"{file}: merge {number} is {merge!r}, not two tokens")
        for token in (*parts, "".join(parts)):
            if token not in known:
                raise TokenizerError(
                    f"{file}: merge {number} is {merge!r}, but the vocabulary lacks {token!r}"
                )


def _check_order(file: Path, merges: Sequence[str]) -> None:
    """Refuse merges that by themselves give no vocabulary: each has to make a new token."""
    known = set(_CHARACTERS)
    for number, merge in enumerate(merges, 1):
        parts = merge.split(" ")
        if len(parts) != 2 or not known.issuperset(parts) or "".join(parts) in known:
            raise TokenizerError(
                f"{file}: merge {number} is {merge!r}, not two known tokens that make a new one"
            )
        known.add("".join(parts))


def _tokenizer_json(vocabulary: Vocabulary, ids: Mapping[str, int]) -> dict[str, Any]:
    """Return what tokenizer.json holds."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": vocabulary.add_prefix_space,
        "trim_offsets": True,
        "use_regex": vocabulary.cut,
    }
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": id, "content": text, **flags, "special": special}
            for text, (id, special) in vocabulary.added.items()
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": vocabulary.unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": vocabulary.merges,
        },
    }
