"""Where the files that come with gpt2np are: the merges, the embedded model, golden outputs."""

from pathlib import Path

from gpt2np.errors import GPT2Error


def assets() -> Path:
    """Return the folder of gpt2np's own files, from an installed wheel or a source tree.

    Raises
    ------
    GPT2Error
        If neither holds them: the installation is incomplete.

    Examples
    --------
    >>> (assets() / "vocab.bpe").is_file()
    True
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "assets", package.parent / "assets"):
        if (folder / "vocab.bpe").is_file():
            return folder
    raise GPT2Error(
        f"vocab.bpe is neither in {package / 'assets'} nor in {package.parent / 'assets'}: "
        "the installation is incomplete. gpt2np reads its files from a folder, so a zipapp has to "
        "be unpacked, and PyInstaller needs --collect-data gpt2np; else install gpt2np again"
    )
