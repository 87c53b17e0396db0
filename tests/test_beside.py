"""Where texts begin and end: as transformers has it, kept by save, convert, pickle and replace."""

import json
import pickle
import warnings

import numpy as np
import pytest
from huggingface import hf_model, torch, transformers
from models import random_params

import gpt2np
from gpt2np.beside import Beside
from gpt2np.cli import main
from gpt2np.errors import CheckpointError
from gpt2np.params import Params

CONFIG = gpt2np.Config(vocab_size=33, n_ctx=24, n_embd=8, n_head=2, n_layer=1)
PARAMS = random_params(CONFIG, 5)

# What the files say of eos_token_id, None for no such file or "absent" for no such key.
ABSENT, NULL = "absent", "null"
SAID = [
    (generation, config)
    for generation in (None, ABSENT, NULL, 5, [5, 9], [], 99)
    for config in (ABSENT, NULL, 7, [7, 8, 7], [], 50256, -1)
]


def value(said):
    return None if said == NULL else said


def folder_of(folder, generation=None, config=ABSENT, **more):
    """Hugging Face's folder with what its two files say."""
    transformers.utils.logging.disable_progress_bar()
    hf_model(PARAMS).save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del values["bos_token_id"], values["eos_token_id"]
    write(folder / "config.json", values | eos(config) | more)
    if generation is not None:
        write(folder / "generation_config.json", {"max_length": 20} | eos(generation))
    return folder


def eos(said):
    return {} if said == ABSENT else {"eos_token_id": value(said), "bos_token_id": 3}


def write(file, values):
    file.write_text(json.dumps(values), encoding="utf-8")


def theirs(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.GPT2LMHeadModel.from_pretrained(folder).eval()


@pytest.mark.parametrize(("generation", "config"), SAID, ids=str)
def test_the_end_is_that_of_transformers(tmp_path, generation, config):
    folder = folder_of(tmp_path, generation, config)
    told = theirs(folder).generation_config
    said = told.eos_token_id
    said = [] if said is None else said if isinstance(said, list) else [said]
    model = gpt2np.load(folder)
    assert model.eos == tuple(dict.fromkeys(id for id in said if 0 <= id < 33))
    assert model.bos == told.bos_token_id
    for same in (
        pickle.loads(pickle.dumps(model)),
        model.replace({}),
        pickle.loads(pickle.dumps(model.replace({}))),
        gpt2np.load(gpt2np.save(model, tmp_path / "saved")),
        gpt2np.load(gpt2np.save(model.replace({}), tmp_path / "again", dtype="float16")),
    ):
        assert (same.bos, same.eos) == (model.bos, model.eos)


@pytest.mark.parametrize(
    ("generation", "config"),
    [(None, [14, 19]), ([2, 14], 50256), (ABSENT, 7), (None, ABSENT), (NULL, 7)],
    ids=str,
)
def test_transformers_generates_the_same_from_what_was_converted(tmp_path, generation, config):
    """The folder as it was and the converted one: the same ids, and the same end."""
    folder = folder_of(tmp_path / "old", generation, config, pad_token_id=0)
    assert main(["convert", str(folder), str(tmp_path / "new")]) == 0
    models = [theirs(tmp_path / name) for name in ("old", "new")]
    ended = 0
    for start in (*range(0, 33, 4), 31):
        ids = torch.tensor([[start, 2, 3]])
        before, after = (
            model.generate(ids, do_sample=False, max_length=20).tolist() for model in models
        )
        assert after == before
        ended += len(before[0]) < 20
    assert bool(ended) == bool(gpt2np.load(folder).eos)  # so the end was tried


def test_what_no_file_says_is_the_tokenizers(tmp_path):
    config = gpt2np.Config(50257, 8, 4, 1, 1)
    params = Params.random(config)
    model = gpt2np.Model(params, gpt2np.Tokenizer.gpt2())
    assert (model.bos, model.eos) == (50256, (50256,))
    assert (gpt2np.Model(params).bos, gpt2np.Model(params).eos) == (None, ())
    # One with fewer tokens than the tokenizer has.
    model = gpt2np.Model(PARAMS, gpt2np.Tokenizer.gpt2())
    assert (model.bos, model.eos) == (None, ())
    gpt2np.save(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] is None


def test_save_keeps_what_it_does_not_own(tmp_path):
    """Every field but those on the new weights' file, as it stands: alias, default and unknown."""
    more = {
        "dtype": "float16",
        "torch_dtype": "float16",
        "auto_map": {"AutoModel": "other.py"},
        "architectures": ["GPT2Other"],
        "n_inner": 32,
        "resid_pdrop": 0.25,
        "task_specific_params": {"text-generation": {"do_sample": True}},
        "our_own": ["a", None],
    }
    folder = folder_of(tmp_path / "old", [1, 2], 5, **more)
    generation = (folder / "generation_config.json").read_text(encoding="utf-8")
    gpt2np.save(gpt2np.load(folder), tmp_path / "new")
    old, new = (
        json.loads((tmp_path / name / "config.json").read_text(encoding="utf-8"))
        for name in ("old", "new")
    )
    for name in ("dtype", "torch_dtype", "auto_map", "architectures"):
        del old[name]
    assert new.pop("architectures") == ["GPT2LMHeadModel"]
    assert new == old
    saved = (tmp_path / "new" / "generation_config.json").read_text(encoding="utf-8")
    assert json.loads(saved) == json.loads(generation)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("config.json", {"eos_token_id": "7"}, "eos_token_id is '7'; it takes a token id, a list"),
        ("config.json", {"eos_token_id": 7.0}, "eos_token_id is 7.0"),
        ("config.json", {"bos_token_id": True}, "bos_token_id is True"),
        ("generation_config.json", {"eos_token_id": [1, None]}, "eos_token_id is [1, None]"),
        ("generation_config.json", [], "is not a JSON object"),
        ("generation_config.json", None, "is not valid JSON"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_with_its_file(tmp_path, file, content, says):
    folder_of(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    if file == "config.json":
        content = values | content
    (tmp_path / file).write_text("{" if content is None else json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        gpt2np.load(tmp_path)
    assert str(tmp_path / file) in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("generation", "config", "line"),
    [
        (None, [7, 50256], "ends with: 7 (config.json; 50256 dropped, outside the vocabulary)"),
        (50256, 7, "ends with: nothing (generation_config.json; 50256 dropped, outside the vo"),
        (None, ABSENT, "ends with: nothing (no file says)"),
        ([5, 9], ABSENT, "ends with: 5, 9 (generation_config.json)"),
    ],
    ids=str,
)
def test_info_says_where_the_end_is_from(tmp_path, capsys, generation, config, line):
    assert main(["info", str(folder_of(tmp_path, generation, config))]) == 0
    assert line in capsys.readouterr().out


def test_files_may_begin_with_a_byte_order_mark(tmp_path):
    folder_of(tmp_path, 5)
    for name in ("config.json", "generation_config.json"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + data)
    assert gpt2np.load(tmp_path).eos == (5,)


def test_anothers_generation_config_is_not_left_beside_a_model_without(tmp_path):
    folder, new = folder_of(tmp_path / "three"), tmp_path / "two"
    new.mkdir()
    write(new / "generation_config.json", {"eos_token_id": 5})
    with pytest.raises(gpt2np.InputError, match=r"holds a model already \(generation_config"):
        gpt2np.save(gpt2np.load(folder), new)
    assert gpt2np.load(gpt2np.save(gpt2np.load(folder), new, overwrite=True)).eos == ()


def test_a_model_by_hand_says_what_it_is_told():
    beside = Beside({"eos_token_id": [4]}, None)
    assert gpt2np.Model(PARAMS, beside=beside).eos == (4,)
    assert np.array_equal(gpt2np.Model(PARAMS, beside=beside).replace({}).eos, (4,))
