"""One call of `generate` or `stream`: prompts, and the completions that come of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpt2np import ragged
from gpt2np.cache import KVCache
from gpt2np.errors import ContextError, InputError
from gpt2np.generation.beams import continue_with_beams
from gpt2np.generation.completion import Completion, Generation
from gpt2np.generation.lookup import continue_with_lookup
from gpt2np.generation.predictor import Predictor
from gpt2np.generation.settings import Settings
from gpt2np.loading import Model
from gpt2np.params import Array, Ids


class Job:
    """The completions of some prompts; each is as it would be alone."""

    def __init__(self, model: Model, prompt: Any, settings: Settings) -> None:
        self.model, self.settings = model, settings
        given, self.many = ragged.items(prompt)
        self.prompts = []
        for number, item in enumerate(given, 1):
            with ragged.naming(number, self.many):
                self.prompts.append(_prompt(model, item, settings))
        if self.many and settings.cache is not None:
            raise InputError("a cache continues one text: give one prompt, and num_samples=1")
        self._check_room()
        tokenizer = model.tokenizer if model.has_tokenizer else None
        if settings.stops and tokenizer is None:
            raise InputError("stop strings need text, and the model has no tokenizer")
        ends = self._ends()
        prompts = [ids for ids in self.prompts for _ in range(settings.num_samples)]
        self.completions = [
            Completion(
                ids, settings.max_new_tokens, tokenizer, stop=settings.stops, ends=ends, rng=rng
            )
            for ids, rng in zip(prompts, _generators(settings.seed, len(prompts)), strict=True)
        ]

    def _ends(self) -> tuple[int, ...]:
        """Give the ids that end a completion."""
        if not self.settings.stop_at_eot:
            return ()
        ends = self.settings.end_ids
        if ends is None:
            return self.model.eos
        V = self.model.config.vocab_size
        if max(ends, default=0) >= V:
            raise InputError(f"eos is {max(ends)}, which is not in 0 ... {V - 1}")
        return ends

    def _check_room(self) -> None:
        """Refuse what will not fit, before anything is computed."""
        config, cache = self.model.config, self.settings.cache
        new, slides = self.settings.max_new_tokens, self.settings.on_full == "slide"
        room, what, help = config.n_ctx, "model's context", "or set on_full='slide'"
        if cache is not None:
            L, B, H, _, K = cache.keys.shape
            fits = config.n_layer, 1, config.n_head, config.head_width
            if fits != (L, B, H, K) or cache.keys.dtype != self.model.params.dtype:
                raise InputError(f"{cache!r} is not a cache of one sequence for this model")
            if cache.capacity < room:
                room, what, help = cache.capacity, "cache's capacity", "or make it larger"
        for ids in self.prompts:
            total = len(ids) + new
            if total > room and (not slides or room < config.n_ctx):
                raise ContextError(
                    f"a prompt of {len(ids)} tokens and max_new_tokens={new} make "
                    f"{total}, but the {what} is {room}: shorten them, {help}"
                )

    def pieces(self) -> Iterator[str]:
        """Run to the end; give the text of each new token as it comes."""
        steps = _not_stopped(self._pieces()) if self.settings.max_new_tokens else iter(())
        if not self.settings.progress:
            yield from steps
            return
        from tqdm import tqdm  # only a progress bar needs it

        total = len(self.completions) * self.settings.max_new_tokens
        with tqdm(total=total, unit=" tokens", unit_scale=True) as bar:
            for piece in steps:
                bar.update()
                yield piece

    def _pieces(self) -> Iterator[str]:
        model, params, settings = self.model, self.model.params, self.settings
        n_vocab = model.tokenizer.n_vocab if model.has_tokenizer else params.config.vocab_size
        predictor = Predictor(params, n_vocab, settings.probe)
        if settings.num_beams > 1:
            for completion in self.completions:
                cache, logits = predictor.prefill([completion.ids], self._capacity)
                yield from continue_with_beams(predictor, settings, completion, cache, logits[0])
            return
        if settings.cache is None:
            cache, logits = predictor.prefill(self.prompts, self._capacity)
        else:
            cache, logits = settings.cache, predictor.resume(self.prompts[0], settings.cache)
        rows = np.repeat(np.arange(len(self.prompts)), settings.num_samples)
        if settings.lookup:
            for completion, b in zip(self.completions, rows, strict=True):
                own = cache if len(rows) == 1 else cache.select([b])
                yield from continue_with_lookup(predictor, settings, completion, own, logits[b])
            return
        if settings.num_samples > 1:
            cache, logits = cache.select(rows), logits[rows]
        yield from _continue_together(predictor, settings, self.completions, cache, logits)

    @property
    def _capacity(self) -> int:
        longest = max(len(ids) for ids in self.prompts) + self.settings.max_new_tokens
        return min(longest, self.model.config.n_ctx)

    def results(self) -> Any:
        """Give the completions in the shape of the call."""
        flat, n = (
            [completion.result() for completion in self.completions],
            self.settings.num_samples,
        )
        each: Sequence[Generation | list[Generation]] = flat
        if n > 1:
            each = [flat[i : i + n] for i in range(0, len(flat), n)]
        return each if self.many else each[0]


def _not_stopped(steps: Iterator[str]) -> Iterator[str]:
    """Tell of a StopIteration that a probe raises, which Python would not let out of here."""
    try:
        yield from steps
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration):
            raise InputError("the probe raised StopIteration: it has no more to give") from None
        raise


def _continue_together(
    predictor: Predictor,
    settings: Settings,
    going: list[Completion],
    cache: KVCache,
    logits: Array,  # [B, V]
) -> Iterator[str]:
    """Generate one token of every completion at a time; those that end are dropped."""
    while True:
        for completion, row in zip(going, logits, strict=True):
            token, logprob = settings.pick(completion.ids, row, completion.rng)
            yield completion.add(token, logprob)
        rows = [b for b, completion in enumerate(going) if not completion.finish_reason]
        if not rows:
            return
        if len(rows) < len(going):
            going, cache = [going[b] for b in rows], cache.select(rows)
        sequences = [completion.ids for completion in going]
        predictor.slide(sequences, cache)
        logits = predictor.after_last(np.array([ids[-1:] for ids in sequences]), cache)


def _prompt(model: Model, given: Any, settings: Settings) -> Ids:
    """Give the ids of a prompt, after what texts begin with where there is anything to begin."""
    ids = ragged.row(model, given, settings.special)
    start = model.tokenizer.begins_with if isinstance(given, str) else None
    if start is not None:  # the tokenizer's files ask for it, once
        return ids if ids[:1].tolist() == [start] else np.append(start, ids).astype(np.intp)
    if len(ids):
        return ids
    if model.bos is None:
        raise InputError(
            "an empty prompt starts from <|endoftext|>, which this model does not have: "
            "give at least one token id"
        )
    return np.array([model.bos], np.intp)


def _generators(seed: int | np.random.Generator | None, n: int) -> list[np.random.Generator]:
    if isinstance(seed, np.random.Generator):
        return [seed] if n == 1 else seed.spawn(n)
    return [np.random.default_rng(None if seed is None else seed + r) for r in range(n)]
