"""Probes and Trace: which points, in which order, at which cost, and what replacing one does."""

import re
from dataclasses import replace

import numpy as np
import pytest
from closeness import near
from models import random_params

import gpt2np
from gpt2np import Config, KVCache, Model, Params, Trace, forward
from gpt2np.errors import InputError
from gpt2np.golden import Golden
from gpt2np.trace import POINTS, point_names

CONFIG = Config(vocab_size=31, n_ctx=24, n_embd=24, n_head=3, n_layer=3, n_inner=20)
IDS = np.random.default_rng(1).integers(31, size=(2, 9))


@pytest.fixture(scope="module")
def params():
    return random_params(CONFIG, 7)


def test_every_point_comes_once_in_order_of_the_flow(params):
    names = []
    forward(params, IDS, probe=lambda name, array: names.append(name))
    assert names == point_names(CONFIG)
    assert len(names) == 4 + 15 * 3


@pytest.mark.parametrize("held", [0, 4])
def test_shapes_are_those_that_are_stated(params, held):
    cache, trace = KVCache(params, 2), Trace()
    if held:
        forward(params, IDS[:, :held], cache)
    forward(params, IDS[:, held:], cache, probe=trace)
    sizes = {"B": 2, "T": 9 - held, "S": 9, "D": 24, "3D": 72, "H": 3, "K": 8, "F": 20, "V": 31}
    for name, array in trace.items():
        kind = name.replace(name.split(".")[1], "{i}", 1) if name.startswith("h.") else name
        assert array.shape == tuple(sizes[symbol] for symbol in POINTS[kind].split()), name


def test_patterns(params):
    def names(patterns):
        trace = Trace(patterns)
        forward(params, IDS, probe=trace)
        return list(trace)

    assert names("h.*.attn.pattern") == [f"h.{i}.attn.pattern" for i in range(3)]
    assert names(["ln_f", "h.1"]) == ["h.1", "ln_f"]
    assert names(iter(["w?e"])) == ["wte", "wpe"]
    assert names([]) == []
    assert names(None) == names("*") == point_names(CONFIG)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("h.0.attn.patern", "matches no activation; near it are h.0.attn.pattern, "),
        ("h.11.atn.q", "near it are h.11.attn.q"),
        (["ln_f", "ln_g"], "'ln_g' matches no activation; near it are ln_f"),
        ("h", "'h' matches no activation"),
        ("attn.*", "'attn.*' matches no activation"),
        ("blocks.1.attn.hook_z", "here it is called 'h.1.attn.z'"),
        ("blocks.*.hook_resid_post", "called as in ['h.0', 'h.1', 'h.2']"),
        ("hook_embed", "here it is called 'wte'"),
        ("transformer.h.2.mlp", "here it is called 'h.2.mlp.c_proj'"),
        ("transformer.h.2.attn.c_attn", "here it is called 'h.2.attn.c_attn'"),
        ("hidden_states", "called as in ['h.0', 'h.1', 'h.2']"),
        ("transformer.ln_f", "here it is called 'ln_f'"),
        ("transformer.h.2.atn.q", "near it are h.2.attn.q"),
        (["h.1", 1], "a pattern is a text like 'h.*.attn.pattern', not 1"),
        (1, "patterns are texts like 'h.*.attn.pattern', not 1"),
    ],
)
def test_a_pattern_that_can_match_nothing_is_refused(pattern, says):
    with pytest.raises(InputError, match=re.escape(says)):
        Trace(pattern)


@pytest.mark.parametrize("pattern", ["h.3.*", "h.1[0-9].attn.q", ["ln_f", "h.12345.ln_1"]])
def test_a_pattern_that_matches_nothing_of_the_model_is_told(params, pattern):
    says = "matches no activation of this model, whose last block is h.2"
    with pytest.raises(InputError, match=re.escape(says)):
        forward(params, IDS, probe=Trace(pattern))


def test_what_was_not_recorded_is_told(params):
    trace = Trace("h.*.attn.pattern")
    forward(params, IDS, probe=trace)
    with pytest.raises(KeyError, match="was not recorded: did you mean h\\.0"):
        trace["h.0.attn.patern"]
    with pytest.raises(KeyError, match="'zzz' was not recorded, but 3 others were"):
        trace["zzz"]
    assert trace.get("zzz") is None


def test_copies_and_live_arrays(params):
    live, copies, seen = Trace(copy=False), Trace(), {}

    def probe(name, array):
        seen[name] = array
        live(name, array)
        copies(name, array)

    forward(params, IDS, probe=probe)
    for name, array in seen.items():
        assert live[name] is array
        assert not np.shares_memory(copies[name], array)
        assert np.array_equal(copies[name], array)


def test_live_arrays_stay_as_they_were_through_sampling(params):
    """What follows, the processing of logits included, writes into none of them."""
    model, seen = Model(params), []
    gpt2np.generate(
        model,
        [1, 2, 3],
        max_new_tokens=5,
        temperature=0.7,
        top_k=5,
        repetition_penalty=2.0,
        seed=0,
        probe=lambda name, array: seen.append((name, array, array.copy())),
    )
    assert len(seen) == 5 * len(point_names(CONFIG))
    for name, live, copy in seen:
        assert np.array_equal(live, copy), name


def test_says_shapes_and_bytes(params):
    trace = Trace(["h.0.attn.q", "ln_f"])
    forward(params, IDS, probe=trace)
    assert trace.nbytes == 4 * (2 * 3 * 9 * 8 + 2 * 9 * 24)
    assert str(trace) == (
        "h.0.attn.q  [2, 3, 9, 8]  float32  1,728 bytes\n"
        "ln_f        [2, 9, 24]  float32  1,728 bytes\n"
        "2 activations, 3,456 bytes"
    )
    assert str(Trace()) == "0 activations, 0 bytes"


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "folder"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saves(tmp_path, name, dtype):
    trace = Trace()
    forward(random_params(CONFIG, 7, dtype), IDS, probe=trace)
    trace.save(tmp_path / name)
    again = Golden.load(tmp_path / name).arrays
    assert again.keys() == trace.keys()
    for point, array in trace.items():
        np.testing.assert_array_equal(again[point], array, strict=True)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_other_readers_read_what_is_saved(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    trace = Trace("h.1.*")
    forward(random_params(CONFIG), IDS, probe=trace)
    trace.save(tmp_path / "a.safetensors")
    theirs = numpy.load_file(tmp_path / "a.safetensors")
    assert theirs.keys() == trace.keys()
    assert all(np.array_equal(theirs[name], array) for name, array in trace.items())


def test_refuses_other_endings(tmp_path):
    with pytest.raises(InputError, match=r"a\.pt: activations are written to \.npz"):
        Trace().save(tmp_path / "a.pt")


# What a probe sees is what is computed without one, where attention goes in blocks as well.

LONG = Config(vocab_size=31, n_ctx=400, n_embd=24, n_head=3, n_layer=2)


@pytest.mark.parametrize(("held", "T"), [(0, 1), (0, 9), (9, 1), (0, 300), (130, 257), (300, 1)])
def test_looking_changes_nothing(held, T):
    params = random_params(LONG, 7, np.float64)
    ids = np.random.default_rng(2).integers(31, size=(2, held + T))
    caches = [KVCache(params, 2), KVCache(params, 2)]
    for cache in caches:
        if held:
            forward(params, ids[:, :held], cache)
    without = forward(params, ids[:, held:], caches[0])
    assert near(forward(params, ids[:, held:], caches[1], probe=Trace()), without)
    assert near(*(cache.keys[..., : held + T, :] for cache in caches))
    assert near(*(cache.values[..., : held + T, :] for cache in caches))


def test_scores_and_pattern_are_whole_and_may_be_replaced():
    params, trace = random_params(LONG, 7, np.float64), Trace()
    cache, ids = KVCache(params, 2), np.random.default_rng(2).integers(31, size=(2, 140))

    def probe(name, array):
        trace(name, array)
        return np.full_like(array, 1 / 140) if name == "h.1.attn.pattern" else None

    forward(params, ids[:, :10], cache)
    forward(params, ids[:, 10:], cache, probe=probe)
    for i in range(2):
        scores, pattern = trace[f"h.{i}.attn.scores"], trace[f"h.{i}.attn.pattern"]
        assert scores.shape == pattern.shape == (2, 3, 130, 140)
        assert (np.isneginf(scores) == ~np.tri(130, 140, 10, dtype=bool)).all()
        assert (pattern[np.isneginf(scores)] == 0).all()
    mean = cache.values[1, :, :, :140].mean(2)
    assert np.allclose(trace["h.1.attn.z"], mean[:, None], rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", ["gelu_new", "gelu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_activation_of_the_mlp_follows_from_the_one_before(kind, dtype):
    torch = pytest.importorskip("torch")
    params = random_params(replace(CONFIG, activation_function=kind), 7, dtype)
    trace = Trace("h.*")
    forward(params, IDS, probe=trace)
    seen = {name: torch.tensor(array) for name, array in trace.items()}
    approximate = "none" if kind == "gelu" else "tanh"
    for i in range(3):
        mlp = f"h.{i}.mlp."
        (w1, b1), (w2, b2) = (map(torch.tensor, affine) for affine in params.blocks[i].mlp)
        fc = (seen[f"h.{i}.ln_2"] @ w1 + b1).numpy()
        act = torch.nn.functional.gelu(seen[mlp + "c_fc"], approximate=approximate).numpy()
        assert near(trace[mlp + "c_fc"], fc)
        assert near(trace[mlp + "act"], act)
        assert near(trace[mlp + "c_proj"], (seen[mlp + "act"] @ w2 + b2).numpy())
        assert near(trace[f"h.{i}"], trace[f"h.{i}.resid_mid"] + trace[mlp + "c_proj"])


# generate passes a probe on.


def test_generate_is_traced(params):
    trace, calls = Trace(), []

    def probe(name, array):
        calls.append(name)
        trace(name, array)

    made = gpt2np.generate(Model(params), [1, 2, 3], max_new_tokens=4, temperature=0, probe=probe)
    assert calls == 4 * point_names(CONFIG)
    assert trace["wte"].shape == (1, 1, 24)
    assert trace["h.0.attn.pattern"].shape == (1, 3, 1, 6)
    assert trace["logits"][0, -1].argmax() == made.ids[-1]


@pytest.mark.parametrize(
    "settings", [{"temperature": 0}, {"seed": 3}, {"num_beams": 3}, {"lookup": 4, "temperature": 0}]
)
def test_a_head_silenced_in_generate(params, settings):
    """Zeros in place of a head's z are zeros in its rows of c_proj, however text is generated."""

    def silence(name, array):
        if name != "h.1.attn.z":
            return None
        array = array.copy()
        array[:, :, 2] = 0
        return array

    name = "h.1.attn.c_proj.weight"
    cut = params[name].copy()
    cut[16:24] = 0
    model, other = Model(params), Model(Params(CONFIG, {**params, name: cut}))
    prompt = [3, 1, 4, 1, 5]
    probed = gpt2np.generate(model, prompt, max_new_tokens=15, probe=silence, **settings)
    theirs = gpt2np.generate(other, prompt, max_new_tokens=15, **settings)
    whole = gpt2np.generate(model, prompt, max_new_tokens=15, **settings)
    assert probed.ids == theirs.ids
    assert np.allclose(probed.logprobs, theirs.logprobs, atol=1e-4)
    assert not np.allclose(probed.logprobs, whole.logprobs, atol=1e-2)


def test_steering(params):
    """A direction added to the residual stream is felt in all that follows, and in nothing else."""
    direction = np.random.default_rng(0).normal(size=24).astype(np.float32)
    plain, steered = Trace(), Trace()

    def probe(name, array):
        steered(name, array)
        return array + direction if name == "h.1" else None

    forward(params, IDS, probe=plain)
    forward(params, IDS, probe=probe)
    names = point_names(CONFIG)
    until = names.index("h.1") + 1
    assert all(np.array_equal(plain[name], steered[name]) for name in names[:until])
    assert not any(np.array_equal(plain[name], steered[name]) for name in names[until:])


def scaled_columns(params, name, columns, factor):
    """The same weights, but for some columns of a linear map."""
    weight, bias = params[f"{name}.weight"].copy(), params[f"{name}.bias"].copy()
    weight[:, columns] *= factor
    bias[columns] *= factor
    return Params(CONFIG, {**params, f"{name}.weight": weight, f"{name}.bias": bias})


@pytest.mark.parametrize(
    ("point", "part"), [("attn.q", 0), ("attn.k", 1), ("attn.v", 2), ("attn.scores", 0)]
)
def test_what_replaces_queries_keys_values_and_scores(point, part):
    """Twice the array is twice the columns of c_attn that make it, or for scores the queries."""
    params = random_params(CONFIG, 7, np.float64)
    ours = forward(params, IDS, probe=lambda n, a: a * 2 if n == f"h.1.{point}" else None)
    other = scaled_columns(params, "h.1.attn.c_attn", slice(24 * part, 24 * (part + 1)), 2)
    theirs = forward(other, IDS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    assert not np.allclose(ours, forward(params, IDS), atol=1e-3)


def test_what_replaces_a_pattern():
    """Where each position sees itself alone, attention is a linear map of its own values."""
    params = random_params(CONFIG, 7, np.float64)
    trace = Trace()

    def probe(name, array):
        trace(name, array)
        return np.broadcast_to(np.eye(9), array.shape) if name == "h.1.attn.pattern" else None

    logits = forward(params, IDS, probe=probe)
    np.testing.assert_allclose(trace["h.1.attn.z"], trace["h.1.attn.v"].swapaxes(1, 2))
    assert not np.allclose(logits, forward(params, IDS), atol=1e-3)


@pytest.mark.parametrize("point", ["resid_mid", "", "attn.c_proj", "mlp.c_proj"])
def test_what_is_added_to_the_stream(point):
    """A vector added anywhere to the stream is one added to the bias of what writes there."""
    params = random_params(CONFIG, 7, np.float64)
    vector = np.random.default_rng(0).normal(size=24)
    name = f"h.1.{point}".strip(".")
    ours = forward(params, IDS, probe=lambda n, a: a + vector if n == name else None)
    writer = "mlp.c_proj" if point in ("", "mlp.c_proj") else "attn.c_proj"
    bias = f"h.1.{writer}.bias"
    theirs = forward(Params(CONFIG, {**params, bias: params[bias] + vector}), IDS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    assert not np.allclose(ours, forward(params, IDS), atol=1e-3)


def test_logits_that_a_probe_returns_are_what_forward_gives(params):
    edited = np.arange(31, dtype=np.float32)
    logits = forward(params, IDS, probe=lambda n, a: a * 0 + edited if n == "logits" else None)
    assert np.array_equal(logits, np.broadcast_to(edited, (2, 9, 31)))


def test_a_replacement_keeps_shape_and_dtype(params):
    with pytest.raises(InputError, match=r"shape \[24\] for h.0.ln_1, which has \[2, 9, 24\]"):
        forward(params, IDS, probe=lambda n, a: np.zeros(24) if n == "h.0.ln_1" else None)
    doubles = forward(params, IDS, probe=lambda n, a: a.astype(np.float64) if n == "wte" else None)
    assert doubles.dtype == np.float32
    assert np.array_equal(doubles, forward(params, IDS, probe=lambda n, a: None))


def test_rows_of_different_lengths_are_seen_together(params):
    """Scores and pattern reach a probe once, filled up where a row sees fewer positions."""
    cache, alone = KVCache(params, 2), Trace()
    forward(params, IDS[:, :6], cache)
    cache.truncate(np.array([6, 2]))
    own = KVCache(params)
    forward(params, IDS[1, :2], own)
    trace, seen = Trace(), []

    def probe(name, array):
        seen.append(name)
        trace(name, array)

    logits = forward(params, IDS[:, 6:8], cache, probe=probe)
    assert seen == point_names(CONFIG)
    theirs = forward(params, IDS[1, 6:8], own, probe=alone)
    assert np.allclose(logits[1], theirs[0], atol=1e-5)
    for name in ("h.1.attn.scores", "h.1.attn.pattern"):
        assert trace[name].shape == (2, 3, 2, 8)
        assert np.allclose(trace[name][1, ..., :4], alone[name][0], atol=1e-5)
    assert np.isneginf(trace["h.1.attn.scores"][1, ..., 4:]).all()
    assert (trace["h.1.attn.pattern"][1, ..., 4:] == 0).all()
