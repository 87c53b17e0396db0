"""gpt2np bench: what to expect on this machine."""

from __future__ import annotations

from gpt2np.bench import add_arguments, run

__all__ = ["add_arguments", "run"]
