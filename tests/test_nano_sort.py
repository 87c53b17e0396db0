"""A trained GPT that sorts: each activation that its author published, and what it answers.

gpt-nano-sort is minGPT's, as the weights and partial results in bbycroft/llm-viz hold it.
"""

import base64
import itertools
import json

import numpy as np
import pytest
from shared import SHARED, needs_shared

from gpt2np import KVCache, forward, load
from gpt2np.layers import softmax

pytestmark = needs_shared
FOLDER = SHARED / "gpt-nano-sort"


def published(file):
    """The arrays of one of the author's files."""
    entries = json.loads((FOLDER / file).read_bytes())
    return {
        name: np.frombuffer(base64.b64decode(entry["data"]), "<f4").reshape(entry["shape"])
        for name, entry in entries.items()
        if name != "config"
    }


@pytest.fixture(scope="module")
def params():
    return load(FOLDER).params


def test_weights_are_the_authors(params):
    """His are [out, in], as nn.Linear has them; ours were written as [in, out]."""
    theirs = published("gpt-nano-sort-model.json")
    theirs = {name.removeprefix("transformer."): array for name, array in theirs.items()}
    masks = {f"h.{i}.attn.bias" for i in range(3)}
    assert theirs.keys() - params.keys() == masks
    for name, array in params.items():
        transposed = array.ndim == 2 and name.startswith("h.")
        assert np.array_equal(array, theirs[name].T if transposed else theirs[name]), name


# His name for each, and ours; the inner ones are of the first block.
ACTIVATIONS = {
    "tok_emb":   "wte",
    "pos_emb":   "wpe",
    "ln1":       "h.0.ln_1",
    "qkv":       "h.0.attn.c_attn",
    "q":         "h.0.attn.q",
    "k":         "h.0.attn.k",
    "v":         "h.0.attn.v",
    "att":       "h.0.attn.scores",
    "attSm":     "h.0.attn.pattern",
    "y":         "h.0.attn.z",
    "yProj":     "h.0.attn.c_proj",
    "attnResid": "h.0.resid_mid",
    "ln2":       "h.0.ln_2",
    "fc":        "h.0.mlp.c_fc",
    "gelu":      "h.0.mlp.act",
    "mlp":       "h.0.mlp.c_proj",
    "mlpResid":  "h.0",
    "block0":    "h.0",
    "block1":    "h.1",
    "block2":    "h.2",
    "ln_f":      "ln_f",
    "lm_head":   "logits",
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_activation_is_the_authors(dtype):
    theirs = published("gpt-nano-sort-t0-partials.json")
    ids = theirs.pop("idx").astype(int)
    ours = {}
    logits = forward(load(FOLDER, dtype=dtype).params, ids, probe=ours.__setitem__)

    assert close(softmax(logits), theirs.pop("probs"))
    assert close(ours["wte"] + ours["wpe"], theirs.pop("x"))
    assert theirs.keys() == ACTIVATIONS.keys()
    for name, activation in theirs.items():
        mine = ours[ACTIVATIONS[name]].reshape(activation.shape)
        hidden = np.isneginf(activation)
        assert hidden.any() == (name == "att")
        assert np.array_equal(np.isneginf(mine), hidden), name
        assert close(np.where(hidden, 0, mine), np.where(hidden, 0, activation)), name


def close(ours, theirs):
    return ours.shape == theirs.shape and np.abs(ours - theirs).max() <= 1e-5


def test_it_sorts(params):
    """All 729 sequences of six letters, through the cache."""
    inputs = np.array(list(itertools.product(range(3), repeat=6)))
    cache, new, answers = KVCache(params, len(inputs)), inputs, []
    for _ in range(6):
        new = forward(params, new, cache, last_only=True).argmax(-1)
        answers.append(new)
    assert cache.length == 11
    assert np.array_equal(np.concatenate(answers, 1), np.sort(inputs))
