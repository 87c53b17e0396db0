"""The live page, which runs GPT-2 by its own script: proven as any port is, by golden check."""

import json
import math
import os
import shutil
from importlib import import_module

import numpy as np
import pytest
from models import random_params

import gpt2np
from gpt2np import explorer
from gpt2np.config import PRESETS, Config
from gpt2np.errors import InputError
from gpt2np.explorer.run import Run
from gpt2np.layers import softmax
from gpt2np.tokenizer import Tokenizer

playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium; CHROMIUM names one")

page_module = import_module("gpt2np.explorer.page")  # not the function of that name
TEXT = "O Romeo, Romeo! wherefore art thou"
SETTLED = "() => state.run && !frame && stale().length === 0"
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def model():
    return gpt2np.load()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


def opened(browser, folder, model, text=TEXT):
    """Open the live page of a model; it may ask for nothing, and say nothing."""
    explorer.write_page(folder / "page.html", model, text, live=True)
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.set_default_timeout(120_000)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder / "page.html").as_uri())
    page.wait_for_function(SETTLED)
    page.said, page.asked = said, asked
    return page


@pytest.fixture(scope="module")
def live(browser, model, tmp_path_factory):
    page = opened(browser, tmp_path_factory.mktemp("live"), model)
    yield page
    assert page.said == []
    assert [url for url in page.asked if not url.startswith("blob:")] == [page.url.split("#")[0]]


def typed(page, text):
    page.fill("#live-text", text)
    page.wait_for_function(SETTLED)
    return page


def saved(page, path):
    """What the page's button saves of its text."""
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(path)
    return str(path)


def reference(run, folder, model, text):
    """The recording of gpt2np itself, of a model that is saved as well."""
    gpt2np.save(model, folder / "model", overwrite=True)
    path = str(folder / "reference.safetensors")
    run("golden", "record", path, "-m", str(folder / "model"), "--text", text)
    return path, str(folder / "model")


# Proven by golden check


@needs_chromium
def test_golden_check_finds_no_divergence(live, run, model, tmp_path):
    """Of all 64 activations of the embedded model, which the page computes by itself."""
    typed(live, TEXT)
    mine = saved(live, tmp_path / "mine.safetensors")
    theirs, folder = reference(run, tmp_path, model, TEXT)
    code, out, err = run("golden", "check", mine, theirs, "-m", folder, "--json")
    assert (code, err) == (0, ""), out
    with_names = gpt2np.Trace()
    gpt2np.forward(model.params, model.tokenizer.encode(TEXT), probe=with_names)
    report = json.loads(out)
    assert report["same"]
    assert {point["point"] for point in report["points"]} >= set(with_names)
    assert all(point["same"] for point in report["points"])


def small(**sizes):
    config = Config(**{"n_ctx": 32, "n_embd": 24, "n_head": 3, "n_layer": 2, **sizes})
    return gpt2np.Model(random_params(config), Tokenizer.gpt2())


@needs_chromium
@pytest.mark.parametrize(
    "sizes",
    [
        {"activation_function": "gelu", "n_layer": 1},
        {"tie_word_embeddings": False, "n_inner": 40, "scale_attn_by_inverse_layer_idx": True},
    ],
    ids=["erf", "untied, scaled by block"],
)
def test_golden_check_of_other_models(browser, run, tmp_path, sizes):
    model = small(**sizes)
    page = opened(browser, tmp_path, model, "a b c")
    mine = saved(page, tmp_path / "mine.safetensors")
    theirs, folder = reference(run, tmp_path, model, "a b c")
    code, out, err = run("golden", "check", mine, theirs, "-m", folder)
    assert (code, err) == (0, ""), out
    page.close()


FAULTS = {
    "scores that are not scaled": (
        "scales[i] * dotted(",
        "dotted(",
        "attn.scores",
        "not scaled by 1/sqrt(K)",
    ),
    "variance over D - 1": (
        "(value - mean) ** 2, 0) / D",
        "(value - mean) ** 2, 0) / (D - 1)",
        "ln_1",
        "variance is divided by n - 1",
    ),
    "c_proj transposed": (
        'b.attn = linear(b.z, ...w("attn.c_proj"));',
        'const [W, c] = w("attn.c_proj");'
        "b.attn = linear(b.z, W.map((_, n) => W[n % D * D + Math.floor(n / D)]), c);",
        "attn.c_proj",
        "the weight is transposed",
    ),
}


@needs_chromium
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(browser, run, tmp_path, monkeypatch, fault):
    right, wrong, where, cause = FAULTS[fault]
    read = page_module._file
    assert read("live.js").count(right) == 1
    monkeypatch.setattr(page_module, "_file", lambda name: read(name).replace(right, wrong))
    model = small()
    page = opened(browser, tmp_path, model, "a b c")
    mine = saved(page, tmp_path / "mine.safetensors")
    theirs, folder = reference(run, tmp_path, model, "a b c")
    code, out, _ = run("golden", "check", mine, theirs, "-m", folder, "--json")
    found = json.loads(out)
    assert code == 1
    assert found["first"] == f"h.0.{where}"
    assert cause in " ".join(found["causes"])
    page.close()


# What is typed is followed


@needs_chromium
def test_encodes_as_the_tokenizer_does(live, model):
    texts = [
        *(
            "Hello world",
            " two  spaces\n\n\tand tabs ",
            "don't I'LL we're",
            "naïve café",
            "日本語",
            "😀🏽",
        ),
        *(
            "x\u0085y\u00a0z\u3000w",
            "\x00\x1c\x1f\ufeff",
            "1234 5,678.9²",
            "a\u0301b",
            "\ud800x",
            "ﬁ ǅ",
        ),
        "<|endoftext|>",
        "   ",
        "ordinary.\r\n",
        "''s 's",
        "_under_score__",
        "\U0001f1e9\U0001f1ea",
    ]
    ours = live.evaluate("texts => texts.map(text => encode(state.run.tokenizer, text))", texts)
    assert ours == [model.tokenizer.encode(text) for text in texts]


@needs_chromium
def test_the_error_function(live):
    at = [*np.linspace(-6, 6, 241).tolist(), 1e-9, -1e-3, 2.4999, 2.5, 30.0]
    found = live.evaluate("x => x.map(erf)", at)
    assert np.abs(np.array(found) - [math.erf(x) for x in at]).max() < 1e-14


@needs_chromium
def test_everything_follows_what_is_typed(live, model):
    text = "ROMEO:\nWhat light"
    typed(live, text)
    ids = model.tokenizer.encode(text)
    trace = gpt2np.Trace()
    logits = gpt2np.forward(model.params, ids, probe=trace)[0, -1].astype(np.float64)
    T = len(ids)
    assert live.locator("#choose-token label").count() == T
    assert live.text_content("#n-tokens") == str(T)
    assert live.text_content(".raw .text") == text
    assert live.locator(".ids .chips span").all_text_contents() == [str(id) for id in ids]
    p = softmax(logits)
    rows = live.locator("#next-table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    for row, id in zip(rows, np.argsort(-p), strict=False):
        assert row[1].strip("\u2007\u2008") == str(id)
        assert float(row[3].strip("\u2007\u2008")) == pytest.approx(p[id], rel=5.2e-4)
    score = gpt2np.score(model, text, bos=False)
    bits = live.locator("#tokens-table tbody tr").evaluate_all(
        "rows => rows.map(r => r.cells[3].textContent)"
    )
    for shown, surprisal in zip(bits[1:], score.surprisal[1:], strict=True):
        assert float(shown.strip("\u2007\u2008")) == pytest.approx(surprisal, rel=6e-4)
    live.evaluate("choose({ token: 2, block: 1, head: 3 }); set({ open: 1 })")
    live.wait_for_function(SETTLED)
    norm = live.text_content('.reading[data-name="mlp.c_proj"]').removeprefix("norm ")
    assert float(norm) == pytest.approx(np.linalg.norm(trace["h.1.mlp.c_proj"][0, 2]), rel=6e-4)
    # Any cell is taken apart, with the model's own weights.
    live.evaluate("set({ taken: ['mlp.c_fc', 0, 77] })")
    live.wait_for_function(SETTLED)
    lines = live.locator('[data-cells="mlp.c_fc"] tbody tr td:last-child').all_text_contents()
    result = float(lines[-1].strip("\u2007\u2008"))
    assert result == pytest.approx(trace["h.1.mlp.c_fc"][0, 2, 77], rel=6e-4)
    assert len(lines) == 6 + 3


@needs_chromium
def test_drawing_appends_a_token_and_the_cache_grows(live, model):
    typed(live, TEXT)
    T = len(model.tokenizer.encode(TEXT))
    live.evaluate("set({ temperature: 0 })")
    live.wait_for_function(SETTLED)
    greedy = gpt2np.generate(model, TEXT, max_new_tokens=3, temperature=0)
    for n in range(1, 4):
        live.click("#draw")
        live.wait_for_function(SETTLED)
        assert live.evaluate("state.run.ids") == [*model.tokenizer.encode(TEXT), *greedy.ids[:n]]
        told = live.text_content("#live-told")
        assert told.startswith(f"{T + n} tokens, {T + n - 1} of them out of the cache")
        assert f"Kept after {T + n} tokens" in live.text_content("#kept")
    assert live.input_value("#live-text") == TEXT + greedy.text
    live.click("[type=reset]")


@needs_chromium
def test_a_head_is_switched_off(live, model):
    typed(live, TEXT)
    live.evaluate("choose({ block: 3, head: 3 })")
    live.wait_for_function(SETTLED)
    live.check("#head-off")
    live.wait_for_function(SETTLED)
    assert live.text_content("#off-told") == "Off: h.3 head 3."

    def ablate(name, array):
        if name == "h.3.attn.z":
            array = array.copy()
            array[:, :, 3] = 0
            return array
        return None

    expected = gpt2np.forward(model.params, model.tokenizer.encode(TEXT), probe=ablate)[0, -1]
    found = np.array(live.evaluate("Array.from(state.run.logits)"))
    assert np.abs(found - expected).max() < 1e-4
    live.click("#all-on")
    live.wait_for_function(SETTLED)
    found = np.array(live.evaluate("Array.from(state.run.logits)"))
    assert (
        np.abs(found - gpt2np.forward(model.params, model.tokenizer.encode(TEXT))[0, -1]).max()
        < 1e-4
    )


@needs_chromium
def test_two_texts_are_held_against_each_other(live, model):
    typed(live, TEXT)
    other = "O Julia, my"
    live.fill("#other-text", other)
    live.wait_for_function(SETTLED)
    rows = live.locator("#other-table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    vectors = []
    for text in (TEXT, other):
        trace = gpt2np.Trace()
        gpt2np.forward(model.params, model.tokenizer.encode(text), probe=trace)
        vectors.append(trace["h.2"][0, -1].astype(np.float64))
    x, y = vectors
    cosine = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
    assert rows[3][0] == "h.2"
    assert float(rows[3][3]) == pytest.approx(cosine, rel=6e-4, abs=1e-6)
    live.fill("#other-text", "")
    live.wait_for_function(SETTLED)
    assert not live.is_visible("#compared")


@needs_chromium
def test_no_axe_violations(live):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    typed(live, TEXT)
    live.fill("#other-text", "O")
    live.wait_for_function(SETTLED)
    found = axe.Axe().run(live, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []
    live.fill("#other-text", "")


@needs_chromium
def test_what_cannot_be_run_is_told(live):
    typed(live, TEXT)
    before = live.evaluate("state.run.T")
    live.fill("#live-text", "")
    assert live.text_content("#live-told") == "Type a text."
    live.fill("#live-text", " so" * 65)
    assert live.text_content("#live-told") == "65 tokens: this page shows at most 64."
    assert live.evaluate("state.run.T") == before


# What is refused


def test_size_of_the_live_page(model, tmp_path):
    explorer.write_page(tmp_path / "page.html", model, "a", live=True)
    assert (tmp_path / "page.html").stat().st_size < 18e6


def test_what_is_too_large_or_unknown_is_refused(params_124m):
    with pytest.raises(InputError, match=r"would have about 664 MB, and .* not .* more than 64"):
        explorer.explain(gpt2np.Model(params_124m, Tokenizer.gpt2()), "a", live=True)
    with pytest.raises(InputError, match="the page's script has no relu, only gelu"):
        explorer.explain(small(activation_function="relu"), "a", live=True)
    assert Config(**PRESETS["gpt2"].__dict__).activation_function == "gelu_new"


def test_the_command_writes_it(run, tmp_path, model):
    path = str(tmp_path / "page.html")
    assert run("explain", "--html", path, "--live", "--text", "a")[0] == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text == page_module.page(Run(model, "a"), live=True)
    code, _, err = run("explain", "--live")
    assert (code, err) == (2, "gpt2np: error: --live is for the page: add --html FILE\n")
