"""Measure how far float32 implementations are from float64, at the 124M shape with random weights;
print a Markdown table, of means over several draws of weights and ids.

    python tests/benchmarks/oracle.py [--positions 128] [--seeds 5]

The oracle is gpt2np in float64 (tests/test_oracle.py holds it against Hugging Face's float64).
Errors are relative to the largest number. All positions are read in one pass, and then the first
few one by one through the cache, where the BLAS has other kernels and other errors.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from contenders import CTranslate2
from huggingface import hf_model, torch
from timing import restart

import gpt2np
from gpt2np import layers, model
from gpt2np.bench import n_threads
from gpt2np.config import PRESETS, Config
from gpt2np.model import hidden, unembed

Arrays = dict[str, Any]
Errors = dict[str, dict[str, tuple[float, ...]]]  # implementation, activation: largest, RMS

BY_TOKEN = 32  # positions that are read one by one


def ours(params: gpt2np.Params, ids: Any) -> Arrays:
    """The last block's output and the logits, as `forward` computes them."""
    x = hidden(params, ids)
    return {f"h.{params.config.n_layer - 1}": x, "logits": unembed(params, x)}


def ours_by_torchs_blas(params: gpt2np.Params, ids: Any) -> Arrays:
    """The same with torch's matrix products: what differs from `ours` is due to those alone."""

    def product(x: Any, W: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.matmul(torch.from_numpy(x), torch.from_numpy(W)).numpy()

    with patch.object(layers, "product", product), patch.object(model, "product", product):
        return ours(params, ids)


def hugging_face(params: gpt2np.Params, ids: Any, attention: str) -> Arrays:
    hf, seen = hf_model(params, attention), {}
    name = f"h.{params.config.n_layer - 1}"

    def keep(module: Any, inputs: Any, output: Any) -> None:
        seen[name] = (output[0] if isinstance(output, tuple) else output).numpy()

    hf.transformer.h[-1].register_forward_hook(keep)
    with torch.no_grad():
        logits = hf(torch.from_numpy(ids), use_cache=False).logits.numpy()
    return {**seen, "logits": logits}


def ours_by_token(params: gpt2np.Params, ids: Any) -> Arrays:
    cache = gpt2np.KVCache(params)
    each = [gpt2np.forward(params, ids[:, t : t + 1], cache) for t in range(ids.shape[1])]
    return {"logits": np.concatenate(each, axis=1)}


def hugging_face_by_token(params: gpt2np.Params, ids: Any) -> Arrays:
    hf, past, each = hf_model(params, "sdpa"), None, []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the argument's name is changing
        for id in torch.from_numpy(ids).T[..., None]:
            output = hf(id, past_key_values=past, use_cache=True)
            past = output.past_key_values
            each.append(output.logits.numpy())
    return {"logits": np.concatenate(each, axis=1)}


def ctranslate2(params: gpt2np.Params, ids: Any) -> Arrays:
    with TemporaryDirectory() as folder:
        gpt2np.save(gpt2np.Model(params, gpt2np.Tokenizer.gpt2()), folder)
        generator = CTranslate2(Path(folder), "float32").generator
        return {"logits": np.array(generator.forward_batch(ids.tolist()))}


def errors(array: Any, oracle: Any) -> tuple[float, float]:
    """The largest error and the root of the mean square, to the largest number."""
    d = (array - oracle) / np.abs(oracle).max()
    return float(np.abs(d).max()), float(np.sqrt((d * d).mean()))


def implementations(params: gpt2np.Params, ids: Any) -> Iterator[tuple[str, Arrays]]:
    yield "gpt2np float32", ours(params, ids)
    yield "gpt2np float32, torch's products", ours_by_torchs_blas(params, ids)
    yield "HF transformers float32, eager", hugging_face(params, ids, "eager")
    yield "HF transformers float32, sdpa", hugging_face(params, ids, "sdpa")
    if find_spec("ctranslate2") and params.config == PRESETS["gpt2"]:
        yield "CTranslate2 float32", ctranslate2(params, ids)
    few = ids[:, :BY_TOKEN]
    yield "gpt2np float32, token by token", ours_by_token(params, few)
    yield "HF transformers float32, token by token", hugging_face_by_token(params, few)


def compare(config: Config, seed: int, T: int) -> Errors:
    """Give (largest, RMS) error by implementation and activation."""
    params = gpt2np.Params.random(config, seed)
    ids = np.random.default_rng(seed).integers(config.vocab_size, size=(1, T))
    wide = {name: array.astype(np.float64) for name, array in params.items()}
    oracle = ours(gpt2np.Params(config, wide), ids)
    del wide
    return {
        name: {p: errors(array, oracle[p][:, : array.shape[1]]) for p, array in arrays.items()}
        for name, arrays in implementations(params, ids)
    }


def mean(runs: list[Errors]) -> Errors:
    """Average over runs what `compare` gives."""
    return {
        name: {
            point: tuple(np.mean([run[name][point] for run in runs], axis=0).tolist())
            for point in by_point
        }
        for name, by_point in runs[0].items()
    }


def markdown(results: Errors) -> str:
    points = list(next(iter(results.values())))
    lines = [
        "| " + " | ".join(["", *(f"{p}: largest error | RMS" for p in points)]) + " |",
        "|---" * (1 + 2 * len(points)) + "|",
    ]
    for name, by_point in results.items():
        cells = [f"{x:.2e}" for p in points for x in by_point.get(p, ())]
        blanks = ["-"] * (2 * len(points) - len(cells))
        lines.append("| " + " | ".join([name, *blanks, *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--positions", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    restart(n_threads())
    runs = [compare(PRESETS["gpt2"], seed, args.positions) for seed in range(args.seeds)]
    print(markdown(mean(runs)))
    for how, theirs in (("", ", sdpa"), (", token by token", ", token by token")):
        ratios = [
            run[f"gpt2np float32{how}"]["logits"][1]
            / run[f"HF transformers float32{theirs}"]["logits"][1]
            for run in runs
        ]
        print(
            f"\nRMS error of gpt2np's logits over Hugging Face's{theirs}: "
            f"{np.mean(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}"
        )


if __name__ == "__main__":
    main()
