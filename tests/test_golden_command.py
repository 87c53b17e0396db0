"""gpt2np golden record, and gpt2np golden check."""

import json
from pathlib import Path

import numpy as np
import pytest
from faulty_gpt2 import dump

import gpt2np
from gpt2np.cli import main
from gpt2np.golden import Golden, record
from gpt2np.golden.formats import FORMATS
from gpt2np.golden.tiny import IDS, tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def golden(model):
    return record(model, IDS, weights=True)


def test_command_records_the_small_model(tmp_path, capsys):
    out = tmp_path / "g.npz"
    assert main(["golden", "record", "--weights", "tiny", str(out)]) == 0
    assert f"{out}: 37 arrays of 12 tokens" in capsys.readouterr().out
    golden = Golden.load(out)
    assert np.array_equal(golden.arrays["logits"], record(tiny_model(), IDS).arrays["logits"])
    tiny = str(tmp_path / "g-weights" / "huggingface")
    argv = [
        "golden",
        "record",
        "--model",
        tiny,
        "--ids",
        "3,1 4",
        "--points",
        "h.0",
        "--points",
        "ln_f",
        "--cache-split",
        "2",
        "--new",
        "1",
        "--dtype",
        "float64",
        "--with-weights",
        str(tmp_path / "again"),
    ]
    assert main(argv) == 0
    assert "the last 1 of 3 tokens, read through a cache of 2" in capsys.readouterr().out
    again = Golden.load(tmp_path / "again")
    assert again.arrays["h.0"].dtype == np.float64
    assert {"ids", "past.keys", "h.0", "ln_f", "logits", "greedy", "wte.weight"} <= {*again.arrays}
    assert "h.1" not in again.arrays


def test_a_recording_of_the_tiny_model_may_be_made_again(tmp_path, capsys):
    command = ["golden", "record", str(tmp_path / "g.npz"), "--weights"]
    for again in (["tiny"], ["tiny"], ["harsh", "--dtype", "float64"], ["tiny"]):
        assert main([*command, *again]) == 0
    gpt2np.save(gpt2np.load(), tmp_path / "g-weights" / "huggingface", overwrite=True)
    assert main([*command, "tiny"]) == 2  # somebody's model
    assert "replace it with --force" in capsys.readouterr().err


def test_command_writes_weights_in_three_layouts(tmp_path, capsys):
    assert main(["golden", "record", str(tmp_path / "g"), "--weights", "tiny"]) == 0
    lines = capsys.readouterr().out.splitlines()
    weights = tmp_path / "g-weights"
    assert lines[:3] == [
        str(weights / "huggingface"),
        str(weights / "openai"),
        str(weights / "llm.c" / "model.bin"),
    ]
    assert np.load(tmp_path / "g" / "logits.npy").shape == (1, 12, 20)
    with np.load(weights / "openai" / "model.npz") as openai:
        for name in ("huggingface", "llm.c/model.bin"):
            assert np.array_equal(gpt2np.load(weights / name).params.wte, openai["model/wte"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["out.npz"], "give --text or --ids"),
        (["--text", "a", "--ids", "1", "out.npz"], "not both"),
        (["--weights", "large", "out.npz"], "the models that can be written are tiny or harsh"),
        (["--weights", "tiny", "--model", "gpt2", "out.npz"], "not both"),
        (["--text", "a", "out.pt"], "activations are written to"),
    ],
)
def test_command_refuses(tmp_path, monkeypatch, capsys, argv, message):
    monkeypatch.chdir(tmp_path)
    assert main(["golden", "record", *argv]) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def files(tmp_path, model, golden):
    golden.save(tmp_path / "theirs.npz")
    dump(model).save(tmp_path / "right")
    dump(model, "erf gelu").save(tmp_path / "wrong.safetensors")
    return tmp_path


def test_command_ends_with_1_where_they_diverge(files, capsys):
    theirs = str(files / "theirs.npz")
    assert main(["golden", "check", str(files / "right"), theirs]) == 0
    assert "all 35 agree" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["golden", "check", str(files / "wrong.safetensors"), theirs])
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "first divergence: h.0.mlp.act  (GELU of mlp.c_fc)" in out
    assert "cause: GELU is the erf form, not the tanh form" in out
    points = [line.split()[0] for line in out.splitlines()[1:36]]
    assert points.index("h.0.mlp.act") > points.index("h.0.attn.q") > points.index("wte")


def test_command_speaks_json(files, capsys):
    argv = ["golden", "check", str(files / "wrong.safetensors"), str(files / "theirs.npz")]
    with pytest.raises(SystemExit):
        main([*argv, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["same"] is False
    assert report["first"] == "h.0.mlp.act"
    assert report["causes"] == ["GELU is the erf form, not the tanh form"]
    assert report["points"][0]["point"] == "wte"
    assert main([*argv, "--json", "--rtol", "10"]) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True


def test_command_ends_with_2_for_an_error(files, capsys):
    assert main(["golden", "check", str(files / "no.npz"), str(files / "theirs.npz")]) == 2
    assert "no.npz" in capsys.readouterr().err


def test_the_page_on_formats_stands_in_help_and_readme(capsys):
    with pytest.raises(SystemExit):
        main(["golden", "--help"])
    assert FORMATS in capsys.readouterr().out
    assert FORMATS in (Path(__file__).parents[1] / "README.md").read_text("utf-8")
