"""Write a tiny GPT-2 with Flax, and what it answers: for test_checkpoints_flax.py.

    pip install "transformers==4.49.*" flax; python tests/flax/make.py

transformers 5 has no Flax models any more, so the files are kept.
"""

from pathlib import Path

import jax
import numpy as np
from transformers import FlaxGPT2LMHeadModel, GPT2Config

FOLDER = Path(__file__).parent
IDS = np.array([[1, 5, 0, 2, 6, 3]])


def main():
    config = GPT2Config(
        vocab_size=7,
        n_positions=6,
        n_embd=4,
        n_head=2,
        n_layer=2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = FlaxGPT2LMHeadModel(config, seed=0)
    generator = np.random.RandomState(0)
    model.params = jax.tree_util.tree_map(
        lambda a: np.asarray(a + generator.standard_normal(a.shape) / 2, np.float32), model.params
    )
    np.savez(FOLDER / "expected.npz", ids=IDS, logits=np.asarray(model(IDS).logits))
    model.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink()


if __name__ == "__main__":
    main()
