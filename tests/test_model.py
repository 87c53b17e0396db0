"""forward() itself: its inputs, its probes, its dtypes. test_parity.py holds its numbers."""

import json
import re

import numpy as np
import pytest
from closeness import near
from models import random_params
from shared import SHARED, needs_shared

from gpt2np import Config, ContextError, InputError, KVCache, Params, Trace, forward

CONFIG = Config(vocab_size=300, n_ctx=16, n_embd=12, n_head=3, n_layer=2)
IDS = np.array([[5, 0, 299, 7], [1, 1, 2, 3]])

# DESIGN's list, in order of the flow.
BLOCK = (
    "ln_1",
    "attn.c_attn",
    "attn.q",
    "attn.k",
    "attn.v",
    "attn.scores",
    "attn.pattern",
    "attn.z",
    "attn.c_proj",
    "resid_mid",
    "ln_2",
    "mlp.c_fc",
    "mlp.act",
    "mlp.c_proj",
)
NAMES = [
    "wte",
    "wpe",
    *(name for i in range(2) for name in (*(f"h.{i}.{part}" for part in BLOCK), f"h.{i}")),
    "ln_f",
    "logits",
]


@pytest.fixture(scope="module", params=["float32", "float64"])
def params(request):
    """Weights that may not be written to."""
    drawn = random_params(CONFIG, 3, request.param)
    for array in drawn.values():
        array.flags.writeable = False
    return drawn


# Token ids


@pytest.mark.parametrize(
    "ids",
    [
        [5, 0, 299, 7],
        (5, 0, 299, 7),
        [[5, 0, 299, 7]],
        np.array([5, 0, 299, 7]),
        np.array([5, 0, 299, 7], np.int16),
        np.array([5, 0, 299, 7], np.uint64),
        [np.int32(5), np.int64(0), np.uint16(299), 7],
        np.array([5, 9, 0, 9, 299, 9, 7])[::2],
        np.array([5, 0, 299, 7], ">i4"),
    ],
    ids=str,
)
def test_ids_of_one_sequence(params, ids):
    logits = forward(params, ids)
    assert logits.shape == (1, 4, 300)
    assert np.array_equal(logits, forward(params, IDS[:1]))


def test_ids_of_one_byte(params):
    ids = [[200, 255, 0], [100, 128, 127]]
    expected = forward(params, ids)
    assert np.array_equal(forward(params, np.array(ids, np.uint8)), expected)
    cache = KVCache(params, 2)
    last = [forward(params, np.array(ids, np.uint8)[:, t : t + 1], cache) for t in range(3)]
    assert near(np.concatenate(last, 1), expected)


def test_rows_do_not_touch_each_other(params):
    together = forward(params, IDS)
    assert together.shape == (2, 4, 300)
    for row, ids in zip(together, IDS, strict=True):
        assert near(row, forward(params, ids)[0])


def test_what_follows_a_position_does_not_touch_it(params):
    whole = forward(params, IDS)
    for T in range(1, 4):
        assert near(forward(params, IDS[:, :T]), whole[:, :T])
    assert not near(forward(params, IDS[:, ::-1]), whole[:, ::-1])


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1.0, 2.0], "token_ids is of dtype float64; token ids are integers"),
        (np.ones(2, bool), "token_ids is of dtype bool; token ids are integers"),
        (["5"], f"token_ids is of dtype {np.dtype('U1')}; token ids are integers"),
        ("text", "ids are wanted, not a text: give model.tokenizer.encode(text)"),
        (7, "token_ids has shape []; give [T] or [B, T]"),
        (np.int64(7), "token_ids has shape []; give [T] or [B, T]"),
        (np.ones((1, 1, 2), int), "token_ids has shape [1, 1, 2]; give [T] or [B, T]"),
        ([], "token_ids has shape [0]: give at least one token"),
        ([[], []], "token_ids has shape [2, 0]: give at least one token"),
        (np.ones((0, 3), int), "token_ids has shape [0, 3]: give at least one token"),
        ([[1, 2], [3]], "a list of lists of different lengths"),
        ([[1, 2], 3], "a list of lists of different lengths"),
        ([0, 300], "token id 300 is not in 0 ... 299"),
        ([0, -1], "token id -1 is not in 0 ... 299"),
        ([0, 1 << 40], "token id 1099511627776 is not in 0 ... 299"),
        (
            np.array([0, (1 << 64) - 1], np.uint64),
            "token id 18446744073709551615 is not in 0 ... 299",
        ),
        ([0, 1 << 70], "token_ids is of dtype object; token ids are integers"),
        ([None], "token_ids is of dtype object; token ids are integers"),
    ],
    ids=repr,
)
def test_ids_that_are_refused(params, ids, says):
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        forward(params, ids)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_more_tokens_than_the_context(params):
    assert forward(params, [0] * 16).shape == (1, 16, 300)
    says = "0 cached and 17 new positions make 17, but the model's context is 16"
    with pytest.raises(ContextError, match=says):
        forward(params, [0] * 17)


# What comes out


def test_last_only(params):
    seen = {}
    last = forward(params, IDS, last_only=True, probe=seen.__setitem__)
    assert last.shape == (2, 1, 300)
    assert near(last, forward(params, IDS)[:, -1:])
    assert seen["ln_f"].shape == (2, 1, 12)
    assert seen["h.1"].shape == (2, 4, 12)
    cache = KVCache(params, 2)
    assert forward(params, IDS, cache, last_only=True).shape == (2, 1, 300)
    assert cache.length == 4


def test_the_same_call_gives_the_same_bits(params):
    assert np.array_equal(forward(params, IDS), forward(params, IDS))


def test_no_input_is_written_to(params):
    before = {name: array.copy() for name, array in params.items()}
    ids = IDS.copy()
    forward(params, ids, KVCache(params, 2))
    forward(params, ids)
    assert np.array_equal(ids, IDS)
    assert all(np.array_equal(params[name], before[name]) for name in before)


def test_weights_that_are_not_contiguous(params):
    """As the loader leaves those that a file has as [out, in]."""
    strange = {name: np.asfortranarray(array) for name, array in params.items()}
    assert not strange["h.0.attn.c_proj.weight"].flags.c_contiguous
    logits = forward(Params(CONFIG, strange), IDS)
    assert near(logits, forward(params, IDS))


# Probes


def test_probed_names_and_shapes_in_order_of_the_flow(params):
    B, T, H, K, D, F = 2, 4, 3, 4, 12, 48
    calls = []
    forward(params, IDS, probe=lambda name, array: calls.append((name, array.shape)))
    assert [name for name, _ in calls] == NAMES
    shapes = dict(calls)
    head = (B, H, T, K)
    inside = {
        "ln_1": (B, T, D),
        "attn.c_attn": (B, T, 3 * D),
        "attn.q": head,
        "attn.k": head,
        "attn.v": head,
        "attn.scores": (B, H, T, T),
        "attn.pattern": (B, H, T, T),
        "attn.z": (B, T, H, K),
        "attn.c_proj": (B, T, D),
        "resid_mid": (B, T, D),
        "ln_2": (B, T, D),
        "mlp.c_fc": (B, T, F),
        "mlp.act": (B, T, F),
        "mlp.c_proj": (B, T, D),
    }
    for i in range(2):
        assert {name: shapes[f"h.{i}.{name}"] for name in inside} == inside
        assert shapes[f"h.{i}"] == (B, T, D)
    assert shapes["wte"] == shapes["ln_f"] == (B, T, D)
    assert shapes["wpe"] == (1, T, D)
    assert shapes["logits"] == (B, T, 300)


def test_probed_shapes_on_top_of_a_cache(params):
    cache, shapes = KVCache(params, 2), {}
    forward(params, IDS, cache)
    forward(params, IDS[:, :3], cache, probe=lambda name, array: shapes.update({name: array.shape}))
    assert list(shapes) == NAMES
    assert shapes["h.1.attn.q"] == shapes["h.1.attn.k"] == shapes["h.1.attn.v"] == (2, 3, 3, 4)
    assert shapes["h.1.attn.scores"] == shapes["h.1.attn.pattern"] == (2, 3, 3, 7)
    assert shapes["h.1.attn.z"] == (2, 3, 3, 4)


@pytest.mark.parametrize("cached", [False, True])
def test_every_step_keeps_the_dtype(params, cached):
    seen = {}
    cache = KVCache(params, 2) if cached else None
    logits = forward(params, IDS, cache, probe=seen.__setitem__)
    assert list(seen) == NAMES
    assert {array.dtype for array in (logits, *seen.values())} == {params.dtype}
    assert forward(params, IDS).dtype == params.dtype
    if cached:
        assert cache.keys.dtype == cache.values.dtype == params.dtype


@pytest.mark.parametrize("cached", [False, True])
def test_a_probed_array_never_changes_later(params, cached):
    """Else a record would have to copy, and an unwary one would be wrong."""
    ids = np.random.default_rng(0).integers(300, size=(2, 8))
    cache = KVCache(params, 2) if cached else None
    kept, copies = [], []

    def probe(name, array):
        kept.append(array)
        copies.append(array.copy())

    for part in np.split(ids, 2, axis=1) if cached else [ids]:
        forward(params, part, cache, probe=probe)
    for array, copy in zip(kept, copies, strict=True):
        assert np.array_equal(array, copy)


def test_a_probe_that_only_looks_changes_nothing(params):
    plain = forward(params, IDS)
    looked = forward(params, IDS, probe=lambda name, array: None)
    given = forward(params, IDS, probe=lambda name, array: array)
    copied = forward(params, IDS, probe=lambda name, array: array.copy())
    assert np.array_equal(looked, given)
    assert np.array_equal(looked, copied)
    assert near(looked, plain)


@pytest.mark.parametrize("name", NAMES)
def test_a_replacement_takes_the_activations_place(params, name):
    """The logits change; and the replacement is neither changed nor of another dtype."""
    noise, given, after = np.random.default_rng(1), {}, []

    def probe(n, array):
        if given:
            after.append(n)
        if n != name:
            return None
        new = array + noise.standard_normal(array.shape)  # float64, whatever the activation is
        given["array"], given["copy"] = new, new.copy()
        return new

    plain, edited = forward(params, IDS), forward(params, IDS, probe=probe)
    assert edited.dtype == params.dtype
    assert np.abs(edited - plain).max() > 1e-4
    assert np.array_equal(given["array"], given["copy"], equal_nan=True)
    assert after == NAMES[NAMES.index(name) + 1 :]


def test_a_float64_replacement_does_not_widen_what_follows():
    params, dtypes = Params.random(CONFIG), set()

    def probe(name, array):
        dtypes.add(array.dtype)
        return array.astype(np.float64)

    assert forward(params, IDS, probe=probe).dtype == np.float32
    assert dtypes == {np.dtype(np.float32)}


def test_a_replaced_key_is_cached(params):
    cache = KVCache(params, 2)
    forward(params, IDS, cache, probe=lambda n, a: a * 0 + 7 if n == "h.1.attn.k" else None)
    assert (cache.keys[1, :, :, :4] == 7).all()
    assert not (cache.keys[0, :, :, :4] == 7).any()


@pytest.mark.parametrize("name", ["wte", "h.0.attn.pattern", "h.1", "logits"])
def test_a_replacement_of_another_shape(params, name):
    with pytest.raises(InputError, match=re.escape(f"shape [3, 2] for {name}, which has [2, ")):
        forward(params, IDS, probe=lambda n, a: np.zeros((3, 2)) if n == name else None)
    with pytest.raises(InputError, match=re.escape(f"shape [] for {name}")):
        forward(params, IDS, probe=lambda n, a: 0.0 if n == name else None)


def test_a_probe_that_raises_leaves_the_cache_as_it_was(params):
    class OurError(Exception):
        pass

    def probe(name, array):
        if name == "h.1.attn.z":
            raise OurError

    cache = KVCache(params, 2)
    forward(params, IDS[:, :2], cache)
    with pytest.raises(OurError):
        forward(params, IDS[:, 2:], cache, probe=probe)
    assert cache.length == 2
    logits = forward(params, IDS[:, 2:], cache)
    assert near(logits, forward(params, IDS)[:, 2:])


# Whole numbers, which need no weights: Narsil/fast_gpt2.


@pytest.fixture(scope="module")
def weight_free():
    entries = json.loads((SHARED / "pretrained-goldens.json").read_bytes())["weight_free"]
    return {entry["what"].split(",")[0]: entry for entry in entries}


def counting(dtype, kind="gelu_new"):
    """One block whose matrices and biases count 0, 1, 2 ..., and whose norms give all ones."""
    config = Config(vocab_size=2, n_ctx=4, n_embd=8, n_head=2, n_layer=1, activation_function=kind)
    weights = {
        name: np.arange(array.size, dtype=dtype).reshape(array.shape)
        for name, array in Params.random(config).items()
    }
    for name in ("h.0.ln_1", "h.0.ln_2"):
        weights |= {f"{name}.weight": np.zeros(8, dtype), f"{name}.bias": np.ones(8, dtype)}
    return Params(config, weights)


@needs_shared
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_in_whole_numbers(weight_free, dtype):
    golden, params = weight_free["attention"], counting(dtype)
    cache, seen, one_more = KVCache(params), Trace(), Trace()
    forward(params, [0, 1, 0], cache, probe=seen)
    forward(params, [1], cache, probe=one_more)
    assert seen["h.0.attn.c_proj"].tolist() == [[golden["each_row"]] * 3]
    assert one_more["h.0.attn.c_proj"].tolist() == [[golden["each_row"]]]
    for name in ("k", "v"):
        heads = [[golden[f"{name}_head{head}_row"]] * 3 for head in (0, 1)]
        assert seen[f"h.0.attn.{name}"].tolist() == [heads]


@needs_shared
@pytest.mark.parametrize("kind", ["gelu_new", "gelu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mlp_in_whole_numbers(weight_free, dtype, kind):
    """All that enters the GELU is so large that it leaves it as it was."""
    seen = Trace()
    forward(counting(dtype, kind), [0], probe=seen)
    assert seen["h.0.mlp.c_proj"].tolist() == [[weight_free["mlp"]["row"]]]
