"""The explorer's page in a browser: quiet, complete, usable by keyboard, and telling the truth."""

import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import gpt2np
from gpt2np import Params, explorer
from gpt2np.anatomy import COMPONENTS, find
from gpt2np.config import PRESETS
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
        opened.append(address.split("#")[0])
        return page if options.get("java_script_enabled") is False else settled(page)

    yield open_page
    for context in contexts:
        context.close()
    ours = "Canvas2D: Multiple readback"  # which only these tests do
    assert [text for text in said if not text.startswith(ours)] == []
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


def settled(page):
    """Wait until all that follows the state is drawn, what is out of sight included."""
    page.wait_for_function("() => state.run && !frame && stale().length === 0")
    return page


def choose(page, name, value):
    """Choose by a click on the label, as readers do."""
    page.locator(f"#{name} label").nth(value).click()
    settled(page)


def open_block(page, block):
    if page.locator(f"[id='h.{block}']").get_attribute("open") is None:
        page.locator(f"[id='h.{block}'] > summary").click()
    settled(page)


def said(page, id):
    return settled(page).locator(f"#{id}").text_content()


def reading(page, name):
    settled(page)
    return page.locator(f'.reading[data-name="{name}"]').text_content()


def close(shown, value):
    shown = shown.strip("\u2007\u2008")
    if shown in ("< 0.0001", "> -0.0001"):
        return 0 < abs(value) < 1e-4 and (value > 0) == (shown[0] == "<")
    return float(shown) == pytest.approx(value, rel=5.1e-4)


# Everything opens


def test_every_box_opens(page):
    boxes = page.locator(".flow details.box:not([name])")
    names = boxes.evaluate_all("boxes => boxes.map(box => box.id)")
    assert len(names) == 20
    for name in names:
        sheet = page.locator(f"[id='{name}'] > .sheet")
        assert not sheet.is_visible()
        page.locator(f"[id='{name}'] > summary").click()
        assert sheet.locator("math").is_visible()
        assert sheet.locator("math").bounding_box()["height"] > 5
        sheet.locator("summary").click()
        assert sheet.locator("pre").is_visible()


def test_blocks_open_one_at_a_time_and_show_their_numbers(page, model, trace):
    for i in (1, 2, 3, 0):  # the first is open as the page opens
        page.locator(f"[id='h.{i}'] > summary").click()
        settled(page)
        assert page.locator("details[name=block][open]").count() == 1
        page.locator(f"[id='h.{i}'] #inside").wait_for()
        assert page.locator(f"#choose-mlp-block [value='{i}']").is_checked()
        norm = np.linalg.norm(trace[f"h.{i}.mlp.c_proj"][0, -1])
        assert close(reading(page, "mlp.c_proj").removeprefix("norm "), norm)
    choose(page, "choose-block", 1)  # the flow follows
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
    choose(page, "choose-block", block)
    choose(page, "choose-head", head)
    open_block(page, block)

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
    assert said(page, "attention-readout") == (
        f"In block h.{block}, head {head}, {tokens[t]} takes most from {listed}."
    )
    cell = page.locator("#attention-table tbody tr").nth(block).locator("td").nth(head)
    shown_pair = cell.text_content().rstrip("\u2007\u2008")
    assert shown_pair == f"{tokens[best[0]]} {number(pattern[best[0]])}"

    act = trace[f"h.{block}.mlp.act"][0, t]
    told = said(page, "mlp-readout")
    assert f"{number(100 * (act > 0).mean())}% of the units" in told
    for unit in np.argsort(-act)[:5]:
        assert f"unit {unit} ({number(act[unit])})" in told
    assert close(page.locator("#mlp-largest").text_content(), trace[f"h.{block}.mlp.act"].max())

    p = softmax(trace["logits"][0, t])
    last = page.locator("#lens-now tr").last.locator("td").all_text_contents()
    for cell, id in zip(last, np.argsort(-p)[:5], strict=True):
        named = shown(model.tokenizer.token_bytes(int(id)))
        assert cell.rstrip("\u2007\u2008") == f"{named} {number(p[id])}"
    norm = np.linalg.norm(trace["h.3"][0, t])
    assert f"{number(norm)} as it leaves the last" in said(page, "stream-readout")


PIXELS = """canvas => [...canvas.getContext("2d")
                      .getImageData(0, 0, canvas.width, canvas.height).data]"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_maps_are_the_patterns(open_page, trace, scheme):
    """The share of colour in each pixel is the weight, to 8 bits and the colour's own rounding."""
    page = open_page(color_scheme="dark" if scheme == "light" else "light")
    page.emulate_media(color_scheme=scheme)  # a change while it is open
    choose(page, "choose-block", 1)
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


def vectors_of(trace, block, head, t):
    """What the cells under each box are: of each row the true numbers."""
    h, K = f"h.{block}", trace["h.0.attn.q"].shape[-1]
    before = trace[f"h.{block - 1}"] if block else trace["wte"] + trace["wpe"]
    scores = trace[f"{h}.attn.scores"][0, head, t, : t + 1]
    flat = {
        name: trace[f"{h}.{name}"][0, t].ravel()
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
        )
    }
    return {
        "wte": [trace["wte"][0, t]],
        "wpe": [trace["wpe"][0, t]],
        "embed": [trace["wte"][0, t] + trace["wpe"][0, t]],
        **{name: [x] for name, x in flat.items()},
        "ln_1": [before[0, t], flat["ln_1"]],
        "ln_2": [flat["resid_mid"], flat["ln_2"]],
        "attn.c_attn": np.split(flat["attn.c_attn"], 3),
        "attn.scores": [scores * np.sqrt(K), scores],
        "attn.pattern": [trace[f"{h}.attn.pattern"][0, head, t, : t + 1]],
        "h.{i}": [trace[h][0, t]],
        "ln_f": [trace["h.3"][0, t], trace["ln_f"][0, t]],
    }


@pytest.mark.parametrize(("t", "block", "head"), [(0, 0, 0), (6, 2, 3), (15, 3, 1)])
def test_cells_are_the_traces_vectors(kept_page, trace, t, block, head):
    """Every cell: its number to four digits, and its shade by the largest of the row."""
    page = kept_page
    page.evaluate("s => choose(s)", {"token": t, "head": head})
    open_block(page, block)
    rows = vectors_of(trace, block, head, t)
    assert set(rows) | {"logits"} == set(page.evaluate("Object.keys(CELLS)"))
    for name, expected in rows.items():
        place = page.locator(f'[data-cells="{name}"]')
        assert place.locator("[role=slider]").count() == len(expected)
        for row, numbers in enumerate(expected):
            told = page.evaluate(
                "([name, row]) => { const x = CELLS[name][row][1](state, state.token);"
                " return Array.from(x, (_, i) => tell(state, state.token, name, [name, row, i], x)"
                ".map(part => part.textContent ?? part).join('')) }",
                [name, row],
            )
            assert len(told) == len(numbers)
            for i, (text, value) in enumerate(zip(told, numbers, strict=True)):
                place_of, shown = re.fullmatch(
                    r"(.*?): (\S+|< \S+|> \S+?)(?:\. Choose.*)?", text
                ).groups()
                assert place_of.endswith((str(i), f"head {i // 32}, {i % 32}", f"({i})"))
                near_zero = (
                    abs(value) < 1e-3 and shown[0] not in "<>" and abs(float(shown) - value) < 1e-6
                )
                assert close(shown, value) or near_zero, (name, row, i)
            canvas = place.locator("canvas").nth(row)
            pixels = np.array(canvas.evaluate(PIXELS)).reshape(-1, 4)[: len(numbers)]
            strongest = pixels[np.abs(numbers).argmax()]
            part = "color" if numbers[np.abs(numbers).argmax()] > 0 else "borderTopColor"
            ink = [
                int(n)
                for n in re.findall(
                    r"\d+",
                    canvas.evaluate("(canvas, part) => getComputedStyle(canvas)[part]", part),
                )
            ]
            assert strongest[:3].tolist() == ink[:3], (name, row)


def terms_shown(page, name):
    """The table under a box: its lines, as the name and the numbers of each."""
    settled(page)
    lines = page.locator(f'[data-cells="{name}"] tbody tr').evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return [[cell.strip("\u2007\u2008") for cell in line] for line in lines]


def check_terms(lines, x, w, bias, expected):
    """x and w are the whole vectors: those listed are the largest terms, and all make the sum."""
    products = x.astype(np.float64) * w
    order = np.argsort(-np.abs(products), kind="stable")[:6]
    for line, i in zip(lines, order, strict=False):
        assert close(line[1], x[i])
        assert close(line[2], w[i])
        assert close(line[3], products[i])
    rest = [line for line in lines if line[0].endswith("other terms")]
    if rest:
        others = products.sum() - products[order].sum()
        assert rest[0][0] == f"{len(x) - 6} other terms"
        assert float(rest[0][3]) == pytest.approx(others, rel=6e-4, abs=2e-5)
    if bias is not None:
        assert close(lines[-2][3], bias)
    assert float(lines[-1][3]) == pytest.approx(expected, rel=6e-4, abs=2e-5)


@pytest.mark.parametrize(("t", "block", "head"), [(15, 0, 2), (7, 3, 1)])
def test_cells_are_taken_apart_with_the_true_weights(kept_page, model, trace, t, block, head):
    page, p = kept_page, model.params
    page.evaluate("s => choose(s)", {"token": t, "head": head})
    open_block(page, block)
    h = f"h.{block}"
    q, k, v = (trace[f"{h}.attn.{name}"][0, head] for name in "qkv")
    for s in (0, t // 2, t):  # any key, any cell of z
        page.evaluate("taken => set({ taken })", ["attn.scores", 0, s])
        check_terms(terms_shown(page, "attn.scores"), q[t], k[s], None, q[t] @ k[s])
    pattern = trace[f"{h}.attn.pattern"][0, head, t]
    for i in (0, 17):
        page.evaluate("taken => set({ taken })", ["attn.z", 0, 32 * head + i])
        expected = trace[f"{h}.attn.z"][0, t, head, i]
        check_terms(terms_shown(page, "attn.z"), pattern[: t + 1], v[: t + 1, i], None, expected)
    for name, source in {
        "attn.c_attn": "ln_1",
        "attn.c_proj": "attn.z",
        "mlp.c_fc": "ln_2",
        "mlp.c_proj": "mlp.act",
    }.items():
        x = trace[f"{h}.{source}"][0, t].ravel()
        for row in range(3 if name == "attn.c_attn" else 1):
            marks = page.evaluate(
                "([name, row]) => marked(state, state.token, name, row)", [name, row]
            )
            assert len(marks) == 4
            for index in marks[:2]:
                page.evaluate("taken => set({ taken })", [name, row, index])
                cell = index + 128 * row
                check_terms(
                    terms_shown(page, name),
                    x,
                    p[f"{h}.{name}.weight"][:, cell],
                    p[f"{h}.{name}.bias"][cell],
                    trace[f"{h}.{name}"][0, t, cell],
                )
    best = np.argsort(-trace["logits"][0, t])[:4]
    for n, id in enumerate(best):
        page.evaluate("taken => set({ taken })", ["logits", 0, n])
        check_terms(
            terms_shown(page, "logits"),
            trace["ln_f"][0, t],
            p.wte[id],
            None,
            trace["logits"][0, t, id],
        )


def test_cells_by_pointer_and_keyboard(page, trace):
    slider = page.locator('[data-cells="wte"] [role=slider]')
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 17.5 / 128, box["y"] + 5)
    told = page.locator('[data-cells="wte"] .told')
    settled(page)
    assert close(told.text_content().removeprefix("17: "), trace["wte"][0, -1, 17])
    slider = page.locator('[data-cells="mlp.c_proj"] [role=slider]')
    slider.focus()
    page.keyboard.press("End")
    settled(page)
    assert slider.get_attribute("aria-valuenow") == "127"
    assert slider.get_attribute("aria-valuetext").startswith("127: ")
    page.keyboard.press("m")  # to a cell that is marked
    settled(page)
    cell = int(slider.get_attribute("aria-valuenow"))
    assert cell in page.evaluate("marked(state, state.token, 'mlp.c_proj', 0)")
    page.keyboard.press("Enter")
    lines = terms_shown(page, "mlp.c_proj")
    assert close(lines[-1][3], trace["h.0.mlp.c_proj"][0, -1, cell])


def test_vectors_of_the_last_token_alone(open_page, model, tmp_path, trace):
    explorer.write_page(tmp_path / "page.html", model, TEXT, vectors="last")
    page = open_page((tmp_path / "page.html").as_uri())
    q, k = (trace[f"h.0.attn.{name}"][0] for name in "qk")
    head = page.evaluate("state.head")
    key = int((q[head, -1] @ k[head].T).argmax())
    check_terms(
        terms_shown(page, "attn.scores"),
        q[head, -1],
        k[head, key],
        None,
        q[head, -1] @ k[head, key],
    )
    choose(page, "choose-token", 3)
    told = page.locator('[data-cells="ln_1"] .told')
    assert told.text_content() == "The page has the vectors of the last token alone."
    assert "Vectors are kept of the last token alone" in page.locator("footer").text_content()


def test_guided_way_goes_through_every_box(open_page, tokens):
    """One sentence of the ledger and one box at a time, in sight, from bytes to a prediction."""
    page = open_page(reduced_motion="reduce")
    choose(page, "choose-token", 6)
    page.locator("#guide-start").click()
    names = [c.name for c in COMPONENTS if c.name != "cache"]
    names.insert(names.index("attn.c_attn") + 1, "cache")
    for n, name in enumerate(names):
        settled(page)
        page.wait_for_timeout(60)
        assert page.locator(".guided").count() == 1
        item = page.locator(".guided")
        assert item.get_attribute("data-step") == name
        box = item.locator("> details").bounding_box()
        assert 0 < box["y"] < 900 - page.locator("#guide").bounding_box()["height"]
        told = page.locator("#guide-told").text_content()
        component = find(name)
        assert told.startswith(f"{n + 1} of {len(names)}: {component.title}. ")
        first = re.match(r"(.*?\.)(?= [A-Z]|$)", component.explanation)[1]
        assert f"{first} For {tokens[6]}: " in told
        if n < len(names) - 1:
            page.locator("#guide-next").click()
    assert page.locator("#guide-next").is_disabled()
    page.locator("#guide-end").click()
    settled(page)
    assert page.locator(".guided").count() == 0


def test_what_is_chosen_stands_in_the_address(open_page, url):
    page = open_page()
    assert "#" not in page.url
    choose(page, "choose-token", 3)
    choose(page, "choose-block", 2)
    choose(page, "choose-head", 1)
    page.locator("#guide-start").click()
    settled(page)
    page.wait_for_url(f"{url}#token=3&block=2&head=1&step=0")
    other = open_page(page.url)
    assert other.evaluate("ADDRESSED.map(key => state[key])") == [3, 2, 1, 0]
    assert other.locator("[id='h.2']").get_attribute("open") == ""
    assert other.locator(".guided").count() == 1
    wild = open_page(f"{url}#token=99&block=-1&head=1e1&step=<script>&x=1")
    assert wild.evaluate("ADDRESSED.map(key => state[key])") == [
        15,
        *page.evaluate(
            "(() => { const o = JSON.parse(document.getElementById('run').textContent).opening;"
            " return [o.block, o.head, null] })()"
        ),
    ]


def test_merges_are_shown_one_by_one(page, tokens):
    choose(page, "choose-token", tokens.index("·light"))
    steps = page.locator("[data-cells=tokenizer] li").all_text_contents()
    assert steps[0] == "·light bytes"
    assert steps[-1].startswith("·light merge ")
    assert len(steps) == 1 + 5  # six bytes, five merges


def test_pointing_at_a_token_shows_it_for_as_long(page, tokens):
    before = said(page, "attention-readout")
    page.locator("#choose-token label").nth(4).hover()
    assert f", {tokens[4]} takes" in said(page, "attention-readout")
    assert said(page, "gaze .current") == tokens[4]
    assert reading(page, "tokenizer").startswith(f"{tokens[4]} is ")
    page.mouse.move(5, 5)
    assert said(page, "attention-readout") == before
    page.locator("#gaze span").nth(9).hover()
    assert f", {tokens[9]} takes" in said(page, "attention-readout")


def test_pointing_at_a_row_of_a_map_shows_its_token(page, tokens):
    canvas = page.locator("#mlp-map canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 9, box["y"] + box["height"] * 6.5 / 16)
    assert f"above 0 at {tokens[6]}." in said(page, "mlp-readout")
    page.mouse.click(box["x"] + 9, box["y"] + box["height"] * 8.5 / 16)
    assert settled(page).locator("#choose-token [value='8']").is_checked()


SENTENCE = "the king and queen of light come here to see us "


@pytest.fixture(scope="module")
def page_of(model, tmp_path_factory):
    """Give a function that writes a page of so many tokens, once, and tells where it is."""
    folder, written = tmp_path_factory.mktemp("pages"), {}

    def page_of(n, model=model):
        if n not in written:
            path = folder / f"{n}.html"
            words = (SENTENCE * 7).split(" ")[:n]
            explorer.write_page(path, model, " ".join(words))
            written[n] = path.as_uri()
        return written[n]

    return page_of


GEOMETRY = """() => ['attention-map', 'mlp-map'].map(id => {
  const canvas = document.querySelector(`#${id} canvas`).getBoundingClientRect();
  const frame = document.querySelector(`#${id} i`).getBoundingClientRect();
  const middle = e => { const b = e.getBoundingClientRect(); return [(b.left + b.right) / 2,
                                                                     (b.top + b.bottom) / 2] };
  return { canvas: [canvas.left, canvas.top, canvas.width, canvas.height],
           frame: [frame.top, frame.height],
           rows: [...document.querySelectorAll(`#${id} .rows span`)].map(middle),
           columns: [...document.querySelectorAll(`#${id} .columns span`)].map(middle),
           seen: [...document.querySelectorAll(`#${id} .rows span`)].map((e, i) =>
             [e.className !== "left", e.getBoundingClientRect().height]) };
})"""


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("T", [1, 12, 48, 64])
def test_names_stand_at_their_rows_and_columns(open_page, page_of, T, viewport):
    page = open_page(page_of(T), viewport=viewport)
    t = T // 3
    choose(page, "choose-token", t)
    for which, at in enumerate(page.evaluate(GEOMETRY)):
        left, top, width, height = at["canvas"]
        for i, (_, y) in enumerate(at["rows"]):
            assert y == pytest.approx(top + height * (i + 0.5) / T, abs=1)
        for i, (x, _) in enumerate(at["columns"]):
            assert x == pytest.approx(left + width * (i + 0.5) / T, abs=1)
        assert len(at["rows"]) == T
        assert len(at["columns"]) == (T if which == 0 else 0)
        assert at["frame"] == pytest.approx([top + height * t / T, height / T], abs=1)
        seen = [i for i, (shown, _) in enumerate(at["seen"]) if shown]
        assert t in seen
        assert len(seen) >= min(T, 12)
        apart = min((b - a for a, b in pairwise(seen)), default=1)
        assert apart * height / T >= at["seen"][t][1] - 1  # and none covers another


def test_what_is_clicked_stays_where_it_is(page):
    for block in (3, 1, 2, 0):  # the one that is open is above or below
        summary = page.locator(f"[id='h.{block}'] > summary")
        summary.scroll_into_view_if_needed()
        before = summary.bounding_box()["y"]
        summary.click()
        settled(page)
        page.wait_for_timeout(50)
        assert page.locator(f"[id='h.{block}']").get_attribute("open") == ""
        assert summary.bounding_box()["y"] == pytest.approx(before, abs=1)


def test_choosing_among_all_heads(page):
    box = page.locator("#all-heads canvas").bounding_box()
    page.locator("#all-heads canvas").click(
        position={"x": box["width"] * 2.5 / 4, "y": box["height"] * 1.5 / 4}
    )
    settled(page)
    assert page.locator("#choose-block [value='1']").is_checked()
    assert page.locator("#choose-head [value='2']").is_checked()
    mark = page.locator("#all-heads i").bounding_box()
    box = page.locator("#all-heads canvas").bounding_box()
    assert mark["x"] == pytest.approx(box["x"] + box["width"] / 2, abs=1)
    assert mark["y"] == pytest.approx(box["y"] + box["height"] / 4, abs=1)


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
    assert said(page, "sampling-readout") == (
        f"{n:,} of 50,257 tokens can be drawn, with {number(abs(entropy))} bits of entropy."
    )
    settled(page)
    rows = page.locator("#next-table tbody tr").evaluate_all(
        "rows => rows.map(row => [row.className, ...[...row.cells].map(c => c.textContent)])"
    )
    for row, id in zip(rows, np.argsort(-logits)[:20], strict=True):
        assert row[2] == str(id)
        assert close(row[4], expected[id])
        assert ("left-out" in row[0]) == (expected[id] == 0)
    for _ in range(5):
        page.locator("#draw").click()
        drawn, chance = page.locator("#drawn").text_content().split("), p = ")
        id = int(drawn.rpartition("(")[2])
        assert close(chance, expected[id])
        assert expected[id] > 0


def test_reset_takes_the_sliders_back(page):
    before = said(page, "sampling-readout")
    for name in ("temperature", "top-k", "top-p"):
        set_slider(page, name, 0)
    assert said(page, "sampling-readout").startswith("1 of 50,257")
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
    page.keyboard.press("Tab")  # out of the tokens in one step, to the guided way
    assert page.evaluate("document.activeElement.id") == "guide-start"
    page.keyboard.press("Tab")  # and to the first box
    assert page.evaluate("document.activeElement.parentElement.id") == "tokenizer"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert page.locator("#tokenizer .sheet").is_visible()
    page.locator("#temperature").focus()
    page.keyboard.press("ArrowRight")
    assert said(page, "temperature-value") == "1.05"
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
    page.evaluate("go(4)")
    settled(page)
    assert violations(page) == []


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("width", [320, 360, 768])
def test_does_not_scroll_sideways(open_page, url, model, tmp_path, width, long):
    if long:  # tokens of 64 characters
        explorer.write_page(tmp_path / "page.html", model, "-" * 128 + "=" * 128)
        url = (tmp_path / "page.html").as_uri()
    page = open_page(url, viewport={"width": width, "height": 740})
    page.locator("[id='h.1'] > summary").click()
    page.evaluate("for (const e of document.querySelectorAll('details:not([name])')) e.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_targets_are_as_wide_as_a_finger(open_page):
    page = open_page(viewport=PHONE, has_touch=True, is_mobile=True)
    small = page.evaluate("""() => [...document.querySelectorAll(
        "label:has([type=radio]), summary, button, nav a, [type=range]")]
        .filter(e => e.checkVisibility()).map(e => [e.outerHTML.slice(0, 80),
                                                    e.getBoundingClientRect().height])
        .filter(([_, height]) => height < 44)""")
    assert small == []
    strip = page.locator("#choose-token").bounding_box()
    chosen = page.locator("#choose-token label:has(:checked)").bounding_box()
    assert strip["x"] <= chosen["x"]
    assert chosen["x"] + chosen["width"] <= strip["x"] + strip["width"] + 1


def test_repeated_tokens_tell_where_they_are(open_page, page_of):
    page = open_page(page_of(12))
    names = page.locator("#choose-token label").all_text_contents()
    assert names[0] == "the, 1 of 12"
    assert names[11] == "·the, 12 of 12"
    assert len(set(names)) == 12


def test_readouts_are_told_to_a_screen_reader(page):
    assert page.locator(".readout").count() == 4
    assert page.locator(".readout[aria-live=polite]").count() == 4


def test_what_is_chosen_shows_in_forced_colours(open_page):
    page = open_page(forced_colors="active")
    outline = """([selector, pseudo]) => getComputedStyle(
        document.querySelector(selector), pseudo).outlineStyle"""
    for selector in (
        "#choose-token :checked + span",
        "#choose-block :checked + span",
        "#attention-map i",
        "#all-heads i",
        "#tokens-table tr.current td",
    ):
        assert page.evaluate(outline, [selector, None]) == "solid", selector
    chosen = "getComputedStyle(document.querySelector('#choose-head :checked + span')).outlineColor"
    other = "getComputedStyle(document.querySelector('#choose-head input + span')).borderColor"
    assert page.evaluate(chosen) != page.evaluate(other)


def test_prints_as_a_document(open_page):
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("nav:visible, fieldset:visible, form:visible").count() == 0
    paper, ink = page.evaluate("""() => { const style = getComputedStyle(document.documentElement);
                                  return [style.backgroundColor, style.color] }""")
    assert (paper, ink) == ("rgb(255, 255, 255)", "rgb(0, 0, 0)")
    assert page.locator("#attention-map canvas").is_visible()


HOVER = """async () => {
  const timed = async work => {
    const start = performance.now();
    work();
    if (frame) cancelAnimationFrame(frame);
    frame = 0;
    stale().filter(isSeen).forEach(redraw);
    document.body.offsetHeight;                                  // and lay it out
    const milliseconds = performance.now() - start;
    await new Promise(requestAnimationFrame);
    return milliseconds;
  };
  const longest = { hover: 0, step: 0 };
  const fastest = async (name, work) => {     // of seven, as other processes may hold one up
    const all = [];
    for (let i = 0; i < 7; i++) all.push(await timed(() => work(i)));
    longest[name] = Math.max(longest[name], Math.min(...all));
  };
  for (const id of ["the-flow", "tokens", "attention", "stream", "mlp", "lens", "next"]) {
    document.getElementById(id).scrollIntoView();
    await new Promise(requestAnimationFrame);
    await fastest("hover", i => set({ pointed: 7 * i % state.run.T }));
    await fastest("step", i => choose({ token: i, block: i % state.run.L, pointed: null }));
  }
  return longest;
}"""


@pytest.fixture(scope="module")
def xl_page(tmp_path_factory):
    """A page of gpt2-xl's blocks, heads, width and units: its 48 blocks share their weights."""
    c = PRESETS["gpt2-xl"]
    one = Params.random(replace(c, n_layer=1))
    arrays = {n: a for n, a in one.items() if not n.startswith("h.")}
    for i in range(c.n_layer):
        arrays |= {n.replace("h.0", f"h.{i}"): a for n, a in one.items() if n.startswith("h.")}
    path = tmp_path_factory.mktemp("xl") / "page.html"
    model = gpt2np.Model(Params(c, arrays), gpt2np.Tokenizer.gpt2())
    explorer.write_page(path, model, " ".join((SENTENCE * 6).split()[:63]))
    return path


@pytest.mark.slow
def test_xl_is_small_and_quick(open_page, xl_page):
    assert xl_page.stat().st_size < 4e6
    page = open_page(xl_page.as_uri())
    longest = page.evaluate(HOVER)
    print(xl_page.stat().st_size, longest)
    assert longest["hover"] < 50
    assert longest["step"] < 50


def test_motion_is_reduced_where_asked(open_page):
    for wish, behaviour in (("reduce", "auto"), ("no-preference", "smooth")):
        page = open_page(reduced_motion=wish)
        found = page.evaluate("getComputedStyle(document.documentElement).scrollBehavior")
        assert found == behaviour


def test_without_a_script(open_page, tokens):
    page = open_page(java_script_enabled=False)
    assert page.locator("input:visible, button:visible, fieldset:visible").count() == 0
    page.locator("[id='attn.pattern'] > summary").click()
    assert page.locator("[id='attn.pattern'] math").is_visible()
    page.locator("[id='h.2'] > summary").click()
    assert page.get_by_text("The same steps as in h.0").nth(1).is_visible()
    assert all(table.is_visible() for table in page.locator("#stream table").all())
    assert page.locator("[id='wte'] .reading").text_content().startswith("norm ")
    assert page.locator("#attention-map svg").bounding_box()["height"] > 100
    assert page.locator("#tokens tbody th").all_text_contents() == tokens


def test_hostile_text_is_text(open_page, model, tmp_path):
    explorer.write_page(tmp_path / "page.html", model, ATTACK)
    page = open_page((tmp_path / "page.html").as_uri())
    for t in range(page.evaluate("state.run.T")):
        page.evaluate("t => choose({ token: t })", t)
        settled(page)
    assert page.locator("img").count() == 0
    assert page.title().startswith("Inside GPT-2: </script><img src=x")
    assert page.locator("blockquote").text_content() == ATTACK
