"""A GPT-2 in C, made from the kit's documents alone: it passes, and each fault in it is named.

tests/c/gpt2.c has the faults that porters make; each is switched on by itself.
"""

import numpy as np
import pytest
from c_port import needs_compiler, run_port
from models import random_params

from gpt2np import Config, Model, Params, load
from gpt2np.config import PRESETS
from gpt2np.golden import check, record
from gpt2np.golden.tiny import MODELS, write_weights

pytestmark = needs_compiler

# The fault -> the first point that diverges, and what the cause says.
PLANTED = {
    "ids plus one":            ("wte", "the ids are one too large"),
    "wte scaled":              ("wte", "multiplied by sqrt(D)"),
    "positions from 1":        ("wpe", "shifted by one: counted from 1"),
    "positions from 2":        ("wpe", "shifted by two"),
    "no positions":            ("wpe", "position embeddings are left out"),
    "wpe from padding":        ("wpe", "wte's padding is read for wpe"),
    "embedding scaled":        ("h.0.ln_1", "the embeddings are multiplied by sqrt(D)"),
    "positions forgotten":     ("h.0.ln_1", "position embeddings are left out"),
    "embedding dropout":       ("h.0.ln_1", "dropout is on"),
    "epsilon 1e-6":            ("h.0.ln_1", "LayerNorm's epsilon is 1e-06, not 1e-05"),
    "epsilon 3e-5":            ("h.0.ln_1", "LayerNorm's epsilon is 3e-05, not 1e-05"),
    "epsilon 1e-3":            ("h.0.ln_1", "LayerNorm's epsilon is 0.001, not 1e-05"),
    "epsilon outside":         ("h.0.ln_1", "epsilon is added outside the root"),
    "variance n - 1":          ("h.0.ln_1", "divided by n - 1, not by n"),
    "torch.std":               ("h.0.ln_1", "as torch.std does"),
    "no mean":                 ("h.0.ln_1", "does not take off the mean"),
    "RMSNorm":                 ("h.0.ln_1", "LayerNorm is RMSNorm"),
    "no gain":                 ("h.0.ln_1", "LayerNorm's gain is missing"),
    "no norm bias":            ("h.0.ln_1", "LayerNorm's bias is missing"),
    "gain and bias exchanged": ("h.0.ln_1", "gain and bias are exchanged"),
    "no norm":                 ("h.0.ln_1", "LayerNorm is left out"),
    "norms exchanged":         ("h.0.ln_1", "gain and bias are those of ln_2"),
    "norms of block 0":        ("h.1.ln_1", "the weights are those of block 0"),
    "attention of block 0":    ("h.1.attn.c_attn", "the weights are those of block 0"),
    "no bias attn.c_attn":     ("h.0.attn.c_attn", "the bias is missing"),
    "bias twice attn.c_attn":  ("h.0.attn.c_attn", "the bias is added twice"),
    "transposed attn.c_attn":  ("h.0.attn.c_attn", "the weight is transposed"),
    "columns by head":         ("h.0.attn.c_attn", "in order of the heads"),
    "k before q":              ("h.0.attn.q", "in the order k, q, v"),
    "v first":                 ("h.0.attn.q", "in the order k, v, q"),
    "v before k":              ("h.0.attn.k", "in the order q, v, k"),
    "heads interleaved":       ("h.0.attn.q", "heads are interleaved"),
    "heads first":             ("h.0.attn.q", "cut into heads first"),
    "heads not moved":         ("h.0.attn.q", "without moving the axis of the heads"),
    "unscaled":                ("h.0.attn.scores", "not scaled by 1/sqrt(K)"),
    "scaled by D":             ("h.0.attn.scores", "scaled by 1/sqrt(D)"),
    "scaled by K":             ("h.0.attn.scores", "scaled by 1/K"),
    "scaled by 0.3":           ("h.0.attn.scores", "multiplied by 0.3, not by 0.408248"),
    "scaled by layer":         ("h.1.attn.scores", "divided by the block's number"),
    "q and k exchanged":       ("h.0.attn.scores", "q and k are exchanged"),
    "no mask":                 ("h.0.attn.scores", "there is no mask"),
    "mask reversed":           ("h.0.attn.scores", "hides the past"),
    "mask sees next":          ("h.0.attn.scores", "each position sees the next one"),
    "mask hides itself":       ("h.0.attn.scores", "no position sees itself"),
    "mask of 0":               ("h.0.attn.scores", "the mask sets 0"),
    "mask of -10":             ("h.0.attn.scores", "the mask sets -10"),
    "mask after the softmax":  ("h.0.attn.pattern", "the mask comes after the softmax"),
    "softmax over queries":    ("h.0.attn.pattern", "over the queries"),
    "softmax over heads":      ("h.0.attn.pattern", "over the heads"),
    "softmax without maximum": ("h.1.attn.pattern", "without its maximum"),
    "softmax and one":         ("h.0.attn.pattern", "1 more in its denominator"),
    "softmax temperature":     ("h.0.attn.pattern", "multiplied by 0.9 before the softmax"),
    "no softmax":              ("h.0.attn.pattern", "there is no softmax"),
    "pattern dropout":         ("h.0.attn.z", "dropout is on, in the pattern"),
    "pattern on k":            ("h.0.attn.z", "applied to k, not v"),
    "pattern transposed":      ("h.0.attn.z", "the pattern is transposed"),
    "heads not moved back":    ("h.0.attn.z", "merged without moving their axis"),
    "no bias attn.c_proj":     ("h.0.attn.c_proj", "the bias is missing"),
    "bias twice attn.c_proj":  ("h.0.attn.c_proj", "the bias is added twice"),
    "transposed attn.c_proj":  ("h.0.attn.c_proj", "the weight is transposed"),
    "residual in c_proj":      ("h.0.attn.c_proj", "the residual is in it already"),
    "no residual":             ("h.0.resid_mid", "the residual is missing"),
    "residual after norm":     ("h.0.resid_mid", "LayerNorm's output, not its input"),
    "branch dropout":          ("h.0.resid_mid", "dropout is on"),
    "parallel blocks":         ("h.0.ln_2", "the block's own, before attention"),
    "mlp of block 0":          ("h.1.mlp.c_fc", "the weights are those of block 0"),
    "mlp bias of block 0":     ("h.1.mlp.c_fc", "the bias is that of block 0"),
    "no bias mlp.c_fc":        ("h.0.mlp.c_fc", "the bias is missing"),
    "transposed mlp.c_fc":     ("h.0.mlp.c_fc", "the weight is transposed"),
    "gelu 0.0447":             ("h.0.mlp.act", "GELU's constant is 0.0447, not 0.044715"),
    "gelu 0.044":              ("h.0.mlp.act", "GELU's constant is 0.044, not 0.044715"),
    "gelu 0.8":                ("h.0.mlp.act", "GELU's factor is 0.8, not sqrt(2/pi)"),
    "gelu sqrt(pi/2)":         ("h.0.mlp.act", "GELU's factor is 1.2533"),
    "erf gelu":                ("h.0.mlp.act", "erf form, not the tanh form"),
    "sigmoid gelu":            ("h.0.mlp.act", "sigmoid form"),
    "silu":                    ("h.0.mlp.act", "SiLU"),
    "relu":                    ("h.0.mlp.act", "ReLU"),
    "no activation":           ("h.0.mlp.act", "no activation function"),
    "no bias mlp.c_proj":      ("h.0.mlp.c_proj", "the bias is missing"),
    "transposed mlp.c_proj":   ("h.0.mlp.c_proj", "the weight is transposed"),
    "no second residual":      ("h.0", "the residual is missing"),
    "residual without attention": ("h.0", "without attention"),
    "no last block":           ("ln_f", "the last block is left out"),
    "no final norm":           ("ln_f", "LayerNorm is left out"),
    "few columns":             ("logits", "3 columns are missing"),
    "untied head":             ("logits", "not tied to wte"),
    "head reshaped":           ("logits", "wte is read as [D, V]"),
    "log-probabilities":       ("logits", "these are log-probabilities"),
    "probabilities":           ("logits", "these are probabilities"),
    "temperature":             ("logits", "multiplied by 1.429"),
}  # fmt: skip

# These show only once the cache is read.
IN_THE_CACHE = {
    "shared cache":            "all layers share one cache, which holds layer 2's",
    "cache of next layer":     "written at the next layer's place",
    "cache of previous layer": "written at the previous layer's place",
    "keys in the next slot":   "the slots are off by one",
    "slots do not advance":    "each new token is written over the one before it",
    "slots all the first":     "each token is written over the first one",
    "values as keys":          "keys and values are exchanged",
    "positions restart":       "the new token's position is 0",
    "positions stay":          "the position does not advance",
    "mask from the left":      "the mask is counted from the upper left corner",
}  # fmt: skip

SOUND = [(), ("sums=d",), ("sums=r",), ("sums=f",), ("sums=8",), ("sums=p",)]


class Kit:
    """A model's files, as the kit writes them."""

    def __init__(self, folder, model, ids, new=16):
        self.folder, self.model, self.ids = folder, model, ids
        write_weights(model, folder / "weights")
        self.golden = record(model, ids, weights=True, new_tokens=new)
        record(model, ids, points="ln_f", new_tokens=new).save(folder / "recording")

    def run(self, *words, weights=None):
        weights = weights or self.folder / "weights" / "llm.c" / "model.bin"
        return run_port(weights, self.folder / "recording", self.folder / "out", *words)


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    make, ids = MODELS["harsh"]
    return Kit(tmp_path_factory.mktemp("kit"), make(), list(ids))


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_is_named_at_its_place(kit, fault):
    report = check(kit.run(fault), kit.golden)
    point, cause = PLANTED[fault]
    assert report.first.point == point
    assert len(report.causes) == 1, "another cause says the same"
    assert cause in report.causes[0]


@pytest.mark.parametrize("fault", IN_THE_CACHE)
def test_a_fault_of_the_cache_is_named(kit, fault):
    """By the logits of greedy decoding, and by what a first pass leaves."""
    report = check(kit.run(fault), kit.golden)
    assert report.first.point == "greedy.logits"
    assert IN_THE_CACHE[fault] in report.causes[0]
    second = kit.run(fault, "held=5")
    for theirs in (record(kit.model, kit.ids, cache_split=5, weights=True), kit.golden):
        report = check(second, theirs)
        assert report.first.point == "past.keys"
        # Of tokens one by one, a position that does not advance is 0 in any case.
        assert any(IN_THE_CACHE[fault] in cause for cause in report.causes)


def test_at_least_75_faults_are_named():
    assert len(PLANTED) + len(IN_THE_CACHE) >= 75


@pytest.mark.parametrize("words", SOUND)
@pytest.mark.parametrize("name", MODELS)
def test_the_sound_port_passes(tmp_path, name, words):
    """In any order of sums, in one pass and through the cache."""
    make, ids = MODELS[name]
    kit = Kit(tmp_path, make(), list(ids))
    report = check(kit.run(*words), kit.golden)
    assert report.first is None
    assert all(row.step is not None for row in report.rows if row.point.startswith("h."))
    for theirs in (kit.golden, record(kit.model, kit.ids, cache_split=5, weights=True)):
        report = check(kit.run("held=5", *words), theirs)
        assert report.first is None
        assert {"past.keys", "past.values"} <= {row.point for row in report.rows}
        assert not any("cache was not tested" in note for note in report.notes)


def test_the_sound_port_passes_on_the_embedded_model(tmp_path):
    """Trained weights and the true vocabulary, in one pass and through the cache."""
    model = load()
    kit = Kit(tmp_path, model, model.tokenizer.encode("First Citizen:\nBefore we proceed"), new=8)
    for words in (("sums=8",), ("sums=8", "held=5")):
        assert check(kit.run(*words), kit.golden).first is None
    report = check(kit.run("gelu 0.0447"), kit.golden)
    assert report.first.point == "h.0.mlp.act"


def test_the_sound_port_passes_with_weights_in_half_precision(tmp_path, kit):
    """Against the reference in float32, whose weights are others; and against its own."""
    rounded = {k: a.astype(np.float16).astype(np.float32) for k, a in kit.model.params.items()}
    model = Model(Params(kit.model.config, rounded))
    half = Kit(tmp_path, model, kit.ids)
    mine = half.run()
    assert check(mine, half.golden).first is None
    report = check(mine, kit.golden)
    assert report.first is None or report.first.point in ("greedy.logits", "logits")
    assert any("cannot be told" in note for note in report.notes)


def test_a_deeper_port_passes(tmp_path):
    config = Config(vocab_size=300, n_ctx=64, n_embd=96, n_head=6, n_layer=12)
    model = Model(random_params(config))
    ids = np.random.default_rng(0).integers(300, size=40).tolist()
    kit = Kit(tmp_path, model, ids, new=8)
    for words in (*SOUND, ("held=17",)):
        report = check(kit.run(*words), kit.golden)
        assert report.first is None, words
    # An error of 4e-6 in the first block shows there, not where it has grown.
    report = check(kit.run("gelu 0.0447"), kit.golden)
    assert report.first.point == "h.0.mlp.act"
    assert report.causes == ("GELU's constant is 0.0447, not 0.044715",)


@pytest.mark.slow
def test_the_port_passes_at_the_true_shape(tmp_path, params_124m):
    assert params_124m.config == PRESETS["gpt2"]
    ids = np.random.default_rng(0).integers(50257, size=12).tolist()
    kit = Kit(tmp_path, Model(params_124m), ids, new=4)
    for words in ((), ("sums=8",), ("held=5",)):
        assert check(kit.run(*words), kit.golden).first is None
    for fault in ("gelu 0.0447", "epsilon 1e-6", "mask hides itself", "shared cache"):
        point, cause = PLANTED.get(fault, ("greedy.logits", "all layers share one cache"))
        report = check(kit.run(fault), kit.golden)
        assert report.first.point == point
        assert cause in report.causes[0]


def test_a_padded_vocabulary_is_told(kit):
    report = check(kit.run("padded logits"), kit.golden)
    assert report.first is None
    assert "128 columns: 75 of padding" in str(report)


def test_how_many_are_no_numbers(kit):
    report = check(kit.run("softmax without maximum"), kit.golden)
    assert "h.1.attn.pattern: 5 of 588 are NaN or infinite, first [0, 1, 11, 2]" in report.notes
