"""The texts that `gpt2np score` reads: files, lines, fields, and columns of tables."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gpt2np.commands import read_text, text
from gpt2np.errors import InputError, shown

INPUTS = ("text", "csv", "tsv", "jsonl")
DELIMITERS = {"csv": ",", "tsv": "\t"}


class Document(NamedTuple):
    """A text and where it stands; ``line`` counts from 1, and is None for a whole file."""

    file: str | None
    line: int | None
    text: str
    carried: Mapping[str, Any] = {}  # what else stands in its row

    @property
    def origin(self) -> dict[str, Any]:
        """What a record says of it, by which another text in its place is told."""
        checksum = zlib.crc32(self.text.encode("utf-8", "surrogatepass"))
        return {"file": self.file, "line": self.line, "crc32": f"{checksum:08x}"}


@dataclass
class WordRows:
    """A table with a word in each row, and the texts that they make."""

    columns: Sequence[str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)  # the rows of each document
    regions: list[list[tuple[int, int]]] = field(default_factory=list)  # and where they are in it


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the texts are."""
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "files",
        nargs="*",
        default=[],
        metavar="FILE",
        help="a file in UTF-8 is one text, but for a line break at its end; one named *.jsonl has "
        "a text on each line, *.csv and *.tsv one in each row; "
        '"-" reads standard input',
    )
    given.add_argument("--text", type=text, metavar="TEXT", help="the text itself")
    parser.add_argument(
        "--input-format", choices=INPUTS, help="what a FILE is, whatever its name ends in"
    )
    lines = parser.add_mutually_exclusive_group()
    lines.add_argument("--lines", action="store_true", help="every line of a file is a text")
    lines.add_argument(
        "--field",
        metavar="NAME",
        help="every line of a file is a JSON object with the text in its field "
        "NAME (text, for *.jsonl); its other fields are written with the scores",
    )
    lines.add_argument(
        "--column",
        metavar="NAME",
        help="the column of a table that has the texts; the others are written with the scores",
    )
    lines.add_argument(
        "--word-column",
        metavar="NAME",
        help="the column of a table that has a word in each row: what comes out is the table with "
        "surprisal, entropy, n_tokens and shared in every row",
    )
    parser.add_argument(
        "--by",
        metavar="NAME,NAME",
        help="the columns that rows of one text have in common, for --word-column",
    )
    parser.add_argument(
        "--join", default=" ", metavar="TEXT", help="what stands between words of rows (a space)"
    )


def documents(args: argparse.Namespace) -> Iterator[Document]:
    """Give the texts, in their order."""
    if args.text is not None:
        yield Document(None, None, args.text)
    for path in args.files:
        if path != "-" and not os.path.splitext(path)[1][1:].isalnum() and not os.path.exists(path):
            raise InputError(f"there is no file {shown(text(path))}; give a text itself by --text")
        content, file, form = read_text(path), text(path), input_format(args, path)
        if form in DELIMITERS:
            yield from _of_table(content, file, form, args.column)
        elif form == "jsonl":
            for number, line in enumerate(_lines(content), 1):
                if line.strip():
                    yield _of_object(line, args.field or args.column or "text", file, number)
        elif args.lines:
            for number, line in enumerate(_lines(content), 1):
                yield Document(file, number, line)
        else:
            yield Document(file, None, content.removesuffix("\n"))


def word_rows(args: argparse.Namespace) -> WordRows:
    """Read a table with a word in each row, and join the rows of each text."""
    if len(args.files) != 1:
        raise InputError("--word-column takes one table")
    (path,) = args.files
    form = input_format(args, path)
    if form not in DELIMITERS:
        raise InputError(f"{path} is no table: --word-column takes .csv or .tsv (--input-format)")
    table = WordRows(*_read_table(read_text(path), text(path), form))
    by = args.by.split(",") if args.by else []
    for name in (args.word_column, *by):
        _check_column(name, table.columns, path)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(table.rows):
        groups.setdefault(tuple(row[name] for name in by), []).append(i)
    for places in groups.values():
        whole, regions = "", []
        for i in places:
            word = table.rows[i][args.word_column].strip()
            if not word:
                raise InputError(f"{path}, row {i + 1} has no word in column {args.word_column}")
            whole += args.join if whole else ""
            regions.append((len(whole), len(whole) + len(word)))
            whole += word
        table.documents.append(Document(text(path), places[0] + 1, whole))
        table.places.append(places)
        table.regions.append(regions)
    return table


def input_format(args: argparse.Namespace, path: str) -> str:
    """Say what a file is: by what was asked for, else by its name."""
    if args.input_format:
        return str(args.input_format)
    if args.lines:
        return "text"
    ending = Path(path).suffix.lower().removeprefix(".")
    if args.field:
        return "jsonl"
    return ending if ending in INPUTS else "text"


def _of_table(content: str, file: str, form: str, column: str | None) -> Iterator[Document]:
    columns, rows = _read_table(content, file, form)
    if column is None:
        raise InputError(
            f"{file} is a table of the columns {', '.join(columns)}: name the texts' with --column "
            "(or score it as prose with --input-format text)"
        )
    _check_column(column, columns, file)
    for number, row in enumerate(rows, 1):
        others = {name: value for name, value in row.items() if name != column}
        yield Document(file, number, row[column], others)


def _read_table(content: str, file: str, form: str) -> tuple[list[str], list[dict[str, str]]]:
    """Give the columns of a table, and its rows, which all have as many cells."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        table = list(csv.reader(io.StringIO(content), delimiter=DELIMITERS[form], strict=True))
    except csv.Error as error:
        raise InputError(f"{file} is not {form}: {error}") from None
    if not table:
        raise InputError(f"{file} is empty: a table begins with the names of its columns")
    columns, *cells = table
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{file} has two columns called {twice!r}")
    rows = []
    for number, row in enumerate(cells, 1):
        if len(row) != len(columns) and row:  # an empty line is no row
            raise InputError(
                f"{file}, row {number} has {len(row)} cells, and the table {len(columns)} columns"
            )
        if row:
            rows.append(dict(zip(columns, row, strict=True)))
    return columns, rows


def _check_column(name: str, columns: Sequence[str], file: str) -> None:
    if name not in columns:
        raise InputError(f"{file} has no column {name!r}: it has {', '.join(columns)}")


def _lines(content: str) -> Iterator[str]:
    """Give the lines as in a text file of any system: no other character ends one."""
    for line in io.StringIO(content, newline=None):
        yield line.removesuffix("\n")


def _of_object(line: str, name: str, file: str, number: int) -> Document:
    where = f"{file}, line {number}"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    value = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, str):
        raise InputError(f"{where} has no text in the field {name!r}: name another with --field")
    return Document(file, number, value, {k: v for k, v in fields.items() if k != name})
