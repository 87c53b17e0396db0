"""The explorer's page in a browser: quiet, complete, usable by keyboard, and telling the truth."""

import os
import re
import shutil
from contextlib import contextmanager

import numpy as np
import pytest

import gpt2np
from gpt2np import explorer
from gpt2np.explorer.figures import number
from gpt2np.explorer.run import shown
from gpt2np.layers import softmax
from gpt2np.sampling import Sampling

playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium; CHROMIUM names one")

TEXT = "ROMEO:\nBut, soft! what light through yonder window breaks?"
ATTACK = "</script><img src=x onerror=\"document.title='hacked'\"><!--<script>\u2028 😀"
WIDE, PHONE = {"width": 1100, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def model():
    return gpt2np.load()


@pytest.fixture(scope="module")
def trace(model):
    trace = gpt2np.Trace()
    gpt2np.forward(model.params, model.tokenizer.encode(TEXT), probe=trace)
    return trace


@pytest.fixture(scope="module")
def tokens(model):
    return [shown(model.tokenizer.token_bytes(id)) for id in model.tokenizer.encode(TEXT)]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    explorer.write_page(path, model, TEXT)
    return path.as_uri()


@contextmanager
def quietly(browser, url):
    """Give a function that opens pages; they may say nothing on the console, ask for nothing."""
    contexts, said, asked, opened = [], [], [], []

    def open_page(address=url, **options):
        context = browser.new_context(**{"viewport": WIDE, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        opened.append(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert asked == opened


@pytest.fixture
def open_page(browser, url):
    with quietly(browser, url) as open_page:
        yield open_page


@pytest.fixture
def page(open_page):
    return open_page()


@pytest.fixture(scope="module")
def kept_page(browser, url):
    """One page for tests that set all that they look at."""
    with quietly(browser, url) as open_page:
        yield open_page()


def choose(page, name, value):
    """Choose by a click on the label, as readers do."""
    page.locator(f"#{name} label").nth(value).click()


def reading(page, name):
    return page.locator(f'.reading[data-name="{name}"]').text_content()


def close(shown, value):
    return float(shown) == pytest.approx(value, rel=5.1e-4)


# Everything opens


def test_every_box_opens(page):
    boxes = page.locator(".flow details.box:not([name])")
    names = boxes.evaluate_all("boxes => boxes.map(box => box.id)")
    assert len(names) == 19
    page.locator("[id='h.0'] > summary").click()
    for name in names:
        sheet = page.locator(f"[id='{name}'] > .sheet")
        assert not sheet.is_visible()
        page.locator(f"[id='{name}'] > summary").click()
        assert sheet.locator("math").is_visible()
        assert sheet.locator("math").bounding_box()["height"] > 5
        sheet.locator("summary").click()
        assert sheet.locator("pre").is_visible()


def test_blocks_open_one_at_a_time_and_show_their_numbers(page, model, trace):
    for i in range(model.config.n_layer):
        page.locator(f"[id='h.{i}'] > summary").click()
        assert page.locator("details[name=block][open]").count() == 1
        page.locator(f"[id='h.{i}'] #inside").wait_for()
        assert page.locator(f"#choose-mlp-block [value='{i}']").is_checked()
        norm = np.linalg.norm(trace[f"h.{i}.mlp.c_proj"][0, -1])
        assert close(reading(page, "mlp.c_proj").removeprefix("norm "), norm)
    choose(page, "choose-attention-block", 1)  # the flow follows
    page.locator("[id='h.1'] #inside").wait_for()


def test_tables_of_numbers_open(page):
    for details in page.locator(".numbers").all():
        assert not details.locator("table").is_visible()
        details.locator("summary").click()
        assert details.locator("table").is_visible()


# What it shows


@pytest.mark.parametrize(("t", "block", "head"), [(0, 0, 0), (6, 1, 3), (15, 3, 2)])
def test_values_are_the_traces(kept_page, model, trace, tokens, t, block, head):
    page = kept_page
    choose(page, "choose-token", t)
    choose(page, "choose-attention-block", block)
    choose(page, "choose-head", head)

    assert reading(page, "tokenizer") == f"{tokens[t]} is {model.tokenizer.encode(TEXT)[t]}"
    for name in ("wte", "wpe", "ln_f"):
        norm = np.linalg.norm(trace[name][0, t])
        assert close(reading(page, name).removeprefix("norm "), norm), name
    for name in (
        "ln_1",
        "attn.c_attn",
        "attn.z",
        "attn.c_proj",
        "resid_mid",
        "ln_2",
        "mlp.c_fc",
        "mlp.act",
        "mlp.c_proj",
    ):
        norm = np.linalg.norm(trace[f"h.{block}.{name}"][0, t])
        assert close(reading(page, name).removeprefix("norm "), norm), name
    assert close(
        reading(page, "h.{i}").removeprefix("norm "), np.linalg.norm(trace[f"h.{block}"][0, t])
    )

    pattern = trace[f"h.{block}.attn.pattern"][0, head, t]
    best = np.argsort(-pattern, kind="stable")[: min(3, t + 1)]
    listed = ", ".join(f"{tokens[s]} {number(pattern[s])}" for s in best)
    assert page.locator("#attention-readout").text_content() == (
        f"In block h.{block}, head {head}, {tokens[t]} takes most from {listed}."
    )
    cell = page.locator("#attention-table tbody tr").nth(block).locator("td").nth(head)
    assert cell.text_content() == f"{tokens[best[0]]} {number(pattern[best[0]])}"

    act = trace[f"h.{block}.mlp.act"][0, t]
    said = page.locator("#mlp-readout").text_content()
    assert f"{number(100 * (act > 0).mean())}% of the units" in said
    for unit in np.argsort(-act)[:5]:
        assert f"unit {unit} ({number(act[unit])})" in said
    assert close(page.locator("#mlp-largest").text_content(), trace[f"h.{block}.mlp.act"].max())

    p = softmax(trace["logits"][0, t])
    last = page.locator("#lens-now tr").last.locator("td").all_text_contents()
    for cell, id in zip(last, np.argsort(-p)[:5], strict=True):
        assert cell == f"{shown(model.tokenizer.token_bytes(int(id)))} {number(p[id])}"
    norm = np.linalg.norm(trace["h.3"][0, t])
    assert f"{number(norm)} as it leaves the last" in page.locator("#stream-readout").text_content()


PIXELS = """canvas => [...canvas.getContext("2d")
                      .getImageData(0, 0, canvas.width, canvas.height).data]"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_maps_are_the_patterns(open_page, trace, scheme):
    """The share of colour in each pixel is the weight, to 8 bits and the colour's own rounding."""
    page = open_page(color_scheme="dark" if scheme == "light" else "light")
    page.emulate_media(color_scheme=scheme)  # a change while it is open
    choose(page, "choose-attention-block", 1)
    choose(page, "choose-head", 2)
    T = 16
    pixels = np.array(page.locator("#attention-map canvas").evaluate(PIXELS)).reshape(T, T, 4)
    paper = pixels[0, -1, :3].astype(float)
    assert (paper > 200).all() == (scheme == "light")
    ink = [
        int(part)
        for part in re.findall(
            r"\d+",
            page.locator("#attention-map canvas").evaluate(
                "canvas => getComputedStyle(canvas).color"
            ),
        )
    ]
    share = (pixels[..., 0] - paper[0]) / (ink[0] - paper[0])
    pattern = trace["h.1.attn.pattern"][0, 2]
    assert np.abs(share - pattern).max() < 0.5 / 255 + 0.6 / abs(ink[0] - paper[0])


def test_pointing_at_a_token_shows_it_for_as_long(page, tokens):
    before = page.locator("#attention-readout").text_content()
    page.locator("#choose-token label").nth(4).hover()
    assert f"head 0, {tokens[4]} takes" in page.locator("#attention-readout").text_content()
    assert page.locator("#gaze .current").text_content() == tokens[4]
    assert reading(page, "tokenizer").startswith(f"{tokens[4]} is ")
    page.mouse.move(5, 5)
    assert page.locator("#attention-readout").text_content() == before
    page.locator("#gaze span").nth(9).hover()
    assert f"head 0, {tokens[9]} takes" in page.locator("#attention-readout").text_content()


def test_pointing_at_a_row_of_a_map_shows_its_token(page, tokens):
    canvas = page.locator("#mlp-map canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 9, box["y"] + box["height"] * 6.5 / 16)
    assert f"above 0 at {tokens[6]}." in page.locator("#mlp-readout").text_content()
    page.mouse.click(box["x"] + 9, box["y"] + box["height"] * 8.5 / 16)
    assert page.locator("#choose-token [value='8']").is_checked()


# Sampling


def set_slider(page, name, value):
    page.locator(f"#{name}").evaluate(
        "(slider, value) => { slider.value = value; "
        "slider.dispatchEvent(new Event('input', { bubbles: true })) }",
        value,
    )


@pytest.mark.parametrize(
    ("temperature", "k", "p"),
    [
        (1, 12, 1),
        (0.5, 12, 1),
        (2, 12, 1),
        (1, 4, 1),
        (1, 12, 0.9),
        (1.5, 9, 0.35),
        (0.7, 6, 0.8),
        (1, 12, 0),
        (0, 12, 1),
        (0.1, 12, 1),
    ],
)
def test_sliders_sample_as_generate_does(kept_page, model, trace, temperature, k, p):
    page = kept_page
    set_slider(page, "temperature", temperature)
    set_slider(page, "top-k", k)
    set_slider(page, "top-p", p)
    top_k = [1, 2, 3, 5, 10, 20, 40, 100, 200, 500, 1000, 5000, None][k]
    logits = trace["logits"][0, -1].astype(np.float64)
    kept = Sampling(temperature=temperature, top_k=top_k, top_p=p).logits([], logits)
    if temperature == 0:
        kept = np.where(kept == kept.max(), kept, -np.inf)
    expected = softmax(kept)
    n = np.count_nonzero(expected)
    entropy = -(expected[expected > 0] * np.log2(expected[expected > 0])).sum()
    assert page.locator("#sampling-readout").text_content() == (
        f"{n:,} of 50,257 tokens can be drawn, with {number(abs(entropy))} bits of entropy."
    )
    rows = page.locator("#next-table tbody tr").evaluate_all(
        "rows => rows.map(row => [row.className, ...[...row.cells].map(c => c.textContent)])"
    )
    for row, id in zip(rows, np.argsort(-logits)[:20], strict=True):
        assert row[2] == str(id)
        assert float(row[4]) == pytest.approx(expected[id], rel=5.1e-4)
        assert ("left-out" in row[0]) == (expected[id] == 0)
    for _ in range(5):
        page.locator("#draw").click()
        drawn, chance = page.locator("#drawn").text_content().split("), p = ")
        id = int(drawn.rpartition("(")[2])
        assert float(chance) == pytest.approx(expected[id], rel=5.1e-4)
        assert expected[id] > 0


def test_reset_takes_the_sliders_back(page):
    before = page.locator("#sampling-readout").text_content()
    for name in ("temperature", "top-k", "top-p"):
        set_slider(page, name, 0)
    assert page.locator("#sampling-readout").text_content().startswith("1 of 50,257")
    page.locator("[type=reset]").click()
    page.wait_for_function(
        "before => document.querySelector('#sampling-readout').textContent === before", arg=before
    )


# Keyboard, screen readers, phones


def test_keyboard(page, tokens):
    for _ in range(7):
        page.keyboard.press("Tab")  # the seven links
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "choose-token"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert reading(page, "tokenizer").startswith(f"{tokens[-3]} is ")
    page.keyboard.press("Tab")  # out of the tokens in one step, to the first box
    assert page.evaluate("document.activeElement.parentElement.id") == "tokenizer"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert page.locator("#tokenizer .sheet").is_visible()
    page.locator("#temperature").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#temperature-value").text_content() == "1.05"
    page.locator("#draw").focus()
    page.keyboard.press("Space")
    assert "p = " in page.locator("#drawn").text_content()


def test_every_control_can_be_reached_in_order(page):
    """Tab goes through the page once, down it, and through everything that can be used."""
    controls = page.evaluate("""() => [...document.querySelectorAll("a, summary, input, button, "
        + "[tabindex]")].filter(e => e.checkVisibility() && (e.type !== "radio" || e.checked))
        .map((e, i) => (e.dataset.order = i))""")
    reached = []
    for _ in controls:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("Number(document.activeElement.dataset.order)"))
    assert reached == controls


def violations(page):
    """What axe finds: of any impact, best practices included."""
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(v["id"], [node["html"][:200] for node in v["nodes"][:3]]) for v in found]


@pytest.mark.parametrize(
    ("scheme", "viewport"), [("light", WIDE), ("dark", PHONE)], ids=["light, wide", "dark, phone"]
)
def test_no_axe_violations(open_page, scheme, viewport):
    page = open_page(color_scheme=scheme, viewport=viewport)
    page.locator("[id='h.1'] > summary").click()
    page.evaluate("for (const e of document.querySelectorAll('details:not([name])')) e.open = true")
    choose(page, "choose-token", 5)
    set_slider(page, "top-k", 3)
    assert violations(page) == []


@pytest.mark.parametrize("width", [320, 360, 768])
def test_does_not_scroll_sideways(open_page, width):
    page = open_page(viewport={"width": width, "height": 740})
    page.locator("[id='h.1'] > summary").click()
    page.evaluate("for (const e of document.querySelectorAll('details:not([name])')) e.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_motion_is_reduced_where_asked(open_page):
    for wish, behaviour in (("reduce", "auto"), ("no-preference", "smooth")):
        page = open_page(reduced_motion=wish)
        found = page.evaluate("getComputedStyle(document.documentElement).scrollBehavior")
        assert found == behaviour


def test_without_a_script(open_page, tokens):
    page = open_page(java_script_enabled=False)
    assert page.locator("input:visible, button:visible, fieldset:visible").count() == 0
    page.locator("[id='h.0'] > summary").click()
    page.locator("[id='attn.pattern'] > summary").click()
    assert page.locator("[id='attn.pattern'] math").is_visible()
    page.locator("[id='h.2'] > summary").click()
    assert page.get_by_text("The same steps as in h.0").nth(1).is_visible()
    assert all(table.is_visible() for table in page.locator("#stream table").all())
    assert page.locator("#tokens tbody th").all_text_contents() == tokens


def test_hostile_text_is_text(open_page, model, tmp_path):
    explorer.write_page(tmp_path / "page.html", model, ATTACK)
    page = open_page((tmp_path / "page.html").as_uri())
    page.evaluate("for (const t of run.tokens.keys()) choose({ token: t })")
    assert page.locator("img").count() == 0
    assert page.title().startswith("Inside GPT-2: </script><img src=x")
    assert page.locator("blockquote").text_content() == ATTACK
