"""From a prompt to more text: generate() and stream(), which are one loop.

prompt ids -> prefill: one pass over them all                  logits of the last position
  -> Sampling.pick                                             one token of each sequence
  -> Completion.add                                            text that may be shown
  -> forward, one new position a sequence, through the cache   logits
  -> ... until each has its tokens, a stop string or <|endoftext|>
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

from gpt2np.beam import BeamSearch, continue_with_beams
from gpt2np.cache import KVCache
from gpt2np.completion import Completion, Generation
from gpt2np.errors import ContextError, InputError
from gpt2np.loading import Model
from gpt2np.lookup import continue_with_lookup
from gpt2np.params import Array, Ids
from gpt2np.prompts import Prompt, parse_prompts
from gpt2np.reading import Reader
from gpt2np.sampling import Sampling
from gpt2np.trace import Probe

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
    processors: Sequence[Processor] = (),
    num_samples: int = 1,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    seed: int | np.random.Generator | None = None,
    stop: str | Sequence[str] | None = None,
    stop_at_eot: bool = True,
    lookup: int | None = None,
    on_full: str = "refuse",
    cache: KVCache | None = None,
    progress: bool = False,
    probe: Probe | None = None,
) -> Any:
    """Continue a text, or several.

    Parameters
    ----------
    model : Model
    prompt : str, token ids, or a list of either
        An empty text starts from ``<|endoftext|>``. The prompts of a list may have any lengths,
        and each gives what it gives alone.
    max_new_tokens : int
        A completion has at most so many tokens.
    temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, processors
        How each token is chosen, in the order and with the results of Hugging Face's: see
        `gpt2np.sampling`. ``temperature=0`` is greedy. A processor is a function
        (ids, logits) -> logits of one sequence, its prompt included.
    num_samples : int
        How many completions of each prompt, which is read once.
    num_beams, length_penalty, early_stopping
        Beam search, for `num_beams` of 2 or more: see `gpt2np.beam`. It draws nothing, so it
        takes neither a temperature nor top_k, top_p, min_p or num_samples.
    seed : int or numpy Generator, optional
        The same seed gives the same text. The r-th completion of a call (of a list of prompts,
        all of the first one come first) draws from ``default_rng(seed + r)``, so that it is the
        one that ``seed + r`` gives alone. Of a Generator, several completions draw from what it
        spawns. Without a seed every call differs.
    stop : str or list of str, optional
        Text that ends the completion. It may span tokens, and is not part of ``text``.
    stop_at_eot : bool
        Whether ``<|endoftext|>`` ends the completion; it is not part of ``text`` then.
    lookup : int, optional
        Speed up text that repeats itself with drafts of up to so many tokens (15 serve well):
        see `gpt2np.lookup`. Greedy completions stay as they are; sampled ones keep their
        distribution, but not what a seed gives. Several completions are made one by one.
    on_full : {"refuse", "slide"}
        What to do if the prompt and `max_new_tokens` are more than the model's context. "slide"
        goes on: where the context is full, its last half is read again as if it were the whole
        text. That is another computation: the model sees 1/2 to 1 context of what came before
        (1/2 of a prompt that is longer).
    cache : KVCache, optional
        Continue without reading again. Of what the cache holds, what the prompt begins with is
        kept and the rest forgotten, so that the result is the same as without. Afterwards it
        holds the prompt and the completion but for its last token, which was never read. It has
        to be this model's own, for one prompt, one sample and one beam.
    progress : bool
        Show a bar of the tokens generated on standard error.
    probe : callable (name, array) -> array or None, optional
        Passed on to every forward pass, as in `gpt2np.forward`.

    Returns
    -------
    Generation
        With `num_samples` above 1, a list of them. For a list of prompts, a list of what each
        prompt gives alone: Generations, or lists of them.

    Raises
    ------
    InputError
        An argument has a value that cannot be used.
    ContextError
        The prompt and `max_new_tokens` are more than the model's context, or than the cache.

    Examples
    --------
    >>> import gpt2np
    >>> model = gpt2np.load()
    >>> generate(model, "ROMEO:", max_new_tokens=2, temperature=0).finish_reason
    'length'
    >>> several = generate(model, ["ROMEO:", "To be, or"], num_samples=3, max_new_tokens=5, seed=1)
    >>> [[len(sample.ids) for sample in samples] for samples in several]
    [[5, 5, 5], [5, 5, 5]]
    """
    run = _Run(
        model,
        prompt,
        Sampling(temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, processors),
        BeamSearch(num_beams, length_penalty, early_stopping),
        max_new_tokens=max_new_tokens,
        num_samples=num_samples,
        seed=seed,
        stop=stop,
        stop_at_eot=stop_at_eot,
        lookup=lookup,
        on_full=on_full,
        cache=cache,
        progress=progress,
        probe=probe,
    )
    for _ in run.pieces():
        pass
    return run.results()


def stream(model: Model, prompt: Prompt, **settings: Any) -> Iterator[str]:
    """Continue a text, and give it piece by piece as it is generated.

    Takes the arguments of `generate`, for one prompt and one sample. The pieces, joined, are the
    text that `generate` gives. A piece is not empty, and consists of whole characters that no
    stop string can still claim. Beam search knows its text only at the end: it comes as one
    piece.

    Examples
    --------
    >>> import gpt2np
    >>> model = gpt2np.load()
    >>> "".join(stream(model, "ROMEO:", seed=1)) == generate(model, "ROMEO:", seed=1).text
    True
    """
    given = {**(generate.__kwdefaults__ or {}), **settings}
    sampling = Sampling(**{field.name: given.pop(field.name) for field in fields(Sampling)})
    search = BeamSearch(**{field.name: given.pop(field.name) for field in fields(BeamSearch)})
    run = _Run(model, prompt, sampling, search, **given)
    if len(run.completions) > 1 or run.many:
        raise InputError("stream gives one text: give it one prompt, and num_samples=1")
    return (piece for piece in run.pieces() if piece)


@dataclass
class _Run:
    """One call: its arguments, once checked, and the completions that come of it."""

    model: Model
    prompt: Any
    sampling: Sampling
    search: BeamSearch
    max_new_tokens: int
    num_samples: int
    seed: int | np.random.Generator | None
    stop: str | Sequence[str] | None
    stop_at_eot: bool
    lookup: int | None
    on_full: str
    cache: KVCache | None
    progress: bool
    probe: Probe | None

    def __post_init__(self) -> None:
        for name, (valid, words) in _VALID.items():
            if not valid(getattr(self, name)):
                raise InputError(f"{name} must be {words}, not {getattr(self, name)!r}")
        self.prompts, self.many = parse_prompts(self.model, self.prompt)
        self._check_together()
        self._check_room()
        stop = [self.stop] if isinstance(self.stop, str) else list(self.stop or ())
        tokenizer = self.model.tokenizer if self.model.has_tokenizer else None
        if stop and tokenizer is None:
            raise InputError("stop strings need text, and the model has no tokenizer")
        eot = tokenizer.eot if tokenizer is not None and self.stop_at_eot else None
        prompts = [ids for ids in self.prompts for _ in range(self.num_samples)]
        self.completions = [
            Completion(ids, self.max_new_tokens, tokenizer, stop=stop, eot=eot, rng=rng)
            for ids, rng in zip(prompts, _generators(self.seed, len(prompts)), strict=True)
        ]

    def _check_together(self) -> None:
        """Refuse what is right by itself, but not together."""
        sampling, search = self.sampling, self.search
        if search.num_beams > 1:
            unused = {
                "temperature": sampling.temperature in (0, 1),
                "top_k":       sampling.top_k is None,
                "top_p":       sampling.top_p is None,
                "min_p":       sampling.min_p is None,
                "num_samples": self.num_samples == 1,
                "lookup":      not self.lookup,
                "on_full":     self.on_full == "refuse",
                "cache":       self.cache is None,
            }  # fmt: skip
            clash = ", ".join(name for name, is_unused in unused.items() if not is_unused)
            if clash:
                raise InputError(
                    f"num_beams={search.num_beams} is beam search, which draws "
                    f"nothing and reads all anew: leave out {clash}"
                )
        elif search != BeamSearch(search.num_beams):
            raise InputError(
                "length_penalty and early_stopping are for beam search: "
                "give num_beams of 2 or more, or leave them out"
            )
        if self.cache is not None and (self.many or self.num_samples > 1):
            raise InputError("a cache continues one text: give one prompt, and num_samples=1")

    def _check_room(self) -> None:
        """Refuse what will not fit, before anything is computed."""
        config, cache = self.model.config, self.cache
        room, what, help = config.n_ctx, "model's context", "or set on_full='slide'"
        if cache is not None:
            L, B, H, _, K = cache.keys.shape
            fits = config.n_layer, 1, config.n_head, config.head_width
            if fits != (L, B, H, K) or cache.keys.dtype != self.model.params.dtype:
                raise InputError(f"{cache!r} is not a cache of one sequence for this model")
            if cache.capacity < room:
                room, what, help = cache.capacity, "cache's capacity", "or make it larger"
        for ids in self.prompts:
            total = len(ids) + self.max_new_tokens
            if total > room and (self.on_full == "refuse" or room < config.n_ctx):
                raise ContextError(
                    f"a prompt of {len(ids)} tokens and max_new_tokens={self.max_new_tokens} make "
                    f"{total}, but the {what} is {room}: shorten them, {help}"
                )

    def pieces(self) -> Iterator[str]:
        """Run to the end; give the text of each new token as it comes."""
        steps = self._pieces() if self.max_new_tokens else iter(())
        if not self.progress:
            yield from steps
            return
        from tqdm import tqdm  # only a progress bar needs it

        total = len(self.completions) * self.max_new_tokens
        with tqdm(total=total, unit=" tokens", unit_scale=True) as bar:
            for piece in steps:
                bar.update()
                yield piece

    def _pieces(self) -> Iterator[str]:
        model, params = self.model, self.model.params
        n_vocab = model.tokenizer.n_vocab if model.has_tokenizer else params.config.vocab_size
        reader = Reader(params, n_vocab, self.probe)
        if self.search.num_beams > 1:
            for completion in self.completions:
                cache, logits = reader.prompts([completion.ids], self._capacity)
                yield from continue_with_beams(
                    reader, self.sampling, completion, cache, logits[0], search=self.search
                )
            return
        if self.cache is None:
            cache, logits = reader.prompts(self.prompts, self._capacity)
        else:
            cache, logits = self.cache, reader.resume(self.prompts[0], self.cache)
        rows = np.repeat(np.arange(len(self.prompts)), self.num_samples)
        if self.lookup:
            for completion, b in zip(self.completions, rows, strict=True):
                own = cache if len(rows) == 1 else cache.select([b])
                yield from continue_with_lookup(
                    reader, self.sampling, completion, own, logits[b], k=self.lookup
                )
            return
        if self.num_samples > 1:
            cache, logits = cache.select(rows), logits[rows]
        yield from self._continue(reader, cache, logits)

    def _continue(self, reader: Reader, cache: KVCache, logits: Array) -> Iterator[str]:
        """Generate one token of every completion at a time; those that end are dropped."""
        going = self.completions
        while True:
            for completion, row in zip(going, logits, strict=True):
                token, logprob = self.sampling.pick(completion.ids, row, completion.rng)
                yield completion.add(token, logprob)
            rows = [b for b, completion in enumerate(going) if not completion.finish_reason]
            if not rows:
                return
            if len(rows) < len(going):
                going, cache = [going[b] for b in rows], cache.select(rows)
            sequences = [completion.ids for completion in going]
            reader.slide(sequences, cache)
            logits = reader.last(np.array([ids[-1:] for ids in sequences]), cache)

    @property
    def _capacity(self) -> int:
        longest = max(len(ids) for ids in self.prompts) + self.max_new_tokens
        return min(longest, self.model.config.n_ctx)

    def results(self) -> Any:
        """Give the completions in the shape of the call."""
        flat, n = [completion.result() for completion in self.completions], self.num_samples
        each: Sequence[Generation | list[Generation]] = flat
        if n > 1:
            each = [flat[i : i + n] for i in range(0, len(flat), n)]
        return each if self.many else each[0]


def _generators(seed: int | np.random.Generator | None, n: int) -> list[np.random.Generator]:
    if isinstance(seed, np.random.Generator):
        return [seed] if n == 1 else seed.spawn(n)
    return [np.random.default_rng(None if seed is None else seed + r) for r in range(n)]


def is_integer(x: Any, least: int) -> bool:
    """Whether a value is an integer, of at least some size."""
    return isinstance(x, Integral) and not isinstance(x, bool) and int(x) >= least


def _is_seed(x: Any) -> bool:
    return x is None or isinstance(x, np.random.Generator) or is_integer(x, 0)


def _is_stop(x: Any) -> bool:
    strings = [x] if isinstance(x, str) else x
    return x is None or (
        isinstance(strings, list | tuple) and all(isinstance(s, str) and s for s in strings)
    )


_VALID: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_new_tokens": (lambda x: is_integer(x, 0),                 "an integer >= 0"),
    "num_samples":    (lambda x: is_integer(x, 1),                 "an integer >= 1"),
    "seed":           (_is_seed, "an integer >= 0, a numpy Generator or None"),
    "stop":           (_is_stop, "a text, a list of texts or None, and no text may be empty"),
    "stop_at_eot":    (lambda x: isinstance(x, bool),              "True or False"),
    "lookup":         (lambda x: x is None or is_integer(x, 0),    "an integer >= 0 or None"),
    "on_full":        (lambda x: isinstance(x, str) and x in ("refuse", "slide"),
                       "'refuse' or 'slide'"),
    "cache":          (lambda x: x is None or isinstance(x, KVCache), "a KVCache or None"),
    "progress":       (lambda x: isinstance(x, bool),              "True or False"),
    "probe":          (lambda x: x is None or callable(x),         "a function or None"),
}  # fmt: skip
