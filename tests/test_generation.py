"""generate() and stream(): against Hugging Face's generate, against each other, against themselves
alone, and every argument that is refused."""

import codecs
import re
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from closeness import chi_square_p
from generating import dictate, few, reads, same
from hypothesis import given
from hypothesis import strategies as st
from models import LETTERS, SMALL, bare, letters, random_model
from shared import SHARED, needs_shared

import gpt2np
from gpt2np import (
    Config,
    ContextError,
    InputError,
    KVCache,
    Model,
    Params,
    Tokenizer,
    TokenizerError,
    forward,
    generation,
    ragged,
)
from gpt2np.errors import shown
from gpt2np.generation import generate, predictor, stream
from gpt2np.layers import log_softmax

N_CTX = SMALL["n_ctx"]


@pytest.fixture(scope="module")
def octets(tmp_path_factory):
    """A model whose tokens are the 256 bytes and the end of text: few of its texts are UTF-8."""
    file = tmp_path_factory.mktemp("bytes") / "vocab.bpe"
    file.write_text("#version: 0.2\n", encoding="utf-8")
    return random_model(Tokenizer.from_files(file), seed=4)


@pytest.fixture(scope="module")
def words():
    """GPT-2's own vocabulary on a model that is next to none."""
    return random_model(Tokenizer.gpt2(), n_ctx=64, n_embd=4, n_head=1, n_layer=1)


# Settings of every kind, those that draw and those that do not.
sampling_settings = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0, 0.5, 1.5]),
        "top_k": st.integers(1, 8),
        "top_p": st.floats(0.3, 1),
        "min_p": st.floats(0, 0.3),
        "repetition_penalty": st.floats(1, 2),
        "no_repeat_ngram": st.integers(2, 3),
        "stop": st.lists(st.text("abcdef", min_size=1, max_size=3), max_size=2),
        "stop_at_eot": st.booleans(),
        "on_full": st.just("slide"),
        "seed": st.integers(0, 99),
    },
)
prompts = st.lists(st.integers(0, 11), min_size=1, max_size=N_CTX - 12)


# ---- against Hugging Face -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def hf():
    """Greedy decoding by Hugging Face: the new ids and their log-probabilities."""
    torch = pytest.importorskip("torch")
    model = pytest.importorskip("huggingface").hf_model(letters.params)

    def greedy(prompt, **kwargs):
        out = model.generate(
            torch.tensor([prompt]),
            do_sample=False,
            attention_mask=torch.ones(1, len(prompt)),
            pad_token_id=11,
            output_scores=True,
            return_dict_in_generate=True,
            **kwargs,
        )
        scores = model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
        return out.sequences[0, len(prompt) :].tolist(), scores[0].tolist()

    return greedy


@few
@given(
    batch=st.lists(prompts, min_size=1, max_size=4),
    n=st.integers(1, 12),
    penalty=st.sampled_from([1.0, 1.3]),
    ngram=st.sampled_from([None, 2]),
    eot=st.booleans(),
)
def test_greedy_ids_are_hugging_faces(hf, *, batch, n, penalty, ngram, eot):
    ours = generate(
        letters,
        batch,
        max_new_tokens=n,
        temperature=0,
        repetition_penalty=penalty,
        no_repeat_ngram=ngram,
        stop_at_eot=eot,
    )
    for prompt, one in zip(batch, ours, strict=True):
        ids, logprobs = hf(
            prompt,
            max_new_tokens=n,
            repetition_penalty=penalty,
            no_repeat_ngram_size=ngram,
            eos_token_id=11 if eot else None,
        )
        assert one.ids == ids
        assert one.logprobs == pytest.approx(logprobs, abs=1e-5)
        assert one.finish_reason == ("eot" if eot and ids[-1] == 11 else "length")


@needs_shared
def test_gpt_nano_sort_sorts_all_inputs(monkeypatch):
    model = gpt2np.load(SHARED / "gpt-nano-sort")
    inputs = [list(letters) for letters in product(range(3), repeat=6)]
    shapes = reads(monkeypatch)
    # The last of the 12 tokens needs no position, so the context of 11 is never left.
    outputs = generate(model, inputs, max_new_tokens=6, temperature=0, on_full="slide")
    assert len(outputs) == 729
    assert [output.ids for output in outputs] == [sorted(letters) for letters in inputs]
    assert shapes[-5:] == [(729, 1)] * 5


# ---- alone or among others ----------------------------------------------------------------------


@few
@given(
    batch=st.lists(prompts, min_size=1, max_size=5),
    samples=st.integers(1, 3),
    n=st.integers(0, 12),
    kwargs=sampling_settings,
)
def test_each_of_a_batch_is_what_it_is_alone(batch, samples, n, kwargs):
    kwargs = {"seed": 7, "max_new_tokens": n} | kwargs
    together = generate(letters, batch, num_samples=samples, **kwargs)
    assert len(together) == len(batch)
    flat = together if samples == 1 else [one for group in together for one in group]
    seed = kwargs.pop("seed")
    for r, one in enumerate(flat):
        same(one, generate(letters, batch[r // samples], seed=seed + r, **kwargs))


@few
@given(prompt=prompts, n=st.integers(0, 12), kwargs=sampling_settings)
def test_a_stream_is_what_generate_gives(prompt, n, kwargs):
    kwargs = {"seed": 7, "max_new_tokens": n} | kwargs
    pieces = list(stream(letters, prompt, **kwargs))
    assert "".join(pieces) == generate(letters, prompt, **kwargs).text
    assert all(pieces)


def test_long_prompts_beside_short_ones():
    model = random_model(LETTERS, seed=5, dtype=np.float64, n_ctx=600, n_layer=1)
    rng = np.random.default_rng(0)
    batch = [rng.integers(0, 12, n).tolist() for n in (1, 590, 3, 300, 2, 310, 590, 1, 40)]
    together = generate(model, batch, max_new_tokens=6, seed=1, stop_at_eot=False)
    for r, (prompt, one) in enumerate(zip(batch, together, strict=True)):
        same(one, generate(model, prompt, max_new_tokens=6, seed=1 + r, stop_at_eot=False))


@given(lengths=st.lists(st.integers(1, 1024), min_size=1, max_size=40))
def test_rectangles_of_prompts_waste_little(lengths):
    groups = list(ragged.groups(lengths, predictor.GROUP, ratio=1.25))
    assert sorted(b for group in groups for b in group) == list(range(len(lengths)))
    for group in groups:
        of_group = [lengths[b] for b in group]
        assert max(of_group) <= 1.25 * min(of_group) + 2
        assert len(group) == 1 or len(group) * max(of_group) <= predictor.GROUP


def test_samples_share_one_reading_of_the_prompt(monkeypatch):
    shapes = reads(monkeypatch)
    generate(letters, "abcabc", num_samples=3, max_new_tokens=4, stop_at_eot=False)
    assert shapes == [(1, 6), (3, 1), (3, 1), (3, 1)]  # the fourth token is not read


def test_rows_that_end_are_dropped(monkeypatch):
    batch = ["a", "bb", "ccc"]
    ends = {1: 2, 2: 4, 3: 1}  # length of the prompt: when its end of text comes

    def processor(ids, logits):
        n_prompt = 1 + (ids[0] == 1) + 2 * (ids[0] == 2)
        now = len(ids) - n_prompt + 1 == ends[n_prompt]
        logits[11] = 1e3 if now else -np.inf
        return logits

    kwargs = {"max_new_tokens": 9, "temperature": 0, "processors": [processor]}
    alone = [generate(letters, prompt, **kwargs) for prompt in batch]
    shapes = reads(monkeypatch)
    for one, other in zip(generate(letters, batch, **kwargs), alone, strict=True):
        same(one, other)
        assert one.finish_reason == "eot"
    assert [one.ids.index(11) + 1 for one in alone] == [2, 4, 1]
    assert [B for B, T in shapes if T == 1][-3:] == [2, 1, 1]


def test_what_comes_back_has_the_shape_of_what_was_asked():
    kwargs = {"max_new_tokens": 2, "seed": 0}
    one = generate(letters, "ab", **kwargs)
    samples = generate(letters, "ab", num_samples=2, **kwargs)
    assert isinstance(one, generation.Generation)
    assert same(samples[0], one)
    assert same(generate(letters, ["ab"], **kwargs)[0], one)
    nested = generate(letters, ["ab", "c"], num_samples=2, **kwargs)
    assert [len(group) for group in nested] == [2, 2]
    assert same(nested[0][1], samples[1])
    assert [g.prompt_ids for g in nested[1]] == [[2], [2]]


@pytest.mark.parametrize(
    "prompt",
    [
        [0, 1],
        (0, 1),
        np.array([0, 1]),
        np.array([0, 1], np.uint8),
        [np.int64(0), np.int32(1)],
        "ab",
    ],
)
def test_forms_of_a_prompt(prompt):
    expected = generate(letters, "ab", seed=1, max_new_tokens=5)
    assert same(generate(letters, prompt, seed=1, max_new_tokens=5), expected)
    for many in ([prompt], (prompt,), [prompt, "c"], ["ab", prompt][::-1]):
        assert same(generate(letters, many, seed=1, max_new_tokens=5)[0], expected)


def test_an_array_of_prompts():
    of_array, of_list = (
        generate(letters, batch, seed=1, max_new_tokens=5)
        for batch in (np.array([[0, 1], [2, 3]]), ["ab", "cd"])
    )
    for one, other in zip(of_array, of_list, strict=True):
        same(one, other)


@pytest.mark.parametrize("empty", ["", np.array([], int)])
def test_an_empty_prompt_starts_from_the_end_of_text(words, empty):
    started = generate(words, empty, seed=1, max_new_tokens=3)
    assert started.prompt_ids == [50256]
    assert same(started, generate(words, [50256], seed=1, max_new_tokens=3))
    assert same(started, generate(words, [[], "x"], seed=1, max_new_tokens=3)[0])


def test_end_of_text_in_a_prompt_is_plain_text(words):
    assert 50256 not in generate(words, "<|endoftext|>", max_new_tokens=1).prompt_ids


# ---- chance -------------------------------------------------------------------------------------


def test_seeds():
    def ids(seed, **kwargs):
        return generate(letters, "abc", seed=seed, max_new_tokens=20, stop_at_eot=False, **kwargs)

    assert ids(1).ids == ids(1).ids == ids(np.int64(1)).ids != ids(2).ids
    assert ids(None).ids != ids(None).ids
    assert [one.ids for one in ids(5, num_samples=2)] == [ids(5).ids, ids(6).ids]
    assert ids(np.random.default_rng(1)).ids == ids(1).ids
    rng = np.random.default_rng(1)
    assert ids(rng).ids != ids(rng).ids  # it goes on
    one, two = ids(np.random.default_rng(1), num_samples=2)
    assert one.ids != two.ids
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    ids(None)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


def test_logprobs_are_the_models_own():
    prompt = [3, 1, 4]
    one = generate(letters, prompt, seed=2, max_new_tokens=10, stop_at_eot=False)
    rows = log_softmax(forward(letters.params, prompt + one.ids))[0, 2:-1]
    assert one.logprobs == pytest.approx(rows[np.arange(10), one.ids], abs=1e-9)
    assert all(type(id) is int for id in one.ids + one.prompt_ids)
    assert all(type(logprob) is float for logprob in one.logprobs)


def test_sampled_frequencies():

    prompt = [0, 1, 2]
    p1 = np.exp(log_softmax(forward(letters.params, prompt)[0, -1]))
    joint = np.concatenate(
        [
            p * np.exp(log_softmax(forward(letters.params, [*prompt, a])[0, -1]))
            for a, p in enumerate(p1)
        ]
    )
    samples = generate(
        letters, prompt, num_samples=4000, max_new_tokens=2, seed=0, stop_at_eot=False
    )
    counts = np.bincount([a * 12 + b for a, b in (one.ids for one in samples)], minlength=144)
    assert chi_square_p(counts.tolist(), joint) > 1e-3


# ---- where it ends, and what is shown -----------------------------------------------------------


def test_end_of_text(words):
    tokens = [*words.tokenizer.encode(" the end"), 50256, 13]
    kwargs = {"max_new_tokens": 4, "processors": [dictate(tokens, 1)]}
    one = generate(words, [464], **kwargs)
    assert (one.text, one.ids, one.finish_reason) == (" the end", tokens[:3], "eot")
    one = generate(words, [464], stop_at_eot=False, **kwargs)
    assert (one.text, one.ids, one.finish_reason) == (" the end<|endoftext|>.", tokens, "length")


STORY = "naïve café — 你好，世界! 👩‍👩‍👧 🏳️‍🌈 e\u0301 \ufffd end"


def test_a_character_is_shown_whole(words):
    tokens = words.tokenizer.encode(STORY)
    kwargs = {"max_new_tokens": len(tokens), "processors": [dictate(tokens, 1)]}
    pieces = list(stream(words, [50256], **kwargs))
    assert "".join(pieces) == STORY
    assert len(pieces) < len(tokens)
    whole = generate(words, [50256], **kwargs)
    assert (whole.text, str(whole), whole.ids) == (STORY, STORY, tokens)
    # A text that ends inside a character.
    cut = next(n for n in range(len(tokens)) if "\ufffd" in words.tokenizer.decode(tokens[:n]))
    kwargs["max_new_tokens"] = cut
    text = words.tokenizer.decode(tokens[:cut])
    assert "".join(stream(words, [50256], **kwargs)) == generate(words, [50256], **kwargs).text
    assert generate(words, [50256], **kwargs).text == text


@pytest.mark.parametrize(
    "stop",
    [
        "wor",
        "o, world",
        "lo",
        ", world!",
        "H",
        "!",
        "ld!",
        ["zz", "wor"],
        ["world", "wo"],
        ["rl", "world", "d"],
        ("o, w", "nothing"),
    ],
)
def test_a_stop_string_may_span_tokens_and_is_not_shown(words, stop):
    text = "Hello, world!"
    tokens = words.tokenizer.encode(text)
    kwargs = {"max_new_tokens": len(tokens), "stop": stop, "processors": [dictate(tokens, 1)]}
    one = generate(words, [50256], **kwargs)
    strings = [stop] if isinstance(stop, str) else stop
    end, start = min((text.find(s) + len(s), text.find(s)) for s in strings if s in text)
    assert one.text == "".join(stream(words, [50256], **kwargs)) == text[:start]
    assert one.finish_reason == "stop"
    # All ids up to the token that completed it.
    assert one.ids == tokens[: len(one.ids)]
    assert len(words.tokenizer.decode(one.ids[:-1])) < end <= len(words.tokenizer.decode(one.ids))


def test_only_what_may_become_a_stop_string_is_held_back(words):
    tokens = [words.tokenizer.encode(s)[0] for s in ("a", "\n", "b", "\n", "\n", "c")]
    run = stream(words, [50256], max_new_tokens=6, stop="\n\n", processors=[dictate(tokens, 1)])
    assert list(run) == ["a", "\nb"]
    run = stream(words, [50256], max_new_tokens=4, stop="\n\n", processors=[dictate(tokens, 1)])
    assert list(run) == ["a", "\nb", "\n"]  # nothing more can come


@few
@given(
    tokens=st.lists(st.sampled_from([*"abé€".encode()]), min_size=1, max_size=20),
    stop=st.lists(st.text("abé\ufffd€", min_size=1, max_size=3), max_size=3),
)
def test_streamed_bytes_and_stops(octets, tokens, stop):
    ids = [octets.tokenizer.encode(chr(b))[0] if b < 128 else _byte_id(octets, b) for b in tokens]
    kwargs = {"max_new_tokens": len(ids), "stop": stop, "processors": [dictate(ids, 1)]}
    pieces = list(stream(octets, [256], **kwargs))
    one = generate(octets, [256], **kwargs)
    assert "".join(pieces) == one.text
    assert one.ids == ids[: len(one.ids)]
    text = bytes(tokens).decode(errors="replace")
    found = [(text.find(s) + len(s), text.find(s)) for s in stop if s in text]
    assert one.text == (text[: min(found)[1]] if found else text)
    assert one.finish_reason == ("stop" if found else "length")
    assert len(one.ids) == len(ids) or found
    # Each piece is a text that is final: nothing shown is ever changed.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    assert decoder.decode(bytes(tokens)).startswith("".join(pieces[:-1]))


def _byte_id(model, byte):
    return next(id for id in range(256) if model.tokenizer.token_bytes(id) == bytes([byte]))


@few
@given(seed=st.integers(0, 999), n=st.integers(0, 20))
def test_random_bytes_are_streamed_as_they_are_decoded(octets, seed, n):
    one = generate(octets, "x", seed=seed, max_new_tokens=n, stop_at_eot=False)
    assert one.text == octets.tokenizer.decode(one.ids)
    assert one.text == "".join(stream(octets, "x", seed=seed, max_new_tokens=n, stop_at_eot=False))


def test_no_tokens_at_all():
    one = generate(letters, "abc", max_new_tokens=0)
    assert (one.text, one.ids, one.logprobs, one.finish_reason) == ("", [], [], "length")
    assert one.prompt_ids == [0, 1, 2]
    assert list(stream(letters, "abc", max_new_tokens=0)) == []
    assert generate(letters, "abc", max_new_tokens=0, num_beams=3).ids == []


def test_a_model_without_a_tokenizer_gives_ids():
    one = generate(bare, [0, 1], seed=1, max_new_tokens=5)
    assert one.ids == generate(letters, [0, 1], seed=1, max_new_tokens=5, stop_at_eot=False).ids
    assert (one.text, one.finish_reason) == ("", "length")
    assert list(stream(bare, [0, 1], max_new_tokens=5)) == []


@pytest.mark.parametrize(
    "kwargs", [{"temperature": 50, "seed": 0}, {"num_beams": 3}, {"temperature": 0, "lookup": 4}]
)
def test_rows_that_pad_the_vocabulary_are_never_chosen(kwargs):
    params = letters.params
    arrays = dict(params)
    arrays["wte.weight"] = np.concatenate([params.wte, params.wte * 3])  # they would often win
    padded = Model(Params(Config(**{**SMALL, "vocab_size": 24}), arrays), LETTERS)
    assert max(generate(Model(padded.params), [0, 1], max_new_tokens=28, **kwargs).ids) >= 12
    one = generate(padded, [0, 1], max_new_tokens=28, stop_at_eot=False, **kwargs)
    assert max(one.ids) < 12
    same(one, generate(letters, [0, 1], max_new_tokens=28, stop_at_eot=False, **kwargs))


# ---- the context --------------------------------------------------------------------------------


def test_more_than_the_context_is_refused_before_anything_is_computed(monkeypatch):
    shapes = reads(monkeypatch)
    match = (
        r"^a prompt of 30 tokens and max_new_tokens=3 make 33, but the model's context is 32: "
        r"shorten them, or set on_full='slide'$"
    )
    for call in (generate, stream):
        for kwargs in ({}, {"num_beams": 2}, {"lookup": 4}):
            with pytest.raises(ContextError, match=match):
                call(letters, "a" * 30, max_new_tokens=3, **kwargs)
    with pytest.raises(ContextError, match="a prompt of 30"):
        generate(letters, ["a", "a" * 30], max_new_tokens=3)
    assert shapes == []
    assert len(generate(letters, "a" * 30, max_new_tokens=2, stop_at_eot=False).ids) == 2


def slid(params, prompt, n):
    """Greedy decoding with a sliding window, each token from scratch."""
    seen, window, n_ctx = list(prompt), list(prompt), params.config.n_ctx
    for _ in range(n):
        if len(window) > n_ctx:
            window = window[-max(1, n_ctx // 2) :]
        token = int(forward(params, window)[0, -1].argmax())
        seen.append(token)
        window.append(token)
    return seen[len(prompt) :]


@pytest.mark.parametrize("lookup", [None, 8])
@pytest.mark.parametrize("n_ctx", [1, 2, 3, 7, 16])
def test_a_full_window_slides(n_ctx, lookup):
    model = random_model(seed=3, dtype=np.float64, n_ctx=n_ctx)
    rng = np.random.default_rng(1)
    batch = [rng.integers(0, 12, n).tolist() for n in (1, n_ctx, n_ctx + 1, 3 * n_ctx, 5, 6)]
    kwargs = {"max_new_tokens": 40, "temperature": 0, "on_full": "slide", "lookup": lookup}
    for prompt, one in zip(batch, generate(model, batch, **kwargs), strict=True):
        assert one.ids == slid(model.params, prompt, 40)
        assert one.prompt_ids == prompt


def test_a_text_without_an_end():
    pieces = stream(
        letters, "abc", max_new_tokens=10**30, on_full="slide", temperature=0, stop_at_eot=False
    )
    text = "".join(next(pieces) for _ in range(100))
    kwargs = {"max_new_tokens": 100, "on_full": "slide", "temperature": 0, "stop_at_eot": False}
    assert text == generate(letters, "abc", **kwargs).text


def test_no_more_cache_than_needed(monkeypatch):
    capacities, make = [], KVCache
    monkeypatch.setattr(
        predictor,
        "KVCache",
        lambda params, B, capacity: (capacities.append(capacity), make(params, B, capacity))[1],
    )
    generate(letters, "abc", max_new_tokens=4)
    assert max(capacities) == 7


# ---- a cache that goes on -----------------------------------------------------------------------


def test_a_conversation_is_not_read_again(monkeypatch):
    cache, text = KVCache(letters.params), "abc"
    shapes = reads(monkeypatch)
    for turn, more in enumerate(["defg", "hi", ""]):
        kwargs = {"max_new_tokens": 5, "seed": turn, "repetition_penalty": 1.5, "stop": "b"}
        shapes.clear()
        one = generate(letters, text, cache=cache, **kwargs)
        assert sum(T for _, T in shapes) <= 3 + 4 + 4 + len(one.ids)
        assert cache.ids[0, : cache.length].tolist() == one.prompt_ids + one.ids[:-1]
        same(one, generate(letters, text, **kwargs))
        text += one.text + more


@few
@given(
    first=st.lists(st.integers(0, 11), min_size=1, max_size=40),
    second=prompts,
    common=st.integers(0, 20),
    kwargs=sampling_settings,
    lookup=st.sampled_from([None, 6]),
    last=st.integers(0, 8),
)
def test_whatever_the_cache_holds_the_result_is_that_of_a_fresh_run(
    *, first, second, common, kwargs, lookup, last
):
    kwargs = {"seed": 7, "max_new_tokens": 12, "lookup": lookup} | kwargs
    cache = KVCache(letters.params)
    slides = kwargs.get("on_full") == "slide"
    if not slides:
        first = first[: N_CTX - 12]
    one = generate(letters, first, cache=cache, **kwargs)
    same(one, generate(letters, first, **kwargs))
    if len(first) + 12 <= N_CTX:
        assert cache.ids[0, : cache.length].tolist() == (one.prompt_ids + one.ids)[:-1]
    held = cache.ids[0, : cache.length].tolist()
    if last:  # what others read is not known, so it is read again
        cache.truncate(min(last, cache.length))
        forward(letters.params, [11], cache)
    second = held[:common] + second
    if not slides:
        second = second[: N_CTX - 12]
    branch = cache.copy()
    for own in (cache, branch):
        same(generate(letters, second, cache=own, **kwargs), generate(letters, second, **kwargs))


def test_a_stream_that_is_left_leaves_a_usable_cache():
    cache = KVCache(letters.params)
    for lookup in (None, 6):
        pieces = stream(
            letters,
            "abcabcab",
            cache=cache,
            lookup=lookup,
            temperature=0,
            max_new_tokens=9,
            stop_at_eot=False,
        )
        next(pieces)
        next(pieces)
        pieces.close()
        again = generate(letters, "abcabcab", cache=cache, max_new_tokens=9, temperature=0)
        same(again, generate(letters, "abcabcab", max_new_tokens=9, temperature=0))


def test_an_interrupt_between_tokens_is_passed_on():
    calls, cache = [], KVCache(letters.params)

    def interrupt(ids, logits):
        calls.append(len(ids))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return logits

    with pytest.raises(KeyboardInterrupt):
        generate(
            letters, "abc", processors=[interrupt], cache=cache, stop_at_eot=False, max_new_tokens=9
        )
    assert calls == [3, 4, 5]
    same(
        generate(letters, "abc", cache=cache, seed=1, max_new_tokens=9),
        generate(letters, "abc", seed=1, max_new_tokens=9),
    )


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: KVCache(letters.params, 2),
            r"KVCache\(2 x 32 .* is not a cache of one sequence for",
        ),
        (
            lambda: KVCache(Params.random(Config(12, 32, 16, 2, 1))),
            "is not a cache of one sequence",
        ),
        (
            lambda: KVCache(Params.random(Config(12, 32, 16, 2, 2))),
            "is not a cache of one sequence",
        ),
        (lambda: {}, "cache must be a KVCache or None, not {}"),
    ],
)
def test_a_cache_that_does_not_fit(make, match):
    with pytest.raises(InputError, match=match):
        generate(letters, "abc", cache=make(), max_new_tokens=2)


@pytest.mark.parametrize("on_full", ["refuse", "slide"])
def test_a_cache_that_is_too_small(on_full):
    match = "make 8, but the cache's capacity is 7: shorten them, or make it larger"
    cache = KVCache(letters.params, capacity=7)
    with pytest.raises(ContextError, match=match):
        generate(letters, "abc", cache=cache, max_new_tokens=5, on_full=on_full)
    assert len(generate(letters, "abc", cache=cache, max_new_tokens=4, stop_at_eot=False).ids) == 4


# ---- what goes with it --------------------------------------------------------------------------


def test_a_probe_sees_every_pass():
    seen = []
    generate(
        letters,
        "abc",
        max_new_tokens=3,
        stop_at_eot=False,
        probe=lambda name, array: seen.append((name, array.shape)),
    )
    assert [shape for name, shape in seen if name == "h.1"] == [(1, 3, 16), (1, 1, 16), (1, 1, 16)]
    assert [shape for name, shape in seen if name == "logits"] == [(1, 1, 12)] * 3


def test_a_probe_may_steer():
    def steer(name, array):
        if name == "logits":
            array = np.zeros_like(array)
            array[..., 4] = 9
            return array
        return None

    assert generate(letters, "abc", temperature=0, max_new_tokens=3, probe=steer).text == "eee"


def test_processors_see_the_whole_sequence_of_their_row():
    seen = []

    def processor(ids, logits):
        seen.append(ids.tolist())
        return logits

    several = generate(
        letters, ["ab", "c"], processors=[processor], max_new_tokens=2, seed=0, stop_at_eot=False
    )
    first, second = (one.prompt_ids + one.ids for one in several)
    assert seen == [first[:2], second[:1], first[:3], second[:2]]


def test_progress(capsys):
    one = generate(letters, ["ab", "c"], max_new_tokens=3, seed=0, progress=True, stop_at_eot=False)
    out, err = capsys.readouterr()
    assert out == ""
    assert "6.00/6.00" in err
    assert same(one[0], generate(letters, "ab", max_new_tokens=3, seed=0, stop_at_eot=False))
    assert capsys.readouterr().err == ""


def test_a_generation_cannot_be_changed():
    with pytest.raises(AttributeError):
        generate(letters, "a", max_new_tokens=1).text = "b"


# ---- what is refused ----------------------------------------------------------------------------

REFUSED = {
    "max_new_tokens": [-1, 1.5, True, None, "3"],
    "num_samples": [0, -1, 1.0, False, None],
    "num_beams": [0, -3, 2.0, True, None],
    "seed": [-1, 1.5, True, "1", [1, 2]],
    "stop": ["", [""], ["a", ""], [1], b"a", 3],
    "stop_at_eot": [None, 1, "no"],
    "lookup": [-1, 2.5, True, "8"],
    "on_full": ["", "slid", None, True],
    "cache": [True, {}],
    "progress": [None, 1],
    "probe": [1, "logits"],
    "length_penalty": [None, float("nan"), float("inf"), True, "1", 51, -(10**400)],
    "early_stopping": [None, "always", 2, 1, np.array([True, False])],
    "temperature": [-1, None],
    "top_k": [0],
    "top_p": [1.5],
    "min_p": [-0.1],
    "repetition_penalty": [0],
    "no_repeat_ngram": [0],
    "processors": [None, [3]],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values]
)
def test_an_argument_out_of_range_is_refused(name, value, monkeypatch):
    shapes = reads(monkeypatch)
    for call in (generate, stream):
        with pytest.raises(InputError, match=rf"^{name} must be .*not {re.escape(shown(value))}$"):
            call(letters, "abc", **{name: value})
    assert shapes == []


@pytest.mark.parametrize(
    ("prompt", "match"),
    [
        (None, "give a text or token ids, or an iterable of either, not NoneType: None"),
        (b"abc", "not bytes: b'abc'"),
        (3.5, "not float: 3.5"),
        (7, "not int: 7"),
        ({"a": 1}, "not dict"),
        (["a", None], "not NoneType"),
        (["a", 3], "not int: 3"),
        ([], r"the list is empty: .*\(the empty text is \"\"\)"),
        ((), "the list is empty"),
        (np.zeros((0, 3), int), "the list is empty"),
        ([0, 1.5], "dtype float64"),
        ([True, False], "dtype bool"),
        ([0, "a"], r"dtype [<>]U\d+"),
        ([0, 12], r"token id 12 is not in 0 ... 11"),
        (np.array(3), r"not the single value array\(3\)"),
        ([-1], r"token id -1 is not in 0 ... 11"),
        ([["a", "b"]], r"dtype [<>]U1"),
        ([[[0, 1], [2, 3]]], "number 1 of the list: one row of ids is wanted, not a list of 2"),
        ([[0, [1]]], "number 1 of the list: give ids that are integers, one behind another"),
        (np.zeros((1, 2, 2, 2), int), r"token_ids has shape \[2, 2, 2\]"),
    ],
)
def test_a_prompt_that_is_none_is_refused(prompt, match):
    for call in (generate, stream):
        with pytest.raises(InputError, match=match):
            call(letters, prompt)


@pytest.mark.parametrize(
    ("prompt", "kwargs", "match"),
    [
        ("abc", {}, "the model has no tokenizer"),
        ([[]], {}, "an empty prompt starts from <|endoftext|>, which this model does not have"),
        ([0], {"stop": "a"}, "stop strings need text, and the model has no tokenizer"),
    ],
)
def test_what_needs_a_tokenizer(prompt, kwargs, match):
    with pytest.raises((InputError, TokenizerError), match=re.escape(match)):
        generate(bare, prompt, max_new_tokens=3, **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        (
            {"num_beams": 2, "temperature": 0.5},
            "num_beams=2 is beam search.*: leave out temperature$",
        ),
        ({"num_beams": 2, "top_k": 5, "top_p": 0.5}, "leave out top_k, top_p$"),
        ({"num_beams": 2, "min_p": 0.1}, "leave out min_p$"),
        ({"num_beams": 2, "num_samples": 2}, "leave out num_samples$"),
        ({"num_beams": 2, "lookup": 5}, "leave out lookup$"),
        ({"num_beams": 2, "on_full": "slide"}, "leave out on_full$"),
        ({"num_beams": 2, "cache": KVCache(letters.params)}, "leave out cache$"),
        ({"length_penalty": 2.0}, "length_penalty and early_stopping are for beam search"),
        ({"early_stopping": True}, "length_penalty and early_stopping are for beam search"),
        ({"cache": KVCache(letters.params), "num_samples": 2}, "a cache continues one text"),
    ],
)
def test_what_does_not_go_together(kwargs, match):
    for call in (generate, stream):
        with pytest.raises(InputError, match=match):
            call(letters, "abc", **kwargs)


def test_a_cache_is_for_one_prompt():
    with pytest.raises(InputError, match="a cache continues one text"):
        generate(letters, ["abc"], cache=KVCache(letters.params))


@pytest.mark.parametrize(("prompt", "samples"), [(["a", "b"], 1), (["a"], 1), ("a", 2)])
def test_a_stream_is_of_one_text(prompt, samples):
    with pytest.raises(InputError, match="stream gives one text: give it one prompt, and num_sam"):
        stream(letters, prompt, num_samples=samples, max_new_tokens=3)


def test_an_unknown_argument_is_a_type_error():
    for call in (generate, stream):
        with pytest.raises(TypeError, match="max_tokens"):
            call(letters, "a", max_tokens=3)


def test_importing_it_loads_no_more_than_it_needs():

    code = "import sys, gpt2np.generation; print({'tqdm', 'regex', 'requests'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
