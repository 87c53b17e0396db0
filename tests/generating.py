"""What tests of generation share: to dictate what comes, to count what is read, to compare."""

import numpy as np
import pytest
from hypothesis import settings

import gpt2np.model

few = settings(max_examples=25, deadline=None)


def dictate(tokens, n_prompt):
    """A processor that leaves one token at a time, these in turn."""

    def processor(ids, logits):
        row = np.full_like(logits, -np.inf)
        row[tokens[len(ids) - n_prompt]] = 0
        return row

    return processor


def reads(monkeypatch):
    """The shapes [B, T] of all that any model reads from now on."""
    shapes, embed = [], gpt2np.model.embed

    def noting(params, ids, *rest, **options):
        shapes.append(ids.shape)
        return embed(params, ids, *rest, **options)

    monkeypatch.setattr(gpt2np.model, "embed", noting)
    return shapes


def same(a, b):
    """Equal, log-probabilities up to rounding."""
    assert (a.ids, a.text, a.prompt_ids, a.finish_reason) == (
        b.ids,
        b.text,
        b.prompt_ids,
        b.finish_reason,
    )
    assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
    return True
