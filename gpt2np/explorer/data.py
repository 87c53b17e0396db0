"""What the page's script draws from: facts as JSON, and arrays packed into one piece of text."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt2np.explorer.run import Run, largest
from gpt2np.params import Array

NAMED = 1000  # next tokens that have their names on the page, to be drawn


def facts(run: Run) -> dict[str, Any]:
    """What is few: the tokens, the names of all that can be listed, and where the page opens."""
    named = largest(run.next_logits, NAMED).at
    ids = sorted({*run.lens.at.ravel().tolist(), *named.tolist()})
    return {
        "tokens": run.tokens,
        "ids": run.ids,
        "surprisal": [0.0, *run.surprisal[1:].tolist()],
        "names": {id: run.token(id) for id in ids},
        "points": list(run.stream),
        "shades": run.shades,
        "tabled": run.tabled,
        "opening": run.opening._asdict(),
    }


def arrays(run: Run) -> dict[str, npt.NDArray[Any]]:
    """What is much. The shades of maps are bytes; floats that are printed lose no digit."""
    queries, keys = np.tril_indices(len(run.ids))
    nearest, units = largest(run.pattern, 1 if run.many_heads else 3), largest(run.act, 5)
    peak = run.act_map.max((1, 2), keepdims=True)
    return {
        **{f"norm {name}": norms for name, norms in run.norms.items()},
        "stream": np.stack(list(run.stream_statistics.values())),
        "pattern": _shades(run.pattern[..., queries, keys], run.shades),
        "nearest": nearest.at.astype(np.uint8),
        "weights": nearest.value,
        "units": units.at.astype(np.int32),
        "activations": units.value,
        "active": (run.act > 0).mean(-1),
        "mlp": _shades(run.act_map / np.where(peak > 0, peak, 1)),
        "peaks": peak,
        "lens": run.lens.at.astype(np.int32),
        "chances": run.lens.value,
        "logits": run.next_logits,
    }


def _shades(x: Array, most: int = 255) -> npt.NDArray[np.uint8]:
    """0 to 1 as 0 to `most`."""
    shades: npt.NDArray[np.uint8] = np.rint(most * np.clip(x, 0, 1)).astype(np.uint8)
    return shades


def pack(arrays: dict[str, npt.NDArray[Any]]) -> tuple[list[Any], str]:
    """Pack arrays into text: a list of (name, type, shape), and all bytes, compressed, as base64.

    Floats become float32. Of numbers of several bytes all first bytes come first, then all second
    ones and so on, as like compresses with like.

    >>> pack({"x": np.array([[1, 2, 3]], np.uint8)})[0]
    [('x', 'u1', (1, 3))]
    """
    entries, parts = [], []
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, "<f4" if array.dtype.kind == "f" else None)
        bytes_of_each = little.reshape(-1, 1).view(np.uint8)
        entries.append((name, little.dtype.str[1:], array.shape))
        parts.append(bytes_of_each.T.tobytes())
    return entries, base64.b64encode(zlib.compress(b"".join(parts), 9)).decode()
