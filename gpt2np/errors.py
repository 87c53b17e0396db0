"""The errors gpt2np raises on purpose: each says what was wrong, where, and what to do.

Each is also the built-in kind a caller would expect, so ``except ValueError`` or
``except OSError`` works without importing anything from here.

The checks of numbers that raise them stand here too, for the whole package.
"""

import difflib
import math
import operator
import reprlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


class GPT2Error(Exception):
    """Base of every error that gpt2np raises on purpose."""


class CheckpointError(GPT2Error, ValueError):
    """A model's files are missing, damaged, of an unknown kind, or do not fit its config."""


class TokenizerError(GPT2Error, ValueError):
    """A tokenizer file cannot be used, or an id lies outside the vocabulary."""


class ContextError(GPT2Error, ValueError):
    """More positions were asked for than the model or the cache has."""


class InputError(GPT2Error, ValueError):
    """An argument has a value that the function cannot use."""


class DownloadError(GPT2Error, OSError):
    """A file could not be fetched whole."""


def as_integer(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> int:
    """Give a whole number from `least` to `most`, Python's or NumPy's, as Python's int.

    NumPy's wrap around or refuse to be negative where Python's do not, so none gets past here.

    Examples
    --------
    >>> as_integer("top_k", 40, 1)
    40
    >>> as_integer("top_k", 0.5, 1)
    Traceback (most recent call last):
    gpt2np.errors.InputError: top_k must be an integer >= 1, not 0.5
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise InputError(f"{name} must be an integer{_within(least, most)}, not {shown(value)}")
    return number


def as_number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Give a finite number from `least` to `most`, Python's or NumPy's, as Python's float.

    Examples
    --------
    >>> as_number("top_p", 1, 0, 1)
    1.0
    """
    try:
        # Not float(): that would read texts, and bools are numbers to Python alone.
        number = None if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or not math.isfinite(number) or not least <= number <= most:
        raise InputError(f"{name} must be a number{_within(least, most)}, not {shown(value)}")
    return number


def _within(least: float, most: float) -> str:
    if most < math.inf:
        return f" from {least} to {most}"
    return f" >= {least}" if least > -math.inf else ""


def shown(value: Any) -> str:
    """Give what a caller gave as it is shown in a message: short, and never failing.

    Examples
    --------
    >>> shown([1] * 100)
    '[1, 1, 1, 1, 1, 1, ...]'
    """
    with suppress(ValueError):  # Python before 3.14 writes no whole number of 5,000 digits
        if not isinstance(value, int) or value.bit_length() < 10_000:
            return reprlib.repr(value)
    return "an enormous number"


def no_tensor(name: Any, names: Iterable[str]) -> str:
    """Say that there is no such tensor, and which may have been meant.

    Examples
    --------
    >>> no_tensor("wte", ["wpe.weight", "wte.weight"])
    "there is no tensor 'wte': did you mean wte.weight?"
    """
    wanted, names = str(name), list(names)
    if wanted == "lm_head.weight":
        return "there is no tensor 'lm_head.weight': the head is tied to wte.weight"
    near = [n for n in names if n.startswith(f"{wanted}.") or wanted.endswith(f".{n}")]
    near += difflib.get_close_matches(wanted, names, 1)
    return f"there is no tensor {shown(name)}" + (f": did you mean {near[0]}?" if near else "")


def escaped(text: str, most: int | None = 100) -> str:
    r"""Give a name out of a file as it may be printed: on one line, short, commanding no terminal.

    Examples
    --------
    >>> print(escaped("h.0\x1b]0;owned\x07"))
    h.0\x1b]0;owned\x07
    """
    shown = text if most is None or len(text) <= most else text[: most - 3] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
