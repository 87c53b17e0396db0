"""A GPT-2 that somebody trained and published with transformers of 2022, from the package iglm.

Its weights are in the older .bin format, with byte masks, and its vocabulary is of amino acids. The
licence is non-commercial: nothing of it is here, and the tests are skipped where it is not
installed (``pip install --no-deps iglm``).
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from closeness import assert_close

import gpt2np
from gpt2np.checkpoints import open_checkpoint

SPEC = find_spec("iglm")

pytestmark = pytest.mark.skipif(SPEC is None, reason="the package iglm is not installed")


@pytest.mark.parametrize("name", ["IgLM", "IgLM-S"])
def test_a_published_model_gives_hugging_faces_logits(name):
    huggingface = pytest.importorskip("huggingface")
    folder = Path(SPEC.submodule_search_locations[0]) / "trained_models" / name
    checkpoint = open_checkpoint(folder)
    assert checkpoint.format == "pytorch"
    # Only the weights: the vocabulary beside them is of another kind of tokenizer.
    params = gpt2np.load(folder / "pytorch_model.bin").params
    theirs = huggingface.hf_model(params)
    wanted = theirs.state_dict().keys()
    state = huggingface.torch.load(
        folder / "pytorch_model.bin", weights_only=True, map_location="cpu"
    )
    masks = state.keys() - wanted
    assert all(name.endswith((".attn.bias", ".attn.masked_bias")) for name in masks)
    theirs.load_state_dict({name: state[name] for name in wanted})
    ids = np.random.default_rng(0).integers(params.config.vocab_size, size=(2, 50))
    logits = huggingface.hf_logits(theirs, ids)
    assert_close(gpt2np.forward(params, ids), logits)
