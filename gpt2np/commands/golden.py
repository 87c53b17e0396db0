"""gpt2np golden: record a run, and hold another implementation's against it."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from gpt2np.commands import (
    add_force,
    add_model_options,
    add_output,
    check_output,
    load_model,
    text,
)
from gpt2np.errors import InputError
from gpt2np.golden import Report, check, record
from gpt2np.golden.draws import record_sampling
from gpt2np.golden.formats import FORMATS
from gpt2np.golden.judge import few_greedy_ids
from gpt2np.golden.tiny import MODELS, write_weights
from gpt2np.golden.tokens import CASES, TokenReport, check_tokens, write_kit
from gpt2np.loading import Model, load
from gpt2np.options import debug_option, with_examples

# An .npz, whose first array is ids; or a .safetensors with the facts of a recording.
_RECORDING = re.compile(
    rb'PK\x03\x04.{26}ids\.npy|.{8}\{"__metadata__":\{"meta":".*cache_split', re.DOTALL
)
_SAMPLING = re.compile(rb"PK\x03\x04.{26}logits\.npy", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands that there are, and what each takes."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = FORMATS
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (line, examples, add) in ACTIONS.items():
        below = actions.add_parser(
            name,
            help=line,
            description=f"{line[0].upper()}{line[1:]}.",
            epilog=with_examples(None, examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[debug_option()],
            allow_abbrev=False,
        )
        add(below)


def _add_tokens(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", help="a folder; it holds cases.txt, tokens.txt, ...")
    parser.add_argument("--json", action="store_true", help="print one JSON object: written, files")
    add_force(parser)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", help="as of record")
    parser.add_argument("--json", action="store_true", help="print one JSON object: written")
    add_force(parser)


def _add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "out", metavar="OUT", help="a .npz or .safetensors file, or a folder of .npy files"
    )
    add_model_options(parser)
    parser.add_argument("--text", type=text, metavar="T", help="the text to read")
    parser.add_argument("--ids", type=_ids, metavar="IDS", help="token ids to read, as 5962,22307")
    parser.add_argument(
        "--points",
        action="append",
        metavar="GLOB",
        help="only activations of such names, as 'h.0.*'; may be given several times",
    )
    parser.add_argument(
        "--cache-split",
        type=int,
        default=0,
        metavar="N",
        help="read the first N tokens in a pass of their own, and record the rest, "
        "which is read through the cache",
    )
    parser.add_argument(
        "--new",
        dest="new_tokens",
        type=int,
        default=16,
        metavar="N",
        help="how many tokens to continue with, greedily (16)",
    )
    parser.add_argument(
        "--with-weights",
        action="store_true",
        help="keep the weights too, so that check can tell causes by itself",
    )
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="record a small random model, tiny or harsh, and write its weights as well, in "
        "Hugging Face's, OpenAI's and llm.c's layouts, to the folder "
        "OUT-weights",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object: written, n_arrays, n_tokens, n_bytes and more",
    )
    add_force(parser)


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "mine",
        metavar="MINE",
        help="a .npz or .safetensors file, a folder of .npy files or an llm.c debug_state.bin; or "
        "a port's token ids as .txt, against the cases.txt of `golden tokens`",
    )
    parser.add_argument("theirs", metavar="THEIRS", help="the reference, as one of the same")
    parser.add_argument(
        "-m",
        "--model",
        metavar="SOURCE",
        help="the model of THEIRS: most causes cannot be told without its weights",
    )
    parser.add_argument(
        "--rtol",
        type=float,
        metavar="X",
        help="the relative error that is allowed (by precision unless given)",
    )
    parser.add_argument(
        "--atol",
        type=float,
        default=0.0,
        metavar="X",
        help="an absolute error that is allowed besides (0)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_output(parser)


# Each with a line of help, two examples and what adds its arguments.
ACTIONS = {
    "record": (
        "record ids, activations, logits and a greedy continuation",
        (
            "gpt2np golden record --weights tiny --with-weights golden.npz",
            'gpt2np golden record -m gpt2 --text "First Citizen:" --dtype float64 oracle.npz',
        ),
        _add_record,
    ),
    "check": (
        "name the first activation that diverges, and why",
        ("gpt2np golden check mine.npz golden.npz", "gpt2np golden check ids.txt kit/cases.txt"),
        _add_check,
    ),
    "tokens": (
        "write texts that break tokenizers, with their ids, and the data that a port needs",
        ("gpt2np golden tokens kit", "gpt2np golden tokens kit --force"),
        _add_tokens,
    ),
    "sampling": (
        "write logits and settings, what they keep, and the ids that given numbers draw",
        ("gpt2np golden sampling sampling.npz", "gpt2np golden sampling sampling"),
        _add_sampling,
    ),
}


def _ids(argument: str) -> list[int]:
    """Read token ids, with commas or spaces between.

    >>> _ids("3,1, 4")
    [3, 1, 4]
    """
    try:
        return [int(number) for number in argument.replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{argument!r} is not a list as 5962,22307") from None


def run(args: argparse.Namespace) -> None:
    """Run the one that was named; a divergence ends with the exit code 1."""
    if args.action == "record":
        _record(args)
        return
    if args.action == "sampling":
        check_output(args, args.out, "OUT", _SAMPLING)
        record_sampling().save(args.out)
        print(json.dumps({"written": args.out}) if args.json else args.out)
        return
    if args.action == "tokens":
        _tokens(args)
        return
    model = load(args.model) if args.model is not None else None
    report: TokenReport | Report
    if args.mine.endswith(".txt"):
        report = check_tokens(args.mine, args.theirs)
        print(json.dumps(report.to_dict()) if args.json else report)
        if report.different:
            sys.exit(1)
        return
    report = check(args.mine, args.theirs, model=model, rtol=args.rtol, atol=args.atol)
    print(json.dumps(report.to_dict()) if args.json else report)
    if report.first is not None:
        sys.exit(1)


def _tokens(args: argparse.Namespace) -> None:
    folder = Path(args.out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CASES).is_file() | args.force:
        raise InputError(f"{folder} holds other files: name another folder, or give --force")
    paths = write_kit(folder)
    if args.json:
        sizes = {path.name: path.stat().st_size for path in paths}
        print(json.dumps({"written": args.out, "files": sizes}))
    else:
        print(*paths, sep="\n")


def _record(args: argparse.Namespace) -> None:
    check_output(args, args.out, "OUT", _RECORDING)
    model, paths = _tiny(args) if args.weights else (None, [])
    if args.text is not None and args.ids is not None:
        raise InputError("give --text or --ids, not both")
    prompt: Any = args.ids if args.text is None else args.text
    if not prompt and (model is None or prompt is not None):
        raise InputError("nothing to read: give --text or --ids")
    golden = record(
        model or load_model(args),
        list(MODELS[args.weights][1]) if prompt is None else prompt,
        points=args.points,
        cache_split=args.cache_split,
        new_tokens=args.new_tokens,
        weights=args.with_weights,
    )
    golden.save(args.out)
    T, N = golden.arrays["ids"].shape[1], args.cache_split
    size = sum(array.nbytes for array in golden.arrays.values())
    few = few_greedy_ids(golden.arrays["greedy"])
    notes = [f"{few}; greedy.logits prove more, and so does --cache-split"] if few else []
    if args.json:
        print(json.dumps({
            "written":  args.out,
            "n_arrays": len(golden.arrays),
            "n_tokens": T,
            "n_cached": N,
            "n_bytes":  size,
            "notes":    notes,
            "weights":  [str(path) for path in paths],
        }))  # fmt: skip
        return
    tokens = "1 token" if T == 1 else f"{T} tokens"
    what = f"the last {T - N} of {tokens}, read through a cache of {N}" if N else tokens
    told = [f"{len(golden.arrays)} arrays of {what}, {size:,} bytes", *notes]
    print(*paths, *(f"{args.out}: {line}" for line in told), sep="\n")


def _tiny(args: argparse.Namespace) -> tuple[Model, list[Path]]:
    if args.weights not in MODELS:
        names = " or ".join(MODELS)
        raise InputError(f"--weights {args.weights}: the models that can be written are {names}")
    if args.model is not None:
        raise InputError("give --model or --weights, not both")
    model = MODELS[args.weights][0](args.dtype)
    out = Path(args.out)
    folder = out.with_name(f"{out.stem}-weights")
    return model, write_weights(model, folder, overwrite=args.force)
