"""The errors gpt2np raises on purpose: each says what was wrong, where, and what to do.

Each is also the built-in kind a caller would expect, so ``except ValueError`` or
``except OSError`` works without importing anything from here.
"""


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
