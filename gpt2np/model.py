"""GPT-2: token ids -> logits. Read it from `forward` down.

    token ids [B, T]
      -> wte[ids] + wpe[positions]                         x [B, T, D]
      -> L times:  x += attn(ln_1(x));  x += mlp(ln_2(x))
      -> ln_f
      -> h @ wte.T                                         logits [B, T, V]

    in the papers' letters: D = d_model, F = d_ff, H = h, K = d_k = d_v; wte = W_e, wpe = W_p;
    attn.c_attn = [W^Q W^K W^V], attn.c_proj = W^O; mlp.c_fc = W_1, b_1; mlp.c_proj = W_2, b_2

Dropout, in training behind the embedding, the attention pattern and each attn and mlp, is the
identity here.

Every named activation passes through a tap, which shows it to a probe if there is one: see
`gpt2np.trace`. The names are the module paths of Hugging Face's GPT2LMHeadModel, and a few inside
its attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np.answers import answering
from gpt2np.cache import KVCache, Span
from gpt2np.config import Config
from gpt2np.errors import ContextError, InputError, shown
from gpt2np.kernels import joined, product
from gpt2np.layers import (
    ACTIVATIONS,
    attention,
    attention_scores,
    layer_norm,
    linear,
    merge_heads,
    softmax,
    split_heads,
)
from gpt2np.params import MLP, Array, Attention, Block, Ids, Params, as_params
from gpt2np.trace import Probe, Tap

TokenIds: TypeAlias = npt.NDArray[np.integer[Any]] | Sequence[int] | Sequence[Sequence[int]]

# Which of the new positions are wanted after the last block.
EVERY, LAST = slice(None), slice(-1, None)


@answering()
def forward(
    params: Params,
    token_ids: TokenIds,
    cache: KVCache | None = None,
    *,
    last_only: bool = False,
    probe: Probe | None = None,
) -> Array:
    """Compute the logits of the token that follows each position.

    Parameters
    ----------
    params : Params
        The weights, float32 or float64; everything is computed in their dtype.
    token_ids : int array or nested list, [B, T] or [T]
        T new tokens of each of B sequences; [T] counts as B = 1.
    cache : KVCache, optional
        What came before. The new positions follow those it holds, and are added to it.
    last_only : bool
        Give the logits of the last position only; `ln_f` and `logits` are computed for it alone.
    probe : callable (name, array) -> array or None, optional
        Called at every named activation, in order of the flow, with a read-only view of it; an
        array that it returns, of the same shape, takes the activation's place. ``gpt2np.Trace``
        is one that records.

    Returns
    -------
    array [B, T, V], or [B, 1, V] with `last_only`

    Raises
    ------
    ContextError
        More positions than the model or the cache has room for.
    InputError
        Ids that are not integers, not in 0 ... V - 1, or none at all; a cache of other weights.

    Examples
    --------
    >>> import gpt2np
    >>> model = gpt2np.load()
    >>> gpt2np.forward(model.params, model.tokenizer.encode("First Citizen:")).shape
    (1, 3, 50257)

    References
    ----------
    Radford et al., "Language Models are Unsupervised Multitask Learners", 2019;
    openai/gpt-2 @ 9b63575, src/model.py, ``model``.
    """
    ids = check_ids(as_params(params).config, token_ids)
    x = hidden(params, ids, cache, probe, LAST if last_only else EVERY)
    return unembed(params, x, probe)


@np.errstate(all="ignore")  # exp underflows by design; who reads the logits asks for NaN
def hidden(  # [B, T] -> [B, T, D], or [B, 1, D] for the LAST
    params: Params,
    ids: Ids,
    cache: KVCache | None = None,
    probe: Probe | None = None,
    wanted: slice = EVERY,
) -> Array:
    """Compute the residual stream after the last block, and add the positions to the cache."""
    config = params.config
    x = embed(params, ids, position_ids(params, ids, cache), Tap(probe))
    for i, p in enumerate(params.blocks):
        # The last block needs the other positions for keys and values alone; a probe sees them.
        queries = EVERY if i < config.n_layer - 1 or probe is not None else wanted
        x = block(x, p, i, config, cache, Tap(probe, f"h.{i}"), queries)
    if cache is not None:
        cache.advance(ids)
    return x[:, wanted]  # which the last block may have cut already: the LAST of the last is itself


def embed(params: Params, ids: Ids, positions: Ids, tap: Tap) -> Array:
    """Add the learned vectors of each token and of its absolute position: [B, T] -> [B, T, D]."""
    return tap("wte", params.wte[ids]) + tap("wpe", params.wpe[positions])


def block(  # [B, T, D] -> [B, T, D], or of the queries alone
    x: Array,
    p: Block,
    i: int,
    config: Config,
    cache: KVCache | None,
    tap: Tap,
    queries: slice = EVERY,
) -> Array:
    """One block: attention moves information between positions, the MLP works within each.

    Each normalises its own input and adds to x, which is never normalised (Vaswani et al. normalise
    the sum).
    """
    h = tap("ln_1", layer_norm(x, p.ln_1, config.layer_norm_epsilon))
    h = self_attention(h, p.attn, i, config, cache, tap, queries)
    x = tap("resid_mid", x[:, queries] + h)
    h = tap("ln_2", layer_norm(x, p.ln_2, config.layer_norm_epsilon))
    h = mlp(h, p.mlp, config, tap)
    return tap("", x + h)  # the block's output: h.{i} itself


def self_attention(  # [B, T, D] -> [B, T, D], or of the queries alone
    x: Array,
    p: Attention,
    i: int,
    config: Config,
    cache: KVCache | None,
    tap: Tap,
    queries: slice = EVERY,
) -> Array:
    """Project to queries, keys and values, attend over the cached and the new positions, and
    project the heads' results back."""
    q, k, v = split_heads(tap("attn.c_attn", linear(x, p.c_attn)), config.n_head)
    q, k, v = tap("attn.q", q)[:, :, queries], tap("attn.k", k), tap("attn.v", v)
    # Of all rows at once, unless those of the cache hold different numbers of positions.
    seen = [(EVERY, k, v)] if cache is None else cache.extend(i, k, v)
    z = attend(q, seen, config.score_scale(i), tap)  # the scale is 1 / sqrt(K), but for two flags
    z = tap("attn.z", z.swapaxes(1, 2))  # [B, T, H, K]: the heads of a position side by side
    return tap("attn.c_proj", linear(merge_heads(z), p.c_proj))


def attend(q: Array, seen: list[Span], scale: float, tap: Tap) -> Array:  # [B, H, T, K]
    """Attention, and step by step where somebody looks on."""
    if not tap:
        return joined([attention(q[rows], k, v, scale) for rows, k, v in seen])
    scores = tap("attn.scores", padded([attention_scores(q[b], k, scale) for b, k, _ in seen]))
    pattern = tap("attn.pattern", softmax(scores))
    return joined([pattern[rows, ..., : v.shape[2]] @ v for rows, _, v in seen])


def padded(scores: list[Array]) -> Array:  # [B, H, T, S]
    """Put scores of rows behind one another, with -inf where a row has fewer positions."""
    S = max(part.shape[-1] for part in scores)
    return joined([
        np.pad(part, [(0, 0)] * 3 + [(0, S - part.shape[-1])], constant_values=-np.inf)
        for part in scores
    ])  # fmt: skip


def mlp(x: Array, p: MLP, config: Config, tap: Tap) -> Array:  # [B, T, D] -> [B, T, D]
    """Work on each position by itself, through a layer of width F."""
    h = tap("mlp.c_fc", linear(x, p.c_fc))
    gelu = ACTIVATIONS[config.activation_function]
    h = tap("mlp.act", gelu(h, out=None if tap else h))  # in place, unless somebody may look again
    return tap("mlp.c_proj", linear(h, p.c_proj))


@np.errstate(all="ignore")
def unembed(params: Params, x: Array, probe: Probe | None = None) -> Array:
    """Final LayerNorm, then a product with every token's embedding, to which GPT-2 ties the head:
    [B, T, D] -> [B, T, V]."""
    tap = Tap(probe)
    h = tap("ln_f", layer_norm(x, params.ln_f, params.config.layer_norm_epsilon))
    return tap("logits", product(h, params.lm_head.T))


def position_ids(params: Params, ids: Ids, cache: KVCache | None) -> Ids:
    """Number the new positions of each sequence behind those in the cache: [B, T] or [1, T]."""
    B, T = ids.shape
    if cache is not None:
        if not isinstance(cache, KVCache):
            raise InputError(f"cache is a KVCache, not {shown(cache)}; a probe is given as probe=")
        cache.check(params, B, T)
        return cache.lengths[:, None] + np.arange(T)
    if params.config.n_ctx < T:
        raise ContextError(
            f"0 cached and {T} new positions make {T}, "
            f"but the model's context is {params.config.n_ctx}"
        )
    return np.arange(T)[None]


def check_ids(config: Config, token_ids: TokenIds) -> Ids:
    """Give token ids as an int array [B, T], or say what is wrong with them."""
    if isinstance(token_ids, str):
        raise InputError("ids are wanted, not a text: give model.tokenizer.encode(text)")
    try:
        ids = np.asarray(token_ids)
    except ValueError:
        raise InputError(
            "token_ids is a list of lists of different lengths; the rows of a batch have one "
            "length (gpt2np.generate takes prompts of any)"
        ) from None
    if ids.ndim not in (1, 2):
        raise InputError(f"token_ids has shape {list(ids.shape)}; give [T] or [B, T]")
    if ids.size == 0:
        raise InputError(
            f"token_ids has shape {list(ids.shape)}: give at least one token (an empty text "
            "starts from <|endoftext|>, id 50256)"
        )
    if ids.dtype.kind not in "iu":
        raise InputError(f"token_ids is of dtype {ids.dtype}; token ids are integers")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= config.vocab_size:
        raise InputError(
            f"token id {low if low < 0 else high} is not in 0 ... {config.vocab_size - 1}"
        )
    return ids.reshape(-1, ids.shape[-1]).astype(np.intp)
