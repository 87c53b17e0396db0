"""Evaluations: how well a model does a task, with the figures that lm-eval gives.

Each task reads a file of its own kind, scores what there is to score, and gives figures with
their standard errors. Nothing is fetched: the files are the caller's.

EleutherAI/lm-evaluation-harness 0.4.13: api/task.py, tasks/lambada, tasks/blimp, tasks/wikitext.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from gpt2np.answers import answering
from gpt2np.errors import InputError, as_integer, shown
from gpt2np.files import read_text
from gpt2np.loading import Model, as_model
from gpt2np.predictions import counting
from gpt2np.scoring import Perplexity, Recipe, Score, perplexity, score

BATCH = 8_000  # characters, more or less, that are scored together
SHARED = 1_500  # characters of prefixes that are worth reading once instead of again

Task: TypeAlias = Literal["lambada", "choice", "perplexity"]


class Figure(NamedTuple):
    """A figure and its standard error."""

    value: float
    stderr: float


@dataclass(frozen=True)
class Evaluation:
    """What came of a task.

    Attributes
    ----------
    task : str
    model : str or None
        Its source.
    n : int
        How many items there were, or tokens for perplexity.
    figures : dict of str to Figure
    settings : dict
    """

    task: str
    model: str | None
    n: int
    figures: dict[str, Figure]
    settings: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give it in plain Python, as JSON is written of."""
        figures = {name: figure.value for name, figure in self.figures.items()}
        errors = {f"{name}_stderr": figure.stderr for name, figure in self.figures.items()}
        return {
            "task": self.task, "model": self.model, "n": self.n,
            **self.settings, **figures, **errors,
        }  # fmt: skip

    def __str__(self) -> str:
        width = max(map(len, self.figures))
        lines = [
            f"{name:<{width}}  {figure.value:.4f}"
            + f" +- {figure.stderr:.4f}" * math.isfinite(figure.stderr)  # of one item there is none
            for name, figure in self.figures.items()
        ]
        told = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return "\n".join([*lines, f"n = {self.n}" + f" ({told})" * bool(told)])


@answering()
def evaluate(
    model: Model,
    task: Task,
    file: str | os.PathLike[str] | Iterable[dict[str, Any]],
    *,
    join: str = " ",
    window: int | None = None,
    stride: int | None = None,
    recipe: Recipe = "lm-eval",
    n_words: int | None = None,
    detokenize: Literal["wikitext"] | None = None,
    progress: bool = False,
) -> Evaluation:
    """Measure how well a model does a task.

    Parameters
    ----------
    model : Model
    task : {"lambada", "choice", "perplexity"}
        "lambada": JSON lines with a ``text`` each, whose last word is to be predicted.
        "choice": JSON lines with ``prefix``, ``choices`` and ``answer`` (a number from 0, or the
        choice itself), or with ``sentence_good`` and ``sentence_bad`` as BLiMP has them.
        "perplexity": a text, or JSON lines with a ``text`` each, which are read one by one.
    file : path, or iterable of dict
        The file, or what its lines hold.
    join : str
        What stands between a prefix and each choice, unless one of them brings white space.
    window : int, optional
        The most tokens read at a time: n_ctx unless given.
    stride, recipe
        Of perplexity: see `gpt2np.perplexity`.
    n_words : int, optional
        Of perplexity: the number of words to divide by, where the text was tokenized for another
        model; those that white space separates unless given.
    detokenize : {"wikitext"}, optional
        Of perplexity: undo WikiText's tokenization before the text is read. Words and bytes are
        counted before, as lm-eval does.
    progress : bool
        Show a bar on standard error.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        There is no such task, or the file does not hold what it needs.

    Notes
    -----
    As in lm-eval nothing stands before a prefix, and <|endoftext|> before a text without one.
    Standard errors are those of a mean over items, or over tokens for a perplexity; of a
    perplexity it is its own value times that of the mean log-probability. (For these lm-eval
    draws bootstrap samples.)

    Examples
    --------
    >>> import gpt2np
    >>> items = [{"text": "Good morrow, good my lord"}, {"text": "O Romeo, Romeo"}]
    >>> result = evaluate(gpt2np.load(), "lambada", items)
    >>> sorted(result.figures), result.n
    (['accuracy', 'perplexity'], 2)
    """
    model = as_model(model)
    if task not in TASKS:
        raise InputError(f"task must be one of {', '.join(TASKS)}, not {shown(task)}")
    if join != " " and task != "choice":
        raise InputError(f"join is for choice, not for {task}: leave out join")
    if task == "perplexity":
        return _perplexity(
            model, _documents(file), window=window, stride=stride, recipe=recipe,
            n_words=n_words, detokenize=detokenize, progress=progress,
        )  # fmt: skip
    of_perplexity = {
        "stride": stride, "n_words": n_words, "detokenize": detokenize,
        "recipe": None if recipe == "lm-eval" else recipe,
    }  # fmt: skip
    for name, value in of_perplexity.items():
        if value is not None:
            raise InputError(f"{name} is for perplexity, not for {task}: leave out {name}")
    items = list(TASKS[task](_objects(file), join))
    if not items:
        raise InputError("there is nothing to evaluate: the file has no items")
    with counting(len(items), "items", shown=progress) as count:
        results = list(_scored(model, items, window, count))
    figures = _of_last_words(results) if task == "lambada" else _of_choices(items, results)
    return Evaluation(task, model.source, len(items), figures)


class Item(NamedTuple):
    """A prefix, what may follow it, and which of these is right."""

    prefix: str
    texts: list[str]  # as they are scored
    choices: list[str]  # as they are measured
    answer: int


def _last_words(objects: Iterable[dict[str, Any]], join: str) -> Iterator[Item]:
    for number, values in enumerate(objects, 1):
        before, space, last = _text(values, "text", number).rpartition(" ")
        yield Item(before, [space + last], [last], 0)


def _choices(objects: Iterable[dict[str, Any]], join: str) -> Iterator[Item]:
    for number, values in enumerate(objects, 1):
        if "sentence_good" in values:
            prefix, answer = "", 0
            choices = [_text(values, f"sentence_{kind}", number) for kind in ("good", "bad")]
        else:
            prefix, given = _text(values, "prefix", number), values.get("choices")
            if not isinstance(given, list) or not all(isinstance(c, str) and c for c in given):
                raise InputError(f"item {number} has no list of texts as its choices")
            choices = given
            answer = _answer(values.get("answer"), choices, number)
        spaced = prefix[-1:].isspace()
        texts = [c if spaced or c[:1].isspace() else join + c for c in choices]
        yield Item(prefix, texts, choices, answer)


TASKS: dict[str, Callable[[Iterable[dict[str, Any]], str], Iterator[Item]]] = {
    "lambada": _last_words,
    "choice": _choices,
    "perplexity": _last_words,
}


def _answer(answer: Any, choices: list[str], number: int) -> int:
    if isinstance(answer, str) and answer in choices:
        return choices.index(answer)
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(choices):
        return answer
    raise InputError(f"item {number}: the answer {shown(answer)} is none of its choices")


def _text(values: dict[str, Any], name: str, number: int) -> str:
    text = values.get(name)
    if not isinstance(text, str) or (name != "prefix" and not text):
        raise InputError(f"item {number} has no text called {name!r}")
    return text


def _scored(
    model: Model, items: Sequence[Item], window: int | None, count: Callable[[int], object]
) -> Iterator[list[Score]]:
    """Score the texts of each item after its prefix; items together, or a long prefix once."""
    batch: list[Item] = []
    for item in items:
        if (len(item.texts) - 1) * len(item.prefix) > SHARED:
            yield from _together(model, batch, window, count)
            batch = []
            yield score(model, item.texts, prefix=item.prefix, bos=False, window=window)
            count(1)
            continue
        batch.append(item)
        if sum(len(i.texts) * (len(i.prefix) + 1) for i in batch) > BATCH:
            yield from _together(model, batch, window, count)
            batch = []
    yield from _together(model, batch, window, count)


def _together(
    model: Model, items: Sequence[Item], window: int | None, count: Callable[[int], object]
) -> Iterator[list[Score]]:
    found: dict[tuple[int, int], Score] = {}
    for bos in (False, True):  # nothing stands before a prefix
        pairs = [
            (i, j)
            for i, item in enumerate(items)
            for j in range(len(item.texts))
            if bool(item.prefix) != bos
        ]
        if pairs:
            scores = score(
                model,
                [items[i].texts[j] for i, j in pairs],
                prefix=[items[i].prefix for i, _ in pairs],
                bos=bos,
                window=window,
            )
            found.update(zip(pairs, scores, strict=True))
    for i, item in enumerate(items):
        yield [found[i, j] for j in range(len(item.texts))]
    count(len(items))


def _of_last_words(results: Sequence[list[Score]]) -> dict[str, Figure]:
    logprobs = np.array([s.total for (s,) in results])
    value = math.exp(-float(logprobs.mean()))
    return {
        "accuracy": _mean([s.greedy for (s,) in results]),
        "perplexity": Figure(value, value * _mean(logprobs).stderr),
    }


def _of_choices(items: Sequence[Item], results: Sequence[list[Score]]) -> dict[str, Figure]:
    sizes: dict[str, Callable[[str, Score], int]] = {
        "accuracy": lambda choice, s: 1,
        "accuracy_per_token": lambda choice, s: len(s.ids),
        "accuracy_per_byte": lambda choice, s: len(choice.encode("utf-8", "surrogatepass")),
        "accuracy_per_character": lambda choice, s: len(choice),
    }
    right: dict[str, list[bool]] = {name: [] for name in sizes}
    for item, scores in zip(items, results, strict=True):
        for name, size in sizes.items():
            means = [s.total / size(c, s) for c, s in zip(item.choices, scores, strict=True)]
            right[name].append(int(np.argmax(means)) == item.answer)
    return {name: _mean(values) for name, values in right.items()}


def _mean(values: Any) -> Figure:
    array = np.asarray(values, float)
    stderr = float(array.std(ddof=1)) / math.sqrt(array.size) if array.size > 1 else math.nan
    return Figure(float(array.mean()), stderr)


def _perplexity(
    model: Model,
    documents: Sequence[str],
    *,
    n_words: int | None,
    detokenize: str | None,
    **settings: Any,
) -> Evaluation:
    if detokenize not in (None, "wikitext"):
        raise InputError(f"detokenize must be 'wikitext' or None, not {shown(detokenize)}")
    parts: list[Perplexity] = []
    words = n_bytes = 0
    for document in documents:
        # lm-eval counts the empty texts before and after a page as words of it.
        words += len(re.split(r"\s+", document) if detokenize else document.split())
        n_bytes += len(document.encode("utf-8", "surrogatepass"))
        parts.append(
            perplexity(model, detokenized(document) if detokenize else document, **settings)
        )
    words = words if n_words is None else as_integer("n_words", n_words, 1)
    total, n = sum(p.total for p in parts), sum(p.n_tokens for p in parts)
    error = math.sqrt(sum(p.n_tokens * (p.stderr * math.sqrt(p.n_tokens) / p) ** 2 for p in parts))
    mean = sum(math.log(p) * p.n_tokens for p in parts) / n  # the recipe "hf" weighs its own way
    value = math.exp(mean)
    figures = {
        "perplexity": Figure(value, value * error / n),
        **{
            f"{name}_perplexity": Figure(by := math.exp(-total / k), by * error / k)
            for name, k in (("word", words), ("byte", n_bytes))
            if k
        },
        "bits_per_byte": Figure(-total / math.log(2) / n_bytes, error / math.log(2) / n_bytes),
    }
    told = {
        "recipe": parts[0].recipe, "window": parts[0].window, "stride": parts[0].stride,
        "n_words": words, "n_bytes": n_bytes, "detokenize": detokenize,
    }  # fmt: skip
    return Evaluation("perplexity", model.source, n, figures, told)


def detokenized(page: str) -> str:
    """Undo WikiText's tokenization as lm-eval's ``wikitext_detokenizer`` does, oddities included.

    Examples
    --------
    >>> detokenized("a well @-@ made thing , it said ( at last ) . Then")
    'a well-made thing, it said (at last). Then'
    """
    for old, new in _WIKITEXT:
        page = old.sub(new, page) if isinstance(old, re.Pattern) else page.replace(old, new)
    return page


_WIKITEXT: tuple[tuple[str | re.Pattern[str], str], ...] = (
    ("s '", "s'"),
    (re.compile(r"/' [0-9]/"), r"/'[0-9]/"),
    (" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."),
    (" : ", ": "), (" ; ", "; "), (" . ", ". "), (" ! ", "! "), (" ? ", "? "), (" , ", ", "),
    (re.compile(r"\(\s*([^\)]*?)\s*\)"), r"(\1)"),
    (re.compile(r"\[\s*([^\]]*?)\s*\]"), r"[\1]"),
    (re.compile(r"{\s*([^}]*?)\s*}"), r"{\1}"),
    (re.compile(r"\"\s*([^\"]*?)\s*\""), r'"\1"'),
    (re.compile(r"'\s*([^']*?)\s*'"), r"'\1'"),
    ("= = = =", "===="), ("= = =", "==="), ("= =", "=="),
    (" \N{DEGREE SIGN} ", "\N{DEGREE SIGN}"),
    (" \n", "\n"), ("\n ", "\n"), (" N ", " 1 "), (" 's", "'s"),
)  # fmt: skip


def _objects(file: Any) -> Iterator[dict[str, Any]]:
    """Give the objects of a file of JSON lines, or those that were given themselves."""
    if not isinstance(file, str | os.PathLike):
        yield from file
        return
    for number, line in enumerate(read_text(file).split("\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{os.fspath(file)}, line {number} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise InputError(f"{os.fspath(file)}, line {number} is no JSON object")
        yield values


def _documents(file: Any) -> list[str]:
    """Give the texts of a file for perplexity."""
    if isinstance(file, str | os.PathLike) and not os.fspath(file).endswith(".jsonl"):
        return [read_text(file)]
    return [_text(values, "text", i) for i, values in enumerate(_objects(file), 1)]
