"""State dicts of GPT-2s that are written with other names: the course's, the lens's, minGPT's."""

import json

import numpy as np
import pytest
from closeness import near
from models import random_params

import gpt2np
from gpt2np import Config
from gpt2np.checkpoints import open_checkpoint, safetensors
from gpt2np.errors import CheckpointError

UNTIED = Config(vocab_size=11, n_ctx=6, n_embd=12, n_head=3, n_layer=2, tie_word_embeddings=False)
ERF = Config(**{**vars(UNTIED), "activation_function": "gelu"})


def from_scratch(params):
    """rasbt/LLMs-from-scratch: nn.Linear's [out, in]; queries, keys and values apart."""
    D = params.config.n_embd
    state = {"tok_emb.weight": params.wte, "pos_emb.weight": params.wpe}
    for i, block in enumerate(params.blocks):
        at = f"trf_blocks.{i}"
        for j, part in enumerate(("W_query", "W_key", "W_value")):
            state[f"{at}.att.{part}.weight"] = block.attn.c_attn.weight[:, j * D :][:, :D].T
            state[f"{at}.att.{part}.bias"] = block.attn.c_attn.bias[j * D :][:D]
        state[f"{at}.att.mask"] = np.triu(np.ones((6, 6), np.float32), 1)
        for name, layer in (
            ("att.out_proj", block.attn.c_proj),
            ("ff.layers.0", block.mlp.c_fc),
            ("ff.layers.2", block.mlp.c_proj),
        ):
            state[f"{at}.{name}.weight"] = layer.weight.T
            state[f"{at}.{name}.bias"] = layer.bias
        for name, norm in (("norm1", block.ln_1), ("norm2", block.ln_2)):
            state |= {f"{at}.{name}.scale": norm.weight, f"{at}.{name}.shift": norm.bias}
    state |= {"final_norm.scale": params.ln_f.weight, "final_norm.shift": params.ln_f.bias}
    return state | {"out_head.weight": params.lm_head}


def min_gpt(params):
    """karpathy/minGPT of 2020."""
    D = params.config.n_embd
    state = {"pos_emb": params.wpe[None], "tok_emb.weight": params.wte}
    for i, block in enumerate(params.blocks):
        at = f"blocks.{i}"
        state |= {f"{at}.ln1.weight": block.ln_1.weight, f"{at}.ln1.bias": block.ln_1.bias}
        state |= {f"{at}.ln2.weight": block.ln_2.weight, f"{at}.ln2.bias": block.ln_2.bias}
        state[f"{at}.attn.mask"] = np.tril(np.ones((1, 1, 6, 6), np.float32))
        for j, part in ((1, "key"), (0, "query"), (2, "value")):
            state[f"{at}.attn.{part}.weight"] = block.attn.c_attn.weight[:, j * D :][:, :D].T
            state[f"{at}.attn.{part}.bias"] = block.attn.c_attn.bias[j * D :][:D]
        for name, layer in (
            ("attn.proj", block.attn.c_proj),
            ("mlp.0", block.mlp.c_fc),
            ("mlp.2", block.mlp.c_proj),
        ):
            state |= {f"{at}.{name}.weight": layer.weight.T, f"{at}.{name}.bias": layer.bias}
    state |= {"ln_f.weight": params.ln_f.weight, "ln_f.bias": params.ln_f.bias}
    return state | {"head.weight": params.lm_head}


def lens(params):
    """TransformerLens: an axis for the heads, matrices as [in, out]."""
    D, H, K = params.config.n_embd, params.config.n_head, params.config.head_width
    state = {"embed.W_E": params.wte, "pos_embed.W_pos": params.wpe}
    for i, block in enumerate(params.blocks):
        at = f"blocks.{i}"
        weight = block.attn.c_attn.weight.reshape(D, 3, H, K)
        bias = block.attn.c_attn.bias.reshape(3, H, K)
        for j, part in enumerate("QKV"):
            state[f"{at}.attn.W_{part}"] = np.stack([weight[:, j, head] for head in range(H)])
            state[f"{at}.attn.b_{part}"] = bias[j]
        state[f"{at}.attn.W_O"] = block.attn.c_proj.weight.reshape(H, K, D)
        state[f"{at}.attn.b_O"] = block.attn.c_proj.bias
        state[f"{at}.attn.mask"] = np.tril(np.ones((6, 6), bool))
        state[f"{at}.attn.IGNORE"] = np.array(-np.inf, np.float32)
        state |= {f"{at}.ln1.w": block.ln_1.weight, f"{at}.ln1.b": block.ln_1.bias}
        state |= {f"{at}.ln2.w": block.ln_2.weight, f"{at}.ln2.b": block.ln_2.bias}
        state |= {f"{at}.mlp.W_in": block.mlp.c_fc.weight, f"{at}.mlp.b_in": block.mlp.c_fc.bias}
        state[f"{at}.mlp.W_out"] = block.mlp.c_proj.weight
        state[f"{at}.mlp.b_out"] = block.mlp.c_proj.bias
    state |= {"ln_final.w": params.ln_f.weight, "ln_final.b": params.ln_f.bias}
    return state | {"unembed.W_U": params.lm_head.T, "unembed.b_U": np.zeros(11, np.float32)}


FAMILIES = [(from_scratch, UNTIED), (min_gpt, ERF), (lens, UNTIED)]


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module."])
@pytest.mark.parametrize(("family", "config"), FAMILIES)
def test_equals_what_was_laid_out(tmp_path, family, config, prefix):
    params = random_params(config)
    state = {prefix + name: array for name, array in family(params).items()}
    safetensors.save(tmp_path / "model.safetensors", state)
    beside = {"n_head": 3, "n_embd": 12, "n_layer": 2, "vocab_size": 11, "n_ctx": 6}
    beside |= {"tie_word_embeddings": False}
    if family is lens:
        beside["activation_function"] = "gelu_new"
    (tmp_path / "config.json").write_text(json.dumps(beside))
    loaded = gpt2np.load(tmp_path).params
    assert loaded.config == config  # the activation is the family's own
    for name, array in params.items():
        np.testing.assert_array_equal(loaded[name], array, strict=True)


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        (from_scratch, UNTIED, "does not say how many heads there are: put its config.json"),
        (min_gpt, ERF, "does not say how many heads there are: put its config.json"),
        (lens, UNTIED, "does not say which GELU the model has: put its config.json"),
    ],
)
def test_what_no_shape_shows_is_asked_for(tmp_path, family, config, message):
    safetensors.save(tmp_path / "model.safetensors", family(random_params(config)))
    with pytest.raises(CheckpointError, match=message):
        gpt2np.load(tmp_path)


def test_a_lens_with_folded_norms_is_refused_with_what_to_do(tmp_path):
    state = lens(random_params(UNTIED))
    folded = {name: array for name, array in state.items() if ".ln" not in name}
    biased = state | {"unembed.b_U": np.ones(11, np.float32)}
    for wrong, message in ((folded, "whose LayerNorms are folded"), (biased, "a bias in its head")):
        safetensors.save(tmp_path / "x", wrong)
        with pytest.raises(CheckpointError, match=f"{message}.*from_pretrained_no_processing"):
            open_checkpoint(tmp_path / "x")


def test_the_courses_classifier_is_refused_as_what_it_is(tmp_path):
    """Chapter 6 puts a head of two classes in the place of the language model's."""
    state = from_scratch(random_params(UNTIED))
    state |= {"out_head.weight": np.ones((2, 12), np.float32), "out_head.bias": np.ones(2)}
    safetensors.save(tmp_path / "x", state)
    with pytest.raises(CheckpointError, match="a classifier into 2 classes, not a language model"):
        open_checkpoint(tmp_path / "x")


def test_a_name_that_is_there_twice(tmp_path):
    state = from_scratch(random_params(UNTIED))
    state["trf_blocks.0.norm1.weight"] = state["trf_blocks.0.norm1.scale"]
    safetensors.save(tmp_path / "x", state)
    with pytest.raises(CheckpointError, match=r"'h\.0\.ln_1\.weight' is there twice"):
        open_checkpoint(tmp_path / "x")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["GPTModel", "GPTModelFast"])
def test_the_course_itself(tmp_path, bias, kind):
    """The code of the book's own package."""
    torch = pytest.importorskip("torch")
    course = pytest.importorskip("llms_from_scratch.ch04")
    torch.manual_seed(0)
    settings = {"vocab_size": 11, "context_length": 6, "emb_dim": 768, "n_heads": 12}
    settings |= {"n_layers": 1, "drop_rate": 0.0, "qkv_bias": bias}
    model = getattr(course, kind)(settings).eval()
    ids = torch.tensor([[1, 5, 0, 2, 6, 3]])
    torch.save(model.state_dict(), tmp_path / "gpt2-small-124M.pth")
    with torch.no_grad():
        expected = model(ids).numpy()
    assert near(gpt2np.forward(gpt2np.load(tmp_path).params, ids.numpy()), expected)
