"""Where the files that come with gpt2np are: the merges, the embedded model, golden outputs."""

import sys
from pathlib import Path

from gpt2np.errors import GPT2Error


def assets() -> Path:
    """Return the folder of gpt2np's own files, from an installed wheel or a source tree.

    Raises
    ------
    GPT2Error
        If neither holds them: see `why_incomplete`.

    Examples
    --------
    >>> (assets() / "vocab.bpe").is_file()
    True
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "assets", package.parent / "assets"):
        if (folder / "vocab.bpe").is_file():
            return folder
    raise GPT2Error(f"{package / 'assets'} is not there: {why_incomplete()}")


def why_incomplete() -> str:
    """Say why a part of gpt2np, or a package that it needs, may not be there, and what to do."""
    archive = next((path for path in Path(__file__).resolve().parents if path.is_file()), None)
    if archive:
        return (
            f"gpt2np runs in {archive.name}, but its files and NumPy are read from folders alone: "
            f"unpack it (python -m zipfile -e {archive.name} FOLDER) and run python FOLDER"
        )
    if getattr(sys, "frozen", False):
        return "it was not packed with this program: give PyInstaller --collect-all gpt2np"
    return "the installation is incomplete: install gpt2np again"
