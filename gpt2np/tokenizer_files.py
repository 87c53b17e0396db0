"""The files of tokenizers: OpenAI's, Hugging Face's two forms, and what may lie beside them.

vocab.bpe (merges.txt) lists the merges, encoder.json (vocab.json) the ids of the tokens.
tokenizer.json holds both, and how text is prepared. Which further tokens there are is said in
added_tokens.json, special_tokens_map.json and tokenizer_config.json: by the rules of transformers.
"""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt2np.errors import InputError, TokenizerError, shown
from gpt2np.files import write_text
from gpt2np.vocabulary import (
    ALPHABET,
    CHARACTERS,
    END_OF_TEXT,
    NORMALIZERS,
    Added,
    Split,
    Vocabulary,
    of_merges,
)

_EXPECTED = (
    "expected vocab.bpe, or vocab.json and merges.txt (encoder.json and vocab.bpe), or the "
    "tokenizer.json of a byte-level BPE, or a folder with one of these"
)
WHOLE, CONFIG = "tokenizer.json", "tokenizer_config.json"
ADDED, SPECIAL = "added_tokens.json", "special_tokens_map.json"
_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
FILES = (WHOLE, "vocab.json", "merges.txt", "encoder.json", "vocab.bpe")
BESIDE = (ADDED, SPECIAL, CONFIG)  # what says more on a tokenizer, and makes none alone
_OTHERS = (  # what other tokenizers' files are called, and GPT-2's where somebody renamed them
    *("vocab.txt", "tekken.json", "*.tiktoken", "*piece*.model", "spm*.model", "*token*.model"),
    *("*tokenizer*.json", "*vocab*.json", "*merges*.txt", "*vocab*.bpe", "*encoder*.json"),
)

# Each of transformers' classes but GPT-2's own takes tokenizer.json as it is, or is another kind.
_GPT2_CLASS = "GPT2Tokenizer"
_NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_GPT2_NAMED = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT)


def read(*paths: str | os.PathLike[str]) -> Vocabulary:
    """Read a vocabulary from its files or their folder; see `Tokenizer.from_files`."""
    files = [Path(path) for path in paths]
    if len(files) == 1 and files[0].is_dir():
        return _read_folder(files[0])
    found = sorted(((*_read(file), file) for file in files), key=operator.itemgetter(0))
    match found:
        case [("merges", merges, file)] if not _partner("merges", file):
            _check_order(file, merges)
            return of_merges(merges)
        case [("merges", merges, file), ("vocabulary", ids, ids_file)]:
            return _of_pair(ids_file, ids, file, merges, _Tokens())
        case [("tokenizer", content, file)]:
            return of_json(file, content)
        case [("vocabulary" | "merges" as kind, _, file)] if partner := _partner(kind, file):
            return read(file, partner)
    kinds = ", ".join(f"{file} ({kind})" for kind, _, file in found) or "no files"
    if len(files) == 1 and not files[0].exists():
        kinds = f"{files[0]} is not there; it and nothing else"
    raise TokenizerError(f"{kinds} make no tokenizer; {_EXPECTED}")


def of_json(file: Path, content: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary that the contents of a tokenizer.json describe."""
    return _of_tokenizer_json(file, content, _Tokens())


def _partner(kind: str, file: Path) -> Path | None:
    """Give x-merges.txt for x-vocab.json, and the other way round, if it is there."""
    names = {"vocabulary": ("-vocab.json", "-merges.txt"), "merges": ("-merges.txt", "-vocab.json")}
    mine, other = names[kind]
    partner = file.with_name(file.name.removesuffix(mine) + other)
    return partner if file.name.endswith(mine) and partner.is_file() else None


def why_unusable(folder: Path) -> str | None:
    """Say why the tokenizer in a folder, or what points to another, is of no use, if it is not."""
    try:
        if any((folder / name).is_file() for name in FILES):
            _read_folder(folder)
            return None
        return reason_against(folder)
    except TokenizerError as error:
        return str(error)


def reason_against(folder: Path) -> str | None:
    """Say what in a folder without a vocabulary speaks against GPT-2's own, if anything does."""
    tokens = _Tokens.read(folder)
    if found := lookalikes(folder):
        return f"{folder} has {', '.join(found)}, which might be one: name it as the tokenizer"
    if tokens.class_name not in (None, _GPT2_CLASS):
        return f"{folder} is for a {shown(tokens.class_name)[1:-1]}, which is not GPT-2's"
    if tokens.added or "added_tokens_decoder" in tokens.config:
        return f"{folder} adds tokens to a vocabulary that is not there"
    if re.fullmatch(r"checkpoint-\d+", folder.name) and (hint := one_level_up(folder)):
        return hint
    return None


def one_level_up(folder: Path) -> str | None:
    """Name the tokenizer in the folder that holds a folder, if there is one."""
    found = [name for name in FILES if (folder.parent / name).is_file()]
    there = f"{folder.parent}, one level up, has {', '.join(found)}: name that as the tokenizer"
    return there if found else None


def lookalikes(folder: Path) -> list[str]:
    """Name the files in a folder that are a tokenizer's, or look as if they were."""
    return sorted({
        file.name
        for pattern in (*FILES, *_OTHERS)
        for file in folder.glob(pattern)
        if file.is_file() and file.name not in BESIDE
    })  # fmt: skip


def _read_folder(folder: Path) -> Vocabulary:
    """Read the tokenizer in a folder, as transformers' AutoTokenizer does."""
    tokens = _Tokens.read(folder)
    kind = tokens.class_name
    if (folder / WHOLE).is_file():
        what, content = _read(folder / WHOLE)
        if what != "tokenizer":
            raise TokenizerError(f"{folder / WHOLE} says nothing of a tokenizer; {_EXPECTED}")
        return _of_tokenizer_json(folder / WHOLE, content, tokens)
    pairs = [names for names in _PAIRS if all((folder / name).is_file() for name in names)]
    if (pairs or (folder / "vocab.bpe").is_file()) and kind not in (None, _GPT2_CLASS):
        raise TokenizerError(
            f"{folder / CONFIG}: the tokenizer is a {shown(kind)[1:-1]}, which is not GPT-2's; "
            f"{_EXPECTED}"
        )
    for ids_name, merges_name in pairs:
        (what, ids), (_, merges) = _read(folder / ids_name), _read(folder / merges_name)
        if what != "vocabulary":
            raise TokenizerError(f"{folder / ids_name} is {what}, not tokens and their ids")
        return _of_pair(folder / ids_name, ids, folder / merges_name, merges, tokens)
    if (folder / "vocab.bpe").is_file():
        return read(folder / "vocab.bpe")
    found = ", ".join(lookalikes(folder))
    raise TokenizerError(f"{folder} has {found or 'no tokenizer'}; {_EXPECTED}")


def _read(file: Path) -> tuple[str, Any]:
    """Return what a file is, "merges", "vocabulary" or "tokenizer", and what it says."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # a byte-order mark is no text
    except OSError as error:
        hint = "; for GPT-2's own write Tokenizer.gpt2()" if not file.suffix else ""
        raise TokenizerError(f"{file} cannot be read: {error.strerror}{hint}") from error
    except UnicodeDecodeError as error:
        kind = {b"\n": "a SentencePiece model", b"\xff": "UTF-16", b"\xfe": "UTF-16"}.get(
            error.object[:1], "not text in UTF-8"
        )
        raise TokenizerError(f"{file} is {kind}; {_EXPECTED}") from error
    if text.lstrip()[:1] == "{":
        content = _json(file, text)
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


def _json(file: Path, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{file} is not whole, or not JSON: {error}") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{file} does not hold a JSON object")
    return content


@dataclass(frozen=True)
class _Tokens:
    """What the files beside a vocabulary say: of tokens to add, and of transformers' class."""

    class_name: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)  # tokenizer_config.json
    special: Mapping[str, Any] = field(default_factory=dict)  # special_tokens_map.json
    added: Mapping[str, Any] = field(default_factory=dict)  # added_tokens.json
    folder: Path = Path()

    @classmethod
    def read(cls, folder: Path) -> _Tokens:
        contents = {
            name: _json(folder / name, _text(folder / name))
            for name in (CONFIG, SPECIAL, ADDED, "config.json")
            if (folder / name).is_file()
        }
        config = contents.get(CONFIG, {})
        name = config.get("tokenizer_class") or contents.get("config.json", {}).get(
            "tokenizer_class"
        )
        return cls(
            str(name).removesuffix("Fast") if name else None,
            config,
            contents.get(SPECIAL, {}),
            contents.get(ADDED, {}),
            folder,
        )

    def declared(self, whole: Mapping[str, Added]) -> dict[str, Added]:
        """Give the tokens of added_tokens_decoder, or else of added_tokens.json and tokenizer.json.

        They are in the order of their ids; the ids themselves do not count, as transformers gives
        new tokens the next ones there are.
        """
        if "added_tokens_decoder" in self.config:
            by_id = {
                int(id): _token(entry) for id, entry in self.config["added_tokens_decoder"].items()
            }
        else:
            # An object in tokenizer_config.json is not yet read as a token there.
            read = [value for name, value in self.named.items() if name in self._special_map]
            read += [
                value for value in (*self.named.values(), *self.extra) if isinstance(value, str)
            ]
            special = {_token(value)[0] for value in read if value}
            by_id = {
                id: (text, Added(-1, text in special, normalized=text not in special))
                for text, id in self.added.items()
            } | {token.id: (text, token) for text, token in whole.items()}
        return dict(by_id[id] for id in sorted(by_id))

    @property
    def named(self) -> dict[str, Any]:
        """bos_token and the like, as written; what is null has none, whatever the default."""
        said = {**self.config, **self._special_map}
        own = [name for name in said if name.endswith("_token") and isinstance(said[name], str)]
        return {name: said[name] for name in dict.fromkeys((*_NAMED, *own)) if name in said}

    @property
    def extra(self) -> list[Any]:
        """The special tokens without a name."""
        keys = ("extra_special_tokens", "additional_special_tokens")
        said = [values.get(key) for values in (self.config, self._special_map) for key in keys]
        found = next(filter(None, said), ())
        return list(found.values() if isinstance(found, dict) else found)

    @property
    def _special_map(self) -> Mapping[str, Any]:
        return {} if "added_tokens_decoder" in self.config else self.special


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file} is not text in UTF-8") from error


def _token(entry: Any, *, special: bool = False) -> tuple[str, Added]:
    """Read a token as AddedToken reads it: a text, or an object with flags."""
    if isinstance(entry, str):
        entry = {"content": entry, "special": True}
    special = special or bool(entry.get("special"))
    flags = {name: bool(entry.get(name)) for name in ("lstrip", "rstrip", "single_word")}
    text = entry["content"]
    if not isinstance(text, str):
        raise TypeError(f"a token is {shown(text)}")
    normalized = bool(entry.get("normalized", not entry.get("special")))
    return text, Added(-1, special, normalized=normalized, **flags)


def _of_pair(
    ids_file: Path, ids: dict[str, Any], merges_file: Path, merges: Sequence[str], tokens: _Tokens
) -> Vocabulary:
    """Return what transformers' GPT2Tokenizer makes of vocab.json and merges.txt."""
    _check_ids(ids_file, ids.items())
    _check_merges(merges_file, merges, ids)
    _check_made(merges_file, merges)
    vocabulary = _gpt2(ids_file.parent, Vocabulary(ids, tuple(merges), {}), tokens, {})
    entry = tokens.named.get("bos_token", END_OF_TEXT)
    if not tokens.config.get("add_bos_token") or not entry:
        return vocabulary
    bos = _token(entry)[0]
    if bos not in vocabulary.added:
        raise TokenizerError(f"{ids_file}: add_bos_token is set, but there is no {bos!r}")
    return vocabulary._replace(begins_with=vocabulary.added[bos].id)


def _gpt2(
    folder: Path, base: Vocabulary, tokens: _Tokens, whole: Mapping[str, Added]
) -> Vocabulary:
    """Return what GPT2Tokenizer makes of it, which knows tokens and merges and no other setting."""
    spaced = bool(tokens.config.get("add_prefix_space"))
    base = Vocabulary(base.ids, base.merges, {}, spaced)
    return _with_tokens(folder, base, tokens, whole, _GPT2_NAMED)


def _with_tokens(
    folder: Path,
    base: Vocabulary,
    tokens: _Tokens,
    whole: Mapping[str, Added],
    defaults: Mapping[str, str],
) -> Vocabulary:
    """Add what tokenizer.json and the files beside it name, with transformers' ids for them."""
    try:
        to_add = _to_add(base, tokens, whole, {**defaults, **tokens.named})
        named = tuple((name, _token(value)[0]) for name, value in tokens.named.items() if value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(
            f"{folder}: {', '.join(BESIDE)} are not as transformers writes them: {error!r}"
        ) from error
    ids, added = base.ids, dict(base.added)
    next_id = max([len(ids), *(token.id + 1 for token in added.values())])
    for text, token in to_add:
        old = added.get(text)
        id = old.id if old else ids.get(text, next_id)
        next_id = max(next_id, id + 1)
        special = token.special or (old is not None and old.special)
        added[text] = token._replace(id=id, special=special)
    made = {base.unknown, *CHARACTERS, *(merge.replace(" ", "") for merge in base.merges)}
    plain = {token: id for token, id in ids.items() if token in made or token not in added}
    return base._replace(ids=plain, added=added, named=named)


def _to_add(
    base: Vocabulary, tokens: _Tokens, whole: Mapping[str, Added], named: Mapping[str, Any]
) -> list[tuple[str, Added]]:
    """Give the tokens in the order in which transformers adds them; the last of a text holds."""
    declared = tokens.declared(whole)
    names = {_token(value)[0] for value in named.values() if value}
    first = {
        text: token._replace(special=token.special or text in names)
        for text, token in declared.items()
    }
    values = [value for value in (*named.values(), *tokens.extra) if value]
    once = [value for i, value in enumerate(values) if value not in values[:i]]
    later = [_token(value, special=True) for value in once]
    to_add = [(text, token) for text, token in first.items() if base.added.get(text) != token]
    to_add += [(text, token) for text, token in later if text not in (*first, *base.added)]
    asked = {*base.ids, *declared, *(_token(value)[0] for value in tokens.named.values() if value)}
    if END_OF_TEXT not in asked and {text for text, _ in to_add} <= {*base.ids, END_OF_TEXT}:
        # No file names it, and no other id depends on it.
        return [(text, token) for text, token in to_add if text != END_OF_TEXT]
    return to_add


def _of_tokenizer_json(file: Path, content: Mapping[str, Any], tokens: _Tokens) -> Vocabulary:
    """Return the vocabulary that a file of Hugging Face's tokenizers describes."""
    gpt2 = tokens.class_name == _GPT2_CLASS
    try:
        _check_settings(file, content, all_of_it=not gpt2)
        base = _base(file, content)
        added = _added_tokens(file, content.get("added_tokens") or (), base.ids)
        begins_with = _begins_with(file, content.get("post_processor"))
        if gpt2:
            base = _gpt2(file.parent, base, tokens, added)
        else:
            base = base._replace(added=added, **_prepared(file, content))
            base = _with_tokens(file.parent, base, tokens, added, {})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, TokenizerError):
            raise
        raise TokenizerError(
            f"{file} is not as Hugging Face's tokenizers writes it: {error!r}"
        ) from error
    everything = base.ids | {text: token.id for text, token in base.added.items()}
    _check_ids(file, everything.items())
    return base._replace(begins_with=begins_with)


def _base(file: Path, content: Mapping[str, Any]) -> Vocabulary:
    """Return the tokens and merges alone."""
    model = content["model"]
    ids, merges = model["vocab"], tuple(map(_merge, model["merges"]))
    _check_merges(file, merges, ids)
    unknown = None if ids.keys() >= set(ALPHABET) else model.get("unk_token")
    if unknown is not None and unknown not in ids:
        raise TokenizerError(f"{file}: the vocabulary lacks the unknown token, {unknown!r}")
    for merge in merges:
        if not set(merge.replace(" ", "")).issubset(ALPHABET):
            raise TokenizerError(f"{file}: the merge {merge!r} is not written as bytes are")
    return Vocabulary(ids, merges, {}, unknown=unknown)


def _prepared(file: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return how tokenizer.json has text prepared: what is normalized and where it is cut."""
    steps = _steps(content["pre_tokenizer"], "pretokenizers")
    *before, byte_level = steps
    return {
        "add_prefix_space": bool(byte_level.get("add_prefix_space", True)),
        "cut": bool(byte_level.get("use_regex", True)),
        "normalizers": tuple(
            step["type"] for step in _steps(content.get("normalizer"), "normalizers")
        ),
        "splits": tuple(_split(file, step) for step in before),
    }


def _steps(step: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    """Return what a Sequence is of, however deep; anything else is a sequence of itself."""
    if step is None:
        return []
    if step.get("type") != "Sequence":
        return [step]
    return [one for part in step[name] for one in _steps(part, name)]


def _split(file: Path, step: Mapping[str, Any]) -> Split:
    if step["type"] == "Digits":
        return Split(r"\p{N}", "Isolated" if step["individual_digits"] else "Contiguous")
    [(kind, pattern)] = step["pattern"].items()
    pattern = re.escape(pattern) if kind == "String" else pattern
    if step["behavior"] not in _BEHAVIORS or not pattern:
        raise TokenizerError(f"{file}: Split has {shown(step)}, which gpt2np does not do")
    _check_pattern(file, pattern)
    return Split(pattern, step["behavior"], bool(step.get("invert")))


_BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
# What Oniguruma, which tokenizers uses, and Python's regex read differently: lines that begin
# and end anywhere, \h and its like, classes in classes, repetitions of repetitions.
_READ_OTHERWISE = re.compile(
    r"(?:\\\\)*(?:\\[hHRXKGZzyYOQEkg0-9]"
    r"|(?<![\\\[])[\^$]|\(\?[^:=!<>iimsx-]|\(\?[^)i:]*[mx]|\[\[|&&|\{\d*,?\d*\}\+)"
)


def _check_pattern(file: Path, pattern: str) -> None:
    import regex

    if different := _READ_OTHERWISE.search(pattern):
        raise TokenizerError(
            f"{file}: gpt2np does not read {different[0]!r} in a Split's pattern as tokenizers does"
        )
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise TokenizerError(f"{file}: {shown(pattern)} is no pattern: {error}") from error


def _begins_with(file: Path, processor: Mapping[str, Any] | None) -> int | None:
    """Return the id that a post-processor puts before a text; what it puts after is not used."""
    for step in _steps(processor, "processors"):
        if step["type"] == "TemplateProcessing":
            ids: list[int] = []
            for piece in step["single"]:
                if "Sequence" in piece:
                    break
                ids += step["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
            if len(ids) > 1:
                raise TokenizerError(f"{file} puts {len(ids)} tokens before a text, not one")
            return ids[0] if ids else None
        if step["type"] in ("RobertaProcessing", "BertProcessing"):
            return int(step["cls"][1])
    return None


def _merge(merge: str | list[str]) -> str:
    """Return a merge as vocab.bpe has it; newer files hold pairs."""
    return merge if isinstance(merge, str) else " ".join(merge)


def _check_settings(file: Path, content: Mapping[str, Any], *, all_of_it: bool) -> None:
    """Refuse what would make other tokens than byte-level BPE does."""
    model = content["model"]
    cutters = _steps(content.get("pre_tokenizer"), "pretokenizers")
    *before, last = [step.get("type") for step in cutters] or [None]
    cutter = next((kind for kind in before if kind not in ("Split", "Digits")), last)
    normalizers = [step.get("type") for step in _steps(content.get("normalizer"), "normalizers")]
    normalizer = next((kind for kind in normalizers if kind not in NORMALIZERS), None)
    decoder = (content.get("decoder") or {}).get("type")
    settings = [
        ("model",                     model.get("type", "BPE"),               ("BPE",)),
        ("dropout",                   model.get("dropout"),                   (None, 0)),
        ("continuing_subword_prefix", model.get("continuing_subword_prefix"), (None, "")),
        ("end_of_word_suffix",        model.get("end_of_word_suffix"),        (None, "")),
        ("fuse_unk",                  model.get("fuse_unk"),                  (None, False)),
        ("byte_fallback",             model.get("byte_fallback"),             (None, False)),
        ("ignore_merges",             model.get("ignore_merges"),             (None, False)),
        ("pre_tokenizer",             cutter,                                 ("ByteLevel",)),
        ("decoder",                   decoder,                                ("ByteLevel", None)),
        ("normalizer",                normalizer,                             (None,)),
    ]  # fmt: skip
    for name, value, allowed in settings if all_of_it else settings[:1]:
        if value not in allowed:
            raise TokenizerError(
                f"{file}: {name} is {json.dumps(value)}, which gpt2np does not have; {_EXPECTED}"
            )


def _added_tokens(
    file: Path, tokens: Iterable[Mapping[str, Any]], vocabulary: Mapping[str, int]
) -> dict[str, Added]:
    """Return tokenizer.json's added tokens."""
    added: dict[str, Added] = {}
    for entry in tokens:
        text, id = entry["content"], entry["id"]
        if not isinstance(text, str) or text in added:
            raise TokenizerError(f"{file}: added token {id}, {text!r}, is no text or there twice")
        if vocabulary.get(text, id) != id:
            raise TokenizerError(
                f"{file}: {text!r} has the id {vocabulary[text]} and, as an added token, {id}"
            )
        added[text] = _token(entry)[1]._replace(id=id)
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
    known = set(CHARACTERS)
    for number, merge in enumerate(merges, 1):
        parts = merge.split(" ")
        if len(parts) != 2 or not known.issuperset(parts) or "".join(parts) in known:
            raise TokenizerError(
                f"{file}: merge {number} is {merge!r}, not two known tokens that make a new one"
            )
        known.add("".join(parts))


def _check_made(file: Path, merges: Sequence[str]) -> None:
    """Refuse merges of what is neither a byte nor made by a merge, such as GPT-1's "w</w>"."""
    made = {*CHARACTERS, *(merge.replace(" ", "") for merge in merges)}
    for number, merge in enumerate(merges, 1):
        for part in merge.split(" "):
            if part not in made:
                raise TokenizerError(
                    f"{file}: merge {number} is {merge!r}, but no byte and no merge gives "
                    f"{part!r}: this is not GPT-2's byte-level BPE; {_EXPECTED}"
                )


def write(vocabulary: Vocabulary, folder: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Write the files into a folder; see `Tokenizer.save`."""
    folder, ids = Path(folder), _all_ids(vocabulary)
    pair = _of_pair(folder / "vocab.json", ids, folder / "merges.txt", vocabulary.merges, _Tokens())
    default = dict(vocabulary.named).items() <= _GPT2_NAMED.items()
    files = {
        "vocab.json": json.dumps(ids),
        "merges.txt": "\n".join(["#version: 0.2", *vocabulary.merges, ""]),
    }
    if not default or pair != vocabulary._replace(named=()):
        files[WHOLE] = json.dumps(to_json(vocabulary))
        files[CONFIG] = json.dumps(_tokenizer_config(vocabulary), indent=2) + "\n"
    others = [name for name in (WHOLE, *BESIDE) if name not in files and (folder / name).exists()]
    if others and not overwrite:
        raise InputError(
            f"{folder} holds another tokenizer's {', '.join(others)}, which would contradict what "
            "is written: name another folder, or remove them with overwrite=True"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in others:
        (folder / name).unlink()
    for name, content in files.items():
        write_text(folder / name, content)


def _tokenizer_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return what tokenizer_config.json holds: that tokenizer.json says it all."""
    special = {text for text, token in vocabulary.added.items() if token.special}
    named = _GPT2_NAMED | dict(vocabulary.named)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": vocabulary.add_prefix_space,
        "clean_up_tokenization_spaces": False,
        **{name: text for name, text in named.items() if text in special},
    }


def _all_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Return every token with its id, in their order."""
    ids = vocabulary.ids | {text: token.id for text, token in vocabulary.added.items()}
    return dict(sorted(ids.items(), key=operator.itemgetter(1)))


def to_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return what tokenizer.json holds.

    Its vocabulary has the added tokens too, as that fixes their ids: up to one that is written as
    a byte is which the vocabulary lacks. From there on they are numbered in turn.
    """
    ids = _all_ids(vocabulary)
    limit = min(
        (
            token.id
            for text, token in vocabulary.added.items()
            if text in CHARACTERS and text not in vocabulary.ids
        ),
        default=len(ids),
    )
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": vocabulary.add_prefix_space,
        "trim_offsets": True,
        "use_regex": vocabulary.cut,
    }
    splits = [
        {
            "type": "Split",
            "pattern": {"Regex": split.pattern},
            "behavior": split.behavior,
            "invert": split.invert,
        }
        for split in vocabulary.splits
    ]
    normalizers = [{"type": name} for name in vocabulary.normalizers]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"content": text, **token._asdict()}
            for text, token in sorted(vocabulary.added.items(), key=lambda item: item[1].id)
        ],
        "normalizer": _one("normalizers", normalizers),
        "pre_tokenizer": _one("pretokenizers", [*splits, byte_level]),
        "post_processor": _template(vocabulary),
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
            "vocab": {token: id for token, id in ids.items() if id < limit},
            "merges": vocabulary.merges,
        },
    }


def _one(name: str, steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the steps as one: none, itself, or a Sequence."""
    if len(steps) > 1:
        return {"type": "Sequence", name: steps}
    return steps[0] if steps else None


def _template(vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Return the post-processor that puts the first token before a text."""
    if vocabulary.begins_with is None:
        return None
    id = vocabulary.begins_with
    everything = vocabulary.ids | {text: token.id for text, token in vocabulary.added.items()}
    text = next(text for text, other in everything.items() if other == id)
    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    token = {"SpecialToken": {"id": text, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [token, first],
        "pair": [token, first, second],
        "special_tokens": {text: {"id": text, "ids": [id], "tokens": [text]}},
    }
