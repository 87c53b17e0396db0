"""GPT-2 in pure NumPy: from raw text to logits and back."""

from gpt2np.cache import KVCache
from gpt2np.config import Config
from gpt2np.errors import (
    CheckpointError,
    ContextError,
    DownloadError,
    GPT2Error,
    InputError,
    TokenizerError,
)
from gpt2np.loading import Model, load
from gpt2np.model import forward
from gpt2np.params import Params
from gpt2np.tokenizer import Tokenizer
from gpt2np.version import __version__

__all__ = [
    "CheckpointError",
    "Config",
    "ContextError",
    "DownloadError",
    "GPT2Error",
    "InputError",
    "KVCache",
    "Model",
    "Params",
    "Tokenizer",
    "TokenizerError",
    "__version__",
    "forward",
    "load",
]
