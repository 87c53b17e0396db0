"""The commands of the command line, one module each, and what they share."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from gpt2np import files
from gpt2np.assets_path import assets
from gpt2np.checkpoints import is_there
from gpt2np.errors import GPT2Error, escaped
from gpt2np.files import as_text
from gpt2np.loading import TINY, Model, load
from gpt2np.saving import model_files
from gpt2np.streams import say


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
    add_tokenizer(parser)
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default="float32",
        help="the precision of every computation (float32)",
    )


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """Add the option that says which tokenizer to use."""
    parser.add_argument(
        "--tokenizer",
        metavar="SOURCE",
        help="another tokenizer than the model's own: its file or folder, or a model that has it",
    )


def load_model(args: argparse.Namespace) -> Model:
    """Load the model that the options name, and name it on standard error."""
    model = load(args.model, dtype=args.dtype, tokenizer=args.tokenizer)
    millions = model.params.n_params / 1e6
    source = escaped(str(model.source), None)
    say(f"gpt2np: {source} ({millions:.1f}M parameters, {args.dtype})")
    return model


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets an output replace what others made; see `check_output`."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace an output that is there already, even if it is not this command's",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option that sends to a file what a command prints; see `printing`."""
    parser.add_argument(
        "-o", "--output", dest="result", metavar="OUT", help="write what is printed to a file"
    )
    add_force(parser)


@contextmanager
def printing(args: argparse.Namespace) -> Iterator[None]:
    """Let what the body prints go to the file of `add_output`, if one was named.

    What was printed before a stop or an error is kept; if that is nothing, an older file is.
    """
    if getattr(args, "result", None) is None:
        yield
        return
    check_output(args, args.result, "-o OUT")
    ended: BaseException | None = None
    with (
        files.replacing(args.result) as file,
        io.TextIOWrapper(file, "utf-8", "replace", newline="\n") as stream,
    ):
        try:
            with redirect_stdout(stream):
                yield
        except BaseException as error:
            if stream.seekable() and not stream.tell():
                raise
            ended = error
    if ended is not None:
        raise ended


# The arguments that name what is read, in whatever command they are.
_READ = ("files", "file", "prompts", "mine", "theirs")
_MODELS = ("model", "source")


def check_output(
    args: argparse.Namespace,
    path: str | os.PathLike[str],
    how: str,
    own: re.Pattern[bytes] | None = None,
) -> None:
    """Refuse an output that would destroy what the command reads, or what others made.

    Every command that writes a file or a folder asks this before it begins: `how` is how the
    output was given, `own` how an earlier one begins; see `gpt2np.files.check_output`.
    """
    read: list[str | os.PathLike[str]] = []
    for name, value in vars(args).items():
        if name in _READ:
            read += value if isinstance(value, list) else [value] if value else []
        elif name in _MODELS or (name == "tokenizer" and value is not None):
            read += _files_of(value)
    files.check_output(path, how, read=read, own=own, force=args.force)


def _files_of(source: str | None) -> list[Path]:
    """The folder of a model; or its files, if one of them was named."""
    if source is None or source == TINY:
        return [assets() / TINY]
    path = Path(os.path.expanduser(source))
    if path.is_dir():
        return [path]
    if is_there(path):
        return [path, *(path.parent / name for name in model_files(path.parent))]
    from gpt2np import hub  # only names need it

    try:
        return [hub.resolve(source, download=False)]
    except GPT2Error:  # not here yet, or not at all
        return []


def tell_of_special_tokens(model: Model, texts: Iterable[str]) -> None:
    """Say so if a text spells a special token, as that is read as plain text without --special."""
    if not model.has_tokenizer:
        return
    encode = model.tokenizer.encode
    spelt = sum("<" in text and encode(text) != encode(text, special=True) for text in texts)
    if spelt:
        say(
            f"gpt2np: {spelt} of the texts spell a special token, which is read as plain text: "
            "--special lets it mean itself"
        )


def text(argument: str) -> str:
    """Give an argument as text: bytes that the locale could not decode are UTF-8, if anything.

    >>> text("caf\\udcc3\\udca9 \\udcff")
    'café \ufffd'
    """
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class _Given(argparse.Action):
    """Store what was given, and over what an option has stored nothing that was not."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        if values is not None:
            setattr(namespace, self.dest, values)


def add_text(given: argparse._MutuallyExclusiveGroup, name: str, help: str) -> None:
    """Add the text that a command is about, as an argument and as an option."""
    given.add_argument(name, nargs="?", action=_Given, type=text, metavar=name.upper(), help=help)
    option = f"--{name}"
    given.add_argument(option, type=text, metavar="TEXT", help=f"the same, as {option}=-5 needs it")


def read_text(file: str) -> str:
    """Read a text from a file, or from standard input for "-"."""
    if file == "-":
        return as_text(sys.stdin.buffer.read(), "standard input")
    return files.read_text(file)
