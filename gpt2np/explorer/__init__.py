"""GPT-2 as a page: the ledger and a run of a model, in one HTML file that needs nothing else."""

from __future__ import annotations

import os

from gpt2np.explorer.page import page
from gpt2np.explorer.run import Run
from gpt2np.files import write_text
from gpt2np.loading import Model

TEXT = "To be, or not to be: that is the"


def write_page(
    path: str | os.PathLike[str], model: Model, text: str = TEXT, *, vectors: str | None = None
) -> None:
    """Run a model on a text, and write the page that shows the run.

    Parameters
    ----------
    path : path
        The HTML file; it opens from disk, and loads nothing.
    model : Model
    text : str
        1 to 64 tokens.
    vectors : "all" or "last", optional
        Of which tokens the page has every vector: of all where it stays below 3 MB, unless given.

    Raises
    ------
    TokenizerError
        The model has no tokenizer.
    InputError
        The text has no tokens, or too many.

    Examples
    --------
    >>> import tempfile, gpt2np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(f"{folder}/page.html", gpt2np.load(), "ROMEO:")
    ...     os.listdir(folder)
    ['page.html']
    """
    write_text(path, page(Run(model, text), vectors))
