"""The flow of GPT-2 as a picture: boxes on lines, most of which open to what the ledger knows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gpt2np.anatomy import Account, Ledger, Source
from gpt2np.explorer import figures
from gpt2np.explorer.markup import Markup, element, join
from gpt2np.explorer.mathml import mathml
from gpt2np.explorer.run import Run


class Flow:
    """Draws a run's way through the components: to the blocks, through them, and on."""

    def __init__(self, account: Ledger, run: Run) -> None:
        self.account, self.run = account, run
        self.tied = account.config.tie_word_embeddings
        # The ledger tells of the cache last; in the flow it is where keys and values are made.
        rows = [row for row in account.rows if row.component.name != "cache"]
        cache = next(row for row in account.rows if row.component.name == "cache")
        at = next(i for i, row in enumerate(rows) if row.component.name == "attn.c_attn")
        rows.insert(at + 1, cache)
        self.inside = [row for row in rows if row.component.per_layer]
        self.outside = {row.component.name: row for row in rows if not row.component.per_layer}

    def draw(self) -> Markup:
        """Draw all of it."""
        L, D = self.account.config.n_layer, self.account.numbers("[B, T, D]")
        blocks = element("li", element("ol", *map(self._block, range(L))), class_="blocks")
        until_tied = element(
            "ol",
            self._step("embed"),
            self._step("dropout"),
            _point("x", "0", D),
            blocks,
            _point("x", L, D),
            self._step("ln_f"),
            _point("h", "final", D),
        )
        logits = join("logits ", element("span", self.account.numbers("[B, T, V]")))
        return element(
            "div",
            element("div", self._paths(), until_tied, class_="tied" if self.tied else None),
            element(
                "ol",
                self._step("logits"),
                element("li", logits, class_="point"),
                self._step("sampling"),
            ),
            class_="flow",
        )

    def _paths(self) -> Markup:
        """Draw the two ways that meet in the first sum: of the tokens, and of their positions."""
        run, n = self.run, self.account.symbols
        shape = f"{n['V']:,} × {n['D']:,}"
        matrix = _node(
            "shared",
            element("span", "WTE", class_="name"),
            element("span", "one matrix, used twice", class_="title"),
            element("span", shape, class_="shape"),
        )
        assets = _node(
            "assets",
            element("span", "vocabulary · merges", class_="name"),
            element("span", "fixed assets", class_="title"),
            element("span", f"{run.tokenizer.n_vocab:,} tokens", class_="shape"),
        )
        ids = _node(
            "ids",
            element("span", "token ids", class_="name"),
            element("span", self.account.numbers("[B, T]"), class_="shape"),
            _chips(run.ids, run.opening.token),
        )
        positions = _node(
            "positions",
            element("span", "position ids", class_="name"),
            element("span", f"0 … {len(run.ids) - 1}", class_="shape"),
            _chips(range(len(run.ids)), run.opening.token),
        )
        return element(
            "ol",
            matrix if self.tied else "",
            _node("raw", element("span", run.text, class_="text")),
            self._step("tokenizer"),
            assets,
            ids,
            positions,
            self._step("wte"),
            self._step("wpe"),
            class_="paths",
        )

    def _block(self, i: int) -> Markup:
        """Draw a block. The first one's steps stand for all: the page's script moves them."""
        parameters = sum(row.each * row.component.per_layer for row in self.inside)
        summary = element(
            "summary",
            element("span", f"h.{i}", class_="name"),
            element("span", "block", class_="title"),
            element(
                "span", _named("x", i + 1), " ", self.account.numbers("[B, T, D]"), class_="shape"
            ),
            element("span", f"{parameters:,} parameters", class_="parameters"),
            element("span", figures.next_in_block(self.run, i), class_="reading", data_block=i),
        )
        same = element(
            "p",
            "The same steps as in ",
            element("a", "h.0", href="#h.0"),
            ", with weights of its own.",
            class_="same",
        )
        box = element(
            "details",
            summary,
            same if i else self._inside_a_block(),
            id=f"h.{i}",
            name="block",
            class_="box",
            open=i == 0,
        )
        return element("li", box, class_="block")

    def _inside_a_block(self) -> Markup:
        """Draw the branches off the stream, and after each the sum to which its result goes."""
        add = next(row for row in self.inside if row.component.per_layer == 2)
        again = element(
            "div",
            element("span", "h.0", class_="name"),
            element("span", add.component.title, class_="title"),
            element("span", self.account.numbers(add.component.gives), class_="shape"),
            _reading(self.run, "h.{i}"),
            class_="box flat",
        )
        attention, mlp = (
            element("li", element("ol", *(self._step_of(row) for row in part)), class_="branch")
            for is_add, part in groupby(self.inside, lambda row: row is add)
            if not is_add
        )
        return element(
            "ol",
            attention,
            self._step_of(add),
            mlp,
            element("li", again, _cells("h.{i}"), class_="step", data_step="block"),
            class_="inside",
            id="inside",
        )

    def _step(self, name: str) -> Markup:
        return self._step_of(self.outside[name])

    def _step_of(self, row: Account) -> Markup:
        component = row.component
        name, _, shape = component.gives.partition("[")
        base, _, below = name.strip().partition("_")
        gives = join(_named(base, below), " ") if below else ""
        numbers = self.account.numbers(component.gives) if shape else component.gives
        summary = element(
            "summary",
            element("span", component.name, class_="name"),
            element("span", component.title, class_="title"),
            element("span", gives, numbers, class_="shape"),
            element("span", self._parameters(row), class_="parameters"),
            _reading(self.run, component.name),
        )
        sheet = self._sheet(row)
        box = element("details", summary, sheet, id=component.name, class_="box")
        kind = component.name.split(".")[0]
        cells = _cells(component.name)
        if component.name == "cache":
            said = element("p", figures.kept(self.account), class_="told", id="kept")
            cells = join(element("div", said, class_="cells"), cells)
        return element("li", box, cells, class_=f"step {kind}", data_step=component.name)

    def _parameters(self, row: Account) -> str:
        if not row.each:
            tied = row.component.name == "logits"
            return "0 new parameters" if tied else "no parameters"
        tables = row.calculation.split(" = ")[1].split(" + ")
        shapes = (" × ".join(f"{int(n):,}" for n in table.split("*")) for table in tables)
        return f"{' + '.join(shapes)} = {row.each:,} parameters"

    def _sheet(self, row: Account) -> Markup:
        """Tell all that the ledger knows of a component."""
        component = row.component
        facts: dict[str, Any] = {
            **self.account.facts(row),
            "sources": element("ul", *map(_source, component.sources)),
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


def _node(kind: str, *content: object) -> Markup:
    """Draw a box that does not open."""
    return element("li", element("div", *content, class_="box flat"), class_=f"step {kind}")


def _named(name: str, below: object) -> Markup:
    return element("i", name, element("sub", below))


def _point(name: str, below: object, shape: str) -> Markup:
    """Name a point of the stream beside it."""
    return element("li", _named(name, below), " ", element("span", shape), class_="point")


def _chips(values: Sequence[int] | range, chosen: int) -> Markup:
    """Write one number for each token."""
    chips = (
        element("span", value, class_="current" if t == chosen else None)
        for t, value in enumerate(values)
    )
    return element("span", *chips, class_="chips")


def _reading(run: Run, name: str) -> Markup:
    return element("span", figures.reading(run, name) or "", class_="reading", data_name=name)


def _cells(name: str) -> Markup:
    """Leave a place where the script draws the chosen token's vectors."""
    return element("div", class_="cells live", data_cells=name, hidden=True)


def _source(source: Source) -> Markup:
    return element("li", element("a", source.text, href=source.url) if source.url else source.text)
