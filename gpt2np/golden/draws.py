"""A golden for sampling: logits, settings, what they keep, and the ids that given numbers draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt2np.golden.record import Golden
from gpt2np.sampling import Sampling
from gpt2np.version import __version__

V, HISTORY, DRAWS = 40, 8, 16

# Settings, in the order in which they take effect; what is None is off, and recorded as 0.
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7},
    {"temperature": 1.8},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 40},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.05},
    {"min_p": 0.5},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.8},
    {"no_repeat_ngram": 1},
    {"no_repeat_ngram": 2},
    {"no_repeat_ngram": 3},
    {"temperature": 0.7, "top_k": 10, "top_p": 0.8},
    {"temperature": 1.5, "top_p": 0.7, "min_p": 0.1},
    {"repetition_penalty": 1.2, "temperature": 0.8, "top_k": 20, "top_p": 0.95},
    {"repetition_penalty": 1.1, "no_repeat_ngram": 2, "temperature": 1.2, "top_k": 8, "min_p": 0.1},
)
NAMES = {
    "repetition_penalty": 1.0,
    "no_repeat_ngram": 0,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 0.0,
    "min_p": 0.0,
}


def record_sampling() -> Golden:
    """Record how tokens are chosen, each case with settings of its own.

    Returns
    -------
    Golden
        ``logits`` [C, V], ``ids`` [C, N] that came before, an array [C] for each setting; of what
        follows from these, ``kept`` [C, V] (1 or 0) and ``probabilities`` [C, V]; ``uniforms``
        [C, M] from 0 to 1, and ``drawn`` [C, M]: the first id, in order, at which the cumulative
        probability exceeds the uniform. None of these lies within 1e-4 of a boundary. Some
        logits of a case are equal; of equal ones at the edge of top_k the lower ids stay.

    Examples
    --------
    >>> golden = record_sampling()
    >>> {n: a.shape for n, a in golden.arrays.items() if a.ndim == 2}  # doctest: +ELLIPSIS
    {'logits': (20, 40), 'ids': (20, 8), ..., 'uniforms': (20, 16), 'drawn': (20, 16)}
    """
    random = np.random.RandomState(2019)
    C = len(SETTINGS)
    logits = random.standard_normal((C, V)) * 1.5
    logits[:, 7] = logits[:, 3]
    logits = logits.astype(np.float32)
    ids = random.randint(0, V, (C, HISTORY))
    ids[:, -2:] = ids[:, :2]  # so that n-grams repeat
    probabilities, kept = np.zeros((C, V)), np.zeros((C, V), np.int8)
    uniforms, drawn = np.zeros((C, DRAWS)), np.zeros((C, DRAWS), np.int64)
    for c, settings in enumerate(SETTINGS):
        sampling = Sampling(**settings)
        row = sampling.logits(ids[c], logits[c].astype(np.float64))
        weights = np.exp(row - row.max())
        probabilities[c], kept[c] = weights / weights.sum(), np.isfinite(row)
        edges = np.cumsum(probabilities[c])
        for n in range(DRAWS):
            while np.abs(edges - uniforms[c, n]).min() < 1e-4 or uniforms[c, n] == 0:
                uniforms[c, n] = random.random_sample()
            drawn[c, n] = np.flatnonzero(edges > uniforms[c, n])[0]
    columns = {
        name: np.array([settings.get(name, off) for settings in SETTINGS])
        for name, off in NAMES.items()
    }
    arrays = {
        **{"logits": logits, "ids": ids, **columns, "kept": kept},
        **{"probabilities": probabilities, "uniforms": uniforms, "drawn": drawn},
    }
    meta = {"order": list(NAMES), "versions": {"gpt2np": __version__, "numpy": np.__version__}}
    return Golden(arrays, meta, "sampling")
