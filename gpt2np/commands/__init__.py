"""The commands of the command line, one module each, and what they share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from gpt2np import files
from gpt2np.files import as_text
from gpt2np.loading import Model, load


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model to load."""
    parser.add_argument(
        "-m",
        "--model",
        metavar="SOURCE",
        help="a name (gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2, owner/name on the "
        "Hugging Face hub), a folder or a file with weights; the embedded tiny-shakespeare "
        "unless given",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default="float32",
        help="the precision of every computation (float32)",
    )


def load_model(args: argparse.Namespace) -> Model:
    """Load the model that the options name, and name it on standard error."""
    model = load(args.model, dtype=args.dtype)
    millions = model.params.n_params / 1e6
    print(
        f"gpt2np: {model.source} ({millions:.1f}M parameters, {args.dtype})",
        file=sys.stderr,
        flush=True,
    )
    return model


def tell_of_special_tokens(model: Model, texts: Iterable[str]) -> None:
    """Say so if a text spells a special token, as that is read as plain text without --special."""
    if not model.has_tokenizer:
        return
    encode = model.tokenizer.encode
    spelt = sum("<" in text and encode(text) != encode(text, special=True) for text in texts)
    if spelt:
        print(
            f"gpt2np: {spelt} of the texts spell a special token, which is read as plain text: "
            "--special lets it mean itself",
            file=sys.stderr,
            flush=True,
        )


def text(argument: str) -> str:
    """Give an argument as text: bytes that the locale could not decode are UTF-8, if anything.

    >>> text("caf\\udcc3\\udca9 \\udcff")
    'café \ufffd'
    """
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_text(file: str) -> str:
    """Read a text from a file, or from standard input for "-"."""
    if file == "-":
        return as_text(sys.stdin.buffer.read(), "standard input")
    return files.read_text(file)
