"""The command line, ``gpt2np``: which commands there are, and how each of them ends.

Exit codes: 0 done; 2 an error, told in one line on standard error; 129, 130 and 143 stopped by a
hangup, Ctrl-C or SIGTERM; 141 the reader of the output went away (``gpt2np ... | head``), as the
shell reports for any filter.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from importlib import import_module
from typing import Any, NoReturn

from gpt2np.assets_path import why_incomplete
from gpt2np.errors import ContextError, GPT2Error, InputError, escaped, shown
from gpt2np.files import WINDOWS
from gpt2np.options import (
    check_options,
    debug_option,
    did_you_mean,
    in_options,
    in_words,
    with_examples,
)
from gpt2np.streams import say, standard_streams
from gpt2np.version import __version__

# Each is gpt2np/commands/<name>.py, which has add_arguments(parser) and run(args), and is imported
# only when it is the one to run.
COMMANDS = {
    "generate": "continue a text",
    "score": "score texts, by token or by word",
    "evaluate": "measure how well a model does a task: lambada, choices, perplexity",
    "tokenize": "show the tokens of a text, or the text of tokens",
    "download": "fetch a model before it is needed",
    "explain": "show the architecture and its exact account, a component, or a run as a web page",
    "bench": "measure how fast a model is here, and how fast it could be",
    "info": "describe a checkpoint: its format, config, tensors and parameters",
    "golden": "record activations, and find where another implementation leaves them",
    "convert": "write a model of any format as a Hugging Face folder, a .gguf, an .npz or a .bin",
}

EXAMPLES = {
    "generate": (
        'gpt2np generate "Now is the winter" -t 0.7 -k 40 --no-repeat-ngram 3 --seed 131',
        "gpt2np generate --prompts prompts.txt -m gpt2 --json",
    ),
    "score": (
        'gpt2np score --text "What is thy name?" --words',
        "gpt2np score corpus.jsonl -m gpt2 -o scores.jsonl",
    ),
    "tokenize": ('gpt2np tokenize "Hello, world"', "gpt2np tokenize --decode 15496 11 995"),
    "download": ("gpt2np download gpt2", "gpt2np download 124M --from openai"),
    "explain": (
        "gpt2np explain attn.scores -T 64",
        'gpt2np explain --html page.html --text "To be, or not to be"',
    ),
    "bench": ("gpt2np bench --json", "gpt2np bench --shape gpt2"),
    "info": ("gpt2np info gpt2", "gpt2np info folder/model.safetensors --tensors"),
    "evaluate": (
        "gpt2np evaluate perplexity corpus.txt -m gpt2 --recipe hf",
        "gpt2np evaluate choice questions.jsonl --json",
    ),
    "golden": (
        "gpt2np golden record --weights tiny --with-weights golden.npz",
        "gpt2np golden check mine.npz golden.npz",
    ),
    "convert": (
        "gpt2np convert gpt2 folder",
        "gpt2np convert ckpt.pt folder --dtype float16",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process unless given.

    Returns
    -------
    int
        The exit code; argparse itself exits with 0 after a help text, with 2 after an error.

    Examples
    --------
    >>> main(["tokenize", "--ids", "Hello world"])
    15496 995
    0
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        with standard_streams(), _ended_by_signals(), _warned_in_a_line():
            _run(argv)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except (GPT2Error, OSError, MemoryError, ImportError) as error:
        if WINDOWS and isinstance(error, OSError) and _is_closed_pipe(error):
            return 141
        if "--debug" in argv:
            import traceback

            say(traceback.format_exc().rstrip())
        else:
            complain(error)
        return 2
    return 0


def complain(error: BaseException | str) -> None:
    """Tell of an error in one line on standard error."""
    text = str(error)
    if isinstance(error, MemoryError):
        text = f"not enough memory: {error}" if text else "not enough memory"
    elif isinstance(error, ImportError):
        text = f"{error}: {why_incomplete()}"
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and error.errno == errno.EBADF:
        text = "standard input or output, which is needed, is closed"
    say(f"gpt2np: error: {escaped(' '.join(text.splitlines()), None)}")


@contextmanager
def _warned_in_a_line() -> Iterator[None]:
    """Let what the library warns of be a line like everything else here, and nothing more."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(f"gpt2np: note: {escaped(' '.join(str(message).splitlines()), None)}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _expanded(names: Sequence[str]) -> list[str]:
    """Give the files that patterns stand for, as shells do but for those of Windows."""
    expanded: list[str] = []
    for name in names:
        found = sorted(glob(name)) if not os.path.exists(name) else []
        expanded += found or [name]
    return expanded


_ENDS = ("SIGTERM", "SIGHUP")  # what asks a process to end, besides Ctrl-C


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let what asks a process to end be an exception, so that nothing is left half done.

    Only if that is what would have ended it: nohup has it ignore SIGHUP.
    """

    def end(number: int, frame: object) -> NoReturn:
        sys.exit(128 + number)

    numbers = [
        number
        for name in _ENDS
        if (number := getattr(signal, name, None)) is not None
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Let signals wait for the end of the body: NumPy makes an ImportError of an exception."""
    held = {
        number: handler
        for name in ("SIGINT", *_ENDS)
        if (number := getattr(signal, name, None)) is not None
        and threading.current_thread() is threading.main_thread()
        and callable(handler := signal.getsignal(number))
    }
    came: list[int] = []
    for number in held:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
    for number in came:
        held[number](number, None)


def _is_closed_pipe(error: OSError) -> bool:
    """Whether this is how Windows says that nobody reads the output any more."""
    return error.errno == errno.EINVAL and error.filename is None


class _Parser(argparse.ArgumentParser):
    """A parser that tells of an error in one line, like everything else here."""

    def error(self, message: str) -> NoReturn:
        complain(f"{in_words(message)} (see {self.prog} --help)")
        self.exit(2)


def _run(argv: list[str]) -> None:
    common: dict[str, Any] = {"parents": [debug_option()], "allow_abbrev": False}
    parser = _Parser(
        "gpt2np",
        description="GPT-2 in pure NumPy.",
        **common,
        epilog="gpt2np COMMAND --help tells of a command's options.",
    )
    parser.add_argument("--version", action="version", version=f"gpt2np {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    parsers = {
        name: commands.add_parser(
            name,
            help=line,
            description=f"{line[0].upper()}{line[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **common,
        )
        for name, line in COMMANDS.items()
    }
    # No option before the command takes a value, so it is the first argument that is not one.
    name = next((argument for argument in argv if not argument.startswith("-")), None)
    if name is None:
        check_options(parser, argv)
        parser.parse_args(argv)
        parser.print_help()
        return
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or f": choose from {', '.join(COMMANDS)}"
        parser.error(f"there is no command {shown(name)}{hint}")
    with _signals_wait():
        try:
            command = import_module(f"gpt2np.commands.{name}")
        except OSError as error:  # by NumPy in a zip file
            raise ImportError(str(error)) from error
    command.add_arguments(parsers[name])
    parsers[name].epilog = with_examples(parsers[name].epilog, EXAMPLES[name])
    check_options(parsers[name], argv)
    args = parser.parse_args(argv)
    if WINDOWS and "files" in args:
        args.files = _expanded(args.files)
    try:
        with import_module("gpt2np.commands").printing(args):
            command.run(args)
    except (InputError, ContextError) as error:
        raise type(error)(in_options(str(error), parsers[name])) from error
