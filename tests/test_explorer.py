"""The explorer's page as a document: what it says, against the ledger and a forward pass."""

import base64
import hashlib
import json
import math
import re
import time
import zlib
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from models import random_params
from shared import SHARED, needs_shared

import gpt2np
from gpt2np import explorer
from gpt2np.anatomy import COMPONENTS, ledger
from gpt2np.assets_path import assets
from gpt2np.config import Config
from gpt2np.errors import InputError, TokenizerError
from gpt2np.explorer.data import Packed, pack
from gpt2np.explorer.mathml import mathml
from gpt2np.explorer.page import page
from gpt2np.explorer.run import VECTORS, Run, largest, shown
from gpt2np.tokenizer import Tokenizer
from gpt2np.vocabulary import unwritten

TEXT = "ROMEO:\nBut, soft! what light through yonder window breaks?"
ATTACK = "</script><img src=x onerror=alert(1)>&lt;\"'\u2028\u202e\x00😀"
VOID = {"meta", "br", "hr", "input"}


class Element:
    """An element of a page, as a parser sees it."""

    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, dict(attributes), parent
        self.children, self.own = [], []

    def find_all(self, tag=None, **attributes):
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        for child in self.children:
            have = child.attributes | {"class": None}
            have["class"] = (child.attributes.get("class") or "").split()
            if tag in (None, child.tag) and all(
                value in have["class"] if name == "class" else have.get(name) == value
                for name, value in wanted.items()
            ):
                yield child
            yield from child.find_all(tag, **attributes)

    def find(self, tag=None, **attributes):
        return next(self.find_all(tag, **attributes))

    @property
    def text(self):
        return "".join(part if isinstance(part, str) else part.text for part in self.own)

    @property
    def rows(self):
        """The texts of a table's cells, the header's row included."""
        return [[cell.text for cell in row.children] for row in self.find_all("tr")]


class Reader(HTMLParser):
    """Builds the tree, and refuses what browsers would have to mend."""

    def __init__(self, text):
        super().__init__()
        self.at = self.root = Element("", {}, None)
        self.feed(text)
        self.close()
        assert self.at is self.root

    def handle_starttag(self, tag, attrs):
        child = Element(tag, attrs, self.at)
        self.at.children.append(child)
        self.at.own.append(child)
        if tag not in VOID:
            self.at = child

    def handle_endtag(self, tag):
        assert tag == self.at.tag
        self.at = self.at.parent

    def handle_data(self, data):
        self.at.own.append(data)


def read(text):
    return Reader(text).root


def facts_of(root):
    return json.loads(root.find("script", id="run").text)


def arrays_of(root):
    """The arrays of a page, unpacked as its script does."""
    data = zlib.decompress(base64.b64decode(root.find("script", id="arrays").text))
    arrays, start = {}, 0
    for name, kind, shape in facts_of(root)["arrays"]:
        n, width = math.prod(shape), int(kind[1])
        planes = np.frombuffer(data, np.uint8, n * width, start).reshape(width, n)
        if kind == "f3":  # float32 without its first byte, which says least
            planes = np.concatenate([np.zeros_like(planes[:1]), planes])
        dtype = "<f4" if kind == "f3" else f"<{kind}"
        arrays[name] = np.ascontiguousarray(planes.T).view(dtype).reshape(shape)
        start += n * width
    assert start == len(data)
    return arrays


def plain(text):
    """A cell's text without what fills it up to its neighbours' point."""
    return text.strip("\u2007\u2008")


@pytest.fixture(scope="module")
def model():
    return gpt2np.load()


@pytest.fixture(scope="module")
def text(model):
    return page(Run(model, TEXT))


@pytest.fixture(scope="module")
def root(text):
    return read(text)


@pytest.fixture(scope="module")
def trace(model):
    trace = gpt2np.Trace()
    gpt2np.forward(model.params, model.tokenizer.encode(TEXT), probe=trace)
    return trace


def close(shown, value):
    """Whether a number is printed as it is, to four digits or as a tiny one."""
    shown = plain(shown)
    if shown in ("< 0.0001", "> -0.0001"):
        return 0 < abs(value) < 1e-4 and (value > 0) == (shown[0] == "<")
    return float(shown) == pytest.approx(value, rel=5.1e-4, abs=1e-12)


def same(found, expected):
    """Whether numbers are the same, or but for the last of four bytes."""
    return found.shape == expected.shape and found == pytest.approx(expected, rel=1.6e-5, abs=0)


def pair(cell):
    """The name in a cell, and the number behind it."""
    return re.fullmatch(r"(.*?) ((?:< |> )?-?[\d.]+)", plain(cell)).groups()


# The file


def test_loads_nothing(root):
    for element in root.find_all():
        assert not element.attributes.keys() & {"src", "srcset", "style", "action", "data"}
        assert element.tag not in {"link", "iframe", "object", "embed", "img", "base"}
        assert element.tag == "a" or "href" not in element.attributes  # a link loads nothing
        target = element.attributes.get("href", "#")
        assert target.startswith(("#", "https://github.com/", "https://huggingface.co/"))
        assert not any(name.startswith("on") for name in element.attributes)


def test_policy_allows_its_own_style_and_script_alone(root):
    def digest(element):
        return base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()

    policy = root.find("meta", http_equiv="Content-Security-Policy").attributes["content"]
    style, (*_, script) = root.find("style"), root.find_all("script")
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest(style)}'",
        f"script-src 'sha256-{digest(script)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_ids_are_unique_and_links_lead_somewhere(root):
    ids = [element.attributes["id"] for element in root.find_all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    links = {link.attributes["href"] for link in root.find_all("a")}
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    labelled = [e.attributes["aria-labelledby"] for e in root.find_all("section")]
    assert len(labelled) == 7
    assert set(labelled) <= set(ids)


def test_is_a_document_without_its_script(root):
    """What only the script can fill is hidden, and tables that it closes are open."""
    controls = [e for tag in ("input", "button", "fieldset") for e in root.find_all(tag)]
    for control in controls:
        around = control
        while "live" not in around.attributes.get("class", "").split():
            around = around.parent
        assert "hidden" in around.attributes
    for details in root.find_all("details", class_="numbers"):
        assert "open" in details.attributes
    assert len(list(root.find_all("table"))) == 9


@pytest.mark.parametrize("attack", [ATTACK, f"{ATTACK} $style ${{x}} $$"])
def test_text_is_text(model, attack):
    root = read(page(Run(model, attack)))
    assert not list(root.find_all("img"))
    assert len(list(root.find_all("script"))) == 3
    assert root.find("blockquote").text == attack
    tokens = "".join(facts_of(root)["tokens"])
    assert tokens.startswith("</script><img·src=x·onerror=alert(1)>&lt;")
    assert "[U+0000][f0 9f 98][80]" in tokens  # 😀 is two tokens, neither of them a character


class Unfriendly:
    """A tokenizer with one token, which is markup."""

    n_vocab, eot, _ranks = 1, None, {}

    def encode(self, text):
        return [0, 0]

    def decode(self, ids):
        return ATTACK * len(ids)

    def token_bytes(self, id):
        return ATTACK.encode()


def test_tokens_are_text():
    config = Config(vocab_size=2, n_ctx=8, n_embd=6, n_head=3, n_layer=1)
    root = read(page(Run(gpt2np.Model(gpt2np.Params.random(config), Unfriendly()), "")))
    assert not list(root.find_all("img"))
    expected = shown(ATTACK.encode())
    assert facts_of(root)["tokens"] == [expected, expected]
    assert root.find("table", id="lens-table").rows[1][0] == expected
    assert facts_of(root)["names"] == {"0": expected, "1": "[1]"}  # 1 pads the embedding
    assert arrays_of(root)["logits"][1] == -math.inf


# The flow, against the ledger


def test_every_component_has_its_sheet(root, model):
    account = ledger(model.config, T=len(model.tokenizer.encode(TEXT)))
    for row in account.rows:
        component = row.component
        box = root.find("details", id=component.name)
        summary, text = box.find("summary").text, box.text
        assert summary.startswith(component.name + component.title)
        assert account.numbers(component.gives) in summary
        assert mathml(component.latex).count("<mi") == len(list(box.find("math").find_all("mi")))
        assert component.explanation in text
        assert f"{component.takes}" in text
        assert account.numbers(component.takes) in text
        links = {link.text: link.attributes["href"] for link in box.find_all("a")}
        for source in component.sources:
            assert source.text in text
            assert not source.url or links[source.text] == source.url
        assert component.code in text
        assert box.find("code").text == component.source_text
        if row.each:
            assert f"{row.each:,} parameters" in summary
            assert f"{row.calculation} = {row.each:,}" in text
        else:
            assert (
                "0 new parameters" if component.name == "logits" else "no parameters"
            ) in summary
        for calculation, each, total in (
            (row.calculation, row.each, row.total),
            (row.flops_calculation, row.flops_each, row.flops),
        ):
            told = f"{calculation} = {each:,}" if each else "none"
            assert told + (f"; x {row.instances} = {total:,}" if total != each else "") in text
    assert f"{account.n_params:,}" in root.find("p", class_="sum").text


def steps(root):
    """The nodes and points of the flow, in order, a block with what is in it."""
    for item in root.find("div", class_="flow").find_all("li"):
        kind = (item.attributes.get("class") or "").split()
        if kind[:1] == ["step"]:
            yield item.attributes.get("data-step") or kind[1]
        elif kind in (["point"], ["block"]):
            yield (
                item.text.split(" [")[0]
                if kind == ["point"]
                else item.find("details").attributes["id"]
            )


def test_flow_is_gpt2s(root, model):
    """Its nodes and edges, in order, are those of the architecture's page."""
    names = [c.name for c in COMPONENTS if c.per_layer and c.name != "cache"]
    names.insert(names.index("attn.c_attn") + 1, "cache")
    L = model.config.n_layer
    assert list(steps(root)) == [
        *("shared", "raw", "tokenizer", "assets", "ids", "positions", "wte", "wpe"),
        *("embed", "dropout", "x0", "h.0", *names, "block"),
        *(f"h.{i}" for i in range(1, L)),
        *(f"x{L}", "ln_f", "hfinal", "logits", "logits", "sampling"),
    ]
    # One matrix, of which a line leads to its first use, and one past all else to its second.
    tied = root.find("div", class_="tied")
    within = [item.attributes.get("data-step") for item in tied.find_all("li")]
    assert "wte" in within
    assert "logits" not in within
    flow = root.find("div", class_="flow")
    assert flow.text.count("50,257 × 128") == 2  # the table, and the one that looks up in it
    assert "token ids[1, 16]" in flow.text
    assert "position ids0 … 15" in flow.text
    chips = root.find("li", class_="ids").find("span", class_="chips")
    assert [int(c.text) for c in chips.find_all("span")] == model.tokenizer.encode(TEXT)


def test_closed_boxes_show_their_tables(root):
    for name, shape in {
        "wte": "50,257 × 128 = 6,432,896 parameters",
        "wpe": "512 × 128 = 65,536 parameters",
        "attn.c_attn": "128 × 384 + 384 = 49,536 parameters",
        "ln_f": "128 + 128 = 256 parameters",
        "logits": "0 new parameters",
    }.items():
        assert shape in root.find("details", id=name).find("summary").text
    assert "Epos [1, 16, 128]" in root.find("details", id="wpe").find("summary").text


def test_cache_tells_what_it_keeps(root, model):
    account = ledger(model.config, T=16)
    told = root.find("p", id="kept").text
    assert f"= {2 * 4 * 128 * 16:,} numbers, {16 * account.cache_bytes_per_token:,} bytes" in told
    assert f"({account.cache_bytes_per_token:,} bytes)" in told


@pytest.mark.parametrize("text", [TEXT, "antidisestablishmentarianism é 😀"])
def test_merges_spell_each_token(model, text):
    run = Run(model, text)
    for id, steps_of in zip(run.ids, facts_of(read(page(run)))["merges"], strict=True):
        assert len(steps_of[0]["parts"]) == len(model.tokenizer.token_bytes(id))
        assert steps_of[-1]["parts"] == [run.token(id)]
        merges = (assets() / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
        for step in steps_of[1:]:  # each merge makes one part, which the list has at that place
            made = [shown(unwritten(merges[step["merge"] - 1].replace(" ", "")))]
            assert made[0] in step["parts"]


def test_a_head_of_its_own_is_not_tied():
    config = Config(n_ctx=8, n_embd=6, n_head=3, n_layer=1, tie_word_embeddings=False)
    root = read(page(Run(gpt2np.Model(gpt2np.Params.random(config), Tokenizer.gpt2()), "a b")))
    assert not list(root.find_all(class_="tied"))
    assert not list(root.find_all("li", class_="shared"))
    assert "used twice" not in root.text
    assert f"{50257 * 6:,} parameters" in root.find("details", id="logits").text


# The run, against a forward pass


def test_tokens_and_surprisal(root, model):
    score = gpt2np.score(model, TEXT, bos=False)
    (_, *rows) = root.find("section", id="tokens").find("table").rows
    assert [int(row[2]) for row in rows] == score.ids
    assert b"".join(bytes.fromhex(row[5]) for row in rows) == TEXT.encode()
    assert plain(rows[0][3]) == "–"
    for row, surprisal in zip(rows[1:], score.surprisal[1:], strict=True):
        assert close(row[3], surprisal)


def test_stream(root, model, trace):
    points = {"wte + wpe": trace["wte"] + trace["wpe"]}
    for i in range(model.config.n_layer):
        points |= {name: trace[name] for name in (f"h.{i}.resid_mid", f"h.{i}")}
    x = np.concatenate(list(points.values())).astype(np.float64)  # [2L + 1, T, D]
    expected = {
        "norm": np.sqrt((x**2).sum(-1)),
        "mean": x.sum(-1) / x.shape[-1],
        "scale": np.sqrt(((x - x.mean(-1, keepdims=True)) ** 2).mean(-1) + 1e-5),
    }
    for kind, values in expected.items():
        header, *rows = root.find("table", id=f"table-{kind}").rows
        assert header[1:] == list(points)
        for row, of_token in zip(rows, values.T, strict=True):
            for cell, value in zip(row[1:], of_token, strict=True):
                # Means are sums in which most cancels: they are as exact as float32 makes them.
                assert any(close(cell, value + error) for error in (0, 2e-7, -2e-7))


def test_layer_norms_read_the_stream(root, model, trace):
    """That mean and scale are what the LayerNorms use: with them, ln_1's output comes out."""
    header, *means = root.find("table", id="table-mean").rows
    _, *scales = root.find("table", id="table-scale").rows
    p = model.params.blocks[2].ln_1
    at = header.index("h.1")
    for t, x in enumerate(trace["h.1"][0]):
        mean, scale = (float(plain(column[t][at])) for column in (means, scales))
        normed = (x - mean) / scale * p.weight + p.bias
        assert np.abs(normed - trace["h.2.ln_1"][0, t]).max() < 5e-3


def test_lens_is_the_model_cut_off(root, model):
    """After block i the lens says what a model of i + 1 blocks says, with the same ln_f."""
    ids = model.tokenizer.encode(TEXT)
    data, (header, *rows) = facts_of(root), root.find("table", id="lens-table").rows
    arrays = arrays_of(root)
    lens, chances = arrays["lens"], arrays["chances"]
    L = model.config.n_layer
    assert lens.shape == chances.shape == (L + 1, len(ids), 5)
    assert header[1:] == ["wte + wpe", "h.0", "h.1", "h.2", "h.3"]
    for n in range(1, L + 1):
        names = [k for k in model.params if not k.startswith("h.") or int(k.split(".")[1]) < n]
        config = Config(**{**model.config.__dict__, "n_layer": n})
        cut = gpt2np.Params(config, {k: model.params[k] for k in names})
        logits = gpt2np.forward(cut, ids)[0].astype(np.float64)
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        best = np.argsort(-p, axis=-1)[:, :5]
        assert (lens[n] == best).all()
        assert chances[n] == pytest.approx(np.take_along_axis(p, best, -1), rel=2e-5)
        for t, row in enumerate(rows):
            token, chance = pair(row[n + 1])
            assert token == data["names"][str(best[t, 0])]
            assert close(chance, p[t, best[t, 0]])


@pytest.mark.parametrize("text", [TEXT, "ROMEO: what", "ROM"])  # 4 tokens, like 4 heads; and 1
def test_arrays(model, text):
    ids, trace = model.tokenizer.encode(text), gpt2np.Trace()
    logits = gpt2np.forward(model.params, ids, probe=trace)[0]
    T, L, H = len(ids), model.config.n_layer, model.config.n_head
    arrays = arrays_of(read(page(Run(model, text))))

    pattern = np.concatenate([trace[f"h.{i}.attn.pattern"] for i in range(L)])
    rows = [pattern[:, :, t, : t + 1] for t in range(T)]
    assert arrays["pattern"].shape == (L, H, T * (T + 1) // 2)
    assert np.abs(arrays["pattern"] / 255 - np.concatenate(rows, -1)).max() <= 0.5001 / 255
    best = -np.sort(-pattern, axis=-1)[..., :3]
    assert (arrays["weights"] == best).all()
    assert (np.take_along_axis(pattern, arrays["nearest"].astype(int), -1) == best).all()

    act = np.concatenate([trace[f"h.{i}.mlp.act"] for i in range(L)])
    assert (arrays["activations"] == -np.sort(-act, axis=-1)[..., :5]).all()
    assert same(np.take_along_axis(act, arrays["units"].astype(int), -1), arrays["activations"])
    assert same(arrays["active"], (act > 0).sum(-1) / act.shape[-1])
    pooled = np.maximum(act[..., 0::2], act[..., 1::2])  # 512 units on 256 columns
    assert (arrays["peaks"].ravel() == pooled.max((1, 2))).all()
    shares = np.maximum(pooled, 0) / pooled.max((1, 2), keepdims=True)
    assert np.abs(arrays["mlp"] / 255 - shares).max() <= 0.5001 / 255

    assert (arrays["logits"] == logits[-1]).all()
    norms = {k.removeprefix("norm "): v for k, v in arrays.items() if k.startswith("norm ")}
    for name, found in norms.items():
        for i in range(L if "{i}" in name else 1):
            x = trace[name.format(i=i).replace("embed", "wte")][0].reshape(T, -1).astype(np.float64)
            x = trace["wte"][0] + trace["wpe"][0] if name == "embed" else x
            assert found[i] == pytest.approx(np.sqrt((x**2).sum(-1)), rel=2e-5)
    vectors = [name for name, shape in gpt2np.trace.POINTS.items() if shape.startswith("B T")]
    assert sorted(norms) == sorted({*vectors, "embed"} - {"logits"})


def activation(trace, name, tokens=slice(None)):
    """An activation in every block, or the one outside: [L, T, n]."""
    if name == "embed":
        return (trace["wte"] + trace["wpe"])[:, tokens]
    found = [trace[n] for n in (name.format(i=i) for i in range(99)) if n in trace]
    x = np.concatenate(found[: len(found) if "{i}" in name else 1])[:, tokens]
    return x.reshape(*x.shape[:2], -1)


def random_model(**sizes):
    config = Config(**{"n_ctx": 64, "n_head": 4, "n_layer": 2, "vocab_size": 50257, **sizes})
    return gpt2np.Model(random_params(config), Tokenizer.gpt2())


@pytest.mark.parametrize(
    ("wish", "kept"),
    [
        (None, {"all": True, "type": "f4"}),
        ("last", {"all": False, "type": "f4"}),
        (None, {"all": False, "type": "u1"}),
        ("all", {"all": True, "type": "f3"}),
    ],
)
def test_vectors_are_the_traces(monkeypatch, wish, kept):
    """To five digits, or where the page says so in 8 bits of each vector's own range."""
    if kept["type"] != "f4":
        monkeypatch.setattr(explorer.data, "ROOM", 1000)
    model = random_model(n_embd=16)
    trace = gpt2np.Trace()
    gpt2np.forward(model.params, model.tokenizer.encode(TEXT), probe=trace)
    root = read(page(Run(model, TEXT), wish))
    arrays, facts = arrays_of(root), facts_of(root)
    assert facts["kept"] == kept
    assert ("last token alone" in root.find("footer").text) == (not kept["all"])
    assert ("in 8 bits" in root.find("footer").text) == (kept["type"] == "u1")
    tokens = slice(None) if kept["all"] else slice(-1, None)
    for name in VECTORS:
        x = activation(trace, name, tokens)
        if kept["type"] == "u1":
            low, high = np.split(arrays[f"range {name}"], 2, axis=-1)
            found = low + (high - low) * arrays[f"coarse {name}"] / 255
            assert np.abs(found - x).max() <= 0.51 / 255 * np.ptp(x, axis=-1).max()
        else:
            assert same(arrays[f"vector {name}"], x)
    scores = np.concatenate([trace[f"h.{i}.attn.scores"] for i in range(2)])[:, :, tokens]
    assert same(arrays["scores"], np.where(np.isinf(scores), 0, scores))


@pytest.mark.parametrize("wish", ["all", "last"])
def test_terms_add_up_to_the_traces_cells(wish):
    """Those that are listed are the largest, with the true weights; all together make the cell."""
    model = random_model(n_embd=16)
    trace, ids = gpt2np.Trace(), model.tokenizer.encode(TEXT)
    gpt2np.forward(model.params, ids, probe=trace)
    arrays = arrays_of(read(page(Run(model, TEXT), wish)))
    tokens = slice(None) if wish == "all" else slice(-1, None)
    for name, source in {
        "attn.c_attn": "h.{i}.ln_1",
        "attn.c_proj": "h.{i}.attn.z",
        "mlp.c_fc": "h.{i}.ln_2",
        "mlp.c_proj": "h.{i}.mlp.act",
        "logits": "ln_f",
    }.items():
        x = activation(trace, source, tokens).astype(np.float64)
        y = activation(trace, name if name == "logits" else f"h.{{i}}.{name}", tokens)
        cell, at, w = (arrays[f"{field} {name}"] for field in ("cell", "at", "w"))
        assert cell.shape[:2] == x.shape[:2]
        for i, t, n in np.ndindex(cell.shape):
            if name == "logits":
                row, bias = model.params.lm_head[cell[i, t, n]], 0
            else:
                row = model.params[f"h.{i}.{name}.weight"][:, cell[i, t, n]]
                bias = model.params[f"h.{i}.{name}.bias"][cell[i, t, n]]
            products = np.abs(x[i, t] * row)
            assert sorted(products[at[i, t, n]]) == sorted(np.sort(products)[-6:])
            assert same(w[i, t, n], row[at[i, t, n]])
            assert same(arrays[f"bias {name}"][i, t, n], np.float32(bias))
            total = (x[i, t, at[i, t, n]] * w[i, t, n]).sum() + bias
            total += arrays[f"others {name}"][i, t, n]
            assert total == pytest.approx(y[i, t, cell[i, t, n]], rel=1e-4, abs=1e-4)
    if wish == "last":
        for name in ("attn.scores", "attn.z"):
            cell, at, x, w, others = (
                arrays[f"{field} {name}"][..., 0, :]
                if field in ("at", "x", "w")
                else arrays[f"{field} {name}"][..., 0]
                for field in ("cell", "at", "x", "w", "others")
            )
            total = (x * w).sum(-1) + others  # [L, H]
            for i, h in np.ndindex(total.shape):
                if name == "attn.scores":
                    expected = trace[f"h.{i}.{name}"][0, h, -1, cell[i, h]]
                    expected /= model.config.score_scale(i)
                else:
                    expected = trace[f"h.{i}.{name}"][0, -1, h, cell[i, h]]
                assert total[i, h] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_strongest_heads_and_units(root, model, trace):
    _, *rows = root.find("table", id="attention-table").rows
    tokens = facts_of(root)["tokens"]
    for i, row in enumerate(rows):
        for head, cell in enumerate(row[1:]):
            weights = trace[f"h.{i}.attn.pattern"][0, head, -1]
            token, weight = pair(cell)
            assert token == tokens[weights.argmax()]
            assert close(weight, weights.max())
    _, *rows = root.find("section", id="mlp").find("table").rows
    for t, row in enumerate(rows):
        for i, cell in enumerate(row[1:]):
            act = trace[f"h.{i}.mlp.act"][0, t]
            unit, value = pair(cell)
            assert unit == f"unit {act.argmax()}"
            assert close(value, act.max())


def test_next_tokens(root, model, trace):
    _, *rows = root.find("table", id="next-table").rows
    logits = trace["logits"][0, -1].astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum()
    best = np.argsort(-p)[:20]
    assert [int(row[1]) for row in rows] == best.tolist()
    for row, id in zip(rows, best, strict=True):
        assert row[0] == shown(model.tokenizer.token_bytes(int(id)))
        assert close(row[2], logits[id])
        assert close(row[3], p[id])


def test_numbers_of_the_largest():
    assert largest(np.array([[1, 3, 3, 2]]), 2).at.tolist() == [[1, 2]]
    assert largest(np.array([5.0]), 3).value.tolist() == [5.0]


def test_points_of_a_column_meet(root):
    """Every cell of a column of numbers is as long from its point to its end."""
    tables = [root.find("table", id=f"table-{kind}").rows[1:] for kind in ("norm", "mean", "scale")]
    columns = [column for rows in tables for column in list(zip(*rows, strict=True))[1:]]
    columns += [list(zip(*root.find("table", id="next-table").rows[1:], strict=True))[3]]
    for column in columns:
        assert len({len(cell) - re.search(r"\.|\u2008", cell).start() for cell in column}) == 1


def test_readings_and_a_map_are_there_without_the_script(root, model, trace):
    t = len(model.tokenizer.encode(TEXT)) - 1
    readings = {
        e.attributes["data-name"]: e.text
        for e in root.find_all("span", class_="reading")
        if "data-name" in e.attributes
    }
    for name in ("wte", "wpe", "h.0.ln_1", "h.0.attn.z", "h.0.resid_mid", "h.0.mlp.act", "ln_f"):
        shown = readings[name.removeprefix("h.0.")]
        assert close(shown.removeprefix("norm "), np.linalg.norm(trace[name][0, t])), name
    p = np.exp(trace["logits"][0, t].astype(np.float64))
    name, chance = pair(readings["logits"].removeprefix("next "))
    assert close(chance, p.max() / p.sum())
    opening = facts_of(root)["opening"]
    pattern = trace[f"h.{opening['block']}.attn.pattern"][0, opening["head"]]
    drawn = np.zeros_like(pattern)
    for path in root.find("svg", class_="static").find_all("path"):
        for cell in path.attributes["d"].split("M")[1:]:
            column, row = cell.removesuffix("h1v1h-1z").split()
            drawn[int(row), int(column)] = float(path.attributes["fill-opacity"])
    assert np.abs(drawn - pattern).max() <= 0.5001 / 16


# Size and time


@needs_shared
def test_the_embedded_models_page_has_all_vectors_below_3_megabytes(model, tmp_path):
    text = (SHARED / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    text = model.tokenizer.decode(model.tokenizer.encode(text)[:64])
    explorer.write_page(tmp_path / "page.html", model, text)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert facts_of(read(text))["kept"] == {"all": True, "type": "f3"}
    assert len(text.encode()) < 3e6


@pytest.mark.slow
def test_is_written_fast(params_124m, tmp_path):
    model = gpt2np.Model(params_124m, Tokenizer.gpt2())
    text = " so" * 32
    model.tokenizer.decode([0])
    seconds = []
    for work in (
        lambda: gpt2np.forward(model.params, model.tokenizer.encode(text)),
        lambda: explorer.write_page(tmp_path / "page.html", model, text),
    ):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    assert seconds[1] - seconds[0] < 3
    assert (tmp_path / "page.html").stat().st_size < 1.5e6


# What is refused


def test_no_tokenizer_no_text_too_much_text(model):
    with pytest.raises(TokenizerError, match="the model has no tokenizer"):
        Run(gpt2np.Model(model.params), "text")
    with pytest.raises(InputError, match="0 tokens: give a text of 1 to 64"):
        Run(model, "")
    Run(model, " so" * 64)
    with pytest.raises(InputError, match="65 tokens"):
        Run(model, " so" * 65)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused_before_a_page_is_made(model, tmp_path, bad):
    weight = model.params["h.1.mlp.c_fc.weight"].copy()
    weight[3, 5] = bad
    damaged = model.replace({"h.1.mlp.c_fc.weight": weight})
    with pytest.raises(InputError, match=r"^h\.1\.mlp\.\S+ is NaN or infinite at 4 of its"):
        explorer.write_page(tmp_path / "page.html", damaged, "ROMEO: what")
    assert not list(tmp_path.iterdir())


def test_command_writes_a_page(run, model, tmp_path):
    path = str(tmp_path / "page.html")
    code, out, err = run("explain", "--html", path, "--text", TEXT)
    assert (code, err) == (0, "")
    assert (
        out == f"{path}: {(tmp_path / 'page.html').stat().st_size:,} bytes, "
        "a run of tiny-shakespeare\n"
    )
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(Run(model, TEXT))
    assert run("explain", "--html", path)[0] == 0
    root = read((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert root.find("blockquote").text == explorer.TEXT
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_command_does_not_tell_where_the_model_is(run, tmp_path):
    config = Config(n_ctx=8, n_embd=6, n_head=3, n_layer=1)
    gpt2np.save(gpt2np.Model(gpt2np.Params.random(config), Tokenizer.gpt2()), tmp_path / "mine")
    path = tmp_path / "page.html"
    assert run("explain", "-m", str(tmp_path / "mine"), "--html", str(path))[0] == 2
    assert run("explain", "-m", str(tmp_path / "mine"), "--html", str(path), "--text", "a")[0] == 0
    text = path.read_text(encoding="utf-8")
    assert "mine" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", ""], "the text has 0 tokens: give a text of 1 to 64"),
        (["wte"], "the page shows every component.*"),
        (["-T", "5"], "the page shows every component.*"),
        (["--latex"], "the page shows every component.*"),
    ],
)
def test_command_refuses(run, tmp_path, options, message):
    code, out, err = run("explain", "--html", str(tmp_path / "page.html"), *options)
    assert (code, out) == (2, "")
    assert re.fullmatch(f"gpt2np: error: {message}\n", err)
    assert not list(tmp_path.iterdir())


def test_command_refuses_a_text_without_a_page(run):
    code, out, err = run("explain", "--text", "x")
    assert (code, out, err) == (2, "", "gpt2np: error: --text is for the page: add --html FILE\n")


# Formulas


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.name)
def test_formulas_convert(component):
    tree = ElementTree.fromstring(mathml(component.latex))
    letters = "".join(tree.itertext())
    assert not set(letters) & set("\\{}_^&")
    for word in re.findall(r"\\(?:mathrm|text)\{(\w+)\}", component.latex):
        assert word in letters
    for number in re.findall(r"\d+\.\d+", component.latex):
        assert number in [e.text for e in tree.iter("mn")]


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\frac{x}{2}", "<mfrac><mrow><mi>x</mi></mrow><mrow><mn>2</mn></mrow></mfrac>"),
        (r"\sqrt{K}", "<msqrt><mrow><mi>K</mi></mrow></msqrt>"),
        (r"x^2_i", "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>"),
        (r"x_{t-1}", "<msub><mi>x</mi><mrow><mi>t</mi><mo>−</mo><mn>1</mn></mrow></msub>"),
        (r"k^\top", "<msup><mi>k</mi><mo>⊤</mo></msup>"),
        (r"\left(x\right)", "<mrow><mo>(</mo><mi>x</mi><mo>)</mo></mrow>"),
        (r"\mathrm{ln}_1", "<msub><mi>ln</mi><mn>1</mn></msub>"),
        (r"a<b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
    ],
)
def test_mathml(latex, expected):
    assert mathml(latex) == f'<math display="block">{expected}</math>'


@pytest.mark.parametrize("latex", [r"\foo", "{x", r"\left(x", r"\frac{x}", "x_"])
def test_other_latex_is_refused(latex):
    with pytest.raises(InputError):
        mathml(latex)


def test_a_page_s_numbers_are_little_endian():
    arrays = {
        "a": Packed("f4", np.linspace(0, 1, 7)),
        "b": Packed("f3", np.linspace(0, 1, 7)),
        "c": Packed("f2", np.linspace(0, 1, 7)),
        "d": Packed("i4", np.arange(9, dtype=np.int32).reshape(3, 3)),
    }
    swapped = {
        name: Packed(kind, array.astype(array.dtype.newbyteorder(">")))
        for name, (kind, array) in arrays.items()
    }
    assert pack(swapped) == pack(arrays)
