"""OpenAI's weights: what others have published of them, in pretrained-goldens.json, and we compute.

Deselected unless asked for. Fetch the models, those you have room for, then run this file:

    gpt2np download gpt2                       # 0.55 GB; most tests need no other
    gpt2np download distilgpt2                 # 0.35 GB
    gpt2np download gpt2-medium                # 1.5 GB; gpt2-large 3.2 GB, gpt2-xl 6.4 GB
    gpt2np download gpt2 --from openai         # 0.50 GB: the TensorFlow checkpoint
    python -m pytest -m pretrained tests/test_pretrained.py -rs

A model that is already in Hugging Face's cache is found there. The perplexities are of WikiText-2:
GPT2NP_WIKITEXT2 names the file wiki.test.raw of wikitext-2-raw-v1.zip. They take an hour. What is
not on this machine is skipped, and nothing is fetched.
"""

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from shared import SHARED, needs_shared

import gpt2np
from gpt2np import DownloadError, KVCache, forward, hub
from gpt2np.checkpoints import open_checkpoint
from gpt2np.layers import log_softmax

pytestmark = [pytest.mark.pretrained, needs_shared]
GOLDENS_FILE = SHARED / "pretrained-goldens.json"
GOLDENS = json.loads(GOLDENS_FILE.read_bytes()) if GOLDENS_FILE.is_file() else {}


def entries(kind):
    """The published entries of a kind, each with a name to call the test by."""
    return [
        pytest.param(e, id=str(e.get("prompt") or e.get("what") or e.get("ids") or list(e)[1]))
        for e in GOLDENS.get(kind, [])
    ]


def folder_of(name):
    try:
        return hub.resolve(name, download=False)
    except DownloadError as error:
        pytest.skip(str(error))


@lru_cache(maxsize=1)
def load(name):
    return gpt2np.load(folder_of(name))


@pytest.fixture
def gpt2():
    return load("gpt2")


def test_every_kind_of_entry_has_its_test():
    assert GOLDENS.keys() == {
        "about",
        "files",
        "parameters_tied",
        "weights_gpt2",
        "logits_gpt2",
        "greedy",
        "losses",
        "perplexity",
        "weight_free",  # the last needs no weights: test_model.py
    }


# Files and weights


def digest(file, kind):
    found = hashlib.new(kind)
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def places(name):
    """Where a published file may be: a model and the name of the file in its folder."""
    openai = hub.own_cache() / "openai" / "124M"
    return {
        "encoder.json (= vocab.json)": lambda: folder_of("gpt2") / "vocab.json",
        "vocab.bpe (= merges.txt)": lambda: folder_of("gpt2") / "merges.txt",
        "openai-community/gpt2@607a30d model.safetensors": lambda: (
            folder_of("gpt2@607a30d783dfa663caf39e06633721c8d4cfcd7e") / "model.safetensors"
        ),
        "distilgpt2 model.safetensors": lambda: folder_of("distilgpt2") / "model.safetensors",
        "OpenAI 124M model.ckpt.data-00000-of-00001": lambda: (
            openai / "model.ckpt.data-00000-of-00001"
        ),
    }[name]()


@pytest.mark.parametrize("name", GOLDENS.get("files", []))
def test_file(name):
    published, file = GOLDENS["files"][name], places(name)
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    assert file.stat().st_size == published["bytes"]
    for kind in ("sha256", "md5"):
        if kind in published:
            assert digest(file, kind) == published[kind]


def test_tensors_of_the_published_file():
    """148 parameters and 12 masks, without prefix and without a head."""
    file = folder_of("gpt2") / "model.safetensors"
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    tensors = open_checkpoint(file).tensors
    masks = {f"h.{i}.attn.bias" for i in range(12)}
    assert len(tensors) == 160
    assert tensors.keys() - masks == load("gpt2").params.keys()
    assert {tensors[name].shape for name in masks} == {(1, 1, 1024, 1024)}


@pytest.mark.parametrize("name", GOLDENS.get("parameters_tied", []))
def test_parameters(name):
    assert load(name).params.n_params == GOLDENS["parameters_tied"][name]


@pytest.mark.parametrize("name", [k for k in GOLDENS.get("weights_gpt2", []) if k != "source"])
def test_weights(gpt2, name):
    ours = {
        "wte[0][:10]": gpt2.params.wte[0],
        "h.0.attn.c_attn.weight.flat[:10]": gpt2.params["h.0.attn.c_attn.weight"].ravel(),
        "ln_f.weight[:10]": gpt2.params["ln_f.weight"],
    }[name][:10]
    assert ours.tolist() == pytest.approx(GOLDENS["weights_gpt2"][name], abs=5.1e-5, rel=0)


def test_openais_checkpoint_holds_the_same_weights(gpt2):
    folder = hub.own_cache() / "openai" / "124M"
    if not (folder / "model.ckpt.index").is_file():
        pytest.skip(f"there is no {folder}: run: gpt2np download gpt2 --from openai")
    original = gpt2np.load(folder).params
    assert original.config == gpt2.config
    assert all(np.array_equal(original[name], gpt2.params[name]) for name in gpt2.params)


# What the model answers


@pytest.mark.parametrize("entry", entries("logits_gpt2"))
def test_logits(gpt2, entry):
    text = entry["prompt"].removesuffix(" + its argmax, through the cache")
    assert gpt2.tokenizer.encode(text) == entry["ids"]
    cache = KVCache(gpt2.params)
    logits = forward(gpt2.params, entry["ids"], cache)
    if "flat" in entry:
        ours = [float(logits.flat[int(at)]) for at in entry["flat"]]
        assert ours == pytest.approx(list(entry["flat"].values()), abs=entry["atol"], rel=0)
        mean = float(logits.mean(dtype=np.float64))
        assert mean == pytest.approx(entry["mean_of_all"], abs=entry["atol"], rel=0)
        return
    if entry.get("then") == "argmax":
        row = forward(gpt2.params, logits[:, -1:].argmax(-1), cache)[0, -1]
    else:
        row = logits[0, entry["position"]]
    if "first10" in entry:
        assert row[:10].tolist() == pytest.approx(entry["first10"], rel=entry["rtol"])
    else:
        assert row[-10:].tolist() == pytest.approx(entry["last10"], rel=entry["rtol"])


@pytest.mark.parametrize("entry", entries("greedy"))
def test_completion(entry):
    model = load(entry["model"])
    tokenizer = model.tokenizer
    if "left_padded_batch" in entry:  # its max_length counts the padding: here none is needed
        prompts = entry["left_padded_batch"]
        n = entry["max_length"] - max(len(tokenizer.encode(prompt)) for prompt in prompts)
        several = gpt2np.generate(model, prompts, max_new_tokens=n, temperature=0)
        assert [one.text for one in several] == entry["texts"]
        return
    prompt = entry["prompt"]
    if "ids" in entry:
        assert tokenizer.encode(prompt) == entry["ids"]
    new = entry["new"] if "new" in entry else tokenizer.encode(entry["text"])
    how = {"num_beams": entry["num_beams"]} if "num_beams" in entry else {"temperature": 0}
    completion = gpt2np.generate(model, prompt, max_new_tokens=len(new), **how)
    assert completion.ids == new
    assert completion.text == entry.get("text", tokenizer.decode(new))
    if "logprobs" in entry:
        assert completion.logprobs == pytest.approx(entry["logprobs"], abs=1e-3, rel=0)
    if text := entry.get("repetition_penalty_1.1"):
        n = len(tokenizer.encode(text))
        penalised = gpt2np.generate(
            model, prompt, max_new_tokens=n, temperature=0, repetition_penalty=1.1
        )
        assert penalised.text == text


def shakespeare_ids(tokenizer):
    """The beginning of llm.c's tiny Shakespeare stream, made as its prepro script makes it."""
    text = (SHARED / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    ids, sections = [], text.split("\n\n")
    for section in sections[:20]:
        ids += [50256, *tokenizer.encode(section + "\n\n")]
    return np.array(ids[:257])


def test_the_ids_of_the_first_loss_are_those_of_its_source():
    ids = shakespeare_ids(gpt2np.Tokenizer.gpt2())
    published = [entry["tokens"] for entry in GOLDENS["losses"] if "tokens" in entry]
    assert len(published) == 1
    assert hashlib.sha256(ids.astype("<u2").tobytes()).hexdigest() in published[0]


@pytest.mark.parametrize("entry", entries("losses"))
def test_loss(entry):
    model = load(entry["model"])
    if "ids" in entry:
        assert entry["ids"][0] == model.tokenizer.eot
        loss = -gpt2np.score(model, entry["ids"][1:]).logprobs.mean()
    else:
        ids = shakespeare_ids(model.tokenizer)
        inputs, targets = ids[:-1].reshape(4, 64), ids[1:].reshape(4, 64)
        logprobs = log_softmax(forward(model.params, inputs))
        loss = -np.take_along_axis(logprobs, targets[..., None], -1).mean(dtype=np.float64)
    assert float(loss) == pytest.approx(entry["loss"], abs=entry["atol"], rel=0)


def wikitext2():
    """The test split as the recipe joins it: a line that is blank is an empty one."""
    path = os.environ.get("GPT2NP_WIKITEXT2")
    if not path:
        pytest.skip("GPT2NP_WIKITEXT2 does not name WikiText-2's wiki.test.raw")
    with Path(path).open(encoding="utf-8", newline="") as lines:
        return "\n\n".join(line if line.strip() else "" for line in lines)


@pytest.mark.parametrize("stride", [1024, 512])
@pytest.mark.parametrize("entry", GOLDENS.get("perplexity", []), ids=lambda entry: entry["model"])
def test_perplexity(entry, stride):
    if f"stride_{stride}" not in entry:
        pytest.skip("not published")
    model, text = load(entry["model"]), wikitext2()
    ours = gpt2np.perplexity(model, text, window=1024, stride=stride, recipe="hf")
    assert ours == pytest.approx(entry[f"stride_{stride}"], abs=0.01, rel=0)
