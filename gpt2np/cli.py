"""The command line, ``gpt2np``: which commands there are, and how each of them ends.

Exit codes: 0 done; 2 an error, told in one line on standard error; 130 stopped by Ctrl-C; 141 the
reader of the output went away (``gpt2np ... | head``), as the shell reports for any filter.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from gpt2np.errors import GPT2Error, escaped
from gpt2np.version import __version__

# Each is gpt2np/commands/<name>.py, which has add_arguments(parser) and run(args), and is imported
# only when it is the one to run.
COMMANDS = {
    "generate": "continue a text",
    "score": "tell how likely texts are, by token or by word",
    "tokenize": "show the tokens of a text, or the text of tokens",
    "download": "fetch a model before it is needed",
    "explain": "show the architecture and its exact account, a component, or a run as a web page",
    "bench": "measure how fast a model is here, and how fast it could be",
    "info": "describe a checkpoint: its format, config, tensors and parameters",
    "golden": "record activations, and find where another implementation leaves them",
    "convert": "write a model of any format as a Hugging Face folder",
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
    _set_up_streams()
    try:
        try:
            _run(argv)
        finally:
            _flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except (GPT2Error, OSError, MemoryError) as error:
        if "--debug" in argv:
            import traceback

            traceback.print_exc()
        else:
            complain(error)
        return 2
    return 0


def complain(error: BaseException | str) -> None:
    """Tell of an error in one line on standard error."""
    text = str(error)
    if isinstance(error, MemoryError):
        text = f"not enough memory: {error}" if text else "not enough memory"
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    line = escaped(" ".join(text.splitlines()), None)
    print(f"gpt2np: error: {line}", file=sys.stderr, flush=True)


class _Parser(argparse.ArgumentParser):
    """A parser that tells of an error in one line, like everything else here."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message} (see {self.prog} --help)")
        self.exit(2)


def _run(argv: list[str]) -> None:
    debug = argparse.ArgumentParser(add_help=False)
    debug.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show where an error comes from",
    )
    common: dict[str, Any] = {"parents": [debug], "allow_abbrev": False}
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
            name, help=line, description=f"{line[0].upper()}{line[1:]}.", **common
        )
        for name, line in COMMANDS.items()
    }
    # No option before the command takes a value, so it is the first argument that is not one.
    name = next((argument for argument in argv if not argument.startswith("-")), None)
    if name in COMMANDS:
        command = import_module(f"gpt2np.commands.{name}")
        command.add_arguments(parsers[name])
        command.run(parser.parse_args(argv))
    else:
        parser.parse_args(argv)
        parser.print_help()


def _set_up_streams() -> None:
    """Let no character that was read or generated fail to be read or shown.

    Files and pipes are UTF-8 whatever the locale, as all files are that gpt2np reads. A terminal
    keeps its encoding, in which a character that it lacks becomes a question mark.
    """
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            keep = stream.isatty() or "PYTHONIOENCODING" in os.environ
            stream.reconfigure(encoding=None if keep else "utf-8", errors="replace")


def _flush() -> None:
    """Write what is buffered now, when a failure can still be told.

    After one, the interpreter's own flush at exit would fail again: there it meets no one.
    """
    if sys.stdout is None:  # closed from the start
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
