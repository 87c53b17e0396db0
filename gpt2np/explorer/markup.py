"""Markup that cannot be escaped from: what is not marked as markup is text."""

from __future__ import annotations

import html
import json
from typing import Any


class Markup(str):
    """Text that is HTML already. Any other is escaped when it is put into an element."""

    __slots__ = ()


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Write an element. An attribute that is True stands by itself, one that is None or False
    is left out; `class_` is class, and `aria_label` aria-label.

    >>> element("p", "1 < 2", element("br"), class_="x", hidden=True, id=None)
    '<p class="x" hidden>1 &lt; 2<br></p>'
    """
    opening = [tag]
    for keyword, value in attributes.items():
        name = keyword.rstrip("_").replace("_", "-")
        if value is True:
            opening.append(name)
        elif value is not None and value is not False:
            opening.append(f'{name}="{html.escape(str(value))}"')
    end = "" if tag in ("br", "hr") else f"</{tag}>"
    return Markup(f"<{' '.join(opening)}>{join(*content)}{end}")


def join(*content: object) -> Markup:
    """Put markup and text, which is escaped, behind one another.

    >>> join("<", element("b", 1))
    '&lt;<b>1</b>'
    """
    return Markup(
        "".join(part if isinstance(part, Markup) else html.escape(str(part)) for part in content)
    )


def as_json(value: Any) -> Markup:
    """Write JSON that can stand in a script element: there, only "<" could end it.

    >>> as_json({"text": "</script>"})
    '{"text":"\\\\u003c/script>"}'
    """
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))
