"""Answers to those who come from another library: what to write instead of what they wrote."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from types import FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from gpt2np.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

# What others call it: what it is called here, if it is, and what else there is to say.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "max_length":               ("max_new_tokens", "it does not count the prompt"),
    "max_tokens":               ("max_new_tokens", ""),
    "max_completion_tokens":    ("max_new_tokens", ""),
    "n_predict":                ("max_new_tokens", ""),
    "length":                   ("max_new_tokens", ""),
    "do_sample":                ("temperature", "0 is greedy, and anything else samples"),
    "temp":                     ("temperature", ""),
    "top_n":                    ("top_k", ""),
    "k":                        ("top_k", ""),
    "nucleus":                  ("top_p", ""),
    "no_repeat_ngram_size":     ("no_repeat_ngram", ""),
    "repeat_penalty":           ("repetition_penalty", ""),
    "logits_processor":         ("processors", "functions (ids, logits) -> logits"),
    "frequency_penalty":        ("processors", "write it as a function (ids, logits) -> logits"),
    "presence_penalty":         ("processors", "write it as a function (ids, logits) -> logits"),
    "logit_bias":               ("processors", "write it as a function (ids, logits) -> logits"),
    "bad_words_ids":            ("processors", "write it as a function (ids, logits) -> logits"),
    "num_return_sequences":     ("num_samples", ""),
    "nsamples":                 ("num_samples", ""),
    "n":                        ("num_samples", ""),
    "beam_size":                ("num_beams", ""),
    "random_state":             ("seed", ""),
    "generator":                ("seed", "it may be a numpy Generator"),
    "stop_strings":             ("stop", ""),
    "stop_sequences":           ("stop", ""),
    "stopping_criteria":        ("stop", "a text or several; or leave the loop over gpt2np.stream"),
    "eos_token_id":             ("eos", "an id or several, where the model's own will not do"),
    "stop_token_ids":           ("eos", "an id or several"),
    "ignore_eos":               ("stop_at_eot", "False goes on"),
    "add_special_tokens":       ("special", "True reads special tokens that a text spells"),
    "prompt_lookup_num_tokens": ("lookup", ""),
    "past_key_values":          ("cache", "a gpt2np.KVCache"),
    "max_window":               ("window", ""),
    "context":                  ("prefix", ""),
    "batch_size":               ("", "give all texts in one list; it is read in batches"),
    "pad_token_id":             ("", "leave it out: prompts may have any lengths"),
    "attention_mask":           ("", "leave it out: prompts may have any lengths"),
    "bos_token_id":             ("", "leave it out: see Model.bos"),
    "use_cache":                ("", "leave it out: there always is a cache"),
    "streamer":                 ("", "use gpt2np.stream"),
    "tokenizer":                ("", "leave it out: the model has its own"),
    "min_new_tokens":           ("", "leave it out: stop_at_eot=False goes on"),
    "device":                   ("", "leave it out: everything runs on the processor"),
    "device_map":               ("", "leave it out: everything runs on the processor"),
    "revision":                 ("", 'write it behind the name: "owner/name@REVISION"'),
    "output_hidden_states":     ("", "use gpt2np.forward with probe=gpt2np.Trace()"),
    "output_attentions":        ("", "use gpt2np.forward with probe=gpt2np.Trace()"),
    "return_dict_in_generate":  ("", "leave it out: a Generation tells ids and logprobs"),
    "output_scores":            ("", "leave it out: a Generation tells ids and logprobs"),
    "skip_special_tokens":      ("", "leave it out: the end of text is in ids, not in text"),
    "input_ids":                ("", "give ids as the second argument, without a name"),
    "inputs":                   ("", "give the prompt as the second argument, without a name"),
    "torch_dtype":              ("dtype", '"float32" or "float64"'),
}  # fmt: skip


class KeywordError(InputError, TypeError):
    """A keyword that the function does not take."""


def answering(settings: type | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function answer a wrong keyword, and show its settings in its signature.

    Parameters
    ----------
    settings : dataclass, optional
        The fields are keywords that the function takes as ``**options``.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature, refuse = _signature(function, settings), _refuse

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not kwargs.keys() <= signature.parameters.keys():
                refuse(function.__name__, signature, kwargs)
            return function(*args, **kwargs)

        # With the globals of the function's module: by these doctest finds what is defined there.
        code, globals_ = call.__code__, getattr(function, "__globals__", {})
        made = FunctionType(code, globals_, function.__name__, None, call.__closure__)
        functools.update_wrapper(made, function)
        made.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Callable[P, R], made)

    return decorate


def _signature(function: Callable[..., Any], settings: type | None) -> inspect.Signature:
    """Give a function's signature, with the fields of its settings in place of ``**options``."""
    signature = inspect.signature(function)
    if settings is None:
        return signature
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in fields(settings)
        if field.init and field.name not in signature.parameters
    ]
    return signature.replace(parameters=[*own, *options])


def _refuse(function: str, signature: inspect.Signature, given: Iterable[str]) -> NoReturn:
    """Say of the first keyword that a function does not take what to write instead."""
    known = signature.parameters
    wrong = next(keyword for keyword in given if keyword not in known)
    name, words = ELSEWHERE.get(wrong, ("", ""))
    close = difflib.get_close_matches(wrong.lower(), known, 1)
    if name in known:
        help = f"give {name}" + f" ({words})" * bool(words)
    elif words and not name:
        help = words
    elif close:
        help = f"did you mean {close[0]}?"
    else:
        help = f"it takes {', '.join(known)}"
    raise KeywordError(f"{function} takes no {wrong}: {help}")
