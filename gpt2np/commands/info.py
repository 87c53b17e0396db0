"""gpt2np info: what a checkpoint holds, and what becomes of it on loading."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from gpt2np.anatomy import ledger
from gpt2np.checkpoints.base import Array, offset_in_file
from gpt2np.commands import add_output, add_tokenizer
from gpt2np.errors import escaped
from gpt2np.loading import Opened, inspect


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        nargs="?",
        help="a name, a folder or a file with weights; the embedded model unless given",
    )
    add_tokenizer(parser)
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="check the checksums of the tensors too, if the format has them",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> None:
    """Open the checkpoint and describe it."""
    opened = inspect(args.source, tokenizer=args.tokenizer, verify=args.verify)
    if args.json:
        print(json.dumps(as_json(opened, tensors=args.tensors)))
        return
    for name, value in describe(opened, tensors=args.tensors).items():
        if isinstance(value, dict):
            print(f"{name}:")
            lines = {escaped(key): escaped(str(entry), None) for key, entry in value.items()}
            width = max(map(len, lines), default=0)
            for key, entry in lines.items():
                print(f"  {key:<{width}}  {entry}")
        else:
            print(f"{name}: {escaped(str(value), None)}")


def describe(opened: Opened, *, tensors: bool) -> dict[str, Any]:
    """Gather the facts, ready to be printed."""
    checkpoint, fitted, tokenizer = opened.checkpoint, opened.fitted, opened.tokenizer
    params = fitted.params
    config = params.config
    account = ledger(config)
    stored = Counter(checkpoint.dtypes.values())
    facts: dict[str, Any] = {
        "source": opened.name,
        "format": checkpoint.format
        if checkpoint.family.lower() in ("", checkpoint.format)
        else f"{checkpoint.format} ({checkpoint.family})",
        "files": {file.name: f"{file.stat().st_size:,} bytes" for file in checkpoint.files},
        **({"adapter": opened.adapter} if opened.adapter else {}),
        "config": config.to_dict(),
        "stored as": ", ".join(f"{count} tensors of {dtype}" for dtype, count in stored.items()),
        "parameters": f"{params.n_params:,} counted in {len(params)} tensors",
        "formula": f"{account.formula} = {account.formula_value:,}",
        "tokenizer": f"none: {opened.why_no_tokenizer}"
        if tokenizer is None
        else f"{tokenizer.n_vocab:,} tokens",
        "begins with": str(opened.beside.boundary("bos_token_id", tokenizer, config.vocab_size)),
        "ends with": str(opened.beside.boundary("eos_token_id", tokenizer, config.vocab_size)),
        "dropped": fitted.dropped,
        **({"notes": "; ".join(fitted.notes)} if fitted.notes else {}),
        "renamed": f"{len(fitted.renamed)} of {len(checkpoint.tensors)} tensors"
        + "".join(f", such as {raw} to {name}" for raw, name in [*fitted.renamed.items()][:1]),
    }
    if tensors:
        facts["tensors"] = {
            name: f"{checkpoint.dtypes[name]} {list(array.shape)}" + _place(array)
            for name, array in checkpoint.tensors.items()
        }
    return facts


def _place(array: Array) -> str:
    offset = offset_in_file(array)
    return "" if offset is None else f" at byte {offset:,}"


def as_json(opened: Opened, *, tensors: bool) -> dict[str, Any]:
    """Gather the same facts for programs: numbers as numbers, names as lists."""
    checkpoint, fitted, tokenizer = opened.checkpoint, opened.fitted, opened.tokenizer
    params = fitted.params
    account, V = ledger(params.config), params.config.vocab_size
    facts: dict[str, Any] = {
        "source": opened.name,
        "format": checkpoint.format,
        "family": checkpoint.family,
        "files": {file.name: file.stat().st_size for file in checkpoint.files},
        "adapter": opened.adapter,
        "config": params.config.to_dict(),
        "stored_as": dict(Counter(checkpoint.dtypes.values())),
        "parameters": params.n_params,
        "formula": account.formula,
        "formula_value": account.formula_value,
        "n_vocab": None if tokenizer is None else tokenizer.n_vocab,
        "why_no_tokenizer": opened.why_no_tokenizer if tokenizer is None else None,
        "bos": opened.beside.boundary("bos_token_id", tokenizer, V).ids,
        "eos": opened.beside.boundary("eos_token_id", tokenizer, V).ids,
        "dropped": fitted.dropped,
        "notes": list(fitted.notes),
        "renamed": fitted.renamed,
    }
    if tensors:
        facts["tensors"] = {
            name: {
                "dtype": checkpoint.dtypes[name],
                "shape": list(array.shape),
                "offset": offset_in_file(array),
            }
            for name, array in checkpoint.tensors.items()
        }
    return facts
