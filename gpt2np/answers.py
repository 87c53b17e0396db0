"""Answers to those who come from another library: what to write instead of what they wrote."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from gpt2np.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

_ANY = "generate and score take texts of any lengths"

# What others call it: what it is called here, if it is, and what else there is to say.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "max_length":               ("max_new_tokens", "it does not count the prompt"),
    "max_tokens":               ("max_new_tokens", ""),
    "max_completion_tokens":    ("max_new_tokens", ""),
    "n_predict":                ("max_new_tokens", ""),
    "length":                   ("max_new_tokens", ""),
    "min_length":               ("", "leave it out: stop_at_eot=False goes on"),
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
    "suppress_tokens":          ("processors", "write it as a function (ids, logits) -> logits"),
    "typical_p":                ("processors", "write it as a function (ids, logits) -> logits"),
    "prefix_allowed_tokens_fn": ("processors", "write it as a function (ids, logits) -> logits"),
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
    "assistant_model":          ("lookup", "drafts come from the text itself"),
    "generation_config":        ("", "give its settings themselves: temperature, top_k, ..."),
    "past_key_values":          ("cache", "a gpt2np.KVCache"),
    "max_window":               ("window", ""),
    "labels":                   ("", "-gpt2np.score(model, ids, bos=False).mean is the loss"),
    "context":                  ("prefix", ""),
    "batch_size":               ("", "give all texts in one list; it is read in batches"),
    "pad_token_id":             ("", f"leave it out: {_ANY}"),
    "attention_mask":           ("", f"leave it out: {_ANY}"),
    "bos_token_id":             ("", "leave it out: see Model.bos"),
    "use_cache":                ("", "leave it out: generate has a cache, forward takes one"),
    "streamer":                 ("", "use gpt2np.stream"),
    "tokenizer":                ("", "leave it out: the model has its own"),
    "min_new_tokens":           ("", "leave it out: stop_at_eot=False goes on"),
    "device":                   ("", "leave it out: everything runs on the processor"),
    "device_map":               ("", "leave it out: everything runs on the processor"),
    "revision":                 ("", 'write it behind the name: "owner/name@REVISION"'),
    "token":                    ("", "set HF_TOKEN"),
    "cache_dir":                ("", "set HF_HUB_CACHE"),
    "local_files_only":         ("", "set HF_HUB_OFFLINE=1"),
    "trust_remote_code":        ("", "leave it out: no file runs code"),
    "low_cpu_mem_usage":        ("", "leave it out: weights stay in their file where they can"),
    "use_safetensors":          ("", "leave it out: a format is known by its content"),
    "attn_implementation":      ("", "leave it out: there is one, exact attention"),
    "load_in_8bit":             ("", "leave it out: weights are float32 or float64"),
    "load_in_4bit":             ("", "leave it out: weights are float32 or float64"),
    "safe_serialization":       ("", "leave it out: weights are written as safetensors"),
    "output_hidden_states":     ("", "gpt2np.forward(..., probe=gpt2np.Trace()) records them"),
    "output_attentions":        ("", "gpt2np.forward(..., probe=gpt2np.Trace()) records them"),
    "return_dict":              ("", "leave it out: the logits themselves come back"),
    "position_ids":             ("", "leave it out: positions follow those in the cache"),
    "return_dict_in_generate":  ("", "leave it out: a Generation tells ids and logprobs"),
    "return_full_text":         ("", "leave it out: a Generation has prompt and text"),
    "output_scores":            ("", "leave it out: a Generation tells ids and logprobs"),
    "skip_special_tokens":      ("", "leave it out: the end of text is in ids, not in text"),
    "input_ids":                ("", "give ids as the second argument, without a name"),
    "inputs":                   ("", "give the prompt as the second argument, without a name"),
    "torch_dtype":              ("dtype", '"float32" or "float64"'),
}  # fmt: skip

_READY = "leave it out: a model is ready as it is, and everything runs on the processor"
_WIDE = 'leave it out: weights are float32, or float64 by gpt2np.load(source, dtype="float64")'

# By class, and for the package itself: what others have there, and what to write here. "()" is the
# call of the thing itself.
INSTEAD: dict[str, dict[str, str]] = {
    "gpt2np": {
        "AutoModelForCausalLM GPT2LMHeadModel AutoModel GPT2Model": "gpt2np.load(source)",
        "from_pretrained load_model HookedTransformer":             "gpt2np.load(source)",
        "AutoTokenizer GPT2Tokenizer GPT2TokenizerFast":  "gpt2np.load(source).tokenizer",
        "encode tokenize":                                "model.tokenizer.encode(text)",
        "decode":                                         "model.tokenizer.decode(ids)",
        "AutoConfig GPT2Config":                          "gpt2np.Config",
        "pipeline":                                       "gpt2np.generate(model, prompt)",
        "TextStreamer TextIteratorStreamer":              "gpt2np.stream(model, prompt)",
        "GenerationConfig":           "the settings of gpt2np.generate: temperature, top_k, ...",
        "LogitsProcessor LogitsProcessorList":            "generate(..., processors=[function])",
        "StoppingCriteria StoppingCriteriaList":          "generate(..., stop=texts)",
        "DynamicCache":                                   "gpt2np.KVCache(model.params)",
        "set_seed":                                       "generate(..., seed=1)",
    },
    "Model": {
        "() forward":                       "gpt2np.forward(model.params, ids)",
        "run_with_cache run_with_hooks":    "gpt2np.forward(model.params, ids, probe=...)",
        "generate":                         "gpt2np.generate(model, prompt)",
        "stream score perplexity explain":  "gpt2np.{name}(model, text)",
        "save save_pretrained":             "gpt2np.save(model, folder)",
        "encode to_tokens":                 "model.tokenizer.encode(text)",
        "decode to_string":                 "model.tokenizer.decode(ids)",
        "eval train to cuda cpu device":    _READY,
        "half float double bfloat16":       _WIDE,
        "dtype":                            "model.params.dtype",
        "parameters named_parameters":      "model.params.items()",
        "state_dict":                       "dict(model.params)",
        "num_parameters":                   "model.params.n_params",
        "transformer h blocks":             "model.params.blocks",
        "wte wpe ln_f lm_head":             "model.params.{name}",
        "get_input_embeddings":             "model.params.wte",
        "eos_token_id":                     "model.eos",
        "bos_token_id":                     "model.bos",
    },
    "Config": {
        "n_positions max_position_embeddings":  "config.n_ctx",
        "hidden_size":                          "config.n_embd",
        "num_hidden_layers":                    "config.n_layer",
        "num_attention_heads":                  "config.n_head",
        "eos_token_id":                         "model.eos",
        "bos_token_id":                         "model.bos",
    },
    "Params": {
        "h transformer":                        "params.blocks",
        "state_dict parameters named_parameters":   "dict(params)",
    },
    "Tokenizer": {
        "() encode_plus batch_encode_plus":     "tokenizer.encode(text), of one text",
        "batch_decode":                         "tokenizer.decode(ids), of one row of ids",
        "tokenize convert_ids_to_tokens":       "tokenizer.decode(id), for each id",
        "convert_tokens_to_ids":                "tokenizer.encode(text)",
        "eos_token_id bos_token_id eos_token eot_token":   "tokenizer.eot",
        "pad_token_id pad_token":               f"leave it out: {_ANY}",
        "vocab_size":                           "tokenizer.n_vocab",
        "model_max_length":                     "model.config.n_ctx",
        "save_pretrained":                      "tokenizer.save(folder)",
    },
    "KVCache": {
        "get_seq_length":                       "cache.length",
        "crop":                                 "cache.truncate(length)",
        "reorder_cache":                        "cache.select(rows)",
    },
    "Generation": {
        "sequences":                            "generation.prompt_ids + generation.ids",
        "scores":                               "generation.logprobs",
        "generated_text":                       "generation.text",
    },
    "Score": {
        "loss":                                 "-score.mean",
    },
}  # fmt: skip


def instead(of: str, name: str) -> str:
    """What to write instead of somebody else's name for something, as the end of a message.

    Examples
    --------
    >>> instead("Config", "hidden_size"), instead("Config", "zzz")
    (': write config.n_embd', '')
    """
    found = [here for names, here in INSTEAD.get(of, {}).items() if name in names.split()]
    write = "" if "".join(found).startswith("leave it out") else "write "
    return f": {write}{found[0].format(name=name)}" if found else ""


class Answering:
    """A value that answers to others' names for what it has."""

    __slots__ = ()

    if not TYPE_CHECKING:  # to a type checker it would make any name a right one

        def __init_subclass__(cls, **options: Any) -> None:
            super().__init_subclass__(**options)
            if answer := instead(cls.__name__, "()"):
                cls.__call__ = _uncallable(f"a {cls.__name__} is no function{answer}")

        def __getattr__(self, name: str) -> Any:
            of = type(self).__name__
            message = f"{of!r} object has no attribute {name!r}"
            if answer := instead(of, name):
                raise AttributeError(message + answer)
            raise AttributeError(message, name=name, obj=self)  # Python names what is near


def _uncallable(message: str) -> Callable[..., NoReturn]:
    def call(*args: object, **options: object) -> NoReturn:
        raise TypeError(message)

    return call


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
    close = difflib.get_close_matches(wrong.lower(), known, 1, 0.8)
    if name in known:
        help = f"give {name}" + f" ({words})" * bool(words)
    elif words and not name:
        help = words
    elif close:
        help = f"did you mean {close[0]}?"
    else:
        help = f"it takes {', '.join(known)}"
    raise KeywordError(f"{function} takes no {wrong}: {help}")
