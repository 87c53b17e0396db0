"""Write a model as one file: GGUF, which llama.cpp reads, NumPy's .npz, or llm.c's .bin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpt2np import tokenizer_files
from gpt2np.checkpoints import families, gguf, llmc, npz
from gpt2np.config import Config
from gpt2np.errors import InputError
from gpt2np.loading import Model
from gpt2np.params import Array
from gpt2np.tokenizer import Tokenizer
from gpt2np.vocabulary import Vocabulary

FILES = (".gguf", ".npz", ".bin")  # how the names of such files end
DTYPES = ("float32", "float16")

# The activation that a GGUF of GPT-2 stands for, by its two names.
_ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh")
# GPT-2's end of text: transformers takes it where a header names none.
_DEFAULT_END = 50256


def export(model: Model, path: Path, dtype: str, *, overwrite: bool) -> Path:
    """Write the file that its name asks for; see `save`."""
    if path.exists() and not overwrite:
        raise InputError(
            f"{path} is there already: name another, or replace it with overwrite=True"
        )
    dtypes = DTYPES[:1] if path.suffix == ".bin" else DTYPES
    if dtype not in dtypes:
        raise InputError(f"{path.suffix} is written in {' or '.join(dtypes)}, not {dtype}")
    if path.suffix == ".bin":
        _export_llmc(model, path, overwrite=overwrite)
    elif path.suffix == ".gguf":
        _export_gguf(model, path, dtype)
    else:
        _export_npz(model, path, dtype)
    return path


def _export_llmc(model: Model, path: Path, *, overwrite: bool) -> None:
    """Write llm.c's model, and beside it, as name_tokenizer.bin, the tokens for its decoder."""
    config = model.config
    plain = Config(
        *(config.vocab_size, config.n_ctx, config.n_embd, config.n_head, config.n_layer),
        activation_function=config.activation_function,
    )
    if config != plain or config.activation_function not in _ACTIVATIONS:
        raise InputError(
            f"{path}: llm.c knows GPT-2 as OpenAI has it alone: gelu_new, a tied head, epsilon "
            "1e-5, and scores scaled by 1/sqrt(K)"
        )
    tokens = path.with_name(f"{path.stem}_tokenizer.bin")
    if model.has_tokenizer and tokens.exists() and not overwrite:
        raise InputError(f"{tokens} is there already: name another, or replace it by --force")
    llmc.save(path, model.params, n_head=config.n_head)
    if model.has_tokenizer:
        tokenizer = model.tokenizer
        data = [tokenizer.token_bytes(id) for id in range(tokenizer.n_vocab)]
        llmc.save_tokenizer(tokens, data, model.eos[0] if model.eos else len(data) - 1)


def _export_npz(model: Model, path: Path, dtype: str) -> None:
    """Hugging Face's names, with the config and a tokenizer that is not GPT-2's own beside them."""
    ends = {"bos_token_id": model.bos, "eos_token_id": list(model.eos) or None}
    config = {**model.beside.config, **model.config.to_dict(), **ends}
    tokenizer = None
    if model.has_tokenizer and model.tokenizer != Tokenizer.gpt2():
        if not isinstance(model.tokenizer, Tokenizer):
            raise InputError(f"{path}: a {type(model.tokenizer).__name__} cannot be written")
        tokenizer = tokenizer_files.to_json(model.tokenizer._vocabulary)
    npz.save(path, _hugging_face(model), dtype=dtype, config=config, tokenizer=tokenizer)


def _hugging_face(model: Model) -> dict[str, Array]:
    return {
        name if name.startswith("lm_head") else f"transformer.{name}": array
        for name, array in model.params.items()
    }


def _export_gguf(model: Model, path: Path, dtype: str) -> None:
    """Write what llama.cpp's convert_hf_to_gguf.py does: matrices as [out, in], vectors whole."""
    for reason in _unsayable(model):
        raise InputError(f"{path}: GGUF's header cannot say that {reason}")
    theirs = {ours: name for name, ours in families.GGUF.items()}
    tensors = {}
    for name, array in model.params.items():
        block = name.split(".")[1] if name.startswith("h.") else ""
        generic = name.replace(f"h.{block}.", "h.{i}.", 1) if block else name
        half = array.ndim == 2 and name != "wpe.weight"
        turned = array.T if array.ndim == 2 and block else array
        tensors[theirs[generic].format(i=block)] = (turned, dtype if half else "float32")
    gguf.save(path, _fields(model, dtype), tensors)


def _unsayable(model: Model) -> Iterator[str]:
    """What would make another model of it if it went unsaid."""
    config, eos = model.config, model.eos
    if config.activation_function not in _ACTIVATIONS:
        yield f"the activation is {config.activation_function!r}: it stands for gelu_new"
    if not config.scale_attn_weights:
        yield "the scores are not scaled (scale_attn_weights is false)"
    if config.scale_attn_by_inverse_layer_idx:
        yield "the scores are scaled by layer (scale_attn_by_inverse_layer_idx is true)"
    if len(eos) > 1:
        yield f"a text ends with any of {len(eos)} ids: it has room for one"
    if not eos and config.vocab_size > _DEFAULT_END:
        yield f"no id ends a text: {_DEFAULT_END} would, in transformers"
    if not model.has_tokenizer:
        return
    if not isinstance(model.tokenizer, Tokenizer):
        yield f"the tokenizer is a {type(model.tokenizer).__name__}"
        return
    vocabulary = model.tokenizer._vocabulary
    if model.tokenizer.n_vocab > config.vocab_size:
        yield (f"the tokenizer has {model.tokenizer.n_vocab} tokens, the model {config.vocab_size}")
    plain = Vocabulary(*vocabulary[:2], {})
    for name, value in vocabulary._asdict().items():
        said = name in ("ids", "merges", "added", "named") or value == getattr(plain, name)
        if not said and (name != "begins_with" or value != model.bos):
            yield f"the tokenizer has {name} = {value!r}"
    for text, token in vocabulary.added.items():
        if token.lstrip or token.rstrip or token.single_word:
            yield f"the token {text!r} takes in the space around it, or the like"


def _fields(model: Model, dtype: str) -> dict[str, Any]:
    """The header: sizes, and the tokenizer with the ids that texts begin and end with."""
    config = model.config
    fields: dict[str, Any] = {
        "general.architecture": gguf.ARCHITECTURE,
        "general.name": Path(model.source or "GPT-2").name,
        "general.file_type": DTYPES.index(dtype),
        "gpt2.context_length": config.n_ctx,
        "gpt2.embedding_length": config.n_embd,
        "gpt2.feed_forward_length": config.n_inner,
        "gpt2.attention.head_count": config.n_head,
        "gpt2.block_count": config.n_layer,
        "gpt2.attention.layer_norm_epsilon": float(config.layer_norm_epsilon),
        "gpt2.vocab_size": config.vocab_size,
    }
    if model.has_tokenizer:
        fields |= _tokens(model.tokenizer._vocabulary, config.vocab_size)
    else:
        fields["tokenizer.ggml.model"] = "none"
    ends = {"bos": model.bos, "eos": next(iter(model.eos), None)}
    return fields | {
        f"tokenizer.ggml.{name}_token_id": id for name, id in ends.items() if id is not None
    }


def _tokens(vocabulary: Vocabulary, size: int) -> dict[str, Any]:
    """Tokens, kinds and merges; what the vocabulary lacks to the model's size is filled up."""
    tokens = [f"[PAD{id}]" for id in range(size)]
    kinds = [gguf.UNUSED] * size
    for token, id in vocabulary.ids.items():
        tokens[id], kinds[id] = token, gguf.NORMAL
    for text, (id, special, *_) in vocabulary.added.items():
        tokens[id], kinds[id] = text, gguf.CONTROL if special else gguf.USER_DEFINED
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": list(vocabulary.merges),
        "tokenizer.ggml.add_bos_token": vocabulary.begins_with is not None,
    }
