"""Spoil a model's folder at random and load it: a model or a GPT2Error in one line, nothing else.

    PYTHONPATH=. python tests/fuzz_loading.py --seconds 600 [--seed 1]

The files are good ones of their formats: what is spoilt is what they say, the config's values, the
names, shapes and types of the tensors, and what is in the pickle beside them. fuzz_checkpoints.py
spoils the formats themselves.
"""

import argparse
import io
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from checkpoint_files import dict_of, name, number, storage, stream, tensor, text, torch_zip
from fuzz_checkpoints import ODD_VALUES, spoil_json

from gpt2np import Config, Params
from gpt2np.checkpoints import safetensors
from gpt2np.cli import main as gpt2np_main

CONFIG = Config(vocab_size=11, n_ctx=6, n_embd=8, n_head=2, n_layer=2)
TENSORS = dict(Params.random(CONFIG))
NAMES = [
    *TENSORS,
    *(f"transformer.{key}" for key in TENSORS),
    "lm_head.weight",
    "score.weight",
    "h.2.ln_1.weight",
    "h.0.attn.bias",
    "model/wte",
    "module.",
    "h..",
    "h.99999999999999999999.ln_1.bias",
    "\x1b]0;owned\x07",
    "\u202e",
    "",
    "x" * 5000,
]
SHAPES = [(), (0,), (8,), (8, 8), (24, 8), (0, 3, 4), (1, 8, 8), (2, 2, 2, 2), (1,) * 8, (11, 8)]
TYPES = ["float32", "float64", "float16", "int64", "bool", "uint8"]
KEYS = ["n_embd", "hidden_size", "activation_function", "tie_word_embeddings", "eos_token_id"]
STATE = ["model", "state_dict", "module", "model_args", "config", "hyper_parameters", "optimizer"]


def spoil_tensors(tensors, rng):
    tensors = dict(tensors)
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        key = rng.choice(list(tensors))
        change = rng.randrange(5)
        if change == 0:
            del tensors[key]
        elif change == 1:
            tensors[rng.choice(NAMES)] = tensors.pop(key)
        elif change == 2:
            tensors[rng.choice(NAMES)] = tensors[key]
        elif change == 3:
            tensors[key] = np.ones(rng.choice(SHAPES), rng.choice(TYPES))
        else:
            prefix = rng.choice(["module.", "model.transformer.", "x.", "transformer.h.", "\n"])
            tensors = {prefix + key: array for key, array in tensors.items()}
    return tensors


def spoil_config(values, rng):
    for _ in range(rng.choice([0, 1, 1, 3])):
        values = spoil_json(values, rng)
        if isinstance(values, dict) and rng.random() < 0.3:
            values = {**values, rng.choice(KEYS): rng.choice(ODD_VALUES)}
    return values


def plain(value):
    """A value of JSON as a pickle."""
    if isinstance(value, dict):
        return dict_of({key: plain(item) for key, item in value.items()})
    if isinstance(value, list):
        return b"](" + b"".join(map(plain, value)) + b"e"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return number(value)
    return text(value) if isinstance(value, str) else b"N"


def torch_file(tensors, beside, rng):
    """A checkpoint with things of any class beside the tensors."""
    kinds = {"float32": "FloatStorage", "float64": "DoubleStorage", "int64": "LongStorage"}
    state, storages = {}, {}
    for i, (key, array) in enumerate(tensors.items()):
        if array.dtype.name in kinds:
            strides = tuple(n // array.itemsize for n in array.strides)
            kept = storage(str(i), kinds[array.dtype.name], array.size)
            state[key], storages[str(i)] = tensor(kept, 0, array.shape, strides), array.tobytes()
    nests = rng.sample(STATE, 2) if rng.random() < 0.8 else []
    value = dict_of(state)
    for nest in nests[: rng.choice([1, 2])]:
        value = dict_of({nest: value, "x": name("a", "B") + b")\x81" + plain(beside) + b"b"})
    more = {rng.choice(STATE): plain(beside), "o": name("os", "system") + b")R"}
    value = dict_of({nests[0]: value} | more) if nests else value
    return torch_zip(stream(value), storages)


ADAPTER = {
    "peft_type": "LORA",
    "base_model_name_or_path": ".",
    "r": 2,
    "lora_alpha": 4,
    "use_rslora": False,
    "rank_pattern": {"c_proj": 1},
    "alpha_pattern": {},
    "modules_to_save": None,
}
MATRICES = {
    "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight": np.ones((2, 8), "<f4"),
    "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight": np.ones((24, 2), "<f4"),
    "base_model.model.transformer.h.1.attn.c_proj.lora_A.weight": np.ones((1, 8), "<f4"),
    "base_model.model.transformer.h.1.attn.c_proj.lora_B.weight": np.ones((8, 1), "<f4"),
    "base_model.model.transformer.wte.lora_embedding_A": np.ones((2, 11), "<f4"),
    "base_model.model.transformer.wte.lora_embedding_B": np.ones((8, 2), "<f4"),
    "base_model.model.lm_head.weight": np.ones((11, 8), "<f4"),
    "base_model.model.transformer.ln_f.bias": np.ones(8, "<f4"),
}


def make_adapter(folder, rng):
    """A good base, with a spoilt adapter beside it."""
    (folder / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    safetensors.save(folder / "model.safetensors", TENSORS)
    encoded = json.dumps(spoil_config(ADAPTER, rng)).encode("utf-8", "surrogatepass")
    (folder / "adapter_config.json").write_bytes(encoded)
    matrices = spoil_tensors(MATRICES, rng) if rng.random() < 0.7 else MATRICES
    safetensors.save(folder / "adapter_model.safetensors", matrices)


def make(folder, rng):
    if rng.random() < 0.25:
        make_adapter(folder, rng)
        return
    config = spoil_config(CONFIG.to_dict(), rng)
    encoded = json.dumps(config).encode("utf-8", "surrogatepass")
    tensors = spoil_tensors(TENSORS, rng)
    if rng.random() < 0.9:
        (folder / "config.json").write_bytes(encoded)
    if rng.random() < 0.5:
        safetensors.save(folder / "model.safetensors", tensors)
    else:
        beside = spoil_config(CONFIG.to_dict() | {"block_size": 6, "bias": True}, rng)
        (folder / "pytorch_model.bin").write_bytes(torch_file(tensors, beside, rng))


def try_one(folder):
    """Describe the model; "loaded" or "refused"."""
    out, errors = io.StringIO(), io.StringIO()
    stderr, sys.stderr = sys.stderr, errors
    try:
        with redirect_stdout(out):
            code = gpt2np_main(["info", str(folder), "--tensors"])
    finally:
        sys.stderr = stderr
    lines = out.getvalue().splitlines() + errors.getvalue().splitlines()
    assert all(line.isprintable() for line in lines), lines
    if code == 0:
        return "loaded"
    assert code == 2, code
    message = errors.getvalue()
    assert message.count("\n") == 1, message
    assert message.startswith("gpt2np: error: "), message
    assert len(message) < 700, message
    return "refused"


def fuzz(seconds, seed=0, inputs=sys.maxsize):
    """Counts by outcome, and the longest time; an input follows from its number."""
    counts, longest = Counter(), 0.0
    end = time.monotonic() + seconds
    for i in range(seed << 40, (seed << 40) + min(inputs, 1 << 40)):
        if time.monotonic() > end:
            break
        folder = Path(tempfile.mkdtemp())
        try:
            make(folder, random.Random(i))
            start = time.process_time()
            counts[try_one(folder)] += 1
            longest = max(longest, time.process_time() - start)
        except Exception as error:
            raise AssertionError(f"input {i}") from error
        finally:
            shutil.rmtree(folder)
    return counts, longest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts, longest = fuzz(options.seconds, options.seed)
    print(f"{sum(counts.values()):,} inputs: {dict(counts)}; the longest took {longest:.3f} s")


if __name__ == "__main__":
    sys.exit(main())
