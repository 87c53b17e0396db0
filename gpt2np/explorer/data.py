"""What the page's script draws from: facts as JSON, and arrays packed into one piece of text."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpt2np.errors import InputError
from gpt2np.explorer.run import VECTORS, Run, largest
from gpt2np.explorer.terms import of_attention, of_run
from gpt2np.params import Array
from gpt2np.vocabulary import written

NAMED = 1000  # next tokens that have their names on the page, to be drawn
LIVE_MEGABYTES = 64  # a page with a model in it
LIVE_ACTIVATIONS = {  # config's name, and live.js's
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu": "gelu",
    "gelu_python": "gelu",
}
ROOM = 1_900_000  # bytes of vectors that leave the page below 3 MB


def facts(run: Run) -> dict[str, Any]:
    """What is few: the tokens, the names of all that can be listed, and where the page opens."""
    named = largest(run.next_logits, NAMED).at
    ids = sorted({*run.lens.at.ravel().tolist(), *named.tolist()})
    return {
        "tokens": run.tokens,
        "ids": run.ids,
        "surprisal": [0.0, *run.surprisal[1:].tolist()],
        "names": {id: run.token(id) for id in ids},
        "merges": [run.merges(id) for id in run.ids],
        "points": list(run.stream),
        "D": run.config.n_embd,
        "K": run.config.head_width,
        "scales": [run.config.score_scale(i) for i in range(run.config.n_layer)],
        "shades": run.shades,
        "tabled": run.tabled,
        "opening": run.opening._asdict(),
    }


class Packed(NamedTuple):
    """An array, and the type to write it in: u1, u2, i4, f4, or f3, which is f4 without a byte: it
    is right to 2 in 100,000."""

    type: str
    array: npt.NDArray[Any]


def arrays(run: Run, kept: Kept) -> dict[str, Packed]:
    """What is much. The shades of maps are coarse; numbers that are printed are as they are."""
    queries, keys = np.tril_indices(len(run.ids))
    nearest, units = largest(run.pattern, 1 if run.many_heads else 3), largest(run.act, 5)
    peak = run.act_map.max((1, 2), keepdims=True)
    return {
        **{f"norm {name}": Packed("f4", norms) for name, norms in run.norms.items()},
        "stream": Packed("f4", np.stack(list(run.stream_statistics.values()))),
        "pattern": Packed("u1", _shades(run.pattern[..., queries, keys], run.shades)),
        "nearest": Packed("u1", nearest.at),
        "weights": Packed("f4", nearest.value),
        "units": Packed("u2", units.at),
        "activations": Packed("f4", units.value),
        "active": Packed("f4", (run.act > 0).mean(-1)),
        "mlp": Packed("u1", _shades(run.act_map / np.where(peak > 0, peak, 1))),
        "peaks": Packed("f4", peak),
        "lens": Packed("i4", run.lens.at),
        "chances": Packed("f4", run.lens.value),
        "logits": Packed("f4", run.next_logits),
        **_vectors(run, kept),
        **_terms(run, kept),
    }


def _shades(x: Array, most: int = 255) -> npt.NDArray[np.uint8]:
    """0 to 1 as 0 to `most`."""
    shades: npt.NDArray[np.uint8] = np.rint(most * np.clip(x, 0, 1)).astype(np.uint8)
    return shades


def live(run: Run) -> tuple[dict[str, Any], dict[str, Packed]]:
    """The model and its tokenizer, for the page to run: facts and arrays.

    Weights that have 16 bits, as the embedded model's, are written so; others in float32.

    Raises
    ------
    InputError
        The page would be too large, or there is no script for the model's activation function or
        its tokenizer.
    """
    config, params = run.config, run.model.params
    half = all((array.astype("<f2") == array).all() for array in params.values())
    megabytes = params.n_params * (2 if half else 4) * 4 / 3 / 1e6
    if megabytes > LIVE_MEGABYTES:
        raise InputError(
            f"with the model in it the page would have about {megabytes:,.0f} MB, and a browser "
            f"should not be given more than {LIVE_MEGABYTES}: leave out --live"
        )
    if config.activation_function not in LIVE_ACTIVATIONS:
        raise InputError(
            f"the page's script has no {config.activation_function}, only "
            f"{' and '.join(sorted(LIVE_ACTIVATIONS))}: leave out --live"
        )
    merges, tokens = _vocabulary(run)
    facts = {
        **{"L": config.n_layer, "H": config.n_head, "D": config.n_embd, "K": config.head_width},
        **{"V": config.vocab_size, "n_ctx": config.n_ctx, "epsilon": config.layer_norm_epsilon},
        "scales": [config.score_scale(i) for i in range(config.n_layer)],
        "activation": LIVE_ACTIVATIONS[config.activation_function],
    }
    weights = {
        f"weight {name}": Packed("f2" if half else "f4", array) for name, array in params.items()
    }
    return facts, {"merges": _text(merges), "tokens": _text(tokens), **weights}


def _vocabulary(run: Run) -> tuple[str, str]:
    """The merges, a line each, and the tokens as they are written, as JSON."""
    vocabulary = run.tokenizer._vocabulary
    ways = vocabulary.add_prefix_space, vocabulary.cut, vocabulary.normalizers, vocabulary.splits
    of_its_own = any(not added.special for added in vocabulary.added.values())
    if ways != (False, True, (), ()) or run.tokenizer._lacking or of_its_own:
        raise InputError(
            "the page's script has GPT-2's own kind of tokenizer only: leave out --live"
        )
    tokens = [written(run.tokenizer.token_bytes(id)) for id in range(run.tokenizer.n_vocab)]
    return "\n".join(vocabulary.merges), json.dumps(tokens)


def _text(text: str) -> Packed:
    return Packed("u1", np.frombuffer(text.encode(), np.uint8))


class Kept(NamedTuple):
    """Which vectors are in the page: of all tokens or of the last, and in which type."""

    all: bool
    type: str

    @property
    def tokens(self) -> slice:
        """Of which tokens."""
        return slice(None) if self.all else slice(-1, None)


def kept(run: Run, wish: str | None = None) -> Kept:
    """Decide what the page has room for, or do as was wished.

    Parameters
    ----------
    wish : "all" or "last", optional
    """
    each = sum(run.norms[name].shape[0] * run.width(name) for name in VECTORS)
    every = each * len(run.ids)
    if wish == "all" or (wish is None and 3 * every <= ROOM):
        return Kept(True, "f4" if 4 * every <= ROOM else "f3")
    return Kept(len(run.ids) == 1, "f4" if 4 * each <= ROOM else "f3" if 3 * each <= ROOM else "u1")


def _vectors(run: Run, kept: Kept) -> dict[str, Packed]:
    """Every activation that is a vector for each token, and the scores behind the patterns."""
    exact = "f4" if kept.type == "f4" else "f3"
    scores = np.stack(
        [run.trace[f"h.{i}.attn.scores"][0, :, kept.tokens] for i in range(run.config.n_layer)]
    )
    found = {"scores": Packed(exact, np.where(np.isfinite(scores), scores, 0))}  # [L, H, T, T]
    for name in VECTORS:
        x = run.vectors(name)[:, kept.tokens]
        if kept.type == "u1":
            low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
            found[f"coarse {name}"] = Packed(
                "u1", _shades((x - low) / np.maximum(high - low, 1e-30))
            )
            found[f"range {name}"] = Packed("f3", np.concatenate([low, high], -1))
        else:
            found[f"vector {name}"] = Packed(kept.type, x)
    return found


def _terms(run: Run, kept: Kept) -> dict[str, Packed]:
    exact = "f4" if kept.type == "f4" else "f3"
    parts = of_run(run, kept.tokens) | ({} if kept.all else of_attention(run))
    return {
        f"{field} {name}": Packed("i4" if field in ("cell", "at") else exact, value)
        for name, terms in parts.items()
        for field, value in terms._asdict().items()
        # The script knows x, unless that is a vector in 8 bits.
        if field != "x" or kept.type == "u1" or name in ("attn.scores", "attn.z")
    }


def pack(arrays: Mapping[str, Packed]) -> tuple[list[Any], str]:
    """Pack arrays into text: a list of (name, type, shape), and all bytes, compressed, as base64.

    Of numbers of several bytes all first bytes come first, then all second ones and so on, as like
    compresses with like.

    >>> pack({"x": Packed("u2", np.array([[1, 2, 3]]))})[0]
    [('x', 'u2', (1, 3))]
    """
    entries, parts = [], []
    for name, (kind, array) in arrays.items():
        entries.append((name, kind, array.shape))
        parts.append(_planes(kind, array))
    return entries, base64.b64encode(zlib.compress(b"".join(parts), 9)).decode()


def _planes(kind: str, array: npt.NDArray[Any]) -> bytes:
    little = np.ascontiguousarray(array, "<f4" if kind == "f3" else f"<{kind}")
    planes = little.reshape(-1, 1).view(np.uint8).T
    if kind == "f3":  # rounded, to 16 bits after the first
        rounded = little.reshape(-1, 1).view("<u4") + np.uint32(128)
        planes = rounded.astype("<u4").view(np.uint8).T[1:]
    data: bytes = planes.tobytes()
    return data
