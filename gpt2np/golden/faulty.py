"""Parts of GPT-2 with a fault in them: each gives the activation of its `Site` as it is then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpt2np.checkpoints.base import bfloat16_to_float32, float32_to_bfloat16
from gpt2np.config import Config
from gpt2np.golden.names import kind_and_block
from gpt2np.layers import softmax
from gpt2np.model import self_attention
from gpt2np.params import Array, Ids, Params
from gpt2np.trace import Tap


@dataclass(frozen=True)
class Computation:
    """What is known of a computation."""

    at: Mapping[str, Array]  # its activations by point, `embed` among them
    config: Config | None = None
    params: Mapping[str, Array] = field(default_factory=dict)
    ids: Ids | None = None  # [B, N + T]
    past: tuple[Array, Array] | None = None  # keys and values [L, B, H, N, K] of the first N

    @property
    def held(self) -> int:
        """N, how many positions were read before."""
        return 0 if self.past is None else int(self.past[0].shape[3])


@dataclass(frozen=True)
class Site:
    """A point of a run. What was not recorded raises a KeyError where it is asked for."""

    run: Computation
    point: str
    clean: Array  # the activation without a fault

    def __getitem__(self, name: str) -> Array:
        """Give an activation; {i} stands for this block."""
        return self.run.at[name.format(i=self.i)]

    @property
    def i(self) -> int:
        return kind_and_block(self.point)[1]

    @property
    def config(self) -> Config:
        if self.run.config is None:
            raise KeyError("config")
        return self.run.config

    @property
    def x(self) -> Array:  # [B, T, D]
        """What goes into the block; into ln_f, for that."""
        i = self.config.n_layer if self.point == "ln_f" else self.i
        return self[f"h.{i - 1}" if i else "embed"]

    @property
    def input(self) -> Array:
        """What a LayerNorm or a linear map is applied to."""
        match kind_and_block(self.point)[0]:
            case "h.{i}.attn.c_attn":
                return self["h.{i}.ln_1"]
            case "h.{i}.attn.c_proj":
                z = self["h.{i}.attn.z"]
                return z.reshape(*z.shape[:2], -1)
            case "h.{i}.ln_2":
                return self["h.{i}.resid_mid"]
            case "h.{i}.mlp.c_fc":
                return self["h.{i}.ln_2"]
            case "h.{i}.mlp.c_proj":
                return self["h.{i}.mlp.act"]
        return self.x

    def parameter(self, kind: str, module: str = "") -> Array:
        """Give the weight or bias of the point's module, or of another one."""
        return self.run.params[f"{module.format(i=self.i) or self.point}.{kind}"]

    @property
    def head(self) -> Array:  # [V, D]
        tied = self.config.tie_word_embeddings
        return self.run.params["wte.weight" if tied else "lm_head.weight"]

    @property
    def ids(self) -> Ids:  # [B, T]
        if self.run.ids is None:
            raise KeyError("ids")
        return self.run.ids[:, self.run.held :]

    def keys(self, which: int = 0) -> Array:  # [B, H, S, K]
        """The keys, or with 1 the values, of all positions."""
        new = self["h.{i}.attn.v" if which else "h.{i}.attn.k"]
        if self.run.past is None:
            return new
        return np.concatenate([self.run.past[which][self.i], new], axis=2)


def tokens(s: Site, shift: int) -> Array:
    """The rows of wte for other ids; what lies beyond the vocabulary is mine."""
    ids, V = s.ids + shift, s.config.vocab_size
    rows: Array = s.run.params["wte.weight"][ids % V]
    beyond = (ids < 0) | (ids >= V)
    return np.where(beyond[..., None], s["mine"], rows) if beyond.any() else rows


def positions(s: Site, first: int) -> Array:
    rows = (np.arange(s.ids.shape[1]) + first) % s.config.n_ctx
    return np.broadcast_to(s.run.params["wpe.weight"][rows], s.clean.shape)


def norm(
    s: Site,
    *,
    epsilon: float | None = None,
    ddof: int = 0,
    outside: bool = False,
    centred: bool = True,
    gain: bool = True,
    bias: bool = True,
    exchanged: bool = False,
    module: str = "",
    x: Array | None = None,
) -> Array:
    """LayerNorm, of which each part can be another one."""
    x = s.input if x is None else x
    epsilon = s.config.layer_norm_epsilon if epsilon is None else epsilon
    if centred:
        x = x - x.mean(-1, keepdims=True)
    variance = (x * x).sum(-1, keepdims=True) / (x.shape[-1] - ddof)
    x = x / (variance**0.5 + epsilon if outside else (variance + epsilon) ** 0.5)
    g, b = s.parameter("weight", module), s.parameter("bias", module)
    g, b = (b, g) if exchanged else (g, b)
    x = x * g if gain else x
    return x + b if bias else x


def norm_afterwards(s: Site) -> Array:
    """A block of the first GPT: LayerNorm of what attention and MLP have been added to."""
    match kind_and_block(s.point)[0]:
        case "h.{i}.resid_mid":
            return norm(s, x=s.clean, module="h.{i}.ln_1")
        case "h.{i}":
            return norm(s, x=s.clean, module="h.{i}.ln_2")
    return s.input


def norm_after_attention(s: Site) -> Array:
    """LayerNorm of the stream and of what attention, which got it as it was, adds to it."""
    if s.run.held or not isinstance(s.run.params, Params):
        raise KeyError("the attention of the block")
    attention = s.run.params.blocks[s.i].attn
    return norm(s, x=s.x + self_attention(s.x, attention, s.i, s.config, None, Tap(None)))


def onto_norm(s: Site) -> Array:
    """A residual stream that goes on from LayerNorm's output, and not from its input."""
    if s.point.endswith("resid_mid"):
        return s["h.{i}.ln_1"] + s["h.{i}.attn.c_proj"]
    return s["h.{i}.ln_2"] + s["h.{i}.mlp.c_proj"]


def branch(s: Site) -> Array:
    """What a residual stream would be without what it goes on from."""
    return s["h.{i}.attn.c_proj" if s.point.endswith("resid_mid") else "h.{i}.mlp.c_proj"]


def without_last_block(s: Site) -> Array:
    """The final LayerNorm of what goes into the last block."""
    i = s.config.n_layer - 2
    return norm(s, x=s[f"h.{i}" if i >= 0 else "embed"])


def linear(
    s: Site,
    *,
    weight: Callable[[Array], Array] = np.asarray,
    bias: bool = True,
    module: str = "",
    x: Array | None = None,
) -> Array:
    """x W + b, of which each part can be another one."""
    y = product(s.input if x is None else x, weight(s.parameter("weight", module)))
    return y + s.parameter("bias", module) if bias else y


def product(x: Array, W: Array) -> Array:  # [..., in], [in, out] -> [..., out]
    """x W; of a large matrix some columns at a time, as NumPy makes a copy in x's dtype."""
    step = max(1, (1 << 22) // len(W))
    parts = [x @ W[:, start : start + step] for start in range(0, W.shape[1], step)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, -1)


def scores(
    s: Site,
    *,
    scale: float | None = None,
    sees: int = 0,
    hidden: Array | None = None,
    fill: float = -np.inf,
    exchanged: bool = False,
) -> Array:
    """The scores, with another factor or another mask; `sees` counts from the diagonal."""
    q, k = s["h.{i}.attn.q"], s.keys()
    T, S = q.shape[2], k.shape[2]
    if exchanged:
        if T < S:
            raise KeyError("the queries of what is cached")
        q, k = k, q
    products = q @ k.swapaxes(-1, -2)
    scale = s.config.score_scale(s.i) if scale is None else scale
    if hidden is None:
        hidden = np.triu(np.ones((T, S), bool), S - T + 1 + sees)
    masked: Array = np.where(hidden, fill, products * scale)
    return masked


def unmasked(s: Site) -> Array:
    return scores(s, sees=s.keys().shape[2])


def mask_reversed(s: Site) -> Array:
    T, S = s["h.{i}.attn.q"].shape[2], s.keys().shape[2]
    return scores(s, hidden=np.tril(np.ones((T, S), bool), S - T - 1))


def masked_late(s: Site) -> Array:
    """The softmax of all scores, and then zeros for the future, so that rows fall short of 1."""
    return np.where(s["h.{i}.attn.scores"] == -np.inf, 0, softmax(unmasked(s)))


def softmax_over_queries(s: Site) -> Array:
    turned = np.ascontiguousarray(s["h.{i}.attn.scores"].swapaxes(-1, -2))
    pattern: Array = softmax(turned).swapaxes(-1, -2)
    return pattern


def softmax_over(s: Site, axes: int | tuple[int, ...]) -> Array:
    """The softmax over other axes of [B, H, T, S]."""
    x = s["h.{i}.attn.scores"]
    pattern: Array = np.exp(x - x.max(axes, keepdims=True))
    pattern /= pattern.sum(axes, keepdims=True)
    return pattern


def softmax_without_maximum(s: Site) -> Array:
    """exp in float32 is infinite from 88.73 on, and infinity over infinity is not a number."""
    pattern: Array = np.exp(s["h.{i}.attn.scores"].astype(np.float32))
    pattern /= pattern.sum(-1, keepdims=True)
    return pattern


def softmax_and_one(s: Site) -> Array:
    x = s["h.{i}.attn.scores"]
    top = x.max(-1, keepdims=True)
    pattern: Array = np.exp(x - top)
    pattern /= pattern.sum(-1, keepdims=True) + np.exp(-top)
    return pattern


def cut(s: Site, *, order: Sequence[str] = "qkv", layout: str = "3HK") -> Array:
    """Queries, keys or values out of c_attn, taken for parts in another order or layout."""
    qkv, H = s["h.{i}.attn.c_attn"], s.config.n_head
    B, T, D3 = qkv.shape
    K = D3 // 3 // H
    parts: Array = {  # [3, B, H, T, K]
        "3HK": qkv.reshape(B, T, 3, H, K).transpose(2, 0, 3, 1, 4),
        "3KH": qkv.reshape(B, T, 3, K, H).transpose(2, 0, 4, 1, 3),
        "H3K": qkv.reshape(B, T, H, 3, K).transpose(3, 0, 2, 1, 4),
        "3TH": qkv.reshape(B, T, 3, H * K).transpose(2, 0, 1, 3).reshape(3, B, H, T, K),
    }[layout]
    part: Array = parts[order.index(s.point[-1])]
    return part


def columns(s: Site, order: Sequence[str]) -> Array:
    parts = dict(zip("qkv", np.split(s.clean, 3, axis=-1), strict=True))
    return np.concatenate([parts[letter] for letter in order], axis=-1)


def columns_by_head(s: Site) -> Array:
    B, T, _ = s.clean.shape
    by_head: Array = s.clean.reshape(B, T, 3, s.config.n_head, -1).swapaxes(2, 3)
    return by_head.reshape(s.clean.shape)


def heads_unmoved(z: Array) -> Array:
    """z as it is if [B, H, T, K] is read as [B, T, H K]."""
    unmoved: Array = z.swapaxes(1, 2).reshape(z.shape)
    return unmoved


def another_head(s: Site) -> Array:
    """ln_f times the matrix that fits my logits best; any do where positions are few."""
    h, mine = (x.reshape(-1, x.shape[-1]).astype(float) for x in (s["ln_f"], s["mine"]))
    logits: Array = h @ np.linalg.lstsq(h, mine)[0]
    return logits.reshape(s.clean.shape)


def to_float16(x: Array) -> Array:
    return x.astype(np.float16).astype(x.dtype)


def to_bfloat16(x: Array) -> Array:
    rounded = bfloat16_to_float32(float32_to_bfloat16(x.astype(np.float32)))
    return rounded.astype(x.dtype)


def misread(W: Array) -> Array:  # [in, out] -> [in, out]
    """[out, in] taken for [in, out]: for a square matrix, its transpose."""
    return np.ascontiguousarray(W.T).reshape(W.shape)


def misread_back(W: Array) -> Array:  # [in, out] -> [in, out]
    """[in, out] taken for [out, in]; for a square matrix, the above."""
    if W.shape[0] == W.shape[1]:
        return W
    read: Array = np.ascontiguousarray(W).reshape(W.T.shape).T
    return read


def silu(x: Array) -> Array:
    y: Array = x / (1 + np.exp(-x))
    return y


def dropped_out(mine: Array, clean: Array) -> Array:
    """The reference with zeros where mine has them, and all else some times as large."""
    kept = (mine != 0) & (clean != 0)
    if kept.sum() == np.count_nonzero(clean):
        return clean
    return np.where(kept, clean * factor(np.where(kept, mine, np.nan), clean), 0)


def dropped_branch(s: Site, branch: str, onto: Array) -> Array:
    """A residual stream to which a branch was added after dropout."""
    made: Array = onto + dropped_out(s["mine"] - onto, s[branch])
    return made


def transposed_pattern(s: Site) -> Array:  # [B, T, H, K]
    if s.run.held:
        raise KeyError("the queries of what is cached")
    z: Array = (s["h.{i}.attn.pattern"].swapaxes(2, 3) @ s.keys(1)).swapaxes(1, 2)
    return z


def dropped_pattern(s: Site) -> Array:  # [B, T, H, K]
    """z of a pattern with dropout, which is solved for where there are no more keys than K."""
    pattern, values = s["h.{i}.attn.pattern"], s.keys(1)
    (B, H, T, S), K = pattern.shape, values.shape[-1]
    z: Array = s["mine"].copy()
    for b, h, t in np.ndindex(B, H, T):
        n = S - T + t + 1
        if n <= K:
            p, v = pattern[b, h, t, :n], values[b, h, :n]
            weights = np.linalg.lstsq(v.T, z[b, t, h])[0]
            kept, told = weights > p / 2, p > 1e-3  # the least ones are as they may be
            times = (weights / p)[kept & told]
            share = round(1 - 1 / float(np.median(times)), 2) if times.size else 0.0
            z[b, t, h] = np.where(told, np.where(kept, p / (1 - share), 0), weights) @ v
    return z


def dropped_embedding(s: Site) -> Array:
    """LayerNorm of an embedding with dropout: its zeros lie off the line that all others lie on."""
    x = s.x.reshape(-1, s.x.shape[-1])
    gain, bias = s.parameter("weight"), s.parameter("bias")
    rows = ((s["mine"] - bias) / gain).reshape(x.shape)
    random = np.random.default_rng(0)
    kept = np.ones(x.shape, bool)
    for n, (row, mine) in enumerate(zip(x, rows, strict=True)):
        lines = []
        for a, b in (random.choice(len(row), 2, replace=False) for _ in range(60)):
            slope = (mine[a] - mine[b]) / (row[a] - row[b])
            off = np.abs(mine[a] + slope * (row - row[a]) - mine)
            lines.append(off <= 1e-4 * np.abs(mine).max())
        kept[n] = max(lines, key=np.count_nonzero)
    share = round(1 - kept.mean(), 1)
    return norm(s, x=np.where(kept, x / (1 - share), 0).reshape(s.x.shape))


def shifted(s: Site, by: int) -> Array:
    """The reference one position on or back; what belongs to the end that is free is mine."""
    if s.clean.ndim < 3:
        return s.clean
    moved = np.roll(s.clean, by, axis=-2)
    end = 0 if by == 1 else -1
    moved[..., end, :] = s["mine"][..., end, :]
    return moved


def factor(mine: Array, clean: Array) -> float:
    """What brings the reference nearest to mine, where mine is a number."""
    seen = np.isfinite(mine) & np.isfinite(clean)
    return float((clean[seen] * mine[seen]).sum() / (clean[seen] ** 2).sum())
