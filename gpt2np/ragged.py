"""Texts, token ids or lists of either, as rows of ids of any lengths; and rectangles of rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np.errors import InputError, TokenizerError, shown
from gpt2np.loading import Model
from gpt2np.model import check_ids
from gpt2np.params import Ids

Row: TypeAlias = str | Sequence[int]  # one text, or the ids of one
# Several: a Series or a column of another kind of table is an iterable of str.
Rows: TypeAlias = Iterable[str] | Iterable[Sequence[int]] | Iterable[Row]
# An array says only at run time whether it is one row [T] of ids or several [B, T].
IdArray: TypeAlias = npt.NDArray[np.integer[Any]]

WANTED = "a text or token ids, or an iterable of either"


def parse(model: Model, given: Any, *, special: bool = False) -> tuple[list[Ids], bool]:
    """Give the ids of each row, and whether there was a list of them.

    Parameters
    ----------
    model : Model
        Its tokenizer encodes texts.
    given : str, token ids, or an iterable of either
        Any iterable will do: a list, a generator, an array of str, a pandas Series.
    special : bool
        Whether a special token that a text spells means itself.

    Raises
    ------
    InputError
        It is none of these, or ids are not the model's.

    Examples
    --------
    >>> import gpt2np
    >>> rows, many = parse(gpt2np.load(), ["Hello world", [0, 1]])
    >>> [row.tolist() for row in rows], many
    ([[15496, 995], [0, 1]], True)
    """
    given, many = items(given)
    rows = []
    for number, item in enumerate(given, 1):
        with naming(number, many):
            rows.append(row(model, item, special))
    return rows, many


@contextmanager
def naming(number: int, many: bool) -> Iterator[None]:
    """Say of an error which of several rows it is in."""
    try:
        yield
    except (InputError, TokenizerError) as error:
        if not many:
            raise
        raise type(error)(f"number {number} of the list: {error}") from None


def items(given: Any) -> tuple[list[Any], bool]:
    """Give the items of a list of rows, or the only one; and which of both it was."""
    if isinstance(given, str):
        return [given], False
    if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind not in "OUT":
        return [given], False
    _check_kind(given)
    if hasattr(given, "columns"):
        raise InputError("give one column of a table, as df['text'], not the whole table")
    found = list(given)
    if not found:
        raise InputError(f'the list is empty: give {WANTED} (the empty text is "")')
    return ([found], False) if _is_integer(found[0]) else (found, True)


def row(model: Model, item: Any, special: bool) -> Ids:
    """Give the ids of one text, or check those of one row."""
    if isinstance(item, str):
        item = model.tokenizer.encode(item, special=special)
    _check_kind(item)
    item = item if hasattr(item, "__array__") else list(item)
    try:
        array = np.asarray(item)
    except ValueError:  # lists of different lengths
        raise InputError(
            f"give ids that are integers, one behind another, not {shown(item)}"
        ) from None
    if array.size == 0:
        return np.empty(0, np.intp)
    ids = check_ids(model.config, array)
    if len(ids) > 1:
        raise InputError(f"one row of ids is wanted, not a list of {len(ids)}: {shown(item)}")
    return np.asarray(ids[0], np.intp)


def _check_kind(given: Any) -> None:
    # A set has no order, and what iterates over bytes or a mapping is not what they hold.
    if isinstance(given, bytes | bytearray | Mapping | set | frozenset) or not isinstance(
        given, Iterable
    ):
        raise InputError(f"give {WANTED}, not {type(given).__name__}: {shown(given)}")
    if isinstance(given, np.ndarray) and given.ndim == 0:
        raise InputError(f"give {WANTED}, not the single value {shown(given)}")


def _is_integer(item: Any) -> bool:
    try:
        operator.index(item)
    except TypeError:
        return False
    return True


def rectangle(rows: Sequence[Ids]) -> Ids:  # [B, T]
    """Put rows of any lengths under one another, filled up with zeros at the right.

    Attention is causal, so no token of a row sees the filling.

    Examples
    --------
    >>> rectangle([np.array([1, 2, 3]), np.array([4])]).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    filled = np.zeros((len(rows), max(map(len, rows))), np.intp)
    for place, row in zip(filled, rows, strict=True):
        place[: len(row)] = row
    return filled


def groups(lengths: Sequence[int], area: int, ratio: float = math.inf) -> Iterator[list[int]]:
    """Group rows of similar length, so that each group makes a rectangle that wastes little.

    None has more than `area` positions, unless one row alone does; and no row is longer than
    `ratio` times the shortest and 2 more.

    Examples
    --------
    >>> list(groups([9, 1, 2, 8], area=18))
    [[0, 3], [2, 1]]
    """
    group: list[int] = []
    for b in sorted(range(len(lengths)), key=lambda b: -lengths[b]):
        longest = lengths[group[0]] if group else 0
        if group and (longest > ratio * lengths[b] + 2 or longest * (len(group) + 1) > area):
            yield group
            group = []
        group.append(b)
    if group:
        yield group
