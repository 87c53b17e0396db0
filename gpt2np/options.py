"""What the command line answers to wrong options: the nearest right ones, in its own words."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from gpt2np.answers import ELSEWHERE
from gpt2np.errors import shown

_TEXTS = ("prompt", "text", "files")  # positional arguments that may begin with a hyphen

# What is no option: an argument of the commands that it is said of, and what to do there.
_INSTEAD = {
    "--text": ("prompt", ": did you mean --prompt?"),
    "--prompt": ("text", ": did you mean --text?"),
    "--greedy": ("temperature", ": -t 0 is greedy"),
    "--device": ("model", ": leave it out, everything runs on the processor"),
    "--max-length": (
        "max_new_tokens",
        ": did you mean --max-new-tokens? It does not count the prompt",
    ),
    "--min-new-tokens": ("stop_at_eot", ": --ignore-eot goes on after the end of text"),
}


def debug_option() -> argparse.ArgumentParser:
    """What every parser has for a parent."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show where an error comes from",
    )
    return parser


def with_examples(text: str | None, examples: Iterable[str]) -> str:
    """What stands below the options in a help text."""
    return "\n".join([*([text, ""] if text else []), "examples:", *(f"  {e}" for e in examples)])


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """Give the nearest of some names, as a question.

    Examples
    --------
    >>> did_you_mean("generat", ["generate", "score"])
    ': did you mean generate?'
    """
    near = difflib.get_close_matches(wrong.lower(), list(names), 1)
    return f": did you mean {near[0]}?" if near else ""


def check_options(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Say of the first option that a parser does not have what to write instead."""
    actions = {option: action for action in _actions(parser) for option in action.option_strings}
    for before, argument in zip(["", *argv], argv, strict=False):
        if argument == "--":
            return
        name = argument.partition("=")[0]
        if not re.match(r"--?[A-Za-z]", argument) or " " in name or name in actions:
            continue
        short = actions.get(name[:2])
        if short is not None and (short.nargs != 0 or set(name[2:]) <= {o[1] for o in actions}):
            continue  # -n5, or several without values
        theirs = ELSEWHERE.get(name.lstrip("-").replace("-", "_"), ("", ""))[0]
        meant = {f"--{theirs.replace('_', '-')}", *_options_of(theirs, actions)} & actions.keys()
        hint = f": did you mean {min(meant)}?" if meant else did_you_mean(name, actions)
        of, instead = _INSTEAD.get(name, ("", ""))
        if any(of == action.dest for action in _actions(parser)):
            hint = instead
        texts = [a for a in _actions(parser) if a.dest in _TEXTS and not a.option_strings]
        if texts and not (hint and argument.startswith("--")):
            ways = [] if texts[0].dest == "files" else ["after --"]
            ways += [f"in {option}=" for option in ("--text", "--prompt") if option in actions]
            hint = f": a text that begins with - goes {' or '.join(ways)}"
        if before in actions and actions[before].nargs != 0:
            hint = f": a value that begins with - is written {before}={shown(argument)[1:-1]}"
        parser.error(f"there is no option {shown(name)[1:-1]}{hint}")


def in_words(message: str) -> str:
    """Say what argparse found wrong as one would say it."""
    too_many = re.fullmatch(r"unrecognized arguments: (.*)", message, re.DOTALL)
    if too_many:
        return f"unexpected argument {shown(too_many[1])}: put a text of several words in quotes"
    choice = re.fullmatch(r"(.*): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
    if choice:
        names = re.findall(r"[\w.-]+", choice[3])
        where = choice[1].removeprefix("argument ")
        hint = did_you_mean(choice[2], names) or f": choose from {', '.join(names)}"
        return f"{where}: there is no {shown(choice[2])}{hint}"
    number = re.fullmatch(r"(.*): invalid (int|float) value: (.*)", message, re.DOTALL)
    if number:
        kind = "a whole number" if number[2] == "int" else "a number"
        return f"{number[1]}: {number[3]} is not {kind}"
    lacking = re.fullmatch(r"argument (?:-\w/)?(--\S+): expected one argument", message)
    if lacking:
        return f"{message}; one that begins with - is written {lacking[1]}=-..."
    text = re.match("one of the arguments (PROMPT|TEXT|FILE) .* required", message)
    return f'{message}; the {text[1]} "-" reads standard input' if text else message


def in_options(message: str, parser: argparse.ArgumentParser) -> str:
    """Name the options of a command where the library names its arguments.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("-k", "--top-k")
    >>> _ = parser.add_argument("--on-full")
    >>> in_options("top_k must be an integer >= 1, not 0", parser)
    '--top-k must be an integer >= 1, not 0'
    >>> in_options("shorten them, or set on_full='slide'", parser)
    'shorten them, or set --on-full slide'
    """
    if any("--force" in action.option_strings for action in _actions(parser)):
        message = message.replace("overwrite=True", "--force")
    for action in _actions(parser):
        if not action.option_strings:
            continue
        option, name = _spelt_out(action), re.escape(action.dest)
        if action.nargs == 0 and isinstance(action.const, bool):
            message = re.sub(rf"\b{name}={action.const}\b", option, message)
            continue
        message = re.sub(rf"\b{name}=('?)([\w.-]+)\1", rf"{option} \2", message)
        word = rf"(?<![\w-]){name}\b" if "_" in name else rf"(^|(?<=leave out )){name}(?=$|[ ,:])"
        message = re.sub(word, option, message)
    return message


def unescaped(text: str) -> str:
    r"""Give a text with the line breaks, tabs and backslashes that its escapes stand for.

    Examples
    --------
    >>> unescaped(r"a\nb\\n")
    'a\nb\\n'
    """
    meant = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
    return re.sub(r"\\([ntr\\])", lambda found: meant[found[1]], text)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of those below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)


def _options_of(name: str, actions: dict[str, argparse.Action]) -> set[str]:
    """The options that give an argument of this name."""
    return {_spelt_out(action) for action in actions.values() if action.dest == name}


def _spelt_out(action: argparse.Action) -> str:
    """An option's first long name, or its only one."""
    return next((o for o in action.option_strings if o.startswith("--")), action.option_strings[0])
