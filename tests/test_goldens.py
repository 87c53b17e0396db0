"""Hugging Face's answers at the four published shapes, as assets/golden holds them."""

import sys
from pathlib import Path

import numpy as np
import pytest
from closeness import assert_close

from gpt2np import KVCache, Params, forward
from gpt2np.config import PRESETS

GOLDEN = Path(__file__).parents[1] / "assets" / "golden"
sys.path.insert(0, str(GOLDEN))
from record_huggingface import (  # noqa: E402
    LOGIT_STEP,
    NAMES,
    NEW,
    POSITIONS,
    PROMPT,
    SEED,
    SHORT,
    WIDTH_STEP,
    activation_names,
    token_ids,
)

AT = list(POSITIONS)


@pytest.fixture(
    params=["124M", *(pytest.param(s, marks=pytest.mark.slow) for s in ("355M", "774M", "1558M"))]
)
def size_and_params(request):
    """The size's name and its weights, let go of before the next size's are drawn."""
    if request.param == "124M":
        return request.param, request.getfixturevalue("params_124m")
    return request.param, Params.random(PRESETS[NAMES[request.param]], SEED)


def test_float32_equals_hugging_face(size_and_params):
    size, params = size_and_params
    golden = np.load(GOLDEN / f"{size}.npz")
    ids = token_ids(params.config.vocab_size)
    names = activation_names(params.config.n_layer)
    seen = {}

    def probe(name, array):
        if name in names:
            seen[name] = array[0, AT, ::WIDTH_STEP]

    logits = forward(params, ids, probe=probe)[0]
    assert_close(logits[AT, ::LOGIT_STEP], golden["logits"])
    assert np.array_equal(np.argsort(-logits[AT], axis=-1)[:, :10], golden["top"])
    assert_close(logits.max(-1), golden["max"])
    assert_close(np.log(np.exp(logits).sum(-1)), golden["logsumexp"])
    assert seen.keys() == set(names)
    for name in names:
        assert_close(seen[name], golden[name], what=name)

    # The same without a probe, in blocks of queries, and one by one through the cache.
    assert_close(forward(params, ids)[0, AT, ::LOGIT_STEP], golden["logits"])
    cache, new = KVCache(params), list(ids[:PROMPT])
    for start in (0, *range(PROMPT, PROMPT + NEW - 1)):
        new.append(int(forward(params, new[start:], cache, last_only=True).argmax()))
    assert new[PROMPT:] == golden["greedy"].tolist()


def test_float64_equals_hugging_face_in_double(params_124m):
    golden = np.load(GOLDEN / "124M.npz")
    config = params_124m.config
    wide = {name: array.astype(np.float64) for name, array in params_124m.items()}
    logits = forward(Params(config, wide), token_ids(config.vocab_size)[:SHORT])[0]
    at = [p for p in AT if p < SHORT]
    assert_close(logits[at, ::LOGIT_STEP], golden["logits_float64"])
