"""What a type checker says of user code, with the wheel and with an editable install."""

import os
import re
import subprocess
import sys

import pytest

# All of it is right, down to the type of each value.
RIGHT = """
from collections.abc import Iterator

import numpy as np

import gpt2np
from gpt2np import Config, Generation, KVCache, Model, Params, Score, Tokenizer, Trace

model: Model = gpt2np.load()
config: Config = model.config
params: Params = model.params
tokenizer: Tokenizer = model.tokenizer
checked = gpt2np.golden.check
ids: list[int] = tokenizer.encode("text")
n: int = len(ids)

one: Generation = gpt2np.generate(model, "text", temperature=0.8, top_k=40, seed=1)
text: str = one.text
of_ids: Generation = gpt2np.generate(model, ids)
several: list[Generation] = gpt2np.generate(model, "text", num_samples=3)
of_a_list: list[Generation] = gpt2np.generate(model, ["a", "b"])
of_each: list[list[Generation]] = gpt2np.generate(model, ["a", "b"], num_samples=3)
unknown: Generation | list[Generation] = gpt2np.generate(model, "text", num_samples=n)
pieces: Iterator[str] = gpt2np.stream(model, "text", max_new_tokens=3)

scored: Score = gpt2np.score(model, "text")
surprisal: float = float(scored.surprisal[0])
scores: list[Score] = gpt2np.score(model, ["a", "b"])
choices: list[Score] = gpt2np.score(model, [" a", " b"], prefix="text", top=3)
of_prefixes: list[Score] = gpt2np.score(model, "a", prefix=["x", "y"])
error: float = gpt2np.evaluate(model, "lambada", "file.jsonl").figures["accuracy"].stderr
of_many: float = gpt2np.perplexity(model, "text")

trace = Trace("h.*.attn.pattern")
logits = gpt2np.forward(params, [ids], KVCache(params), last_only=True, probe=trace)
arg_max: int = int(np.argmax(logits[0, -1]))
"""

# Each line of it is wrong.
WRONG = """
gpt2np.generate(model, "x").txet
gpt2np.generate(model, ["x"]).text
gpt2np.generate(model, "x", num_samples=2).text
gpt2np.generate(model, "x", num_samples=len(ids)).text
gpt2np.generate(model, "x", max_new_token=3)
gpt2np.generate(model, "x", top_k="40")
gpt2np.generate(model.params, "x")
gpt2np.stream(model, "x", max_new_token=3)
gpt2np.stream(model, "x", 3)
gpt2np.score(model, "x").suprisal
gpt2np.score(model, ["x"]).surprisal
gpt2np.score(model, "x", bso=True)
gpt2np.evaluate(model, "lambda", "file.jsonl")
gpt2np.perplexity(model, "x", winodw=3)
gpt2np.load("x", dtpye="float64")
gpt2np.forward(model, ids)
gpt2np.forward(params, ids, prob=None)
gpt2np.laod()
model.tokenizer.encode("x").upper()
model.tokenzier
model.config.n_layers
KVCache(model)
Trace(3)
""".strip().splitlines()


def mypy(python, file):
    pytest.importorskip("mypy.api", reason="mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental"]
    return [*command, "--python-executable", python, file]


def pyright(python, file):
    pytest.importorskip("pyright", reason="pyright is not installed")
    return [sys.executable, "-m", "pyright", "--pythonpath", python, file]


def lines_of_errors(checker, python, folder, code):
    """The numbers of the lines that a type checker finds wrong."""
    (folder / "user.py").write_text(code, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    command, settings = checker(python, "user.py"), {"cwd": folder, "env": environment}
    done = subprocess.run(command, check=False, capture_output=True, text=True, **settings)
    told = done.stdout + done.stderr
    if "pyright" in checker.__name__ and not re.search(r"\d+ errors?", told):
        pytest.skip(f"pyright cannot run here: {told.strip().splitlines()[-1:]}")
    assert done.returncode in (0, 1), told
    return [int(line) for line in re.findall(r"user\.py:(\d+):.*\berror\b", told)], told


@pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)
def test_right_code_passes(checker, python, tmp_path):
    lines, told = lines_of_errors(checker, python, tmp_path, RIGHT)
    assert not lines, told
    assert re.search("Success|0 errors", told), told


@pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)
def test_wrong_code_does_not(checker, python, tmp_path):
    lines, told = lines_of_errors(checker, python, tmp_path, RIGHT + "\n".join(WRONG))
    first = len(RIGHT.splitlines()) + 1
    missed = [line for i, line in enumerate(WRONG, first) if i not in lines]
    assert not missed, told
    assert min(lines) >= first, told
