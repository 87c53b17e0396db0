"""The ledger: counts against the weights and Hugging Face, sources against what they name."""

import json
import re
import socket
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpt2np
from gpt2np.anatomy import COMPONENTS, HUGGING_FACE, OPENAI, WHOLES, cited, find, ledger
from gpt2np.checkpoints import safetensors
from gpt2np.cli import main
from gpt2np.config import PRESETS, Config
from gpt2np.errors import InputError
from gpt2np.golden.tiny import tiny_model, write_weights
from gpt2np.trace import POINTS

# Published: pretrained-goldens.json, parameters_tied.
PUBLISHED = {
    "distilgpt2": 81_912_576,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}


@pytest.mark.parametrize("name", PRESETS)
def test_table_and_formula_give_the_published_count(name):
    account = ledger(PRESETS[name])
    assert account.n_params == account.formula_value == PUBLISHED[name]


@pytest.mark.parametrize("name", PRESETS)
def test_counts_equal_hugging_faces(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    c = PRESETS[name]
    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_layer=c.n_layer, n_embd=c.n_embd, n_head=c.n_head)
        )
    assert ledger(c).n_params == model.num_parameters()


@pytest.mark.parametrize(
    "config",
    [
        Config(vocab_size=7, n_ctx=5, n_embd=6, n_head=2, n_layer=3, n_inner=11),
        Config(vocab_size=7, n_ctx=5, n_embd=6, n_head=2, n_layer=3, tie_word_embeddings=False),
    ],
)
def test_counts_equal_the_tensors(config):
    params = gpt2np.Params.random(config)
    account = ledger(config)
    assert account.n_params == account.formula_value == params.n_params
    assert account.n_params == sum(array.size for array in params.values())


def test_each_component_counts_its_own_tensors():
    config = Config(vocab_size=7, n_ctx=5, n_embd=6, n_head=2, n_layer=2, tie_word_embeddings=False)
    params = gpt2np.Params.random(config)
    for row in ledger(config).rows:
        prefix = row.component.tensors
        if prefix:
            names = [n for n in params if n.rsplit(".", 1)[0].removeprefix("h.0.") == prefix]
            assert row.each == sum(params[n].size for n in names), row.component.name
        else:
            assert row.total == 0


def test_operations_are_those_of_the_matrix_products():
    """Against a count that knows nothing of the ledger: 2 for each weight and position, and the
    two products of attention."""
    config = PRESETS["gpt2"]
    account = ledger(config, B=2, T=10, S=30)
    blocks = 12 * config.n_layer * config.n_embd**2
    products = 2 * 2 * 10 * (blocks + config.vocab_size * config.n_embd)
    products += 2 * 2 * (2 * 10 * 30 * config.n_embd) * config.n_layer
    elementwise = account.flops - products
    assert 0 < elementwise < 0.01 * products


def test_bytes_read_are_the_weights_a_token_needs():
    config = PRESETS["gpt2"]
    account = ledger(config, T=1, S=100)
    weights = sum(
        array_size
        for name, array_size in ((n, s) for n, s in _sizes(config).items() if n != "wpe.weight")
    )
    rows = 2 * config.n_embd  # of wte and wpe, looked up
    cache = 2 * config.n_layer * config.n_embd * 100
    assert account.bytes_read_per_token == 4 * (weights + rows + cache)
    assert account.cache_bytes_per_token * 100 == 4 * cache
    # Sequences that are decoded together share the weights, and nothing else.
    eight = ledger(config, B=8, T=1, S=100)
    assert eight.bytes_read_per_token == 4 * (weights // 8 + rows + cache)
    assert weights % 8 == 0
    # A head of its own is read, and wte then looked up only.
    untied = ledger(replace(config, tie_word_embeddings=False), T=1, S=100)
    assert untied.bytes_read_per_token == account.bytes_read_per_token


def test_bytes_read_are_those_that_bench_counts():
    """bench counts the matrices alone, which are all but a thousandth."""
    from gpt2np.bench import matrices

    config = Config(vocab_size=500, n_ctx=64, n_embd=96, n_head=4, n_layer=3)
    params = gpt2np.Params.random(config)
    counted = 4 * (sum(m.size for m in matrices(params)) + params.lm_head.size)
    read = ledger(config, T=1).bytes_read_per_token - ledger(config).cache_bytes_per_token
    vectors = sum(array.size for array in params.values() if array.ndim == 1)
    assert read == counted + 4 * (vectors + 2 * config.n_embd)


def _sizes(config):
    from math import prod

    from gpt2np.schema import tensors

    return {name: prod(shape) for name, shape, _ in tensors(config)}


def test_every_activation_has_its_component():
    names = {component.name for component in COMPONENTS}
    for point in POINTS:
        name = point.removeprefix("h.{i}.")
        if point != "h.{i}":
            assert find(name).name in names


def test_names_and_aliases_are_found():
    for name, component in {
        "wpe": "wpe",
        "position embedding": "wpe",
        "wte": "wte",
        "token embedding": "wte",
        "tokenizer": "tokenizer",
        "dropout": "dropout",
        "ln": "ln_1",
        "LayerNorm": "ln_1",
        "h.3.ln_2": "ln_2",
        "attention": "attn",
        "attn": "attn",
        "qkv": "attn.c_attn",
        "attention scores": "attn.scores",
        "mask": "attn.scores",
        "softmax": "attn.pattern",
        "transformer.h.11.attn.c_proj": "attn.c_proj",
        "z": "attn.z",
        "mlp": "mlp",
        "MLP, up": "mlp.c_fc",
        "gelu": "mlp.act",
        "residual": "resid_mid",
        "residual stream": "resid_mid",
        "final norm": "ln_f",
        "final-norm": "ln_f",
        "tied projection": "logits",
        "tied_projection": "logits",
        "lm_head": "logits",
        "cache": "cache",
        "key-value cache": "cache",
        "KV cache": "cache",
        "sampling": "sampling",
    }.items():
        assert find(name).name == component, name
    with pytest.raises(InputError, match=r"no component 'nonsense'; there are tokenizer, wte"):
        find("nonsense")


def test_wholes_are_the_sums_of_their_parts():
    config = Config(vocab_size=7, n_ctx=5, n_embd=6, n_head=2, n_layer=3, n_inner=11)
    account = ledger(config, B=2, T=3, S=4)
    for whole in WHOLES:
        parts = [row for row in account.rows if row.component.name.startswith(f"{whole.name}.")]
        assert len(parts) >= 3
        ours = account.of(whole)
        assert ours.total == sum(row.total for row in parts) > 0
        assert ours.flops == sum(row.flops for row in parts) > 0
        assert all(row.component.name in whole.explanation for row in parts)


def test_our_line_numbers_are_where_the_functions_are():
    root = Path(gpt2np.__file__).parent.parent
    for component in (*COMPONENTS, *WHOLES):
        place, name = component.code.split(" ")
        path, line = place.split(":")
        text = (root / path).read_text(encoding="utf-8").splitlines()
        found = text[int(line) - 1 : int(line) + 2]
        assert any(f"def {name.split('.')[-1]}(" in t for t in found), component.name
        assert f"def {name.split('.')[-1]}(" in component.source_text


def test_hugging_faces_attributes_exist():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.gpt2 import modeling_gpt2

    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_layer=1, n_embd=4, n_head=2, vocab_size=5, bos_token_id=None, eos_token_id=None
            )
        )
    instances = {type(module).__name__: module for module in model.modules()}
    for component in (*COMPONENTS, *WHOLES):
        for path in re.findall(r"\b(?:GPT2\w+|eager\w+)[.\w]*", component.huggingface):
            name, _, attribute = path.partition(".")
            owner = getattr(modeling_gpt2, name, None) or getattr(transformers, name, None)
            assert owner is not None, component.name
            if attribute:
                assert hasattr(instances.get(name, owner), attribute), component.name


def test_openais_files_are_cited_by_line():
    for component in (*COMPONENTS, *WHOLES):
        if component.name == "dropout":
            assert component.openai == "", "there is none in what OpenAI published"
        else:
            assert re.match(r"src/(model|encoder|sample)\.py \d+", component.openai)
            for source in cited(OPENAI, component.openai):
                assert re.fullmatch(
                    r"https://github\.com/openai/gpt-2/blob/9b63575\w{33}/src/\w+\.py#L\d+(-L\d+)?",
                    source.url,
                )


# What stands on the lines that are cited of transformers' modeling_gpt2.py.
LINES = {
    "wte": ["self.wte = nn.Embedding(", "inputs_embeds = self.wte(input_ids)"],
    "wpe": ["self.wpe = nn.Embedding(", "position_embeds = self.wpe(position_ids)"],
    "embed": ["hidden_states = inputs_embeds + position_embeds"],
    "dropout": ["self.drop = nn.Dropout(config.embd_pdrop)", "self.drop(hidden_states)"],
    "ln_1": ["self.ln_1 = nn.LayerNorm(", "hidden_states = self.ln_1(hidden_states)"],
    "attn.c_attn": ["self.c_attn = Conv1D(3 * self.embed_dim", ".split(self.split_size, dim=2)"],
    "attn.scores": ["self.scaling = self.head_dim**-0.5", "torch.matmul(query, key.transpose("],
    "attn.pattern": ["nn.functional.softmax(attn_weights, dim=-1)"],
    "attn.z": ["attn_output = torch.matmul(attn_weights, value)"],
    "attn.c_proj": ["self.c_proj = Conv1D(", "attn_output = self.c_proj(attn_output)"],
    "resid_mid": ["attn_output + residual", "residual + feed_forward_hidden_states"],
    "ln_2": ["self.ln_2 = nn.LayerNorm(", "hidden_states = self.ln_2(hidden_states)"],
    "mlp.c_fc": ["self.c_fc = Conv1D(", "self.c_fc(hidden_states)"],
    "mlp.act": ["self.act = ACT2FN[", "self.act(hidden_states)"],
    "mlp.c_proj": ["self.c_proj = Conv1D(", "self.c_proj(hidden_states)"],
    "ln_f": ["self.ln_f = nn.LayerNorm(", "hidden_states = self.ln_f(hidden_states)"],
    "logits": ["_tied_weights_keys", "self.lm_head = nn.Linear(", "logits = self.lm_head("],
    "cache": ["curr_past_key_values.update(key_states, value_states, self.layer_idx)"],
    "attn": ["def forward("],
    "mlp": ["def forward("],
}


@pytest.fixture(scope="module")
def modeling(tmp_path_factory):
    """The lines of modeling_gpt2.py of the release that has what is cited where it is cited."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder)]
    try:
        done = subprocess.run(
            [*pip, "transformers==5.22.2"], check=False, capture_output=True, timeout=90
        )
    except subprocess.TimeoutExpired:
        pytest.skip("transformers 5.22.2 could not be downloaded in 90 seconds")
    if done.returncode:
        pytest.skip(f"transformers 5.22.2 could not be had: {done.stderr.decode()[-200:]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        text = wheel.read("transformers/models/gpt2/modeling_gpt2.py").decode()
    return text.splitlines()


def test_hugging_faces_lines_say_what_they_are_cited_for(modeling):
    components = {c.name: c for c in (*COMPONENTS, *WHOLES) if ".py " in c.huggingface}
    assert components.keys() == LINES.keys()
    for name, component in components.items():
        sources = cited(HUGGING_FACE, component.huggingface)
        for source, expected in zip(sources, LINES[name], strict=True):
            match = re.search(r"modeling_gpt2\.py#L(\d+)(?:-L(\d+))?$", source.url)
            first, last = int(match[1]), int(match[2] or match[1])
            assert expected in "\n".join(modeling[first - 1 : last]), (name, source.text)


def test_the_account_of_one_instance_and_of_all():
    account = ledger(Config(), T=5)
    facts = account.facts(account.of(find("attn.c_attn")))
    assert facts["parameters"] == ("D*3D + 3D = 768*2304 + 2304 = 1,771,776; x 12 = 21,261,312")
    assert facts["operations"] == (
        "2*B*T*D*3D + B*T*3D = 2*1*5*768*2304 + 1*5*2304 = 17,706,240; x 12 = 212,474,880"
    )
    wpe = account.facts(account.of(find("wpe")))
    assert wpe["out"] == "E_pos [B, T, D] = [1, 5, 768]"
    assert wpe["parameters"] == "n_ctx*D = 1024*768 = 786,432"
    assert wpe["limit"] == "at most 1,024 positions, cached ones included"


def test_explanations_are_two_to_five_sentences():
    for component in (*COMPONENTS, *WHOLES):
        sentences = component.explanation.replace("...", "").count(". ") + 1
        assert 2 <= sentences <= 5, component.name


def test_dropout_is_marked_as_the_identity():
    assert "identity" in find("dropout").explanation
    assert "training only" in find("dropout").title


def test_shapes_are_numbers_for_programs(run):
    scores = json.loads(run("explain", "attn.scores", "-T", "5", "--json")[1])
    assert scores["takes_numbers"] == [[1, 12, 5, 64], [1, 12, 5, 64]]
    assert scores["gives_numbers"] == [[1, 12, 5, 5]]


def test_a_component_is_named_by_its_nearest():
    with pytest.raises(InputError, match=r"did you mean attn\.scores\?"):
        find("attn.score")
    with pytest.raises(InputError, match="no component 'zzz'; there are tokenizer, wte, "):
        find("zzz")


def test_bad_runs_are_refused():
    with pytest.raises(InputError, match="T=2000 and S=2000"):
        ledger(Config(), T=2000)
    with pytest.raises(InputError, match="B is 0"):
        ledger(Config(), B=0)


def test_command_prints_the_account(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["explain"]) == 0
    text = capsys.readouterr().out
    assert "V*D + n_ctx*D + L*(12*D*D + 13*D) + 2*D = 124,439,808" in text
    assert "D*3D + 3D = 768*2304 + 2304" in text


TIED = Config(vocab_size=7, n_ctx=5, n_embd=6, n_head=2, n_layer=3)
UNTIED = replace(TIED, tie_word_embeddings=False)


@pytest.mark.parametrize("config", [TIED, UNTIED])
def test_command_counts_a_checkpoint(config, capsys, tmp_path):
    """As Hugging Face once wrote them: with masks, and the head again where it is tied."""
    params = gpt2np.Params.random(config)
    gpt2np.save(gpt2np.Model(params), tmp_path)
    masks = {f"h.{i}.attn.bias": np.ones((1, 1, 5, 5), np.float32) for i in range(3)}
    stored = {**params, **masks, "lm_head.weight": params.lm_head}
    safetensors.save(tmp_path / "model.safetensors", stored)
    assert main(["explain", "-m", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    count, tensors = sum(a.size for a in params.values()), 40 + (config is UNTIED)
    assert (facts["counted"], facts["tensors"]) == (count, tensors)
    copies = dict.fromkeys(masks, 25) | ({"lm_head.weight": 42} if config is TIED else {})
    assert facts["not_counted"] == copies
    assert sum(c["parameters"] for c in facts["components"]) == count
    assert facts["parameters"] == count
    assert main(["explain", "-m", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())  # without its line breaks
    assert f"parameters counted: {count:,} in {tensors} tensors of {tmp_path}" in out
    told = ", ".join([f"{sum(copies.values())} in {len(copies)} tensors", *copies])
    assert f"buffers and copies, not counted: {told}" in out
    assert f" = {count:,}" in out


def test_command_says_what_a_file_has_more_or_less(capsys, tmp_path):
    """llm.c pads the vocabulary to a multiple of 128; nanoGPT can do without biases."""
    write_weights(tiny_model(), tmp_path)
    assert main(["explain", "-m", str(tmp_path / "llm.c" / "model.bin")]) == 0
    assert "parameters counted: 2,912 in 28 tensors" in (out := capsys.readouterr().out)
    assert "; 864 of them are padding" in " ".join(out.split())
    params = gpt2np.Params.random(TIED)
    gpt2np.save(gpt2np.Model(params), tmp_path)
    without = {name: array for name, array in params.items() if not name.endswith(".bias")}
    safetensors.save(tmp_path / "model.safetensors", without)
    assert main(["explain", "-m", str(tmp_path)]) == 0
    left_out = sum(array.size for name, array in params.items() if name.endswith(".bias"))
    out = " ".join(capsys.readouterr().out.split())
    assert f"; the table's other {left_out} are biases of 0" in out


@pytest.mark.parametrize("component", [c.name for c in (*COMPONENTS, *WHOLES)])
def test_command_shows_a_sheet(component, capsys):
    assert main(["explain", component, "-T", "5"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{component}: ")
    assert find(component).code in text
    assert max(map(len, text.splitlines())) <= 100
    assert main(["explain", component, "--latex"]) == 0
    assert find(component).latex.split()[0] in capsys.readouterr().out


@pytest.mark.parametrize("name", ["gpt2-large", "774M", "762M", "openai-community/gpt2-large"])
def test_a_known_model_needs_no_weights_by_any_of_its_names(capsys, monkeypatch, name):
    monkeypatch.setattr(socket, "socket", None)  # any use of the network would fail
    assert main(["explain", "-m", name]) == 0
    assert "774,030,080" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [None, 80, 100, 120, 160, 240])
@pytest.mark.parametrize("argv", [[], ["attn.scores"], ["-m", "gpt2-xl"]])
def test_explain_fits_a_terminal(monkeypatch, capsys, columns, argv):
    """Elsewhere, in a pipe or a file, it fits 80 columns unless COLUMNS says otherwise."""
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
        monkeypatch.setattr(sys, "__stdout__", None)  # what the size of a terminal is asked of
    else:
        monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["explain", *argv]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= (columns or 80)
    if argv != ["attn.scores"]:
        assert "q kᵀ / √K + mask" in out  # the formulas and the counts are there at any width
        assert ("124,439,808" if not argv else "1,557,611,200") in out
        assert ("--markdown has them" in out) == ("in" not in out.splitlines()[0].split())
