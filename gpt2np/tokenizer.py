"""Byte-level byte-pair encoding: text to token ids and back, exactly as OpenAI's encoder.py.

A text is cut into pieces: words, numbers, punctuation, white space. A piece becomes the bytes of
its UTF-8 form. Then neighbours are merged, of all pairs the one that stands first in the list of
merges first, until no listed pair is left; what remains are the tokens.

As in GPT-2's own files a byte is written as one printable character throughout, a space as ``Ġ``,
so that a line ``Ġ t`` of vocab.bpe is itself the key under which the rank of that merge is found.
"""

from __future__ import annotations

import operator
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from functools import cache, cached_property, partial, reduce
from heapq import heapify, heappop, heappush
from itertools import chain, islice, pairwise, repeat

from gpt2np.assets_path import assets
from gpt2np.errors import InputError, TokenizerError, shown
from gpt2np.notebook import Shown
from gpt2np.vocabulary import (
    ALPHABET,
    END_OF_TEXT,
    Added,
    Vocabulary,
    aligned,
    normalizer,
    of_merges,
    unwritten,
    written,
)

# How text is cut into pieces: openai/gpt-2 @ 9b63575, src/encoder.py.
PIECE = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# The same for ASCII text, for which the faster `re` will do. White space is spelt out because
# \s of `re` also takes in \x1c-\x1f.
ASCII_PIECE = (
    r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\t-\r A-Za-z0-9]+"
    r"|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)
# No piece reaches from a character that is not white space to one that is, so text may first be
# cut there. Such a chunk, a word with what stands around it, is what is remembered.
SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
CHUNK = f"[{SPACE}]*[^{SPACE}]+|[{SPACE}]+"

_foreign = re.compile(f"[^{re.escape(ALPHABET)}]").search
_is_space = re.compile(f"[{SPACE}]").match
_ascii_pieces = re.compile(ASCII_PIECE).findall
_chunks = re.compile(CHUNK).findall

_REMEMBERED = 1 << 17  # as many chunks at most, some 30 MB
_MANY = 1 << 20  # symbols of one piece; more are held in arrays: slower, but a third of the memory
_SHORT = 64  # characters; longer chunks are forgotten, longer pieces merged otherwise


class Tokenizer(Shown):
    """A byte-level BPE tokenizer: `Tokenizer.gpt2` and `Tokenizer.from_files` make one.

    Attributes
    ----------
    n_vocab : int
        The number of ids, which are 0 to n_vocab - 1.
    eot : int or None
        The id of ``<|endoftext|>``, which stands between documents.
    begins_with : int or None
        The id that its files ask for before every text (``add_bos_token``), which nearly none
        do: `generate` and `score` put it there once, `encode` adds nothing.

    Examples
    --------
    >>> tokenizer = Tokenizer.gpt2()
    >>> tokenizer.encode("Hello world")
    [15496, 995]
    >>> tokenizer.decode([15496, 995])
    'Hello world'
    >>> tokenizer.n_vocab, tokenizer.eot
    (50257, 50256)
    """

    def __init__(self, vocabulary: Vocabulary, *, embedded: bool = False) -> None:
        if not isinstance(vocabulary, Vocabulary):
            raise InputError(
                "a tokenizer is made by Tokenizer.gpt2(), which is GPT-2's own, or by "
                f"Tokenizer.from_files(path), not of {shown(vocabulary)}"
            )
        self._vocabulary = vocabulary
        self._embedded = embedded  # is it GPT-2's own?
        self._ranks = dict(zip(vocabulary.merges, range(len(vocabulary.merges)), strict=True))
        self._lacking = {
            char: vocabulary.unknown or "" for char in ALPHABET if char not in vocabulary.ids
        }
        self._chunk_ids = _ChunkIds(self._encode_piece, vocabulary.cut)
        self._splits = [(_finder(split.pattern), split.parts) for split in vocabulary.splits]

        added = vocabulary.added
        self._normalize = normalizer(vocabulary.normalizers)
        normalize = self._normalize or str
        self._added_as_written = _AddedTokens(
            {text: token for text, token in added.items() if not token.normalized}
        )
        self._added_normalized = _AddedTokens(
            {
                done: token
                for text, token in added.items()
                if token.normalized and (done := normalize(text))
            }
        )
        self._any_plain = any(not token.special for token in added.values())

        self.n_vocab = len(vocabulary.ids) + len(added.keys() - vocabulary.ids.keys())
        self.eot = added[END_OF_TEXT].id if END_OF_TEXT in added else None
        self.begins_with = vocabulary.begins_with

    @staticmethod
    @cache
    def gpt2() -> Tokenizer:
        """Return GPT-2's tokenizer, from the 50,000 merges that come with gpt2np.

        Examples
        --------
        >>> Tokenizer.gpt2() is Tokenizer.gpt2()
        True
        """
        merges = (assets() / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
        return Tokenizer(of_merges(merges), embedded=True)

    @staticmethod
    def from_files(*paths: str | os.PathLike[str]) -> Tokenizer:
        """Read a tokenizer from its files, which are told apart by their content.

        Parameters
        ----------
        paths : path
            ``vocab.bpe``; or ``vocab.json`` and ``merges.txt`` (by OpenAI's names
            ``encoder.json`` and ``vocab.bpe``) in either order; or ``tokenizer.json``; or a
            folder that holds these.

        Raises
        ------
        TokenizerError
            If a file is missing, damaged or of another kind of tokenizer.

        Notes
        -----
        A folder gives what transformers makes of it: ``added_tokens.json``,
        ``special_tokens_map.json`` and ``tokenizer_config.json`` are read too. Added tokens that
        are not special are found in every text, the special ones with
        ``encode(text, special=True)``. An added token decodes to its own text, where tokenizers
        takes letters from U+00A1 to U+0143 in it for bytes. What is said on batches (truncation,
        padding), and of tokens to put behind a text, is not used.

        Examples
        --------
        >>> Tokenizer.from_files(assets() / "vocab.bpe") == Tokenizer.gpt2()
        True
        """
        from gpt2np import tokenizer_files

        return Tokenizer(tokenizer_files.read(*paths))

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Return the token ids of a text.

        Every text can be encoded: one half of a surrogate pair by itself counts as U+FFFD.

        Parameters
        ----------
        text : str
        special : bool
            Whether ``<|endoftext|>``, or another special token, means itself where it stands in
            the text. If not it is plain text, which is what text from elsewhere should be.

        Raises
        ------
        TokenizerError
            If text is not a str.

        Examples
        --------
        >>> Tokenizer.gpt2().encode("The end.<|endoftext|>")
        [464, 886, 29847, 91, 437, 1659, 5239, 91, 29]
        >>> Tokenizer.gpt2().encode("The end.<|endoftext|>", special=True)
        [464, 886, 13, 50256]
        """
        if not isinstance(text, str):
            hint = ": decode it first" if isinstance(text, bytes | bytearray) else ""
            raise TokenizerError(f"a text is a str, not {type(text).__name__}{hint}")
        if not text.isascii():
            text = without_surrogates(text)
        if not special and not self._any_plain:  # then no token stands in the text
            return self._encode_plain(self._normalize(text) if self._normalize else text)
        ids: list[int] = []
        for token, plain, _, _ in self._parts(text, special):
            ids += self._encode_plain(plain) if token is None else (token,)
        return ids

    def spans(self, text: str, *, special: bool = False) -> list[tuple[int, int]]:
        """Return where the tokens of `encode` stand in the text: from which character to which.

        These are places in the text as it is given, also where the tokenizer changes it first. A
        character that takes several tokens is the place of each of them.

        Parameters
        ----------
        text, special
            As for `encode`.

        Examples
        --------
        >>> Tokenizer.gpt2().spans("Hello world 😀")
        [(0, 5), (5, 11), (11, 13), (12, 13)]
        """
        clean, begins, stops = aligned(text, without_surrogates)
        spans: list[tuple[int, int]] = []
        for token, plain, starts, ends in self._parts(clean, special, align=True):
            places = self._places(plain) if token is None else [(0, len(starts))]
            spans += [(starts[start], ends[end - 1]) for start, end in places]
        return [(begins[start], stops[end - 1]) for start, end in spans]

    def decode(self, ids: Iterable[int] | int) -> str:
        """Return the text of token ids, or of one, with U+FFFD for bytes that are no character.

        Raises
        ------
        TokenizerError
            If an id is not a whole number from 0 to n_vocab - 1.

        Examples
        --------
        >>> Tokenizer.gpt2().decode([47249, 222]), Tokenizer.gpt2().decode([47249])
        ('😀', '�')
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int] | int) -> bytes:
        """Return the bytes of token ids; a token may begin or end within a character.

        Raises
        ------
        TokenizerError
            If an id is not a whole number from 0 to n_vocab - 1.

        Examples
        --------
        >>> Tokenizer.gpt2().decode_bytes([47249]).hex(" ")
        'f0 9f 98'
        """
        ids = list(ids) if isinstance(ids, Iterable) else [ids]  # a single one, as from argmax
        try:
            ids = list(map(operator.index, ids))
            if min(ids, default=0) >= 0:
                return unwritten("".join(map(self._tokens.__getitem__, ids)))
        except (IndexError, TypeError):
            pass
        wrong = next(id for id in ids if not self._is_id(id))
        raise TokenizerError(
            f"{wrong!r} is no token id: these are the whole numbers 0 to {self.n_vocab - 1}"
        )

    def token_bytes(self, id: int) -> bytes:
        """Return the bytes of one token.

        Raises
        ------
        TokenizerError
            If the id is not a whole number from 0 to n_vocab - 1.

        Examples
        --------
        >>> Tokenizer.gpt2().token_bytes(995)
        b' world'
        """
        return self.decode_bytes([id])

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write ``vocab.json`` and ``merges.txt`` as Hugging Face does.

        For GPT-2 they equal OpenAI's published files byte for byte. A ``tokenizer.json`` is
        written too where those two do not say all, or to take the place of one that is there.

        Parameters
        ----------
        folder : path
            Made if it is not there.
        overwrite : bool
            Remove another tokenizer's files that would contradict what is written.

        Raises
        ------
        InputError
            There are such files, without `overwrite`.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Tokenizer.gpt2().save(folder)
        ...     Tokenizer.from_files(folder) == Tokenizer.gpt2()
        True
        """
        from gpt2np import tokenizer_files

        tokenizer_files.write(self._vocabulary, folder, overwrite=overwrite)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokenizer):
            return False
        return self._vocabulary._replace(named=()) == other._vocabulary._replace(named=())

    def __hash__(self) -> int:
        return hash(self._vocabulary.merges)

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Vocabulary, ...]]:
        return (Tokenizer.gpt2, ()) if self._embedded else (Tokenizer, (self._vocabulary,))

    def __repr__(self) -> str:
        return f"<Tokenizer with {self.n_vocab} tokens>"

    @cached_property
    def _tokens(self) -> list[str]:
        """The tokens by id, as written; only decoding needs them."""
        tokens = [""] * self.n_vocab
        for token, id in self._vocabulary.ids.items():
            tokens[id] = token
        if _foreign(
            "".join(self._vocabulary.ids)
        ):  # tokens that no text gives stand for themselves
            tokens = [written(token.encode()) if _foreign(token) else token for token in tokens]
        for text, added in self._vocabulary.added.items():
            shown = self._normalize(text) if self._normalize and added.normalized else text
            tokens[added.id] = written(shown.encode())
        return tokens

    def _parts(
        self, text: str, special: bool, *, align: bool = False
    ) -> Iterator[tuple[int | None, str, Sequence[int], Sequence[int]]]:
        """Part a text into added tokens, by their ids, and plain text between them, normalized.

        With `align` each comes with the places in the text where its characters start and end.
        """
        starts, ends = range(len(text)), range(1, len(text) + 1)
        for token, first, last in self._added_as_written.find(text, special):
            plain = text[first:last]
            begins: Sequence[int] = starts[first:last]
            stops: Sequence[int] = ends[first:last]
            if token is not None:
                yield token, plain, begins, stops
                continue
            if self._normalize and align:
                plain, *places = aligned(plain, self._normalize)
                begins, stops = ([first + place for place in places[i]] for i in (0, 1))
            elif self._normalize:
                plain = self._normalize(plain)
            for inner, start, end in self._added_normalized.find(plain, special):
                yield inner, plain[start:end], begins[start:end], stops[start:end]

    def _encode_plain(self, text: str) -> list[int]:
        """Encode text between added tokens."""
        pieces = [self._spaced(text[start:end]) for start, end in self._cut(text)]
        chunks = chain.from_iterable(map(_chunks, pieces) if self._vocabulary.cut else (pieces,))
        return reduce(operator.iconcat, map(self._chunk_ids.__getitem__, chunks), [])

    def _cut(self, text: str) -> list[tuple[int, int]]:
        """Give the parts of plain text into which the rules of the tokenizer's own cut it."""
        spans = [(0, len(text))] if text else []
        for find, parts in self._splits:
            spans = [
                (start + first, start + last)
                for start, end in spans
                for first, last in parts(text[start:end], find(text[start:end]))
            ]
        return spans

    def _spaced(self, text: str) -> str:
        spaced = not self._vocabulary.add_prefix_space or text.startswith(" ")
        return text if spaced else " " + text

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        """Give where the tokens of plain text stand in it."""
        for start, end in self._cut(text):
            spaced = self._spaced(text[start:end])
            first = end - len(spaced)  # a space that is put before has no place
            of_byte = [
                max(start, first + i) for i, char in enumerate(spaced) for _ in char.encode()
            ]
            at = 0
            for chunk in _chunks(spaced) if self._vocabulary.cut else (spaced,):
                for piece in self._chunk_ids.cut(chunk):
                    for here in self._byte_places(piece):
                        yield of_byte[at + here[0]], of_byte[at + here[-1]] + 1
                    at += len(piece.encode())

    def _byte_places(self, piece: str) -> Iterator[Sequence[int]]:
        """Give which bytes of a piece each of its tokens stands for."""
        lacking, unknown = self._lacking, self._vocabulary.unknown
        kept = [i for i, char in enumerate(written(piece.encode())) if lacking.get(char, char)]
        at = 0
        for id in self._encode_piece(piece):
            token = self._tokens[id]
            n_bytes = 1 if token == unknown else len(token)
            yield kept[at : at + n_bytes]
            at += n_bytes

    def _encode_piece(self, piece: str) -> tuple[int, ...]:
        word, ids = written(piece.encode()), self._vocabulary.ids
        # Each token of GPT-2 merges to itself, which not every list of merges ensures.
        if self._embedded and word in ids:
            return (ids[word],)
        symbols: Sequence[str] = word
        if self._lacking:
            symbols = [s for char in word if (s := self._lacking.get(char, char))]
        if len(symbols) <= _SHORT:
            return tuple(map(ids.__getitem__, _merge_short(list(symbols), self._ranks)))
        return tuple(map(ids.__getitem__, _merge_long(symbols, self._ranks)))

    def _is_id(self, id: object) -> bool:
        try:
            return 0 <= operator.index(id) < self.n_vocab  # type: ignore[arg-type]
        except TypeError:
            return False


class _ChunkIds(dict[str, tuple[int, ...]]):
    """The ids of chunks and pieces seen so far; those of a new chunk are found at its look-up."""

    def __init__(self, encode_piece: Callable[[str], tuple[int, ...]], cut: bool) -> None:
        self._encode_piece = encode_piece
        self.cut = _pieces if cut else lambda text: [text]

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        ids: list[int] = []
        for piece in self.cut(chunk):
            ids += self.get(piece) or self._remembered(piece, self._encode_piece(piece))
        return self._remembered(chunk, tuple(ids))

    def _remembered(self, text: str, ids: tuple[int, ...]) -> tuple[int, ...]:
        if len(text) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[text] = ids
        return ids


def _merge_short(symbols: list[str], rank_of: Mapping[str, int]) -> list[str]:
    """Merge the pair of lowest rank, its leftmost place first, until no listed pair is left."""
    find, never = rank_of.get, len(rank_of)
    ranks = [find(f"{left} {right}", never) for left, right in pairwise(symbols)]
    while ranks and (lowest := min(ranks)) < never:
        i = ranks.index(lowest)
        merged = symbols[i] = symbols[i] + symbols.pop(i + 1)
        del ranks[i]
        if i > 0:
            ranks[i - 1] = find(f"{symbols[i - 1]} {merged}", never)
        if i < len(ranks):
            ranks[i] = find(f"{merged} {symbols[i + 1]}", never)
    return symbols


def _merge_long(symbols: Sequence[str], rank_of: Mapping[str, int]) -> Iterator[str]:
    """Do the same in linear time: a linked list of symbols, and the places of each rank's pairs.

    A merge makes pairs of later ranks, as a rule; where merges are listed out of order, the
    places that are left of a rank wait until those of an earlier one are done. Symbols are held
    as numbers, 20 bytes for each in arrays: a piece may have millions.
    """
    n = len(symbols)
    hold: Callable[[Iterable[int]], MutableSequence[int]] = (
        list if n < _MANY else partial(array, "i")
    )
    texts = [
        *dict.fromkeys(symbols),
        "",
    ]  # and the end; also what index -1, before the start, finds
    number_of = {text: number for number, text in enumerate(texts)}
    numbers = hold(chain(map(number_of.__getitem__, symbols), [number_of[""]]))
    before, after = hold(range(-1, n)), hold(chain(range(1, n + 1), [n]))
    ranks = hold(repeat(-1, n + 1))
    places: dict[int, MutableSequence[int]] = {}
    find = rank_of.get
    for i, (left, right) in enumerate(pairwise(numbers)):
        rank = find(f"{texts[left]} {texts[right]}", -1)
        if rank >= 0:
            ranks[i] = rank
            if rank not in places:
                places[rank] = hold(())
            places[rank].append(i)
    waiting = list(places)
    heapify(waiting)
    while waiting:
        lowest = heappop(waiting)
        here, merged = _in_order(places.pop(lowest)), -1
        for done, i in enumerate(here, 1):
            if ranks[i] != lowest:
                continue  # a merge nearby has made this another pair
            j = after[i]
            if merged < 0:
                text = texts[numbers[i]] + texts[numbers[j]]
                merged = number_of.setdefault(text, len(texts))
                texts += [text] * (merged == len(texts))
            numbers[i], numbers[j], ranks[j] = merged, -1, -1
            after[i] = after[j]
            before[after[j]] = i
            for left in (before[i], i):
                pair = f"{texts[numbers[left]]} {texts[numbers[after[left]]]}"
                rank = ranks[left] = find(pair, -1)
                if rank >= 0:
                    if rank not in places:
                        places[rank] = hold(())
                        heappush(waiting, rank)
                    places[rank].append(left)
            if waiting and waiting[0] < lowest:
                places[lowest] = here[done:]
                heappush(waiting, lowest)
                break
    numbers.pop()
    return map(texts.__getitem__, array("i", filter((-1).__lt__, numbers)))


def _in_order(places: MutableSequence[int]) -> MutableSequence[int]:
    """Sort places, which as a rule they are: a list of them all would take much memory."""
    sorted_already = all(map(operator.le, places, islice(places, 1, None)))
    return places if sorted_already else array("i", sorted(places))


def _pieces(chunk: str) -> list[str]:
    return _ascii_pieces(chunk) if chunk.isascii() else _unicode_pieces()(chunk)


def _is_word(char: str) -> bool:
    """Whether a character, or none, is part of a word, as tokenizers has it."""
    import regex

    return bool(regex.match(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]", char))


def _finder(pattern: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    """Give what finds a pattern in a text."""
    import regex

    find = regex.compile(pattern).finditer
    return lambda text: (match.span() for match in find(text))


@cache
def _unicode_pieces() -> Callable[[str], list[str]]:
    import regex

    return regex.compile(PIECE).findall


def without_surrogates(text: str) -> str:
    """Join surrogate pairs to their characters, and put U+FFFD for any other surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class _AddedTokens:
    """Finds added tokens in a text, from left to right, at each place the longest."""

    def __init__(self, tokens: Mapping[str, Added]) -> None:
        self._tokens = tokens
        lengths: dict[str, set[int]] = {}  # by the first character
        for text in tokens:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(each, reverse=True) for first, each in lengths.items()}
        self._first = re.compile(f"[{''.join(map(re.escape, lengths))}]" if lengths else r"(?!)")

    def find(self, text: str, special: bool) -> Iterator[tuple[int | None, int, int]]:
        """Part a text: the id of an added token, or None, and where it starts and ends."""
        done = 0
        for first, last, token in self._matches(text):
            if token.special and not special:
                continue
            around = text[max(first - 1, 0) : first], text[last : last + 1]
            if token.single_word and any(map(_is_word, around)):
                continue
            start, end = first, last
            while token.lstrip and start > done and _is_space(text[start - 1]):
                start -= 1
            while token.rstrip and _is_space(text, end):
                end += 1
            if done < start:
                yield None, done, start
            yield token.id, start, end
            done = end
        if done < len(text):
            yield None, done, len(text)

    def _matches(self, text: str) -> Iterator[tuple[int, int, Added]]:
        done = 0
        for match in self._first.finditer(text):
            start = match.start()
            if start < done:
                continue
            for length in self._lengths[text[start]]:
                token = self._tokens.get(text[start : start + length])
                if token is not None and start + length <= len(text):
                    done = start + length
                    yield start, done, token
                    break
