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
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise

from gpt2np.assets_path import assets
from gpt2np.errors import InputError, TokenizerError, shown
from gpt2np.notebook import Shown
from gpt2np.vocabulary import ALPHABET, END_OF_TEXT, Vocabulary, unwritten, written

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

_ascii_pieces = re.compile(ASCII_PIECE).findall
_chunks = re.compile(CHUNK).findall

_REMEMBERED = 1 << 17  # as many chunks at most, some 30 MB
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
        self._chunk_ids = _ChunkIds(self._encode_piece)

        added = vocabulary.added
        self._any_added = _any_of(added)
        self._not_special = _any_of(text for text, (_, special) in added.items() if not special)

        self.n_vocab = len(vocabulary.ids) + len(added.keys() - vocabulary.ids.keys())
        self.eot = added[END_OF_TEXT][0] if END_OF_TEXT in added else None
        self.begins_with: int | None = None

    @staticmethod
    @cache
    def gpt2() -> Tokenizer:
        """Return GPT-2's tokenizer, from the 50,000 merges that come with gpt2np.

        Examples
        --------
        >>> Tokenizer.gpt2() is Tokenizer.gpt2()
        True
        """
        return Tokenizer(Vocabulary.embedded(assets() / "vocab.bpe"), embedded=True)

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
        Beside a ``vocab.json``, each token that neither is a byte nor comes of a merge is
        special. A ``tokenizer.json`` marks its added tokens: those that are not special are
        found in every text, the special ones with ``encode(text, special=True)``. Where its
        vocabulary lacks bytes, they become its unknown token or, without one, vanish: so does
        Hugging Face's tokenizers. What it says on batches (truncation, padding) and of tokens
        to put around a text (post_processor) is not used.

        Examples
        --------
        >>> Tokenizer.from_files(assets() / "vocab.bpe") == Tokenizer.gpt2()
        True
        """
        return Tokenizer(Vocabulary.read(*paths))

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
            text = _without_surrogates(text)
        find_added = self._any_added if special else self._not_special
        if find_added is None:
            return self._encode_plain(text)
        plain, *rest = find_added.split(text)  # plain, added, plain, ..., added, plain
        ids = self._encode_plain(plain)
        for token, plain in zip(rest[::2], rest[1::2], strict=True):
            ids.append(self._vocabulary.added[token][0])
            ids += self._encode_plain(plain)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids, with U+FFFD for bytes that are no character.

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

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
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
        ids = list(ids)
        try:
            written = "".join(map(self._tokens.__getitem__, ids))
            negative = min(ids, default=0) < 0
        except (IndexError, TypeError):
            negative = True
        if negative:
            wrong = next(id for id in ids if not self._is_id(id))
            raise TokenizerError(
                f"{wrong!r} is no token id: these are the whole numbers 0 to {self.n_vocab - 1}"
            )
        return unwritten(written)

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

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``vocab.json`` and ``merges.txt`` as Hugging Face does.

        For GPT-2 they equal OpenAI's published files byte for byte. A ``tokenizer.json`` is
        written too where those two do not say all, or to take the place of one that is there.

        Parameters
        ----------
        folder : path
            Made if it is not there.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Tokenizer.gpt2().save(folder)
        ...     Tokenizer.from_files(folder) == Tokenizer.gpt2()
        True
        """
        self._vocabulary.write(folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self._vocabulary == other._vocabulary

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
        for text, (id, _) in self._vocabulary.added.items():
            tokens[id] = written(text.encode())
        return tokens

    def _encode_plain(self, text: str) -> list[int]:
        """Encode text between added tokens."""
        if not text:
            return []
        if self._vocabulary.add_prefix_space and not text.startswith(" "):
            text = " " + text
        if not self._vocabulary.cut:
            return list(self._encode_piece(text))
        return list(chain.from_iterable(map(self._chunk_ids.__getitem__, _chunks(text))))

    def _encode_piece(self, piece: str) -> tuple[int, ...]:
        word, ids = written(piece.encode()), self._vocabulary.ids
        # Each token of GPT-2 merges to itself, which not every list of merges ensures.
        if self._embedded and word in ids:
            return (ids[word],)
        symbols = list(word)
        if self._lacking:
            symbols = [s for char in word if (s := self._lacking.get(char, char))]
        merge = _merge_short if len(symbols) <= _SHORT else _merge_long
        return tuple(map(ids.__getitem__, merge(symbols, self._ranks)))

    def _is_id(self, id: object) -> bool:
        try:
            return 0 <= operator.index(id) < self.n_vocab  # type: ignore[arg-type]
        except TypeError:
            return False


class _ChunkIds(dict[str, tuple[int, ...]]):
    """The ids of the chunks seen so far; those of a new one are worked out at its look-up."""

    def __init__(self, encode_piece: Callable[[str], tuple[int, ...]]) -> None:
        self._encode_piece = encode_piece

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        pieces = _ascii_pieces(chunk) if chunk.isascii() else _unicode_pieces()(chunk)
        if len(pieces) == 1:  # which by itself is one piece again
            ids = self._encode_piece(chunk)
        else:
            ids = tuple([id for piece in pieces for id in self[piece]])
        if len(chunk) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[chunk] = ids
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


def _merge_long(symbols: list[str], rank_of: Mapping[str, int]) -> list[str]:
    """Do the same in linear time: a linked list of symbols, and the places of each rank's pairs.

    A merge makes pairs of later ranks, as a rule; where merges are listed out of order, the
    places that are left of a rank wait until those of an earlier one are done.
    """
    n = len(symbols)
    symbols.append("")  # the end; also what index -1, before the start, finds
    before = list(range(-1, n))
    after = [*range(1, n + 1), n]
    ranks = [rank_of.get(f"{left} {right}") for left, right in pairwise(symbols)]
    ranks.append(None)
    places: dict[int, list[int]] = {}
    for i, rank in enumerate(ranks):
        if rank is not None:
            places.setdefault(rank, []).append(i)
    waiting = list(places)
    heapify(waiting)
    while waiting:
        lowest = heappop(waiting)
        for done, i in enumerate(here := sorted(places.pop(lowest)), 1):
            if ranks[i] != lowest:
                continue  # a merge nearby has made this another pair
            j = after[i]
            symbols[i] += symbols[j]
            symbols[j], ranks[j] = "", None
            after[i] = after[j]
            before[after[j]] = i
            for left in (before[i], i):
                new = ranks[left] = rank_of.get(f"{symbols[left]} {symbols[after[left]]}")
                if new is not None:
                    if new not in places:
                        places[new] = []
                        heappush(waiting, new)
                    places[new].append(left)
            if waiting and waiting[0] < lowest:
                places[lowest] = here[done:]
                heappush(waiting, lowest)
                break
    return list(filter(None, symbols))


@cache
def _unicode_pieces() -> Callable[[str], list[str]]:
    import regex

    return regex.compile(PIECE).findall


def _without_surrogates(text: str) -> str:
    """Join surrogate pairs to their characters, and put U+FFFD for any other surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds any of the texts, the longest of those at one place."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
