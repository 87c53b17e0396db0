"""The page: the ledger and a run as HTML, in a template with a style and a script."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt2np.anatomy import Account, Ledger, ledger
from gpt2np.explorer.markup import Markup, as_json, element, join
from gpt2np.explorer.mathml import mathml
from gpt2np.explorer.run import Run, largest
from gpt2np.layers import softmax
from gpt2np.version import __version__

LISTED = 20  # next tokens that are listed
NAMED = 1000  # and that have their names on the page, to be drawn
SURPRISED = 20.0  # bits, the whole width of a bar


def page(run: Run) -> str:
    """Write the whole page."""
    account = ledger(run.config, T=len(run.ids))
    style, script, template = (_file(name) for name in ("page.css", "page.js", "page.html"))
    return Template(template).substitute(
        version=__version__, style=style, script=script,
        style_hash=_csp_hash(style), script_hash=_csp_hash(script),
        title=join(" ".join(run.text.split())[:60]), text=join(run.text),
        facts=_facts(run, account), flow=_flow(run, account), sum=_sum(account),
        tokens=_tokens(run), attention=_attention(run), stream=_stream(run), mlp=_mlp(run),
        lens=_lens(run), next=_next(run), run=as_json(_data(run)),
        columns=_columns(run), dtype=run.model.params.dtype,
        D=f"{run.config.n_embd:,}", F=f"{run.config.n_inner:,}", V=f"{run.config.vocab_size:,}",
    )  # fmt: skip


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """What a Content-Security-Policy allows a script or style of this text by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def number(x: float) -> str:
    """Print a number to four significant digits, or to the point where those are more.

    >>> number(0.0123456), number(12345.6), number(float("nan"))
    ('0.01235', '12346', '–')
    """
    if math.isnan(x):
        return "–"
    return f"{x:.0f}" if abs(x) >= 1e4 else f"{x:.4g}"


# The flow


def _flow(run: Run, account: Ledger) -> Markup:
    """Draw the components in order: what comes before the blocks, the blocks, what comes after."""
    flow = groupby(account.rows, lambda row: row.component.per_layer > 0)
    before, blocks, *rest = (list(rows) for _, rows in flow)
    after = list(chain.from_iterable(rest))
    inner = _inside_a_block(blocks, account)
    steps = [_step(row, account) for row in before]
    steps.append(element("li", element("ol", *(
        _block(i, inner if i == 0 else None) for i in range(run.config.n_layer)
    ))))  # fmt: skip
    steps += [_step(row, account) for row in after]
    # From the first use of wte to just above the second, where a line leads.
    names = [row.component.name for row in (*before, blocks[0], *after)]
    first, second = names.index("wte"), names.index("logits")
    tied = element("li", element("ol", *steps[first:second]),
                   class_="tied" if run.config.tie_word_embeddings else None)  # fmt: skip
    return element("ol", *steps[:first], tied, *steps[second:], class_="flow")


def _block(i: int, inner: Markup | None) -> Markup:
    summary = element(
        "summary", element("span", f"h.{i}", class_="name"),
        element("span", f"block {i + 1}", class_="title"),
        element("span", class_="reading", data_block=i),
    )  # fmt: skip
    same = element("p", "The same steps as in ", element("a", "h.0", href="#h.0"),
                   ", with weights of its own.", class_="same")  # fmt: skip
    return element(
        "li", element("details", summary, inner or same, id=f"h.{i}", name="block", class_="box"),
        class_="block",
    )  # fmt: skip


def _inside_a_block(rows: Sequence[Account], account: Ledger) -> Markup:
    """Draw two branches off the stream, each of which ends where its result is added to it."""
    at = next(i for i, row in enumerate(rows) if row.component.per_layer == 2)
    add = rows[at]
    again = element("div", element("span", "h.{i}", class_="name"),
                    element("span", f"{add.component.title}, again", class_="title"),
                    element("span", class_="reading", data_name="h.{i}"),
                    class_="box flat")  # fmt: skip
    branches = [
        element("li", element("ol", *(_step(row, account) for row in part)), class_="branch")
        for part in (rows[:at], rows[at + 1 :])
    ]
    return element(
        "ol", branches[0], _step(add, account), branches[1], element("li", again, class_="step"),
        class_="inside", id="inside",
    )  # fmt: skip


def _step(row: Account, account: Ledger) -> Markup:
    component = row.component
    parameters = f"{row.each:,} parameters" if row.each else "no parameters"
    shape = account.numbers(component.gives) or component.gives
    summary = element(
        "summary", element("span", component.name, class_="name"),
        element("span", component.title, class_="title"),
        element("span", shape, class_="shape"), element("span", parameters, class_="parameters"),
        element("span", class_="reading", data_name=component.name),
    )  # fmt: skip
    kind = component.name.split(".")[0]
    box = element("details", summary, _sheet(row, account), id=component.name, class_="box")
    return element("li", box, class_=f"step {kind}")


def _sheet(row: Account, account: Ledger) -> Markup:
    """Tell all that the ledger has on a component."""
    component = row.component
    parameters = f"{row.calculation} = {row.each:,}" if row.each else "none"
    if row.each and row.instances > 1:
        parameters += f"; {row.instances} of them, {row.total:,}"
    facts = {
        "in": _shape(component.takes, account),
        "out": _shape(component.gives, account),
        "parameters": parameters,
        "operations": f"{row.flops:,}" if row.flops else "none",
        "sources": element("ul", *(element("li", source) for source in component.sources)),
    }
    code = element("details", element("summary", component.code),
                   element("pre", element("code", component.source_text), tabindex=0))
    return element(
        "div", element("div", mathml(component.latex), class_="formula"),
        element("p", component.explanation), _pairs(facts), code, class_="sheet",
    )  # fmt: skip


def _shape(shape: str, account: Ledger) -> str:
    in_numbers = account.numbers(shape)
    return f"{shape} = {in_numbers}" if in_numbers else shape


def _pairs(facts: dict[str, Any]) -> Markup:
    pairs = (join(element("dt", name), element("dd", value)) for name, value in facts.items())
    return element("dl", *pairs)


def _sum(account: Ledger) -> Markup:
    return join(f"All together: {account.formula} = {account.formula_value:,} parameters, and "
                f"{account.flops:,} floating-point operations for this run.")  # fmt: skip


def _facts(run: Run, account: Ledger) -> Markup:
    config = run.config
    facts = {
        "model": run.model.source or "made by hand",
        "parameters": f"{account.n_params:,}",
        "blocks": config.n_layer, "heads": config.n_head, "width": config.n_embd,
        "tokens": len(run.ids),
    }  # fmt: skip
    return join(*(
        element("div", element("dt", name), element("dd", value)) for name, value in facts.items()
    ))  # fmt: skip


# The run


def _tokens(run: Run) -> Markup:
    rows = [
        [str(t), element("span", run.token(id), class_="token"), str(id),
         run.tokenizer.token_bytes(id).hex(" "),
         join(_bar(bits / SURPRISED if t else 0), number(bits))]
        for t, (id, bits) in enumerate(zip(run.ids, run.surprisal, strict=True))
    ]  # fmt: skip
    return _table("The tokens", ["", "token", "id", "bytes", "surprisal, bits"], rows, row_header=1)


def _attention(run: Run) -> Markup:
    """Tell of each head what the last token looks at most."""
    last = largest(run.pattern[:, :, -1], 1)
    rows = [
        [f"h.{i}", *(
            join(element("span", run.tokens[at], class_="token"), " ", number(weight))
            for at, weight in zip(places[:, 0], weights[:, 0], strict=True)
        )]
        for i, (places, weights) in enumerate(zip(last.at, last.value, strict=True))
    ]  # fmt: skip
    heads = [f"head {h}" for h in range(run.config.n_head)]
    return _table("What the last token takes most from, in every head", ["", *heads], rows,
                  id="attention-table")


def _stream(run: Run) -> Markup:
    names = {"norm": "Norms", "mean": "Means", "scale": "Standard deviations"}
    return join(*(
        _numbers(names[kind], _table(
            f"{names[kind]} of the residual stream", ["", *run.stream],
            [[_row_name(run, t), *map(number, values)] for t, values in enumerate(values.T)],
            id=f"table-{kind}",
        ))
        for kind, values in run.stream_statistics.items()
    ))  # fmt: skip


def _mlp(run: Run) -> Markup:
    strongest = largest(run.act, 1)
    rows = [
        [_row_name(run, t), *(
            f"{unit}: {number(value)}" for unit, value in zip(
                strongest.at[:, t, 0], strongest.value[:, t, 0], strict=True)
        )]
        for t in range(len(run.ids))
    ]  # fmt: skip
    blocks = [f"h.{i}" for i in range(run.config.n_layer)]
    return _numbers("Strongest units", _table(
        "The strongest unit of every MLP, and its activation", ["", *blocks], rows))


def _columns(run: Run) -> str:
    n = run.units_per_column
    return "each column a unit" if n == 1 else f"each column the largest of {n} units side by side"


def _lens(run: Run) -> Markup:
    at, value = run.lens
    points = ["wte + wpe", *(f"h.{i}" for i in range(run.config.n_layer))]
    rows = [
        [_row_name(run, t), *(
            join(element("span", run.token(id), class_="token"), " ", number(p))
            for id, p in zip(at[:, t, 0].tolist(), value[:, t, 0], strict=True)
        )]
        for t in range(len(run.ids))
    ]  # fmt: skip
    return _table("The likeliest next token, and its probability", ["", *points], rows,
                  id="lens-table")


def _next(run: Run) -> Markup:
    p = softmax(run.next_logits.astype(np.float64))  # as the script has it
    best = largest(run.next_logits, LISTED)
    rows = [
        [element("span", run.token(id), class_="token"), str(id), number(logit),
         join(_bar(p[id]), number(p[id]))]
        for id, logit in zip(best.at.tolist(), best.value, strict=True)
    ]  # fmt: skip
    return _table("The likeliest next tokens", ["token", "id", "logit", "probability"], rows,
                  id="next-table")


def _row_name(run: Run, t: int) -> Markup:
    return element("span", run.tokens[t], class_="token")


def _bar(share: float) -> Markup:
    """A bar as an image, as the policy allows no style on an element."""
    width = f"{100 * min(max(share, 0), 1):.2f}"
    return element("svg", element("rect", width=width, height=8), class_="bar",
                   viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true")


def _table(
    caption: str, header: Sequence[object], rows: Iterable[Sequence[object]],
    *, id: str | None = None, row_header: int = 0,
) -> Markup:  # fmt: skip
    """Write a table whose first column names the rows, in a region that scrolls by itself."""
    head = element("tr", *(element("th" if name else "td", name, scope="col" if name else None)
                           for name in header))
    body = [
        element("tr", *(element("th", cell, scope="row") if i == row_header else element("td", cell)
                        for i, cell in enumerate(row)))
        for row in rows
    ]
    return element(
        "div", element("table", element("caption", caption), element("thead", head),
                       element("tbody", *body), id=id),
        class_="scroll", role="region", aria_label=caption, tabindex=0,
    )


def _numbers(title: str, table: Markup) -> Markup:
    """Put a table where it can be closed."""
    return element("details", element("summary", title), table, class_="numbers", open=True)


# What the script works on


def _data(run: Run) -> dict[str, Any]:
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
        "surprisal": _array(run.surprisal),
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
