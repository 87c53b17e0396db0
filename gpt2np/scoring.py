"""How likely a text is: log-probability, surprisal, rank and entropy of every token and word.

token ids, all texts behind one another, each after its <|endoftext|>       [N]
  -> windows of at most n_ctx tokens, of which each overlaps the one before
  -> hidden(), windows of similar length together                           [B, T, D]
  -> unembed(), some rows at a time, as all the logits are large            [rows, V]
  -> what a row predicts: log p and rank of the next token, the entropy,
     log p that a word ends here                                            [rows]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from gpt2np import ragged
from gpt2np.answers import answering, as_model
from gpt2np.errors import InputError, as_integer
from gpt2np.loading import Model
from gpt2np.model import hidden, unembed
from gpt2np.params import Array, Ids
from gpt2np.ragged import IdArray, Row, Rows
from gpt2np.sampling import quietly
from gpt2np.words import Word, begins_with_space, token_classes, word_spans

POSITIONS = 1024  # that are read at a time
LOGIT_ROWS = 128  # that are held at a time

# What is predicted after a position, one record each. `ends` is log p of the tokens before which
# a word has ended: they begin with whitespace, or end the text. `begins` is log p of the others,
# with which a text may begin, or of its end.
PREDICTION = np.dtype(
    [
        ("logprob", "f8"),
        ("rank", "i8"),
        ("entropy", "f8"),
        ("ends", "f8"),
        ("begins", "f8"),
    ]
)
NOTHING = np.array([(math.nan, 0, math.nan, math.nan, math.nan)], PREDICTION)
Predictions: TypeAlias = npt.NDArray[np.void]


@dataclass(frozen=True, eq=False)
class Score:
    """What a model makes of a text, token by token.

    Attributes
    ----------
    ids : list of int
    tokens : list of str
        The text of each token; a part of a character shows as U+FFFD.
    offsets : list of (int, int)
        Where each token begins and ends in ``text``, in characters. A token that holds a part of
        a character spans that character.
    logprobs : float array [T]
        log p(token | what comes before it), in nats. Without `bos` nothing comes before the
        first token: its entry is NaN, here and below.
    surprisal : float array [T]
        The same in bits: -log2 p.
    rank : int array [T]
        1 where no token is likelier, 2 where one is, ...; 0 where nothing was predicted.
    entropy : float array [T]
        Of the distribution that predicts the token, in bits.
    perplexity : float
        exp of the mean negative log-probability, over the tokens that have one.
    text : str
        What the tokens spell: the text scored, with U+FFFD for what is no character.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    logprobs: npt.NDArray[np.float64]
    rank: npt.NDArray[np.int64]
    entropy: npt.NDArray[np.float64]
    text: str
    # log p of the word boundary before each token and at the end, 0 where there is none: [T + 1]
    _boundary: npt.NDArray[np.float64] = field(repr=False)

    @property
    def surprisal(self) -> npt.NDArray[np.float64]:
        return self.logprobs / -math.log(2)

    @property
    def perplexity(self) -> float:
        known = self.logprobs[~np.isnan(self.logprobs)]
        return _exp(-float(known.mean())) if known.size else math.nan

    def words(self, *, correction: bool = True) -> list[Word]:
        """Sum the tokens into the words that whitespace separates.

        Parameters
        ----------
        correction : bool
            GPT-2's tokens begin with the space before a word. So the plain sum leaves out that a
            word ends where it does, and charges that to the next word; over all words such
            probabilities do not sum to 1. The correction gives the boundary to the word that it
            ends: p(word) = p(its tokens) * p(boundary after it) / p(boundary before it). False
            gives the plain sum, for comparison with work before 2024.

        Returns
        -------
        list of Word
            Whitespace before a word counts as part of it, that at the end of the text as part of
            none, punctuation as part of what it stands next to, and a token that reaches over
            two words as part of the first. Without `bos` the first word's surprisal is NaN.

        Raises
        ------
        InputError
            The model has no tokenizer.

        Notes
        -----
        p(boundary) is the sum over all tokens that begin with whitespace, and <|endoftext|>: the
        last word of a text ends there with the same probability as before any other word. What
        a text begins with is given, as Pimentel and Meister have it: where the first word
        follows no whitespace, p(its tokens) is divided by the sum over all tokens that begin
        without, and <|endoftext|>. (Oh and Schuler divide by nothing there.) Over all that can
        follow a word, the end of the text included, the corrected probabilities sum to 1.

        Whitespace that takes several tokens, such as U+202F in GPT-2's vocabulary, is in no such
        sum. The words on both sides of it are not corrected for this boundary.

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
        >>> plain = s.words(correction=False)
        >>> bool(np.isclose(sum(word.surprisal for word in plain), s.surprisal.sum()))
        True
        """
        if self.ids and not self.tokens:
            raise InputError("the model has no tokenizer: its tokens make no words")
        words = []
        for (start, end), (first, stop) in word_spans(self.text, self.offsets):
            logprob = float(self.logprobs[first:stop].sum())
            if correction:
                logprob += float(self._boundary[stop]) - float(self._boundary[first])
            words.append(Word(self.text[start:end], -logprob / math.log(2), start, end))
        return words


@overload
def score(  # type: ignore[overload-overlap]  # a str is an iterable of str too, but comes first
    model: Model,
    text_or_ids: Row,
    *,
    bos: bool = True,
    special: bool = False,
    window: int | None = None,
    stride: int | None = None,
) -> Score: ...
@overload
def score(
    model: Model,
    text_or_ids: IdArray,
    *,
    bos: bool = True,
    special: bool = False,
    window: int | None = None,
    stride: int | None = None,
) -> Score | list[Score]: ...
@overload
def score(
    model: Model,
    text_or_ids: Rows,
    *,
    bos: bool = True,
    special: bool = False,
    window: int | None = None,
    stride: int | None = None,
) -> list[Score]: ...
@answering()
def score(
    model: Model,
    text_or_ids: Any,
    *,
    bos: bool = True,
    special: bool = False,
    window: int | None = None,
    stride: int | None = None,
) -> Any:
    """Score a text: how likely each token is after what comes before it.

    Parameters
    ----------
    model : Model
    text_or_ids : str, token ids, or a list of either
        The texts of a list are read together, which is faster for short ones. Any iterable of
        texts is a list of them: a generator, a Series.
    bos : bool
        Condition the first token on ``model.bos``, as a rule <|endoftext|>, which stood before
        every text in training.
    special : bool
        Whether a special token that a text spells, such as ``<|endoftext|>``, means itself. If
        not it is plain text, which is what text from elsewhere should be.
    window : int, optional
        The most tokens read at a time, <|endoftext|> included: n_ctx unless given.
    stride : int, optional
        Longer texts are read in windows that move on by so many tokens: window // 2 unless
        given. Every token has at least window - stride tokens before it, or all there are.

    Returns
    -------
    Score, or a list of them for a list
        That of an empty text has no tokens.

    Raises
    ------
    InputError
        There is nothing to score, the window or the stride does not fit the model, or the model
        gives logits that are not numbers.

    Examples
    --------
    >>> import gpt2np
    >>> s = gpt2np.score(gpt2np.load(), "ROMEO:")
    >>> s.tokens, s.offsets, s.surprisal.shape
    (['ROM', 'EO', ':'], [(0, 3), (3, 5), (5, 6)], (3,))
    """
    model = as_model(model)
    window, stride = check_windows(model, window, stride)
    rows, many = ragged.parse(model, text_or_ids, special=special)
    sequences = [_sequence(model, row, bos) for row in rows]
    ends = np.cumsum([len(ids) for ids in sequences]).tolist()
    windows = [
        w
        for ids, end in zip(sequences, ends, strict=True)
        for w in _windows(end - len(ids), end, window, stride)
    ]
    found = np.split(_predict(model, np.concatenate(sequences), windows), ends[:-1])
    scores = [_score(model, *pair, bos) for pair in zip(sequences, found, strict=True)]
    return scores if many else scores[0]


class Perplexity(float):
    """A perplexity per token: a float that also knows how it was made.

    Attributes
    ----------
    per_word : float
        exp of the text's negative log-probability over the number of its words.
    window, stride : int
        The recipe's settings.
    n_tokens, n_words : int
        How many tokens were predicted, and how many words whitespace separates.
    """

    per_word: float
    window: int
    stride: int
    n_tokens: int
    n_words: int


@answering()
def perplexity(
    model: Model, text: Row | IdArray, *, window: int | None = None, stride: int | None = None
) -> Perplexity:
    """Compute the perplexity of a text by the strided recipe of Hugging Face's documentation.

    The text is read in windows that move on by `stride`, and of each the tokens count that no
    window before it held. The first token of the text is not predicted, as nothing comes before
    it, not even <|endoftext|>; nor is the first of a window that does not overlap the one before.

    To the letter: the recipe takes each window's mean and weighs it by the number of its new
    tokens less one, also in overlapping windows, where all of them are predicted.

    Parameters
    ----------
    model : Model
    text : str or token ids
    window : int, optional
        n_ctx unless given.
    stride : int, optional
        window // 2 unless given. The whole window is fastest; the smaller, the more context
        there is, and the lower the perplexity.

    Returns
    -------
    Perplexity
        A float, with the perplexity per word and the settings as attributes.

    Raises
    ------
    InputError
        There are fewer than 2 tokens, or the window or the stride does not fit the model.

    References
    ----------
    "Perplexity of fixed-length models", huggingface.co/docs/transformers/perplexity.

    Examples
    --------
    >>> import gpt2np
    >>> text = "Before we proceed any further, hear me speak."
    >>> p = gpt2np.perplexity(gpt2np.load(), text, window=64)
    >>> 1 < p < p.per_word, p.window, p.stride, p.n_tokens, p.n_words
    (True, 64, 32, 9, 8)
    """
    model = as_model(model)
    window, stride = check_windows(model, window, stride)
    rows, many = ragged.parse(model, text)
    if many:
        raise InputError(
            "perplexity takes one text; of several: [perplexity(model, text) for text in texts]"
        )
    ids = rows[0]
    if len(ids) < 2:
        raise InputError("a perplexity needs 2 tokens or more: the first one is not predicted")
    windows, weights = [], []
    end_before = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        # A token is predicted at the position before it: the last one is read for nothing.
        if max(end_before, begin + 1) < end:
            windows.append(_Window(begin, max(end_before - 1, begin), end - 1))
            weights.append(end - end_before - 1)
        end_before = end
        if end == len(ids):
            break
    logprobs = _predict(model, ids, windows)["logprob"]
    of_windows = [logprobs[w.first : w.stop] for w in windows]
    means = [part.mean() for part in of_windows]
    result = Perplexity(_exp(-float(np.average(means, weights=weights))))
    result.window, result.stride = window, stride
    result.n_tokens = sum(map(len, of_windows))
    result.n_words = len(model.tokenizer.decode(ids).split()) if model.has_tokenizer else 0
    nll = -sum(float(part.sum()) for part in of_windows)
    result.per_word = _exp(nll / result.n_words) if result.n_words else math.nan
    return result


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def check_windows(model: Model, window: int | None, stride: int | None) -> tuple[int, int]:
    """Give the window and the stride that stand for None, and refuse what does not fit."""
    n_ctx = model.config.n_ctx
    window = n_ctx if window is None else as_integer("window", window, 2, n_ctx)
    stride = window // 2 if stride is None else as_integer("stride", stride, 1, window)
    return window, stride


def _sequence(model: Model, ids: Ids, bos: bool) -> Ids:
    """Put the id that a text begins with in front, if asked for."""
    if not bos:
        return ids
    if model.bos is None:
        raise InputError("the model has no <|endoftext|> to begin with: give bos=False")
    return np.append(model.bos, ids)


class _Window(NamedTuple):
    """Tokens [start, stop) are read, and what is predicted after [first, stop) is kept."""

    start: int
    first: int
    stop: int


def _windows(begin: int, end: int, window: int, stride: int) -> Iterator[_Window]:
    """Cover [begin, end) so that each position is kept once."""
    first = begin
    for start in range(begin, end, stride):
        stop = min(start + window, end)
        yield _Window(start, first, stop)
        if stop == end:
            return
        first = stop


@quietly
def _predict(model: Model, ids: Ids, windows: Sequence[_Window]) -> Predictions:
    """Say what is predicted after each of the ids [N] that a window keeps."""
    of_words = token_classes(
        model.tokenizer if model.has_tokenizer else None, model.config.vocab_size
    )
    classes: Array = of_words.astype(model.params.dtype)
    next_ids = np.append(ids[1:], 0)  # the last is none, and what is said of it not used
    found = np.repeat(NOTHING, len(ids))
    for rows in ragged.groups([w.stop - w.start for w in windows], POSITIONS):
        group = [windows[b] for b in rows]
        x = hidden(model.params, ragged.rectangle([ids[w.start : w.stop] for w in group]))
        kept = np.concatenate(
            [row[w.first - w.start : w.stop - w.start] for row, w in zip(x, group, strict=True)]
        )
        at = np.concatenate([np.arange(w.first, w.stop) for w in group])
        for i in range(0, len(at), LOGIT_ROWS):
            part = at[i : i + LOGIT_ROWS]
            logits = unembed(model.params, kept[None, i : i + LOGIT_ROWS])[0]
            found[part] = _predictions(logits, next_ids[part], classes)
    return found


def _predictions(logits: Array, targets: Ids, classes: Array) -> Predictions:
    """Say what logits [rows, V] predict of the targets [rows]; the logits are used up."""
    top = logits.max(-1, keepdims=True)
    if not np.isfinite(top).all():
        raise InputError(
            "the model's logits are not numbers: its weights hold NaN or infinity, or "
            f"are too large for {logits.dtype}"
        )
    logits -= top
    p = np.exp(logits)
    total = p.sum(-1)
    log_total = np.log(total)
    target = logits[np.arange(len(targets)), targets]
    found = np.empty(len(targets), PREDICTION)
    found["logprob"] = target - log_total
    found["rank"] = np.count_nonzero(logits > target[:, None], axis=-1) + 1
    found["entropy"] = (log_total - np.vecdot(p, logits) / total) / math.log(2)
    of_classes = np.log(p @ classes)
    found["ends"] = of_classes[:, 0] - log_total
    found["begins"] = of_classes[:, 1] - log_total
    return found


def _score(model: Model, ids: Ids, found: Predictions, bos: bool) -> Score:
    """Line what was predicted up with the tokens that it was predicted of."""
    if bos:
        ids = ids[1:]
    else:
        found = np.concatenate([NOTHING, found])
    pieces = [model.tokenizer.token_bytes(id) for id in ids.tolist()] if model.has_tokenizer else []
    spaced = np.array([begins_with_space(piece) for piece in pieces] + [True])
    boundary = np.where(spaced, found["ends"], 0.0)
    if pieces and not spaced[0]:
        boundary[0] = found["begins"][0]
    return Score(
        ids=ids.tolist(),
        tokens=[piece.decode("utf-8", "replace") for piece in pieces],
        offsets=_offsets(pieces),
        logprobs=found["logprob"][:-1],
        rank=found["rank"][:-1],
        entropy=found["entropy"][:-1],
        text=b"".join(pieces).decode("utf-8", "replace"),
        _boundary=boundary,
    )


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
