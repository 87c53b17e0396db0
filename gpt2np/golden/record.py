"""Record a run: ids, activations, logits and what greedy decoding continues with."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpt2np import dumps, ragged
from gpt2np.cache import KVCache
from gpt2np.checkpoints.base import map_file
from gpt2np.config import Config
from gpt2np.dumps import AnyArray
from gpt2np.errors import CheckpointError, InputError, as_integer, shown
from gpt2np.layers import log_softmax
from gpt2np.loading import Model, as_model
from gpt2np.model import forward
from gpt2np.params import Array, Ids, Params
from gpt2np.recorder import Trace
from gpt2np.version import __version__

PAST = ("past.keys", "past.values")  # [L, B, H, N, K]
DEBUG_STATE = 20240327  # how llm.c's debug state begins
MAX_SIZE = 1 << 31  # of any number of a config
MAX_LAYERS = 1_000


@dataclass(frozen=True, repr=False)
class Golden:
    """Named arrays, and the facts about them: which model, config, text and versions."""

    arrays: Mapping[str, AnyArray]
    meta: Mapping[str, Any] = field(default_factory=dict)
    name: str = "the recording"  # what messages call it

    def __repr__(self) -> str:
        return f"Golden({self.name}: {len(self.arrays)} arrays, {shown([*self.arrays])})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.npz`` or ``.safetensors`` file, or a folder of ``.npy`` files."""
        dumps.save(path, self.arrays, self.meta)

    @property
    def config(self) -> Config | None:
        """The config of the model, where the recording knows it."""
        values = self.meta.get("config")
        if values is None:
            return None
        numbers = values.values() if isinstance(values, dict) else [math.inf]
        if any(abs(n) > MAX_SIZE for n in numbers if isinstance(n, int | float)):
            raise CheckpointError(f"{self.name}: its config is none: {shown(values)}")
        config = Config.from_dict(values)
        if config.n_layer > MAX_LAYERS:
            raise CheckpointError(f"{self.name}: its config makes {config.n_layer} layers")
        return config

    @staticmethod
    def load(path: str | os.PathLike[str], vocab_sizes: Iterable[int] = ()) -> Golden:
        """Load a recording in any of these forms, or the debug state that llm.c works with.

        Parameters
        ----------
        path : str or path
        vocab_sizes : iterable of int
            How many logits there may be at each position of a debug state, which does not say;
            50257 is tried as well.

        Raises
        ------
        CheckpointError
            The file is of none of the forms, or damaged.
        """
        path = Path(path)
        if path.suffix == ".bin":
            return Golden(_load_debug_state(path, vocab_sizes), name=str(path))
        return Golden(*dumps.load(path), str(path))


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
        How many ids greedy decoding adds at most, as the context allows; the logits that each
        was taken from are kept as ``greedy.logits``.
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
    params, ids = as_model(model).params, _ids(model, prompt)
    trace = Trace(points, copy=False)
    logits, past = run_model(params, ids, trace, cache_split)
    if points is not None and not trace:
        raise InputError(f"no activation has a name like {points!r}: try 'h.*.attn.*'")
    room = params.config.n_ctx - ids.shape[1]
    new_tokens = min(as_integer("new_tokens", new_tokens, 0), room)
    greedy, greedy_logits = continue_greedily(params, ids, new_tokens)
    arrays: dict[str, Any] = {
        "ids": ids,
        **(dict(zip(PAST, past, strict=True)) if past else {}),
        **trace,
        "logits": logits,
        "greedy.logits": greedy_logits,
        "greedy": greedy,
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


def continue_greedily(params: Params, ids: Ids, steps: int) -> tuple[Ids, Array]:
    """Take the likeliest token, one after another through the cache: ids [B, N], logits [B, N, V].

    The logits are those that each id was taken from.
    """
    B, V = len(ids), params.config.vocab_size
    taken, logits = np.zeros((B, steps), np.int64), np.zeros((B, steps, V), params.dtype)
    cache, new = KVCache(params, B), ids
    for n in range(steps):
        logits[:, n] = forward(params, new, cache, last_only=True)[:, 0]
        new = logits[:, n].argmax(-1)[:, None]
        taken[:, n] = new[:, 0]
    return taken, logits


def run_model(
    params: Params, ids: Ids, trace: Trace, cache_split: int = 0
) -> tuple[Array, tuple[Array, Array] | None]:
    """Run a model under a trace: its logits, and the keys and values of the first pass if there
    are two."""
    T = ids.shape[1]
    if not cache_split:
        return forward(params, ids, probe=trace), None
    if not 0 < cache_split < T:
        help = f"of {T} tokens, give 1 to {T - 1}" if T > 1 else "one token is not split"
        raise InputError(f"cache_split is {cache_split}; {help}")
    cache = KVCache(params, len(ids), T)
    forward(params, ids[:, :cache_split], cache)
    past = (cache.keys[..., :cache_split, :].copy(), cache.values[..., :cache_split, :].copy())
    return forward(params, ids[:, cache_split:], cache, probe=trace), past


def _ids(model: Model, prompt: str | Sequence[int] | Sequence[Sequence[int]]) -> Ids:
    rows, _ = ragged.parse(model, prompt)
    if len({len(row) for row in rows}) > 1:
        raise InputError("the sequences of a recording have one length, for none is padded")
    return np.stack(rows).astype(np.int64)


def _load_debug_state(path: Path, vocab_sizes: Iterable[int]) -> dict[str, AnyArray]:
    """llm.c's write_state: a header of 256 int32; ids and targets [B, T]; logits [B, T, V]; the
    loss; gradients, which are left out.

    V is not in the file: it is the size for which the logits make the loss that follows them.
    """
    data = map_file(path)
    header = data[:1024].view("<i4") if len(data) >= 1024 else [0]
    if header[0] != DEBUG_STATE:
        raise CheckpointError(f"{path} is not a debug state of llm.c, as write_state writes it")
    B, T = int(header[2]), int(header[3])
    rest = data[1024 : len(data) // 4 * 4].view("<i4")
    if B < 1 or T < 1 or len(rest) < 2 * B * T:
        raise CheckpointError(f"{path} is cut short: it should have {B} x {T} ids and targets")
    ids, targets = rest[: 2 * B * T].reshape(2, B, T)
    numbers = rest[2 * B * T :].view("<f4")
    sizes = [*vocab_sizes, 50257]
    for V in sizes:
        n = B * T * V
        if n < len(numbers) and targets.min() >= 0 and targets.max() < V:
            logits, loss = numbers[:n].reshape(B, T, V), numbers[n]
            picked = np.take_along_axis(log_softmax(logits), targets[..., None].astype(int), -1)
            if math.isclose(-picked.mean(dtype=float), loss, rel_tol=1e-3):
                return {"ids": ids, "logits": logits, "loss": loss}
    raise CheckpointError(
        f"{path}: its loss is not that of {' or '.join(map(str, sizes))} logits at "
        "each position: it is damaged, or of another model than the one given"
    )
