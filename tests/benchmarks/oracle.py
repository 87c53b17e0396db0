"""Measure how far float32 is from float64: the RMS error of gpt2np's logits over transformers'
(sdpa), at the 124M shape; print two Markdown tables.

    python tests/benchmarks/oracle.py [--parts FOLDER] [--texts 3] [--positions 1,4,16,...]

Errors show only with weights of GPT-2's true scale. FOLDER, or a checkpoint, holds some of its
tensors; of a block that is not there the nearest one is taken, and what no block has is drawn.
Without, all is drawn, at the same scale but for what training makes of it.

The oracle is gpt2np in float64 (tests/test_oracle.py holds it against transformers' float64).
Texts are random ids. They are read in one pass, and through the cache: token by token, and some
at a time. The other table is of batches: texts of different lengths, which go on by a few tokens.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from huggingface import hf_model, torch
from timing import machine, restart

from gpt2np import Config, KVCache, Params, forward, layers, model
from gpt2np.bench import n_threads
from gpt2np.checkpoints import open_checkpoint
from gpt2np.config import PRESETS
from gpt2np.generation.predictor import Predictor
from gpt2np.schema import tensors

POSITIONS = (1, 4, 16, 64, 128, 512, 1023)
AT_A_TIME = (1, 16, 128)
BATCHES = (4, 16, 64)
LONGEST, NEW = 128, 4  # tokens of a batch's texts at most, and how many each goes on by

# The standard deviation of each kind of tensor in the 124M model, LayerNorm's gains around their
# mean; a few channels of the positions' vectors are ten times as large.
SCALES = {
    "wte.weight":         0.14,
    "wpe.weight":         0.12,
    "attn.c_attn.weight": 0.14,
    "attn.c_attn.bias":   0.12,
    "attn.c_proj.weight": 0.13,
    "attn.c_proj.bias":   0.20,
    "mlp.c_fc.weight":    0.13,
    "mlp.c_fc.bias":      0.09,
    "mlp.c_proj.weight":  0.08,
    "mlp.c_proj.bias":    0.10,
    "ln_1.weight":        0.06,
    "ln_1.bias":          0.05,
    "ln_2.weight":        0.10,
    "ln_2.bias":          0.05,
    "ln_f.weight":        1.40,
    "ln_f.bias":          0.40,
}  # fmt: skip
MEANS = {"ln_1.weight": 0.4, "ln_2.weight": 0.4, "ln_f.weight": 1.5}
LARGE_CHANNELS = slice(138, None, 200)


def weights(config: Config, parts: dict[str, Any] | None = None) -> Params:
    """Take what there is in parts of a model, and draw the rest from a frozen generator."""
    parts = parts or {}
    generator = np.random.RandomState(0)
    arrays = {}
    for name, shape, _ in tensors(config):
        array = nearest(name, parts)
        if array is None:
            kind = re.sub(r"^h\.\d+\.", "", name)
            array = SCALES[kind] * generator.standard_normal(shape) + MEANS.get(kind, 0.0)
            if kind == "wpe.weight":
                array[:, LARGE_CHANNELS] *= 10
        # The MLP's second matrix lies as `load` lays it, on which its products depend.
        order = "F" if name.endswith("mlp.c_proj.weight") else "C"
        arrays[name] = np.asarray(array, np.float32, order=order)
    return Params(config, arrays)


def nearest(name: str, parts: dict[str, Any]) -> Any:
    """Give the tensor, or that of the nearest block; None where there is none."""
    block = re.match(r"h\.(\d+)\.(.*)", name)
    if block is None:
        return parts.get(name)
    i, kind = int(block[1]), block[2]
    there = [int(m[1]) for p in parts if (m := re.match(r"h\.(\d+)\.", p)) and p.endswith(kind)]
    return parts[f"h.{min(there, key=lambda j: abs(i - j))}.{kind}"] if there else None


def ours(params: Params, ids: Any, at_a_time: int) -> Any:
    """Logits [1, T, V] of ids [1, T], of which so many are read at a time."""
    if at_a_time >= ids.shape[1]:
        return forward(params, ids)
    cache = KVCache(params)
    read = partial(forward, params, cache=cache)
    return np.concatenate([read(part) for part in split(ids, at_a_time)], axis=1)


def theirs(hf: Any, ids: Any, at_a_time: int) -> Any:
    past, logits = None, []
    for part in split(ids, at_a_time):
        output = call(hf, part, past)
        past = output.past_key_values
        logits.append(output.logits.numpy())
    return np.concatenate(logits, axis=1)


def split(ids: Any, at_a_time: int) -> Iterator[Any]:
    for i in range(0, ids.shape[1], at_a_time):
        yield ids[:, i : i + at_a_time]


def call(hf: Any, ids: Any, past: Any, **inputs: Any) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # an argument's name is changing
        inputs = {name: torch.from_numpy(array) for name, array in inputs.items()}
        return hf(torch.from_numpy(ids), past_key_values=past, use_cache=True, **inputs)


def our_batch(params: Params, texts: Sequence[Any]) -> Any:
    """Logits [B, NEW, V] after each of the last tokens of texts, as `generate` reads them."""
    predictor = Predictor(params, params.config.vocab_size)
    cache, _ = predictor.prefill([text[:-NEW] for text in texts], max(map(len, texts)))
    new = np.array([text[-NEW:] for text in texts])
    return np.stack([predictor.after_last(part, cache) for part in split(new, 1)], axis=1)


def their_batch(hf: Any, texts: Sequence[Any]) -> Any:
    """The same, padded at the left as its `generate` does."""
    T = max(map(len, texts))
    ids = np.array([np.pad(text, (T - len(text), 0)) for text in texts])
    mask = np.array([np.arange(T) >= T - len(text) for text in texts]).astype(int)
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    past, logits = None, []
    for start, stop in [(0, T - NEW), *((t, t + 1) for t in range(T - NEW, T))]:
        read = slice(start, stop)
        output = call(
            hf, ids[:, read], past, attention_mask=mask[:, :stop], position_ids=positions[:, read]
        )
        past = output.past_key_values
        logits.append(output.logits[:, -1].numpy())
    return np.stack(logits[1:], axis=1)


@contextmanager
def torchs_products() -> Iterator[None]:
    """Multiply as torch does: what still differs from transformers is due to the rest."""

    def product(x: Any, W: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.matmul(torch.from_numpy(x), torch.from_numpy(W)).numpy()

    with patch.object(layers, "product", product), patch.object(model, "product", product):
        yield


def squares(logits: Any, oracle: Any) -> Any:
    """The mean square error at each position [..., T], relative to the oracle's largest number."""
    return np.square((logits - oracle) / np.abs(oracle).max()).mean(-1)


class Errors:
    """Mean square errors of both, by what was read and how."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[str, int], list[tuple[float, float]]] = {}

    def add(self, how: str, n: int, ours: Any, theirs: Any) -> None:
        self.pairs.setdefault((how, n), []).append((float(ours.mean()), float(theirs.mean())))

    def rms(self, how: str, n: int) -> tuple[float, float]:
        mine, other = np.sqrt(np.mean(self.pairs[how, n], axis=0)).tolist()
        return mine, other

    def ratio(self, how: str, n: int) -> float:
        mine, other = self.rms(how, n)
        return mine / other

    def table(self, title: str, rows: Sequence[str], columns: Sequence[int]) -> str:
        """Ratios; in brackets the error of transformers."""
        lines = ["| " + " | ".join([title, *(f"{n:,}" for n in columns)]) + " |"]
        lines.append("|---" * (1 + len(columns)) + "|")
        for how in rows:
            if not any((how, n) in self.pairs for n in columns):
                continue
            cells = [
                f"{self.ratio(how, n):.2f} ({self.rms(how, n)[1]:.1e})"
                if (how, n) in self.pairs
                else "-"
                for n in columns
            ]
            lines.append("| " + " | ".join([how, *cells]) + " |")
        return "\n".join(lines)


HOW = {None: "one pass", 1: "token by token", **{n: f"{n} at a time" for n in AT_A_TIME[1:]}}
TORCHS = "one pass, torch's products"


def measure(
    params: Params, texts: int, positions: Sequence[int], batches: Sequence[int] = ()
) -> Errors:
    """Compare on so many texts, and on one batch of each size."""
    found = Errors()
    hf = hf_model(params, "sdpa")
    wide = Params(params.config, {name: a.astype(np.float64) for name, a in params.items()})
    rng = np.random.default_rng(0)
    V, T = params.config.vocab_size, max(positions)
    for _ in range(texts):
        ids = rng.integers(V, size=(1, T))
        oracle = forward(wide, ids)[0]
        for n in positions:
            part = ids[:, :n]
            other = squares(theirs(hf, part, n)[0], oracle[:n])
            for how, products in ((HOW[None], nullcontext()), (TORCHS, torchs_products())):
                with products:
                    found.add(how, n, squares(ours(params, part, n)[0], oracle[:n]), other)
        for size in AT_A_TIME:
            mine, other = (
                squares(logits[0], oracle)
                for logits in (ours(params, ids, size), theirs(hf, ids, size))
            )
            for n in positions:
                if n >= size:
                    found.add(HOW[size], n, mine[:n], other[:n])
    for B in batches:
        longest = min(LONGEST, params.config.n_ctx - NEW)
        rows = [rng.integers(V, size=n + NEW) for n in rng.integers(1, longest + 1, B)]
        oracle = np.stack([forward(wide, row)[0, -NEW:] for row in rows])
        found.add("batch", B, *(
            squares(logits, oracle) for logits in (our_batch(params, rows), their_batch(hf, rows))
        ))  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", type=Path, help="a checkpoint of some of GPT-2's tensors")
    parser.add_argument("--texts", type=int, default=3)
    parser.add_argument("--positions", default=",".join(map(str, POSITIONS)))
    args = parser.parse_args()
    restart(n_threads())
    config = PRESETS["gpt2"]
    parts = dict(open_checkpoint(args.parts).tensors) if args.parts else {}
    n_there = sum(nearest(name, parts) is not None for name, _, _ in tensors(config))
    positions = [int(n) for n in args.positions.split(",")]
    found = measure(weights(config, parts), args.texts, positions, BATCHES)
    print(f"{machine()}\n{n_there} of {len([*tensors(config)])} tensors from parts, others drawn\n")
    print(found.table("positions", [HOW[None], TORCHS, *(HOW[n] for n in AT_A_TIME)], positions))
    print()
    print(found.table("texts", ["batch"], BATCHES))


if __name__ == "__main__":
    main()
