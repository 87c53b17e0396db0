"""The table of tensors against Hugging Face's modules, OpenAI's names and the published sizes."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from shared import SHARED, needs_shared

from gpt2np import CheckpointError, Config
from gpt2np.checkpoints import open_checkpoint
from gpt2np.config import PRESETS
from gpt2np.schema import BUFFERS, TABLE, canonical_name, check_shapes, sizes, tensors

SMALL = Config(vocab_size=11, n_ctx=7, n_embd=6, n_head=2, n_layer=12, n_inner=5)


def shapes_of(config):
    return {name: shape for name, shape, _ in tensors(config)}


@pytest.mark.parametrize(
    "config",
    [
        *PRESETS.values(),
        SMALL,
        Config(vocab_size=3, n_ctx=5, n_embd=4, n_head=1, n_layer=1, tie_word_embeddings=False),
    ],
    ids=lambda config: f"{config.n_layer}x{config.n_embd}",
)
def test_names_shapes_and_order_are_hugging_faces(config):
    torch = pytest.importorskip("torch")
    from huggingface import hf_config, transformers

    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(hf_config(config))
    theirs = {
        name.removeprefix("transformer."): tuple(parameter.shape)
        for name, parameter in model.named_parameters()
    }
    assert list(shapes_of(config).items()) == list(theirs.items())


@pytest.mark.parametrize(
    ("name", "n_params"),
    [
        ("distilgpt2", 81_912_576),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_published_counts_of_parameters(name, n_params):
    config = PRESETS[name]
    assert sum(int(np.prod(shape)) for shape in shapes_of(config).values()) == n_params
    V, T, D, L = config.vocab_size, config.n_ctx, config.n_embd, config.n_layer
    assert n_params == V * D + T * D + L * (12 * D * D + 13 * D) + 2 * D


def test_counts_of_components():
    count = Counter()
    for name, shape, row in tensors(PRESETS["gpt2"]):
        count[name.split(".")[0] if name.startswith("w") else row.component] += np.prod(shape)
        if name.startswith("h.0."):
            count["a block"] += np.prod(shape)
    assert count["wte"] == 38_597_376
    assert count["wpe"] == 786_432
    assert count["a block"] == 7_087_872
    assert count["ln_f"] == 1_536


@needs_shared
def test_openai_names():
    """Each tensor of a checkpoint that OpenAI's model wrote has its place, and none is over."""
    checkpoint = open_checkpoint(SHARED / "openai-tf-tiny")
    config = Config(vocab_size=101, n_ctx=24, n_embd=32, n_head=4, n_layer=3)
    found = {canonical_name(name): array.shape for name, array in checkpoint.tensors.items()}
    assert len(found) == len(checkpoint.tensors)
    # A conv1d of width 1: OpenAI's matrices have a leading 1.
    found = {name: shape[1:] if len(shape) == 3 else shape for name, shape in found.items()}
    assert found == shapes_of(config)


def test_each_row_has_its_own_names():
    assert len({row.name for row in TABLE}) == len(TABLE)
    openai = [row.openai for row in TABLE if row.openai]
    assert len(set(openai)) == len(openai) == len(TABLE) - 1
    for row in TABLE:
        assert ("{i}" in row.name) == ("{i}" in row.openai)
        assert set(row.shape.split()) <= sizes(SMALL).keys()


def test_every_openai_name_leads_back():
    for i in (0, 2, 9, 10, 11, 123):
        for row in TABLE:
            if row.openai:
                assert canonical_name(row.openai.format(i=i)) == row.name.format(i=i)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "transformer.",
        "module.transformer.",
        "_orig_mod.transformer.",
        "_orig_mod.module.transformer.",
        "module._orig_mod.transformer.",
    ],
)
def test_prefixes(prefix):
    for name in shapes_of(SMALL):
        assert canonical_name(prefix + name) == name


@pytest.mark.parametrize(
    "name",
    [
        "model/h0/attn/c_attn/x",
        "model/wtf",
        "model/h/ln_1/g",
        "model/hx/ln_1/g",
        "model/h1/h2/ln_1/g",
        "score.weight",
        "",
        "h.0",
        "crossattention.c_attn.weight",
        "model.h.0.ln_1.weight",
    ],
)
def test_unknown_names_stay_as_they_are(name):
    assert canonical_name(name) == name


def test_buffers_are_told_from_the_bias_by_the_dot():
    parameters = [name for name in shapes_of(SMALL) if name.endswith(BUFFERS)]
    assert parameters == []
    assert "h.0.attn.bias".endswith(BUFFERS)
    assert "transformer.h.11.attn.masked_bias".endswith(BUFFERS)


# What does not fit


def test_right_shapes_pass():
    check_shapes(SMALL, shapes_of(SMALL))
    check_shapes(SMALL, dict(reversed(shapes_of(SMALL).items())))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"wte.weight": (12, 6)},
            "tensor wte.weight has shape [12, 6], but the config makes it [11, 6]",
        ),
        (
            {"h.3.mlp.c_fc.weight": (5, 6), "h.2.mlp.c_fc.weight": (5, 6)},
            "tensor h.2.mlp.c_fc.weight has shape [5, 6], but the config makes it [6, 5], "
            "and 1 more like it",
        ),
        ({"ln_f.bias": ()}, "tensor ln_f.bias has shape [], but the config makes it [6]"),
        ({"h.11.ln_1.bias": None}, "tensor h.11.ln_1.bias of shape [6] is missing"),
        (
            {"wpe.weight": None, "ln_f.bias": None, "ln_f.weight": None},
            "tensor wpe.weight of shape [7, 6] is missing, and 2 more like it",
        ),
        (
            {"h.12.ln_1.bias": (6,)},
            "tensor h.12.ln_1.bias of shape [6] is not part of a GPT-2 with 12 layers",
        ),
        (
            {"lm_head.weight": (11, 6), "score.weight": (2, 6)},
            "tensor lm_head.weight of shape [11, 6] is not part of a GPT-2 with 12 layers, "
            "and 1 more like it",
        ),
        # The wrong one of these is named first: it says most.
        (
            {"wpe.weight": None, "extra": (1,), "h.0.attn.c_attn.bias": (6,)},
            "tensor h.0.attn.c_attn.bias has shape [6], but the config makes it [18]",
        ),
    ],
)
def test_wrong_shapes_are_named(change, says):
    shapes = shapes_of(SMALL) | change
    shapes = {name: shape for name, shape in shapes.items() if shape is not None}
    with pytest.raises(CheckpointError, match=f"^{re.escape(says)}$"):
        check_shapes(SMALL, shapes)


def test_an_untied_head_is_expected():
    untied, tied = replace(SMALL, tie_word_embeddings=False), shapes_of(SMALL)
    with pytest.raises(CheckpointError, match=r"lm_head.weight of shape \[11, 6\] is missing"):
        check_shapes(untied, tied)
    check_shapes(untied, {**tied, "lm_head.weight": (11, 6)})


def test_a_config_of_a_billion_layers_takes_no_time():
    says = "makes 1000000000 layers, but there are only 1 tensors"
    with pytest.raises(CheckpointError, match=says):
        check_shapes(replace(SMALL, n_layer=10**9), {"wte.weight": (11, 6)})
