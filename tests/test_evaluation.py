"""Evaluations against lm-eval's own values for the same files, and what files are refused."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import gpt2np
from gpt2np import InputError, evaluate
from gpt2np.evaluation import detokenized

VALUES = json.loads((Path(__file__).parent / "peers" / "values.json").read_text("utf-8"))
TINY = VALUES["tiny-shakespeare"]
THEIRS = TINY["lm-eval"]
LENGTH = TINY["max_length"]


@pytest.fixture(scope="module", params=["float64", "float32"])
def model(request):
    return gpt2np.load(dtype=request.param)


def lines(path, items):
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return path


def test_lambada_is_lm_evals(model, tmp_path):
    file = lines(tmp_path / "a.jsonl", VALUES["lambada"])
    result = evaluate(model, "lambada", file, window=LENGTH)
    lls, greedy = np.array([ll for ll, _ in THEIRS["lambada"]]), [g for _, g in THEIRS["lambada"]]
    assert result.figures["perplexity"].value == pytest.approx(math.exp(-lls.mean()), rel=1e-4)
    assert result.figures["accuracy"].value == np.mean(greedy)
    assert result.figures["accuracy"].stderr == pytest.approx(np.std(greedy, ddof=1) / 2)
    assert result.n == 4
    assert evaluate(model, "lambada", VALUES["lambada"], window=LENGTH) == result


def test_choices_are_lm_evals(model, tmp_path):
    file = lines(tmp_path / "a.jsonl", VALUES["choices"])
    result = evaluate(model, "choice", file, window=LENGTH)
    for name, theirs in (
        ("accuracy", "acc"), ("accuracy_per_character", "acc_norm"),
        ("accuracy_per_byte", "acc_bytes"),
    ):  # fmt: skip
        right = [item[theirs] for item in THEIRS["choices"]]
        assert result.figures[name].value == pytest.approx(np.mean(right))
        assert result.figures[name].stderr == pytest.approx(np.std(right, ddof=1) / math.sqrt(9))
    assert result.figures["accuracy_per_token"].value in {n / 9 for n in range(10)}


def test_a_long_prefix_is_read_once_to_the_same_end(model):
    prefix = "What light through yonder window breaks? " * 25
    item = {"prefix": prefix.strip(), "choices": ["It is the east", "Juliet", "No"], "answer": 1}
    short = {**item, "prefix": "It is"}
    both = evaluate(model, "choice", [short, item, short])
    assert both.n == 3
    scores = gpt2np.score(
        model, [" " + c for c in item["choices"]], prefix=item["prefix"], bos=False
    )
    right = [int(np.argmax([s.total for s in scores])) == 1]
    of_short = evaluate(model, "choice", [short]).figures["accuracy"].value
    assert both.figures["accuracy"].value == pytest.approx((2 * of_short + right[0]) / 3)


def test_perplexity_is_lm_evals_of_wikitext(model, tmp_path):
    (tmp_path / "a.txt").write_text(VALUES["document"], encoding="utf-8")
    assert detokenized(VALUES["document"]) == THEIRS["detokenized"]
    result = evaluate(model, "perplexity", tmp_path / "a.txt", detokenize="wikitext", window=LENGTH)
    ll, words, n_bytes = THEIRS["rolling"], THEIRS["n_words"], THEIRS["n_bytes"]
    assert (result.settings["n_words"], result.settings["n_bytes"]) == (words, n_bytes)
    for name, value in (
        ("word_perplexity", math.exp(-ll / words)),
        ("byte_perplexity", math.exp(-ll / n_bytes)),
        ("bits_per_byte", -ll / n_bytes / math.log(2)),
    ):
        assert result.figures[name].value == pytest.approx(value, rel=1e-4)
        assert 0 < result.figures[name].stderr < value


def test_perplexity_of_several_texts_is_that_of_all_their_tokens(model, tmp_path):
    texts = ["To be, or not to be: that is the question.", "Good morrow, cousin."]
    file = lines(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    result = evaluate(model, "perplexity", file)
    scores = gpt2np.score(model, texts)
    logprobs = np.concatenate([s.logprobs for s in scores])
    assert result.n == len(logprobs)
    assert result.figures["perplexity"].value == pytest.approx(math.exp(-logprobs.mean()), rel=1e-4)
    words = math.exp(-logprobs.sum() / 13)
    assert result.figures["word_perplexity"].value == pytest.approx(words, rel=1e-4)
    of_20 = evaluate(model, "perplexity", file, n_words=20).figures["word_perplexity"].value
    assert of_20 == pytest.approx(math.exp(-logprobs.sum() / 20), rel=1e-4)


@pytest.mark.parametrize("recipe", ["strided", "hf"])
def test_the_other_recipes(model, tmp_path, recipe):
    (tmp_path / "a.txt").write_text(VALUES["document"], encoding="utf-8")
    result = evaluate(model, "perplexity", tmp_path / "a.txt", recipe=recipe, window=64, stride=16)
    p = gpt2np.perplexity(model, VALUES["document"], recipe=recipe, window=64, stride=16)
    assert result.figures["perplexity"].value == pytest.approx(float(p))
    assert result.figures["bits_per_byte"].value == pytest.approx(p.bits_per_byte)


def test_every_token_counts_however_small_the_stride(model):
    """transformers' page forgets all but the first window if the stride is 1."""
    ids = model.tokenizer.encode(VALUES["document"])[:51]
    p = gpt2np.perplexity(model, ids, window=16, stride=1)
    logprobs = []
    for j in range(1, 51):
        logits = gpt2np.forward(model.params, ids[max(0, j - 16) : j])[0, -1].astype(float)
        logprobs.append(logits[ids[j]] - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
    assert p.n_tokens == 50
    assert p == pytest.approx(math.exp(-np.mean(logprobs)), rel=1e-4)
    hf = gpt2np.perplexity(model, ids, window=16, stride=1, recipe="hf")
    assert hf == pytest.approx(math.exp(-np.mean(logprobs[:15])), rel=1e-4)


@pytest.mark.parametrize(
    ("task", "items", "message"),
    [
        ("hellaswag", [], "task must be one of lambada, choice, perplexity, not 'hellaswag'"),
        ("lambada", [], "the file has no items"),
        ("lambada", [{"txt": "a"}], "item 1 has no text called 'text'"),
        ("choice", [{"prefix": "a", "choices": "b"}], "item 1 has no list of texts as its choices"),
        (
            "choice",
            [{"prefix": "a", "choices": ["b"], "answer": 1}],
            "the answer 1 is none",
        ),
        ("choice", [{"prefix": "a", "choices": ["b"], "answer": "c"}], "the answer 'c' is none"),
        ("choice", [{"sentence_good": "a"}], "item 1 has no text called 'sentence_bad'"),
    ],
)
def test_what_cannot_be_evaluated(model, task, items, message):
    with pytest.raises(InputError, match=message):
        evaluate(model, task, items)


def test_settings_that_are_none(model, tmp_path):
    (tmp_path / "a.txt").write_text("a b c", encoding="utf-8")
    for settings, message in (
        ({"recipe": "mine"}, "recipe must be 'strided', 'hf' or 'lm-eval'"),
        ({"stride": 4}, "leave out stride"),
        ({"detokenize": "ptb"}, "detokenize must be 'wikitext'"),
        ({"n_words": 0}, "n_words must be an integer >= 1"),
    ):
        with pytest.raises(InputError, match=message):
            evaluate(model, "perplexity", tmp_path / "a.txt", **settings)


@pytest.mark.parametrize("task", ["lambada", "choice"])
def test_settings_of_another_task(model, run, tmp_path, task):
    items = [{"text": "a b", "prefix": "a", "choices": ["b"], "answer": 0}]
    for name, value in {
        "stride": 4,
        "recipe": "hf",
        "n_words": 3,
        "detokenize": "wikitext",
    }.items():
        with pytest.raises(InputError, match=f"^{name} is for perplexity, not for {task}: leave"):
            evaluate(model, task, items, **{name: value})
    with pytest.raises(InputError, match="join is for choice, not for lambada"):
        evaluate(model, "lambada", items, join="")
    code, out, err = run("evaluate", task, str(lines(tmp_path / "a", items)), "--stride", "4")
    assert (code, out) == (2, "")
    assert "--stride is for perplexity" in err
    assert "+-" not in str(evaluate(model, task, items))  # one item has no standard error


def test_the_command(run, tmp_path):
    file = str(lines(tmp_path / "a.jsonl", VALUES["choices"]))
    code, out, err = run("evaluate", "choice", file, "--json", "--window", str(LENGTH))
    expected = evaluate(gpt2np.load(), "choice", file, window=LENGTH).to_dict()
    assert (code, json.loads(out)) == (0, expected)
    assert err.count("\n") == 1
    code, out, _ = run("evaluate", "choice", file)
    assert code == 0
    assert out.splitlines()[0].startswith("accuracy                0.")
    (tmp_path / "b.jsonl").write_text("{", encoding="utf-8")
    code, out, err = run("evaluate", "lambada", str(tmp_path / "b.jsonl"))
    assert (code, out) == (2, "")
    assert "b.jsonl, line 1 is not JSON" in err
