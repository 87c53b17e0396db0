"""Folders as they lie on people's disks: what is in one, and what must come of it.

Each is made by whoever writes such a folder, where that installs; the right numbers are those of
the model that wrote it. What is refused is refused by name, and what is dropped is listed.
"""

import argparse
import enum
import json
import pathlib
import re
import types
import warnings
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pytest
from huggingface import hf_logits, hf_model, torch, transformers
from models import random_params
from safetensors.torch import load_file, save_file, save_model

from gpt2np import CheckpointError, Config, forward, load
from gpt2np.loading import inspect

CONFIG = Config(vocab_size=37, n_ctx=12, n_embd=24, n_head=3, n_layer=2)
EXACT = replace(CONFIG, activation_function="gelu")
IDS = np.random.default_rng(0).integers(37, size=(2, 12))


def reference(config=CONFIG, seed=11, **flags):
    """Hugging Face's model with random weights."""
    return hf_model(random_params(replace(config, **flags), seed))


def write_config(folder, config=CONFIG, **change):
    (folder / "config.json").write_text(json.dumps(config.to_dict() | change), encoding="utf-8")


def linear(model):
    """The state dict as a model of nn.Linear has it: [out, in]."""
    return {
        name: tensor.T.contiguous() if tensor.ndim == 2 and ".h." in name else tensor
        for name, tensor in model.state_dict().items()
    }


def pickled(value, config=True):
    """A writer of a pickle with config.json beside it; `value` makes it of the state dict."""

    def write(folder):
        model = reference()
        torch.save(value(model.state_dict()), folder / "model.pt")
        if config:
            write_config(folder)
        return model

    return write


def renamed(rename):
    """A writer of a file with other names."""

    def write(folder):
        model = reference()
        state = {rename(name): tensor.clone() for name, tensor in model.state_dict().items()}
        save_file(state, folder / "model.safetensors")
        write_config(folder)
        return model

    return write


# What people put beside the tensors.


@dataclass
class GPTConfig:
    """nanoGPT's."""

    block_size: int = 12
    vocab_size: int = 37
    n_layer: int = 2
    n_head: int = 3
    n_embd: int = 24
    dropout: float = 0.0
    bias: bool = True


@dataclass
class LectureConfig:
    """That of Karpathy's build-nanogpt, which trains with the tanh form."""

    block_size: int = 12
    vocab_size: int = 37
    n_layer: int = 2
    n_head: int = 3
    n_embd: int = 24


class Phase(enum.Enum):
    TRAINING = 1


class Runs:
    """Its pickle makes a folder where it is built."""

    def __reduce__(self):
        return pathlib.Path.mkdir, (pathlib.Path("owned"),)


ANYTHING = {
    "args": argparse.Namespace(lr=1e-3, out=pathlib.Path("out")),
    "best": np.float64(1.5),
    "array": np.ones(3),
    "losses": [float(i) for i in range(400_000)],
    "numbers": [np.float32(i) for i in range(1_000)],
    "phase": Phase.TRAINING,
    "date": datetime(2026, 11, 30),
    "sets": ({1, 2}, frozenset("ab")),
    "keys": {("a", 1): 2, Phase.TRAINING: 3, 4: 5},
    "simple": types.SimpleNamespace(a=1),
    "complex": 1 + 2j,
    "generator": torch.Generator().get_state(),
    "dtype": torch.bfloat16,
    "complex tensor": torch.ones(3, dtype=torch.complex64),
    "runs": Runs(),
    "range": range(3),
    "bytes": b"\0" * 99,
}


def with_pickled_config(settings, config, layout):
    def write(folder):
        model = reference(config)
        torch.save({"model": layout(model), "config": settings, "step": 3}, folder / "model.pt")
        return model

    return write


def ema(state):
    return {name: tensor + 1 for name, tensor in state.items()}


NESTS = ("state_dict", "model", "module", "model_state_dict", "model_state", "net", "weights")
PREFIXES = (
    "model.transformer.",
    "net.transformer.",
    "gpt2.transformer.",
    "pretrained_model.transformer.",
    "module.transformer.",
    "_fsdp_wrapped_module.transformer.",
    "module.model._orig_mod.transformer.",
    "gpt2.",
    "",
)


def behind(prefix):
    """The names that a wrapper makes, which may leave the head where it is."""
    outer = prefix.removesuffix("transformer.")
    return lambda name: (
        f"{prefix}{name.removeprefix('transformer.')}"
        if name.startswith("transformer.")
        else f"{outer}{name}"
    )


LOADS = {
    **{f"names behind {prefix!r}": (renamed(behind(prefix)), "") for prefix in PREFIXES},
    "fsdp in the middle": (
        renamed(lambda name: re.sub(r"(h\.\d+\.)", r"\1_fsdp_wrapped_module.", name)),
        "",
    ),
    "the head of 2019": (
        renamed(lambda name: name.replace("lm_head.weight", "lm_head.decoder.weight")),
        "",
    ),
    **{f"under {nest!r}": (pickled(lambda sd, n=nest: {n: sd, "epoch": 3}), "") for nest in NESTS},
    "under two names": (pickled(lambda sd: {"state": {"model": sd, "step": 1}}), ""),
    "an average alone": (pickled(lambda sd: {"ema": sd, "step": 1}), ""),
    "anything beside": (pickled(lambda sd: {"model": sd} | ANYTHING), ""),
    "a flat file with anything in it": (pickled(lambda sd: dict(sd) | {"step": np.int64(3)}), ""),
    "nanoGPT's dataclass": (
        with_pickled_config(GPTConfig(), EXACT, linear),
        "taken for the exact GELU, as nanoGPT has",
    ),
    "the lecture's dataclass": (
        with_pickled_config(LectureConfig(), CONFIG, linear),
        "taken for GELU's tanh form",
    ),
    "a plain dictionary as config": (
        with_pickled_config(CONFIG.to_dict(), CONFIG, torch.nn.Module.state_dict),
        "",
    ),
    "Hugging Face's own config": (
        with_pickled_config(
            {"model": transformers.GPT2Config(**EXACT.to_dict())}, EXACT, torch.nn.Module.state_dict
        ),
        "",
    ),
}


@pytest.mark.parametrize("case", LOADS)
def test_what_loads(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    write, note = LOADS[case]
    folder = tmp_path / "m"
    folder.mkdir()
    model = write(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = forward(load(folder).params, IDS)
    theirs = hf_logits(model, IDS)
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()
    said = " ".join(str(warning.message) for warning in caught)
    assert (note in said) if note else not said
    assert [file.name for file in tmp_path.iterdir()] == ["m"]  # nothing ran


# What is loaded with something left out, and what is refused.


def of_class(name, **settings):
    """A writer of a model with another head, by transformers itself."""

    def write(folder):
        config = transformers.GPT2Config(
            **CONFIG.to_dict(), bos_token_id=None, eos_token_id=None, pad_token_id=0, **settings
        )
        torch.manual_seed(0)
        getattr(transformers, name)(config).save_pretrained(folder)

    return write


def of_save_model(folder):
    """safetensors' own way keeps one of two names of a tied tensor."""
    model = reference()
    save_model(model, str(folder / "model.safetensors"))
    assert list(safe_names(folder)).count("lm_head.weight") == 1
    assert "transformer.wte.weight" not in safe_names(folder)
    write_config(folder)
    return model


def safe_names(folder):
    return load_file(folder / "model.safetensors")


def with_more(*names):
    """A writer of a language model with other things beside it."""

    def write(folder):
        model = reference()
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        save_file(state | {name: torch.ones(1, 24) for name in names}, folder / "model.safetensors")
        write_config(folder)
        return model

    return write


DROPS = {
    "only the head's name": (of_save_model, [], ""),
    "a value head": (with_more("v_head.summary.weight"), ["v_head.summary.weight"], ""),
    "a classifier beside the head": (with_more("score.weight"), ["score.weight"], ""),
    "who knows what": (with_more("clip_project.weight"), ["clip_project.weight"], "no part of a"),
}


@pytest.mark.parametrize("case", DROPS)
def test_what_loads_and_leaves_something_out(tmp_path, case):
    write, dropped, note = DROPS[case]
    model = write(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = forward(load(tmp_path).params, IDS)
    theirs = hf_logits(model, IDS)
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()
    assert [
        name for name in inspect(tmp_path).fitted.dropped if name != "lm_head.weight"
    ] == dropped
    assert bool(caught) == bool(note)
    assert all(note in str(warning.message) for warning in caught)


def test_a_model_of_two_heads(tmp_path):
    """transformers reads the language model out of it, and so does gpt2np."""
    of_class("GPT2DoubleHeadsModel", num_labels=1)(tmp_path)
    theirs = hf_logits(transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval(), IDS)
    ours = forward(load(tmp_path).params, IDS)
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()
    dropped = inspect(tmp_path).fitted.dropped
    assert dropped["multiple_choice_head.summary.weight"] == "another head"


def test_transformers_names_and_defaults_in_config_json(tmp_path):
    model = reference(Config(vocab_size=50257, n_ctx=12, n_embd=24, n_head=3, n_layer=2))
    model.save_pretrained(tmp_path)
    names = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    values = names | {"max_position_embeddings": 12, "model_type": "gpt2"}
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    theirs = hf_logits(transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval(), IDS)
    ours = forward(load(tmp_path).params, IDS)
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()


def test_names_from_a_file_command_no_terminal(tmp_path, run):
    """Wherever they are printed."""
    with_more("\x1b]0;owned\x07.weight", "\u202e\n")(tmp_path)
    for command in (
        ["info", str(tmp_path), "--tensors"],
        ["explain", "-m", str(tmp_path)],
        ["generate", "-m", str(tmp_path), "x"],
        ["info", str(tmp_path / "\x1b[2J")],
    ):
        _, out, err = run(*command)
        assert all(line.isprintable() for line in (out + err).splitlines()), command
        assert "\\x1b" in out + err


def sharded(folder):
    model = reference()
    model.save_pretrained(folder, max_shard_size="20KB")
    return model


def without_index(folder):
    sharded(folder)
    (folder / "model.safetensors.index.json").unlink()


def of_trainer(folder):
    for step in ("checkpoint-500", "checkpoint-1000"):
        reference().save_pretrained(folder / step)


def of_tensorflow(folder):
    for name in ("model.ckpt.data-00000-of-00001", "model.ckpt.meta"):
        (folder / name).write_bytes(bytes(8))


def whole_module(folder):
    torch.save(reference(), folder / "model.pt")
    write_config(folder)


def unmerged(folder):
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(reference(), settings)
    torch.save(model.state_dict(), folder / "model.pt")
    write_config(folder)


REFUSED = {
    "an average beside the model": (
        pickled(lambda sd: {"model": sd, "ema": ema(sd)}),
        "",
        "holds 2 models, 'model' and 'ema': save the one to use by itself",
    ),
    "a reference model in the same dictionary": (
        pickled(
            lambda sd: (
                {f"policy.{k}": v for k, v in sd.items()} | {f"ref.{k}": v for k, v in sd.items()}
            )
        ),
        "",
        "there are two models, policy.transformer.wte and ref.transformer.wte",
    ),
    "another network": (
        pickled(lambda sd: {"conv.weight": torch.ones(3), "fc.bias": torch.ones(2)}),
        "",
        "these are not the tensors of a GPT-2: conv.weight, fc.bias",
    ),
    "another network under some name": (
        pickled(lambda sd: {"generator": {"conv.weight": torch.ones(3)}}),
        "",
        "these are not the tensors of a GPT-2: conv.weight",
    ),
    "a sequence classifier": (
        of_class("GPT2ForSequenceClassification"),
        "",
        "this is a sequence classifier (score.weight): it has no language-model head",
    ),
    "a token classifier": (
        of_class("GPT2ForTokenClassification"),
        "",
        "this is a classifier of tokens (classifier.bias): it has no language-model head",
    ),
    "a model that answers questions": (
        of_class("GPT2ForQuestionAnswering"),
        "",
        "this is a model that answers questions (qa_outputs.bias): it has no language-model head",
    ),
    "a whole module": (
        whole_module,
        "",
        "holds an object of 'transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel', not the",
    ),
    "an adapter that is not merged": (unmerged, "", "is of an adapter that is not merged: save"),
    "a lone shard": (
        without_index,
        "model-00002-of-00004.safetensors",
        "is shard 2 of 4, and model.safetensors.index.json is not beside it: download",
    ),
    "shards without their index": (without_index, "", "is shard 1 of 4, and model.safetensors.ind"),
    "a trainer's output": (of_trainer, "", "holds no model itself: give "),
    "a part of TensorFlow's": (
        of_tensorflow,
        "model.ckpt.data-00000-of-00001",
        "is part of a TensorFlow checkpoint: give its folder, or model.ckpt.index in it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_by_name(tmp_path, case):
    write, file, message = REFUSED[case]
    write(tmp_path)
    with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
        load(tmp_path / file)
    assert str(caught.value).isprintable()


def test_a_shard_leads_to_the_others(tmp_path):
    theirs = hf_logits(sharded(tmp_path), IDS)
    ours = forward(load(tmp_path / "model-00003-of-00004.safetensors").params, IDS)
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()


# LoRA adapters, as peft writes and merges them.


def adapted(folder, change=None, **settings):
    """A base, an adapter of it and what peft makes of both; `change` is made to its config."""
    peft = pytest.importorskip("peft")
    base, adapter = folder / "base", folder / "adapter"
    reference().save_pretrained(base)
    settings = {"r": 2, "lora_alpha": 3, "target_modules": ["c_attn"], **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(
            transformers.GPT2LMHeadModel.from_pretrained(base),
            peft.LoraConfig(task_type="CAUSAL_LM", **settings),
        )
        torch.manual_seed(0)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = torch.randn_like(parameter) * 0.2
        model.save_pretrained(adapter)
        merged = peft.PeftModel.from_pretrained(
            transformers.GPT2LMHeadModel.from_pretrained(base), adapter
        ).merge_and_unload()
    if change:
        file = adapter / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | change), encoding="utf-8")
    return adapter, merged.eval()


ADAPTERS = {
    "attention": {},
    "all of a block": {"target_modules": ["c_attn", "c_proj", "c_fc"], "r": 4},
    "fan_in_fan_out": {"fan_in_fan_out": True},
    "rslora": {"use_rslora": True},
    "patterns": {
        "target_modules": ["c_attn", "c_proj"],
        "rank_pattern": {"h.0.attn.c_proj": 5, "h.1.*c_attn": 1},
        "alpha_pattern": {"c_attn": 7},
    },
    "biases": {"bias": "all"},
    "biases of its modules": {"bias": "lora_only"},
    "a bias of B": {"lora_bias": True},
    "the embedding": {"target_modules": ["wte", "c_attn"]},
    "the head": {"target_modules": ["lm_head", "c_attn"]},
    "a head of its own": {"modules_to_save": ["lm_head"]},
    "an embedding of its own": {"modules_to_save": ["wte"]},
    "both, and a LayerNorm": {"modules_to_save": ["wte", "lm_head", "ln_f"]},
}


@pytest.mark.parametrize("case", ADAPTERS)
def test_an_adapter_is_merged_as_peft_merges_it(tmp_path, case):
    folder, merged = adapted(tmp_path, **ADAPTERS[case])
    theirs = hf_logits(merged, IDS)
    for source in (folder, folder / "adapter_model.safetensors"):
        ours = forward(load(source).params, IDS)
        assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()
    said = inspect(folder).adapter
    assert said == f"adapter_model.safetensors, merged into {tmp_path / 'base'}"
    alone = forward(load(tmp_path / "base").params, IDS)
    assert np.abs(alone - theirs).max() > 0.01


def test_an_adapter_beside_its_base(tmp_path):
    """It is applied to the folder; to a file of it, it is not, and that is said."""
    folder, merged = adapted(tmp_path, {"base_model_name_or_path": "no/such"})
    for file in (tmp_path / "base").iterdir():
        file.rename(folder / file.name)
    theirs = hf_logits(merged, IDS)
    model = load(folder)
    assert np.abs(forward(model.params, IDS) - theirs).max() <= 2e-5 * np.abs(theirs).max()
    assert [file.name for file in inspect(folder).checkpoint.files] == [
        "model.safetensors",
        "adapter_model.safetensors",
    ]
    with pytest.warns(UserWarning, match="is not applied to a file: load the folder"):
        load(folder / "model.safetensors")


def test_an_adapter_of_torch_save(tmp_path):
    folder, merged = adapted(tmp_path)
    state = load_file(folder / "adapter_model.safetensors")
    (folder / "adapter_model.safetensors").unlink()
    torch.save(state, folder / "adapter_model.bin")
    theirs = hf_logits(merged, IDS)
    ours = forward(load(folder).params, IDS)
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "is an adapter with use_dora, which gpt2np does not compute"),
        ({"peft_type": "PREFIX_TUNING"}, "is an adapter of the kind 'PREFIX_TUNING'"),
        ({"init_lora_weights": "pissa"}, "began as 'pissa', which changes the base too"),
        ({"layer_replication": [[0, 1]]}, "is an adapter with layer_replication"),
        ({"base_model_name_or_path": None}, "does not say what the adapter's base is"),
        ({"r": 3}, "has rank 2, but adapter_config.json says 3"),
        ({"r": "many"}, "r is 'many', not a positive number"),
        ({"lora_alpha": float("inf")}, "lora_alpha is inf, not a positive number"),
        ({"rank_pattern": {"(a+)+": 1, "(": 2}}, "rank_pattern has '('"),
        ({"rank_pattern": 3}, "rank_pattern is 3"),
    ],
    ids=str,
)
def test_an_adapter_that_is_refused(tmp_path, change, message):
    folder, _ = adapted(tmp_path, change)
    with pytest.raises(CheckpointError, match=re.escape(message)):
        load(folder)
