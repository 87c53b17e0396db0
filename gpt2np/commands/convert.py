"""gpt2np convert: write any model as a Hugging Face folder, a GGUF or an .npz."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gpt2np.commands import add_force, add_tokenizer, check_output, load_model
from gpt2np.errors import escaped
from gpt2np.saving import SAVE_DTYPES, check_name, save


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("model", metavar="SOURCE", help="a name, a folder or a file with weights")
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="where to write config.json, model.safetensors and the vocabulary; or a file that "
        "ends in .gguf (for llama.cpp), .npz (for NumPy) or .bin (for llm.c, with its tokenizer "
        "beside it)",
    )
    parser.add_argument(
        "--dtype",
        dest="save_dtype",
        choices=SAVE_DTYPES,
        default="float32",
        help="what to round the weights to (float32)",
    )
    add_tokenizer(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object: written")
    add_force(parser)


def run(args: argparse.Namespace) -> None:
    """Read the model, write it again, and print where it is then."""
    args.dtype = "float32"
    check_name(Path(args.folder))
    check_output(args, args.folder, "FOLDER")
    model = load_model(args)
    if model.why_no_tokenizer:
        print(
            f"gpt2np: no tokenizer is written: {escaped(model.why_no_tokenizer, None)}",
            file=sys.stderr,
        )
    written = save(model, args.folder, dtype=args.save_dtype, overwrite=args.force)
    print(json.dumps({"written": str(written)}) if args.json else written)
