"""Each step against Hugging Face's processor on the same logits; the draws against chi-square."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from closeness import chi_square_p
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpt2np.errors import InputError, shown
from gpt2np.layers import log_softmax, softmax
from gpt2np.sampling import (
    Sampling,
    _draw,
    accept,
    mask_from,
    min_p,
    no_repeat_ngram,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
)

V = 50257
INF = math.inf

# A busy machine must fail no test.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def hf():
    """Apply one of Hugging Face's processor classes to one row."""
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")

    def apply(name, arguments, ids, logits):
        processor = getattr(process, name)(*arguments)
        row = torch.from_numpy(logits.copy())[None]
        return processor(torch.tensor([list(ids)], dtype=torch.long), row)[0].numpy()

    return apply


def masks(row):
    return row == -INF


# Rows of many kinds: continuous or with many ties, some entries masked, one at least not.
@st.composite
def rows(draw, max_size=40, masked=True):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    size = draw(st.integers(1, max_size))
    values = draw(
        st.sampled_from(
            [
                st.floats(-25, 25, width=32),
                st.integers(-3, 3).map(float),
                st.just(1.5),
            ]
        )
    )
    row = draw(arrays(dtype, size, elements=values))
    if masked:
        row[draw(st.lists(st.integers(0, size - 1), max_size=size // 2))] = -INF
        assume(row.max() > -INF)
    row.flags.writeable = False  # no step may change its input: numpy would raise
    return row


def ids_for(row, max_size=30):
    return st.lists(st.integers(0, row.size - 1), max_size=max_size)


# ---- each step equals Hugging Face's ------------------------------------------------------------


@unhurried
@given(data=st.data(), row=rows(), penalty=st.floats(0.1, 5))
def test_repetition_penalty_is_hugging_faces(hf, data, row, penalty):
    ids = data.draw(ids_for(row))
    ours = repetition_penalty(ids, row, penalty)
    assert ours.dtype == row.dtype
    assert np.array_equal(ours, hf("RepetitionPenaltyLogitsProcessor", [penalty], ids, row))


@unhurried
@given(data=st.data(), row=rows(max_size=4), n=st.integers(1, 5))
def test_no_repeat_ngram_is_hugging_faces(hf, data, row, n):
    ids = data.draw(ids_for(row))
    ours = no_repeat_ngram(np.array(ids, dtype=np.int64), row, n)
    assert ours.dtype == row.dtype
    assert np.array_equal(ours, hf("NoRepeatNGramLogitsProcessor", [n], ids, row))


@unhurried
@given(row=rows(), t=st.floats(0.01, 100))
def test_temperature_is_hugging_faces(hf, row, t):
    ours = temperature(row, np.float64(t))  # a NumPy scalar must not turn float32 into float64
    assert ours.dtype == row.dtype
    assert np.array_equal(ours, hf("TemperatureLogitsWarper", [t], [], row))


@unhurried
@given(row=rows(), k=st.integers(1, 50))
def test_top_k_is_hugging_faces_with_exactly_k(hf, row, k):
    ours, theirs = top_k(row, k), hf("TopKLogitsWarper", [k], [], row)
    assert ours.dtype == row.dtype
    kept = np.flatnonzero(~masks(ours))
    assert kept.size == min(k, np.count_nonzero(~masks(row)))
    # Theirs has all ties with the k-th largest, ours the lowest ids of them.
    best = np.lexsort((np.arange(row.size), -row))[: kept.size]
    assert sorted(best) == kept.tolist()
    assert np.array_equal(ours[kept], theirs[kept])
    if np.unique(row[~masks(row)]).size == np.count_nonzero(~masks(row)):
        assert np.array_equal(ours, theirs)


@unhurried
@given(row=rows(), p=st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
def test_top_p_is_hugging_faces(hf, row, p):
    # Where the mass of some set is p itself, rounding decides, in theirs as in ours.
    mass = np.cumsum(np.sort(softmax(row.astype(np.float64))))
    assume(p in (0, 1) or np.abs(mass - (1 - p)).min() > 1e-6)
    ours, theirs = top_p(row, np.float64(p)), hf("TopPLogitsWarper", [p], [], row)
    assert ours.dtype == row.dtype
    # The same logits are kept; which of equal ones, theirs leaves to an unstable sort.
    assert np.array_equal(np.sort(ours), np.sort(theirs))
    kept = np.flatnonzero(~masks(ours))
    assert sorted(np.lexsort((np.arange(row.size), -row))[: kept.size]) == kept.tolist()
    assert np.array_equal(ours[kept], row[kept])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [0.1, 0.25, 0.3, 0.5, 0.7, 0.75, 0.9])
def test_top_p_is_hugging_faces_where_the_mass_is_p_itself(hf, p, dtype):
    for n in range(1, 33):
        row = np.full(n, -1.5, dtype)
        kept = np.count_nonzero(~masks(top_p(row, p)))
        assert kept == np.count_nonzero(~masks(hf("TopPLogitsWarper", [p], [], row)))


@unhurried
@given(row=rows(), p=st.sampled_from([0.0, 1.0]) | st.floats(1e-3, 1))
def test_min_p_is_hugging_faces(hf, row, p):
    probs = softmax(row.astype(np.float64))
    assume(p in (0, 1) or np.abs(probs / probs.max() - p).min() > 1e-6)
    ours = min_p(row, np.float64(p))
    assert ours.dtype == row.dtype
    assert np.array_equal(ours, hf("MinPLogitsWarper", [p], [], row))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.0, 0.01, 1, 3, 10])
def test_steps_are_hugging_faces_at_gpt2s_vocabulary(hf, spread, dtype):
    rng = np.random.default_rng(1)
    row = (rng.standard_normal(V) * spread - 90).astype(dtype)
    if spread == 10:
        row[rng.integers(0, V, V // 2)] = -INF
    if spread:
        for k in (1, 2, 40, 1000, V - 1, V, V + 1):
            theirs = hf("TopKLogitsWarper", [k], [], row)
            ours = top_k(row, k)
            assert np.count_nonzero(~masks(ours)) == min(k, np.count_nonzero(~masks(row)))
            assert np.array_equal(ours, theirs) or dtype == np.float32  # which has ties
    for p in (0.0, 1e-6, 0.123, 0.5, 0.9, 0.95, 0.999, 1.0):
        ours = np.count_nonzero(~masks(top_p(row, p)))
        theirs = np.count_nonzero(~masks(hf("TopPLogitsWarper", [p], [], row)))
        # 50,257 float32 probabilities sum to 1 within about 1e-6: a set may differ by so much.
        slack = 2 + ours * 2e-6 / min(1, max(1e-3, 1 - p)) if dtype == np.float32 else 0
        assert abs(ours - theirs) <= slack
    for p in (0.0, 1e-6, 0.05, 0.5, 1.0):
        assert np.array_equal(min_p(row, p), hf("MinPLogitsWarper", [p], [], row))


def test_order_is_hugging_faces():
    """The whole chain against the list that ``generate`` itself builds."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    n_vocab = 61
    config = transformers.GPT2Config(
        vocab_size=n_vocab,
        n_positions=8,
        n_embd=4,
        n_layer=1,
        n_head=1,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    chosen = {
        "temperature": 0.6,
        "top_k": 8,
        "top_p": 0.8,
        "min_p": 0.01,
        "repetition_penalty": 1.7,
    }
    shift = np.random.default_rng(2).standard_normal(n_vocab)

    class Shift(transformers.LogitsProcessor):
        def __call__(self, ids, scores):
            return scores + ids.shape[1] % 5 * torch.tensor(shift)

    theirs = model._get_logits_processor(
        transformers.GenerationConfig(do_sample=True, no_repeat_ngram_size=2, **chosen),
        input_ids_seq_length=9,
        logits_processor=transformers.LogitsProcessorList([Shift()]),
    )
    assert [type(processor).__name__ for processor in theirs] == [
        "RepetitionPenaltyLogitsProcessor",
        "NoRepeatNGramLogitsProcessor",
        "Shift",
        "TemperatureLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
        "MinPLogitsWarper",
    ]
    ours = Sampling(
        **chosen, no_repeat_ngram=2, processors=[lambda ids, row: row + len(ids) % 5 * shift]
    )
    rng = np.random.default_rng(3)
    for trial in range(200):
        ids = rng.integers(0, n_vocab, trial % 50 + 1)
        row = rng.standard_normal(n_vocab) + rng.choice([-1, 0, 1])
        expected = theirs(torch.tensor(ids)[None], torch.tensor(row)[None])[0].numpy()
        np.testing.assert_allclose(ours.logits(ids, row), expected, rtol=1e-12)


def test_each_setting_alone_is_its_step():
    row, ids = np.random.default_rng(14).standard_normal(50), [1, 2, 1]
    for value in (0, 0.3, 0.95, 0.999):
        assert np.array_equal(Sampling(top_p=value).logits(ids, row), top_p(row, value))
        assert np.array_equal(Sampling(min_p=value).logits(ids, row), min_p(row, value))
    for value in (1, 2, 49, 50, 51):
        assert np.array_equal(Sampling(top_k=value).logits(ids, row), top_k(row, value))
    for value in (0.3, 1, 2.5):
        penalised = repetition_penalty(ids, row, value)
        assert np.array_equal(Sampling(repetition_penalty=value).logits(ids, row), penalised)
        assert np.array_equal(Sampling(temperature=value).logits(ids, row), row / value)
    masked = no_repeat_ngram(ids, row, 2)
    assert np.array_equal(Sampling(no_repeat_ngram=2).logits(ids, row), masked)
    for off in ({}, {"top_p": 1}, {"min_p": 0}, {"temperature": 0}):
        assert np.array_equal(Sampling(**off).logits(ids, row), row)


def test_greedy_takes_penalties_and_processors_but_no_warpers():
    row = np.array([1.0, 4.0, 3.0])
    greedy = Sampling(temperature=0, top_k=1, top_p=0.1, min_p=1, repetition_penalty=2)
    assert greedy.logits([1], row).tolist() == [1.0, 2.0, 3.0]
    assert greedy.pick([1], row, None)[0] == 2
    lift = Sampling(temperature=0, processors=[lambda ids, row: row + np.array([0, 0, len(ids)])])
    assert lift.pick([0], row, None)[0] == 1  # 4 and 3 + 1 are equal: the lower id
    assert lift.pick([0, 0], row, None)[0] == 2


# ---- small steps --------------------------------------------------------------------------------


def test_a_penalty_counts_once_per_distinct_token():
    row = np.array([2.0, -2.0, 0.0, -INF])
    assert repetition_penalty([0, 0, 0, 1, 1, 2, 3], row, 2).tolist() == [1.0, -4.0, 0.0, -INF]
    assert repetition_penalty([], row, 2).tolist() == row.tolist()


def test_lowest_float_counts_as_masked():
    low = np.finfo(np.float32).min
    row = np.array([low, 1.0], np.float32)
    sampling = Sampling(temperature=0.5, repetition_penalty=2)
    assert sampling.logits([0], row).tolist() == [-INF, 2.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mask_from(dtype):
    row = np.arange(5, dtype=dtype)
    masked = mask_from(row, 3)
    assert masked.tolist() == [0, 1, 2, -INF, -INF]
    assert masked.dtype == dtype
    assert row.tolist() == [0, 1, 2, 3, 4]
    for n_vocab in (5, 6):
        assert mask_from(row, n_vocab).tolist() == row.tolist()


@unhurried
@given(row=rows(), data=st.data())
def test_a_chain_keeps_dtype_and_input(row, data):
    sampling = Sampling(
        temperature=data.draw(st.sampled_from([0, 0.5, 1, 2, np.float64(0.7)])),
        top_k=data.draw(st.none() | st.integers(1, 50)),
        top_p=data.draw(st.none() | st.floats(0, 1).map(np.float64)),
        min_p=data.draw(st.none() | st.floats(0, 1).map(np.float64)),
        repetition_penalty=np.float64(data.draw(st.floats(0.5, 2))),
        processors=[lambda ids, logits: np.add(logits, 1, out=logits)],  # it edits its copy
    )
    ids = data.draw(ids_for(row))
    processed = sampling.logits(ids, row)
    assert processed.dtype == row.dtype
    assert masks(processed)[masks(row)].all()
    token, logprob = sampling.pick(ids, row, np.random.default_rng(3))
    assert type(token) is int
    assert type(logprob) is float
    assert logprob == pytest.approx(log_softmax(processed)[token], abs=1e-5)


def test_processors_run_in_turn_and_keep_the_dtype():
    row = np.array([1.0, 2.0], np.float32)
    double = Sampling(processors=(lambda ids, x: x + np.float64(1), lambda ids, x: x * ids[-1]))
    assert double.logits([5, 3], row).tolist() == [6.0, 9.0]
    assert double.logits([5, 3], row).dtype == np.float32


# ---- drawing ------------------------------------------------------------------------------------


class Fixed:
    """A generator whose random() gives one chosen number."""

    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


U = [0.0, 5e-324, 2**-53, 0.1, 0.5, 0.9, 1 - 2**-52, 1 - 2**-53]


@unhurried
@given(
    weights=arrays(
        st.sampled_from([np.float32, np.float64]),
        st.integers(1, 700),
        elements=st.sampled_from([0.0, 0.0, 1e-30, 1e-8, 0.1, 1 / 3, 1.0]),
    ),
    u=st.sampled_from(U) | st.floats(0, 1, exclude_max=True),
)
def test_draw_is_the_inverse_cdf_and_never_a_token_without_weight(weights, u):
    assume(weights.any())
    i = _draw(weights, Fixed(u))
    assert weights[i] > 0
    below, upto = math.fsum(weights[:i]), math.fsum(weights[: i + 1])
    target = u * math.fsum(weights)
    assert below - target <= 1e-9 * weights.sum()
    assert target - upto <= 1e-9 * weights.sum()


@pytest.mark.parametrize("u", U)
def test_draw_at_gpt2s_vocabulary_with_masked_ends(u):
    weights = np.random.default_rng(4).random(V).astype(np.float32)
    weights[:1000] = weights[-1000:] = 0
    i = _draw(weights, Fixed(u))
    assert 1000 <= i < V - 1000
    assert i == {0.0: 1000, 5e-324: 1000, 2**-53: 1000}.get(u, i)
    assert i == V - 1001 or u < 1 - 2**-52


def test_a_drafted_token_that_is_certain_is_always_accepted():
    row = np.array([-INF, 2.0, -INF])
    for u in U:
        assert accept(1, row, Fixed(u)) == (True, 1)
        assert accept(0, row, Fixed(u)) == (False, 1)


def test_one_number_per_token_and_none_when_greedy():
    row = np.random.default_rng(5).standard_normal(V)
    used, plain = np.random.default_rng(6), np.random.default_rng(6)
    for sampling in (Sampling(), Sampling(top_k=5), Sampling(top_p=0.5, min_p=0.1)):
        sampling.pick([], row, used)
        plain.random()
        assert used.bit_generator.state == plain.bit_generator.state
    Sampling(temperature=0).pick([], row, used)
    assert used.bit_generator.state == plain.bit_generator.state


def frequencies(draw, size, n=5_000):
    counts = Counter(draw() for _ in range(n))
    assert set(counts) <= set(range(size))
    return [counts[i] for i in range(size)]


# 300 tokens: two of the blocks that _draw sums by; the ends masked, some ties.
ROW = np.random.default_rng(7).standard_normal(300).round(1) * 1.5
ROW[:3] = ROW[-3:] = -INF
ROW32 = ROW.astype(np.float32)
IDS = np.random.default_rng(8).integers(0, 300, 60)


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3},
        {"top_k": 10},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"repetition_penalty": 2},
        {"no_repeat_ngram": 1},
        {"processors": [lambda ids, logits: -logits[::-1].clip(-5)]},
        {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.2},
    ],
    ids=lambda chosen: "+".join(chosen) or "plain",
)
def test_sampled_frequencies(chosen):
    sampling, rng = Sampling(**chosen), np.random.default_rng(9)
    probs = softmax(sampling.logits(IDS, ROW32).astype(np.float64))
    assert chi_square_p(frequencies(lambda: sampling.pick(IDS, ROW32, rng)[0], 300), probs) > 1e-3


@pytest.mark.parametrize("kind", ["likeliest", "common", "rare", "masked", "outside top_k"])
def test_accepted_frequencies(kind):
    order = np.argsort(ROW32)
    draft = {
        "likeliest": order[-1],
        "common": order[-5],
        "rare": order[20],
        "masked": 1,
        "outside top_k": order[100],
    }[kind]
    row = top_k(ROW32, 50) if kind == "outside top_k" else ROW32
    rng, probs = np.random.default_rng(10), softmax(row.astype(np.float64))
    outcomes = [accept(int(draft), row, rng) for _ in range(5_000)]
    assert all((token == draft) == accepted for accepted, token in outcomes)
    tokens = iter([token for _, token in outcomes])
    assert chi_square_p(frequencies(lambda: next(tokens), 300), probs) > 1e-3


def test_chi_square_sees_a_bias():
    """The test of the tests: slightly wrong distributions are found out, the right one is not."""
    rng, probs = np.random.default_rng(11), softmax(ROW)
    right = [chi_square_p(rng.multinomial(20_000, probs), probs) for _ in range(200)]
    assert 0.01 < np.mean(np.array(right) < 0.05) < 0.10
    assert 0.4 < np.mean(np.array(right) < 0.5) < 0.6
    warmer = softmax(ROW / 1.2)
    draws = rng.choice(300, 20_000, p=warmer)
    assert chi_square_p(np.bincount(draws, minlength=300), probs) < 1e-6
    draft = int(np.argmax(ROW))

    def careless():  # on refusal, draws from all tokens, the draft included
        token = _draw(probs, rng)
        return draft if rng.random() < probs[draft] else token

    assert chi_square_p(frequencies(careless, 300), probs) < 1e-6


# ---- log-probabilities --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logprobs_are_hugging_faces_log_softmax(dtype):
    torch = pytest.importorskip("torch")
    row = (np.random.default_rng(12).standard_normal(V) * 4 - 90).astype(dtype)
    rng, tolerance = np.random.default_rng(13), 1e-5 if dtype == np.float32 else 1e-12
    for sampling in (Sampling(temperature=0), Sampling(), Sampling(temperature=2, top_k=100)):
        scores = torch.from_numpy(sampling.logits([], row)).double()
        token, logprob = sampling.pick([], row, rng)
        assert abs(logprob - torch.log_softmax(scores, -1)[token].item()) < tolerance


def test_greedy_logprob_is_the_models_own_and_a_single_survivor_is_certain():
    row = np.log([0.25, 0.25, 0.5])
    token, logprob = Sampling(temperature=0).pick([], row, None)
    assert (token, logprob) == (2, pytest.approx(math.log(0.5)))
    assert Sampling(top_p=0).pick([], row, np.random.default_rng()) == (2, 0.0)
    assert Sampling(top_k=1).pick([], np.zeros(3), np.random.default_rng()) == (0, 0.0)
    assert Sampling().pick([], np.array([-7.0]), np.random.default_rng()) == (0, 0.0)


# ---- what is refused ----------------------------------------------------------------------------

WRONG = {
    "temperature":        ("a number >= 0",           [-0.1, INF, math.nan, "1", None, 10**400]),
    "top_k":              ("an integer >= 1",         [0, -1, 2.0, True, math.nan, "3"]),
    "top_p":              ("a number from 0 to 1",    [-0.1, 1.5, INF, math.nan, False, "0.9"]),
    "min_p":              ("a number from 0 to 1",    [-0.1, 1.5, INF, math.nan, True, [0.5]]),
    "repetition_penalty": ("a number > 0",            [0, -1.0, INF, True, "2", None, 10**400]),
    "no_repeat_ngram":    ("an integer >= 1",         [0, -2, 1.5, True, "2"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words", "value"),
    [(name, words, value) for name, (words, values) in WRONG.items() for value in values],
)
def test_a_setting_out_of_range_is_refused(name, words, value):
    with pytest.raises(
        InputError, match=f"^{name} must be {words}, not {re.escape(shown(value))}$"
    ):
        Sampling(**{name: value})


@pytest.mark.parametrize(
    "chosen",
    [
        {"temperature": 0},
        {"temperature": np.float32(0.5)},
        {"top_k": np.int64(1)},
        {"top_p": 0},
        {"top_p": 1},
        {"min_p": 0},
        {"min_p": 1.0},
        {"repetition_penalty": 1e-3},
        {"no_repeat_ngram": np.int32(1)},
    ],
)
def test_the_ends_of_the_ranges_are_accepted(chosen):
    token, logprob = Sampling(**chosen).pick([], np.zeros(2, np.float32), np.random.default_rng())
    assert token in (0, 1)
    assert logprob <= 0


@pytest.mark.parametrize("processors", [None, 3, len, [len, "x"], (len for _ in range(1))])
def test_processors_must_be_functions(processors):
    with pytest.raises(InputError, match=r"^processors must be a list of functions"):
        Sampling(processors=processors)


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (None, r"NoneType of shape \(\) and dtype object"),
        (np.zeros((1, 3)), r"ndarray of shape \(1, 3\) and dtype float64"),
        ([0.0, 0.0], r"list of shape \(2,\) and dtype float64"),
        ([0.0, [0.0, 0.0], 0.0], r"list of shape \(\) and dtype object"),
        (["a", "b", "c"], r"list of shape \(3,\) and dtype [<>]U1"),
        (np.zeros(3, complex), r"ndarray of shape \(3,\) and dtype complex128"),
        (np.ones(3, bool), r"ndarray of shape \(3,\) and dtype bool"),  # a mask is no logits
    ],
)
@pytest.mark.parametrize("t", [0, 1])
def test_a_processor_must_return_logits(t, result, got):
    def broken(ids, logits):
        return result

    match = rf"^processor broken must return logits of shape \(3,\), not a {got}$"
    with pytest.raises(InputError, match=match):
        Sampling(temperature=t, processors=[broken]).pick([], np.zeros(3), np.random.default_rng())


@pytest.mark.parametrize("chosen", [{}, {"temperature": 0}, {"top_k": 1, "top_p": 0.5}])
def test_everything_masked_is_refused(chosen):
    match = "^all 3 tokens are masked, none is left to choose: relax no_repeat_ngram"
    with pytest.raises(InputError, match=match):
        Sampling(no_repeat_ngram=1, **chosen).pick([0, 1, 2], np.zeros(3), Fixed(0.5))
    mask = Sampling(processors=[lambda ids, logits: logits - INF], **chosen)
    with pytest.raises(InputError, match=match):
        mask.pick([], np.zeros(3), Fixed(0.5))


@pytest.mark.parametrize("chosen", [{}, {"temperature": 0}, {"top_k": 1, "min_p": 0.5}])
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_logits_that_are_no_numbers_are_refused(bad, chosen):
    with pytest.raises(InputError, match=f"^the logit of token 1 is {bad} at temperature [01]"):
        Sampling(**chosen).pick([], np.array([5.0, bad, 0.0]), Fixed(0.5))


def test_a_temperature_that_overflows_the_logits_is_refused():
    row = np.array([1.0, 2.0, -3.0], np.float32)
    for t in (1e-39, 1e-320):
        with pytest.raises(InputError, match=f"inf at temperature {t}: logits must"):
            Sampling(temperature=t).pick([], row, Fixed(0.5))
    assert Sampling(temperature=1e-37).pick([], row, Fixed(0.5)) == (1, 0.0)
