"""How likely a text is: log-probability, surprisal, rank and entropy of every token and word.

Texts are read with what comes before them, `Passage`; what the model predicts at each position
(`gpt2np.predictions`) is lined up with the tokens that it is predicted of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, overload

import numpy as np
import numpy.typing as npt

from gpt2np import ragged
from gpt2np.answers import answering
from gpt2np.errors import InputError, as_integer, shown
from gpt2np.loading import Model, as_model
from gpt2np.notebook import Shown
from gpt2np.passages import Passage, passages, start_of
from gpt2np.predictions import (
    Predictions,
    Window,
    common,
    disjoint,
    nothing,
    predict,
    predict_choices,
    strided,
)
from gpt2np.ragged import IdArray, Row, Rows
from gpt2np.words import (
    BOUNDARIES,
    Boundary,
    Span,
    Word,
    blanked,
    checked_regions,
    opens,
    share_out,
    spans_of,
    white_spans,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, eq=False)
class Score(Shown):
    """What a model makes of a text, token by token.

    Attributes
    ----------
    ids : list of int
    tokens : list of str
        The text of each token; a part of a character shows as U+FFFD.
    offsets : list of (int, int)
        Where each token begins and ends in ``text``, in characters. A token that holds a part of
        a character spans that character, also where the tokenizer changes the text first.
    logprobs : float array [T]
        log p(token | what comes before it), in nats. Where nothing comes before the first token,
        its entry is NaN, here and below.
    rank : int array [T]
        1 where no token is likelier, 2 where one is, ...; 0 where nothing was predicted.
    entropy : float array [T]
        Of the distribution that predicts the token, in bits.
    next_entropy : float
        Of the distribution that follows the last token.
    text : str
        The text scored, as it was given, with U+FFFD for what is no character. Of ids, what they
        spell.
    top : (int array [T, k], float array [T, k]) or None
        The k likeliest ids at every place and their log-probabilities, the likeliest first.
    merged : bool
        Whether the first token also holds the end of the prefix: no token begins where the
        continuation does. Its whole log-probability counts.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[Span]
    logprobs: npt.NDArray[np.float64]
    rank: npt.NDArray[np.int64]
    entropy: npt.NDArray[np.float64]
    next_entropy: float
    text: str
    top: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]] | None = None
    merged: bool = False
    # Of each boundary, log p of it before each token and at the end, 0 where there is none.
    _boundaries: npt.NDArray[np.float64] = field(  # [T + 1, boundaries]
        default_factory=lambda: np.zeros((1, len(BOUNDARIES))), repr=False
    )
    _n_bytes: tuple[int, ...] = field(default=(), repr=False)  # of each token
    _ends: tuple[int, ...] = field(default=(), repr=False)  # the ids that end a text

    @property
    def surprisal(self) -> npt.NDArray[np.float64]:
        """The surprisal of each token, in bits: -log2 p."""
        return self.logprobs / -math.log(2)

    @property
    def total(self) -> float:
        """The log-probability of all tokens that have one, in nats."""
        return float(self.logprobs[self._known].sum())

    @property
    def mean(self) -> float:
        """The same for each token."""
        n = np.count_nonzero(self._known)
        return self.total / n if n else math.nan

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability, over the tokens that have one."""
        return _exp(-self.mean)

    @property
    def greedy(self) -> bool:
        """Whether no token was likelier at any place."""
        return bool((self.rank <= 1).all())

    @property
    def n_bytes(self) -> int:
        """The bytes, in UTF-8, of the tokens that have a log-probability; the end has none."""
        return sum(
            n
            for n, known, id in zip(self._n_bytes, self._known, self.ids, strict=True)
            if known and id not in self._ends
        )

    @property
    def bits_per_byte(self) -> float:
        """All surprisal, by the number of bytes."""
        return -self.total / math.log(2) / self.n_bytes if self.n_bytes else math.nan

    @property
    def n_words(self) -> int:
        """The number of words that white space separates."""
        return len(white_spans(self._plain))

    @property
    def _known(self) -> npt.NDArray[np.bool_]:
        return ~np.isnan(self.logprobs)

    @cached_property
    def _plain(self) -> str:
        """The text with spaces in place of what ends it."""
        return blanked(self.text, self.offsets, self.ids, self._ends)

    def words(
        self,
        words: Iterable[str] | None = None,
        *,
        regions: Iterable[Sequence[int]] | None = None,
        boundary: Boundary | None = "whitespace",
    ) -> list[Word]:
        """Sum the tokens into words.

        Parameters
        ----------
        words : iterable of str, optional
            The words, or regions, of an experiment: all of the text, in order, with nothing but
            white space between them. Those that white space separates, unless given.
        regions : iterable of (start, end), optional
            The same in characters of the text; they may leave some of it out.
        boundary : {"whitespace", "space"} or None
            GPT-2's tokens begin with the space before a word. So the plain sum, None, leaves out
            that a word ends where it does, and charges that to the next word; over all words such
            probabilities do not sum to 1. A boundary goes to the word that it ends:
            p(word) = p(its tokens) * p(boundary after it) / p(boundary before it). "whitespace"
            is any token that begins with white space, or the end of the text; "space" only one
            that begins with a space, or the end, as other tools have it.

        Returns
        -------
        list of Word
            Whitespace before a word counts as part of it, that at the end of the text as part of
            none, punctuation as part of what it stands next to. A token that reaches over two
            words counts whole where it begins, and ``Word.shared`` says so: the sum over all words
            stays that of the text. Without `bos` the first word's surprisal is NaN. Ids that end
            a text end the word before them, and are part of none.

        Raises
        ------
        InputError
            The words are not those of the text, or the model has no tokenizer.

        Notes
        -----
        The last word of a text ends there with the same probability as before any other word.
        What a text begins with is given, as Pimentel and Meister have it: where the first word
        follows no whitespace, p(its tokens) is divided by the sum over all tokens that begin
        without, and the end of text. (Oh and Schuler divide by nothing there.) Over all that can
        follow a word, the end of the text included, the corrected probabilities sum to 1.

        Whitespace that takes several tokens, such as U+202F in GPT-2's vocabulary, is in no such
        sum. The words on both sides of it are not corrected for this boundary.

        "space" gives what wordsprobability and minicons give, but for the first word of a text:
        wordsprobability counts the end twice among what a text may begin with, and minicons
        divides the first word, of a continuation as well, by nothing.

        "whitespace" and "space" differ where texts have line breaks: after "fell." the embedded
        model, whose lines end often, expects one, and only "whitespace" knows that a word ends
        there too. For texts of one line by a model of prose they hardly differ.

        References
        ----------
        Pimentel and Meister, "How to Compute the Probability of a Word", EMNLP 2024,
        arXiv:2406.14561. Oh and Schuler, "Leading Whitespaces of Language Models' Subword
        Vocabulary Pose a Confound for Calculating Word Probabilities", EMNLP 2024,
        arXiv:2406.10851.

        Examples
        --------
        >>> import gpt2np
        >>> s = gpt2np.score(gpt2np.load(), "What is thy name?")
        >>> [word.text for word in s.words()]
        ['What', 'is', 'thy', 'name?']
        >>> [word.text for word in s.words(["What is", "thy", "name", "?"])]
        ['What is', 'thy', 'name', '?']
        >>> plain = s.words(boundary=None)
        >>> bool(np.isclose(sum(word.surprisal for word in plain), s.surprisal.sum()))
        True
        """
        if self.ids and not self.tokens:
            raise InputError("the model has no tokenizer: its tokens make no words")
        if boundary is not None and boundary not in BOUNDARIES:
            raise InputError(
                f"boundary must be 'whitespace', 'space' or None, not {shown(boundary)}"
            )
        if words is not None and regions is not None:
            raise InputError("give words or regions, not both")
        if words is not None:
            spans = spans_of(words, self._plain)
        elif regions is not None:
            spans = checked_regions(regions, self.text)
        else:
            spans = white_spans(self._plain)
        before = np.zeros(len(self.ids) + 1)
        if boundary is not None:
            before = self._boundaries[:, BOUNDARIES.index(boundary)]
        entropy = np.append(self.entropy, self.next_entropy)
        found = []
        for (start, end), (first, stop, shared) in zip(
            spans, share_out(self._plain, self.offsets, spans), strict=True
        ):
            logprob = float(self.logprobs[first:stop].sum()) + float(before[stop] - before[first])
            found.append(
                Word(
                    self.text[start:end],
                    -logprob / math.log(2),
                    start,
                    end,
                    first,
                    stop,
                    float(entropy[first]),
                    float(entropy[first] - entropy[stop]),
                    shared,
                )
            )
        return found

    def to_columns(self) -> dict[str, list[Any]]:
        """Give what is known of each token as lists of one length, in plain Python.

        It is what ``pandas.DataFrame`` and ``polars.DataFrame`` take. What is not known is None.

        Examples
        --------
        >>> import gpt2np
        >>> columns = gpt2np.score(gpt2np.load(), "ROMEO:").to_columns()
        >>> columns["token"], columns["end"]
        (['ROM', 'EO', ':'], [3, 5, 6])
        """
        spans = {}
        if self.tokens or not self.ids:
            starts, ends = map(list, zip(*self.offsets, strict=True)) if self.offsets else ([], [])
            spans = {"start": starts, "end": ends, "token": self.tokens}
        return {
            **spans,
            "token_id": list(self.ids),
            "logprob": _numbers(self.logprobs),
            "surprisal": _numbers(self.surprisal),
            "rank": [int(rank) or None for rank in self.rank],
            "entropy": _numbers(self.entropy),
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """Give the same as a dict for each token."""
        columns = self.to_columns()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class ScoreOptions(TypedDict, total=False):
    """The settings of `score` as keywords, for type checkers."""

    bos: bool
    eos: bool
    special: bool
    window: int | None
    stride: int | None
    top: int | None
    progress: bool


# A str is an iterable of str too: what fits several overloads is the one text of the first.
@overload
def score(  # type: ignore[overload-overlap]
    model: Model, text_or_ids: Row, *, prefix: Row | None = None, **options: Unpack[ScoreOptions]
) -> Score: ...
@overload
def score(
    model: Model,
    text_or_ids: IdArray,
    *,
    prefix: Row | None = None,
    **options: Unpack[ScoreOptions],
) -> Score | list[Score]: ...
@overload
def score(
    model: Model,
    text_or_ids: Row | Rows,
    *,
    prefix: Row | Rows | None = None,
    **options: Unpack[ScoreOptions],
) -> list[Score]: ...
@answering()
def score(
    model: Model,
    text_or_ids: Any,
    *,
    prefix: Any = None,
    bos: bool = True,
    eos: bool = False,
    special: bool = False,
    window: int | None = None,
    stride: int | None = None,
    top: int | None = None,
    progress: bool = False,
) -> Any:
    """Score a text: how likely each token is after what comes before it.

    Parameters
    ----------
    model : Model
    text_or_ids : str, token ids, or an iterable of either
        The texts of a list are read together, which is faster for short ones. Any iterable of
        texts is a list of them: a generator, a Series.
    prefix : str, token ids, or an iterable of either, optional
        What stands before the text, and is not scored itself: log p(text | prefix). One prefix
        is read once for a list of texts; a list of them has one for each text, or several for
        one. White space at its end counts as the beginning of the text, as GPT-2's tokens have
        it.
    bos : bool
        Begin with ``model.bos``, as a rule <|endoftext|>, which stood before every text in
        training. Without, nothing predicts the first token.
    eos : bool
        Score the end of the text too: the first of ``model.eos`` is its last token.
    special : bool
        Whether a special token that a text spells, such as ``<|endoftext|>``, means itself. If
        not it is plain text, which is what text from elsewhere should be.
    window : int, optional
        The most tokens read at a time, <|endoftext|> included: n_ctx unless given.
    stride : int, optional
        Longer texts are read in windows that move on by so many tokens: window // 2 unless
        given. Every token has at least window - stride tokens before it, or all there are.
    top : int, optional
        Keep so many of the likeliest tokens at every place.
    progress : bool
        Show a bar on standard error.

    Returns
    -------
    Score, or a list of them for a list
        That of an empty text has no tokens.

    Raises
    ------
    InputError
        There is nothing to score, the window or the stride does not fit the model, or the model
        gives logits that are not numbers.

    Notes
    -----
    Where the text begins is told as by lm-eval: prefix and text are encoded as one, and what
    comes after the prefix's tokens is scored. Where a token holds both the prefix's end and the
    text's beginning ("The ca" + "t sat"), scoring begins with it, and ``Score.merged`` is true;
    lm-eval leaves it out.

    Examples
    --------
    >>> import gpt2np
    >>> model = gpt2np.load()
    >>> s = gpt2np.score(model, "ROMEO:")
    >>> s.tokens, s.offsets, s.surprisal.shape
    (['ROM', 'EO', ':'], [(0, 3), (3, 5), (5, 6)], (3,))
    >>> choices = gpt2np.score(model, [" Rome", " Paris"], prefix="We go to")
    >>> [choice.tokens for choice in choices]
    [[' Rome'], [' Paris']]
    """
    model = as_model(model)
    window, stride = check_windows(model, window, stride)
    k = 0 if top is None else as_integer("top", top, 1, model.config.vocab_size)
    read, many, alike = passages(model, text_or_ids, prefix, bos=bos, eos=eos, special=special)
    sequences = [p.ids for p in read]
    fits = max(map(len, sequences)) <= window
    if alike and len(sequences) > 1 and fits and common(sequences):
        found = predict_choices(model, sequences, [max(p.first - 1, 0) for p in read], top=k)
    else:
        ends = np.cumsum([len(p.ids) for p in read]).tolist()
        windows = [
            w
            for passage, end in zip(read, ends, strict=True)
            for w in passage.windows(end - len(passage.ids), window, stride)
        ]
        ids = np.concatenate(sequences)
        found = np.split(predict(model, ids, windows, top=k, progress=progress), ends[:-1])
    scores = [_score(model, *pair, k) for pair in zip(read, found, strict=True)]
    return scores if many else scores[0]


Recipe: TypeAlias = Literal["strided", "hf", "lm-eval"]
RECIPES: tuple[Recipe, ...] = ("strided", "hf", "lm-eval")


class Perplexity(float):
    """A perplexity per token: a float that also knows how it was made.

    Attributes
    ----------
    per_word, per_byte : float
        exp of the text's negative log-probability over the number of its words, or bytes.
    bits_per_byte : float
    total : float
        The text's log-probability, in nats.
    stderr : float
        The standard error of the perplexity per token, were tokens independent.
    recipe : str
    window, stride : int
        The recipe's settings.
    n_tokens, n_words, n_bytes : int
        How many tokens were predicted, how many words white space separates, and how many bytes
        the text has in UTF-8.
    """

    per_word: float
    per_byte: float
    bits_per_byte: float
    total: float
    stderr: float
    recipe: Recipe
    window: int
    stride: int
    n_tokens: int
    n_words: int
    n_bytes: int


@answering()
def perplexity(
    model: Model,
    text: Row | IdArray,
    *,
    window: int | None = None,
    stride: int | None = None,
    recipe: Recipe = "strided",
    progress: bool = False,
) -> Perplexity:
    """Compute the perplexity of a text of any length.

    Parameters
    ----------
    model : Model
    text : str or token ids
    window : int, optional
        The most tokens read at a time: n_ctx unless given.
    stride : int, optional
        Windows move on by so many tokens: window // 2 unless given. The whole window is fastest;
        the smaller, the more context there is, and the lower the perplexity.
    recipe : {"strided", "hf", "lm-eval"}
        "strided": each token counts once, after at least window - stride tokens before it or all
        there are; the first is not predicted, as nothing comes before it.
        "hf": the page "Perplexity of fixed-length models" to the letter. It weighs each window's
        mean by the number of its new tokens less one, so that with stride=1 all but the first
        window are lost (transformers issue 22348), and does not predict the first token of a
        window that does not overlap the one before.
        "lm-eval": rolling windows that do not overlap, the first begun by <|endoftext|>, the last
        drawn back to its full length; every token is predicted.
    progress : bool
        Show a bar on standard error.

    Returns
    -------
    Perplexity
        A float, with the perplexity per word and byte and the settings as attributes.

    Raises
    ------
    InputError
        There are fewer than 2 tokens, or the window or the stride does not fit the model.

    References
    ----------
    "Perplexity of fixed-length models", huggingface.co/docs/transformers/perplexity;
    EleutherAI/lm-evaluation-harness, lm_eval/utils.py, ``get_rolling_token_windows``.

    Examples
    --------
    >>> import gpt2np
    >>> text = "Before we proceed any further, hear me speak."
    >>> p = gpt2np.perplexity(gpt2np.load(), text, window=64)
    >>> 1 < p < p.per_word, p.window, p.stride, p.n_tokens, p.n_words
    (True, 64, 32, 9, 8)
    """
    model = as_model(model)
    if recipe not in RECIPES:
        raise InputError(f"recipe must be 'strided', 'hf' or 'lm-eval', not {shown(recipe)}")
    if recipe == "lm-eval" and stride is not None:
        raise InputError("the windows of recipe='lm-eval' do not overlap: leave out stride")
    window, stride = check_windows(model, window, stride)
    rows, many = ragged.parse(model, text)
    if many:
        raise InputError(
            "perplexity takes one text; of several: [perplexity(model, text) for text in texts]"
        )
    ids = rows[0]
    if recipe == "lm-eval":
        ids, stride = np.append(start_of(model), ids).astype(np.intp), window
    if len(ids) < 2:
        raise InputError("a perplexity needs 2 tokens or more: the first one is not predicted")
    last = len(ids) - 1  # a token is predicted at the place before it: the last predicts nothing
    if recipe == "hf":
        windows, weights = _of_transformers_page(len(ids), window, stride)
    elif recipe == "lm-eval":
        windows = list(disjoint(last, window))
    else:
        windows = list(strided(0, last, window, stride))
    logprobs = predict(model, ids, windows, progress=progress)["logprob"]
    parts = [logprobs[w.first : w.stop] for w in windows]
    known = np.concatenate(parts)
    mean = float(known.mean())
    if recipe == "hf":
        mean = float(np.average([part.mean() for part in parts], weights=weights))
    spelt = model.tokenizer.decode_bytes(rows[0]) if model.has_tokenizer else b""
    return _perplexity(
        mean,
        known,
        recipe=recipe,
        window=window,
        stride=stride,
        n_words=len(spelt.decode("utf-8", "replace").split()),
        n_bytes=len(spelt),
    )


def _of_transformers_page(n: int, window: int, stride: int) -> tuple[list[Window], list[int]]:
    """Give the windows of "Perplexity of fixed-length models", and their weights."""
    windows, weights = [], []
    end_before = 0
    for begin in range(0, n, stride):
        end = min(begin + window, n)
        # A token is predicted at the place before it: the last one is read for nothing.
        if max(end_before, begin + 1) < end:
            windows.append(Window(begin, max(end_before - 1, begin), end - 1))
            weights.append(end - end_before - 1)
        end_before = end
        if end == n:
            break
    return windows, weights


def _perplexity(mean: float, known: npt.NDArray[np.float64], **settings: Any) -> Perplexity:
    result, total = Perplexity(_exp(-mean)), float(known.sum())
    vars(result).update(settings)
    result.total, result.n_tokens = total, len(known)
    result.stderr = float(result) * float(known.std()) / math.sqrt(len(known))
    result.per_word = _exp(-total / result.n_words) if result.n_words else math.nan
    result.per_byte = _exp(-total / result.n_bytes) if result.n_bytes else math.nan
    result.bits_per_byte = -total / math.log(2) / result.n_bytes if result.n_bytes else math.nan
    return result


def _exp(x: float) -> float:
    return math.exp(x) if not x >= 709 else math.inf


def _numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def check_windows(model: Model, window: int | None, stride: int | None) -> tuple[int, int]:
    """Give the window and the stride that stand for None, and refuse what does not fit."""
    n_ctx = model.config.n_ctx
    window = n_ctx if window is None else as_integer("window", window, 2, n_ctx)
    stride = window // 2 if stride is None else as_integer("stride", stride, 1, window)
    return window, stride


def _score(model: Model, passage: Passage, found: Predictions, top: int) -> Score:
    """Line what was predicted up with the tokens that it was predicted of."""
    ids = passage.ids[passage.first :].tolist()
    # What predicts the first of them stands at the place before it.
    found = found[passage.first - 1 :] if passage.first else np.append(nothing(1, top), found)
    ends = model.eos
    pieces = [model.tokenizer.token_bytes(id) for id in ids] if model.has_tokenizer else []
    text, offsets = b"".join(pieces).decode("utf-8", "replace"), _offsets(pieces)
    if passage.given:
        text, offsets = passage.given
        end = pieces[len(offsets) :]  # what was put there to end the text
        offsets = offsets + [(len(text) + a, len(text) + b) for a, b in _offsets(end)]
        text += b"".join(end).decode("utf-8", "replace")
    return Score(
        ids=ids,
        tokens=[piece.decode("utf-8", "replace") for piece in pieces],
        offsets=offsets,
        logprobs=found["logprob"][:-1],
        rank=found["rank"][:-1],
        entropy=found["entropy"][:-1],
        next_entropy=float(found["entropy"][-1]),
        text=text,
        top=(found["top_ids"][:-1], found["top_logprobs"][:-1]) if top else None,
        merged=passage.merged,
        _boundaries=_boundaries(passage, ids, pieces, ends, found),
        _n_bytes=tuple(map(len, pieces)) if pieces else (0,) * len(ids),
        _ends=ends,
    )


def _boundaries(
    passage: Passage,
    ids: Sequence[int],
    pieces: Sequence[bytes],
    ends: Sequence[int],
    found: Predictions,
) -> npt.NDArray[np.float64]:  # [T + 1, boundaries]
    """Give log p of the boundary before each token and at the end, 0 where there is none."""
    kinds = np.zeros((len(found), len(BOUNDARIES), 1), int)
    for t, piece in enumerate(pieces):
        fresh = ids[t - 1] in ends if t else passage.begins
        for column, boundary in enumerate(BOUNDARIES):
            if opens(piece, boundary) or ids[t] in ends:
                kinds[t, column] = 1
            elif fresh:
                kinds[t, column] = 2
    kinds[-1] = 1
    of_kind = np.stack([np.zeros_like(found["ends"]), found["ends"], found["begins"]], axis=-1)
    return np.take_along_axis(of_kind, kinds, axis=-1)[..., 0]


def _offsets(pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    """Say which characters of the text that they spell together each piece spans."""
    characters = _character_of_each_byte(b"".join(pieces))
    offsets = []
    end = 0
    for piece in pieces:
        start, end = end, end + len(piece)
        offsets.append((characters[start], characters[end - 1] + 1))
    return offsets


def _character_of_each_byte(data: bytes) -> list[int]:
    """Number the characters of data.decode("utf-8", "replace") at each byte that they are of.

    >>> _character_of_each_byte(b"\\xc3\\xa9a\\xf0\\x9f!")
    [0, 0, 1, 2, 2, 3]
    """
    characters: list[int] = []
    n = at = 0
    while at < len(data):
        wrong = 0  # bytes that become one U+FFFD
        try:
            valid = data[at:].decode("utf-8")
        except UnicodeDecodeError as error:
            valid = data[at : at + error.start].decode("utf-8")
            wrong = error.end - error.start
        widths = [len(character.encode()) for character in valid] + [wrong] * bool(wrong)
        for width in widths:
            characters += [n] * width
            n += 1
        at = len(characters)
    return characters
