"""What a caller may give as a prompt, as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from gpt2np.errors import InputError
from gpt2np.loading import Model
from gpt2np.model import check_ids
from gpt2np.params import Ids

Prompt: TypeAlias = str | Sequence[int] | Ids


def parse_prompts(model: Model, prompt: Any) -> tuple[list[Ids], bool]:
    """Give the ids of each prompt, and whether there was a list of them."""
    if isinstance(prompt, list | tuple) and not prompt:
        raise InputError(
            "the prompt is an empty list: give a text, token ids, or a list of these "
            '(the empty text "" starts from <|endoftext|>)'
        )
    if isinstance(prompt, np.ndarray):
        many = prompt.ndim == 2
    else:
        many = isinstance(prompt, list | tuple) and isinstance(
            prompt[0], str | list | tuple | np.ndarray
        )
    prompts = list(prompt) if many else [prompt]
    if not prompts:
        raise InputError(f"the prompt is an array of shape {list(prompt.shape)}: it has no rows")
    return [prompt_ids(model, one) for one in prompts], many


def prompt_ids(model: Model, prompt: Any) -> Ids:
    """Give the ids of one prompt; those of an empty one are <|endoftext|>."""
    if not isinstance(prompt, str | list | tuple | np.ndarray):
        raise InputError(
            "a prompt must be a text or token ids, or all prompts in a list, "
            f"not {type(prompt).__name__}: {prompt!r:.50}"
        )
    if isinstance(prompt, str):
        prompt = model.tokenizer.encode(prompt)
    if prompt.size == 0 if isinstance(prompt, np.ndarray) else not prompt:
        if model.bos is None:
            raise InputError(
                "an empty prompt starts from <|endoftext|>, which this model does not have: "
                "give at least one token id"
            )
        prompt = [model.bos]
    ids = check_ids(model.config, prompt)
    if len(ids) > 1:
        raise InputError(f"one prompt of a list is itself a list of {len(ids)}: {prompt!r:.50}")
    return np.asarray(ids[0], np.intp)
