"""Speculation by lookup: the same ids, the same distribution, and fewer passes."""

import numpy as np
import pytest
from closeness import chi_square_p
from generating import dictate, few, reads, same
from hypothesis import given, settings
from hypothesis import strategies as st
from models import SMALL, letters, random_model, random_params

from gpt2np import Config, Model, forward
from gpt2np.generation import generate, stream
from gpt2np.generation import lookup as lookup_module
from gpt2np.generation.lookup import Credit, draft
from gpt2np.layers import log_softmax
from gpt2np.sampling import Sampling


def last_occurrence(ids, k):
    """What `draft` should give, one token at a time."""
    for n in (3, 2):
        for end in range(len(ids) - 1, n - 1, -1):
            if ids[end - n : end] == ids[-n:]:
                text = list(ids)
                for i in range(k):
                    text.append(text[end + i])
                return text[len(ids) :]
    return []


@settings(max_examples=300)
@given(ids=st.lists(st.integers(0, 3), max_size=30), k=st.integers(1, 12))
def test_a_draft_is_what_followed_the_last_occurrence(ids, k):
    assert draft(np.array(ids, np.intp), k).tolist() == last_occurrence(ids, k)


N_CTX = SMALL["n_ctx"]
prompts = st.lists(st.integers(0, 11), min_size=1, max_size=N_CTX - 12)
repetitive = st.tuples(st.lists(st.integers(0, 11), min_size=1, max_size=5), st.integers(2, 6)).map(
    lambda parts: (parts[0] * parts[1])[: N_CTX - 12]
)
greedy_settings = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.floats(1, 1.5),
        "no_repeat_ngram": st.integers(3, 5),
        "stop": st.lists(st.text("abcdef", min_size=1, max_size=3), max_size=2),
        "stop_at_eot": st.booleans(),
        "on_full": st.just("slide"),
        "num_samples": st.integers(1, 2),
    },
)


@few
@given(
    batch=st.lists(prompts | repetitive, min_size=1, max_size=2),
    k=st.integers(0, 20),
    kwargs=greedy_settings,
)
def test_greedy_completions_stay_as_they_are(batch, k, kwargs):
    kwargs = {"temperature": 0, "max_new_tokens": 12} | kwargs
    plain, fast = (generate(letters, batch, lookup=n, **kwargs) for n in (None, k))
    for one, other in zip(plain, fast, strict=True):
        for a, b in zip(
            *(
                [x] if "num_samples" not in kwargs or kwargs["num_samples"] == 1 else x
                for x in (one, other)
            ),
            strict=True,
        ):
            same(a, b)
    pieces = stream(letters, batch[0], lookup=k, **kwargs | {"num_samples": 1})
    assert "".join(pieces) == generate(letters, batch[0], **kwargs | {"num_samples": 1}).text


def test_repetition_takes_fewer_passes(monkeypatch):
    model = random_model(seed=3, dtype=np.float64, n_ctx=256)
    kwargs = {
        "temperature": 0,
        "max_new_tokens": 200,
        "processors": [dictate([1, 2, 3, 4, 5, 6] * 40, 4)],
    }
    shapes = reads(monkeypatch)
    one = generate(model, [3, 4, 5, 6], lookup=16, **kwargs)
    assert one.ids == [1, 2, 3, 4, 5, 6] * 33 + [1, 2]
    passes = [T for _, T in shapes[1:]]
    assert max(passes) == 17
    # In the time of plain steps, by what a pass of many rows costs: at least 4 times as fast.
    assert sum(1.75 + T / 12 if T > 1 else 1 for T in passes) < 200 / 4


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [40, 200])
def test_drafts_that_fail_cost_little(monkeypatch, seed, n):
    """Text in which every pair of tokens has come before, and never goes on as it did."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 3, n).tolist()
    monkeypatch.setattr(lookup_module, "draft", lambda ids, k: np.full(k, 11))  # always wrong
    shapes = reads(monkeypatch)
    model = random_model(seed=3, dtype=np.float64, n_ctx=256)
    one = generate(
        model, [0], lookup=16, max_new_tokens=n, temperature=0, processors=[dictate(tokens, 1)]
    )
    assert one.ids == tokens
    passes = [T for _, T in shapes]
    assert max(passes) > 1
    assert sum(1.75 + T / 12 if T > 1 else 1 for T in passes) <= n / 0.9


@given(outcomes=st.lists(st.tuples(st.integers(0, 16), st.floats(0, 1)), max_size=200))
def test_the_account_never_goes_below_nothing(outcomes):
    credit, cost, tokens = Credit(), 0.0, 0
    for wanted, fraction in outcomes:
        n = min(wanted, credit.affords())
        n = n if n > 1 else 0
        gave = 1 + int(fraction * n)
        credit.settle(n, gave)
        tokens += gave
        cost += 1.75 + (n + 1) / 12 if n else 1
        assert credit.steps >= 0
        assert cost <= 1.05 * tokens + Credit.START


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"temperature": 0.7, "top_k": 2, "repetition_penalty": 1.2},
    ],
)
def test_sampled_completions_keep_their_distribution(kwargs, monkeypatch):
    params = random_params(Config(3, 16, 8, 2, 1), 6, np.float64)
    prompt, n = [0, 1, 2, 0, 1, 2, 0, 1], 4
    sampling = Sampling(**kwargs)

    def joint(ids, left):
        if not left:
            return {tuple(ids[len(prompt) :]): 1.0}
        row = sampling.logits(ids, forward(params, ids)[0, -1])
        return {
            text: p * rest
            for token, p in enumerate(np.exp(log_softmax(row)))
            for text, rest in joint([*ids, token], left - 1).items()
        }

    exact = joint(prompt, n)
    shapes = reads(monkeypatch)
    samples = generate(
        Model(params), prompt, num_samples=1000, max_new_tokens=n, seed=0, lookup=8, **kwargs
    )
    drafted = sum(T > 1 for _, T in shapes[1:])
    assert drafted > 300  # of two tokens, after the first token of many samples
    counts = dict.fromkeys(exact, 0)
    for one in samples:
        counts[tuple(one.ids)] += 1
    assert chi_square_p(list(counts.values()), list(exact.values())) > 1e-3


def test_logprobs_of_drafted_tokens():
    one = generate(
        letters,
        "abcabcabcabc",
        lookup=8,
        seed=3,
        max_new_tokens=10,
        temperature=0.5,
        stop_at_eot=False,
    )
    rows = log_softmax(forward(letters.params, one.prompt_ids + one.ids) / 0.5)[0, 11:-1]
    assert one.logprobs == pytest.approx(rows[np.arange(10), one.ids], abs=1e-9)
