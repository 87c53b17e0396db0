"""From a prompt to more text: generate() and stream(), which are one loop.

    prompt ids -> prefill: one pass over them all                  logits of the last position
      -> Sampling.pick                                             one token of each sequence
      -> Completion.add                                            text that may be shown
      -> forward, one new position a sequence, through the cache   logits
      -> ... until each has its tokens, a stop string or <|endoftext|>
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.completion import Completion, Generation
from gpt2np.errors import ContextError, InputError
from gpt2np.loading import Model
from gpt2np.model import Probe, check_ids, forward
from gpt2np.params import Array
from gpt2np.sampling import Ids, Sampling, mask_from

Prompt: TypeAlias = str | Sequence[int] | Ids
Processor: TypeAlias = Callable[[Ids, Array], Array]


def generate(
    model: Model,
    prompt: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = 40,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    no_repeat_ngram: int | None = None,
    num_samples: int = 1,
    seed: int | np.random.Generator | None = None,
    stop: str | Sequence[str] | None = None,
    stop_at_eot: bool = True,
    processors: Sequence[Processor] = (),
    progress: bool = False,
    probe: Probe | None = None,
) -> Any:
    """Continue a text.

    Parameters
    ----------
    model : Model
    prompt : str, token ids, or a list of either
        An empty text starts from ``<|endoftext|>``.
    max_new_tokens : int
    temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, processors
        How each token is chosen: see `gpt2np.sampling`. ``temperature=0`` is greedy.
    num_samples : int
        How many completions of each prompt.
    seed : int or numpy Generator, optional
        The same seed gives the same text. The r-th completion of a call draws from
        ``default_rng(seed + r)``, so it is the one that the seed ``seed + r`` gives alone.
    stop : str or list of str, optional
        Text at which to stop; it is not part of the completion.
    stop_at_eot : bool
        Whether ``<|endoftext|>`` ends the completion.
    progress : bool
        Show a bar of the tokens generated on standard error.
    probe : callable (name, array) -> array or None, optional
        Passed on to every forward pass.

    Returns
    -------
    Generation
        A list of them with ``num_samples`` above 1. For a list of prompts, a list with what each
        prompt would give alone.

    Raises
    ------
    InputError
        An argument has a value that cannot be used.
    ContextError
        The prompt and `max_new_tokens` are more than the model's context.
    """
    run = _Run(
        model, prompt,
        Sampling(temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, processors),
        max_new_tokens=max_new_tokens, num_samples=num_samples, seed=seed, stop=stop,
        stop_at_eot=stop_at_eot, progress=progress, probe=probe,
    )  # fmt: skip
    for _ in run.pieces():
        pass
    return run.results()


def stream(model: Model, prompt: Prompt, **settings: Any) -> Iterator[str]:
    """Continue a text, and give it piece by piece as it is generated.

    Takes what `generate` takes, for one prompt and one completion, and the pieces joined are the
    text that `generate` gives. A piece holds whole characters and nothing of a stop string; none
    is empty.
    """
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram",
             "processors")  # fmt: skip
    given = {**(generate.__kwdefaults__ or {}), **settings}
    sampling = Sampling(**{name: given.pop(name) for name in names})
    run = _Run(model, prompt, sampling, **given)
    if run.many or run.num_samples > 1:
        raise InputError("stream gives one text: give one prompt and num_samples=1")
    return (piece for _, piece in run.pieces() if piece)


_VALID: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_new_tokens": (lambda x: _integer(x, 0),                       "an integer >= 0"),
    "num_samples":    (lambda x: _integer(x, 1),                       "an integer >= 1"),
    "seed":           (lambda x: x is None or _integer(x, 0) or isinstance(x, np.random.Generator),
                       "an integer >= 0, a numpy Generator or None"),
    "probe":          (lambda x: x is None or callable(x),             "a function or None"),
}  # fmt: skip


def _integer(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


@dataclass
class _Run:
    """One call, its arguments checked."""

    model: Model
    prompt: Any
    sampling: Sampling
    max_new_tokens: int
    num_samples: int
    seed: int | np.random.Generator | None
    stop: str | Sequence[str] | None
    stop_at_eot: bool
    progress: bool
    probe: Probe | None

    def __post_init__(self) -> None:
        for name, (valid, words) in _VALID.items():
            value = getattr(self, name)
            if not valid(value):
                raise InputError(f"{name} must be {words}, not {value!r}")
        tokenizer = self.model.tokenizer
        stop = _stop_strings(self.stop)
        if stop and tokenizer is None:
            raise InputError("stop strings need text, and the model has no tokenizer")
        prompts, self.many = _prompts(self.model, self.prompt)
        n_ctx = self.model.config.n_ctx
        for ids in prompts:
            if len(ids) + self.max_new_tokens > n_ctx:
                raise ContextError(
                    f"a prompt of {len(ids)} tokens and max_new_tokens={self.max_new_tokens} make "
                    f"{len(ids) + self.max_new_tokens}, but the model's context is {n_ctx}"
                )
        eot = tokenizer.eot if tokenizer is not None and self.stop_at_eot else None
        self.completions = [
            Completion(ids, self.max_new_tokens, tokenizer, stop=stop, eot=eot, rng=rng)
            for ids, rng in zip(
                [ids for ids in prompts for _ in range(self.num_samples)],
                _generators(self.seed, len(prompts) * self.num_samples),
                strict=True,
            )
        ]

    def pieces(self) -> Iterator[tuple[Completion, str]]:
        """Run, and give the text of each new token as it comes."""
        for completion in self.completions:
            yield from self._single(completion)

    def _single(self, completion: Completion) -> Iterator[tuple[Completion, str]]:
        params = self.model.params
        if completion.finish_reason:
            return
        capacity = len(completion.ids) + self.max_new_tokens
        cache = KVCache(params, 1, capacity)
        new = completion.ids
        while True:
            logits = forward(params, new[None], cache, last_only=True, probe=self.probe)[0, 0]
            if self.model.tokenizer is not None:
                logits = mask_from(logits, self.model.tokenizer.n_vocab)
            token, logprob = self.sampling.pick(completion.ids, logits, completion.rng)
            yield completion, completion.add(token, logprob)
            if completion.finish_reason:
                return
            new = completion.ids[-1:]

    def results(self) -> Any:
        """Give the completions in the shape of the call."""
        flat, n = [completion.result() for completion in self.completions], self.num_samples
        each: Sequence[Generation | list[Generation]] = flat
        if n > 1:
            each = [flat[i : i + n] for i in range(0, len(flat), n)]
        return each if self.many else each[0]


def _stop_strings(stop: Any) -> list[str]:
    strings = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(strings, list | tuple) or not all(isinstance(s, str) and s for s in strings):
        raise InputError(f"stop must be a text or a list of texts, none empty, not {stop!r}")
    return list(strings)


def _generators(seed: Any, n: int) -> list[np.random.Generator]:
    if isinstance(seed, np.random.Generator):
        return [seed] if n == 1 else seed.spawn(n)
    return [np.random.default_rng(None if seed is None else seed + r) for r in range(n)]


def _prompts(model: Model, prompt: Any) -> tuple[list[Ids], bool]:
    """Give the ids of each prompt, and whether there was a list of them."""
    if isinstance(prompt, list | tuple) and not len(prompt):
        raise InputError(
            "the prompt is an empty list: give a text, token ids, or a list of these "
            '(the empty text "" starts from <|endoftext|>)'
        )
    several = (str, list, tuple, np.ndarray)
    if isinstance(prompt, list | tuple) and isinstance(prompt[0], several):
        return [_prompt_ids(model, one) for one in prompt], True
    if isinstance(prompt, np.ndarray) and prompt.ndim == 2:
        return [_prompt_ids(model, one) for one in prompt], True
    return [_prompt_ids(model, prompt)], False


def _prompt_ids(model: Model, prompt: Any) -> Ids:
    if not isinstance(prompt, str | list | tuple | np.ndarray):
        raise InputError(
            f"the prompt must be a text, token ids, or a list of these, not {prompt!r}"
        )
    tokenizer = model.tokenizer
    if isinstance(prompt, str):
        if tokenizer is None:
            raise InputError("the model has no tokenizer: give the prompt as token ids")
        prompt = tokenizer.encode(prompt)
    if len(prompt) == 0:
        if tokenizer is None or tokenizer.eot is None:
            raise InputError(
                "an empty prompt starts from <|endoftext|>, which this model does not have: "
                "give at least one token id"
            )
        prompt = [tokenizer.eot]
    ids: Ids = check_ids(model.config, [prompt])[0].astype(np.intp)
    return ids
