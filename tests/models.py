"""The models of the tests: random weights that bring out every part of GPT-2, in a few sizes."""

import math

import numpy as np

import gpt2np
from gpt2np import Config, Model, Params

SMALL = {"vocab_size": 12, "n_ctx": 32, "n_embd": 16, "n_head": 2, "n_layer": 2}


def random_params(config, seed=0, dtype=np.float32):
    """Params.random with wider matrices, so that what they multiply keeps its size.

    As GPT-2 starts its training, attention is all but even: an error in it hardly shows. Here it
    is as uneven as in a trained model, and float32 still tells the logits to six digits.
    """
    spread = (50 if config.scale_attn_weights else 25) / math.sqrt(config.n_embd)
    params = Params.random(config, seed, dtype)
    wider = {k: a if a.ndim == 1 else a * a.dtype.type(spread) for k, a in params.items()}
    return Params(config, wider)


def random_model(tokenizer=None, *, seed=0, dtype=np.float32, **sizes):
    """A model of those, of SMALL's sizes but for the given ones and the tokenizer's."""
    if tokenizer is not None:
        sizes = {"vocab_size": tokenizer.n_vocab, **sizes}
    return Model(random_params(Config(**{**SMALL, **sizes}), seed, np.dtype(dtype)), tokenizer)


def saved_model(folder, tokenizer=None, **settings):
    """The path of a folder with such a model; without a tokenizer, of GPT-2's vocabulary."""
    sizes = {} if tokenizer is not None else {"vocab_size": 50257}
    return str(gpt2np.save(random_model(tokenizer, **{**sizes, **settings}), folder))


class Letters:
    """A tokenizer of eleven letters and $, the end of text."""

    tokens = "abcdefghijk$"
    n_vocab, eot, begins_with = 12, 11, None

    def encode(self, text, *, special=False):
        return [self.tokens.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(self.tokens[id] for id in ids)

    def token_bytes(self, id):
        return self.tokens[id].encode()


LETTERS = Letters()
# In float64, so that no tie is left to chance.
letters = random_model(LETTERS, seed=3, dtype=np.float64)
bare = Model(letters.params)  # no tokenizer: ids only
