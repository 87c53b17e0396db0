"""What `generate` and `stream` can be told: checked once, and from then on Python's own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NoReturn, TypedDict

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.errors import InputError, as_integer, as_number, shown
from gpt2np.sampling import Processor, Sampling
from gpt2np.trace import Probe


class Options(TypedDict, total=False):
    """The settings as keywords, for type checkers: all but num_samples, which decides the result.

    `generate` explains them.
    """

    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    no_repeat_ngram: int | None
    processors: Sequence[Processor]
    num_beams: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    seed: int | np.random.Generator | None
    stop: str | Iterable[str] | None
    stop_at_eot: bool
    eos: int | Sequence[int] | None
    special: bool
    lookup: int | None
    on_full: Literal["refuse", "slide"]
    cache: KVCache | None
    progress: bool
    probe: Probe | None


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    """How a text is continued: how each token is chosen, and everything else.

    An `InputError` names what is out of range, or does not go together.

    >>> Settings(top_k=np.uint8(5), num_beams=0)
    Traceback (most recent call last):
    gpt2np.errors.InputError: num_beams must be an integer >= 1, not 0
    """

    max_new_tokens: int = 40
    num_samples: int = 1
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    seed: int | np.random.Generator | None = None
    stop: str | Iterable[str] | None = None
    stop_at_eot: bool = True
    eos: int | Sequence[int] | None = None
    special: bool = False
    lookup: int | None = None
    on_full: Literal["refuse", "slide"] = "refuse"
    cache: KVCache | None = None
    progress: bool = False
    probe: Probe | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        put = partial(object.__setattr__, self)  # frozen, but for what makes its values Python's
        for name, least in (("max_new_tokens", 0), ("num_samples", 1), ("num_beams", 1)):
            put(name, as_integer(name, getattr(self, name), least))
        # 50,000 tokens to the power of 50 are still a number.
        put("length_penalty", as_number("length_penalty", self.length_penalty, -50, 50))
        for name in ("stop_at_eot", "special", "progress"):
            put(name, _as_bool(name, getattr(self, name)))
        if self.lookup is not None:
            put("lookup", as_integer("lookup", self.lookup, 0))
        if self.seed is not None and not isinstance(self.seed, np.random.Generator):
            put("seed", as_integer("seed", self.seed, 0))
        put("stop", _as_texts("stop", self.stop))
        put("eos", self.end_ids)
        if not isinstance(self.early_stopping, bool) and str(self.early_stopping) != "never":
            _refuse("early_stopping", "True, False or 'never'", self.early_stopping)
        if not isinstance(self.on_full, str) or self.on_full not in ("refuse", "slide"):
            _refuse("on_full", "'refuse' or 'slide'", self.on_full)
        if not isinstance(self.cache, KVCache | None):
            _refuse("cache", "a KVCache or None", self.cache)
        if self.probe is not None and not callable(self.probe):
            _refuse("probe", "a function or None", self.probe)
        self._check_together()

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return _as_texts("stop", self.stop)

    @property
    def end_ids(self) -> tuple[int, ...] | None:
        """The ids that end a text; None leaves them to the model."""
        if self.eos is None:
            return None
        ids = self.eos if isinstance(self.eos, Iterable) else (self.eos,)
        return tuple(as_integer("eos", id, 0) for id in ids)

    def _check_together(self) -> None:
        """Refuse what is right by itself, but not together."""
        if self.num_beams > 1:
            unused = {
                "temperature": self.temperature in (0, 1),
                "top_k":       self.top_k is None,
                "top_p":       self.top_p is None,
                "min_p":       self.min_p is None,
                "num_samples": self.num_samples == 1,
                "lookup":      not self.lookup,
                "on_full":     self.on_full == "refuse",
                "cache":       self.cache is None,
            }  # fmt: skip
            clash = ", ".join(name for name, is_unused in unused.items() if not is_unused)
            if clash:
                raise InputError(
                    f"num_beams={self.num_beams} is beam search, which draws "
                    f"nothing and reads all anew: leave out {clash}"
                )
        elif self.length_penalty != 1 or self.early_stopping:
            raise InputError(
                "length_penalty and early_stopping are for beam search: "
                "give num_beams of 2 or more, or leave them out"
            )
        if self.cache is not None and self.num_samples > 1:
            raise InputError("a cache continues one text: give one prompt, and num_samples=1")


def _as_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        _refuse(name, "True or False", value)
    return bool(value)


def _as_texts(name: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    texts = tuple(() if texts is None else texts if isinstance(texts, Iterable) else (texts,))
    if not all(isinstance(text, str) and text for text in texts):
        _refuse(name, "a text, a list of texts or None, and no text may be empty", value)
    return texts


def _refuse(name: str, wanted: str, value: Any) -> NoReturn:
    raise InputError(f"{name} must be {wanted}, not {shown(value)}")
