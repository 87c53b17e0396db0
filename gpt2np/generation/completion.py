"""One completion as it grows: ids on one side, text that may be shown on the other."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpt2np.notebook import Shown
from gpt2np.params import Ids
from gpt2np.tokenizer import Tokenizer


@dataclass(frozen=True)
class Generation(Shown):
    """What `generate` made of one prompt; ``str()`` gives the text.

    Attributes
    ----------
    text : str
        The completion, without the prompt, the stop string or the end of text that ended it.
        Empty for a model without a tokenizer.
    ids : list of int
        Every token generated, those of a stop string and the end of text included.
    prompt_ids : list of int
    logprobs : list of float
        Of each of `ids`: its log-probability (nats) under what it was chosen from, which is the
        model's own distribution unless the settings change it.
    finish_reason : {"length", "stop", "eot"}
        All tokens asked for are there, a stop string came, or the end of text.
    """

    text: str
    ids: list[int]
    prompt_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    _tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)

    @property
    def prompt(self) -> str | None:
        """The prompt as its tokens spell it; None for a model without a tokenizer."""
        return None if self._tokenizer is None else self._tokenizer.decode(self.prompt_ids)

    def __str__(self) -> str:
        return self.text


class TextStream:
    """Tokens to text that may be shown: whole characters only, nothing of a stop string.

    >>> text = TextStream(["\\n\\n"])
    >>> [text.feed(piece) for piece in (b"caf\\xc3", b"\\xa9\\n", b"\\n!")]
    ['caf', 'é', '']
    >>> text.stopped
    True
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.stopped = False
        self._stop = stop
        self._held = ""  # may yet become a stop string
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def feed(self, data: bytes, final: bool = False) -> str:
        """Give the text that these bytes complete; at the end, also all that was held back."""
        text = self._held + self._decode(data, final)
        # The stop string that is complete first; of two at once, the longer.
        found = [(at + len(s), at) for s in self._stop if (at := text.find(s)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = 0 if final else max((_begun(s, text) for s in self._stop), default=0)
        shown, self._held = text[: len(text) - keep], text[len(text) - keep :]
        return shown


def _begun(stop: str, text: str) -> int:
    """How many characters at the end of the text are the beginning of a stop string."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


class Completion:
    """One sequence: the prompt, what has been generated, and why it ended.

    ``finish_reason`` is "" while it goes on.
    """

    def __init__(
        self,
        prompt: Ids,
        max_new_tokens: int,
        tokenizer: Tokenizer | None,
        *,
        stop: Sequence[str],
        ends: Sequence[int],
        rng: np.random.Generator,
    ) -> None:
        self.n_prompt = self.length = len(prompt)
        self._longest = len(prompt) + max_new_tokens
        self._ids = np.array(prompt, np.intp)  # grows
        self.rng = rng
        self.finish_reason = "" if max_new_tokens else "length"
        self._logprobs: list[float] = []
        self._pieces: list[str] = []
        self._tokenizer, self._text = tokenizer, TextStream(stop)
        self._stop, self._ends = stop, frozenset(ends)

    @property
    def ids(self) -> Ids:
        """The whole sequence so far, the prompt included (a view)."""
        return self._ids[: self.length]

    @property
    def left(self) -> int:
        """How many more tokens it may get."""
        return self._longest - self.length

    def add(self, token: int, logprob: float) -> str:
        """Take the next token in; give the text that may be shown by now."""
        if self.length == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
        self._ids[self.length] = token
        self.length += 1
        self._logprobs.append(logprob)
        if token in self._ends:
            self.finish_reason = "eot"
        elif not self.left:
            self.finish_reason = "length"
        piece = self._show(token)
        self._pieces.append(piece)
        return piece

    def _show(self, token: int) -> str:
        if self._tokenizer is None:
            return ""
        data = b"" if self.finish_reason == "eot" else self._tokenizer.token_bytes(token)
        piece = self._text.feed(data, final=bool(self.finish_reason))
        if self._text.stopped:
            self.finish_reason = "stop"
        return piece

    def would_end(self, ids: Ids) -> bool:
        """Whether a sequence that begins with the same prompt has come to its end."""
        if int(ids[-1]) in self._ends:
            return True
        if not self._stop or self._tokenizer is None:
            return False
        text = self._tokenizer.decode(ids[self.n_prompt :].tolist())
        return any(s in text for s in self._stop)

    def result(self) -> Generation:
        """Sum up."""
        ids: list[int] = self.ids.tolist()
        return Generation(
            text="".join(self._pieces),
            ids=ids[self.n_prompt :],
            prompt_ids=ids[: self.n_prompt],
            logprobs=self._logprobs,
            finish_reason=self.finish_reason,
            _tokenizer=self._tokenizer,
        )
