"""Models written as Hugging Face folders: read again by transformers and by ourselves."""

import json
import warnings

import numpy as np
import pytest
from closeness import assert_close
from models import random_params, saved_model
from shared import SHARED, needs_shared

import gpt2np
from gpt2np.checkpoints import open_checkpoint, safetensors
from gpt2np.cli import main
from gpt2np.config import Config
from gpt2np.errors import CheckpointError, InputError
from gpt2np.files import WINDOWS

CONFIGS = {
    "as published": Config(vocab_size=60, n_ctx=16, n_embd=12, n_head=3, n_layer=2),
    "all else": Config(
        vocab_size=60,
        n_ctx=16,
        n_embd=12,
        n_head=3,
        n_layer=2,
        n_inner=20,
        activation_function="gelu",
        layer_norm_epsilon=1e-3,
        scale_attn_weights=False,
        scale_attn_by_inverse_layer_idx=True,
        reorder_and_upcast_attn=True,
        tie_word_embeddings=False,
    ),
}
IDS = np.arange(16)[None] * 7 % 60


def model_of(config):
    return gpt2np.Model(random_params(config, 3))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("dtype", [None, "float32", "float16", "bfloat16"])
def test_our_own_reader_gets_back_what_was_saved(tmp_path, config, dtype):
    model = model_of(config)
    again = gpt2np.load(gpt2np.save(model, tmp_path / "new", dtype=dtype))
    assert again.config == model.config
    bits = {"float16": 11, "bfloat16": 8}.get(dtype, 24)
    for name, array in model.params.items():
        assert np.abs(again.params[name] - array).max() <= np.abs(array).max() * 2.0**-bits
    stored = set(open_checkpoint(tmp_path / "new").dtypes.values())
    assert stored == {dtype or "float32"}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_transformers_loads_it_without_a_word_and_gives_equal_logits(
    tmp_path, config, dtype, capfd
):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    gpt2np.save(model_of(config), tmp_path, dtype=dtype)
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs, told = transformers.GPT2LMHeadModel.from_pretrained(
            tmp_path, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
        )
    assert not any(told.values()), told
    assert capfd.readouterr().err == ""
    with torch.no_grad():
        logits = theirs.eval()(torch.from_numpy(IDS)).logits.numpy()
    ours = gpt2np.forward(gpt2np.load(tmp_path).params, IDS)
    assert_close(ours, logits)


def test_the_tokenizer_is_saved_too(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = gpt2np.Tokenizer.gpt2()
    saved_model(tmp_path, tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "Hello, wörld! <|endoftext|>'s  \n\n3"
    assert theirs.encode("naïve 12\n\n x") == tokenizer.encode("naïve 12\n\n x")
    assert gpt2np.load(tmp_path).tokenizer.encode(text) == tokenizer.encode(text)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["bos_token_id"] == config["eos_token_id"] == 50256


def test_saving_over_the_files_that_are_mapped(tmp_path):
    """The folder that a model was loaded from can be written to while the model is in use."""
    gpt2np.save(model_of(CONFIGS["as published"]), tmp_path)
    model = gpt2np.load(tmp_path)
    before = gpt2np.forward(model.params, IDS)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    if WINDOWS:  # where a file that is mapped cannot be replaced
        with pytest.raises(PermissionError, match="is in use; close what has it open, a model lo"):
            gpt2np.save(model, tmp_path, dtype="float16", overwrite=True)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
    else:
        gpt2np.save(model, tmp_path, dtype="float16", overwrite=True)
        assert (tmp_path / "model.safetensors").read_bytes() not in files.values()
    assert np.array_equal(gpt2np.forward(model.params, IDS), before)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]


def test_what_cannot_be_saved(tmp_path):
    model = model_of(CONFIGS["as published"])
    with pytest.raises(InputError, match=r"dtype is 'int8'; give one of float32, float16, bfl"):
        gpt2np.save(model, tmp_path, dtype="int8")
    arrays = {**model.params, "ln_f.bias": np.full(12, 1e5, np.float32)}
    large = gpt2np.Model(gpt2np.Params(model.config, arrays))
    with pytest.raises(CheckpointError, match=r"ln_f\.bias"):
        gpt2np.save(large, tmp_path / "new", dtype="float16")
    assert not (tmp_path / "new" / "config.json").exists()  # so it is not taken for a model


@needs_shared
def test_convert_and_info_of_openais_format(tmp_path, capsys):
    source = str(SHARED / "openai-tf-tiny")
    assert main(["convert", source, str(tmp_path), "--dtype", "float32"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}\n"
    ids = np.arange(24)[None]
    ours, again = (gpt2np.forward(gpt2np.load(s).params, ids) for s in (source, tmp_path))
    np.testing.assert_allclose(again, ours, rtol=1e-6, atol=1e-6)

    assert main(["info", source, "--json", "--tensors", "--verify"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["format"] == "tensorflow"
    assert facts["parameters"] == facts["formula_value"] == 42_176
    assert len(facts["renamed"]) == len(facts["tensors"]) == 40
    attention = {"dtype": "float32", "shape": [1, 32, 96], "offset": 102_016}
    assert facts["tensors"]["model/h2/attn/c_attn/w"] == attention

    assert main(["info", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "format: safetensors\n" in out
    assert "parameters: 42,176 counted in 40 tensors\n" in out


def test_info_counts_by_the_formula(tmp_path, capsys):
    for name, config in CONFIGS.items():
        gpt2np.save(model_of(config), tmp_path / name)
        assert main(["info", str(tmp_path / name), "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["parameters"] == facts["formula_value"] == model_of(config).params.n_params


def test_a_model_without_a_tokenizer_is_not_put_beside_anothers(tmp_path):
    gpt2np.save(gpt2np.load(), tmp_path)
    with pytest.raises(InputError, match=r"holds a model already .*merges\.txt, .*vocab\.json"):
        gpt2np.save(model_of(CONFIGS["as published"]), tmp_path)
    assert gpt2np.load(tmp_path).config == gpt2np.load().config
    gpt2np.save(model_of(CONFIGS["as published"]), tmp_path, overwrite=True)
    assert not gpt2np.load(tmp_path).has_tokenizer
    assert not [*tmp_path.glob("*.txt"), *tmp_path.glob("vocab*")]


@pytest.mark.parametrize("name", ["model.safetensors", "x.pt", "x.onnx", "model.xyz", "m.GGUF"])
def test_no_folder_is_made_of_a_file_s_name(tmp_path, capsys, name):
    file = tmp_path / name
    with pytest.raises(InputError, match=f"no {file.suffix} file is written: name a folder"):
        gpt2np.save(gpt2np.load(), file)
    assert main(["convert", "tiny-shakespeare", str(file)]) == 2
    assert f"no {file.suffix} file is written" in capsys.readouterr().err
    assert not file.exists()
    gpt2np.save(gpt2np.load(), tmp_path / "gpt2-1.5")
    file.mkdir()
    gpt2np.save(gpt2np.load(), file)  # as asked for


def test_a_command_says_force_where_the_library_says_overwrite(tmp_path, capsys):
    out = str(tmp_path / "golden.npz")
    gpt2np.save(gpt2np.load(), tmp_path / "golden-weights" / "huggingface")
    assert main(["golden", "record", out, "--weights", "tiny"]) == 2
    err = capsys.readouterr().err
    assert "replace it with --force" in err
    assert "overwrite" not in err


@pytest.mark.parametrize("name", ["config.json", "merges.txt", "checkpoint", "mine.pt", "a.index"])
def test_a_model_is_replaced_only_if_asked(tmp_path, name):
    (tmp_path / name).write_text("{}", encoding="utf-8")
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=f"holds a model already .{name}.: .*overwrite=True"):
        gpt2np.save(gpt2np.load(), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {name, "README.md"}
    gpt2np.save(gpt2np.load(), tmp_path, overwrite=True)
    assert gpt2np.load(tmp_path / "model.safetensors").config == gpt2np.load().config
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", None])
def test_files_are_little_endian_whatever_the_arrays_are(tmp_path, monkeypatch, dtype):
    arrays = {"a": np.linspace(-3, 3, 12, dtype=np.float32), "b": np.arange(5, dtype=np.int64)}
    safetensors.save(tmp_path / "little", arrays, dtype=dtype)
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}
    bits = safetensors.float32_to_bfloat16
    monkeypatch.setattr(safetensors, "float32_to_bfloat16", lambda x: bits(x).astype(">u2"))
    safetensors.save(tmp_path / "big", swapped, dtype=dtype)
    assert (tmp_path / "big").read_bytes() == (tmp_path / "little").read_bytes()
