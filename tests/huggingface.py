"""Hugging Face's GPT-2 with our weights: what the numbers are held against."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def hf_config(config, attention="eager"):
    return transformers.GPT2Config(
        **config.to_dict(), bos_token_id=None, eos_token_id=None, attn_implementation=attention
    )


def hf_model(params, attention="eager"):
    """GPT2LMHeadModel with a copy of each array, in their dtype."""
    model = transformers.GPT2LMHeadModel(hf_config(params.config, attention)).eval()
    model.to(torch.float64 if params.dtype == np.float64 else torch.float32)
    state = {f"transformer.{name}": torch.tensor(array) for name, array in params.items()}
    head = state.pop("transformer.lm_head.weight", state["transformer.wte.weight"])
    model.load_state_dict({**state, "lm_head.weight": head})
    return model


def hf_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor(np.asarray(ids))).logits.numpy()
