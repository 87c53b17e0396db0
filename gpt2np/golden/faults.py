"""The table of faults that GPT-2 implementations are known for.

A fault belongs to one or more points. Its function gets the point's `Site`: the activations before
it, the weights and the config. What it returns is the activation as an implementation with that
fault would have it, and the cause of a divergence is the fault that gives the array that diverges.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations

import numpy as np

from gpt2np.golden.faulty import (
    Site,
    branch,
    columns,
    columns_by_head,
    cut,
    dropped_branch,
    dropped_embedding,
    dropped_out,
    dropped_pattern,
    heads_unmoved,
    linear,
    mask_reversed,
    masked_late,
    misread,
    misread_back,
    norm,
    norm_after_attention,
    norm_afterwards,
    onto_norm,
    positions,
    scores,
    shifted,
    silu,
    softmax_and_one,
    softmax_over,
    softmax_over_queries,
    softmax_without_maximum,
    to_bfloat16,
    to_float16,
    tokens,
    transposed_pattern,
    unmasked,
    without_last_block,
)
from gpt2np.layers import gelu_erf, gelu_tanh, log_softmax, softmax
from gpt2np.params import Array


def _fc(s: Site) -> Array:
    return s["h.{i}.mlp.c_fc"]


# What each activation is made of, for a divergence of none of the known causes.
FORMULAS = {
    "ids":                 "the tokenizer's",
    "wte":                 "wte.weight[ids]",
    "wpe":                 "wpe.weight[positions]",
    "embed":               "wte + wpe",
    "h.{i}.ln_1":          "LayerNorm of what goes into the block",
    "h.{i}.attn.c_attn":   "ln_1 W + b",
    "h.{i}.attn.q":        "the first third of c_attn, cut into heads",
    "h.{i}.attn.k":        "the second third of c_attn, cut into heads",
    "h.{i}.attn.v":        "the last third of c_attn, cut into heads",
    "h.{i}.attn.scores":   "q k^T / sqrt(K), masked",
    "h.{i}.attn.pattern":  "softmax of the scores, over the keys",
    "h.{i}.attn.z":        "pattern v",
    "h.{i}.attn.c_proj":   "z W + b, with the heads side by side",
    "h.{i}.resid_mid":     "what goes into the block + attn.c_proj",
    "h.{i}.ln_2":          "LayerNorm of resid_mid",
    "h.{i}.mlp.c_fc":      "ln_2 W + b",
    "h.{i}.mlp.act":       "GELU of mlp.c_fc",
    "h.{i}.mlp.c_proj":    "act W + b",
    "h.{i}":               "resid_mid + mlp.c_proj",
    "ln_f":                "LayerNorm of the last block's output",
    "logits":              "ln_f wte.weight^T where the head is tied",
    "loss":                "the mean of -log softmax(logits)[target]",
    "greedy":              "argmax of the last logits, one token after another",
}  # fmt: skip

NORMS = "h.{i}.ln_1 h.{i}.ln_2 ln_f"
LINEAR = "h.{i}.attn.c_attn h.{i}.attn.c_proj h.{i}.mlp.c_fc h.{i}.mlp.c_proj"
QKV = "h.{i}.attn.q h.{i}.attn.k h.{i}.attn.v"
SUMS = "h.{i}.resid_mid h.{i}"
ORDER = "h.{i}.ln_1 h.{i}.resid_mid h.{i}.ln_2 h.{i}"
ORDERS = [order for order in permutations("qkv") if order != ("q", "k", "v")]
EPSILONS = (1e-5, 1e-6, 1e-8, 1e-12, 0.0, 1e-7, 1e-4, 1e-3)

# Points, with spaces between -> cause -> what computes with that fault.
FAULTS: dict[str, dict[str, Callable[[Site], Array]]] = {
    "wte": {
        "the ids are one too large":                partial(tokens, shift=1),
        "the ids are one too small":                partial(tokens, shift=-1),
        "the embeddings are multiplied by sqrt(D)": lambda s: s.clean * s.config.n_embd**0.5,
    },
    "wpe": {
        "positions are counted from 0 again, behind the cache": partial(positions, first=0),
        "positions are shifted by one: counted from 1":  lambda s: positions(s, s.run.held + 1),
        "positions are shifted by one: counted from -1": lambda s: positions(s, s.run.held - 1),
        "positions are shifted by two, as OPT's are":    lambda s: positions(s, s.run.held + 2),
        "position embeddings are left out, or wte's padding of zeros is read for them": (
            lambda s: np.zeros_like(s.clean)
        ),
    },
    NORMS: {
        "LayerNorm's epsilon is added outside the root":      partial(norm, outside=True),
        "LayerNorm's variance is divided by n - 1, not by n": partial(norm, ddof=1),
        "LayerNorm's bias is missing":                        partial(norm, bias=False),
        "LayerNorm's gain is missing":                        partial(norm, gain=False),
        "LayerNorm's gain and bias are missing":              partial(norm, gain=False, bias=False),
        "LayerNorm's gain and bias are exchanged":            partial(norm, exchanged=True),
        "LayerNorm does not take off the mean":               partial(norm, centred=False),
        "LayerNorm is RMSNorm: it takes off no mean and adds no bias": (
            partial(norm, centred=False, bias=False)
        ),
        "LayerNorm divides by std + epsilon, and std by n - 1, as torch.std does": (
            partial(norm, ddof=1, outside=True)
        ),
        "LayerNorm is left out":                              lambda s: s.input,
    },
    ORDER: {
        "LayerNorm comes after attention and MLP, as in the first GPT": norm_afterwards,
    },
    "ln_f": {
        "the last block is left out": without_last_block,
    },
    "h.{i}.ln_1": {
        "LayerNorm comes after attention, not before": norm_after_attention,
        "gain and bias are those of ln_2":   partial(norm, module="h.{i}.ln_2"),
        "the weights are those of block 0":  partial(norm, module="h.0.ln_1"),
        "the blocks' weights are in the order of their names, h.10 before h.2": (
            lambda s: norm(s, module=f"h.{sorted(range(s.config.n_layer), key=str)[s.i]}.ln_1")
        ),
    },
    "h.{i}.ln_2": {
        "gain and bias are those of ln_1":                partial(norm, module="h.{i}.ln_1"),
        "its input is the block's own, before attention": lambda s: norm(s, x=s.x),
    },
    LINEAR: {
        "the bias is missing":                    partial(linear, bias=False),
        "the weight is transposed: [out, in] is read as [in, out]": partial(linear, weight=misread),
        "the weight is transposed: [in, out] is read as [out, in]": (
            partial(linear, weight=misread_back)
        ),
        "the weight is rounded to float16":       partial(linear, weight=to_float16),
        "the weight is rounded to bfloat16":      partial(linear, weight=to_bfloat16),
    },
    "h.{i}.attn.c_attn": {
        **{f"the columns are in the order {', '.join(order)}, not q, k, v":
           partial(columns, order=order) for order in ORDERS},
        "the columns are in order of the heads, each with its q, k and v": columns_by_head,
    },
    QKV: {
        **{f"c_attn is cut in the order {', '.join(order)}, not q, k, v":
           partial(cut, order=order) for order in ORDERS},
        "heads are interleaved: D is cut into [K, H], not [H, K]": partial(cut, layout="3KH"),
        "c_attn is cut into heads first, each with its q, k and v": partial(cut, layout="H3K"),
        "[T, H, K] is read as [H, T, K], without moving the axis of the heads": (
            partial(cut, layout="3TH")
        ),
    },
    "h.{i}.attn.q": {
        "q is scaled already; the scores may be right": (
            lambda s: s.clean * s.config.score_scale(s.i)
        ),
    },
    "h.{i}.attn.scores": {
        "the scores are not scaled by 1/sqrt(K)": partial(scores, scale=1.0),
        "the scores are scaled by 1/sqrt(D), not 1/sqrt(K)": (
            lambda s: scores(s, scale=s.config.n_embd**-0.5)
        ),
        "the scores are scaled by 1/K, not 1/sqrt(K)": (
            lambda s: scores(s, scale=1 / s.config.head_width)
        ),
        "the scores are scaled by 1/sqrt(K) alone": (
            lambda s: scores(s, scale=s.config.head_width**-0.5)
        ),
        "the scores are divided by the block's number as well": (
            lambda s: scores(s, scale=s.config.score_scale(s.i) / (s.i + 1))
        ),
        "the mask is off by one: each position sees the next one": partial(scores, sees=1),
        "the mask is off by one: no position sees itself":         partial(scores, sees=-1),
        "the mask is counted from the upper left corner, as if nothing were cached": (
            lambda s: scores(s, sees=-s.run.held)
        ),
        "there is no mask (or it is recorded before that)": unmasked,
        "the mask hides the past, not the future":          mask_reversed,
        "the mask sets 0, not minus infinity":              partial(scores, fill=0.0),
        "q and k are exchanged":                            partial(scores, exchanged=True),
    },
    "h.{i}.attn.pattern": {
        "the softmax is over the queries, not the keys": softmax_over_queries,
        "the softmax is over the heads, not the keys":   partial(softmax_over, axes=1),
        "the softmax is over each head's whole matrix":  partial(softmax_over, axes=(2, 3)),
        "the softmax does without its maximum: exp(x) is infinite from 88.7 on": (
            softmax_without_maximum
        ),
        "the mask comes after the softmax":              masked_late,
        "there is no softmax":                           lambda s: s["h.{i}.attn.scores"],
        "the softmax has 1 more in its denominator":     softmax_and_one,
    },
    "h.{i}.attn.z": {
        "heads are merged without moving their axis behind that of positions": (
            lambda s: heads_unmoved(s.clean)
        ),
        "dropout is on, in the pattern: it is for training": dropped_pattern,
        "the pattern is transposed":                          transposed_pattern,
        "the pattern is applied to k, not v": (
            lambda s: (s["h.{i}.attn.pattern"] @ s.keys()).swapaxes(1, 2)
        ),
    },
    "h.{i}.attn.c_proj": {
        "heads are merged without moving their axis behind that of positions": (
            lambda s: linear(s, x=heads_unmoved(s["h.{i}.attn.z"]).reshape(s.x.shape))
        ),
        "the residual is in it already": lambda s: s.x + s.clean,
        "LayerNorm's output is in it already": lambda s: s["h.{i}.ln_1"] + s.clean,
    },
    SUMS: {
        "the residual is missing":                           branch,
        "the residual is LayerNorm's output, not its input": onto_norm,
    },
    "h.{i}.resid_mid": {
        "dropout is on: it is for training": (
            lambda s: dropped_branch(s, "h.{i}.attn.c_proj", onto=s.x)
        ),
    },
    "h.{i}.mlp.act": {
        "GELU is the erf form, not the tanh form":         lambda s: gelu_erf(_fc(s)),
        "GELU is the tanh form, not the erf form":         lambda s: gelu_tanh(_fc(s)),
        "GELU is the sigmoid form, x sigmoid(1.702 x)":    lambda s: silu(_fc(s) * 1.702) / 1.702,
        "the activation is SiLU, x sigmoid(x), not GELU":  lambda s: silu(_fc(s)),
        "the activation is ReLU, not GELU":                lambda s: np.maximum(_fc(s), 0),
        "there is no activation function":                 _fc,
    },
    "h.{i}.mlp.c_proj": {
        "the residual is in it already": lambda s: s["h.{i}.resid_mid"] + s.clean,
    },
    "h.{i}": {
        "the residual is the block's input, without attention": (
            lambda s: s.x + s["h.{i}.mlp.c_proj"]
        ),
        "dropout is on: it is for training": (
            lambda s: dropped_branch(s, "h.{i}.mlp.c_proj", onto=s["h.{i}.resid_mid"])
        ),
    },
    "logits": {
        "the head is tied to wte, but the model has its own": (
            lambda s: s["ln_f"] @ s.run.params["wte.weight"].T
        ),
        "wte is read as [D, V], not transposed": lambda s: s["ln_f"] @ misread(s.head.T),
        "the head is rounded to float16":        lambda s: s["ln_f"] @ to_float16(s.head).T,
        "the head is rounded to bfloat16":       lambda s: s["ln_f"] @ to_bfloat16(s.head).T,
        "these are log-probabilities":           lambda s: log_softmax(s.clean),
        "these are probabilities":               lambda s: softmax(s.clean),
    },
}  # fmt: skip

# What is guessed where a step's inputs were not recorded, so that nothing can be fitted.
GUESSED: dict[str, dict[str, Callable[[Site], Array]]] = {
    NORMS: {f"LayerNorm's epsilon is {e:g}": partial(norm, epsilon=e) for e in EPSILONS},
}

# What can befall x = wte + wpe where it was not recorded: it shows in the first LayerNorm.
EMBEDDING: dict[str, Callable[[Site], Array]] = {
    "the embeddings are multiplied by sqrt(D)": (
        lambda s: norm(s, x=s["wte"] * s.config.n_embd**0.5 + s["wpe"])
    ),
    "the sum of both embeddings is multiplied by sqrt(D)": (
        lambda s: norm(s, x=s.x * s.config.n_embd**0.5)
    ),
    "position embeddings are left out":  lambda s: norm(s, x=s["wte"]),
    "token embeddings are left out":     lambda s: norm(s, x=s["wpe"]),
    "dropout is on: it is for training": dropped_embedding,
}  # fmt: skip

# What can befall any activation, sought where none of the above is found.
ANYWHERE: dict[str, Callable[[Site], Array]] = {
    "it is all zeros":                   lambda s: np.zeros_like(s.clean),
    "it is rounded to float16":          lambda s: to_float16(s.clean),
    "it is rounded to bfloat16":         lambda s: to_bfloat16(s.clean),
    "dropout is on: it is for training": lambda s: dropped_out(s["mine"], s.clean),
    "what belongs to a position stands at the next one":   partial(shifted, by=1),
    "what belongs to a position stands at the one before": partial(shifted, by=-1),
}  # fmt: skip
