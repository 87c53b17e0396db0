"""Models written as one file: read again by PyPI's gguf, by transformers, and by ourselves."""

import json

import numpy as np
import pytest
from closeness import near
from models import letters, random_params, saved_model

import gpt2np
from gpt2np import Config, Model, Tokenizer
from gpt2np.errors import CheckpointError, InputError

GPT2 = Config(vocab_size=50257, n_ctx=1024, n_embd=32, n_head=2, n_layer=2)
SIZES = {"vocab_size": 60, "n_ctx": 16, "n_embd": 12, "n_head": 3, "n_layer": 2}
OTHER = Config(**SIZES, n_inner=20, layer_norm_epsilon=1e-3, tie_word_embeddings=False)


@pytest.fixture(scope="module")
def model():
    return Model(random_params(GPT2), Tokenizer.gpt2())


def equal(ours, theirs, bits=24):
    """The same model, but for what its weights were rounded to."""
    assert ours.config == theirs.config
    assert ours.has_tokenizer == theirs.has_tokenizer
    assert not ours.has_tokenizer or ours.tokenizer == theirs.tokenizer
    assert (ours.bos, ours.eos) == (theirs.bos, theirs.eos)
    for name, array in theirs.params.items():
        assert np.abs(ours.params[name] - array).max() <= np.abs(array).max() * 2.0**-bits
        assert bits < 24 or (ours.params[name] == array).all()


# GGUF.


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 24), ("float16", 11)])
def test_the_gguf_package_and_transformers_read_what_we_wrote(tmp_path, model, dtype, bits):
    theirs = pytest.importorskip("gguf")
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    path = gpt2np.save(model, tmp_path / "model.gguf", dtype=dtype)
    again = gpt2np.load(path)
    equal(again, model, bits)

    reader = theirs.GGUFReader(path)
    by_name = {tensor.name: tensor for tensor in reader.tensors}
    assert len(by_name) == len(model.params)
    for name, ours in (
        ("token_embd.weight", again.params.wte),
        ("position_embd.weight", again.params.wpe),
        ("blk.1.attn_qkv.weight", again.params.blocks[1].attn.c_attn.weight.T),
        ("blk.1.attn_output.weight", again.params.blocks[1].attn.c_proj.weight.T),
        ("blk.0.ffn_down.weight", again.params.blocks[0].mlp.c_proj.weight.T),
        ("output_norm.bias", again.params.ln_f.bias),
    ):
        tensor = by_name[name]
        assert tensor.shape.tolist() == list(ours.shape[::-1])
        np.testing.assert_array_equal(theirs.dequantize(tensor.data, tensor.tensor_type), ours)
    tokens = reader.fields["tokenizer.ggml.tokens"]
    assert tokens.contents(50256) == "<|endoftext|>"

    settings = {"gguf_file": "model.gguf", "dtype": torch.float32}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **settings).eval()
    ids = [15496, 995, 50256, 11, 262]
    with torch.no_grad():
        assert near(gpt2np.forward(again.params, ids), loaded(torch.tensor([ids])).logits.numpy())
    assert loaded.config.eos_token_id == 50256
    spelt = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    text = "Hello, wörld's  end<|endoftext|> 漢字\n"
    assert model.tokenizer.encode(text, special=True) == spelt(text)["input_ids"]


@pytest.mark.parametrize("form", ["gguf", "npz"])
@pytest.mark.parametrize("config", [Config(**SIZES), OTHER], ids=["published", "other"])
def test_sizes_that_are_nobodys(tmp_path, form, config):
    model = Model(random_params(config))
    equal(gpt2np.load(gpt2np.save(model, tmp_path / f"x.{form}")), model)


@pytest.mark.parametrize("form", ["gguf", "npz"])
def test_more_rows_than_tokens(tmp_path, form):
    model = Model(random_params(Config(**SIZES | {"vocab_size": 50304})), Tokenizer.gpt2())
    equal(gpt2np.load(gpt2np.save(model, tmp_path / f"x.{form}")), model)


@pytest.mark.parametrize("form", ["gguf", "npz"])
def test_tokens_and_ends_of_its_own(tmp_path, form):
    """Some that are special and some that are not, and an end that is not GPT-2's."""
    folder = tmp_path / "model"
    saved_model(folder, Tokenizer.gpt2(), vocab_size=50260)
    added = [("<|endoftext|>", 50256, True), ("<|user|>", 50257, True), ("<b>", 50258, False)]
    whole = {
        "added_tokens": [{"id": i, "content": text, "special": s} for text, i, s in added],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|endoftext|>"}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {"<|endoftext|>": {"ids": [50256]}},
        },
        "model": {
            "type": "BPE",
            "vocab": json.loads((folder / "vocab.json").read_text("utf-8")),
            "merges": (folder / "merges.txt").read_text("utf-8").split("\n")[1:-1],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole), "utf-8")
    config = json.loads((folder / "config.json").read_text())
    config |= {"bos_token_id": 50256, "eos_token_id": 50257}
    (folder / "config.json").write_text(json.dumps(config))
    model = gpt2np.load(folder)
    assert (model.eos, model.tokenizer.n_vocab) == ((50257,), 50259)
    again = gpt2np.load(gpt2np.save(model, tmp_path / f"x.{form}"))
    equal(again, model)
    assert again.tokenizer.begins_with == model.tokenizer.begins_with == 50256
    assert again.tokenizer.encode("<b><|user|>") == model.tokenizer.encode("<b><|user|>")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"activation_function": "gelu"}, "the activation is 'gelu'"),
        ({"activation_function": "relu"}, "the activation is 'relu'"),
        ({"scale_attn_weights": False}, "the scores are not scaled"),
        ({"scale_attn_by_inverse_layer_idx": True}, "the scores are scaled by layer"),
    ],
)
def test_what_the_header_cannot_say_is_refused(tmp_path, settings, message):
    model = Model(random_params(Config(**SIZES, **settings)))
    with pytest.raises(InputError, match=f"GGUF's header cannot say that {message}"):
        gpt2np.save(model, tmp_path / "x.gguf")
    assert not (tmp_path / "x.gguf").exists()
    equal(gpt2np.load(gpt2np.save(model, tmp_path / "x.npz")), model)


@pytest.mark.parametrize(
    ("ends", "message"),
    [([50256, 11], "any of 2 ids: it has room for one"), (None, "no id ends a text: 50256 would")],
)
def test_ends_that_the_header_cannot_say(tmp_path, ends, message):
    folder = tmp_path / "model"
    saved_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": ends}))
    model = gpt2np.load(folder)
    with pytest.raises(InputError, match=message):
        gpt2np.save(model, tmp_path / "x.gguf")
    equal(gpt2np.load(gpt2np.save(model, tmp_path / "x.npz")), model)


def test_a_tokenizer_that_is_not_ours_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot say that the tokenizer is a Letters"):
        gpt2np.save(letters, tmp_path / "x.gguf")


@pytest.mark.parametrize("form", ["gguf", "npz"])
def test_numbers_too_large_for_float16(tmp_path, form):
    params = random_params(Config(**SIZES))
    model = Model(params).replace({"wte.weight": params.wte * np.float32(1e6)})
    with pytest.raises(CheckpointError, match="too large for float16"):
        gpt2np.save(model, tmp_path / f"x.{form}", dtype="float16")
    assert not list(tmp_path.iterdir())


# npz.


def test_numpy_itself_reads_the_npz(tmp_path, model):
    path = gpt2np.save(model, tmp_path / "model.npz", dtype="float16")
    with np.load(path) as arrays:
        assert json.loads(arrays["config.json"].tobytes())["n_layer"] == 2
        wte = arrays["transformer.wte.weight"]
    np.testing.assert_array_equal(wte, model.params.wte.astype("<f2"), strict=True)
    equal(gpt2np.load(path), model, 11)


def test_what_is_written_can_be_mapped(tmp_path, model):
    path = gpt2np.save(model, tmp_path / "model.npz")
    for array in gpt2np.checkpoints.open_checkpoint(path).tensors.values():
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert isinstance(base, np.memmap)


# The command.


@pytest.mark.parametrize("form", ["gguf", "npz"])
def test_convert(tmp_path, run, form):
    source = saved_model(tmp_path / "model", Tokenizer.gpt2(), n_ctx=16)
    out = str(tmp_path / f"out.{form}")
    assert run("convert", source, out)[:2] == (0, f"{out}\n")
    equal(gpt2np.load(out), gpt2np.load(source))
    code, _, err = run("convert", source, out)
    assert code
    assert out in err
    assert run("convert", source, out, "--force", "--dtype", "float16")[0] == 0
    code, _, err = run("convert", source, str(tmp_path / f"new.{form}"), "--dtype", "bfloat16")
    assert code
    assert "is written in float32 or float16, not bfloat16" in err
    # Back again, and onto itself.
    assert run("convert", out, str(tmp_path / "back"))[0] == 0
    equal(gpt2np.load(tmp_path / "back"), gpt2np.load(out))
    assert run("convert", out, out, "--force")[0]
