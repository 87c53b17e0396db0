"""Params: checked, read-only, the same arrays by name and by place; and how they are drawn."""

import copy
import pickle
import re

import numpy as np
import pytest

from gpt2np import CheckpointError, Config, Params

CONFIG = Config(vocab_size=11, n_ctx=7, n_embd=6, n_head=2, n_layer=2, n_inner=5)
SWAPPED = np.dtype(np.float32).newbyteorder()  # the order of other machines


@pytest.fixture
def params():
    return Params.random(CONFIG, 4)


def test_a_mapping_of_names_in_order_of_the_flow(params):
    names = list(params)
    assert names[:3] == ["wte.weight", "wpe.weight", "h.0.ln_1.weight"]
    assert names[-3:] == ["h.1.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"]
    assert len(params) == len(names) == 2 + 2 * 12 + 2
    assert "lm_head.weight" not in params
    with pytest.raises(KeyError):
        params["lm_head.weight"]


def test_every_array_has_its_place(params):
    """By attribute, each is the very array of that name, and none stands in for another."""
    for i, block in enumerate(params.blocks):
        for name, affine in (
            ("ln_1",        block.ln_1),
            ("attn.c_attn", block.attn.c_attn),
            ("attn.c_proj", block.attn.c_proj),
            ("ln_2",        block.ln_2),
            ("mlp.c_fc",    block.mlp.c_fc),
            ("mlp.c_proj",  block.mlp.c_proj),
        ):  # fmt: skip
            assert affine.weight is params[f"h.{i}.{name}.weight"]
            assert affine.bias is params[f"h.{i}.{name}.bias"]
    assert len(params.blocks) == 2
    assert params.wte is params["wte.weight"]
    assert params.wpe is params["wpe.weight"]
    assert params.ln_f.weight is params["ln_f.weight"]
    assert params.ln_f.bias is params["ln_f.bias"]


def test_the_head_is_wte_unless_untied(params):
    assert params.lm_head is params.wte
    untied = Params.random(
        Config(vocab_size=11, n_ctx=7, n_embd=6, n_head=2, n_layer=1, tie_word_embeddings=False)
    )
    assert untied.lm_head is untied["lm_head.weight"]
    assert untied.n_params == sum(array.size for array in untied.values())
    assert not np.array_equal(untied.lm_head, untied.wte)


def test_arrays_are_taken_as_they_are(params):
    arrays = dict(params)
    again = Params(CONFIG, arrays)
    assert all(again[name] is arrays[name] for name in arrays)
    arrays.clear()
    assert len(again) == len(params)


def test_it_cannot_be_written_to(params):
    with pytest.raises(TypeError):
        params["wte.weight"] = params.wpe


def test_n_params_and_repr(params):
    D, F = 6, 5
    block = 4 * D + 3 * D * D + 3 * D + D * D + D + 2 * D * F + F + D
    assert params.n_params == 11 * D + 7 * D + 2 * block + 2 * D
    assert repr(params) == f"Params({params.n_params} float32 in 28 tensors)"


def test_what_does_not_fit_the_config_is_refused(params):
    arrays = dict(params)
    says = "tensor wpe.weight has shape [6, 7], but the config makes it [7, 6]"
    with pytest.raises(CheckpointError, match=re.escape(says)):
        Params(CONFIG, {**arrays, "wpe.weight": arrays["wpe.weight"].T})
    del arrays["ln_f.bias"]
    with pytest.raises(CheckpointError, match=r"ln_f.bias of shape \[6\] is missing"):
        Params(CONFIG, arrays)


@pytest.mark.parametrize(
    ("dtype", "found"),
    [
        ("float16", "float16"),
        ("int64", "int64"),
        (SWAPPED, SWAPPED.str),
        ("longdouble", "float128|float96"),
    ],
)
def test_other_dtypes_are_refused(params, dtype, found):
    says = f"weights are ({found}): make all float32 or all float64"
    with pytest.raises(CheckpointError, match=says):
        Params(CONFIG, {name: array.astype(dtype) for name, array in params.items()})


def test_mixed_dtypes_are_refused(params):
    with pytest.raises(CheckpointError, match="weights are float32, float64: make all"):
        Params(CONFIG, {**params, "ln_f.bias": params["ln_f.bias"].astype(np.float64)})


def test_pickle(params):
    again = pickle.loads(pickle.dumps(params))
    assert again.config == CONFIG
    assert list(again) == list(params)
    assert all(np.array_equal(again[name], params[name]) for name in params)
    assert again.lm_head is again.wte
    assert again.blocks[1].mlp.c_fc.weight is again["h.1.mlp.c_fc.weight"]


# How random weights are drawn: the golden files depend on it, bit for bit.


def test_random_is_drawn_as_it_says():
    config = Config(
        vocab_size=3, n_ctx=2, n_embd=4, n_head=1, n_layer=1, n_inner=2, tie_word_embeddings=False
    )
    params = Params.random(config, 9)
    generator = np.random.RandomState(9)

    def matrix(*shape):
        return (generator.standard_normal(shape) * 0.02).astype(np.float32)

    def bias(width):
        return (generator.standard_normal(width) * 0.1).astype(np.float32)

    def gain(width):
        return (1 + generator.standard_normal(width) * 0.1).astype(np.float32)

    expected = [
        matrix(3, 4),
        matrix(2, 4),  # wte, wpe
        gain(4),
        bias(4),
        matrix(4, 12),
        bias(12),
        matrix(4, 4),
        bias(4),
        gain(4),
        bias(4),
        matrix(4, 2),
        bias(2),
        matrix(2, 4),
        bias(4),
        gain(4),
        bias(4),
        matrix(3, 4),  # ln_f, lm_head
    ]
    for name, array, draw in zip(params, params.values(), expected, strict=True):
        assert array.dtype == np.float32
        assert np.array_equal(array, draw), name


def test_random_is_the_same_everywhere():
    """The first numbers that RandomState(0) gives, on any machine and in any release."""
    assert Params.random(CONFIG).wte[0, :3].tolist() == pytest.approx(
        [0.02 * x for x in (1.764052345967664, 0.4001572083672233, 0.9787379841057392)], rel=1e-7
    )


def test_random_in_float64_is_the_same_widened():
    narrow, wide = Params.random(CONFIG, 3), Params.random(CONFIG, 3, np.float64)
    assert wide.dtype == np.float64
    assert all(np.array_equal(narrow[name], wide[name]) for name in narrow)
    assert Params.random(CONFIG, 3, "float64").dtype == np.float64


def test_random_depends_on_the_seed_alone():
    np.random.seed(1)  # noqa: NPY002
    first = Params.random(CONFIG, 3)
    np.random.seed(2)  # noqa: NPY002
    second, other = Params.random(CONFIG, 3), Params.random(CONFIG, 4)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not any(np.array_equal(first[name], other[name]) for name in first)


# A value: nothing that anybody does changes it.


def every_array(params):
    blocks = [array for block in params.blocks for part in block for array in flat(part)]
    return [*params.values(), params.wte, params.wpe, params.lm_head, *params.ln_f, *blocks]


def flat(part):
    return [part] if isinstance(part, np.ndarray) else [a for inner in part for a in flat(inner)]


def test_weights_are_read_only(params):
    for each in (params, Params(CONFIG, {k: a.copy() for k, a in params.items()}),
                 pickle.loads(pickle.dumps(params))):  # fmt: skip
        for array in every_array(each):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0


def test_attributes_are_set_once(params):
    for name in ("wte", "blocks", "config", "identity", "n_params", "lm_head"):
        with pytest.raises(AttributeError, match="never changes"):
            setattr(params, name, None)
    with pytest.raises(AttributeError, match="never changes"):
        del params.wte


def test_copies_are_the_thing_itself_and_equality_is_identity(params):
    same = Params(CONFIG, dict(params))
    assert copy.copy(params) is params
    assert copy.deepcopy(params) is params
    assert params == params  # noqa: PLR0124
    assert params != same
    assert params in [same, params]
    assert {params: 1, same: 2}[params] == 1


def test_an_identity_is_given_once_and_survives_pickling(params):
    first, second = (Params(CONFIG, dict(params)) for _ in range(2))
    assert first.identity != second.identity
    assert pickle.loads(pickle.dumps(first)).identity == first.identity
    assert Params.random(CONFIG, 4).identity == params.identity
    assert Params.random(CONFIG, 5).identity != params.identity
    assert Params.random(CONFIG, 4, np.float64).identity != params.identity
