"""The forward pass, live against Hugging Face's with identical random weights."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from closeness import assert_close
from huggingface import hf_logits, hf_model, torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from models import random_params

from gpt2np import Config, KVCache, Params, forward

SIZES = ("n_layer", "n_head", "n_embd", "n_ctx", "vocab_size")
UNSCALED = {"scale_attn_weights": False}
BY_LAYER = {"scale_attn_by_inverse_layer_idx": True}
UPCAST = {"reorder_and_upcast_attn": True}
UNTIED = {"tie_word_embeddings": False}
ERF = {"activation_function": "gelu"}
CASES = [
    #  L  H    D  n_ctx  V
    ( 1,  1,   8,   1,  30, {}),                                         # all at their least
    ( 1,  1,   8,  19,  50, {}),
    ( 2,  2,  20,  24, 101, ERF),
    ( 3,  4,  32,  33, 257, {}),
    ( 4,  3,  72,  40,  97, {"activation_function": "gelu_new"}),
    ( 2,  5, 200,  16,  64, {"activation_function": "gelu_pytorch_tanh"}),
    ( 5,  2, 100,  30,  73, {"n_inner": 7}),
    ( 2,  3, 120, 140,  31, {"n_inner": 333} | ERF),                     # two blocks of queries
    ( 6,  1,  64,  25,  64, UNSCALED),
    ( 7,  2,  48,  21, 300, BY_LAYER),
    ( 8,  4,  64,  18,  44, UNSCALED | BY_LAYER),
    ( 9,  2, 112,  23,  52, UPCAST),
    (10,  3,  24,  26,  90, UPCAST | BY_LAYER | UNTIED),
    (11,  2,  32,  27,  61, UNTIED),
    (12, 12,  96,  32, 128, {"layer_norm_epsilon": 1e-2}),               # 124M, narrow
    (13,  4, 320,  22,  83, {"layer_norm_epsilon": 1e-12} | ERF | UNTIED),
]  # fmt: skip
CONFIGS = [
    Config(**dict(zip(SIZES, (L, H, D, n_ctx, V), strict=True)), **flags)
    for L, H, D, n_ctx, V, flags in CASES
]


def name_of(config):
    flags = (
        "n_inner",
        "activation_function",
        "layer_norm_epsilon",
        *UNSCALED,
        *BY_LAYER,
        *UPCAST,
        *UNTIED,
    )
    usual = Config(n_embd=config.n_embd, n_head=config.n_head)
    changed = [f for f in flags if getattr(config, f) != getattr(usual, f)]
    return f"{config.n_layer}x{config.n_embd}" + "".join(f"-{flag}" for flag in changed)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_logits(config, dtype, attention):
    if config.reorder_and_upcast_attn and (dtype, attention) != (np.float32, "eager"):
        pytest.skip("Hugging Face upcasts in its eager attention alone, and never from float64")
    params = random_params(config, config.n_layer, dtype)
    model = hf_model(params, attention)
    random = np.random.default_rng(config.n_embd)
    for B, T in ((1, 1), (4, (config.n_ctx + 1) // 2), (2, config.n_ctx)):
        ids = random.integers(config.vocab_size, size=(B, T))
        assert_close(forward(params, ids), hf_logits(model, ids), what=(B, T))


def test_logits_as_gpt2_starts_its_training():
    """The weights of Params.random as they are, which the golden files are of."""
    config = Config(vocab_size=211, n_ctx=50, n_embd=96, n_head=6, n_layer=4)
    ids = np.random.default_rng(0).integers(211, size=(3, 50))
    for dtype in (np.float32, np.float64):
        params = Params.random(config, 5, dtype)
        assert_close(forward(params, ids), hf_logits(hf_model(params), ids))


# The tolerance is of the largest logit, which of a few alone might be close to zero.
@st.composite
def configs(draw):
    n_head = draw(st.integers(1, 4))
    n_embd = n_head * draw(st.integers(8, 80))
    return Config(
        vocab_size=draw(st.integers(30, 300)),
        n_ctx=draw(st.integers(1, 150)),
        n_embd=n_embd,
        n_head=n_head,
        n_layer=draw(st.integers(1, 6)),
        n_inner=draw(st.integers(0, 400)),
        activation_function=draw(st.sampled_from(["gelu", "gelu_new"])),
        layer_norm_epsilon=draw(st.sampled_from([1e-5, 1e-6, 1e-3, 0.5])),
        scale_attn_weights=draw(st.booleans()),
        scale_attn_by_inverse_layer_idx=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )


# Always the same examples, and as they are: to look for smaller ones would take minutes.
@settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.generate])
@given(configs(), st.sampled_from([np.float32, np.float64]), st.data())
def test_logits_of_any_config(config, dtype, data):
    params = random_params(config, data.draw(st.integers(0, 99)), dtype)
    shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, config.n_ctx)))
    ids = np.random.default_rng(shape).integers(config.vocab_size, size=shape)
    theirs = hf_logits(hf_model(params, data.draw(st.sampled_from(["eager", "sdpa"]))), ids)
    assert_close(forward(params, ids), theirs)
    split = data.draw(st.integers(0, shape[1] - 1))
    cache = KVCache(params, shape[0])
    parts = [forward(params, part, cache) for part in np.split(ids, [split], 1) if part.size]
    assert_close(np.concatenate(parts, axis=1), theirs)


# What the tests above would miss. A small deep model in float64 shows each single fault.

CONFIG = Config(vocab_size=31, n_ctx=12, n_embd=24, n_head=3, n_layer=3, n_inner=24, **UNTIED)
IDS = np.random.default_rng(1).integers(31, size=(2, 12))


@pytest.fixture(scope="module")
def reference():
    params = random_params(CONFIG, 7, np.float64)
    return params, hf_logits(hf_model(params), IDS)


def differs(params, reference):
    """Whether the tolerance of float32, the wider one, would show another answer."""
    return np.abs(forward(params, IDS) - reference).max() > 2e-5 * np.abs(reference).max()


def test_any_two_tensors_swapped_would_show(reference):
    params, theirs = reference
    assert not differs(params, theirs)
    shape = {name: array.shape for name, array in params.items()}
    pairs = [(a, b) for a, b in itertools.combinations(params, 2) if shape[a] == shape[b]]
    assert len(pairs) > 200
    for a, b in pairs:
        swapped = {**params, a: params[b], b: params[a]}
        assert differs(Params(CONFIG, swapped), theirs), f"{a} and {b} swapped"


def test_a_tensor_transposed_or_missing_would_show(reference):
    params, theirs = reference
    for name, array in params.items():
        changed = {"a sign": -array, "zeros": array * 0, "reversed": array[::-1]}
        if array.ndim == 2 and array.shape[0] == array.shape[1]:
            changed["transposed"] = array.T
        for change, other in changed.items():
            assert differs(Params(CONFIG, {**params, name: other}), theirs), f"{name}: {change}"


@pytest.mark.parametrize(
    "change",
    [
        {"activation_function": "gelu"},
        {"layer_norm_epsilon": 1e-3},
        {"n_head": 2},
        UNSCALED,
        BY_LAYER,
    ],
)
def test_a_wrong_config_would_show(reference, change):
    params, theirs = reference
    assert differs(Params(replace(CONFIG, **change), params), theirs)


# Activations.


def hf_activations(model, ids):
    """Every activation of Hugging Face's model, by forward hooks, under the name of a probe."""
    seen = {}

    def keep(name, tensor):
        # A block is a tuple in some versions, and the attention's own.
        seen[name] = (tensor[0] if isinstance(tensor, tuple) else tensor).detach().numpy()

    def on_output(name):
        return lambda module, inputs, output: keep(name, output)

    def on_input(name):
        return lambda module, inputs: keep(name, inputs[0])

    transformer, config = model.transformer, model.config
    for name, module in transformer.named_modules():
        if name and not name.endswith(("drop", "dropout", ".attn", ".mlp")) and name != "h":
            module.register_forward_hook(on_output(name))
    for i, block in enumerate(transformer.h):
        block.attn.c_proj.register_forward_pre_hook(on_input(f"h.{i}.attn.z"))
        block.ln_2.register_forward_pre_hook(on_input(f"h.{i}.resid_mid"))
    model.lm_head.register_forward_hook(on_output("logits"))
    with torch.no_grad():
        attentions = model(torch.tensor(ids), output_attentions=True).attentions

    H, K = config.n_head, config.n_embd // config.n_head
    T = ids.shape[1]
    for i, pattern in enumerate(attentions):
        seen[f"h.{i}.attn.pattern"] = pattern.numpy()
        qkv = torch.from_numpy(seen[f"h.{i}.attn.c_attn"]).split(config.n_embd, dim=2)
        q, k, v = (x.view(*x.shape[:2], H, K).transpose(1, 2) for x in qkv)
        scores = q @ k.transpose(2, 3) * transformer.h[i].attn.scaling
        later = torch.ones(T, T, dtype=torch.bool).triu(1)
        seen |= {
            f"h.{i}.attn.q": q.numpy(),
            f"h.{i}.attn.k": k.numpy(),
            f"h.{i}.attn.v": v.numpy(),
            f"h.{i}.attn.scores": scores.masked_fill(later, -math.inf).numpy(),
            f"h.{i}.attn.z": seen[f"h.{i}.attn.z"].reshape(*ids.shape, H, K),
        }
    return seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("flags", [{}, ERF | UNTIED | BY_LAYER | {"n_inner": 35}])
def test_activations(flags, dtype):
    config = Config(vocab_size=43, n_ctx=20, n_embd=40, n_head=5, n_layer=3, **flags)
    params = random_params(config, 3, dtype)
    ids = np.random.default_rng(2).integers(43, size=(3, 17))
    theirs, ours = hf_activations(hf_model(params), ids), {}
    logits = forward(params, ids, probe=ours.__setitem__)
    assert ours.keys() == theirs.keys()
    for name, activation in ours.items():
        # Masked scores are minus infinity in both.
        hidden = np.isneginf(theirs[name])
        assert np.array_equal(np.isneginf(activation), hidden), name
        assert_close(np.where(hidden, 0, activation), np.where(hidden, 0, theirs[name]), what=name)
    assert np.array_equal(logits, ours["logits"])


@pytest.mark.parametrize(
    "name",
    [
        "wte",
        "wpe",
        "h.1.ln_1",
        "h.1.attn.c_attn",
        "h.1.attn.c_proj",
        "h.0.ln_2",
        "h.1.mlp.c_fc",
        "h.2.mlp.act",
        "h.0.mlp.c_proj",
        "h.1",
        "ln_f",
    ],
)
def test_a_replaced_activation(name):
    """A probe that returns an array does what a hook that does so does there."""
    params = random_params(CONFIG, 7, np.float64)
    model = hf_model(params)

    def edit(array):
        return array * 0.5 + 0.25

    model.transformer.get_submodule(name).register_forward_hook(
        lambda module, inputs, output: (
            (edit(output[0]), *output[1:]) if isinstance(output, tuple) else edit(output)
        )
    )
    ours = forward(params, IDS, probe=lambda n, array: edit(array) if n == name else None)
    theirs = hf_logits(model, IDS)
    assert_close(ours, theirs)
    assert differs(params, theirs)


def test_a_head_silenced():
    """Zeros in place of one head's z are zeros in its rows of c_proj."""
    params = random_params(CONFIG, 7, np.float64)
    head, K = 1, CONFIG.head_width

    def silence(name, array):
        if name != "h.2.attn.z":
            return None
        array = array.copy()
        array[:, :, head] = 0
        return array

    name = "h.2.attn.c_proj.weight"
    cut = params[name].copy()
    cut[head * K : (head + 1) * K] = 0
    theirs = hf_logits(hf_model(Params(CONFIG, {**params, name: cut})), IDS)
    assert_close(forward(params, IDS, probe=silence), theirs)
    assert differs(params, theirs)
