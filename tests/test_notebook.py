"""What a cell of a notebook shows: right facts, all of it escaped, and no package needed."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from generating import dictate
from models import LETTERS, bare, letters, random_model

import gpt2np
from gpt2np import Generation, KVCache, Trace

PRETTY = "_repr_pretty_"
ATTACK = "</div><script>alert(1)</script><img src=x onerror=alert(1)>&\x1b[31m\"'"


class Reader(HTMLParser):
    """The text of a page, and that every element is closed."""

    def __init__(self):
        super().__init__()
        self.text, self.titles, self.frames, self.open = "", [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag in {"div", "span", "b", "table", "tr", "th", "td", "iframe"}, tag
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.titles += [value for name, value in attrs if name == "title"]
        self.frames += [dict(attrs)] if tag == "iframe" else []
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def html_of(value):
    reader = Reader()
    reader.feed(value._repr_html_())
    assert not reader.open
    return reader


def text_of(value):
    """As IPython asks for it."""

    class Printer:
        def text(self, text):
            self.told = text

    printer = Printer()
    # IPython goes from class to class, and a __repr__ ends the search.
    own = next(cls for cls in type(value).__mro__ if vars(cls).keys() & {"__repr__", PRETTY})
    vars(own)[PRETTY](value, printer, False)
    return printer.told


@pytest.fixture(scope="module")
def model():
    return gpt2np.load()


def test_a_score_shades_its_tokens(model):
    score = gpt2np.score(model, "What is\nthy name?")
    html, text = html_of(score), text_of(score)
    told = f"6 tokens, {score.surprisal.mean():.2f} bits each, perplexity {score.perplexity:,.2f}"
    for shown in (html.text, text):
        assert shown.startswith(told)
    assert "What is⏎\nthy name?" in html.text
    assert "bits:  0  5  10  15  20 " in html.text
    hints = [hint for hint in html.titles if hint]
    assert hints[0] == (
        f"bits {score.surprisal[0]:.2f}, rank {score.rank[0]:,}, entropy {score.entropy[0]:.2f}"
    )
    assert len(hints) == len(score.ids)
    shades = re.findall(r"rgba\(230, 110, 0, ([\d.]+)\)", score._repr_html_())
    expected = np.minimum(score.surprisal / 20, 1) * 0.75
    assert np.allclose(np.array(shades[: len(score.ids)], float), expected, atol=0.005)
    first = text.splitlines()[2].split()
    assert first == ["'What'", f"{score.surprisal[0]:.2f}", f"{score.rank[0]:,}", first[-1]]


def test_a_long_score_says_what_it_leaves_out():
    model = random_model(LETTERS, n_ctx=32)
    score = gpt2np.score(model, "ab" * 1050)
    assert "... and 100 more" in html_of(score).text
    assert text_of(score).endswith("... and 2,060 more")


def test_the_first_token_may_not_be_predicted():
    score = gpt2np.score(letters, "abc", bos=False)
    assert html_of(score).titles[0] == "bits not predicted, rank, entropy"
    assert "nan" not in html_of(score).text + text_of(score)


@pytest.mark.parametrize(
    ("kwargs", "why"),
    [
        ({}, "5 tokens: all the tokens that were asked for"),
        ({"stop": "ba"}, "4 tokens: a stop string came"),
        ({"eos": 1}, "3 tokens: the end of text came"),
    ],
)
def test_a_generation_tells_prompt_and_completion_apart(kwargs, why):
    said = dictate([0, 0, 1, 0, 0], 3)
    one = gpt2np.generate(letters, "cde", max_new_tokens=5, processors=[said], **kwargs)
    assert one.prompt == "cde"
    for shown in (html_of(one).text, text_of(one)):
        assert why in shown
    assert f">cde</span><b>{one.text}</b>" in one._repr_html_()
    assert f"prompt: 'cde'\ncompletion: {one.text!r}" in text_of(one)


def test_a_generation_of_ids_alone():
    one = gpt2np.generate(bare, [1, 2, 3], max_new_tokens=2, stop_at_eot=False)
    assert one.prompt is None
    assert f"[1, 2, 3] {one.ids}" in html_of(one).text


def test_a_trace_is_a_table(model):
    trace = Trace("h.*.attn.pattern")
    gpt2np.forward(model.params, [1, 2, 3], probe=trace)
    for shown in (html_of(trace).text, text_of(trace)):
        assert shown.startswith("4 activations, 576 bytes")
        assert "h.3.attn.pattern" in shown
        assert "[1, 4, 3, 3]" in shown
    assert len(repr(trace).splitlines()) == 5


def test_a_model_and_its_params_are_a_short_ledger(model):
    for value in (model, model.params):
        for shown in (html_of(value).text, text_of(value)):
            assert f"{model.params.n_params:,} float32; 4 blocks, 4 heads, 128 wide" in shown
            assert "6,432,896" in shown  # wte, 50,257 x 128
            assert "tied to wte" in shown
    assert "tiny-shakespeare, with a tokenizer" in text_of(model)
    assert "made by hand, without a tokenizer" in text_of(bare)
    parts = [re.split("  +", line) for line in text_of(model.params).splitlines()[2:]]
    assert sum(int(part[1].replace(",", "")) for part in parts) == model.params.n_params


def test_a_cache_shows_how_full_it_is(model):
    cache = KVCache(model.params, 2, capacity=10)
    gpt2np.forward(model.params, [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]], cache)
    for shown in (html_of(cache).text, text_of(cache)):
        assert f"2 sequences, {cache.keys.nbytes * 2:,} bytes" in shown
        assert shown.count("█" * 10 + "░" * 10) == 2


def test_a_tokenizer_shows_what_it_does(model):
    for shown in (html_of(model.tokenizer).text, text_of(model.tokenizer)):
        assert "50,257 tokens; the end of text is 50256" in shown
    assert "'Token' 'ization'" in text_of(model.tokenizer)


def test_nothing_of_a_text_is_obeyed():
    one = Generation(ATTACK, [1], [2], [0.0], ATTACK)
    trace = Trace()
    trace[ATTACK] = np.zeros(2)
    model = gpt2np.Model(bare.params, source=ATTACK)
    for value in (one, trace, model):
        assert "\x1b" not in value._repr_html_() + text_of(value)
        assert "<script" not in value._repr_html_()
        html_of(value)  # asserts that it is well-formed, and of harmless elements alone


def test_a_page_is_a_document_of_its_own(model, tmp_path):
    page = gpt2np.explain(model, "ROMEO: </script>")
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    (frame,) = html_of(page).frames
    assert frame["srcdoc"] == page.html
    assert frame["sandbox"] == "allow-scripts"  # and not allow-same-origin
    n = len(model.tokenizer.encode("ROMEO: </script>"))
    assert repr(page).startswith(f"Page({n} tokens, ")


def test_weights_and_recordings_are_not_shown_number_by_number(model):
    recording = gpt2np.golden.record(model, "ROMEO:", new_tokens=1)
    assert repr(model.params.blocks[0].attn).startswith(
        "Attention(c_attn=Affine([128, 384], [384])"
    )
    assert repr(recording).startswith("Golden(the recording: 67 arrays, ['ids', 'wte', ")
    assert repr(gpt2np.golden.check(recording, recording)).endswith("all 68 agree")
