"""GPT-2: token ids -> logits. Read it from `forward` down.

    token ids [B, T]
      -> wte[ids] + wpe[positions]                         x [B, T, D]
      -> L times:  x += attn(ln_1(x));  x += mlp(ln_2(x))
      -> ln_f
      -> h @ wte.T                                         logits [B, T, V]

Dropout, which follows the embedding and each attn and mlp in training, is the identity here.

Every named activation passes through a tap. Without a probe the tap gives it straight back; with
one, the probe sees it under its name and may return a replacement. The names are the module paths
of Hugging Face's GPT2LMHeadModel, and a few inside its attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt2np.cache import KVCache
from gpt2np.config import Config
from gpt2np.errors import ContextError, InputError
from gpt2np.layers import (
    Tap,
    attention,
    layer_norm,
    linear,
    mlp,
    product,
    split_heads,
    untapped,
)
from gpt2np.params import Array, Block, Ids, Params, as_params
from gpt2np.params import Attention as AttentionParams

Probe: TypeAlias = Callable[[str, Array], Array | None]
TokenIds: TypeAlias = npt.NDArray[np.integer[Any]] | Sequence[int] | Sequence[Sequence[int]]


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
        Called at every named activation, in order of the flow; an array that it returns, of the
        same shape, takes the activation's place. ``gpt2np.Trace`` is one that records.

    Returns
    -------
    array [B, T, V], or [B, 1, V] with `last_only`

    Raises
    ------
    ContextError
        More positions than the model or the cache has room for.
    InputError
        Ids that are not integers, not in 0 ... V - 1, or none at all.

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
    x = hidden(params, ids, cache, probe, last_only=last_only)
    return unembed(params, x, probe)


def hidden(  # [B, T] -> [B, T, D], or [B, 1, D] with last_only
    params: Params,
    ids: Ids,
    cache: KVCache | None = None,
    probe: Probe | None = None,
    *,
    last_only: bool = False,
) -> Array:
    """Compute the residual stream after the last block, and add the positions to the cache."""
    config = params.config
    x = embed(params, ids, position_ids(config, ids, cache), probe)
    for i, p in enumerate(params.blocks):
        # Of the last block, other positions need only keys and values. A probe sees all of it.
        last = last_only and probe is None and i == config.n_layer - 1
        x = block(x, p, i, config, cache, scoped(probe, f"h.{i}"), last_only=last)
    if cache is not None:
        cache.advance(ids)
    return x[:, -1:] if last_only else x


def embed(params: Params, ids: Ids, positions: Ids, probe: Probe | None = None) -> Array:
    """Add the learned vectors of each token and of its absolute position: [B, T] -> [B, T, D]."""
    tap = scoped(probe)
    return tap("wte", params.wte[ids]) + tap("wpe", params.wpe[positions])


def block(  # [B, T, D] -> [B, T, D], or [B, 1, D] with last_only
    x: Array,
    p: Block,
    i: int,
    config: Config,
    cache: KVCache | None,
    tap: Tap,
    *,
    last_only: bool = False,
) -> Array:
    """One block: attention moves information between positions, the MLP works within each."""
    normed = tap("ln_1", layer_norm(x, p.ln_1, config.layer_norm_epsilon))
    moved = self_attention(normed, p.attn, i, config, cache, tap, last_only=last_only)
    x = tap("resid_mid", x[:, -moved.shape[1] :] + moved)
    normed = tap("ln_2", layer_norm(x, p.ln_2, config.layer_norm_epsilon))
    return tap("", x + mlp(normed, p.mlp, config.activation_function, tap))


def self_attention(  # [B, T, D] -> [B, T, D], or [B, 1, D] with last_only
    x: Array,
    p: AttentionParams,
    i: int,
    config: Config,
    cache: KVCache | None,
    tap: Tap,
    *,
    last_only: bool = False,
) -> Array:
    """Project to queries, keys and values, attend over the cached and the new positions, and
    project the heads' results back."""
    q, k, v = split_heads(tap("attn.c_attn", linear(x, p.c_attn)), config.n_head)
    q, k, v = tap("attn.q", q), tap("attn.k", k), tap("attn.v", v)
    if last_only:
        q = q[:, :, -1:]
    spans = [(slice(None), k, v)] if cache is None else cache.extend(i, k, v)
    scale = config.score_scale(i)
    heads = [attention(q[rows], keys, values, scale, tap) for rows, keys, values in spans]
    z = tap("attn.z", heads[0] if len(heads) == 1 else np.concatenate(heads))  # [B, T, H, K]
    return tap("attn.c_proj", linear(z.reshape(*z.shape[:2], -1), p.c_proj))


def unembed(params: Params, x: Array, probe: Probe | None = None) -> Array:
    """Final LayerNorm, then a product with every token's embedding: [B, T, D] -> [B, T, V]."""
    tap = scoped(probe)
    h = tap("ln_f", layer_norm(x, params.ln_f, params.config.layer_norm_epsilon))
    return tap("logits", product(h, params.lm_head.T))


def scoped(probe: Probe | None, prefix: str = "") -> Tap:
    """Make the tap that shows activations to the probe under a prefix."""
    if probe is None:
        return untapped

    def tap(name: str, array: Array) -> Array:
        path = f"{prefix}.{name}".strip(".")
        replacement = probe(path, array)
        if replacement is None or replacement is array:
            return array
        if np.shape(replacement) != array.shape:
            raise InputError(
                f"the probe returned an array of shape {list(np.shape(replacement))} for {path}, "
                f"which has {list(array.shape)}"
            )
        return np.asarray(replacement, array.dtype)

    return tap


def position_ids(config: Config, ids: Ids, cache: KVCache | None) -> Ids:
    """Number the new positions of each sequence behind those in the cache: [B, T] or [1, T]."""
    B, T = ids.shape
    held = 0 if cache is None else cache.length
    capacity = config.n_ctx if cache is None else cache.capacity
    if cache is not None and cache.batch_size != B:
        raise InputError(f"{B} sequences for a cache of {cache.batch_size}")
    if held + T > capacity:
        what = "the model's context" if capacity == config.n_ctx else "the cache's capacity"
        raise ContextError(
            f"{held} cached and {T} new positions make {held + T}, but {what} is {capacity}"
        )
    starts = np.zeros(1, np.intp) if cache is None else cache.lengths
    return starts[:, None] + np.arange(T)


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
