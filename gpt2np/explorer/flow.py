"""The flow of GPT-2 as boxes on a line, each of which opens to what the ledger knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gpt2np.anatomy import Account, Ledger
from gpt2np.explorer import figures
from gpt2np.explorer.markup import Markup, element, join
from gpt2np.explorer.mathml import mathml
from gpt2np.explorer.run import Run


def flow(account: Ledger, run: Run) -> Markup:
    """Draw a text's way through the components: to the blocks, through them, and on."""
    before, blocks, after = _parts(account)
    inside = _inside_a_block(blocks, account, run)
    parameters = sum(row.each * row.component.per_layer for row in blocks)
    steps = [_step(row, account, run) for row in before]
    steps.append(
        element(
            "li",
            element(
                "ol",
                *(
                    _block(i, parameters, account, run, inside if i == 0 else None)
                    for i in range(account.config.n_layer)
                ),
            ),
        )
    )
    steps += [_step(row, account, run) for row in after]
    # The line that ties both uses of wte leads from the first to just above the second.
    names = [row.component.name for row in (*before, blocks[0], *after)]
    first, second = names.index("wte"), names.index("logits")
    stream = element(
        "li",
        element("ol", *steps[first:second]),
        class_="tied" if account.config.tie_word_embeddings else None,
    )
    begin = element(
        "li",
        element("div", element("span", run.text, class_="text"), class_="box flat"),
        class_="step",
    )
    return element("ol", begin, *steps[:first], stream, *steps[second:], class_="flow")


def _parts(account: Ledger) -> tuple[list[Account], list[Account], list[Account]]:
    """Divide the components into those before, in and after the blocks."""
    # The ledger tells of the cache last; in the flow it stands where keys and values are made.
    rows = [row for row in account.rows if row.component.name != "cache"]
    cache = next(row for row in account.rows if row.component.name == "cache")
    at = next(i for i, row in enumerate(rows) if row.component.name == "attn.c_attn")
    rows.insert(at + 1, cache)
    inside = [i for i, row in enumerate(rows) if row.component.per_layer]
    return rows[: inside[0]], rows[inside[0] : inside[-1] + 1], rows[inside[-1] + 1 :]


def _block(i: int, parameters: int, account: Ledger, run: Run, inside: Markup | None) -> Markup:
    """Draw a block. The first one's steps stand for all: the page's script moves them."""
    summary = element(
        "summary",
        element("span", f"h.{i}", class_="name"),
        element("span", "block", class_="title"),
        element("span", account.numbers("[B, T, D]"), class_="shape"),
        element("span", f"{parameters:,} parameters", class_="parameters"),
        element("span", figures.next_in_block(run, i), class_="reading", data_block=i),
    )
    same = element(
        "p",
        "The same steps as in ",
        element("a", "h.0", href="#h.0"),
        ", with weights of its own.",
        class_="same",
    )
    return element(
        "li",
        element(
            "details",
            summary,
            inside or same,
            id=f"h.{i}",
            name="block",
            class_="box",
            open=inside is not None,
        ),
        class_="block",
    )


def _inside_a_block(rows: Sequence[Account], account: Ledger, run: Run) -> Markup:
    """Draw the branches off the stream, and after each the place where its result is added."""
    add = next(row for row in rows if row.component.per_layer == 2)
    again = element(
        "div",
        element("span", "h.0", class_="name"),
        element("span", add.component.title, class_="title"),
        element("span", account.numbers(add.component.gives), class_="shape"),
        element("span", figures.reading(run, "h.{i}"), class_="reading", data_name="h.{i}"),
        class_="box flat",
    )
    attention, mlp = (
        element("li", element("ol", *(_step(row, account, run) for row in part)), class_="branch")
        for is_add, part in groupby(rows, lambda row: row is add)
        if not is_add
    )
    return element(
        "ol",
        attention,
        _step(add, account, run),
        mlp,
        element("li", again, class_="step"),
        class_="inside",
        id="inside",
    )


def _step(row: Account, account: Ledger, run: Run) -> Markup:
    component = row.component
    parameters = f"{row.each:,} parameters" if row.each else "no parameters"
    shape = account.numbers(component.gives) or component.gives
    summary = element(
        "summary",
        element("span", component.name, class_="name"),
        element("span", component.title, class_="title"),
        element("span", shape, class_="shape"),
        element("span", parameters, class_="parameters"),
        element(
            "span",
            figures.reading(run, component.name) or "",
            class_="reading",
            data_name=component.name,
        ),
    )
    box = element("details", summary, _sheet(row, account), id=component.name, class_="box")
    return element("li", box, class_=f"step {component.name.split('.')[0]}")


def _sheet(row: Account, account: Ledger) -> Markup:
    """Tell all that the ledger knows of a component."""
    component = row.component
    facts: dict[str, Any] = {
        **account.facts(row),
        "sources": element("ul", *(element("li", source) for source in component.sources)),
    }
    pairs = (join(element("dt", name), element("dd", value)) for name, value in facts.items())
    code = element(
        "details",
        element("summary", component.code),
        element("pre", element("code", component.source_text), tabindex=0),
    )
    return element(
        "div",
        element("div", mathml(component.latex), class_="formula", tabindex=0),
        element("p", component.explanation),
        element("dl", *pairs),
        code,
        class_="sheet",
    )
