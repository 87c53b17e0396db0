"""Golden files: what is recorded, in every form, and the weights that go with the small one."""

import json

import numpy as np
import pytest
from checkpoint_files import debug_pass, llmc_debug_state, llmc_order

import gpt2np
from gpt2np import KVCache, Trace, forward
from gpt2np.cli import main
from gpt2np.errors import GPT2Error, InputError, TokenizerError
from gpt2np.golden import Golden, read, record
from gpt2np.golden.tiny import CONFIG, IDS, tiny_model, write_weights
from gpt2np.trace import point_names

FORMS = ["a.npz", "a.safetensors", "folder"]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_holds_ids_activations_logits_and_greedy(model):
    golden = record(model, IDS)
    trace = Trace()
    logits = forward(model.params, IDS, probe=trace)
    assert list(golden.arrays) == ["ids", *point_names(CONFIG), "greedy"]
    assert np.array_equal(golden.arrays["ids"], [IDS])
    assert all(np.array_equal(golden.arrays[name], array) for name, array in trace.items())
    assert np.array_equal(golden.arrays["logits"], logits)
    ids = list(IDS)
    for token in golden.arrays["greedy"][0]:  # as many as the context has room for
        assert token == forward(model.params, ids)[0, -1].argmax()
        ids.append(int(token))
    assert len(ids) == CONFIG.n_ctx


def test_a_folder_holds_one_recording(model, tmp_path):
    record(model, IDS).save(tmp_path / "run")
    with pytest.raises(InputError, match="would mix two recordings"):
        record(model, IDS[:2]).save(tmp_path / "run")
    assert np.array_equal(read(tmp_path / "run").arrays["ids"], [IDS])


def test_golden_is_there_after_import_gpt2np():
    assert gpt2np.golden.record is record


def test_meta_says_what_it_is(model):
    meta = record(model, IDS, cache_split=3).meta
    assert meta["config"] == CONFIG.to_dict()
    assert meta["cache_split"] == 3
    assert meta["dtype"] == "float32"
    assert meta["versions"].keys() == {"gpt2np", "numpy", "python", "machine"}
    assert record(tiny_model("float64"), IDS).meta["dtype"] == "float64"


def test_of_a_text():
    model = gpt2np.load()
    golden = record(model, "First Citizen:", points="ln_f", new_tokens=3)
    assert golden.arrays["ids"].tolist() == [model.tokenizer.encode("First Citizen:")]
    assert golden.meta["text"] == "First Citizen:"
    assert golden.meta["model"] == "tiny-shakespeare"
    assert list(golden.arrays) == ["ids", "ln_f", "logits", "greedy"]
    made = gpt2np.generate(model, "First Citizen:", max_new_tokens=3, temperature=0)
    assert golden.arrays["greedy"].tolist() == [made.ids]


def test_of_a_batch(model):
    golden = record(model, [IDS[:5], IDS[5:10]], new_tokens=2)
    assert golden.arrays["logits"].shape == (2, 5, 20)
    assert golden.arrays["greedy"].shape == (2, 2)


def test_of_the_second_of_two_passes(model):
    golden = record(model, IDS, cache_split=5)
    whole = record(model, IDS)
    assert golden.arrays["ids"].shape == (1, 12)
    assert golden.arrays["h.0.attn.scores"].shape == (1, 2, 7, 12)
    for which, letter in (("past.keys", "k"), ("past.values", "v")):
        assert golden.arrays[which].shape == (2, 1, 2, 5, 4)
        for i in range(2):
            before = whole.arrays[f"h.{i}.attn.{letter}"][:, :, :5]
            np.testing.assert_allclose(golden.arrays[which][i], before, rtol=1e-4, atol=1e-6)
    last = whole.arrays["logits"][:, 5:]
    np.testing.assert_allclose(golden.arrays["logits"], last, rtol=1e-4, atol=1e-5)
    # From what is recorded, a port can make the second pass alone.
    cache = KVCache(model.params)
    cache.keys[:, :, :, :5] = golden.arrays["past.keys"]
    cache.values[:, :, :, :5] = golden.arrays["past.values"]
    cache.advance(np.array([IDS[:5]]))
    assert np.array_equal(forward(model.params, IDS[5:], cache), golden.arrays["logits"])


@pytest.mark.parametrize("split", [12, 13, -1])
def test_refuses_a_pass_of_nothing(model, split):
    with pytest.raises(InputError, match=f"cache_split is {split}; of 12 tokens, give 1 to 11"):
        record(model, IDS, cache_split=split)


def test_refuses_what_cannot_be_recorded(model):
    with pytest.raises(InputError, match="no activation has a name like 'attn'"):
        record(model, IDS, points="attn")
    with pytest.raises(TokenizerError, match="the model has no tokenizer"):
        record(model, "a text")
    with pytest.raises(InputError, match=r"token id 20 is not in 0 \.\.\. 19"):
        record(model, [20])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same(tmp_path, model, form):
    golden = record(model, IDS, cache_split=2, weights=True)
    golden.save(tmp_path / form)
    again = read(tmp_path / form)
    assert again.arrays.keys() == golden.arrays.keys()
    assert again.meta == golden.meta
    for name, array in golden.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, strict=True)


def test_numpy_alone_reads_them(tmp_path, model):
    """Without pickles, which would be code."""
    golden = record(model, IDS)
    golden.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert json.loads(str(file["meta"])) == golden.meta
    golden.save(tmp_path / "folder")
    assert json.loads((tmp_path / "folder" / "meta.json").read_text()) == golden.meta
    q = np.load(tmp_path / "folder" / "h.1.attn.q.npy", allow_pickle=False)
    assert np.array_equal(q, golden.arrays["h.1.attn.q"])


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.npy").write_bytes(b"nothing")
    (tmp_path / "a.txt").write_text("")
    np.savez(tmp_path / "meta.npz", meta=np.array("{"))
    objects = np.array([{}], dtype=object)
    np.savez(tmp_path / "pickled.npz", a=objects)
    for name, message in {
        "bad.npz": "is not an .npz file",
        "empty": "holds no .npy files",
        "bad": "x.npy is not an .npy file",
        "a.txt": "activations are read from .npz",
        "meta.npz": "is not valid JSON",
        "pickled.npz": "is not an .npz file of plain arrays",
    }.items():
        with pytest.raises(GPT2Error, match=message):
            read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing.npz")


# llm.c's debug state, as its train_gpt2.py writes it: write_state.


def test_reads_an_llmc_debug_state(tmp_path, model):
    x, y, logits, loss = debug_pass(model, IDS)
    data = llmc_debug_state(x, y, logits, loss, [np.ones(2048)])
    (tmp_path / "debug_state.bin").write_bytes(data)
    arrays = read(tmp_path / "debug_state.bin", [19, 20]).arrays
    assert list(arrays) == ["ids", "logits", "loss"]
    assert np.array_equal(arrays["ids"], x)
    np.testing.assert_array_equal(arrays["logits"], logits, strict=True)
    assert arrays["loss"] == np.float32(loss)
    for sizes in ([], [19]):
        with pytest.raises(InputError, match="its loss is not that of"):
            read(tmp_path / "debug_state.bin", sizes)


def test_a_damaged_debug_state_is_told(tmp_path, model):
    data = llmc_debug_state(*debug_pass(model, IDS))
    file = tmp_path / "a.bin"
    for damaged in (data[:1000], b"\0" * 2000):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="is not a debug state"):
            read(file, [20])
    file.write_bytes(data[:1050])
    with pytest.raises(InputError, match="is cut short: it should have 2 x 6 ids"):
        read(file, [20])
    file.write_bytes(data[:-4])
    with pytest.raises(InputError, match="its loss is not that of"):
        read(file, [20])


# The small model's weights.


@pytest.fixture
def written(tmp_path, model):
    write_weights(model, tmp_path)
    return tmp_path


def test_hugging_face_layout(written, model):
    assert dict(gpt2np.load(written / "huggingface").params).keys() == model.params.keys()
    for name, array in gpt2np.load(written / "huggingface").params.items():
        assert np.array_equal(array, model.params[name])
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(written / "huggingface").eval()
    with torch.no_grad():
        logits = theirs(torch.tensor([IDS])).logits.numpy()
    np.testing.assert_allclose(logits, forward(model.params, IDS), atol=1e-5)


def test_openai_layout(written, model):
    with np.load(written / "openai" / "model.npz") as arrays:
        assert len(arrays.files) == len(model.params)
        block = "model/h1/"
        assert arrays[block + "attn/c_attn/w"].shape == (1, 8, 24)
        for ours, theirs in {
            "wte.weight": "model/wte",
            "wpe.weight": "model/wpe",
            "ln_f.bias": "model/ln_f/b",
            "h.1.ln_2.weight": block + "ln_2/g",
            "h.1.attn.c_attn.bias": block + "attn/c_attn/b",
        }.items():
            assert np.array_equal(arrays[theirs], model.params[ours]), theirs
        for ours in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            matrix = arrays[block + ours.replace(".", "/") + "/w"]
            assert np.array_equal(matrix[0], model.params[f"h.1.{ours}.weight"])
    hparams = json.loads((written / "openai" / "hparams.json").read_text())
    assert hparams == {"n_vocab": 20, "n_ctx": 16, "n_embd": 8, "n_head": 2, "n_layer": 2}


def test_llmc_layout(written, model):
    """Byte by byte what a writer of its own makes of the same weights, and what is read again."""
    data = (written / "llm.c" / "model.bin").read_bytes()
    header = np.frombuffer(data[:1024], "<i4")
    assert header[:8].tolist() == [20240326, 3, 16, 20, 2, 2, 8, 128]
    assert not header[8:].any()
    linear = {
        name: a.T if a.ndim == 2 and name.startswith("h.") else a
        for name, a in model.params.items()
    }
    linear["wte.weight"] = np.pad(linear["wte.weight"], [(0, 108), (0, 0)])
    state = {f"transformer.{name}": array for name, array in linear.items()}
    body = b"".join(a.astype("<f4").tobytes() for a in llmc_order(state, layers=2).values())
    assert data[1024:] == body
    again = gpt2np.load(written / "llm.c" / "model.bin").params
    assert again.config == CONFIG
    assert all(np.array_equal(again[name], array) for name, array in model.params.items())


# The command.


def test_command_records_the_small_model(tmp_path, capsys):
    out = tmp_path / "g.npz"
    assert main(["golden", "record", "--weights", "tiny", str(out)]) == 0
    assert f"{out}: 36 arrays of 12 tokens" in capsys.readouterr().out
    golden = read(out)
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
    again = read(tmp_path / "again")
    assert again.arrays["h.0"].dtype == np.float64
    assert {"ids", "past.keys", "h.0", "ln_f", "logits", "greedy", "wte.weight"} <= {*again.arrays}
    assert "h.1" not in again.arrays


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
        (["--weights", "large", "out.npz"], "the model that can be written is called tiny"),
        (["--weights", "tiny", "--model", "gpt2", "out.npz"], "not both"),
        (["--text", "a", "out.pt"], "activations are written to"),
    ],
)
def test_command_refuses(tmp_path, monkeypatch, capsys, argv, message):
    monkeypatch.chdir(tmp_path)
    assert main(["golden", "record", *argv]) == 2
    assert message in capsys.readouterr().err


def test_golden_is_made_by_hand_too(tmp_path):
    Golden({"a": np.ones(3)}).save(tmp_path / "a.npz")
    assert read(tmp_path / "a.npz").meta == {}
