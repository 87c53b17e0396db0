"""GPT-2 in pure NumPy: from raw text to logits and back.

The public names are those of ``__all__``. Each is imported from its module when it is first used,
so that ``import gpt2np`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpt2np.version import __version__

if TYPE_CHECKING:
    from gpt2np import golden as golden
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
    from gpt2np.evaluation import Evaluation, evaluate
    from gpt2np.explorer import explain
    from gpt2np.generation import Generation, generate, stream
    from gpt2np.loading import Model, load
    from gpt2np.model import forward
    from gpt2np.params import Params
    from gpt2np.recorder import Trace
    from gpt2np.saving import save
    from gpt2np.scoring import Score, perplexity, score
    from gpt2np.tokenizer import Tokenizer

__all__ = [
    "CheckpointError",
    "Config",
    "ContextError",
    "DownloadError",
    "Evaluation",
    "GPT2Error",
    "Generation",
    "InputError",
    "KVCache",
    "Model",
    "Params",
    "Score",
    "Tokenizer",
    "TokenizerError",
    "Trace",
    "__version__",
    "evaluate",
    "explain",
    "forward",
    "generate",
    "golden",
    "load",
    "perplexity",
    "save",
    "score",
    "stream",
]

_MODULES = {
    "cache":      ("KVCache",),
    "config":     ("Config",),
    "errors":     ("CheckpointError", "ContextError", "DownloadError", "GPT2Error", "InputError",
                   "TokenizerError"),
    "explorer":   ("explain",),
    "evaluation": ("Evaluation", "evaluate"),
    "generation": ("Generation", "generate", "stream"),
    "loading":    ("Model", "load"),
    "model":      ("forward",),
    "params":     ("Params",),
    "saving":     ("save",),
    "scoring":    ("Score", "perplexity", "score"),
    "tokenizer":  ("Tokenizer",),
    "recorder":   ("Trace",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # to a type checker it would make any name a right one

    def __getattr__(name: str) -> Any:
        """Import a public name from its module, or gpt2np.golden itself (PEP 562)."""
        if name == "golden":
            return import_module("gpt2np.golden")
        if name not in _MODULE_OF:
            from gpt2np.answers import instead

            if answer := instead("gpt2np", name):
                raise AttributeError(f"gpt2np has no {name!r}{answer}")
            message = f"module 'gpt2np' has no attribute {name!r}"  # Python names what is near
            raise AttributeError(message, name=name, obj=import_module("gpt2np"))
        value = getattr(import_module(f"gpt2np.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
