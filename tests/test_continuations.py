"""Words of an experiment, continuations of a prefix, and what else a Score can tell."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_model

import gpt2np
from gpt2np import InputError, Tokenizer, predictions, score

GPT2 = Tokenizer.gpt2()
EOT = GPT2.eot


@pytest.fixture(scope="module")
def model():
    return random_model(GPT2, seed=3, dtype=np.float64, n_ctx=24)


def log_p(model, ids):
    """log p of each id but the first, after those before it."""
    logits = gpt2np.forward(model.params, ids[:-1])[0]
    logits = logits - logits.max(-1, keepdims=True)
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[
        np.arange(len(ids) - 1), ids[1:]
    ]


# Continuations


@pytest.mark.parametrize(
    ("prefix", "text", "tokens", "merged"),
    [
        ("The cat", " sat down", [" sat", " down"], False),
        ("The cat ", "sat down", [" sat", " down"], False),
        ("The cat\n", "sat", ["\n", "sat"], False),
        ("The ca", "t sat", [" cat", " sat"], True),
        ("", "The cat", ["The", " cat"], False),
        ("  ", "cat", [" ", " cat"], False),
        ("The cat", "", [], False),
        ("caf", "\u00e9", ["\u00e9"], False),
    ],
)
@pytest.mark.parametrize("bos", [True, False])
def test_a_continuation_is_what_follows_the_prefix(model, prefix, text, tokens, merged, bos):
    s = score(model, text, prefix=prefix, bos=bos)
    assert (s.tokens, s.merged) == (tokens, merged)
    whole = [EOT] * bos + GPT2.encode(prefix + text)
    expected = log_p(model, whole)[len(whole) - 1 - len(tokens) :] if tokens else np.zeros(0)
    known = s.logprobs[~np.isnan(s.logprobs)]
    np.testing.assert_allclose(known, expected[len(expected) - len(known) :], atol=1e-9)
    assert len(known) == len(tokens) - (not bos and len(tokens) == len(whole) > 0)
    assert s.total == pytest.approx(known.sum())


@settings(max_examples=30, deadline=None)
@given(
    prefix=st.text("ab \n\u00e9", max_size=8),
    texts=st.lists(st.text("ab \n\u00e9", max_size=12), min_size=1, max_size=5),
    bos=st.booleans(),
    top=st.sampled_from([None, 3]),
)
def test_choices_are_what_each_is_alone(model, prefix, texts, bos, top):
    together = score(model, texts, prefix=prefix, bos=bos, top=top)
    pairs = score(model, texts, prefix=[prefix] * len(texts), bos=bos, top=top)
    for text, *those in zip(texts, together, pairs, strict=True):
        alone = score(model, text, prefix=prefix, bos=bos, top=top)
        for one in those:
            assert one.ids == alone.ids
            np.testing.assert_allclose(one.logprobs, alone.logprobs, atol=1e-9)
            np.testing.assert_allclose(one.entropy, alone.entropy, atol=1e-9)
            np.testing.assert_allclose(one.next_entropy, alone.next_entropy, atol=1e-9)
            np.testing.assert_array_equal(one.rank, alone.rank)


def test_a_prefix_is_read_once_for_all_its_choices(model, monkeypatch):
    from generating import reads

    shapes = reads(monkeypatch)
    score(model, [" a", " b c", " d"], prefix="one two three four")
    assert shapes == [(1, 5), (3, 2)]


def test_the_head_is_read_once_for_all_choices(model, monkeypatch):
    def unembed(params, x):
        rows.append(x.shape[:2])
        return gpt2np.model.unembed(params, x)

    rows = []
    monkeypatch.setattr(predictions, "unembed", unembed)
    score(model, [" a", " b c", " d"], prefix="one two three four")
    assert rows == [(1, 2 + 3 + 2)]  # after each token, and after the prefix


@pytest.mark.parametrize("n", [3, 20, 23, 24, 25, 40])
@pytest.mark.parametrize("rest", [1, 4, 30])
def test_a_long_prefix_leaves_as_much_as_the_window_holds(model, n, rest):
    rng = np.random.default_rng(n)
    ids = rng.integers(0, 50257, n + rest).tolist()
    s = score(model, ids[n:], prefix=ids[:n], bos=False, window=24, stride=6)
    for j in range(rest):
        least = 24 if rest <= 24 else 24 - 6
        begins = [max(0, n + j - k) for k in range(least, 25)]
        if rest <= 24:  # one window for all, as lm-eval's
            begins = [max(0, n + rest - 1 - 24)]
        found = [log_p(model, ids[begin : n + j + 1])[-1] for begin in begins if begin < n + j]
        assert min(abs(s.logprobs[j] - x) for x in found) < 1e-9
    last = gpt2np.forward(model.params, ids[-24:])[0, -1]
    p = np.exp(last - last.max())
    p /= p.sum()
    if n + rest >= 24 and rest <= 24:
        assert s.next_entropy == pytest.approx(-(p * np.log2(p)).sum())


def test_the_end_of_a_text_may_be_scored(model):
    s = score(model, " sat", prefix="The cat", eos=True)
    assert s.ids == [*GPT2.encode(" sat"), EOT]
    assert s.logprobs == pytest.approx(log_p(model, [EOT, *GPT2.encode("The cat sat"), EOT])[-2:])
    assert s.n_bytes == 4
    assert [word.text for word in s.words()] == ["sat"]


@pytest.mark.parametrize(
    ("texts", "prefix", "n"),
    [
        (["a", "b"], "x", 2),
        ("a", ["x", "y", "z"], 3),
        (["a", "b"], ["x", "y"], 2),
        ([[1, 2], [3]], [4], 2),
        ([1, 2], [[4], [5, 6]], 2),
    ],
)
def test_lists_of_either(model, texts, prefix, n):
    assert len(score(model, texts, prefix=prefix)) == n


def test_lists_that_do_not_go_together(model):
    with pytest.raises(InputError, match="3 prefixes do not go with 2 texts"):
        score(model, ["a", "b"], prefix=["x", "y", "z"])
    with pytest.raises(InputError, match="number 2 of the list"):
        score(model, ["a", None], prefix="x")


# Numbers of a text


def test_sums(model):
    s = score(model, "na\u00efve cat")
    assert s.total == pytest.approx(s.logprobs.sum())
    assert s.mean == pytest.approx(s.logprobs.mean())
    assert (s.n_bytes, s.n_words) == (10, 2)
    assert s.bits_per_byte == pytest.approx(s.surprisal.sum() / 10)
    assert s.perplexity == pytest.approx(math.exp(-s.mean))
    without = score(model, "na\u00efve cat", bos=False)
    assert without.n_bytes == 10 - len(s.tokens[0].encode())


def test_greedy_is_whether_each_token_is_the_likeliest(model):
    one = gpt2np.generate(model, "The", temperature=0, max_new_tokens=5, stop_at_eot=False)
    s = score(model, one.ids, prefix=one.prompt_ids, bos=False)
    assert s.greedy
    assert s.total == pytest.approx(sum(one.logprobs))
    assert not score(model, [one.ids[0], (one.ids[1] + 1) % 50257], prefix="The", bos=False).greedy


def test_the_likeliest_alternatives(model):
    ids = GPT2.encode("The cat sat")
    s = score(model, ids, top=4)
    logits = gpt2np.forward(model.params, [EOT, *ids])[0]
    best, logprobs = s.top
    np.testing.assert_array_equal(best, np.argsort(-logits[:-1], kind="stable")[:, :4])
    assert best.shape == logprobs.shape == (3, 4)
    s1 = score(model, [int(best[0, 0])], top=1)
    assert s1.logprobs[0] == pytest.approx(s1.top[1][0, 0]) == pytest.approx(logprobs[0, 0])
    assert score(model, "a").top is None
    first = score(model, ids, top=2, bos=False).top
    assert first[0][0].tolist() == [-1, -1]
    assert np.isnan(first[1][0]).all()
    for wrong in (0, 50258, 1.5, True):
        with pytest.raises(InputError, match="top must be an integer from 1 to 50257"):
            score(model, "a", top=wrong)


def test_columns_and_rows_are_plain_python(model):
    s = score(model, "The cat", bos=False)
    columns, rows = s.to_columns(), s.to_rows()
    assert json.loads(json.dumps(columns)) == columns
    assert [list(row) for row in rows] == [list(columns)] * 2
    assert columns["surprisal"] == [None, pytest.approx(s.surprisal[1])]
    assert columns["rank"][0] is None
    assert all(type(x) is int for x in columns["token_id"] + columns["start"])
    pandas = pytest.importorskip("pandas")
    for table in (pandas.DataFrame(columns), pandas.DataFrame(rows)):
        assert table.token.tolist() == ["The", " cat"]
        assert table.surprisal.isna().tolist() == [True, False]
    assert pandas.DataFrame(s.words()).text.tolist() == ["The", "cat"]
    assert score(model, "").to_columns()["token"] == []


def test_progress(model, capsys):
    score(model, ["a b", "c"], progress=True)
    assert "5.00/5.00" in capsys.readouterr().err
    score(model, ["a b", "c"])
    assert capsys.readouterr().err == ""


# Words of an experiment


def test_words_that_tokens_do_not_respect(model):
    text = "I didn't go, he said."
    s = score(model, text)
    words = s.words(["I", "did", "n't", "go", ",", "he", "said."], boundary=None)
    assert [word.text for word in words] == ["I", "did", "n't", "go", ",", "he", "said."]
    assert [word.shared for word in words] == [False, True, True, False, False, False, False]
    assert sum(word.surprisal for word in words) == pytest.approx(s.surprisal.sum())
    did, nt = words[1:3]
    assert s.tokens[did.first : did.stop] == [" didn"]
    assert s.tokens[nt.first : nt.stop] == ["'t"]
    assert did.entropy == s.entropy[did.first]
    assert did.entropy_reduction == pytest.approx(s.entropy[did.first] - s.entropy[did.stop])
    last = words[-1]
    assert last.entropy_reduction == pytest.approx(s.entropy[last.first] - s.next_entropy)


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.text("ab\u4e2d\u6587'.", min_size=1, max_size=6), min_size=1, max_size=6),
    spaces=st.lists(st.sampled_from(["", " ", "  ", "\n"]), min_size=6, max_size=6),
    boundary=st.sampled_from(["whitespace", "space", None]),
)
def test_the_sum_over_all_words_is_that_of_the_text(model, pieces, spaces, boundary):
    text = "".join(space + piece for space, piece in zip(spaces, pieces, strict=False))
    s = score(model, text)
    given_, split = s.words(pieces, boundary=boundary), s.words(boundary=boundary)
    total = sum(word.surprisal for word in split)
    assert sum(word.surprisal for word in given_) == pytest.approx(total)
    if boundary is None:
        assert total == pytest.approx(s.surprisal.sum())
    regions = [(word.start, word.end) for word in given_]
    assert s.words(regions=regions, boundary=boundary) == given_
    assert [text[start:end] for start, end in regions] == pieces


def test_regions_may_leave_text_out(model):
    s = score(model, "The cat sat on the mat")
    cat, mat = s.words(regions=[(4, 7), (15, 22)], boundary=None)
    assert (cat.text, mat.text) == ("cat", "the mat")
    assert cat.surprisal == pytest.approx(s.surprisal[1])
    assert mat.surprisal == pytest.approx(s.surprisal[4:].sum())
    assert not cat.shared
    (part,) = s.words(regions=[(5, 7)])
    assert (part.surprisal, part.shared) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"words": ["The", "dog"]}, r"word 2, 'dog', does not come next in the text: after 'The ' "
                                    r"it has 'cat sat'"),
        ({"words": ["The", "cat"]}, "the text goes on after the last of the words: 'sat'"),
        ({"words": ["The", "sat", "cat"]}, "word 2, 'sat', does not come next"),
        ({"words": ["The", ""]}, "word 2 must be a text that is not empty, not ''"),
        ({"words": [3]}, "word 1 must be a text"),
        ({"regions": [(0, 3), (2, 5)]}, r"region \(2, 5\) is out of place"),
        ({"regions": [(0, 99)]}, "lie in the 11 characters"),
        ({"regions": [3]}, r"a region must be \(start, end\), not 3"),
        ({"words": ["a"], "regions": [(0, 1)]}, "give words or regions, not both"),
        ({"boundary": "spaces"}, "boundary must be 'whitespace', 'space' or None, not 'spaces'"),
    ],
)  # fmt: skip
def test_words_that_are_not_the_texts(model, arguments, message):
    with pytest.raises(InputError, match=message) as caught:
        score(model, "The cat sat").words(**arguments)
    assert "\n" not in str(caught.value)


def test_an_id_that_ends_the_text_ends_the_word_before_it(model):
    ids = GPT2.encode("The cat sat.")
    s = score(model, [*ids, EOT, *ids])
    alone = score(model, ids).words()
    words = s.words()
    assert [word.text for word in words] == ["The", "cat", "sat."] * 2
    assert words[2].surprisal == pytest.approx(alone[2].surprisal)
    assert s.n_words == 6
    # What follows the end begins a text.
    assert words[3].surprisal == pytest.approx(
        score(model, [EOT, *ids], prefix=ids).words()[0].surprisal
    )
    assert s.words(["The cat", "sat.", "The", "cat sat."])[1].surprisal == words[2].surprisal


def test_where_the_boundaries_differ():
    """The embedded model ends lines often: there a line break ends a word too."""
    s = score(gpt2np.load(), "The horse raced past the barn fell.")
    by = {name: s.words(boundary=name)[-1].surprisal for name in ("whitespace", "space")}
    assert by == {
        "whitespace": pytest.approx(19.80, abs=0.01),
        "space": pytest.approx(22.55, abs=0.01),
    }
