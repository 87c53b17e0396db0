"""One forward pass over a text, and what the page shows of it."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpt2np.errors import InputError
from gpt2np.layers import log_softmax, softmax
from gpt2np.loading import Model
from gpt2np.model import forward, unembed
from gpt2np.params import Array
from gpt2np.recorder import Trace
from gpt2np.sampling import mask_from
from gpt2np.trace import POINTS
from gpt2np.vocabulary import unwritten, written

MOST_TOKENS = 64  # of a text: patterns grow with its square, and no one could read larger maps
LENS_ROWS = 256  # that are projected to logits at a time
MANY_HEADS = 400  # from which on there are fewer shades, columns and weights, for the page's size
TABLED = 12  # blocks that a table tells of at most


# Activations that are one vector for each token, as the flow has them.
VECTORS = ["embed", *(n for n, s in POINTS.items() if s.startswith("B T") and n != "logits")]


class Largest(NamedTuple):
    """The largest entries along the last axis, in descending order, and where they are."""

    at: npt.NDArray[np.intp]
    value: Array


class Opening(NamedTuple):
    """What the page shows before anything is chosen."""

    token: int
    block: int
    head: int


class Run:
    """A model's forward pass over a text of T tokens.

    Parameters
    ----------
    model : Model
    text : str

    Raises
    ------
    TokenizerError
        The model has no tokenizer.
    InputError
        The text has no tokens, or too many; or an activation is not a number.
    """

    def __init__(self, model: Model, text: str) -> None:
        self.model = model
        self.config = model.config
        self.tokenizer = model.tokenizer
        self.ids = self.tokenizer.encode(text)
        most = min(MOST_TOKENS, self.config.n_ctx)
        if not 1 <= len(self.ids) <= most:
            raise InputError(f"the text has {len(self.ids)} tokens: give a text of 1 to {most}")
        self.trace = Trace(copy=False)
        with np.errstate(all="ignore"):  # what comes of it is told below
            self.logits = forward(model.params, self.ids, probe=self.trace)[0]  # [T, V]
        self._check_numbers()

    def _check_numbers(self) -> None:
        """Refuse a run in which an activation is no number: there is nothing to be seen in it."""
        for name, array in self.trace.items():
            finite = np.isfinite(array)
            if name.endswith(".attn.scores"):  # what is masked is -inf
                finite |= array == -math.inf
            if not finite.all():
                raise InputError(
                    f"{name} is NaN or infinite at {int((~finite).sum()):,} of its {array.size:,} "
                    "numbers: the model's weights are damaged, or too large for "
                    f"{self.model.params.dtype}"
                )

    @property
    def text(self) -> str:
        """What the tokens spell."""
        return self.tokenizer.decode(self.ids)

    @property
    def tokens(self) -> list[str]:
        """The text's tokens as the page shows them."""
        return [self.token(id) for id in self.ids]

    def token(self, id: int) -> str:
        """A token of the vocabulary as the page shows it."""
        if id >= self.tokenizer.n_vocab:  # a row that pads the embedding
            return f"[{id}]"
        return shown(self.tokenizer.token_bytes(id))

    def merges(self, id: int) -> list[dict[str, Any]]:
        """How byte-level BPE spells a token: its bytes, and then what each merge leaves; with the
        merge's place in the list."""
        symbols = list(written(self.tokenizer.token_bytes(id)))
        rank_of = self.tokenizer._ranks
        steps: list[dict[str, Any]] = [{"parts": [shown(unwritten(s)) for s in symbols]}]
        while len(symbols) > 1:
            ranks = [rank_of.get(f"{a} {b}", math.inf) for a, b in pairwise(symbols)]
            if math.isinf(rank := min(ranks)):
                break  # a token that is no sum of merges
            i = ranks.index(rank)
            symbols[i : i + 2] = ["".join(symbols[i : i + 2])]
            steps.append({"parts": [shown(unwritten(s)) for s in symbols], "merge": int(rank) + 1})
        return steps

    @cached_property
    def opening(self) -> Opening:
        """Where there is something to be seen: the last token, and the head that takes most from a
        token which is neither that one nor the first."""
        t = len(self.ids) - 1
        others = self.pattern[:, :, t, 1:t].max(-1, initial=0)
        block, head = np.unravel_index(others.argmax(), others.shape)
        return Opening(t, int(block), int(head))

    @cached_property
    def surprisal(self) -> npt.NDArray[np.float64]:  # [T]
        """-log2 p of each token; NaN for the first, as nothing comes before it."""
        logprobs = log_softmax(self.logits[:-1])[np.arange(len(self.ids) - 1), self.ids[1:]]
        return np.append(math.nan, logprobs / -math.log(2))

    @cached_property
    def stream(self) -> dict[str, Array]:  # 2L + 1 of [T, D]
        """The residual stream: embedded, then after attention and after the MLP of each block.

        LayerNorm n of the 2L + 1 reads point n.
        """
        points = {"wte + wpe": self.trace["wte"][0] + self.trace["wpe"][0]}
        for i in range(self.config.n_layer):
            for name in (f"h.{i}.resid_mid", f"h.{i}"):
                points[name] = self.trace[name][0]
        return points

    @cached_property
    def stream_statistics(self) -> dict[str, Array]:  # each [2L + 1, T]
        """Of the stream's points: the length, and what its LayerNorm takes off and divides by."""
        x = np.stack(list(self.stream.values()))
        return {
            "norm":  np.linalg.norm(x, axis=-1),
            "mean":  x.mean(-1),
            "scale": np.sqrt(x.var(-1) + self.config.layer_norm_epsilon),
        }  # fmt: skip

    @cached_property
    def norms(self) -> dict[str, Array]:  # each [L, T], outside of the blocks [1, T]
        """The length of every activation that is one vector for each token, by its name."""
        return {name: self._norms(name) for name in VECTORS}

    def _norms(self, name: str) -> Array:
        norms: Array = np.linalg.norm(self.vectors(name), axis=-1)
        return norms

    def width(self, name: str) -> int:
        """How many numbers one of these vectors has."""
        x: Array = self.trace["wte" if name == "embed" else name.format(i=0)][0, 0]
        return x.size

    def vectors(self, name: str) -> Array:  # [L, T, n], outside of the blocks [1, T, n]
        """An activation of every block, a vector for each token."""
        if name == "embed":
            return self.stream["wte + wpe"][None]
        blocks = range(self.config.n_layer if "{i}" in name else 1)
        rows = np.stack([self.trace[name.format(i=i)][0] for i in blocks])
        return rows.reshape(*rows.shape[:2], -1)

    @cached_property
    def pattern(self) -> Array:  # [L, H, T, T]
        """What each token takes of those before it."""
        return np.stack([self.trace[f"h.{i}.attn.pattern"][0] for i in range(self.config.n_layer)])

    @cached_property
    def act(self) -> Array:  # [L, T, F]
        """The units of each MLP."""
        return np.stack([self.trace[f"h.{i}.mlp.act"][0] for i in range(self.config.n_layer)])

    @property
    def many_heads(self) -> bool:
        """Whether there are so many that maps are drawn coarser."""
        return self.config.n_layer * self.config.n_head > MANY_HEADS

    @property
    def shades(self) -> int:
        """The steps that a weight of attention is drawn in."""
        return 15 if self.many_heads else 255

    @property
    def tabled(self) -> list[int]:
        """The blocks that tables tell of: all, or every so many and the last."""
        last = self.config.n_layer - 1
        return list(range(last, -1, -math.ceil(self.config.n_layer / TABLED)))[::-1]

    @cached_property
    def act_map(self) -> Array:  # [L, T, 256 or fewer]
        """The largest of so many neighbouring units that the columns suffice."""
        starts = np.arange(0, self.config.n_inner, self.units_per_column)
        columns: Array = np.maximum.reduceat(self.act, starts, axis=-1)
        return columns

    @property
    def units_per_column(self) -> int:
        """How many units share a column of the map."""
        return math.ceil(self.config.n_inner / (64 if self.many_heads else 256))

    @cached_property
    def lens(self) -> Largest:  # [L + 1, T, 5]
        """The likeliest next tokens if the stream were read after the embedding, and after each
        block: the logit lens."""
        rows = np.concatenate(list(self.stream.values())[:-1:2])  # [L T, D]
        read = [
            largest(softmax(unembed(self.model.params, rows[None, i : i + LENS_ROWS])[0]), 5)
            for i in range(0, len(rows), LENS_ROWS)
        ]
        read.append(largest(softmax(self.logits), 5))
        at, value = (
            np.concatenate(part).reshape(-1, len(self.ids), part[0].shape[-1])
            for part in zip(*read, strict=True)
        )
        return Largest(at, value)

    @cached_property
    def next_logits(self) -> Array:  # [V]
        """The logits that the next token is drawn from."""
        return mask_from(self.logits[-1], self.tokenizer.n_vocab)


def largest(x: Array, k: int) -> Largest:
    """Find the k largest entries along the last axis; of equal ones that with the lower index.

    >>> largest(np.array([0.5, 0.1, 0.9]), 2)
    Largest(at=array([2, 0]), value=array([0.9, 0.5]))
    """
    k = min(k, x.shape[-1])
    at = np.argpartition(x, -k, axis=-1)[..., -k:]
    at.sort(axis=-1)
    order = np.argsort(-np.take_along_axis(x, at, -1), axis=-1, kind="stable")
    at = np.take_along_axis(at, order, -1)
    return Largest(at, np.take_along_axis(x, at, -1))


_VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥"}


def shown(token: bytes) -> str:
    """Write a token so that nothing of it is invisible; one that is no text, as its bytes.

    >>> shown(b" the"), shown(b"\\n"), shown("\\u202e".encode()), shown(b"\\xf0\\x9f")
    ('·the', '↵', '[U+202E]', '[f0 9f]')
    """
    try:
        text = token.decode("utf-8")
    except UnicodeDecodeError:
        return f"[{token.hex(' ')}]"
    return "".join(
        _VISIBLE.get(char) or (char if char.isprintable() else f"[U+{ord(char):04X}]")
        for char in text
    )
