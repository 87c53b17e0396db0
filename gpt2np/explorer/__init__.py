"""GPT-2 as a page: the ledger and a run of a model, in one HTML file that needs nothing else."""

from __future__ import annotations

import os
from html import escape

from gpt2np.answers import answering
from gpt2np.explorer.page import page
from gpt2np.explorer.run import Run
from gpt2np.files import write_text
from gpt2np.loading import Model, as_model

TEXT = "To be, or not to be: that is the"


def write_page(
    path: str | os.PathLike[str],
    model: Model,
    text: str = TEXT,
    *,
    vectors: str | None = None,
    live: bool = False,
) -> None:
    """Write the page that `explain` gives of a model and a text to an HTML file.

    Examples
    --------
    >>> import tempfile, gpt2np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(f"{folder}/page.html", gpt2np.load(), "ROMEO:")
    ...     os.listdir(folder)
    ['page.html']
    """
    explain(model, text, vectors=vectors, live=live).save(path)


class Page:
    """The page of a run: it shows itself in a notebook, and can be written to a file.

    Attributes
    ----------
    html : str
        The whole page. It loads nothing.
    """

    def __init__(self, run: Run, vectors: str | None = None, *, live: bool = False) -> None:
        self._what = f"{len(run.ids)} tokens"
        self.html = page(run, vectors, live=live)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to an HTML file, which opens from disk."""
        write_text(path, self.html)

    def __repr__(self) -> str:
        size = len(self.html.encode())
        return f"Page({self._what}, {size:,} bytes; .save('page.html') writes it)"

    def _repr_html_(self) -> str:
        # A document of its own, whose styles and scripts reach nothing outside of it.
        style = "width: 100%; height: 48rem; border: 1px solid rgba(128, 128, 128, .4)"
        source = f'sandbox="allow-scripts" srcdoc="{escape(self.html)}"'
        return f'<iframe title="{self._what}" style="{style}" {source}></iframe>'


@answering()
def explain(
    model: Model, text: str = TEXT, *, vectors: str | None = None, live: bool = False
) -> Page:
    """Run a model on a text, and give the page that shows each of its parts at work.

    Parameters
    ----------
    model : Model
    text : str
        1 to 64 tokens.
    vectors : "all" or "last", optional
        Of which tokens the page has every vector: of all where it stays below 3 MB, unless given.
    live : bool
        Put the model and its tokenizer into the page, which runs any text then.

    Returns
    -------
    Page
        It shows itself as the last line of a notebook's cell; ``.save(path)`` writes it.

    Raises
    ------
    TokenizerError
        The model has no tokenizer.
    InputError
        The text has no tokens, or too many.

    Examples
    --------
    >>> import gpt2np
    >>> gpt2np.explain(gpt2np.load(), "ROMEO:")  # doctest: +ELLIPSIS
    Page(3 tokens, ... bytes; .save('page.html') writes it)
    """
    return Page(Run(as_model(model), text), vectors, live=live)
