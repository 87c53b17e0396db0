"""With the cache or without it: the same logits, however the sequence is cut."""

import gc
import pickle
import re
import sys
import weakref
from dataclasses import replace

import numpy as np
import pytest
from closeness import near
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_params

from gpt2np import (
    Config,
    ContextError,
    InputError,
    KVCache,
    Model,
    Params,
    forward,
    generate,
)

N_CTX = 40
CONFIG = Config(
    vocab_size=23, n_ctx=N_CTX, n_embd=24, n_head=3, n_layer=3, scale_attn_by_inverse_layer_idx=True
)
IDS = np.random.default_rng(0).integers(23, size=(2, N_CTX))


@pytest.fixture(scope="module", params=["float32", "float64"])
def params(request):
    return random_params(CONFIG, 1, request.param)


@pytest.fixture(scope="module")
def whole(params):
    """The logits without a cache, which test_parity.py holds against Hugging Face's."""
    return forward(params, IDS)


def in_parts(params, ids, cuts, cache):
    """The logits of all positions, read up to one cut after another."""
    parts = np.split(ids, cuts, axis=1)
    return np.concatenate([forward(params, part, cache) for part in parts], axis=1)


def test_every_split_in_two(params, whole):
    for cut in range(1, N_CTX):
        cache = KVCache(params, 2)
        assert near(in_parts(params, IDS, [cut], cache), whole), cut
        assert cache.length == N_CTX


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(1, N_CTX - 1), min_size=2, max_size=6), st.sampled_from([1, 2]))
def test_splits_in_many(cuts, B):
    params = random_params(CONFIG, 1, np.float64)
    ids = IDS[:B]
    logits = in_parts(params, ids, sorted(cuts), KVCache(params, B))
    assert near(logits, forward(params, ids))


def test_one_by_one(params, whole):
    assert near(in_parts(params, IDS, range(1, N_CTX), KVCache(params, 2)), whole)


def test_across_blocks_of_queries():
    config = Config(vocab_size=23, n_ctx=400, n_embd=24, n_head=6, n_layer=2)
    params = random_params(config, 2, np.float64)
    ids = np.random.default_rng(3).integers(23, size=(2, 400))
    whole = forward(params, ids)
    for cuts in ([1], [128], [129, 258], [399], [100, 101]):
        assert near(in_parts(params, ids, cuts, KVCache(params, 2)), whole), cuts


def test_the_cache_holds_the_keys_and_values(params):
    seen = {}
    cache = KVCache(params, 2)
    forward(params, IDS, probe=seen.__setitem__)
    in_parts(params, IDS[:, :30], [7, 8], cache)
    assert cache.keys.shape == cache.values.shape == (3, 2, 3, N_CTX, 8)
    assert cache.keys.dtype == cache.values.dtype == params.dtype
    for layer in range(3):
        for name, held in (("k", cache.keys), ("v", cache.values)):
            assert near(held[layer, :, :, :30], seen[f"h.{layer}.attn.{name}"][:, :, :30])


def test_what_is_beyond_the_length_is_never_read(params, whole):
    cache = KVCache(params, 2)
    cache.keys[:], cache.values[:] = np.nan, np.nan
    assert near(in_parts(params, IDS[:, :20], [1, 12], cache), whole[:, :20])
    assert np.isnan(cache.keys[:, :, :, 20:]).all()


# Sequences of different lengths


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=2, max_size=4), st.sampled_from(["f4", "f8"]))
def test_rows_of_different_lengths_are_as_if_alone(lengths, dtype):
    params = random_params(CONFIG, 1, np.dtype(dtype))
    ids = np.random.default_rng(lengths).integers(23, size=(len(lengths), 20))
    cache = KVCache(params, len(lengths))
    forward(params, ids[:, : max(lengths)], cache)
    cache.truncate(np.array(lengths))
    assert cache.length == max(lengths)
    alone = [KVCache(params) for _ in lengths]
    for own, row, n in zip(alone, ids, lengths, strict=True):
        forward(params, row[:n], own)
    for T in (1, 3, 1):
        logits = forward(params, ids[:, -T:], cache)
        for own, row, logit in zip(alone, ids, logits, strict=True):
            assert near(logit, forward(params, row[-T:], own)[0])
    assert cache.lengths.tolist() == [n + 5 for n in lengths]


def test_the_longest_of_different_lengths_counts(params):
    cache = KVCache(params, 2, capacity=10)
    forward(params, IDS[:, :8], cache)
    cache.truncate(np.array([8, 2]))
    with pytest.raises(ContextError, match=r"8 cached and 3 new positions make 11, but .* is 10"):
        forward(params, IDS[:, :3], cache)
    assert cache.lengths.tolist() == [8, 2]
    assert forward(params, IDS[:, :2], cache).shape == (2, 2, 23)


# Cutting and copying


@pytest.mark.parametrize("length", [0, 1, 9, 10])
def test_truncate(params, whole, length):
    cache = KVCache(params, 2)
    if length:
        forward(params, IDS[:, :length], cache)
    forward(params, 22 - IDS[:, length:25], cache)  # a way not taken
    cache.truncate(length)
    assert cache.length == length
    assert near(forward(params, IDS[:, length:], cache), whole[:, length:])


@pytest.mark.parametrize("length", [-1, 6, np.array([2, 6]), np.array([-1, 2])], ids=str)
def test_truncate_to_what_is_not_held(params, length):
    cache = KVCache(params, 2)
    forward(params, IDS[:, :5], cache)
    says = re.escape(f"cannot cut to {length} a cache that holds [5, 5]")
    with pytest.raises(ContextError, match=says):
        cache.truncate(length)
    assert cache.lengths.tolist() == [5, 5]


def test_a_copy_is_independent(params, whole):
    cache = KVCache(params, 2, capacity=30)
    forward(params, IDS[:, :12], cache)
    copy = cache.copy()
    assert (copy.length, copy.capacity, copy.batch_size) == (12, 30, 2)
    forward(params, 22 - IDS[:, 12:20], copy)
    copy.truncate(3)
    copy.keys[:], copy.values[:] = 0, 0
    assert cache.length == 12
    assert near(forward(params, IDS[:, 12:30], cache), whole[:, 12:30])

    copy = cache.copy()
    cache.truncate(0)
    cache.keys[:], cache.values[:] = 0, 0
    assert copy.length == 30
    copy.truncate(12)
    assert near(forward(params, IDS[:, 12:30], copy), whole[:, 12:30])


def test_select_takes_rows_in_any_order(params):
    ids = np.random.default_rng(4).integers(23, size=(3, 9))
    cache = KVCache(params, 3)
    forward(params, ids, cache)
    cache.truncate(np.array([9, 4, 6]))
    rows = [2, 0, 0, 1]
    picked = cache.select(rows)
    assert picked.lengths.tolist() == [6, 9, 9, 4]
    assert not np.shares_memory(picked.keys, cache.keys)
    new = np.random.default_rng(5).integers(23, size=(4, 2))
    logits = forward(params, new, picked)
    for row, n, tail, logit in zip(rows, [6, 9, 9, 4], new, logits, strict=True):
        assert near(logit, forward(params, [*ids[row, :n], *tail])[0, n:])


# Whose it is


def test_other_weights_are_refused_by_name(params):
    """Of the same shape and dtype, they would give plausible wrong numbers."""
    cache = KVCache(params, 2)
    forward(params, IDS[:, :5], cache)
    for other in (
        random_params(CONFIG, 2, params.dtype),
        random_params(CONFIG, 1, "float64" if params.dtype == np.float32 else "float32"),
        Params.random(CONFIG, 1, params.dtype),
        Params.random(replace(CONFIG, n_layer=2)),
        Params(CONFIG, {**params, "ln_f.bias": params["ln_f.bias"] + 1}),
    ):
        with pytest.raises(InputError) as caught:
            forward(other, IDS[:, 5:7], cache)
        assert params.identity in str(caught.value)
        assert other.identity in str(caught.value)
        for copy in (cache.copy(), cache.select([1, 0])):
            with pytest.raises(InputError, match="other weights"):
                forward(other, IDS[:, 5:7], copy)
    assert cache.lengths.tolist() == [5, 5]


def test_the_same_weights_in_another_process_are_known(params, whole):
    """A pickle of both, as a worker gets it; and random weights are the same wherever drawn."""
    cache = KVCache(params, 2)
    forward(params, IDS[:, :5], cache)
    again, held = pickle.loads(pickle.dumps((params, cache)))
    assert near(forward(again, IDS[:, 5:], held), whole[:, 5:])
    assert near(forward(params, IDS[:, 5:], pickle.loads(pickle.dumps(cache))), whole[:, 5:])
    drawn = KVCache(Params.random(CONFIG, 8))
    assert forward(Params.random(CONFIG, 8), [1], drawn).shape == (1, 1, 23)


def test_a_cache_keeps_no_weights_alive():
    params = random_params(CONFIG)
    cache, watch = KVCache(params), weakref.ref(params)
    del params
    gc.collect()
    assert watch() is None
    assert cache.length == 0


@pytest.mark.parametrize("length", [1.0, True, "1", None, np.float64(2), [1.5, 2], [1]], ids=repr)
def test_truncate_takes_whole_numbers(params, length):
    cache = KVCache(params, 2)
    forward(params, IDS[:, :5], cache)
    if length == [1]:
        cache.truncate(length)
        return
    with pytest.raises(InputError, match="length must be an integer"):
        cache.truncate(length)
    assert cache.lengths.tolist() == [5, 5]


# Whatever happens


def interrupt(action, line):
    """Run an action, with Ctrl-C before the given line of the package; say whether it ended."""
    left = line

    def trace(frame, event, _):
        nonlocal left
        if "gpt2np" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
        return True
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(before)


SMALL = Config(vocab_size=23, n_ctx=12, n_embd=8, n_head=2, n_layer=2)


def held_truly(params, cache):
    """Whether the keys and values are those of the tokens that the cache says it holds."""
    for b, n in enumerate(cache.lengths.tolist()):
        if n == 0:
            continue
        again = KVCache(params)
        forward(params, cache.ids[b, :n], again)
        for held, true in ((cache.keys, again.keys), (cache.values, again.values)):
            if not near(held[:, b, :, :n], true[:, 0, :, :n]):
                return False
    return True


@pytest.mark.parametrize(
    "lengths", [(7, 7), (7, 4)], ids=["rows of one length", "rows of two lengths"]
)
@pytest.mark.parametrize("operation", ["forward", "truncate", "put", "select"])
def test_interrupted_at_every_line_a_cache_holds_what_it_says(operation, lengths):
    params = random_params(SMALL, 1, np.float64)
    whole = KVCache(params, 2)
    forward(params, IDS[:, :7], whole)
    whole.truncate(np.array(lengths))
    other = KVCache(params, 1)
    forward(params, [9, 8, 7], other)
    for line in range(1000):
        cache = whole.copy()
        ended = interrupt(
            {
                "forward": lambda c=cache: forward(params, IDS[:, 7:9], c),
                "truncate": lambda c=cache: c.truncate(2),
                "put": lambda c=cache: c.put([1], other),
                "select": lambda c=cache: c.select([1, 0]),
            }[operation],
            line,
        )
        assert held_truly(params, cache), line
        if ended:
            assert line > 3
            return
        kept = cache.ids[0, : cache.lengths[0]].tolist()
        assert kept == IDS[0, : len(kept)].tolist()
        expected = forward(params, [*kept, 5])[0, -1]
        cache.truncate(min(cache.lengths))
        if len(kept) == cache.length:
            assert near(forward(params, [[5], [5]], cache)[0, 0], expected), line
    raise AssertionError("it never ended")


def test_interrupted_at_every_line_of_generate_its_cache_is_whole():
    """Sliding included, where the window is read again."""
    model = Model(random_params(SMALL, 1, np.float64))
    prompt = list(range(10))
    for line in range(0, 10_000, 11):
        cache = KVCache(model.params)
        ended = interrupt(
            lambda c=cache: generate(
                model, prompt, max_new_tokens=4, seed=0, on_full="slide", cache=c
            ),
            line,
        )
        assert held_truly(model.params, cache), line
        if ended:
            return
    raise AssertionError("it never ended")


# Limits


def test_the_capacity_is_a_limit(params, whole):
    cache = KVCache(params, 2, capacity=11)
    assert (cache.capacity, cache.batch_size, cache.length) == (11, 2, 0)
    forward(params, IDS[:, :9], cache)
    with pytest.raises(
        ContextError,
        match=re.escape("9 cached and 3 new positions make 12, but the cache's capacity is 11"),
    ):
        forward(params, IDS[:, 9:12], cache)
    assert cache.length == 9
    assert near(forward(params, IDS[:, 9:11], cache), whole[:, 9:11])
    with pytest.raises(ContextError, match="11 cached and 1 new"):
        forward(params, IDS[:, :1], cache)


def test_the_models_context_is_a_limit(params):
    cache = KVCache(params, 2)
    assert cache.capacity == N_CTX
    forward(params, IDS, cache)
    says = "40 cached and 1 new positions make 41, but the model's context is 40"
    with pytest.raises(ContextError, match=says) as caught:
        forward(params, IDS[:, :1], cache)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("capacity", [0, -1, 41])
def test_a_capacity_that_cannot_be(params, capacity):
    with pytest.raises(ContextError, match=rf"capacity is {capacity}; .* 1 to 40 positions"):
        KVCache(params, capacity=capacity)


@pytest.mark.parametrize("batch_size", [0, -3])
def test_a_batch_size_that_cannot_be(params, batch_size):
    with pytest.raises(InputError, match=f"batch_size must be an integer >= 1, not {batch_size}"):
        KVCache(params, batch_size)


def test_another_batch_size_than_the_caches(params):
    cache = KVCache(params, 3)
    with pytest.raises(InputError, match="2 sequences for a cache of 3"):
        forward(params, IDS[:, :2], cache)
    with pytest.raises(InputError, match=r"1 sequences? for a cache of 3"):
        forward(params, [1, 2], cache)
    assert cache.length == 0


def test_repr(params):
    cache = KVCache(params, 2, capacity=10)
    forward(params, IDS[:, :3], cache)
    assert repr(cache) == "KVCache(2 x 10 positions, held: [3, 3])"
