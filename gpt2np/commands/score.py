"""gpt2np score: how likely texts are, token by token or word by word."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from gpt2np import scoring
from gpt2np.commands import (
    add_force,
    add_model_options,
    check_output,
    load_model,
    tell_of_special_tokens,
)
from gpt2np.commands.documents import (
    DELIMITERS,
    Document,
    WordRows,
    add_input_options,
    documents,
    word_rows,
)
from gpt2np.commands.workers import on_workers
from gpt2np.errors import InputError
from gpt2np.files import lock_holder, replacing, tell_of_no_locks, try_lock
from gpt2np.loading import Model
from gpt2np.scoring import Score
from gpt2np.streams import say, takes_colours

FORMATS = ("table", "csv", "tsv", "jsonl")
_OWN = {  # how an output begins
    "table": re.compile(rb"==== | *bits "),
    "csv":   re.compile(rb'"file","line","index",'),
    "tsv":   re.compile(rb'"file"\t"line"\t"index"\t'),
    "jsonl": re.compile(rb""),  # --resume looks at every line
}  # fmt: skip
_OWN_WORD_ROWS = re.compile(rb'[^\n]*"surprisal"[,\t]"entropy"[,\t]"n_tokens"[,\t]"shared"')
_THERE = "{} is there already: continue it with --resume, or remove it"
BATCH = 8_000  # characters, more or less, of the texts that are scored together
DIGITS = 5  # after the point, of every number in a file
PLACE = ("file", "line", "index")
COLUMNS = {
    "token": ("start", "end", "token_id", "token", "surprisal", "rank", "entropy"),
    "word":  ("start", "end", "word", "surprisal", "entropy", "first", "stop", "shared"),
}  # fmt: skip
LISTS = {"token_id": "ids", "token": "tokens", "word": "words"}  # in a JSON object of a text
COUNTS = ("n_tokens", "n_words", "bits", "perplexity")
WORD_ROW = ("surprisal", "entropy", "n_tokens", "shared")  # added to a row that has a word
COLOURS = ((4, "32"), (8, "33"), (math.inf, "31"))  # green below 4 bits, yellow below 8, red


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    add_input_options(parser)
    parser.add_argument("-o", "--output", metavar="OUT", help="write to a file")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "--format",
        choices=FORMATS,
        help="table; csv or tsv, a row for each token; jsonl, an object for each "
        "text (what OUT ends in, else table)",
    )
    shape.add_argument(
        "--json",
        dest="format",
        action="store_const",
        const="jsonl",
        help="print a JSON object on a line for each text, as --format jsonl does",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with an OUT in jsonl that was interrupted"
    )
    parser.add_argument(
        "--words",
        action="store_true",
        help="sum the tokens into the words that whitespace separates, and give "
        "the probability of the boundary to the word that it ends",
    )
    parser.add_argument(
        "--boundary",
        choices=("whitespace", "space", "none"),
        default="whitespace",
        help="what ends a word: any white space; a space alone, as other tools have it; or leave "
        "the boundary to the next word, as work before 2024 does",
    )
    parser.add_argument(
        "--no-bos",
        dest="bos",
        action="store_false",
        help="do not put <|endoftext|> first: the first token has no score then",
    )
    parser.add_argument(
        "--special",
        action="store_true",
        help="let special tokens that a text spells, such as <|endoftext|>, mean themselves",
    )
    parser.add_argument(
        "--window",
        type=int,
        metavar="N",
        help="read at most N tokens at a time (the model's context)",
    )
    parser.add_argument(
        "--stride",
        type=int,
        metavar="N",
        help="in longer texts, move on by N tokens (half the window)",
    )
    parser.add_argument(
        "--dask",
        metavar="WHERE",
        help='score on the workers of a Dask scheduler, "tcp://host:8786", or of this machine, '
        '"local"; needs the extra gpt2np[cluster]',
    )
    add_force(parser)
    add_model_options(parser)


@dataclass
class Total:
    """What texts add up to; `tokens` counts those that have a score."""

    texts: int = 0
    tokens: int = 0
    words: int = 0
    bits: float = 0.0

    def add(self, n_tokens: int, n_words: int, bits: float | str) -> None:
        """Count one more text."""
        self.texts += 1
        self.tokens += n_tokens
        self.words += n_words
        self.bits += float(bits)

    def __str__(self) -> str:
        return (
            f"texts: {self.texts:,}, tokens: {self.tokens:,}, words: {self.words:,}, "
            f"bits: {self.bits:,.1f}, perplexity: {_perplexity(self.tokens, self.bits):,.2f}"
        )


def run(args: argparse.Namespace) -> None:
    """Score the texts, show each when it is done, and tell what they add up to."""
    args.format = _format(args)
    words = word_rows(args) if args.word_column else None  # first, as a model may take long
    texts = words.documents if words else list(documents(args))
    model = load_model(args)
    if not args.special:
        tell_of_special_tokens(model, (document.text for document in texts))
    settings = _settings(args, model)
    total = Total()
    if words:
        scores = _scored(model, texts, settings, args.dask)
        _write_word_rows(args, words, (score for _, score in scores), settings, total)
    else:
        _write_texts(args, model, texts, settings, total)
    in_table = args.format == "table" and not args.output
    window, stride = settings["window"], settings["stride"]
    (print if in_table else say)(f"{total} (window {window}, stride {stride})")


def _settings(args: argparse.Namespace, model: Model) -> dict[str, Any]:
    window, stride = scoring.check_windows(model, args.window, args.stride)
    settings = {
        "model":   model.source,
        "dtype":   args.dtype,
        "bos":     args.bos,
        "special": args.special,
        "window":  window,
        "stride":  stride,
        "unit":    "word" if args.words or args.word_column else "token",
    }  # fmt: skip
    if settings["unit"] == "word":
        settings["boundary"] = args.boundary
    return settings


def _write_texts(
    args: argparse.Namespace,
    model: Model,
    texts: Sequence[Document],
    settings: Mapping[str, Any],
    total: Total,
) -> None:
    """Write of each text what is known of its tokens or words."""
    header, show = _formatter(args, settings, texts)
    with _output(args) as stream, ExitStack() as stack:
        done = _resume(stream, texts, settings, total) if args.resume else 0
        bar = stack.enter_context(_bar(len(texts), done))
        stream.write(header)
        for document, score in _scored(model, texts[done:], settings, args.dask):
            total.add(**_counts(score, settings))
            with bar.external_write_mode() if bar else nullcontext():
                stream.write(show(document, score))
                stream.flush()
            if bar:
                bar.update()


def _write_word_rows(
    args: argparse.Namespace,
    table: WordRows,
    scores: Iterable[Score],
    settings: Mapping[str, Any],
    total: Total,
) -> None:
    """Write a table of words again, with what is known of each."""
    _check_names(table.columns, WORD_ROW, args.files[0])
    for places, regions, document, score in zip(
        table.places, table.regions, table.documents, scores, strict=True
    ):
        if score.text != document.text:
            raise InputError(
                f"{document.file}, row {places[0] + 1}: the tokenizer does not spell this text "
                "as it is, so its words have no place"
            )
        total.add(**_counts(score, settings))
        for i, word in zip(places, score.words(regions=regions, **_bounded(settings)), strict=True):
            added = (
                _number(word.surprisal),
                _number(word.entropy),
                word.stop - word.first,
                word.shared,
            )
            table.rows[i].update(zip(WORD_ROW, added, strict=True))
    with _output(args) as stream:
        if args.format == "jsonl":
            stream.writelines(_json(row) + "\n" for row in table.rows)
        else:
            names = [*table.columns, *WORD_ROW]
            rows = [names, *([row[name] for name in names] for row in table.rows)]
            stream.write(_csv(rows, DELIMITERS[args.format]))


def _format(args: argparse.Namespace) -> str:
    """Say which format is wanted, and refuse what cannot be done with it."""
    ending = Path(args.output).suffix.removeprefix(".").lower() if args.output else "table"
    form: str = args.format or ("csv" if args.word_column and not args.output else ending)
    if form not in FORMATS:
        raise InputError(f"{args.output} ends in none of .csv, .tsv and .jsonl: give --format")
    if args.resume and not (args.output and form == "jsonl"):
        raise InputError("--resume goes on with an output in jsonl: give -o OUT.jsonl")
    if args.word_column and (form == "table" or args.resume):
        raise InputError("--word-column writes a whole csv, tsv or jsonl: no table, no --resume")
    if args.output:
        own = _OWN_WORD_ROWS if args.word_column else _OWN[form]
        check_output(args, args.output, "-o OUT", own)
        if form == "jsonl" and not (args.resume or args.force) and os.path.exists(args.output):
            raise InputError(_THERE.format(args.output))
    return form


def _resume(
    stream: TextIO, documents: Sequence[Document], settings: Mapping[str, Any], total: Total
) -> int:
    """Count the texts that an output holds already, and drop a last line that is torn."""
    output = stream.name
    data = Path(output).read_bytes()
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].splitlines()
    if len(lines) > len(documents):
        raise InputError(f"{output} has {len(lines)} lines for {len(documents)} texts")
    for number, (line, document) in enumerate(zip(lines, documents, strict=False), 1):
        try:
            record = json.loads(line)
            total.add(record["n_tokens"], record["n_words"], record["bits"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{output}, line {number} is not an output of this command") from None
        for name, value in {**document.origin, **settings, **document.carried}.items():
            if record.get(name) != value:
                raise InputError(
                    f"{output}, line {number}: {name} is {record.get(name)!r}, now {value!r}; "
                    "resume with the same texts and options"
                )
    torn = data[whole:]
    for document in documents[len(lines) : len(lines) + 1]:
        beginning = _json({**document.origin, **settings, **document.carried})[:-1].encode()
        if torn.startswith(beginning) or beginning.startswith(torn):
            torn = b""
    if torn:  # nobody else's last line is dropped
        raise InputError(f"{output} ends in what is not an output of this command")
    stream.truncate(whole)
    return len(lines)


def _scored(
    model: Model, texts: Iterable[Document], settings: Mapping[str, Any], dask: str | None
) -> Iterator[tuple[Document, Score]]:
    """Score the texts in batches, in their order; on Dask's workers, if there are some."""
    options = {name: settings[name] for name in ("bos", "special", "window", "stride")}
    batches = list(_batches(texts))
    of_batch = partial(_score_batch, options=options)
    found: Iterator[list[Score]]
    if dask is None:
        found = (of_batch([document.text for document in batch], model) for batch in batches)
    else:
        found = on_workers(
            dask, of_batch, [[document.text for document in batch] for batch in batches], model
        )
    for batch, scores in zip(batches, found, strict=True):
        yield from zip(batch, scores, strict=True)


def _score_batch(texts: list[str], model: Model, options: Mapping[str, Any]) -> list[Score]:
    return scoring.score(model, texts, **options)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += 1 + len(document.text)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def _output(args: argparse.Namespace) -> Iterator[TextIO]:
    """Open what is written to. A file is there when it is whole, but for jsonl, which grows."""
    if args.output is None:
        yield sys.stdout
    elif args.format == "jsonl":
        with open(args.output, "a", encoding="utf-8", newline="\n") as stream:
            held = try_lock(stream.fileno())
            if held is None:
                tell_of_no_locks(Path(os.path.realpath(args.output)).parent)
            elif not held:
                raise InputError(
                    f"{args.output} is being written by {lock_holder(stream.fileno())}: "
                    "wait for it, or give another -o OUT"
                )
            if not args.resume:
                if stream.tell() and not args.force:
                    raise InputError(_THERE.format(args.output))
                stream.truncate(0)
            try:
                yield stream
            except (KeyboardInterrupt, SystemExit):  # by Ctrl-C or SIGTERM
                say(f"gpt2np: stopped: --resume goes on with {args.output}")
                raise
    else:
        with replacing(args.output) as file, io.TextIOWrapper(file, "utf-8", newline="") as stream:
            yield stream


@contextmanager
def _bar(n_texts: int, done: int) -> Iterator[Any]:
    """Count several texts on standard error, if that is a terminal."""
    if n_texts < 2 or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(total=n_texts, initial=done, unit="text") as bar:
        yield bar


# What is written of a text


def _perplexity(n_tokens: int, bits: float | str) -> float:
    try:
        return float(2 ** (float(bits) / n_tokens))
    except ZeroDivisionError:
        return math.nan
    except OverflowError:
        return math.inf


def _number(x: float) -> float | str | None:
    """Round a number for a file: None where there is none, and "inf" for an infinite one, as JSON
    has neither."""
    if math.isfinite(x):
        return round(float(x), DIGITS)
    return None if math.isnan(x) else str(float(x))


def _bounded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give what `Score.words` is to be told."""
    return {"boundary": None if settings["boundary"] == "none" else settings["boundary"]}


def _counts(score: Score, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Count a text; its bits are the sum of what is written of it."""
    bits = score.surprisal[score.rank > 0]
    if settings["unit"] == "word":
        words = np.array([word.surprisal for word in score.words(**_bounded(settings))])
        bits = words[~np.isnan(words)]
    return {
        "n_tokens": int(np.count_nonzero(score.rank)),
        "n_words":  score.n_words,
        "bits":     _number(bits.sum()),
    }  # fmt: skip


def _columns(score: Score, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Give what is known of each token or word, column by column."""
    if settings["unit"] == "token":
        starts, ends = zip(*score.offsets, strict=True) if score.offsets else ((), ())
        values = [
            starts,
            ends,
            score.ids,
            score.tokens,
            map(_number, score.surprisal),
            score.rank.tolist(),
            map(_number, score.entropy),
        ]
    else:
        words = score.words(**_bounded(settings))
        values = [
            [word.start for word in words],
            [word.end for word in words],
            [word.text for word in words],
            [_number(word.surprisal) for word in words],
            [_number(word.entropy) for word in words],
            [word.first for word in words],
            [word.stop for word in words],
            [word.shared for word in words],
        ]
    names = COLUMNS[settings["unit"]]
    return {name: list(column) for name, column in zip(names, values, strict=True)}


def _formatter(
    args: argparse.Namespace, settings: Mapping[str, Any], texts: Sequence[Document]
) -> tuple[str, Callable[[Document, Score], str]]:
    """Give what stands before all texts, and the function that writes one of them."""
    carried = list(dict.fromkeys(name for document in texts for name in document.carried))
    own = COLUMNS[settings["unit"]]
    if args.format == "jsonl":
        lists = (LISTS.get(name, name) for name in own)
        taken = (*Document(None, None, "").origin, *settings, *COUNTS, *lists)
        _check_names(carried, taken, "the input")
        return "", partial(_json_line, settings=settings)
    if args.format == "table":
        several = len(texts) > 1
        return "", partial(_table, settings=settings, heading=several, terminal=_is_terminal(args))
    _check_names(carried, (*PLACE, *own), "the input")
    header = _csv([(*PLACE, *carried, *own)], DELIMITERS[args.format])
    return header, partial(
        _rows, settings=settings, carried=carried, delimiter=DELIMITERS[args.format]
    )


def _check_names(carried: Iterable[str], own: Collection[str], where: str) -> None:
    """Refuse a column that would be written twice."""
    twice = next((name for name in carried if name in own), None)
    if twice is not None:
        raise InputError(
            f"{where} has a column {twice!r}, and so has what is written: give it another name"
        )


def _json_line(document: Document, score: Score, settings: Mapping[str, Any]) -> str:
    counts = _counts(score, settings)
    record = {
        **document.origin,
        **settings,
        **document.carried,
        **counts,
        "perplexity": _number(_perplexity(counts["n_tokens"], counts["bits"])),
        **{LISTS.get(name, name): column for name, column in _columns(score, settings).items()},
    }
    return _json(record) + "\n"


def _json(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False)


def _rows(
    document: Document,
    score: Score,
    settings: Mapping[str, Any],
    carried: Sequence[str],
    delimiter: str,
) -> str:
    cells = [_cell(document.carried.get(name)) for name in carried]
    rows = zip(*_columns(score, settings).values(), strict=True)
    return _csv(
        [(document.file, document.line, i, *cells, *row) for i, row in enumerate(rows)], delimiter
    )


def _cell(value: Any) -> Any:
    return _json(value) if isinstance(value, list | dict) else value


def _csv(rows: Iterable[Iterable[Any]], delimiter: str) -> str:
    """Write rows as csv.writer with QUOTE_NONNUMERIC does, which refuses NUL before Python 3.11."""
    return "".join(f"{delimiter.join(map(_quoted, row))}\n" for row in rows)


def _quoted(value: Any) -> str:
    r"""Quote what is no number.

    >>> [_quoted(value) for value in (1, 0.5, None, 'a "b"\n')]
    ['1', '0.5', '""', '"a ""b""\n"']
    """
    if isinstance(value, int | float):
        return str(value)
    return '"{}"'.format("" if value is None else str(value).replace('"', '""'))


def _table(
    document: Document, score: Score, settings: Mapping[str, Any], *, heading: bool, terminal: bool
) -> str:
    """Show a text on a terminal, coloured by surprisal and cut to its width, or as plain text."""
    colour = terminal and takes_colours(sys.stdout)
    columns = shutil.get_terminal_size().columns if terminal else sys.maxsize
    lines = []
    if heading:
        place = document.file if document.line is None else f"{document.file}, line {document.line}"
        lines.append(f"==== {_printable(str(place))} ====")
    if settings["unit"] == "token":
        lines.append(f"{'bits':>7} {'rank':>6} {'entropy':>7}  token")
        shown = [
            (bits, f"{bits:7.2f} {rank:6} {entropy:7.2f}  ", repr(token))
            for bits, rank, entropy, token in zip(
                score.surprisal, score.rank, score.entropy, score.tokens, strict=True
            )
        ]
    else:
        lines.append(f"{'bits':>7}  word")
        shown = [
            (word.surprisal, f"{word.surprisal:7.2f}  ", _printable(word.text))
            for word in score.words(**_bounded(settings))
        ]
    for bits, numbers, whole in shown:
        name = _cut(whole, columns - len(numbers))
        code = next((code for limit, code in COLOURS if bits < limit), None) if colour else None
        lines.append(f"{numbers}\033[{code}m{name}\033[0m" if code else numbers + name)
    return "\n".join([*lines, ""])


def _is_terminal(args: argparse.Namespace) -> bool:
    return args.output is None and sys.stdout is not None and sys.stdout.isatty()


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _cut(text: str, width: int) -> str:
    """Cut a text to a width on the terminal, where East Asian characters take two places.

    >>> _cut("whale", 5), _cut("whales", 5), _cut("\u9be8\u9be8\u9be8", 5)
    ('whale', 'whal\u2026', '\u9be8\u9be8\u2026')
    """
    places = [
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    ]
    if sum(places) <= width:
        return text
    while places and sum(places) > width - 1:
        places.pop()
    return text[: len(places)] + "\u2026"
