"""From a prompt to more text: generate() and stream(), which are one loop.

prompt ids -> Predictor.prefill: one pass over them all        logits of the last position
  -> Settings.pick                                             one token of each sequence
  -> Completion.add                                            text that may be shown
  -> forward, one new position a sequence, through the cache   logits
  -> ... until each has its tokens, a stop string or the end of text
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from gpt2np.answers import answering
from gpt2np.errors import InputError
from gpt2np.generation.completion import Generation
from gpt2np.generation.job import Job
from gpt2np.generation.settings import Options, Settings
from gpt2np.loading import Model, as_model
from gpt2np.ragged import IdArray, Row, Rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Generation", "Settings", "generate", "stream"]

# A type checker cannot say "2 or more". Of a number that it does not know, it gets both types.
Several: TypeAlias = Literal[
    2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20, 24, 25, 30, 32, 40, 50, 64, 100, 128, 200, 256, 500
]


# A str is an iterable of str too: what fits both overloads is the one text of the first.
@overload
def generate(  # type: ignore[overload-overlap]
    model: Model, prompt: Row, *, num_samples: Literal[1] = 1, **options: Unpack[Options]
) -> Generation: ...
@overload
def generate(  # type: ignore[overload-overlap]
    model: Model, prompt: Row, *, num_samples: Several, **options: Unpack[Options]
) -> list[Generation]: ...
@overload
def generate(  # type: ignore[overload-overlap]
    model: Model, prompt: Row, *, num_samples: int, **options: Unpack[Options]
) -> Generation | list[Generation]: ...
@overload
def generate(
    model: Model, prompt: IdArray, *, num_samples: int = 1, **options: Unpack[Options]
) -> Generation | list[Generation] | list[list[Generation]]: ...
@overload
def generate(
    model: Model, prompt: Rows, *, num_samples: Literal[1] = 1, **options: Unpack[Options]
) -> list[Generation]: ...
@overload
def generate(
    model: Model, prompt: Rows, *, num_samples: Several, **options: Unpack[Options]
) -> list[list[Generation]]: ...
@overload
def generate(
    model: Model, prompt: Rows, *, num_samples: int, **options: Unpack[Options]
) -> list[Generation] | list[list[Generation]]: ...
@answering(Settings)
def generate(model: Model, prompt: Any, **options: Any) -> Any:
    """Continue a text, or several.

    Parameters
    ----------
    model : Model
    prompt : str, token ids, or a list of either
        An empty text starts from ``model.bos``, ``<|endoftext|>`` as a rule. The prompts of a list
        may have any lengths, and each gives what it gives alone. Any iterable of texts is a list
        of them: a generator, a Series.
    max_new_tokens : int
        A completion has at most so many tokens.
    temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, processors
        How each token is chosen, in the order and with the results of Hugging Face's: see
        `gpt2np.sampling`. ``temperature=0`` is greedy. A processor is a function
        (ids, logits) -> logits of one sequence, its prompt included. The logits are its own to
        change, the ids are read-only.
    num_samples : int
        How many completions of each prompt, which is read once.
    num_beams, length_penalty, early_stopping
        Beam search, for `num_beams` of 2 or more: see `gpt2np.generation.beams`. It draws nothing,
        so it takes neither a temperature nor top_k, top_p, min_p or num_samples.
    seed : int or numpy Generator, optional
        The same seed gives the same text. The r-th completion of a call (of a list of prompts,
        all of the first one come first) draws from ``default_rng(seed + r)``, so that it is the
        one that ``seed + r`` gives alone. Of a Generator, several completions draw from what it
        spawns. Without a seed every call differs.
    stop : str or list of str, optional
        Text that ends the completion. It may span tokens, and is not part of ``text``.
    stop_at_eot : bool
        Whether the end of text ends the completion; it is not part of ``text`` then.
    eos : int or list of int, optional
        The ids that end a text: the model's own, ``model.eos``, unless given.
    special : bool
        Whether a special token that a prompt spells, such as ``<|endoftext|>``, means itself. If
        not it is plain text, which is what text from elsewhere should be.
    lookup : int, optional
        Speed up text that repeats itself with drafts of up to so many tokens (15 serve well):
        see `gpt2np.generation.lookup`. Greedy completions stay as they are; sampled ones keep their
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
        An argument has a value that cannot be used. It is a TypeError too where there is no such
        argument, and says what another library's is called here.
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
    job = Job(as_model(model), prompt, Settings(**options))
    for _ in job.pieces():
        pass
    return job.results()


@answering(Settings)
def stream(
    model: Model,
    prompt: Row | IdArray,
    *,
    num_samples: Literal[1] = 1,
    **options: Unpack[Options],
) -> Iterator[str]:
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
    job = Job(as_model(model), prompt, Settings(num_samples=num_samples, **options))
    if len(job.completions) > 1 or job.many:
        raise InputError("stream gives one text: give it one prompt, and num_samples=1")
    return (piece for piece in job.pieces() if piece)
