"""Config: what is read, what is refused by name, and that Hugging Face's GPT2Config agrees."""

import json
import math
import re
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt2np import CheckpointError, Config, layers
from gpt2np.config import ACTIVATIONS, BY_NAME, MODELS, PRESETS

SIZES = {"vocab_size": 11, "n_ctx": 7, "n_embd": 6, "n_head": 2, "n_layer": 3}


@pytest.mark.parametrize(
    ("name", "L", "D", "H"),
    [
        ("distilgpt2", 6, 768, 12),
        ("gpt2", 12, 768, 12),
        ("gpt2-medium", 24, 1024, 16),
        ("gpt2-large", 36, 1280, 20),
        ("gpt2-xl", 48, 1600, 25),
    ],
)
def test_presets(name, L, D, H):
    config = PRESETS[name]
    assert (config.n_layer, config.n_embd, config.n_head) == (L, D, H)
    assert (config.vocab_size, config.n_ctx, config.n_inner) == (50257, 1024, 4 * D)
    assert config.head_width == 64
    rest = replace(config, n_layer=12, n_embd=768, n_head=12, n_inner=0)
    assert rest == Config()


def test_no_two_models_have_a_name_in_common():
    assert len(BY_NAME) == sum(len(model.names) + 1 for model in MODELS)
    assert PRESETS.keys() <= BY_NAME.keys()


def test_defaults_are_hugging_faces():
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2Config()
    for field in fields(Config):
        if field.name not in ("n_ctx", "n_inner"):
            assert getattr(Config(), field.name) == getattr(theirs, field.name)
    assert Config().n_ctx == theirs.n_positions
    assert theirs.n_inner is None


@st.composite
def configs(draw):
    n_head = draw(st.integers(1, 5))
    return Config(
        vocab_size=draw(st.integers(1, 9999)),
        n_ctx=draw(st.integers(1, 99)),
        n_embd=n_head * draw(st.integers(1, 9)),
        n_head=n_head,
        n_layer=draw(st.integers(1, 9)),
        n_inner=draw(st.integers(0, 99)),
        activation_function=draw(st.sampled_from(ACTIVATIONS)),
        layer_norm_epsilon=draw(st.sampled_from([0, 1, 1e-5, 0.5])),
        scale_attn_weights=draw(st.booleans()),
        scale_attn_by_inverse_layer_idx=draw(st.booleans()),
        reorder_and_upcast_attn=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )


@given(configs())
def test_there_and_back(config):
    assert Config.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"n_inner": 10},
        {"activation_function": "gelu"},
        {"layer_norm_epsilon": 1e-6},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"reorder_and_upcast_attn": True},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_through_hugging_faces_config_json(tmp_path, flags):
    """What save_pretrained writes is read in full, and what we write is what it would read."""
    transformers = pytest.importorskip("transformers")
    config = Config(**SIZES, **flags)
    theirs = transformers.GPT2Config(
        vocab_size=11,
        n_positions=7,
        n_embd=6,
        n_head=2,
        n_layer=3,
        **flags,
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert Config.from_dict(values) == config
    again = transformers.GPT2Config(**config.to_dict(), bos_token_id=None, eos_token_id=None)
    for name in (*flags, "n_positions", "vocab_size", "n_embd", "n_head", "n_layer", "n_inner"):
        assert getattr(again, name) == getattr(theirs, name), name


def test_openais_hparams():
    hparams = {"n_vocab": 50257, "n_ctx": 1024, "n_embd": 1280, "n_head": 20, "n_layer": 36}
    assert Config.from_dict(hparams) == PRESETS["gpt2-large"]


def test_n_positions_is_the_one_that_counts():
    """wpe has n_positions rows; n_ctx, in old files of Hugging Face's, may say something else."""
    values = {**SIZES, "n_positions": 5}
    assert Config.from_dict(values).n_ctx == 5
    del values["n_ctx"]
    assert Config.from_dict(values).n_ctx == 5


def test_keys_that_change_nothing_are_passed_over():
    values = SIZES | {
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "initializer_range": 0.02,
        "summary_type": "cls_index",
        "task_specific_params": {"text-generation": {}},
        "torch_dtype": "float32",
        "transformers_version": "4.0",
        "use_cache": True,
        "bos_token_id": 50256,
        "add_cross_attention": False,
        "n_inner": None,
    }
    assert Config.from_dict(values) == Config(**SIZES)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "llama"}, "model_type is 'llama', not 'gpt2'"),
        ({"model_type": None}, "model_type is None, not 'gpt2'"),
        ({"add_cross_attention": True}, "add_cross_attention is set"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is set"),
        (
            {"activation_function": "mish"},
            "activation_function is 'mish', which is none of gelu_new,",
        ),
        ({"activation_function": None}, "activation_function is None"),
        ({"activation_function": ["gelu"]}, "activation_function is ['gelu']"),
        ({"activation_function": "gelu_10"}, "activation_function is 'gelu_10'"),
        ({"vocab_size": None}, "vocab_size must be an integer from 1 to 2147483647, not None"),
        ({"n_layer": None}, "n_layer must be an integer from 1 to 2147483647, not None"),
        ({"n_head": 4}, "n_embd is 6, not a multiple of n_head, 4"),
        ({"n_layer": 0}, "n_layer must be an integer from 1 to 2147483647, not 0"),
        ({"n_embd": -6}, "n_embd must be an integer from 1 to 2147483647, not -6"),
        ({"n_inner": -1}, "n_inner must be an integer from 0 to 2147483647, not -1"),
        ({"n_head": 2.0}, "n_head must be an integer from 1 to 2147483647, not 2.0"),
        ({"n_head": "2"}, "n_head must be an integer from 1 to 2147483647, not '2'"),
        ({"n_head": True}, "n_head must be an integer from 1 to 2147483647, not True"),
        ({"layer_norm_epsilon": -1e-5}, "layer_norm_epsilon must be a number >= 0, not -1e-05"),
        ({"layer_norm_epsilon": math.nan}, "layer_norm_epsilon must be a number >= 0, not nan"),
        ({"layer_norm_epsilon": "1e-5"}, "layer_norm_epsilon must be a number >= 0, not '1e-5'"),
        ({"layer_norm_epsilon": None}, "layer_norm_epsilon must be a number >= 0, not None"),
        ({"layer_norm_epsilon": math.inf}, "layer_norm_epsilon must be a number >= 0, not inf"),
        ({"layer_norm_epsilon": 10**400}, "layer_norm_epsilon must be a number >= 0, not 1000"),
        ({"layer_norm_epsilon": True}, "layer_norm_epsilon must be a number >= 0, not True"),
        ({"scale_attn_weights": 1}, "scale_attn_weights is 1, not true or false"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', not true or false"),
        ({"reorder_and_upcast_attn": None}, "reorder_and_upcast_attn is None, not true or false"),
        ({"scale_attn_by_inverse_layer_idx": 0}, "scale_attn_by_inverse_layer_idx is 0, not true"),
    ],
    ids=str,
)
def test_what_is_refused(change, says):
    with pytest.raises(CheckpointError, match=f"^config: {re.escape(says)}") as caught:
        Config.from_dict(SIZES | change)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"n_embd": 24},
        {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3},
        {"hidden_size": 24, "n_embd": 12},
        {"max_position_embeddings": 8, "n_positions": 9, "n_ctx": 10},
        {"n_positions": 9, "n_ctx": 10, "n_inner": None},
    ],
    ids=str,
)
def test_other_names_and_what_is_left_out_are_as_in_transformers(values):
    transformers = pytest.importorskip("transformers")
    ours, theirs = Config.from_dict(values), transformers.GPT2Config.from_dict(values)
    for name in ("vocab_size", "n_embd", "n_head", "n_layer", "activation_function"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.n_ctx == theirs.n_positions


def test_n_inner():
    assert Config(**SIZES).n_inner == 24
    assert Config(**SIZES, n_inner=24) == Config(**SIZES)
    assert Config(**SIZES).to_dict()["n_inner"] is None
    assert Config(**SIZES, n_inner=5).to_dict()["n_inner"] == 5


def test_what_scores_are_multiplied_by():
    sizes = SIZES | {"n_embd": 64}
    assert Config(**sizes).head_width == 32
    assert Config(**sizes).score_scale(0) == Config(**sizes).score_scale(2) == 32**-0.5
    unscaled = Config(**sizes, scale_attn_weights=False)
    assert unscaled.score_scale(2) == 1
    by_layer = Config(**sizes, scale_attn_by_inverse_layer_idx=True)
    assert [by_layer.score_scale(i) for i in range(3)] == [32**-0.5, 32**-0.5 / 2, 32**-0.5 / 3]
    assert replace(unscaled, scale_attn_by_inverse_layer_idx=True).score_scale(3) == 0.25
    # A Python float: NumPy's float64 would widen float32 arrays.
    assert type(by_layer.score_scale(1)) is float


def test_it_does_not_change_and_can_be_a_key():
    config = Config(**SIZES)
    with pytest.raises(FrozenInstanceError):
        config.n_layer = 4
    assert {config: 1}[Config(**SIZES)] == 1


def test_every_activation_that_is_allowed_is_computed():
    assert set(ACTIVATIONS) == set(layers.ACTIVATIONS)


def test_numbers_are_pythons_own_and_not_without_bounds():
    config = Config(n_embd=np.int64(8), n_head=np.uint8(2), layer_norm_epsilon=np.float32(0.5))
    assert [type(v) for v in (config.n_embd, config.n_head, config.layer_norm_epsilon)] == [
        int,
        int,
        float,
    ]
    with pytest.raises(CheckpointError, match=r"n_embd must be .*, not an enormous number"):
        Config(n_embd=10**5000)
