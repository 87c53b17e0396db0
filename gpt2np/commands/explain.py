"""gpt2np explain: the architecture with its exact account, one component in full, or a page that
shows them with a run."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpt2np.anatomy import COMPONENTS, Account, Ledger, find, ledger
from gpt2np.commands import add_output, add_tokenizer, check_output, text
from gpt2np.config import BY_NAME
from gpt2np.errors import InputError, escaped
from gpt2np.loading import Opened, inspect, load

_PAGE = re.compile(rb'<!doctype html>[^\0]*<meta name="generator" content="gpt2np ')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "component",
        nargs="?",
        metavar="COMPONENT",
        help=", ".join(component.name for component in COMPONENTS),
    )
    parser.add_argument(
        "-m",
        "--model",
        metavar="SOURCE",
        help="a known model (gpt2, gpt2-xl, 355M, ...), for "
        "which no weights are needed; or a checkpoint, whose tensors are "
        "counted (gpt2). For --html, the model to run (the embedded one)",
    )
    add_tokenizer(parser)
    parser.add_argument("-B", type=int, default=1, metavar="B", help="sequences (1)")
    parser.add_argument("-T", type=int, metavar="T", help="new positions (the whole context)")
    parser.add_argument("-S", type=int, metavar="S", help="cached and new positions (T)")
    parser.add_argument("--latex", action="store_true", help="give formulas in LaTeX")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON object")
    shape.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page that shows all components, and a run of the model on a "
        "text: it opens in a browser, from disk",
    )
    parser.add_argument(
        "--text",
        type=text,
        metavar="TEXT",
        help="the text to run on, for --html (a line of Shakespeare's)",
    )
    parser.add_argument(
        "--vectors",
        choices=("all", "last"),
        help="of which tokens the page has every vector, for --html (of all where it stays below "
        "3 MB, else of the last)",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="put the model itself into the page, which then runs any text that is typed (up to "
        "64 MB), for --html",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> None:
    """Print the table or the sheet of the component, or write the page."""
    if args.html:
        _write_page(args)
        return
    for option in ("text", "vectors", "live"):
        if getattr(args, option) is not None and getattr(args, option) is not False:
            raise InputError(f"--{option} is for the page: add --html FILE")
    source = args.model or "gpt2"
    opened = None if source in BY_NAME else inspect(source)
    config = opened.fitted.params.config if opened else BY_NAME[source].config
    account = ledger(config, B=args.B, T=args.T, S=args.S)
    if args.component:
        row = account.of(find(args.component))
        if args.json:
            print(json.dumps(_facts(row, account)))
        else:
            print(sheet(row, account, latex=args.latex))
    elif args.json:
        rows = [_facts(row, account) for row in account.rows]
        print(json.dumps({"components": rows, **_numbers(account, opened)}))
    else:
        width = shutil.get_terminal_size().columns  # COLUMNS says, or the terminal; else 80
        print(table(account, markdown=args.markdown, width=width))
        print()
        wrap = textwrap.TextWrapper(width, subsequent_indent="  ")
        wrap.break_long_words = wrap.break_on_hyphens = False  # no path is cut
        for name, value in totals(account, opened).items():
            print(wrap.fill(f"{name}: {value}"))


def _write_page(args: argparse.Namespace) -> None:
    """Run the model and write the page; say where it is and how large."""
    from gpt2np import explorer  # only the page needs it

    forms = args.component, args.latex, args.markdown
    if any(forms) or (args.B, args.T, args.S) != (1, None, None):
        raise InputError(
            "the page shows every component, in the shapes of the run on its text: "
            "leave out COMPONENT, -B, -T, -S, --latex and --markdown"
        )
    check_output(args, args.html, "--html FILE", _PAGE)
    model = load(args.model, tokenizer=args.tokenizer)
    text = explorer.TEXT if args.text is None else args.text
    explorer.write_page(args.html, model, text, vectors=args.vectors, live=args.live)
    size = Path(args.html).stat().st_size
    if args.json:
        print(json.dumps({"written": args.html, "n_bytes": size, "model": model.source}))
    else:
        print(f"{args.html}: {size:,} bytes, a run of {model.source}")


_COLUMNS = ("component", "in", "out", "calculation", "parameters each", "times", "total")


def table(account: Ledger, *, markdown: bool = False, width: int = 10_000) -> str:
    """Lay out the flow as a table; what is too wide is left out, and told."""
    titled, plain = _rows(account, titles=True), _rows(account, titles=False)
    if markdown:
        rule = "|".join(["", *["---"] * len(_COLUMNS), ""])
        text = [f"| {' | '.join(line)} |" for line in titled]
        return "\n".join([text[0], rule, *text[1:]])
    for left_out in ((), ("in",), ("in", "out"), ("in", "out", "parameters each", "times")):
        for lines in (titled, plain):
            kept = [i for i, name in enumerate(_COLUMNS) if name not in left_out]
            text = _aligned([[line[i] for i in kept] for line in lines])
            if max(map(len, text)) <= width:
                if left_out:
                    text.append(f"(too wide for here: {', '.join(left_out)}; --markdown has them)")
                return "\n".join(text)
    return "\n".join(text)


def _rows(account: Ledger, *, titles: bool) -> list[tuple[str, ...]]:
    rows = [
        (
            row.component.name + (f": {row.component.title}" if titles else ""),
            account.with_numbers(row.component.takes),
            account.with_numbers(row.component.gives),
            row.component.formula,
            row.calculation,
            str(row.instances),
            f"{row.total:,}",
        )
        for row in account.rows
    ]
    return [_COLUMNS, *rows, ("all", "", "", "", account.formula, "", f"{account.n_params:,}")]


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def totals(account: Ledger, opened: Opened | None) -> dict[str, Any]:
    """Sum up: parameters by the table, by the formula and as counted, and the cost of the run."""
    symbols = ", ".join(f"{name}={value}" for name, value in account.symbols.items())
    facts: dict[str, Any] = {
        "symbols": symbols,
        "parameters by the table": f"{account.n_params:,}",
        "parameters by the formula": f"{account.formula} = {account.formula_value:,}",
    }
    return {
        **facts,
        **({} if opened is None else _counted(account, opened)),
        "floating-point operations of the run": f"{account.flops:,}",
        "bytes read to decode a token": f"{account.bytes_read_per_token:,}",
        "cache bytes per token": f"{account.cache_bytes_per_token:,}",
    }


def _numbers(account: Ledger, opened: Opened | None) -> dict[str, Any]:
    """The same for programs: numbers as numbers."""
    facts = {
        "symbols": account.symbols,
        "parameters": account.n_params,
        "formula": account.formula,
        "flops": account.flops,
        "bytes_read_per_token": account.bytes_read_per_token,
        "cache_bytes_per_token": account.cache_bytes_per_token,
    }
    if opened is None:
        return facts
    counted, others = _split(opened)
    return facts | {
        "source": opened.name,
        "counted": sum(counted.values()),
        "tensors": len(counted),
        "not_counted": others,
    }


def _split(opened: Opened) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes of the tensors that are parameters, and of the buffers and copies, by name."""
    sizes = {raw: int(array.size) for raw, array in opened.checkpoint.tensors.items()}
    others = {raw: size for raw, size in sizes.items() if raw in opened.fitted.dropped}
    return {raw: size for raw, size in sizes.items() if raw not in others}, others


def _counted(account: Ledger, opened: Opened) -> dict[str, str]:
    """Count what the file holds, tensor by tensor, and hold the table against it."""
    tensors, others = _split(opened)
    counted = sum(tensors.values())
    more = counted - account.n_params
    remark = ""
    if more:
        remark = (
            f"; {more:,} of them are padding"
            if more > 0
            else f"; the table's other {-more:,} are biases of 0, which it leaves out"
        )
    return {
        "parameters counted": f"{counted:,} in {len(tensors)} tensors of "
        f"{escaped(opened.name, None)}{remark}",
        "buffers and copies, not counted": f"{sum(others.values()):,} in {len(others)} tensors"
        + "".join(f", {escaped(raw)}" for raw in others),
    }


def sheet(row: Account, account: Ledger, *, latex: bool = False) -> str:
    """Lay out all that there is to know about one component."""
    component = row.component
    facts = {
        "formula": component.latex if latex else component.formula,
        **account.facts(row),
        "here": component.code,
        "sources": "; ".join(source.text for source in component.sources),
    }
    width = min(96, shutil.get_terminal_size().columns)
    lines = [f"{component.name}: {component.title}", ""]
    for name, value in facts.items():
        lines += textwrap.wrap(
            value, width, initial_indent=f"{name:<12}", subsequent_indent=" " * 12
        )
    return "\n".join([*lines, "", *textwrap.wrap(component.explanation, width)])


def _facts(row: Account, account: Ledger) -> dict[str, Any]:
    component = row.component
    return {
        "name": component.name,
        "title": component.title,
        "takes": component.takes,
        "gives": component.gives,
        "takes_numbers": account.shapes(component.takes),
        "gives_numbers": account.shapes(component.gives),
        "formula": component.formula,
        "latex": component.latex,
        "calculation": row.calculation,
        "parameters_each": row.each,
        "instances": row.instances,
        "parameters": row.total,
        "flops_calculation": row.flops_calculation,
        "flops_each": row.flops_each,
        "flops": row.flops,
        "explanation": component.explanation,
        "sources": [source.text for source in component.sources],
        "links": [source.url for source in component.sources],
        "code": component.code,
    }
