"""Beam search: sequences and scores against Hugging Face's generate, and against all sequences."""

from itertools import product

import numpy as np
import pytest
from generating import reads, same
from hypothesis import given, settings
from hypothesis import strategies as st
from models import LETTERS, letters

import gpt2np
from gpt2np import Config, Model, Params, forward
from gpt2np.generation import generate, stream
from gpt2np.layers import log_softmax

prompts = st.lists(st.integers(0, 10), min_size=1, max_size=8)
penalties = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.5])
endings = st.sampled_from([True, False, "never"])


def score(one, length_penalty):
    return sum(one.logprobs) / len(one.ids) ** length_penalty


@pytest.fixture(scope="module")
def hf():
    """Beam search by Hugging Face: the new ids, up to the end of text, and the score."""
    torch = pytest.importorskip("torch")
    model = pytest.importorskip("huggingface").hf_model(letters.params)

    def search(prompt, eot, **kwargs):
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            do_sample=False,
            eos_token_id=eot,
            pad_token_id=11,
            output_scores=True,
            return_dict_in_generate=True,
            **kwargs,
        )
        ids = out.sequences[0, len(prompt) :].tolist()
        if eot in ids:
            ids = ids[: ids.index(eot) + 1]
        return ids, out.sequences_scores[0].item()

    return search


@settings(max_examples=60, deadline=None)
@given(
    prompt=prompts,
    num_beams=st.integers(2, 5),
    n=st.integers(1, 14),
    length_penalty=penalties,
    early_stopping=endings,
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    ngram=st.sampled_from([None, 2]),
    ends=st.sampled_from(["eot", "stop", "length"]),
)
def test_sequences_and_scores_are_hugging_faces(
    hf, *, prompt, num_beams, n, length_penalty, early_stopping, repetition_penalty, ngram, ends
):
    search = {
        "max_new_tokens": n,
        "num_beams": num_beams,
        "length_penalty": length_penalty,
        "early_stopping": early_stopping,
        "repetition_penalty": repetition_penalty,
    }
    # A stop string of one token does what an end of text does.
    ours = generate(
        letters,
        prompt,
        no_repeat_ngram=ngram,
        stop_at_eot=ends == "eot",
        stop="f" if ends == "stop" else None,
        **search,
    )
    ids, hf_score = hf(
        prompt, {"eot": 11, "stop": 5, "length": None}[ends], no_repeat_ngram_size=ngram, **search
    )
    assert ours.ids == ids
    assert score(ours, length_penalty) == pytest.approx(hf_score, rel=1e-4, abs=1e-5)
    text = LETTERS.decode(ids)
    assert (
        ours.text
        == {"eot": text.removesuffix("$"), "stop": text.removesuffix("f"), "length": text}[ends]
    )
    assert ours.finish_reason == (ends if ids[-1] == {"eot": 11, "stop": 5}.get(ends) else "length")


@pytest.mark.parametrize("prompt", ["ROMEO:", "First Citizen:\nBefore we", "What is"])
def test_the_embedded_model_against_hugging_face(prompt):
    torch, model = pytest.importorskip("torch"), gpt2np.load(dtype="float64")
    hf_model = pytest.importorskip("huggingface").hf_model(model.params)
    search = {"num_beams": 4, "length_penalty": 0.5, "max_new_tokens": 15}
    newline = model.tokenizer.encode("\n")[0]
    one = generate(model, prompt, stop="\n", **search)
    out = hf_model.generate(
        torch.tensor([one.prompt_ids]),
        do_sample=False,
        eos_token_id=newline,
        output_scores=True,
        return_dict_in_generate=True,
        attention_mask=torch.ones(1, len(one.prompt_ids)),
        **search,
    )
    ids = out.sequences[0, len(one.prompt_ids) :].tolist()
    assert one.ids == ids[: len(one.ids)]
    assert len(one.ids) == (ids.index(newline) + 1 if newline in ids else 15)
    # Hugging Face searches in float32, whatever the model computes in: summing over 50,257 tokens
    # costs it four digits. Its own logits in double precision give the score to the last ones.
    assert score(one, 0.5) == pytest.approx(out.sequences_scores[0].item(), abs=5e-4)
    with torch.no_grad():
        logits = hf_model(torch.tensor([one.prompt_ids + one.ids])).logits
    rows = torch.log_softmax(logits[0, len(one.prompt_ids) - 1 : -1], -1).numpy()
    assert one.logprobs == pytest.approx(rows[np.arange(len(one.ids)), one.ids], abs=1e-9)


@settings(max_examples=10, deadline=None)
@given(prompt=prompts)
def test_enough_beams_find_the_likeliest_sequence(prompt):
    V, n = 12, 3
    params = letters.params
    totals = {}
    for ids in product(range(V), repeat=n - 1):
        rows = log_softmax(forward(params, [*prompt, *ids]))[0, len(prompt) - 1 :]
        before = sum(rows[i, id] for i, id in enumerate(ids))
        totals |= {(*ids, last): before + rows[n - 1, last] for last in range(V)}
    best = max(totals, key=totals.get)
    one = generate(letters, prompt, num_beams=V**2, max_new_tokens=n, stop_at_eot=False)
    assert tuple(one.ids) == best
    assert sum(one.logprobs) == pytest.approx(totals[best], abs=1e-9)


def test_each_prompt_of_a_list_is_searched_by_itself():
    batch = ["abc", "d", "efabce"]
    for prompt, one in zip(
        batch, generate(letters, batch, num_beams=3, max_new_tokens=9), strict=True
    ):
        same(one, generate(letters, prompt, num_beams=3, max_new_tokens=9))


def test_a_prompt_is_read_once_and_ended_beams_no_more(monkeypatch):
    shapes = reads(monkeypatch)
    generate(letters, "abca", num_beams=3, max_new_tokens=4, stop_at_eot=False)
    assert shapes == [(1, 4), (3, 1), (3, 1), (3, 1)]


def test_a_stream_is_one_piece():
    kwargs = {"num_beams": 3, "max_new_tokens": 7}
    assert list(stream(letters, "abc", **kwargs)) == [generate(letters, "abc", **kwargs).text]


@pytest.mark.parametrize("temperature", [0, 1])
def test_nothing_is_drawn(temperature):
    kwargs = {"num_beams": 3, "max_new_tokens": 9, "temperature": temperature}
    first = generate(letters, "abc", seed=1, **kwargs)
    assert generate(letters, "abc", seed=2, **kwargs) == first
    same(first, generate(letters, "abc", num_beams=3, max_new_tokens=9))


@pytest.mark.parametrize("num_beams", [2, 4, 9])
def test_more_beams_than_there_are_continuations(num_beams):
    params = Params.random(Config(2, 16, 4, 1, 1), 1, np.float64)
    ones = [generate(Model(params), [0], num_beams=n, max_new_tokens=4) for n in (num_beams, 16)]
    assert len(ones[0].ids) == 4
    assert sum(ones[0].logprobs) <= sum(ones[1].logprobs) + 1e-12


@pytest.mark.parametrize("length_penalty", [-50, 50])
def test_the_ends_of_the_range_of_length_penalties(length_penalty):
    params = Params.random(Config(3, 1024, 4, 1, 1), 1, np.float64)
    one = generate(
        Model(params), [0], num_beams=2, max_new_tokens=1000, length_penalty=length_penalty
    )
    assert len(one.ids) == 1000


def test_a_stop_string_spans_tokens_and_is_not_in_the_text():
    def letters_only(ids, logits):
        logits[11] = -np.inf
        return logits

    kwargs = {"num_beams": 3, "max_new_tokens": 9, "processors": [letters_only]}
    plain = generate(letters, "abc", **kwargs)
    stop = plain.text[2:4]
    one = generate(letters, "abc", stop=stop, length_penalty=-2.0, **kwargs)
    assert one.finish_reason == "stop"
    assert LETTERS.decode(one.ids) == one.text + stop


def test_progress(capsys):
    generate(letters, "abc", num_beams=3, max_new_tokens=5, stop_at_eot=False, progress=True)
    assert "5.00/5.00" in capsys.readouterr().err
