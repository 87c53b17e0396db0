"""The run in tables, and the arrays that the page's script draws from."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt2np.explorer.markup import Markup, element, join
from gpt2np.explorer.run import Run, largest
from gpt2np.layers import softmax

LISTED = 20  # next tokens that are listed
NAMED = 1000  # and that have their names on the page, to be drawn
SURPRISED = 20.0  # bits, the whole width of a bar


def number(x: float) -> str:
    """Print a number to four significant digits, or to the point where those are more.

    >>> [number(x) for x in (0.0000123456, 0.0123456, 2.0, 12345.6, math.nan)]
    ['1.235e-5', '0.01235', '2.000', '12346', '–']
    """
    if math.isnan(x):
        return "–"
    if abs(x) >= 1e4:
        return f"{x:.0f}"
    return f"{x:#.4g}".removesuffix(".").replace("e-0", "e-")


def tokens(run: Run) -> Markup:
    rows = [
        [
            str(t),
            _token(run, id),
            str(id),
            join(_bar(bits / SURPRISED if t else 0), number(bits)),
            run.tokenizer.token_bytes(id).hex(" "),
        ]
        for t, (id, bits) in enumerate(zip(run.ids, run.surprisal, strict=True))
    ]
    return _table("The tokens", ["", "token", "id", "surprisal, bits", "bytes"], rows, row_header=1)


def attention(run: Run) -> Markup:
    """Tell of each head what the last token looks at most."""
    last = largest(run.pattern[:, :, -1], 1)
    rows = [
        [
            f"h.{i}",
            *(
                join(_token(run, run.ids[at]), " ", number(weight))
                for at, weight in zip(places[:, 0], weights[:, 0], strict=True)
            ),
        ]
        for i, (places, weights) in enumerate(zip(last.at, last.value, strict=True))
    ]
    heads = [f"head {h}" for h in range(run.config.n_head)]
    return _table(
        "What the last token takes most from, in every head",
        ["", *heads],
        rows,
        id="attention-table",
    )


def stream(run: Run) -> Markup:
    names = {"norm": "Norms", "mean": "Means", "scale": "Standard deviations"}
    return join(
        *(
            _numbers(
                names[kind],
                _table(
                    f"{names[kind]} of the residual stream",
                    ["", *run.stream],
                    [
                        [_token(run, run.ids[t]), *map(number, values)]
                        for t, values in enumerate(values.T)
                    ],
                    id=f"table-{kind}",
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
                f"{unit}: {number(value)}"
                for unit, value in zip(strongest.at[:, t, 0], strongest.value[:, t, 0], strict=True)
            ),
        ]
        for t in range(len(run.ids))
    ]
    blocks = [f"h.{i}" for i in range(run.config.n_layer)]
    return _numbers(
        "Strongest units",
        _table("The strongest unit of every MLP, and its activation", ["", *blocks], rows),
    )


def columns(run: Run) -> str:
    n = run.units_per_column
    return "each column a unit" if n == 1 else f"each column the largest of {n} units side by side"


def lens(run: Run) -> Markup:
    at, value = run.lens
    points = ["wte + wpe", *(f"h.{i}" for i in range(run.config.n_layer))]
    rows = [
        [
            _token(run, run.ids[t]),
            *(
                join(_token(run, id), " ", number(p))
                for id, p in zip(at[:, t, 0].tolist(), value[:, t, 0], strict=True)
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
        [_token(run, id), str(id), number(logit), join(_bar(p[id]), number(p[id]))]
        for id, logit in zip(best.at.tolist(), best.value, strict=True)
    ]
    return _table(
        "The likeliest next tokens", ["token", "id", "logit", "probability"], rows, id="next-table"
    )


def _token(run: Run, id: int) -> Markup:
    return element("span", run.token(id), class_="token")


def _bar(share: float) -> Markup:
    """A bar as an image, as the policy allows no style on an element."""
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
    rows: Iterable[Sequence[object]],
    *,
    id: str | None = None,
    row_header: int = 0,
) -> Markup:
    """Write a table whose first column names the rows, in a region that scrolls by itself."""
    head = element(
        "tr",
        *(element("th" if name else "td", name, scope="col" if name else None) for name in header),
    )
    body = [
        element(
            "tr",
            *(
                element("th", cell, scope="row") if i == row_header else element("td", cell)
                for i, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", head),
            element("tbody", *body),
            id=id,
        ),
        class_="scroll",
        role="region",
        aria_label=caption,
        tabindex=0,
    )


def _numbers(title: str, table: Markup) -> Markup:
    """Put a table where it can be closed."""
    return element("details", element("summary", title), table, class_="numbers", open=True)


# What the script works on


def data(run: Run) -> dict[str, Any]:
    queries, keys = np.tril_indices(len(run.ids))
    nearest, units = largest(run.pattern, 3), largest(run.act, 5)
    named = largest(run.next_logits, NAMED).at
    ids = sorted({*run.lens.at.ravel().tolist(), *named.tolist()})
    peak = run.act_map.max((1, 2), keepdims=True)
    return {
        "tokens": run.tokens,
        "ids": run.ids,
        "names": {id: run.token(id) for id in ids},
        "norms": {name: _array(norms) for name, norms in run.norms.items()},
        "pattern": _array(_eight_bits(run.pattern[..., queries, keys])),
        "nearest": _array(nearest.at.astype(np.uint8)),
        "weights": _array(nearest.value),
        "units": _array(units.at.astype(np.int32)),
        "activations": _array(units.value),
        "active": _array((run.act > 0).mean(-1)),
        "mlp": _array(_eight_bits(run.act_map / np.where(peak > 0, peak, 1))),
        "peaks": _array(peak),
        "lens": _array(run.lens.at.astype(np.int32)),
        "chances": _array(run.lens.value),
        "logits": _array(run.next_logits),
    }


def _eight_bits(x: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """0 to 1 as 0 to 255."""
    shades: npt.NDArray[np.uint8] = np.rint(255 * np.clip(x, 0, 1)).astype(np.uint8)
    return shades


def _array(x: npt.NDArray[Any]) -> dict[str, Any]:
    """Write an array as base64: whole numbers as they are, others as float32."""
    x = np.ascontiguousarray(x, x.dtype if x.dtype.kind in "iu" else "<f4")
    data = base64.b64encode(x.tobytes()).decode()
    return {"type": x.dtype.str[1:], "shape": x.shape, "data": data}
