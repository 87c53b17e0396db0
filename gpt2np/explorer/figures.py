"""The run in tables, readings and a map, as the page has them before its script runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from gpt2np.anatomy import Ledger
from gpt2np.explorer.markup import Markup, element, join
from gpt2np.explorer.run import Run, largest
from gpt2np.layers import softmax

LISTED = 20  # next tokens that are listed
SURPRISED = 20.0  # bits, the whole width of a bar
TINY = 1e-4  # what is smaller is printed as such


def number(x: float) -> str:
    """Print a number to four significant digits, or to the point where those are more.

    >>> [number(x) for x in (0.0123456, 2.0, 12345.6, 0.0, 0.000012, -0.000012, math.nan)]
    ['0.01235', '2.000', '12346', '0', '< 0.0001', '> -0.0001', '–']
    """
    if math.isnan(x):
        return "–"
    if x == 0:
        return "0"
    if abs(x) < TINY:
        return f"< {TINY:.4f}" if x > 0 else f"> -{TINY:.4f}"
    if abs(x) >= 1e4:
        return f"{x:.0f}"
    return f"{x:#.4g}".removesuffix(".")


def aligned(texts: Sequence[str]) -> list[str]:
    """Fill numbers that stand at the right of their cells, so that their points meet.

    >>> [text.replace("\u2007", "_") for text in aligned(["12.5", "0.125", "–"])]
    ['12.5__', '0.125', '–\u2008___']
    """
    behind = [len(text.partition(".")[2]) for text in texts]
    most = max(behind, default=0)
    return [
        text + ("\u2008" if most and "." not in text else "") + "\u2007" * (most - n)
        for text, n in zip(texts, behind, strict=True)
    ]


def reading(run: Run, name: str) -> Markup | None:
    """Tell of the token the page opens with what stands beside a component's box: in h.0."""
    t, _, head = run.opening
    point = next((point for point in (name, f"h.{{i}}.{name}") if point in run.norms), None)
    if name == "tokenizer":
        return join(_token(run, run.ids[t]), f" is {run.ids[t]}")
    if name == "attn.pattern":
        nearest = largest(run.pattern[0, head, t], 1)
        return join(f"head {head}: ", _pair(run, run.ids[nearest.at[0]], nearest.value[0]).markup())
    if name == "logits":
        return next_in_block(run, run.config.n_layer - 1)
    if point is None:
        return None
    norms = run.norms[point]
    return join(f"norm {number(norms[0, t])}")


def next_in_block(run: Run, block: int) -> Markup:
    """Tell what the model would say comes next, were it read after the block."""
    at, value = (part[block + 1, run.opening.token, 0] for part in run.lens)
    return join("next ", _pair(run, int(at), value).markup())


def kept(account: Ledger) -> str:
    """Tell what the cache holds after this run, and what the next token would add."""
    n = account.symbols
    each = 2 * n["L"] * n["D"]
    return (
        f"Kept after {_count(n['S'], 'token')}: k and v of {_count(n['L'], 'block')}, "
        f"{_count(n['H'], 'head')} of {n['K']} numbers: 2 · {n['L']} · {n['D']} · {n['S']} = "
        f"{each * n['S']:,} numbers, {4 * each * n['S']:,} bytes in float32. "
        f"The next token adds 2 · {n['L']} · {n['D']} = {each:,} ({4 * each:,} bytes)."
    )


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def tokens(run: Run) -> Markup:
    rows = [
        [
            str(t),
            _token(run, id),
            str(id),
            number(bits),
            _bar(bits / SURPRISED if t else 0),
            run.tokenizer.token_bytes(id).hex(" "),
        ]
        for t, (id, bits) in enumerate(zip(run.ids, run.surprisal, strict=True))
    ]
    header = ["", "token", "id", "surprisal, bits", "", "bytes"]
    return _table("The tokens", header, rows, row_header=1, id="tokens-table", numbers=(0, 2, 3))


def attention(run: Run) -> Markup:
    """Tell of each head what the token takes most from."""
    nearest = largest(run.pattern[:, :, run.opening.token], 1)
    rows = [
        [
            f"h.{i}",
            *(
                _pair(run, run.ids[at], weight)
                for at, weight in zip(places[:, 0], weights[:, 0], strict=True)
            ),
        ]
        for i, (places, weights) in enumerate(zip(nearest.at, nearest.value, strict=True))
    ]
    heads = [f"head {h}" for h in range(run.config.n_head)]
    token = _token(run, run.ids[run.opening.token])
    caption = join("What ", token, " takes most from, in every head")
    return _table(caption, ["", *heads], rows, id="attention-table")


def attention_map(run: Run) -> Markup:
    """Draw the pattern of the head that the page opens with; the script draws any."""
    _, block, head = run.opening
    T = len(run.ids)
    shades: dict[int, list[str]] = defaultdict(list)
    for row, column in zip(*np.tril_indices(T), strict=True):
        shade = round(16 * float(run.pattern[block, head, row, column]))
        if shade:
            shades[shade].append(f"M{column} {row}h1v1h-1z")
    return element(
        "svg",
        *(
            element("path", d="".join(cells), fill_opacity=shade / 16)
            for shade, cells in sorted(shades.items())
        ),
        role="img",
        aria_label=f"Attention pattern of block h.{block}, head {head}",
        viewBox=f"0 0 {T} {T}",
        class_="static",
    )


def stream(run: Run) -> Markup:
    names = {"norm": "Norms", "mean": "Means", "scale": "Standard deviations"}
    tabled = [0, *(point for i in run.tabled for point in (2 * i + 1, 2 * i + 2))]
    points = list(run.stream)
    return join(
        *(
            _numbers(
                names[kind],
                _table(
                    f"{names[kind]} of the residual stream",
                    ["", *(points[n] for n in tabled)],
                    [
                        [_token(run, run.ids[t]), *map(number, values[tabled])]
                        for t, values in enumerate(values.T)
                    ],
                    id=f"table-{kind}",
                    numbers=range(1, 1 + len(tabled)),
                ),
            )
            for kind, values in run.stream_statistics.items()
        )
    )


def mlp(run: Run) -> Markup:
    strongest = largest(run.act, 1)
    rows = [
        [
            _token(run, run.ids[t]),
            *(
                Pair(element("span", f"unit {unit}"), number(value))
                for unit, value in zip(
                    strongest.at[run.tabled, t, 0], strongest.value[run.tabled, t, 0], strict=True
                )
            ),
        ]
        for t in range(len(run.ids))
    ]
    blocks = [f"h.{i}" for i in run.tabled]
    caption = "The strongest unit of every MLP, and its activation"
    return _numbers("Strongest units", _table(caption, ["", *blocks], rows, id="mlp-table"))


def columns(run: Run) -> str:
    n = run.units_per_column
    return "each column a unit" if n == 1 else f"each column the largest of {n} units side by side"


def lens(run: Run) -> Markup:
    at, value = run.lens
    tabled = [0, *(i + 1 for i in run.tabled)]
    points = ["wte + wpe", *(f"h.{i}" for i in run.tabled)]
    rows = [
        [
            _token(run, run.ids[t]),
            *(
                _pair(run, id, p)
                for id, p in zip(at[tabled, t, 0].tolist(), value[tabled, t, 0], strict=True)
            ),
        ]
        for t in range(len(run.ids))
    ]
    return _table(
        "The likeliest next token, and its probability", ["", *points], rows, id="lens-table"
    )


def next_token(run: Run) -> Markup:
    p = softmax(run.next_logits.astype(np.float64))  # as the script has it
    best = largest(run.next_logits, LISTED)
    rows = [
        [_token(run, id), str(id), number(logit), number(p[id]), _bar(p[id])]
        for id, logit in zip(best.at.tolist(), best.value, strict=True)
    ]
    header = ["token", "id", "logit", "probability", ""]
    caption = "The likeliest next tokens"
    return _table(caption, header, rows, id="next-table", numbers=(1, 2, 3))


def _token(run: Run, id: int) -> Markup:
    return element("span", run.token(id), class_="token")


class Pair(NamedTuple):
    """A name, and a number behind it; in a table, at the other side of the cell."""

    name: Markup
    number: str

    def markup(self) -> Markup:
        """Write both."""
        return element("span", self.name, " ", element("span", self.number), class_="pair")


def _pair(run: Run, id: int, value: float) -> Pair:
    return Pair(_token(run, id), number(value))


def _bar(share: float) -> Markup:
    """Draw a bar as an image, as the policy allows no style on an element."""
    width = f"{100 * min(max(share, 0), 1):.2f}"
    return element(
        "svg",
        element("rect", width=width, height=8),
        class_="bar",
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _table(
    caption: str,
    header: Sequence[object],
    rows: Sequence[Sequence[object]],
    *,
    id: str,
    row_header: int = 0,
    numbers: Iterable[int] = (),
) -> Markup:
    """Write a table in which one column names the rows, in a region that scrolls by itself."""
    columns: list[list[Any]] = [list(column) for column in zip_longest(header, *rows)]
    for i, (_, *cells) in enumerate(columns):
        if i in numbers:
            columns[i][1:] = aligned(list(map(str, cells)))
        elif isinstance(cells[0], Pair):
            texts = aligned([cell.number for cell in cells])
            columns[i][1:] = [
                cell._replace(number=text).markup() for cell, text in zip(cells, texts, strict=True)
            ]
    # Where all columns are of numbers, the table says so once.
    all_numbers = len(list(numbers)) == len(header) - 1
    kinds = ["number" if i in numbers and not all_numbers else None for i in range(len(header))]

    def cell(i: int, content: object) -> Markup:
        if i == row_header:
            return element("th", content, scope="row", class_=kinds[i])
        return element("td", content, class_=kinds[i])

    head = element(
        "tr",
        *(
            element("th" if name else "td", name, scope="col" if name else None, class_=kind)
            for name, kind in zip(header, kinds, strict=True)
        ),
    )
    body = [
        element("tr", *(cell(i, content) for i, content in enumerate(row)))
        for row in list(zip(*columns, strict=True))[1:]
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", head),
            element("tbody", *body),
            id=id,
            class_="of-numbers" if all_numbers else None,
        ),
        class_="scroll",
        role="region",
        aria_label=_plain(caption),
        tabindex=0,
    )


def _plain(caption: str) -> str:
    return "What the chosen token takes most from" if isinstance(caption, Markup) else caption


def _numbers(title: str, table: Markup) -> Markup:
    """Put a table where it can be closed."""
    return element("details", element("summary", title), table, class_="numbers", open=True)
