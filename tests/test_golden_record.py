"""golden record: what is recorded of a run."""

import numpy as np
import pytest
from debug_state import debug_state, state_of

import gpt2np
from gpt2np import KVCache, Trace, forward
from gpt2np.errors import CheckpointError, InputError, TokenizerError
from gpt2np.golden import Golden, record
from gpt2np.golden.tiny import CONFIG, IDS, tiny_model
from gpt2np.trace import point_names


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_holds_ids_activations_logits_and_greedy(model):
    golden = record(model, IDS)
    trace = Trace()
    logits = forward(model.params, IDS, probe=trace)
    assert list(golden.arrays) == ["ids", *point_names(CONFIG), "greedy.logits", "greedy"]
    assert np.array_equal(golden.arrays["ids"], [IDS])
    assert all(np.array_equal(golden.arrays[name], array) for name, array in trace.items())
    assert np.array_equal(golden.arrays["logits"], logits)
    ids = list(IDS)
    steps = (golden.arrays[name][0] for name in ("greedy", "greedy.logits"))
    for token, logits in zip(*steps, strict=True):
        last = forward(model.params, ids)[0, -1]
        np.testing.assert_allclose(logits, last, rtol=1e-4, atol=1e-5)
        assert token == last.argmax()
        ids.append(int(token))
    assert len(ids) == CONFIG.n_ctx  # as many as the context has room for


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
    assert list(golden.arrays) == ["ids", "ln_f", "logits", "greedy.logits", "greedy"]
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
    with pytest.raises(InputError, match="'attn' matches no activation"):
        record(model, IDS, points="attn")
    with pytest.raises(TokenizerError, match="the model has no tokenizer"):
        record(model, "a text")
    with pytest.raises(InputError, match=r"token id 20 is not in 0 \.\.\. 19"):
        record(model, [20])
    with pytest.raises(InputError, match="have one length"):
        record(model, [[1, 2], [3]])


def test_reads_an_llmc_debug_state(tmp_path, model):
    x, y, logits, loss = state_of(model)
    data = debug_state(x, y, logits, loss, [np.ones(2048)])
    (tmp_path / "debug_state.bin").write_bytes(data)
    arrays = Golden.load(tmp_path / "debug_state.bin", [19, 20]).arrays
    assert list(arrays) == ["ids", "logits", "loss"]
    assert np.array_equal(arrays["ids"], x)
    np.testing.assert_array_equal(arrays["logits"], logits, strict=True)
    assert arrays["loss"] == np.float32(loss)
    for sizes in ([], [19]):
        with pytest.raises(CheckpointError, match="its loss is not that of"):
            Golden.load(tmp_path / "debug_state.bin", sizes)


def test_a_damaged_debug_state_is_told(tmp_path, model):
    data = debug_state(*state_of(model))
    file = tmp_path / "a.bin"
    for damaged in (data[:1000], b"\0" * 2000):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="is not a debug state"):
            Golden.load(file, [20])
    file.write_bytes(data[:1050])
    with pytest.raises(CheckpointError, match="is cut short: it should have 2 x 6 ids"):
        Golden.load(file, [20])
    file.write_bytes(data[:-4])
    with pytest.raises(CheckpointError, match="its loss is not that of"):
        Golden.load(file, [20])
