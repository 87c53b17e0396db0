"""The same work done by gpt2np and by its peers: generate, prefill, logits at all positions."""

from __future__ import annotations

import json
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import gpt2np
from gpt2np.config import PRESETS

Ids = npt.NDArray[np.intp]

NAMES = {
    "hf":          ("HF transformers",     "transformers"),
    "ct2-float32": ("CTranslate2 float32", "ctranslate2"),
    "ct2-int8":    ("CTranslate2 int8",    "ctranslate2"),
}  # fmt: skip


class Contender(Protocol):
    def generate(self, ids: Ids, new: int) -> object:
        """Continue prompts [B, T] greedily by exactly `new` tokens each."""

    def prefill(self, ids: Ids) -> object:
        """Fill a cache with [T] positions and give the logits of the last."""

    def logits(self, ids: Ids) -> object:
        """Give the logits at all of [T] positions."""

    def choices(self, prefix: Ids, rests: Ids) -> object:
        """Give log p of each of [N, T] rests after a prefix, all in one call."""


class GPT2NumPy:
    def __init__(self, folder: Path) -> None:
        self.model = gpt2np.load(folder)
        self.params = self.model.params

    def generate(self, ids: Ids, new: int) -> None:
        made = gpt2np.generate(
            self.model, list(ids), max_new_tokens=new, temperature=0, stop_at_eot=False
        )
        for generation in made:
            check(generation.ids, new)

    def prefill(self, ids: Ids) -> None:
        gpt2np.forward(self.params, ids, gpt2np.KVCache(self.params), last_only=True)

    def logits(self, ids: Ids) -> None:
        gpt2np.forward(self.params, ids)

    def choices(self, prefix: Ids, rests: Ids) -> list[float]:
        return [s.total for s in gpt2np.score(self.model, list(rests), prefix=prefix, bos=False)]


class HuggingFace:
    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import GPT2LMHeadModel

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.torch = torch
        self.model: Any = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
        self.model.generation_config.eos_token_id = None  # all `new` tokens, whatever they are
        self.model.generation_config.pad_token_id = 0

    def generate(self, ids: Ids, new: int) -> None:
        with self.torch.inference_mode():
            prompts = self.torch.from_numpy(ids)
            made = self.model.generate(
                prompts,
                attention_mask=self.torch.ones_like(prompts),
                max_new_tokens=new,
                do_sample=False,
                use_cache=True,
            )
        for row in made:
            check(row[ids.shape[1] :], new)

    def prefill(self, ids: Ids) -> None:
        with self.torch.inference_mode():
            self.model(self.torch.from_numpy(ids[None]), use_cache=True, logits_to_keep=1)

    def logits(self, ids: Ids) -> None:
        with self.torch.inference_mode():
            self.model(self.torch.from_numpy(ids[None]), use_cache=False)

    def choices(self, prefix: Ids, rests: Ids) -> list[float]:
        n = len(prefix)
        with self.torch.inference_mode():
            ids = self.torch.from_numpy(joined(prefix, rests))
            logprobs = self.model(ids, use_cache=False).logits.log_softmax(-1)
            each = logprobs[:, n - 1 : -1].gather(-1, ids[:, n:, None])
            return each.sum((1, 2)).tolist()


class CTranslate2:
    def __init__(self, folder: Path, compute_type: str) -> None:
        import ctranslate2
        from ctranslate2.converters import TransformersConverter

        converted = folder / "ctranslate2"
        if not converted.exists():
            TransformersConverter(str(folder)).convert(str(converted))
        self.generator = ctranslate2.Generator(
            str(converted),
            compute_type=compute_type,
            intra_threads=int(os.environ["OMP_NUM_THREADS"]),
        )
        self.tokens: list[str] = json.loads((converted / "vocabulary.json").read_text("utf-8"))

    def generate(self, ids: Ids, new: int) -> None:
        prompts = [[self.tokens[id] for id in row] for row in ids]
        made = self.generator.generate_batch(
            prompts,
            max_length=new,
            min_length=new,  # no end token before the last
            sampling_topk=1,
            include_prompt_in_result=False,
        )
        for result in made:
            check(result.sequences_ids[0], new)

    def prefill(self, ids: Ids) -> None:
        self.generate(ids[None], 1)  # all but the last position, then one step for that

    def logits(self, ids: Ids) -> None:
        self.generator.forward_batch([ids.tolist()])

    def choices(self, prefix: Ids, rests: Ids) -> list[float]:
        rows = [[self.tokens[id] for id in row] for row in joined(prefix, rests)]
        results = self.generator.score_batch(rows)
        return [sum(result.log_probs[len(prefix) - 1 :]) for result in results]


def joined(prefix: Ids, rests: Ids) -> Ids:
    return np.concatenate([np.tile(prefix, (len(rests), 1)), rests], axis=1)


def check(made: Any, new: int) -> None:
    """Make sure that a contender did all of the work."""
    if len(made) != new:
        raise RuntimeError(f"{len(made)} tokens were generated, not {new}")


@cache
def contender(kind: str, folder: Path) -> Contender | None:
    """Load a peer once; None where it is not installed."""
    if find_spec(NAMES[kind][1]) is None or find_spec("torch") is None:
        return None
    if kind == "hf":
        return HuggingFace(folder)
    return CTranslate2(folder, kind.removeprefix("ct2-"))


def write_model(folder: Path) -> None:
    """Write a model with random weights, as Hugging Face's folders are."""
    params = gpt2np.Params.random(PRESETS["gpt2"])
    gpt2np.save(gpt2np.Model(params, gpt2np.Tokenizer.gpt2()), folder)
