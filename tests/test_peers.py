"""Scores against what lm-eval, minicons and wordsprobability make of the same weights.

Their values stand in peers/values.json, recorded by peers/record.py; versions are in it.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import gpt2np
from gpt2np import Config, Model, Params, Tokenizer, perplexity, score

VALUES = json.loads((Path(__file__).parent / "peers" / "values.json").read_text("utf-8"))
MODELS = ["tiny-shakespeare", "random 124M"]
# minicons and wordsprobability compute in float32.
CLOSE = {"float64": {"abs": 5e-4, "rel": 1e-6}, "float32": {"abs": 2e-3, "rel": 1e-4}}


@pytest.fixture(
    scope="module", params=[(name, dtype) for dtype in CLOSE for name in MODELS], ids="-".join
)
def case(request):
    name, dtype = request.param
    if name == "tiny-shakespeare":
        model = gpt2np.load(dtype=dtype)
    else:
        model = Model(Params.random(Config(), dtype=np.dtype(dtype)), Tokenizer.gpt2())
    return model, VALUES[name], lambda x: pytest.approx(x, **CLOSE[dtype])


def continued(model, prefix, text, **settings):
    """As lm-eval: nothing stands before a prefix; an empty one is the end of text."""
    return score(model, text, prefix=prefix, bos=not prefix, **settings)


def test_continuations_are_lm_evals(case):
    model, values, close = case
    for (prefix, text), (ll, greedy) in zip(
        VALUES["pairs"], values["lm-eval"]["pairs"], strict=True
    ):
        s = continued(model, prefix, text, window=values["max_length"])
        if s.merged:  # lm-eval leaves the first token out, and reads half of it as the prefix
            assert s.tokens == [" cat", " sat"]
            read, rest = model.tokenizer.encode(prefix), s.ids[1:]
            assert score(model, rest, prefix=read, bos=False).total == close(ll)
        else:
            assert s.total == close(ll)
            assert s.greedy is greedy


def test_a_rolling_perplexity_is_lm_evals(case):
    model, values, close = case
    theirs, length = values["lm-eval"], values["max_length"]
    p = perplexity(model, VALUES["document"], recipe="lm-eval", window=length)
    assert p.total == close(theirs["rolling_plain"])
    assert p == close(math.exp(-p.total / p.n_tokens))


def test_surprisals_of_tokens_are_miniconss(case):
    model, values, close = case
    for text, theirs in zip(VALUES["sentences"], values["minicons"]["tokens"], strict=True):
        assert score(model, text).surprisal == close([value for _, value in theirs[1:]])


def test_words_are_miniconss_but_for_the_first(case):
    """minicons divides the first word by nothing."""
    model, values, close = case
    theirs = iter(values["minicons"]["words"])
    for text in VALUES["sentences"]:
        s = score(model, text)
        plain, fixed = next(theirs), next(theirs)
        assert [word.surprisal for word in s.words(boundary=None)] == close([x for _, x in plain])
        words = s.words(boundary="space")
        assert [word.surprisal for word in words[1:]] == close([x for _, x in fixed[1:]])
        first = float(s._boundaries[0, 1]) / math.log(2)
        assert words[0].surprisal - first == close(fixed[0][1])


def test_words_are_wordsprobabilitys_but_for_the_end_that_it_counts_twice(case):
    model, values, close = case
    for text, theirs in zip(VALUES["sentences"], values["wordsprobability"], strict=True):
        s = score(model, text)
        words = s.words(boundary="space")
        assert len(words) == len(theirs)
        begins = float(s._boundaries[0, 1])
        twice = np.logaddexp(begins, score(model, [model.tokenizer.eot]).total)
        assert words[0].surprisal + (twice - begins) / math.log(2) == close(theirs[0][1])
        assert [word.surprisal for word in words[1:]] == close([x for _, x in theirs[1:]])
