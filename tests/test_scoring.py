"""Scores and perplexities against Hugging Face's model and computations spelt out here."""

import codecs
import math
import pickle
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import random_model, random_params

import gpt2np
from gpt2np import InputError, Model, Tokenizer, TokenizerError, predictions, ragged
from gpt2np.config import Config
from gpt2np.scoring import perplexity, score
from gpt2np.vocabulary import END_OF_TEXT, Added, Vocabulary

GPT2 = Tokenizer.gpt2()
EOT = GPT2.eot
# A tokenizer of few tokens, for many examples.
SMALL = Tokenizer(
    Vocabulary(
        {char: i for i, char in enumerate([*"abcdefg\u0120", "\u0120a", "\u0120b"])},
        (),
        {END_OF_TEXT: Added(10)},
    )
)
TEXT = (
    "It was the best of times,  it was the worst of times.\nZo\u00eb\u00a0said: \u201cna\u00efve "
    "\U0001f600\u202f!\u201d \u4e2d\u6587\u3000ok\n\n  Antidisestablishmentarianism \t"
)


def made(dtype="float64", n_ctx=20, tokenizer=GPT2, seed=3, **sizes):
    return random_model(tokenizer, seed=seed, dtype=dtype, n_ctx=n_ctx, **sizes)


@pytest.fixture(scope="module")
def model():
    return made()


@pytest.fixture(scope="module")
def small():
    return made(n_ctx=12, tokenizer=SMALL)


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def context_of(j, window, stride):
    """Where the context of token j begins: of the windows that begin at 0, stride, 2 stride, ...
    the first that reaches to the token before it predicts it."""
    start = 0
    while j - start > window:
        start += stride
    assert j - start >= min(j, window - stride)
    return start


# Tokens


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-11)])
@pytest.mark.parametrize(
    ("bos", "window", "stride"),
    [
        (True, None, None),
        (False, None, None),
        (True, 12, 1),
        (True, 12, 12),
        (False, 9, 9),
        (True, 7, 3),
        (False, 2, 1),
    ],
)
def test_is_hugging_faces(dtype, tolerance, bos, window, stride):
    """One forward pass of theirs for every token, which reads nothing but the token's context."""
    huggingface = pytest.importorskip("huggingface")
    model = made(dtype, n_ctx=12, tokenizer=SMALL)
    theirs = huggingface.hf_model(model.params)
    text = "ab a bfa  g dec" * 3
    s = score(model, text, bos=bos, window=window, stride=stride)
    assert (s.ids, s.text) == (SMALL.encode(text), text)
    sequence = [10, *s.ids] if bos else s.ids
    if not bos:
        assert math.isnan(s.logprobs[0])
        assert math.isnan(s.entropy[0])
        assert s.rank[0] == 0
    for j in range(1, len(sequence)):
        start = context_of(j, window or 12, stride or 6)
        logprobs = log_softmax(huggingface.hf_logits(theirs, [sequence[start:j]])[0, -1])
        of_token, t = logprobs[sequence[j]], j - len(sequence)
        assert s.logprobs[t] == pytest.approx(of_token, abs=tolerance)
        assert s.surprisal[t] == pytest.approx(-math.log2(math.exp(of_token)), abs=2 * tolerance)
        assert s.rank[t] == 1 + sum(logprobs > of_token)
        assert s.entropy[t] == pytest.approx(
            -(np.exp(logprobs) * np.log2(np.exp(logprobs))).sum(), abs=tolerance
        )
    assert s.perplexity == pytest.approx(2 ** np.nanmean(s.surprisal))


def test_the_embedded_models_numbers_are_hugging_faces():
    huggingface = pytest.importorskip("huggingface")
    model = gpt2np.load()
    theirs = huggingface.hf_model(model.params)
    text = "First Citizen:\nBefore we proceed any further, hear me speak. " * 10
    ids = np.array([[EOT, *GPT2.encode(text)]])
    logprobs = log_softmax(huggingface.hf_logits(theirs, ids[:, :-1])[0])
    s = score(model, text)
    assert len(s.ids) > 100
    np.testing.assert_allclose(s.logprobs, logprobs[np.arange(len(s.ids)), ids[0, 1:]], atol=1e-3)
    np.testing.assert_allclose(
        s.entropy, -(np.exp(logprobs) * logprobs).sum(-1) / np.log(2), atol=1e-3
    )
    assert s.perplexity == pytest.approx(
        np.exp(-logprobs[np.arange(len(s.ids)), ids[0, 1:]].mean()), rel=1e-4
    )
    # It has learned something: a text of its kind is likelier than the same words in disorder.
    words = text.split()
    assert s.perplexity < score(model, " ".join(sorted(words))).perplexity < 50257


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_windows_and_strides(small, data):
    window = data.draw(st.integers(2, 12))
    stride = data.draw(st.integers(1, window))
    bos = data.draw(st.booleans())
    ids = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=40))
    sequence = [10, *ids] if bos else ids
    s = score(small, ids, bos=bos, window=window, stride=stride)
    for j, logprob in enumerate(s.logprobs, start=1 if bos else 0):
        if j == 0:
            assert np.isnan(logprob)
            continue
        start = context_of(j, window, stride)
        logits = gpt2np.forward(small.params, sequence[start:j], last_only=True)[0, 0]
        assert logprob == pytest.approx(log_softmax(logits)[sequence[j]], abs=1e-10)


def test_ties_share_a_rank(small):
    arrays = dict(small.params) | {"wte.weight": np.zeros_like(small.params.wte)}
    s = score(Model(gpt2np.Params(small.config, arrays), small.tokenizer), "abc")
    np.testing.assert_allclose(s.logprobs, -math.log(11))
    np.testing.assert_allclose(s.entropy, math.log2(11))
    np.testing.assert_array_equal(s.rank, [1, 1, 1])
    assert s.perplexity == pytest.approx(11)


def same(a, b, tolerance=1e-10):
    assert (a.ids, a.tokens, a.offsets, a.text) == (b.ids, b.tokens, b.offsets, b.text)
    np.testing.assert_allclose(a.logprobs, b.logprobs, atol=tolerance)
    np.testing.assert_allclose(a.entropy, b.entropy, atol=tolerance)
    np.testing.assert_array_equal(a.rank, b.rank)
    one, other = ([w._asdict() for w in score_.words()] for score_ in (a, b))
    for w, v in zip(one, other, strict=True):
        for name in ("surprisal", "entropy", "entropy_reduction"):
            np.testing.assert_allclose(w.pop(name), v.pop(name), atol=tolerance)
        assert w == v
    return True


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_each_text_of_a_batch_as_alone(small, data):
    texts = data.draw(st.lists(st.text("ab gde", max_size=40), min_size=1, max_size=8))
    bos = data.draw(st.booleans())
    window = data.draw(st.integers(2, 12))
    together = score(small, texts, bos=bos, window=window)
    assert isinstance(together, list)
    for text, one in zip(texts, together, strict=True):
        assert same(one, score(small, text, bos=bos, window=window))


def test_a_batch_of_many_texts(small):
    """More than are read at a time, and more rows of logits than are held at a time."""
    texts = [("ab " * n)[: 3 + n % 7] for n in range(1, 300)]
    for text, one in zip(texts, score(small, texts), strict=True):
        assert same(one, score(small, text))


def test_no_more_positions_are_read_at_a_time_than_that():
    lengths = [3, 900, 200, 200, 200, 200, 200, 1, 2000, 5, 5]
    groups = ragged.groups(lengths, predictions.POSITIONS)
    found = [[lengths[b] for b in group] for group in groups]
    assert found == [[2000], [900], [200] * 5, [5, 5, 3, 1]]


def test_long_windows_in_several_blocks_of_rows(small):
    model = made(n_ctx=400, tokenizer=small.tokenizer)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 10, 900).tolist()
    s = score(model, ids)
    for j in (1, 127, 128, 129, 399, 400, 401, 599, 600, 601, 900):
        start = context_of(j, 400, 200)
        logits = gpt2np.forward(model.params, [10, *ids][start:j], last_only=True)[0, 0]
        assert s.logprobs[j - 1] == pytest.approx(log_softmax(logits)[ids[j - 1]], abs=1e-9)


def test_ids_as_input(small):
    text = "ab a bg"
    ids = small.tokenizer.encode(text)
    wanted = score(small, text)
    for given_ids in (ids, tuple(ids), np.array(ids), np.array(ids, np.int32)):
        assert same(score(small, given_ids), wanted)
    for many in ([ids, ids], (text, ids), np.array([ids, ids]), [np.array(ids), text]):
        scores = score(small, many)
        assert len(scores) == 2
        assert same(scores[0], wanted)
        assert same(scores[1], wanted)


def test_the_empty_text(small):
    for bos in (True, False):
        for s in (score(small, "", bos=bos), score(small, ["a", ""], bos=bos)[1]):
            assert (s.ids, s.tokens, s.offsets, s.text, s.words()) == ([], [], [], "", [])
            assert s.logprobs.shape == s.rank.shape == s.entropy.shape == s.surprisal.shape == (0,)
            assert math.isnan(s.perplexity)


def test_without_a_tokenizer(small):
    model = Model(small.params)
    s = score(model, [1, 2, 3], bos=False)
    np.testing.assert_allclose(s.logprobs, score(small, [1, 2, 3], bos=False).logprobs)
    assert (s.tokens, s.offsets, s.text) == ([], [], "")
    with pytest.raises(InputError, match="no tokenizer"):
        s.words()
    assert perplexity(model, [1, 2, 3]) == perplexity(small, [1, 2, 3])
    assert math.isnan(perplexity(model, [1, 2, 3]).per_word)


def test_a_vocabulary_that_is_padded():
    """Tokens that the tokenizer does not have take part in the softmax, and in no word."""
    model = made()
    rows = np.zeros((50304 - 50257, 16))
    padded = Model(
        gpt2np.Params(
            Config(**{**vars(model.config), "vocab_size": 50304}),
            dict(model.params) | {"wte.weight": np.vstack([model.params.wte, rows])},
        ),
        GPT2,
    )
    a, b = score(model, "to be or not"), score(padded, "to be or not")
    assert np.all(b.logprobs < a.logprobs)
    boundary = [word.surprisal for word in b.words()]
    plain = [word.surprisal for word in b.words(boundary=None)]
    p = np.exp(log_softmax(gpt2np.forward(padded.params, [EOT, *b.ids])[0, 1:3]))
    spaced = [*np.flatnonzero(spaces()), EOT]
    assert boundary[1] - plain[1] == pytest.approx(
        np.log2(p[0, spaced].sum()) - np.log2(p[1, spaced].sum()), abs=1e-9
    )


# Offsets


@pytest.mark.parametrize(
    "text", [TEXT, "\U0001f600", "\u4e2d", "e\u0301", "a\u202fb", "\ufffd", " "]
)
def test_offsets_are_hugging_faces(model, text):
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            dict(GPT2._vocabulary.ids), [tuple(merge.split()) for merge in GPT2._vocabulary.merges]
        )
    )
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    encoding = theirs.encode(text)
    s = score(model, text)
    assert s.ids == encoding.ids
    assert s.offsets == encoding.offsets


@pytest.fixture(scope="module")
def normalizing():
    """By form, a model whose tokenizer brings texts to this form first."""
    return {
        form: made(tokenizer=Tokenizer(GPT2._vocabulary._replace(normalizers=(form,))), n_ctx=40)
        for form in ("NFC", "NFD", "Lowercase")
    }


@pytest.mark.parametrize("form", ["NFC", "NFD", "Lowercase"])
@pytest.mark.parametrize("text", [TEXT, "xe\u0301y e\u0301", "Caf\u00e9 \u0130s", "\ud83d e\u0301"])
@pytest.mark.parametrize("options", [{}, {"bos": False}, {"eos": True}])
def test_offsets_are_those_of_the_text_as_given(normalizing, form, text, options):
    model = normalizing[form]
    given = text.replace("\ud83d", "\ufffd")
    s = score(model, text, **options)
    spelt = "<|endoftext|>" * options.get("eos", False)
    assert s.text == given + spelt
    ended = [(len(given), len(s.text))] * bool(spelt)
    assert s.offsets == [*model.tokenizer.spans(given), *ended]
    assert [word.text for word in s.words()] == given.split()
    assert [(w.text, w.start) for w in s.words(given.split())] == [
        (w.text, w.start) for w in s.words()
    ]
    # The numbers are those of the text that the tokenizer makes of it.
    ids = model.tokenizer.encode(text)
    np.testing.assert_array_equal(s.logprobs, score(model, ids, **options).logprobs)


@pytest.mark.parametrize(
    ("form", "prefix", "text", "spelt", "offsets", "merged"),
    [
        ("NFC", "e\u0301 ", "e\u0301", " e\u0301", [(0, 3)], False),
        ("Lowercase", "THE CA", "T SAT", " CAT SAT", [(0, 4), (4, 8)], True),
        ("Lowercase", "THE", " CAT", " CAT", [(0, 4)], False),
        ("Lowercase", "THE", "", "", [], False),
        ("Lowercase", [1169], " CAT", " CAT", [(0, 4)], False),
        ("Lowercase", "THE", [3797], " cat", [(0, 4)], False),
        ("NFC", "e\u0301 The ca", "t sat", " cat sat", [(0, 4), (4, 8)], True),
    ],
)
def test_offsets_after_a_prefix_are_those_of_the_text_as_given(
    normalizing, form, prefix, text, spelt, offsets, merged
):
    s = score(normalizing[form], text, prefix=prefix)
    assert (s.text, s.offsets, s.merged) == (spelt, offsets, merged)
    assert [word.text for word in s.words()] == spelt.split()


def character_spans(data):
    """The bytes that each character of data.decode("utf-8", "replace") was made of."""
    wrong = []

    def note(error):
        wrong.append((error.start, error.end))
        return "\ufffd", error.end

    codecs.register_error("note", note)
    text = data.decode("utf-8", "note")
    spans, at, wrong = [], 0, dict(wrong)
    for char in text:
        end = wrong[at] if at in wrong else at + len(char.encode())
        spans.append((at, end))
        at = end
    return text, spans


@settings(max_examples=500, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=4), max_size=12))
@example([b"\xe2", b"a"])
@example([b"\xed", b"\xa0"])  # half a surrogate pair: an incremental decoder would wait for more
@example([b"\xf0\x9f", b"\x98", b"\x80", b"\xf0\x9f", b"\xf0"])
def test_offsets_of_any_bytes(pieces):
    text, spans = character_spans(b"".join(pieces))
    assert text == b"".join(pieces).decode("utf-8", "replace")
    at = 0
    wanted = []
    for piece in pieces:
        held = [i for i, (start, end) in enumerate(spans) if start < at + len(piece) and end > at]
        wanted.append((held[0], held[-1] + 1))
        at += len(piece)
    assert gpt2np.scoring._offsets(pieces) == wanted


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=15))
@example(text="\ud83d \ude00\ud83d")
@example(text="\ud83d\ude00!")
def test_any_text_can_be_scored(model, text):
    s = score(model, text)
    assert s.ids == GPT2.encode(text)
    assert s.text == GPT2.decode(s.ids)
    assert [w.text for w in s.words()] == s.text.split()
    assert all(s.text[w.start : w.end] == w.text for w in s.words())
    assert all(
        token in (s.text[a:b], *"\ufffd") or "\ufffd" in token
        for token, (a, b) in zip(s.tokens, s.offsets, strict=True)
    )
    assert np.all(np.isfinite(s.logprobs))
    assert np.all(s.entropy >= 0)


# Words


@lru_cache
def spaces():
    """Which tokens of GPT-2 begin with whitespace, from its bytes as tiktoken has them."""
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {token: i for i, token in enumerate(map(GPT2.token_bytes, range(50256)))}
    encoding = tiktoken.Encoding(
        "gpt2", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={}
    )
    first = [token.decode("utf-8", "replace")[:1] for token in encoding.token_byte_values()]
    found = np.zeros(50257, bool)
    found[
        [
            ranks[token]
            for token, char in zip(encoding.token_byte_values(), first, strict=True)
            if char.isspace()
        ]
    ] = True
    return found


def test_which_tokens_begin_with_whitespace():
    classes = gpt2np.words.token_classes(GPT2, (50256,), 50257)[:, :2]
    wanted = spaces().copy()
    wanted[EOT] = True
    np.testing.assert_array_equal(classes[:, 0], wanted)
    wanted[:EOT] = ~wanted[:EOT]
    np.testing.assert_array_equal(classes[:, 1], wanted)


@pytest.mark.parametrize(
    ("token", "spaced"),
    [
        (b" a", True),
        (b"\xc2\xa0", True),  # a no-break space
        (b" \xe2", True),  # a space and a part of a character
        (b"\xe2\x80", False),  # may become one of many characters
        (b"\xa0 a", False),  # the rest of one character, and then a space
        (b"a ", False),
        (b"", False),
    ],
)
def test_a_token_begins_with_whitespace_or_does_not(token, spaced):
    assert gpt2np.words.opens(token, "whitespace") is spaced


@pytest.mark.parametrize(
    "text",
    [
        "It was",
        "It was the best of times, it was naïve.",
        " It begins with a space",
        "one",
        "double  space and a\n\nnew paragraph\tand a tab",
        "no\u00a0break and Zo\u00eb",
        "trailing whitespace  \n",
        "  ",
    ],
)
def test_words_are_what_the_papers_sum_up(model, text):
    """Pimentel and Meister's rule, spelt out over the tokens."""
    s = score(model, text)
    logits = gpt2np.forward(model.params, [EOT, *s.ids])[0]
    p = np.exp(log_softmax(logits))
    spaced = spaces()
    ends = np.log2(p[:, spaced].sum(-1) + p[:, EOT])
    begins = np.log2(p[:, ~spaced].sum(-1))  # <|endoftext|> is among them
    plain, corrected = [], []
    in_word = False  # has the word of these tokens begun, beyond its whitespace?
    for j, token in enumerate(s.ids):
        if j == 0 or (spaced[token] and in_word):
            if j:
                corrected[-1] -= ends[j]
            plain.append(0.0)
            corrected.append(ends[j] if spaced[token] else begins[j])
            in_word = False
        surprisal = -np.log2(p[j, token])
        plain[-1] += surprisal
        corrected[-1] += surprisal
        in_word |= not GPT2.decode([token]).isspace()
    if in_word:
        corrected[-1] -= ends[len(s.ids)]
    else:
        plain.pop(), corrected.pop()
    assert [word.text for word in s.words()] == text.split()
    np.testing.assert_allclose([w.surprisal for w in s.words()], corrected, atol=1e-9)
    np.testing.assert_allclose([w.surprisal for w in s.words(boundary=None)], plain, atol=1e-9)


def test_corrections_cancel_out(model):
    """All words together: the tokens and the end, given how the text begins."""
    s = score(model, "Double  space and\n\nnew, Zo\u00eb!")
    p = np.exp(log_softmax(gpt2np.forward(model.params, [EOT, *s.ids])[0]))
    spaced = spaces()
    begins, end = np.log2(p[0, ~spaced].sum()), np.log2(p[-1, spaced].sum() + p[-1, EOT])
    wanted = s.surprisal.sum() + begins - end
    assert sum(word.surprisal for word in s.words()) == pytest.approx(wanted, abs=1e-9)


def test_whitespace_cut_into_tokens_moves_nothing(model):
    """U+202F is two tokens of GPT-2, so that no sum of tokens is the probability of a boundary."""
    s = score(model, "one\u202ftwo")
    assert [token for token in s.tokens if "\ufffd" in token] == ["\ufffd", "\ufffd"]
    corrected, plain = s.words(), s.words(boundary=None)
    p = np.exp(log_softmax(gpt2np.forward(model.params, [EOT, *s.ids])[0]))
    spaced = spaces()
    begins, end = np.log2(p[0, ~spaced].sum()), np.log2(p[-1, spaced].sum() + p[-1, EOT])
    assert corrected[0].surprisal == pytest.approx(plain[0].surprisal + begins, abs=1e-9)
    assert corrected[1].surprisal == pytest.approx(plain[1].surprisal - end, abs=1e-9)


def test_a_token_over_two_words_counts_for_the_first():
    vocabulary = Vocabulary({"a": 0, "b": 1, "a\u0120b": 2}, (), {END_OF_TEXT: Added(3)})
    s = score(made(tokenizer=Tokenizer(vocabulary)), [2, 1])
    assert (s.text, s.offsets) == ("a bb", [(0, 3), (3, 4)])
    words = [(word.text, word.surprisal) for word in s.words(boundary=None)]
    assert words == [("a", pytest.approx(s.surprisal[0])), ("bb", pytest.approx(s.surprisal[1]))]


def test_without_bos_the_first_word_has_no_surprisal(model):
    s = score(model, "It was the best", bos=False)
    for words in (s.words(), s.words(boundary=None)):
        assert [math.isnan(word.surprisal) for word in words] == [True, False, False, False]


TOY = {"a": 0, "b": 1, "\u0120": 2, "\u0120a": 3}  # and <|endoftext|>, 4
SPACED = (2, 3)
LONGEST = 7


@pytest.fixture(scope="module")
def toy():
    return made(
        n_ctx=16,
        n_embd=8,
        seed=5,
        tokenizer=Tokenizer(Vocabulary(TOY, (), {END_OF_TEXT: Added(4)})),
    )


@pytest.mark.parametrize(
    ("context", "spaced"),
    [
        ((), False),
        ((), True),
        ((0,), True),
        ((1, 3, 1, 3), True),
    ],
)
def test_probabilities_of_words_sum_to_one(toy, context, spaced):
    """Enumerate every token sequence that may be the next word, up to some length.

    A word is whitespace tokens, if it begins with whitespace, and then tokens up to the next that
    begins with whitespace, or the end of the text. What is left are words that are longer.
    """

    def after(*ids):
        logits = gpt2np.forward(toy.params, [4, *context, *ids], last_only=True)
        return np.exp(log_softmax(logits[0, 0]))

    p = after()
    first = SPACED if spaced else (0, 1)
    given_ = p[list(first)].sum() + p[4]
    text_ends = p[4] / given_
    longer = 0.0
    words = []
    begun = [((token,), p[token] / given_, token != 2) for token in first]  # ids, p, is a word?
    while begun:
        ids, mass, is_word = begun.pop()
        q = after(*ids)
        if is_word:
            words.append(ids)
            on = (0, 1)
        else:
            text_ends += mass * q[4]
            on = (0, 1, 2, 3)
        for token in on:
            if len(ids) < LONGEST:
                begun.append(((*ids, token), mass * q[token], is_word or token != 2))
            else:
                longer += mass * q[token]
    scores = score(toy, [[*context, *ids] for ids in words])
    total = sum(2.0 ** -s.words()[-1].surprisal for s in scores)
    assert longer < 0.1
    assert total + text_ends + longer == pytest.approx(1, abs=1e-12)
    # Plain sums count every beginning of a word as a word as well, and miss that one is to come.
    plain = sum(2.0 ** -s.words(boundary=None)[-1].surprisal for s in scores)
    assert abs(plain + text_ends + longer - 1) > 1e-3


# Perplexity


def recipe(torch, model, input_ids, max_length, stride):
    """The loop of "Perplexity of fixed-length models" in the documentation of transformers."""
    seq_len = input_ids.size(1)
    nll_sum, n_tokens, prev_end_loc = 0.0, 0, 0
    for begin_loc in range(0, seq_len, stride):
        end_loc = min(begin_loc + max_length, seq_len)
        trg_len = end_loc - prev_end_loc
        target_ids = input_ids[:, begin_loc:end_loc].clone()
        target_ids[:, :-trg_len] = -100
        with torch.no_grad():
            loss = model(input_ids[:, begin_loc:end_loc], labels=target_ids).loss
        num_loss_tokens = (target_ids != -100).sum().item() - target_ids.size(0)
        nll_sum += loss * num_loss_tokens
        n_tokens += num_loss_tokens
        prev_end_loc = end_loc
        if end_loc == seq_len:
            break
    return torch.exp(nll_sum / n_tokens).item()


@pytest.fixture(scope="module")
def pair(small):
    huggingface = pytest.importorskip("huggingface")
    return small, huggingface.hf_model(small.params), huggingface.torch


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_perplexity_is_the_recipes(pair, data):
    ours, theirs, torch = pair
    window = data.draw(st.integers(2, 12))
    stride = data.draw(st.integers(1, window))
    ids = data.draw(st.lists(st.integers(0, 9), min_size=2, max_size=50))
    # Where a window by itself has one token, the recipe takes the mean of nothing: NaN.
    alone = stride == window and len(ids) % window == 1
    wanted = recipe(torch, theirs, torch.tensor([ids]), window, stride)
    assert math.isnan(wanted) == alone
    if alone:
        wanted = recipe(torch, theirs, torch.tensor([ids[:-1]]), window, stride)
    p = perplexity(ours, ids, window=window, stride=stride, recipe="hf")
    assert p == pytest.approx(wanted, rel=2e-6)  # their loss is in float32
    assert (p.window, p.stride) == (window, stride)
    disjoint = len(range(0, len(ids), window)) if stride == window else 1
    assert p.n_tokens == len(ids) - disjoint


@pytest.mark.parametrize(("window", "stride"), [(None, None), (128, 128), (128, 50)])
def test_perplexity_of_the_embedded_model_is_the_recipes(window, stride):
    huggingface = pytest.importorskip("huggingface")
    model = gpt2np.load()
    n_ctx = model.config.n_ctx
    theirs = huggingface.hf_model(model.params)
    text = "Now is the winter of our discontent\nMade glorious summer by this sun of York;\n" * 30
    ids = huggingface.torch.tensor([GPT2.encode(text)])
    p = perplexity(model, text, window=window, stride=stride, recipe="hf")
    wanted = recipe(huggingface.torch, theirs, ids, window or n_ctx, stride or n_ctx // 2)
    assert p == pytest.approx(wanted, rel=1e-4)
    assert p.n_words == len(text.split())


def test_perplexity_of_words(small):
    text = "ab a  bgg\n"  # of which the tokenizer has no line break
    p = perplexity(small, text)
    s = score(small, text, bos=False)
    nll = -np.nansum(s.logprobs)
    assert p.n_words == 3
    assert p.n_tokens == len(s.ids) - 1
    assert p.per_word == pytest.approx(math.exp(nll / 3))
    assert p == pytest.approx(math.exp(nll / p.n_tokens))
    assert p == pytest.approx(s.perplexity)
    assert math.isnan(perplexity(small, "   ").per_word)


def test_perplexity_is_a_float_that_pickles(small):
    p = perplexity(small, "abc", window=4)
    copy = pickle.loads(pickle.dumps(p))
    assert isinstance(p, float)
    assert (copy, vars(copy)) == (p, vars(p))
    assert vars(p).keys() == gpt2np.scoring.Perplexity.__annotations__.keys()


def test_what_is_too_large_for_a_float_is_infinite(small):
    arrays = dict(small.params) | {"ln_f.bias": small.params.ln_f.bias + 1e4}
    model = Model(gpt2np.Params(small.config, arrays), small.tokenizer)
    least = int(np.argmin(gpt2np.forward(model.params, [10])[0, 0]))
    assert score(model, [least] * 9).perplexity == math.inf
    assert perplexity(model, [least] * 9) == math.inf


# What cannot be scored


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ([], "the list is empty"),
        (np.zeros((0, 3), int), "the list is empty"),
        (None, "not NoneType"),
        (3, "not int"),
        (b"bytes", "not bytes"),
        (["a", None], "not NoneType"),
        ([[1, 2], 3], "not int"),
        ([[[1], [2]], "a"], "number 1 of the list: one row of ids is wanted, not a list of 2"),
        ([1, 99], "token id 99 is not in 0 ... 10"),
        ([-1], "token id -1 is not in 0 ... 10"),
        ([0, 0.5], "float64"),
        ([0.5], "not float: 0.5"),
        (np.array(5), r"not the single value array\(5\)"),
        (np.array("a"), "not the single value"),
        ({"a": 1}, "not dict"),
        ({"a", "b"}, "not set"),
    ],
)
def test_what_cannot_be_scored(small, given_, message):
    with pytest.raises(InputError, match=message) as caught:
        score(small, given_)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("function", [score, perplexity])
@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"window": 13}, "window must be an integer from 2 to 12, not 13"),
        ({"window": 1}, "window must be .*not 1$"),
        ({"window": 2.0}, "window must be .*not 2.0$"),
        ({"window": True}, "window must be .*not True$"),
        ({"stride": 0}, "stride must be an integer from 1 to 12, not 0"),
        ({"window": 4, "stride": 5}, "stride must be an integer from 1 to 4, not 5"),
        ({"stride": True}, "stride must be .*not True$"),
    ],
)
def test_windows_that_do_not_fit(small, function, settings_, message):
    with pytest.raises(InputError, match=message):
        function(small, "abc", **settings_)


@pytest.mark.parametrize("function", [score, perplexity])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_model_that_gives_no_numbers(small, function, bad):
    bias = small.params.ln_f.bias.copy()
    bias[3] = bad
    model = Model(gpt2np.Params(small.config, dict(small.params) | {"ln_f.bias": bias}), SMALL)
    with pytest.raises(InputError, match="the model's logits are not numbers"):
        function(model, "abc")


def test_without_an_end_of_text(small):
    tokenizer = Tokenizer(Vocabulary({"a": 0, "b": 1, "\u0120": 2}, (), {}))
    model = Model(small.params, tokenizer)
    with pytest.raises(InputError, match="give bos=False"):
        score(model, "ab")
    assert score(model, "ab", bos=False).tokens == ["a", "b"]
    with pytest.raises(TokenizerError, match="no tokenizer"):
        score(Model(small.params), "ab")
    with pytest.raises(InputError, match="give bos=False"):
        score(Model(small.params), [1, 2])
    beyond = Tokenizer(Vocabulary(TOY, (), {END_OF_TEXT: Added(4)}))
    cut = Model(random_params(Config(vocab_size=4, n_ctx=4, n_embd=4, n_head=1, n_layer=1)), beyond)
    with pytest.raises(InputError, match="give bos=False"):
        score(cut, "ab")
    assert len(score(cut, "ab", bos=False).words()) == 1


@pytest.mark.parametrize("text", ["", "a"])
def test_a_perplexity_needs_two_tokens(small, text):
    with pytest.raises(InputError, match="2 tokens or more"):
        perplexity(small, text)
