"""Measure gpt2np against Hugging Face transformers, CTranslate2, tiktoken, tokenizers and the
machine itself, at the 124M shape with random weights; print a Markdown table.

    pip install -e '.[parity,bench]'
    python tests/benchmarks/run.py [--rows decode,prefill] [--quick] [--threads 2] [--folder F]

Contenders take turns within one process, and the best of several times counts. What a row
compares is either the rate, and then more is better, or a cost that must stay below a limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from contenders import NAMES, Contender, GPT2NumPy, Ids, contender, write_model
from timing import HEADER, Row, first_output, in_turn, machine, markdown, restart, timed

import gpt2np
from gpt2np.bench import n_threads, products

TOKENS = np.random.default_rng(1).integers(0, 50257, (64, 1024))


@dataclass(frozen=True)
class Setting:
    """The model, where it is, and how much time there is."""

    ours: GPT2NumPy
    folder: Path
    quick: bool

    def rounds(self, full: int) -> int:
        return 1 if self.quick else full

    @property
    def new(self) -> int:
        return 32 if self.quick else 128

    def compare(
        self,
        work: str,
        do: Callable[[Contender], object],
        targets: dict[str, float],
        *,
        rounds: int,
        tokens: int = 0,
    ) -> Iterator[Row]:
        """Time gpt2np and peers in turn: as tokens per second where tokens are given."""
        peers = {kind: contender(kind, self.folder) for kind in targets}
        loaded = {"gpt2np": self.ours, **peers}
        works = {kind: timed(partial(do, c)) for kind, c in loaded.items() if c is not None}
        times = in_turn(works, self.rounds(rounds))

        def shown(kind: str) -> float:
            return tokens / times[kind] if tokens else times[kind]

        unit = "tokens/s" if tokens else "s"
        for kind, target in targets.items():
            if kind in times:
                yield Row(work, NAMES[kind][0], unit, target, shown("gpt2np"), shown(kind))
            else:
                yield Row(work, NAMES[kind][0], unit, target, missing=True)


def decode(s: Setting) -> Iterator[Row]:
    prompt = TOKENS[:1, :64]
    yield from s.compare(
        f"decode, 64 + {s.new} tokens",
        lambda c: c.generate(prompt, s.new),
        {"hf": 2.2, "ct2-float32": 1.0, "ct2-int8": 1.0},
        rounds=3,
        tokens=s.new,
    )


def floor(s: Setting) -> Iterator[Row]:
    """Every step of a decoding is followed by the products alone, on the same weights."""
    alone = products(s.ours.params, 1, head_rows=1)
    steps = Steps(s.ours.params, 64)
    times = in_turn(
        {"step": timed(steps.next), "floor": timed(alone)}, s.new, pause=0, statistic=median
    )
    yield Row(
        f"decode, 64 + {s.new} tokens",
        "its matrix-vector products alone",
        "tokens/s",
        0.88,
        1 / times["step"],
        1 / times["floor"],
    )


def long(s: Setting) -> Iterator[Row]:
    near, far = Steps(s.ours.params, 64), Steps(s.ours.params, 900)
    times = in_turn(
        {"near": timed(near.next), "far": timed(far.next)},
        min(s.new, 100),
        pause=0,
        statistic=median,
    )
    yield Row(
        "decode at 900 cached",
        "itself at 64",
        "tokens/s",
        0.85,
        1 / times["far"],
        1 / times["near"],
    )


class Steps:
    """A greedy decoding, one token at a time."""

    def __init__(self, params: gpt2np.Params, cached: int) -> None:
        self.params = params
        self.cache = gpt2np.KVCache(params)
        self.token = self.pick(TOKENS[0, :cached])

    def pick(self, ids: Ids) -> Ids:
        return gpt2np.forward(self.params, ids, self.cache, last_only=True)[0, 0].argmax()[None]

    def next(self) -> None:
        self.token = self.pick(self.token)


def batch(s: Setting, size: int, hf: float, ct2: float) -> Iterator[Row]:
    prompts = TOKENS[:size, :64]
    yield from s.compare(
        f"generate, batch of {size}",
        lambda c: c.generate(prompts, s.new),
        {"hf": hf, "ct2-float32": ct2},
        rounds=2,
        tokens=size * s.new,
    )


def prefill(s: Setting, length: int) -> Iterator[Row]:
    ids = TOKENS[0, :length]
    work = f"prefill of {length}"
    yield from s.compare(
        work,
        lambda c: c.prefill(ids),
        {"hf": 1.7, "ct2-float32": 1.0 if length == 512 else 1.1},
        rounds=6,
    )
    alone = products(s.ours.params, length, head_rows=0)
    works = {"ours": timed(partial(s.ours.prefill, ids)), "floor": timed(alone)}
    times = in_turn(works, s.rounds(6))
    target = 0.8 if length == 512 else 0.72
    yield Row(work, "its layers' products alone", "s", target, times["ours"], times["floor"])


def all_logits(s: Setting) -> Iterator[Row]:
    ids = TOKENS[0, :1023]
    yield from s.compare("logits at all of 1023", lambda c: c.logits(ids), {"hf": 1.4}, rounds=4)


def choices(s: Setting) -> Iterator[Row]:
    prefix, rests = TOKENS[0, :200], TOKENS[:4, 200:208]
    yield from s.compare(
        "4 choices of 8 tokens after a prefix of 200",
        lambda c: c.choices(prefix, rests),
        {"hf": 2.5, "ct2-float32": 1.0},
        rounds=6,
    )


OURS = """
import sys, gpt2np
model = gpt2np.load(sys.argv[1])
print(gpt2np.generate(model, "Hello", max_new_tokens=1, temperature=0), flush=True)
"""

THEIRS = """
import sys
from transformers import AutoTokenizer, GPT2LMHeadModel
tokenizer, model = (c.from_pretrained(sys.argv[1]) for c in (AutoTokenizer, GPT2LMHeadModel))
prompt = tokenizer("Hello", return_tensors="pt")
made = model.generate(**prompt, max_new_tokens=1, do_sample=False, pad_token_id=0)
print(tokenizer.decode(made[0, -1]), flush=True)
"""


def lookup(s: Setting) -> Iterator[Row]:
    """Texts that repeat themselves and one that does not, each as if the model wrote just that."""
    rng, k = np.random.default_rng(2), 15
    code = Path(gpt2np.__file__).with_name("loading.py").read_text(encoding="utf-8")
    passage, comment = rng.integers(0, 50257, (2, 200))
    texts = {
        "a loop":        (1.8, np.resize(rng.integers(0, 50257, 20), 512)),
        "a quotation":   (1.8, np.concatenate([passage, comment, passage])),
        "code":          (1.8, np.array(gpt2np.Tokenizer.gpt2().encode(code)[-900:])),
        "no repetition": (0.9, rng.permutation(50257)[:512]),
    }  # fmt: skip
    for name, (target, ids) in texts.items():
        cache = gpt2np.KVCache(s.ours.params)
        gpt2np.forward(s.ours.params, ids[: -s.new], cache, last_only=True)
        write = partial(dictated, s.ours.model, ids, s.new, cache)
        times = in_turn({str(n): timed(partial(write, n)) for n in (0, k)}, s.rounds(3), pause=0)
        yield Row(
            f"{name}, lookup={k}",
            "without lookup",
            "tokens/s",
            target,
            s.new / times[str(k)],
            s.new / times["0"],
        )


def dictated(model: gpt2np.Model, ids: Ids, new: int, cache: gpt2np.KVCache, k: int) -> None:
    """Let the model write the last `new` of the ids."""

    def only(seen: Ids, logits: gpt2np.params.Array) -> gpt2np.params.Array:
        return np.where(np.arange(len(logits)) == ids[len(seen)], 0, -np.inf)

    made = gpt2np.generate(
        model,
        ids[:-new],
        max_new_tokens=new,
        temperature=0,
        lookup=k,
        stop_at_eot=False,
        processors=[only],
        cache=cache,
    )
    if made.ids != ids[-new:].tolist():
        raise RuntimeError("other tokens than those dictated")


def cold_start(s: Setting) -> Iterator[Row]:
    folder = str(s.folder)
    python = [sys.executable, "-c"]
    commands = {
        "process start to first token": [*python, OURS, folder],
        "gpt2np generate, to first token": [
            sys.executable,
            "-m",
            "gpt2np",
            "generate",
            "--no-echo",
            "-m",
            folder,
            "-n",
            "1",
            "-t",
            "0",
            "Hello",
        ],
    }
    if contender("hf", s.folder) is None:
        yield from (Row(work, NAMES["hf"][0], "s", 8, missing=True) for work in commands)
        return
    works = {**commands, "theirs": [*python, THEIRS, folder]}
    times = in_turn({name: partial(first_output, w) for name, w in works.items()}, s.rounds(4))
    for work in commands:
        yield Row(work, NAMES["hf"][0], "s", 8, times[work], times["theirs"])


def script(code: str, s: Setting) -> str:
    """Run a script in a process of its own and give what it prints."""
    command = [sys.executable, "-c", code, str(s.folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def import_time(s: Setting) -> Iterator[Row]:
    """What an import adds to a bare interpreter; names of gpt2np are imported when first used."""
    codes = {
        "bare":   "pass",
        "numpy":  "import numpy",
        "gpt2np": "import gpt2np",
        "used":   "from gpt2np import load, generate",
    }  # fmt: skip
    runs = {
        name: timed(partial(subprocess.run, [sys.executable, "-c", code], check=True))
        for name, code in codes.items()
    }
    times = in_turn(runs, 5 if s.quick else 30, pause=0)
    cost = {name: 1000 * (taken - times["bare"]) for name, taken in times.items()}
    for name in ("gpt2np", "used"):
        yield Row(codes[name], codes["numpy"], "ms", 1.3, cost[name], cost["numpy"], at_most=True)


PEAK = """
import sys, gpt2np
from gpt2np.bench import peak_memory
model = gpt2np.load(sys.argv[1])
gpt2np.generate(model, "Hello", max_new_tokens=128, temperature=0)
print(peak_memory())
"""


def memory(s: Setting) -> Iterator[Row]:
    """Peak of resident memory, the pages of the mapped file among it."""
    ours = int(script(PEAK, s)) / 1e6
    weights = sum(array.nbytes for array in s.ours.params.values()) / 1e6
    yield Row(
        "peak memory, load + 128 tokens",
        f"its weights ({weights:.0f} MB) + 120 MB",
        "MB",
        1,
        ours,
        weights + 120,
        at_most=True,
    )


def tokenizer(s: Setting) -> Iterator[Row]:
    """What bench_tokenizer.py measures."""
    if find_spec("bench_tokenizer") is None:
        return
    import bench_tokenizer

    yield from bench_tokenizer.rows(quick=s.quick)


SECTIONS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "decode":       decode,
    "floor":        floor,
    "long":         long,
    "batch-4":      lambda s: batch(s, 4, 1.8, 1.05),
    "batch-16":     lambda s: batch(s, 16, 1.5, 1.2),
    "batch-64":     lambda s: batch(s, 64, 1.4, 1.1),
    "prefill-512":  lambda s: prefill(s, 512),
    "prefill-1023": lambda s: prefill(s, 1023),
    "all-logits":   all_logits,
    "choices":      choices,
    "lookup":       lookup,
    "cold-start":   cold_start,
    "import":       import_time,
    "memory":       memory,
    "tokenizer":    tokenizer,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", help=f"some of: {','.join(SECTIONS)} (a prefix will do)")
    parser.add_argument("--quick", action="store_true", help="one round, 32 new tokens")
    parser.add_argument("--folder", type=Path, help="where to keep the model for the next run")
    parser.add_argument("--threads", type=int, default=n_threads())
    arguments = parser.parse_args()
    restart(arguments.threads)
    prefixes = tuple(arguments.rows.split(",")) if arguments.rows else ("",)
    sections = {name: run for name, run in SECTIONS.items() if name.startswith(prefixes)}
    rows = []
    with nullcontext(arguments.folder) if arguments.folder else TemporaryDirectory() as folder:
        if not (Path(folder) / "config.json").exists():
            write_model(Path(folder))
        setting = Setting(GPT2NumPy(Path(folder)), Path(folder), arguments.quick)
        for name, run in sections.items():
            start = time.perf_counter()
            for row in run(setting):
                rows.append(row)
                print(" | ".join(row.cells()), file=sys.stderr)
            print(f"({name} took {time.perf_counter() - start:.0f} s)", file=sys.stderr)
    print(f"{machine()}\n")
    print(markdown(HEADER, [row.cells() for row in rows]))


if __name__ == "__main__":
    main()
