"""gpt2np download: fetch a model before it is needed."""

from __future__ import annotations

import argparse
import json

from gpt2np.hub import download


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "name",
        metavar="NAME",
        help="gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2, a size (124M ... "
        "1558M) or owner/name on the Hugging Face hub",
    )
    parser.add_argument(
        "--from",
        dest="origin",
        choices=("hf", "openai"),
        default="hf",
        help="the Hugging Face hub (hf), or OpenAI's original TensorFlow files",
    )
    parser.add_argument(
        "--revision", metavar="R", help="on the hub: a branch, a tag or a commit (main)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: folder")


def run(args: argparse.Namespace) -> None:
    """Fetch the model, and print the folder in which it is then."""
    folder = download(args.name, origin=args.origin, revision=args.revision)
    print(json.dumps({"folder": str(folder)}) if args.json else folder)
