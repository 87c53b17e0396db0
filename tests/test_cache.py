"""With the cache or without it: the same logits, however the sequence is cut."""

import re

import numpy as np
import pytest
from closeness import near
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_params

from gpt2np import Config, ContextError, InputError, KVCache, forward

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
    with pytest.raises(InputError, match=f"batch_size is {batch_size};"):
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
