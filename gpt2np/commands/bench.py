"""gpt2np bench: what to expect on this machine."""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpt2np.bench import SECONDS, bench
from gpt2np.commands import add_model_options, add_output
from gpt2np.config import BY_NAME
from gpt2np.errors import InputError
from gpt2np.loading import Model, load
from gpt2np.params import Params
from gpt2np.saving import save
from gpt2np.tokenizer import Tokenizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    add_model_options(parser)
    parser.add_argument(
        "--shape",
        metavar="NAME",
        help="measure random weights of the shape of gpt2, 355M or another known model "
        "instead, written to a temporary folder: nothing is downloaded",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help=f"how long to measure each form of pass ({SECONDS})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_output(parser)


def run(args: argparse.Namespace) -> None:
    """Measure, and print the table or the JSON."""
    if args.shape and args.model:
        raise InputError("give --model or --shape, not both")
    if args.shape is not None and args.shape not in BY_NAME:
        raise InputError(f"--shape {args.shape}: known are {', '.join(BY_NAME)}")
    if not 0 < args.seconds <= 3600:
        raise InputError(f"--seconds is {args.seconds}: give more than 0, at most 3600")
    with _source(args.shape, args.model) as source:
        model = load(source, dtype=args.dtype, tokenizer=args.tokenizer)
        found = bench(model, seconds=args.seconds, progress=True)
        # Windows removes no file that is mapped.
        del model
        gc.collect()
    if args.shape:
        found["model"] = f"random weights of the shape of {args.shape}"
    print(json.dumps(found, indent=2) if args.json else report(found))


@contextmanager
def _source(shape: str | None, source: str | None) -> Iterator[str | None]:
    """What to load: a shape is made a model on disk, so that it can be loaded like any other."""
    if shape is None:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="gpt2np-bench-", ignore_cleanup_errors=True) as folder:
        save(Model(Params.random(BY_NAME[shape].config), Tokenizer.gpt2()), folder)
        yield folder


def report(found: dict[str, Any]) -> str:
    """Lay out what was measured as a table."""
    machine = found["machine"]
    peak, weights = found["peak_memory_bytes"], found["weight_bytes"]
    rows = [("", "tokens/s", "limit", "reached", "the limit is")]
    for speed in found["decode"]:
        form = "decode, batch {batch}, {cached} cached".format(**speed)
        rows.append(_row(form, speed, f"{speed['limit_gigabytes_per_second']:.1f} GB/s of weights"))
    for speed in found["prefill"]:
        form = "prefill of {new}".format(**speed)
        rows.append(_row(form, speed, f"{speed['limit_gigaflops']:.0f} GFLOP/s"))
    return "\n".join(
        [
            f"{found['model']}: {found['parameters']:,} parameters, {found['dtype']}",
            f"{machine['processor']}, {machine['threads']} threads, NumPy {machine['numpy']}, "
            f"{machine['blas']}",
            *(
                f"note: {name}={value} is set, and may slow NumPy's products"
                for name, value in machine["settings"].items()
            ),
            "",
            *(
                f"{form:<36}{rate:>10}{limit:>10}{reached:>9}   {what}"
                for form, rate, limit, reached, what in rows
            ),
            "(the limit: the matrix products alone, timed in turn; the best times of each count)",
            "",
            *_few_rows(found["few_rows"]),
            "",
            _threads(found["by_threads"]),
            f"cold start   {found['cold_start_seconds']:.2f} s from the start of a process to its "
            "first token",
            f"peak memory  {'unknown' if peak is None else f'{peak / 1e6:.0f} MB'}, of which "
            f"weights {weights / 1e6:.0f} MB",
        ]
    )


def _threads(found: list[dict[str, Any]]) -> str:
    """Say in a line what threads do to decoding."""
    rates = [each["tokens_per_second"] for each in found]
    told = ", ".join(f"{r:,.0f} on {each['threads']}" for r, each in zip(rates, found, strict=True))
    advice = ": set OPENBLAS_NUM_THREADS=1" if rates[-1] > 1.1 * rates[0] else ""
    return f"threads      tokens/s decoded on average, with all that runs here: {told}{advice}"


def _few_rows(found: list[dict[str, Any]]) -> list[str]:
    """Lay out what products over few rows take by each form."""
    forms = list(found[0]["milliseconds"])
    lines = [f"{'products over few rows, ms':<36}" + "".join(f"{form:>13}" for form in forms)]
    for row in found:
        what = f"{row['matrix']}, {row['rows']} rows"
        lines.append(
            f"{what:<36}" + "".join(f"{row['milliseconds'][form]:>13.2f}" for form in forms)
        )
    return lines


def _row(form: str, speed: dict[str, Any], what: str) -> tuple[str, str, str, str, str]:
    return (
        form,
        f"{speed['tokens_per_second']:,.1f}",
        f"{speed['limit_tokens_per_second']:,.1f}",
        f"{speed['fraction']:.0%}",
        what,
    )
