"""What a value shows of itself as the last line of a notebook's cell, in HTML and in text.

It needs nothing but Python, and everything that comes from outside is escaped. A class that is
`Shown` has its view here, under its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple, Protocol

from gpt2np.answers import Answering
from gpt2np.errors import escaped

MOST_TOKENS = 2000  # in HTML; what is left out is told
FULL_SHADE = 20.0  # bits
ENDINGS = {
    "length": "all the tokens that were asked for",
    "stop": "a stop string came",
    "eot": "the end of text came",
}
Rows = Sequence[tuple[str, ...]]  # the first has the names of the columns


class View(NamedTuple):
    """A line that sums it up, a table, and what HTML and text have in its place."""

    title: str
    rows: Rows = ()
    html: str = ""
    text: str = ""
    most: int = 200  # rows


class Printer(Protocol):
    """IPython's."""

    def text(self, text: str) -> None: ...


class Shown(Answering):
    """A value that shows itself in a notebook."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # To IPython the __repr__ of a class goes before what its bases have.
        cls._repr_pretty_ = Shown._repr_pretty_  # type: ignore[method-assign]

    def _repr_html_(self) -> str:
        view = view_of(self)
        return f"<div>{_span(view.title)}{view.html or _html_table(view.rows, view.most)}</div>"

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        view = view_of(self)
        body = view.text or _text_table(view.rows, view.most)
        printer.text("\n".join(filter(None, [escaped(view.title, None), body])))


def view_of(value: Any) -> View:
    """The view of a value, by the name of its class."""
    name = next(cls.__name__ for cls in type(value).__mro__ if cls.__name__ in VIEWS)
    return VIEWS[name](value)


def _score(score: Any) -> View:
    bits = [float(x) for x in score.surprisal]
    known = [x for x in bits if not math.isnan(x)]
    mean = sum(known) / len(known) if known else math.nan
    title = (
        f"{_count(len(bits), 'token')}, {mean:.2f} bits each, perplexity {score.perplexity:,.2f}"
    )
    tokens = list(score.tokens) or [str(id) for id in score.ids]
    spans, rows = [], [("token", "bits", "rank", "entropy")]
    for i, (token, surprisal) in enumerate(zip(tokens, bits, strict=True)):
        facts = (f"{surprisal:.2f}", f"{score.rank[i]:,}", f"{score.entropy[i]:.2f}")
        if math.isnan(surprisal):
            facts = ("not predicted", "", "")
        rows.append((repr(token), *facts))
        hint = ", ".join(
            f"{name} {fact}".strip() for name, fact in zip(rows[0][1:], facts, strict=True)
        )
        spans.append(_shaded(token, surprisal, hint))
    legend = "".join(_shaded(f" {n} ", n, "") for n in (0, 5, 10, 15, 20))
    body = f"<div>{''.join(spans[:MOST_TOKENS])}</div>{_left_out(len(spans), MOST_TOKENS)}"
    return View(title, rows, f"{_box(body)}<div>{_span('bits:')} {legend}</div>", most=40)


def _shaded(token: str, surprisal: float, hint: str) -> str:
    """A token on a ground that is the darker the less it was expected."""
    shade = 0.0 if math.isnan(surprisal) else min(surprisal / FULL_SHADE, 1.0) * 0.75
    style = f"background: rgba(230, 110, 0, {shade:.2f})"
    return f'<span style="{style}" title="{escape(hint)}">{_visible(token)}</span>'


def _generation(generation: Any) -> View:
    why = ENDINGS.get(generation.finish_reason, generation.finish_reason)
    title = f"{_count(len(generation.ids), 'token')}: {why}"
    prompt, text = generation.prompt, generation.text
    if prompt is None:
        prompt, text = f"{generation.prompt_ids} ", f"{generation.ids}"
    html = f'<span style="opacity: .6">{_visible(prompt)}</span><b>{_visible(text)}</b>'
    return View(title, (), _box(html), f"prompt: {prompt!r}\ncompletion: {text!r}")


def _trace(trace: Any) -> View:
    rows = [("activation", "shape", "dtype", "bytes")]
    rows += [(k, str(list(a.shape)), str(a.dtype), f"{a.nbytes:,}") for k, a in trace.items()]
    return View(f"{_count(len(trace), 'activation')}, {trace.nbytes:,} bytes", rows)


def _model(model: Any) -> View:
    has = "with a tokenizer" if model.has_tokenizer else "without a tokenizer"
    params = _params(model.params)
    return View(f"{model.source or 'made by hand'}, {has}: {params.title}", params.rows)


def _params(params: Any) -> View:
    """The ledger in short: what the tensors of one kind come to in all blocks."""
    sizes: dict[str, list[int]] = {}
    for name, array in params.items():
        parts = name.split(".")
        kind = f"h.{{i}}.{parts[2]}" if parts[0] == "h" else parts[0]
        sizes.setdefault(kind, []).append(array.size)
    c = params.config
    rows = [("part", "parameters", "of all")]
    for kind, found in sizes.items():
        times = f" x {c.n_layer}" if kind.startswith("h.") else ""
        rows.append((kind + times, f"{sum(found):,}", f"{sum(found) / params.n_params:.1%}"))
    if c.tie_word_embeddings:
        rows.append(("lm_head", "0", "tied to wte"))
    shape = f"{c.n_layer} blocks, {c.n_head} heads, {c.n_embd} wide, {c.vocab_size:,} tokens"
    return View(f"{params.n_params:,} {params.dtype}; {shape}, context {c.n_ctx:,}", rows)


def _cache(cache: Any) -> View:
    rows = [("sequence", "positions", "of", "")]
    for b, held in enumerate(cache.lengths.tolist()):
        filled = round(20 * held / cache.capacity)
        rows.append(
            (str(b), f"{held:,}", f"{cache.capacity:,}", "█" * filled + "░" * (20 - filled))
        )
    nbytes = cache.keys.nbytes + cache.values.nbytes
    return View(f"{_count(cache.batch_size, 'sequence')}, {nbytes:,} bytes", rows)


def _tokenizer(tokenizer: Any) -> View:
    text = "Tokenization tells you'd 1,024\n\n  apart."
    pieces = [tokenizer.decode([id]) for id in tokenizer.encode(text)]
    grounds = ("rgba(0, 110, 230, .25)", "rgba(230, 110, 0, .25)")
    spans = [
        f'<span style="background: {grounds[i % 2]}">{_visible(piece)}</span>'
        for i, piece in enumerate(pieces)
    ]
    end = "no end of text" if tokenizer.eot is None else f"the end of text is {tokenizer.eot}"
    title = f"{tokenizer.n_vocab:,} tokens; {end}"
    return View(title, (), _box("".join(spans)), " ".join(map(repr, pieces)))


VIEWS: dict[str, Callable[[Any], View]] = {
    "Score": _score,
    "Generation": _generation,
    "Trace": _trace,
    "Model": _model,
    "Params": _params,
    "KVCache": _cache,
    "Tokenizer": _tokenizer,
}


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def _visible(text: str) -> str:
    """Escaped for HTML, line breaks to be seen, and nothing that a terminal or a page obeys."""
    lines = [escape(escaped(line, None)) for line in text.split("\n")]
    return '<span style="opacity: .5">⏎</span>\n'.join(lines)


def _span(text: str) -> str:
    return f'<span style="font-size: .9em; opacity: .75">{escape(escaped(text, None))}</span>'


def _box(html: str) -> str:
    return (
        '<div style="white-space: pre-wrap; overflow-wrap: anywhere; max-height: 40em; '
        f'overflow: auto; font-family: monospace; margin: .4em 0">{html}</div>'
    )


def _left_out(n: int, most: int) -> str:
    return f"... and {n - most:,} more" if n > most else ""


def _html_table(rows: Rows, most: int) -> str:
    if len(rows) < 2:
        return ""
    lines = [
        "<tr>"
        + "".join(f"<{cell}>{escape(escaped(text, None))}</{cell}>" for text in row)
        + "</tr>"
        for row, cell in zip(rows[: most + 1], ["th"] + ["td"] * most, strict=False)
    ]
    return f"<table>{''.join(lines)}</table>{_left_out(len(rows) - 1, most)}"


def _text_table(rows: Rows, most: int) -> str:
    if len(rows) < 2:
        return ""
    widths = [max(len(row[i]) for row in rows[: most + 1]) for i in range(len(rows[0]))]
    lines = [
        "  ".join(escaped(cell, None).ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows[: most + 1]
    ]
    rest = _left_out(len(rows) - 1, most)
    return "\n".join([line.rstrip() for line in lines] + ([rest] if rest else []))
