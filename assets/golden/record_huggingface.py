"""Record 124M.npz ... 1558M.npz: what Hugging Face's GPT-2 computes at the four published shapes.

The weights are those of ``Params.random(PRESETS[name], SEED)``, so that nothing but the answers is
kept: at POSITIONS, every LOGIT_STEP-th logit, the ten likeliest ids and every WIDTH_STEP-th element
of some activations, under the names of the modules; at all positions the largest logit and the
log of the sum of their exponentials; and a greedy continuation. 124M also has the logits of the
first POSITIONS in float64. Needs torch and transformers (the files hold the versions), and memory
for one copy of the weights, 6.2 GB for 1558M:

    python record_huggingface.py 124M 355M 774M 1558M
"""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from gpt2np import Params
from gpt2np.config import PRESETS

NAMES = {"124M": "gpt2", "355M": "gpt2-medium", "774M": "gpt2-large", "1558M": "gpt2-xl"}
FOLDER = Path(__file__).parent
SEED = 20190214
LENGTH = 160  # more than one block of queries
POSITIONS = (0, 1, 2, 31, 127, 128, 159)
LOGIT_STEP = 499
WIDTH_STEP = 61
PROMPT, NEW = 24, 8  # the first ids are continued greedily
SHORT = 32  # positions in float64


def token_ids(vocab_size):
    return np.random.RandomState(SEED).randint(vocab_size, size=LENGTH)


def activation_names(n_layer):
    middle = n_layer // 2
    inner = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.act", "mlp.c_proj")
    return [
        "wte",
        "wpe",
        "h.0",
        *(f"h.{middle}.{name}" for name in inner),
        f"h.{middle}",
        f"h.{n_layer - 1}",
        "ln_f",
    ]


def hugging_face(params):
    """Hugging Face's model on the very arrays of `params`: there is no second copy."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        **params.config.to_dict(), bos_token_id=None, eos_token_id=None, attn_implementation="eager"
    )
    with torch.device("meta"):
        model = GPT2LMHeadModel(config).eval()
    state = {f"transformer.{name}": torch.from_numpy(array) for name, array in params.items()}
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    return model


def run(model, ids, names):
    """The logits [T, V], and the activations of the modules of those names, [T, width]."""
    import torch

    seen = {}
    hooks = [
        model.transformer.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: seen.update({name: output[0].numpy()})
        )
        for name in names
    ]
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0].numpy()
    for hook in hooks:
        hook.remove()
    return logits, seen


def record(size):
    import torch

    config = PRESETS[NAMES[size]]
    params = Params.random(config, SEED)
    model = hugging_face(params)
    ids = token_ids(config.vocab_size)
    logits, activations = run(model, ids, activation_names(config.n_layer))
    at = list(POSITIONS)
    answers = {
        "logits": logits[at, ::LOGIT_STEP],
        "top": np.argsort(-logits[at], axis=-1)[:, :10],
        "max": logits.max(-1),
        "logsumexp": torch.from_numpy(logits).double().logsumexp(-1).float().numpy(),
        "greedy": model.generate(
            torch.from_numpy(ids[:PROMPT])[None], do_sample=False, max_new_tokens=NEW
        )[0, PROMPT:].numpy(),
    }
    answers |= {name: array[at, ::WIDTH_STEP] for name, array in activations.items()}
    if size == "124M":
        logits, _ = run(model.double(), ids[:SHORT], [])
        answers["logits_float64"] = logits[[p for p in at if p < SHORT], ::LOGIT_STEP]
    versions = [f"{name} {version(name)}" for name in ("torch", "transformers", "numpy")]
    np.savez_compressed(FOLDER / f"{size}.npz", versions=versions, **answers)


if __name__ == "__main__":
    for size in sys.argv[1:]:
        record(size)
