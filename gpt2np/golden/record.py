"""Record a run: ids, activations, logits and what greedy decoding continues with."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.errors import InputError
from gpt2np.generation import generate
from gpt2np.golden.files import Golden
from gpt2np.golden.names import Array
from gpt2np.loading import Model
from gpt2np.model import check_ids, forward
from gpt2np.params import Ids, Params
from gpt2np.trace import Trace
from gpt2np.version import __version__

PAST = ("past.keys", "past.values")  # [L, B, H, N, K]


def record(
    model: Model,
    prompt: str | Sequence[int] | Sequence[Sequence[int]],
    *,
    points: str | Iterable[str] | None = None,
    cache_split: int = 0,
    new_tokens: int = 16,
    weights: bool = False,
) -> Golden:
    """Run a model and keep what it computes, for another implementation to be held against.

    Parameters
    ----------
    model : Model
        In float64, the recording is an oracle for any other precision.
    prompt : str or token ids, [T] or [B, T]
    points : str or iterable of str, optional
        Which activations, as globs (`gpt2np.trace`); all unless given.
    cache_split : int
        Read the first so many tokens in a pass of their own, and the rest through the cache:
        the activations are those of the second pass, and what the cache held before it is kept
        as ``past.keys`` and ``past.values``, [L, B, H, N, K].
    new_tokens : int
        How many ids greedy decoding adds at most, as the context allows.
    weights : bool
        Keep the weights too, under their names, so that causes can be told without the model.

    Returns
    -------
    Golden
        ``arrays`` by name, ``meta`` with versions and config; ``save(path)`` writes them.

    Raises
    ------
    InputError
        No activation has a name like `points`, or `cache_split` leaves one pass empty.

    Examples
    --------
    >>> import gpt2np
    >>> golden = record(gpt2np.load(), "First Citizen:", points="h.0.attn.*", new_tokens=2)
    >>> [(name, golden.arrays[name].shape) for name in ("ids", "h.0.attn.z", "greedy")]
    [('ids', (1, 3)), ('h.0.attn.z', (1, 3, 4, 32)), ('greedy', (1, 2))]
    """
    params, ids = model.params, _ids(model, prompt)
    trace = Trace(points, copy=False)
    logits, past = run_model(params, ids, trace, cache_split)
    if points is not None and not trace:
        raise InputError(f"no activation has a name like {points!r}: try 'h.*.attn.*'")
    new_tokens = min(new_tokens, params.config.n_ctx - ids.shape[1])
    continued = generate(
        model, list(ids), max_new_tokens=new_tokens, temperature=0, stop_at_eot=False
    )
    arrays: dict[str, Any] = {
        "ids": ids,
        **(dict(zip(PAST, past, strict=True)) if past else {}),
        **trace,
        "logits": logits,
        "greedy": np.array([generation.ids for generation in continued], np.int64),
        **(params if weights else {}),
    }
    meta = {
        "model": model.source,
        "text": prompt if isinstance(prompt, str) else None,
        "cache_split": cache_split,
        "dtype": str(params.dtype),
        "config": params.config.to_dict(),
        "versions": {
            "gpt2np": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
    }
    return Golden(arrays, meta)


def run_model(
    params: Params, ids: Ids, trace: Trace, cache_split: int = 0
) -> tuple[Array, tuple[Array, Array] | None]:
    """Run a model under a trace: its logits, and the keys and values of the first pass if there
    are two."""
    T = ids.shape[1]
    if not cache_split:
        return forward(params, ids, probe=trace), None
    if not 0 < cache_split < T:
        raise InputError(f"cache_split is {cache_split}; of {T} tokens, give 1 to {T - 1}")
    cache = KVCache(params, len(ids), T)
    forward(params, ids[:, :cache_split], cache)
    past = (cache.keys[..., :cache_split, :].copy(), cache.values[..., :cache_split, :].copy())
    return forward(params, ids[:, cache_split:], cache, probe=trace), past


def _ids(model: Model, prompt: str | Sequence[int] | Sequence[Sequence[int]]) -> Ids:
    if not isinstance(prompt, str):
        return check_ids(model.config, prompt).astype(np.int64)
    return check_ids(model.config, model.tokenizer.encode(prompt)).astype(np.int64)
