"""load(): each writer's files give the logits that Hugging Face's model has with those weights."""

import json
import os
import pickle
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import llmc_header, llmc_order
from closeness import assert_close
from huggingface import hf_logits, hf_model, torch, transformers
from models import random_params
from safetensors.numpy import load_file, save_file
from shared import SHARED, needs_shared

from gpt2np import (
    CheckpointError,
    Config,
    InputError,
    KVCache,
    Model,
    Params,
    forward,
    load,
    loading,
    save,
)
from gpt2np.assets_path import assets
from gpt2np.config import ACTIVATIONS
from gpt2np.loading import inspect

CONFIG = Config(vocab_size=37, n_ctx=12, n_embd=24, n_head=3, n_layer=2)
WIDE = replace(CONFIG, n_embd=768, n_inner=8, n_head=12, n_layer=1)  # as wide as 124M
IDS = np.random.default_rng(0).integers(37, size=(2, 12))
TF_SHARDED = Path(__file__).parents[1] / "assets" / "golden" / "tf-sharded"


def reference(config=CONFIG, **flags):
    """Hugging Face's model with random weights."""
    return hf_model(random_params(replace(config, **flags), 11))


def write_config(folder, config=CONFIG, **change):
    values = config.to_dict() | change
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")


def assert_same_logits(source, model, ids=IDS):
    ours, theirs = forward(load(source).params, ids), hf_logits(model, ids)
    assert ours.dtype == np.float32
    assert_close(ours, theirs)


# Hugging Face's folders


def test_save_pretrained(tmp_path):
    model = reference()
    model.save_pretrained(tmp_path)
    assert_same_logits(tmp_path, model)
    assert_same_logits(str(tmp_path), model)
    assert_same_logits(tmp_path / "model.safetensors", model)
    assert not load(tmp_path).has_tokenizer  # there is none for 37 tokens


def test_save_pretrained_in_shards(tmp_path):
    model = reference()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_same_logits(tmp_path, model)
    for file in tmp_path.glob("*.json"):  # as an editor on Windows leaves them
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert_same_logits(tmp_path, model)
    assert_same_logits(tmp_path / "model.safetensors.index.json", model)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before-1.6"])
def test_torch_save(tmp_path, zipped):
    model = reference()
    torch.save(
        model.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped
    )
    write_config(tmp_path)
    assert_same_logits(tmp_path, model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("writer", ["safetensors", "torch"])
def test_other_precisions(tmp_path, dtype, writer):
    model = reference().to(dtype)
    if writer == "torch":
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
        write_config(tmp_path)
    else:
        model.save_pretrained(tmp_path)
    assert_same_logits(tmp_path, model.float())


@pytest.mark.parametrize(
    "flags",
    [
        {"n_inner": 7},
        *({"activation_function": name} for name in ACTIVATIONS if name != "gelu_new"),
        {"layer_norm_epsilon": 0.25},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"reorder_and_upcast_attn": True},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_every_flag_of_config_json_is_honoured(tmp_path, flags):
    model = reference(**flags)
    model.save_pretrained(tmp_path)
    assert_same_logits(tmp_path, model)
    assert load(tmp_path).config == replace(CONFIG, **flags)
    # And would be missed.
    same = {"n_inner", "reorder_and_upcast_attn", "tie_word_embeddings"}
    name = flags.get("activation_function")
    if flags.keys().isdisjoint(same) and name not in ("gelu_pytorch_tanh", "gelu_fast"):
        write_config(tmp_path)
        with pytest.raises(AssertionError):
            assert_same_logits(tmp_path, model)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"add_cross_attention": True},
            "config: add_cross_attention is set, which gpt2np does not",
        ),
        ({"quantization_config": {"load_in_8bit": True}}, "config: quantization_config is set"),
        (
            {"activation_function": "mish"},
            "config: activation_function is 'mish', which is none of gelu_new,",
        ),
        ({"model_type": "gpt_neo"}, "config: model_type is 'gpt_neo', not 'gpt2'"),
        ({"scale_attn_weights": "yes"}, "config: scale_attn_weights is 'yes', not true or false"),
        ({"n_embd": None}, "config: n_embd must be an integer from 1 to 2147483647, not None"),
    ],
    ids=str,
)
def test_what_config_json_asks_for_in_vain(tmp_path, change, says):
    reference().save_pretrained(tmp_path)
    write_config(tmp_path, **change)
    file = tmp_path / "config.json"
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'{file}: {says}')}"):
        load(tmp_path)


def plain(model):
    """The tensors under the names without prefix, as in the published file."""
    state = model.transformer.state_dict()
    return {name: tensor.numpy() for name, tensor in state.items()}


def masks(dtype):
    causal = np.tril(np.ones((1, 1, 12, 12), dtype))
    return {f"h.{i}.attn.bias": causal for i in range(2)}


@pytest.mark.parametrize("prefix", ["", "transformer.", "module.transformer."])
def test_prefixes_and_masks(tmp_path, prefix):
    """The file of openai-community/gpt2 has no prefix, no head, and a mask in each block."""
    model = reference()
    tensors = plain(model) | masks(np.float32)
    tensors |= {f"h.{i}.attn.masked_bias": np.array(-1e4, np.float32) for i in range(2)}
    save_file(
        {prefix + name: array for name, array in tensors.items()}, tmp_path / "model.safetensors"
    )
    write_config(tmp_path)
    assert_same_logits(tmp_path, model)
    dropped = inspect(tmp_path).fitted.dropped
    assert sorted(dropped) == sorted(
        f"{prefix}h.{i}.attn.{mask}" for i in range(2) for mask in ("bias", "masked_bias")
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_])
def test_masks_of_bytes(tmp_path, dtype):
    model = reference()
    state = {name: torch.tensor(a) for name, a in (plain(model) | masks(dtype)).items()}
    torch.save(state, tmp_path / "pytorch_model.bin")
    write_config(tmp_path)
    assert_same_logits(tmp_path, model)


def test_a_tied_head_that_is_written_out(tmp_path):
    model = reference()
    save_file(
        plain(model) | {"lm_head.weight": plain(model)["wte.weight"].copy()},
        tmp_path / "model.safetensors",
    )
    write_config(tmp_path)
    assert_same_logits(tmp_path, model)
    params = load(tmp_path).params
    assert params.lm_head is params.wte


def test_a_head_of_its_own_that_the_config_denies(tmp_path):
    """It is used, as transformers does, and that is said."""
    reference(tie_word_embeddings=False).save_pretrained(tmp_path)
    write_config(tmp_path)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    with pytest.warns(UserWarning, match=r"other values than wte.weight.*loaded untied"):
        assert_same_logits(tmp_path, theirs)
    with pytest.warns(UserWarning, match=r"loaded untied"):
        assert not load(tmp_path).config.tie_word_embeddings


def test_a_file_that_is_overwritten(tmp_path):
    """A copy stays as it is; a mapped model would change, or its process end."""
    model, other = reference(), reference(layer_norm_epsilon=0.1)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    write_config(tmp_path)
    loaded = load(tmp_path, copy=True)
    before = forward(loaded.params, IDS)
    data = pickle.dumps(loaded)
    torch.save({name: t * 2 for name, t in other.state_dict().items()}, tmp_path / "new")
    (tmp_path / "pytorch_model.bin").write_bytes((tmp_path / "new").read_bytes()[:3000])
    assert np.array_equal(forward(loaded.params, IDS), before)
    (tmp_path / "pytorch_model.bin").write_bytes((tmp_path / "new").read_bytes())
    (tmp_path / "new").unlink()
    with pytest.raises(CheckpointError, match="has changed, or is another here"):
        pickle.loads(data)


def test_no_config(tmp_path):
    """The shapes tell all but the heads, and the published widths tell those."""
    model = reference(WIDE)
    save_file(plain(model), tmp_path / "model.safetensors")
    assert load(tmp_path).config == WIDE
    assert_same_logits(tmp_path, model)
    narrow = tmp_path / "narrow.safetensors"
    save_file(plain(reference()), narrow)
    says = f"{narrow}: the file does not say how many heads there are: put its config.json beside"
    with pytest.raises(CheckpointError, match=re.escape(says)):
        load(narrow)


# nanoGPT, minGPT, llm.c


def linear(model):
    """The state dict as a model of nn.Linear has it: [out, in]."""
    state = model.state_dict()
    return {
        name: tensor.T.contiguous() if tensor.ndim == 2 and ".h." in name else tensor
        for name, tensor in state.items()
    }


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("wrapper", ["", "_orig_mod.", "module.", "_orig_mod.module."])
def test_nanogpt(tmp_path, wrapper, bias):
    """ckpt.pt as train.py writes it: exact GELU, a padded vocabulary, model_args in the file."""
    config = replace(CONFIG, vocab_size=50304, activation_function="gelu")
    params = random_params(config, 12)
    if not bias:
        params = Params(
            config,
            {
                name: array * 0 if name.endswith(".bias") else array
                for name, array in params.items()
            },
        )
    model = hf_model(params)
    state = {
        wrapper + name: tensor
        for name, tensor in linear(model).items()
        if bias or not name.endswith(".bias")
    }
    assert len(state) == (29 if bias else 16)
    state[wrapper + "lm_head.weight"] = state[wrapper + "transformer.wte.weight"]
    arguments = {
        "n_layer": 2,
        "n_head": 3,
        "n_embd": 24,
        "block_size": 12,
        "bias": bias,
        "vocab_size": 50304,
        "dropout": 0.0,
    }
    torch.save(
        {
            "model": state,
            "optimizer": {},
            "model_args": arguments,
            "iter_num": 5,
            "best_val_loss": torch.tensor(1.5),
            "config": {"compile": True},
        },
        tmp_path / "ckpt.pt",
    )
    assert_same_logits(tmp_path, model)
    assert_same_logits(tmp_path / "ckpt.pt", model)
    loaded = load(tmp_path)
    assert loaded.config == config
    assert loaded.tokenizer.n_vocab == 50257


@pytest.mark.parametrize("beside", [True, False], ids=["with-config", "alone"])
def test_mingpt(tmp_path, beside):
    """A bare state dict in nn.Linear layout with masks and a head of its own: tanh GELU."""
    config = replace(WIDE, tie_word_embeddings=False)
    model = hf_model(random_params(config, 13))
    state = linear(model) | {"transformer.h.0.attn.bias": torch.ones(12, 12).tril()[None, None]}
    torch.save(state, tmp_path / "model.pt")
    if beside:
        write_config(tmp_path, config)
    assert_same_logits(tmp_path / "model.pt", model)


def test_nn_linear_that_may_have_either_gelu(tmp_path):
    model = reference(WIDE)
    torch.save(linear(model), tmp_path / "model.pt")
    says = "the file does not say which GELU the model has: put its config.json beside it"
    with pytest.raises(CheckpointError, match=re.escape(says)):
        load(tmp_path)
    write_config(tmp_path, WIDE)
    assert_same_logits(tmp_path, model)


@pytest.mark.parametrize(("version", "dtype"), [(3, torch.float32), (5, torch.bfloat16)], ids=str)
def test_llmc(tmp_path, version, dtype):
    """Each kind of tensor across all layers, the vocabulary padded with rows of zeros."""
    model = reference().to(dtype)
    state = linear(model)
    wte = state["transformer.wte.weight"]
    padded = torch.cat([wte, torch.zeros(128 - 37, 24, dtype=dtype)])
    order = llmc_order(state | {"transformer.wte.weight": padded}, layers=2).values()
    body = b"".join(tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in order)
    header = llmc_header(version, T=12, V=37, L=2, H=3, D=24, V_padded=128)
    (tmp_path / "gpt2.bin").write_bytes(header + body)
    assert_same_logits(tmp_path / "gpt2.bin", model.float())
    assert load(tmp_path).config == CONFIG


# OpenAI's TensorFlow checkpoints


def greedy(params, prompt, n):
    ids, cache = np.array(prompt), KVCache(params, len(prompt))
    new = ids
    for _ in range(n):
        new = forward(params, new, cache, last_only=True).argmax(-1)
        ids = np.concatenate([ids, new], axis=1)
    return ids


@needs_shared
def test_openais_own_model():
    """Logits, keys and values, and greedy ids are those of its model.py under TensorFlow."""
    expected = np.load(SHARED / "openai-tf-tiny" / "expected.npz")
    params = load(SHARED / "openai-tf-tiny").params
    cache = KVCache(params, 2)
    logits = forward(params, expected["tokens"], cache)
    assert_close(logits, expected["logits"])
    present = np.stack([cache.keys, cache.values], axis=2).swapaxes(0, 1)  # [B, L, 2, H, T, K]
    assert_close(present, expected["present"], 2e-5 / np.abs(expected["present"]).max())
    assert np.array_equal(greedy(params, expected["greedy"][:, :8], 16), expected["greedy"])


def test_openais_own_model_of_twelve_layers_in_shards():
    expected = np.load(TF_SHARDED / "expected.npz")
    params = load(TF_SHARDED).params
    cache = KVCache(params, 2)
    logits = forward(params, expected["tokens"], cache)
    assert_close(logits, expected["logits"])
    present = np.stack([cache.keys, cache.values], axis=2).swapaxes(0, 1)[:1]
    assert_close(present, expected["present"])


# The embedded model


def test_the_embedded_model_is_hugging_faces_with_its_weights():
    ids = np.random.default_rng(1).integers(50257, size=(1, 60))
    theirs = transformers.GPT2LMHeadModel.from_pretrained(assets() / "tiny-shakespeare").float()
    assert_same_logits(None, theirs.eval(), ids)
    model = load("tiny-shakespeare")
    assert model.source == load().source == "tiny-shakespeare"
    assert model.tokenizer.n_vocab == 50257


# What can be wrong


@pytest.fixture
def folder(tmp_path):
    """A good folder, to be spoilt."""
    save_file(plain(reference()), tmp_path / "model.safetensors")
    write_config(tmp_path)
    return tmp_path


def spoil(folder, change):
    tensors = load_file(folder / "model.safetensors") | change
    tensors = {name: array for name, array in tensors.items() if array is not None}
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"h.1.ln_2.bias": None}, "tensor h.1.ln_2.bias of shape [24] is missing"),
        (
            {"ln_f.weight": None, "wpe.weight": None},
            "tensor wpe.weight of shape [12, 24] is missing, and 1 more like it",
        ),
        (
            {"h.2.ln_1.bias": np.ones(24, np.float32)},
            "tensor h.2.ln_1.bias of shape [24] is not part of a GPT-2 with 2 layers",
        ),
        (
            {"score.weight": np.ones((2, 24), np.float32)},
            "this is a sequence classifier (score.weight): it has no language-model head",
        ),
        (
            {"h.0.mlp.c_fc.weight": np.ones((24, 95), np.float32)},
            "tensor h.0.mlp.c_fc.weight has shape [24, 95], but the config makes it [24, 96]",
        ),
        (
            {"wte.weight": np.ones(37 * 24, np.float32)},
            "tensor wte.weight has shape [888], but the config makes it [37, 24]",
        ),
        (
            {"wte.weight": np.ones((0, 3, 4), np.float32)},
            "tensor wte.weight has shape [0, 3, 4], but the config makes it [37, 24]",
        ),
        (
            {"model/wte": np.ones((0, 3, 4), np.float32), "wte.weight": None},
            "tensor wte.weight has shape [0, 3, 4], but the config makes it [37, 24]",
        ),
        (
            {"h.0.mlp.c_proj.weight": np.array(1, np.float32)},
            "tensor h.0.mlp.c_proj.weight has shape [], but the config makes it [96, 24]",
        ),
        (
            {"h.0.\x1b]0;owned\x07": np.ones(1, np.float32)},
            r"tensor h.0.\x1b]0;owned\x07 of shape [1] is not part of a GPT-2 with 2 layers",
        ),
        ({"ln_f.bias": np.ones(24, np.int64)}, "tensor ln_f.bias holds int64, not weights"),
        (
            {"transformer.ln_f.bias": np.ones(24, np.float32)},
            "tensor transformer.ln_f.bias of shape [24] is not part of a GPT-2 with 2 layers",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(list(value)),
)
def test_tensors_that_do_not_fit(folder, change, says):
    spoil(folder, change)
    file = folder / "model.safetensors"
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'{file}: {says}')}") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "is not valid JSON: "),
        (b"\xff\xfe{}", "is UTF-16: convert it to UTF-8"),
        (b"[" * 100_000, "is not valid JSON: "),
        (b"[1]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b'{"n_head": 3, "n_head": 4}', "is not valid JSON: the key 'n_head' stands twice"),
        (b'{"n_head": Infinity, "n_layer": 1, "vocab_size": 2}', "config: n_head must be an int"),
        (b'{"layer_norm_epsilon": 1e400, "vocab_size": 2}', "config: layer_norm_epsilon must be"),
        (b'{"n_ctx": 1' + b"0" * 400 + b"}", "config: n_ctx must be an integer from 1 to"),
        (b'{"n_ctx": 1' + b"0" * 5000 + b"}", "is not valid JSON: "),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_a_config_json_that_is_none(folder, content, says):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"config\.json:? {re.escape(says)}") as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_of_another_size(folder):
    write_config(folder, replace(CONFIG, n_layer=3))
    with pytest.raises(CheckpointError, match=r"h\.2\.ln_1\.weight .* missing, and 11 more"):
        load(folder)
    write_config(folder, replace(CONFIG, n_ctx=13))
    with pytest.raises(CheckpointError, match=r"wpe\.weight has shape \[12, 24\], but"):
        load(folder)


def test_a_file_that_is_cut_short(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=re.escape(str(file))):
        load(folder)
    file.write_bytes(struct.pack("<Q", 1 << 62))
    with pytest.raises(CheckpointError, match=re.escape(str(file))):
        load(folder)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", np.float32, "f4", None])
def test_a_dtype_that_nothing_is_computed_in(folder, dtype):
    with pytest.raises(InputError, match="give 'float32' or 'float64'"):
        load(folder, dtype=dtype)


def test_a_place_where_nothing_is(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="no such file or folder"):
        load(tmp_path / "absent")


# The model that comes of it


def test_float64(folder):
    """All of it in double precision, of the float32 weights widened."""
    params = load(folder, dtype="float64").params
    assert params.dtype == np.float64
    theirs = hf_logits(reference().double(), IDS)
    ours = forward(params, IDS)
    assert ours.dtype == np.float64
    assert_close(ours, theirs)


def bases(array):
    """An array, and what it is a view of, and so on."""
    while isinstance(array, np.ndarray):
        yield array
        array = array.base


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["conv1d", "linear"])
def test_weights_are_read_only_whatever_they_come_from(tmp_path, dtype, stored, layout):
    """Not even through what they are views of."""
    model = reference().to(stored)
    state = model.state_dict() if layout == "conv1d" else linear(model)
    torch.save(state, tmp_path / "pytorch_model.bin")
    write_config(tmp_path)
    for source in (tmp_path, None):
        for name, array in load(source, dtype=dtype).params.items():
            assert not any(part.flags.writeable for part in bases(array)), name


def test_weights_stay_in_the_file(folder):
    params = load(folder).params
    for name, array in params.items():
        if not name.endswith("mlp.c_proj.weight"):  # which is laid out anew for speed
            assert not array.flags.writeable, name
            owner = array
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            assert isinstance(owner, np.memmap), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pickle_is_small_and_opens_the_files_again(folder, monkeypatch, dtype):
    monkeypatch.chdir(folder.parent)
    model = load(folder.name, dtype=dtype)
    data = pickle.dumps(model)
    assert len(data) < 500
    monkeypatch.chdir("/")
    again = pickle.loads(data)
    assert again.source == model.source == str(folder)
    assert again.config == model.config
    assert again.params.dtype == np.dtype(dtype)
    assert np.array_equal(forward(again.params, IDS), forward(model.params, IDS))
    assert pickle.loads(data) is again  # the next task of a worker finds it open


def test_a_pickle_does_not_open_other_weights(folder):
    data = pickle.dumps(load(folder))
    spoil(folder, {"ln_f.bias": np.ones(24, np.float32)})  # of the same size
    with pytest.raises(CheckpointError, match=r"has changed, or is another here: .* Load it again"):
        pickle.loads(data)


def test_a_pickle_of_a_model_made_by_hand_is_whole():
    model = Model(random_params(CONFIG))
    again = pickle.loads(pickle.dumps(model))
    assert again.source is None
    assert np.array_equal(forward(again.params, IDS), forward(model.params, IDS))


def test_a_model_does_not_change(folder):
    model = load(folder)
    with pytest.raises(AttributeError):
        model.source = "another"
    assert model.config is model.params.config
    assert repr(model) == f"Model({folder}: {model.params!r})"
    assert repr(Model(model.params)).startswith("Model(made by hand: Params(")


def test_a_tokenizer_beside_the_weights(folder):
    """Any vocabulary, if its files are there; GPT-2's own if the size is its."""
    merges = (assets() / "vocab.bpe").read_text(encoding="utf-8").splitlines()[:11]
    (folder / "vocab.bpe").write_text("\n".join(merges) + "\n", encoding="utf-8")
    tokenizer = load(folder).tokenizer
    assert tokenizer.n_vocab == 256 + 10 + 1
    assert tokenizer.decode(tokenizer.encode("the theatre")) == "the theatre"


@pytest.mark.parametrize("change", ["longer", "shorter", "touched"])
def test_files_that_change_while_they_are_read(tmp_path, monkeypatch, change):
    file = Path(save(Model(random_params(CONFIG)), tmp_path)) / "model.safetensors"
    real = loading.fit

    def fit(*args, **named):
        size, written = file.stat().st_size, file.stat().st_mtime_ns
        if change == "touched":
            os.utime(file, ns=(written + 1_000_000_000, written + 1_000_000_000))
        else:
            os.truncate(file, size + (1 if change == "longer" else -1))
        return real(*args, **named)

    monkeypatch.setattr(loading, "fit", fit)
    with pytest.raises(CheckpointError, match=r"model.safetensors changed while it was read: try"):
        load(tmp_path)
