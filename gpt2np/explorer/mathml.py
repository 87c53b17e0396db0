"""The ledger's LaTeX as MathML, which browsers show without a script: the part that it uses.

formula = (atom scripts)*        scripts = _ atom | ^ atom, either or both
atom    = { formula } | \\frac atom atom | \\sqrt atom | \\left mark formula \\right mark
        | \\mathrm{letters} | \\text{letters} | letter | number | symbol
"""

from __future__ import annotations

import re

from gpt2np.errors import InputError
from gpt2np.explorer.markup import Markup, element

_TOKEN = re.compile(
    r"\\(?:mathrm|text)\{[^}]*\}"  # letters that stand upright, together
    r"|\\(?:[A-Za-z]+|[,; ])"  # a command
    r"|\d+(?:\.\d+)?"
    r"|[^\s]"
)
_LETTERS = {"mu": "μ", "sigma": "σ", "epsilon": "ϵ", "pi": "π", "tau": "τ"}
_OPERATORS = {"-": "−", "odot": "⊙", "top": "⊤", "sim": "∼", "ldots": "…"}
_FUNCTIONS = ("tanh",)
_SPACES = {",": "0.17em", ";": "0.28em", "quad": "1em"}


def mathml(latex: str) -> Markup:
    """Convert a formula to a ``math`` element.

    Raises
    ------
    InputError
        It holds what is beyond the part of LaTeX above.

    Examples
    --------
    >>> mathml(r"x_2")
    '<math display="block"><msub><mi>x</mi><mn>2</mn></msub></math>'
    """
    tokens = _TOKEN.findall(latex)
    content = _formula(tokens, latex, end="")
    return element("math", *content, display="block")


def _formula(tokens: list[str], latex: str, end: str) -> list[Markup]:
    """Convert tokens up to one that is `end`, and take them off the list."""
    parts: list[Markup] = []
    while tokens and tokens[0] != end:
        base = _atom(tokens, latex)
        scripts: dict[str, Markup] = {}
        while tokens and tokens[0] in ("_", "^"):
            mark = tokens.pop(0)
            scripts[mark] = _atom(tokens, latex)
        match scripts:
            case {"_": below, "^": above}:
                base = element("msubsup", base, below, above)
            case {"_": below}:
                base = element("msub", base, below)
            case {"^": above}:
                base = element("msup", base, above)
        parts.append(base)
    if end:
        _take(tokens, latex, end)
    return parts


def _take(tokens: list[str], latex: str, wanted: str = "") -> str:
    if not tokens or (wanted and tokens[0] != wanted):
        raise InputError(f"{latex!r} ends where {wanted or 'something'} is missing")
    return tokens.pop(0)


def _atom(tokens: list[str], latex: str) -> Markup:  # noqa: PLR0911
    token = _take(tokens, latex)
    if token == "{":
        return element("mrow", *_formula(tokens, latex, end="}"))
    if token[0] != "\\":
        kind = "mn" if token[0].isdigit() else "mi" if token.isalpha() else "mo"
        return element(kind, _OPERATORS.get(token, token))
    name, _, letters = token[1:].rstrip("}").partition("{")
    if letters and name == "mathrm":
        return element("mi", letters, mathvariant="normal" if len(letters) == 1 else None)
    if letters:
        return element("mtext", letters)
    if name == "frac":
        return element("mfrac", _atom(tokens, latex), _atom(tokens, latex))
    if name == "sqrt":
        return element("msqrt", _atom(tokens, latex))
    if name == "left":
        opening = element("mo", _take(tokens, latex))
        inside = _formula(tokens, latex, end="\\right")
        return element("mrow", opening, *inside, element("mo", _take(tokens, latex)))
    if name in _FUNCTIONS or name in _LETTERS:
        return element("mi", _LETTERS.get(name, name))
    if name in _OPERATORS:
        return element("mo", _OPERATORS[name])
    if name in _SPACES:
        return element("mspace", width=_SPACES[name])
    raise InputError(f"{latex!r}: \\{name} is not known here")
