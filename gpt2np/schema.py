"""THE table: each tensor of GPT-2 once, with its shape and its name in every checkpoint family.

The loader, the shape check, the parameter accounting and ``gpt2np explain`` all read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpt2np.config import Config
from gpt2np.errors import CheckpointError, escaped


class Tensor(NamedTuple):
    """One row of the table; ``{i}`` stands for the number of the block."""

    name: str  # Hugging Face's, without the "transformer." prefix: canonical here
    shape: str  # in the symbols of `sizes`, matrices as [in, out]
    openai: str  # in OpenAI's TensorFlow checkpoint
    component: str


TABLE = (
    Tensor("wte.weight",                "V D",     "model/wte",                    "wte"),
    Tensor("wpe.weight",                "n_ctx D", "model/wpe",                    "wpe"),
    Tensor("h.{i}.ln_1.weight",         "D",       "model/h{i}/ln_1/g",            "ln_1"),
    Tensor("h.{i}.ln_1.bias",           "D",       "model/h{i}/ln_1/b",            "ln_1"),
    Tensor("h.{i}.attn.c_attn.weight",  "D 3D",    "model/h{i}/attn/c_attn/w",     "attn.c_attn"),
    Tensor("h.{i}.attn.c_attn.bias",    "3D",      "model/h{i}/attn/c_attn/b",     "attn.c_attn"),
    Tensor("h.{i}.attn.c_proj.weight",  "D D",     "model/h{i}/attn/c_proj/w",     "attn.c_proj"),
    Tensor("h.{i}.attn.c_proj.bias",    "D",       "model/h{i}/attn/c_proj/b",     "attn.c_proj"),
    Tensor("h.{i}.ln_2.weight",         "D",       "model/h{i}/ln_2/g",            "ln_2"),
    Tensor("h.{i}.ln_2.bias",           "D",       "model/h{i}/ln_2/b",            "ln_2"),
    Tensor("h.{i}.mlp.c_fc.weight",     "D F",     "model/h{i}/mlp/c_fc/w",        "mlp.c_fc"),
    Tensor("h.{i}.mlp.c_fc.bias",       "F",       "model/h{i}/mlp/c_fc/b",        "mlp.c_fc"),
    Tensor("h.{i}.mlp.c_proj.weight",   "F D",     "model/h{i}/mlp/c_proj/w",      "mlp.c_proj"),
    Tensor("h.{i}.mlp.c_proj.bias",     "D",       "model/h{i}/mlp/c_proj/b",      "mlp.c_proj"),
    Tensor("ln_f.weight",               "D",       "model/ln_f/g",                 "ln_f"),
    Tensor("ln_f.bias",                 "D",       "model/ln_f/b",                 "ln_f"),
    Tensor("lm_head.weight",            "V D",     "",                             "lm_head"),
)  # fmt: skip

# Causal masks that old checkpoints carry: not learned. `c_attn.bias` is, so the dot matters.
BUFFERS = (".attn.bias", ".attn.masked_bias")

_OPENAI = {row.openai.replace("/h{i}/", "/h#/"): row.name for row in TABLE if row.openai}
_OPENAI_BLOCK = re.compile(r"/h(\d+)/")


def sizes(config: Config) -> dict[str, int]:
    """Give the value of each symbol that the shapes are written in."""
    return {
        "V": config.vocab_size,
        "n_ctx": config.n_ctx,
        "D": config.n_embd,
        "3D": 3 * config.n_embd,
        "F": config.n_inner,
    }


def tensors(config: Config) -> Iterator[tuple[str, tuple[int, ...], Tensor]]:
    """Yield (name, shape, row of the table) for every tensor of a model, in order of the flow.

    A tied head is WTE again and has no tensor of its own.

    Examples
    --------
    >>> import math
    >>> from gpt2np.config import Config
    >>> sum(math.prod(shape) for _, shape, _ in tensors(Config()))
    124439808
    """
    value = sizes(config)

    def shape(row: Tensor) -> tuple[int, ...]:
        return tuple(value[symbol] for symbol in row.shape.split())

    blocks = [row for row in TABLE if "{i}" in row.name]
    for row in TABLE[: TABLE.index(blocks[0])]:
        yield row.name, shape(row), row
    for i in range(config.n_layer):
        for row in blocks:
            yield row.name.format(i=i), shape(row), row
    for row in TABLE[TABLE.index(blocks[-1]) + 1 :]:
        if row.name != "lm_head.weight" or not config.tie_word_embeddings:
            yield row.name, shape(row), row


def canonical_name(name: str) -> str:
    """Translate a tensor's name in any checkpoint family to the canonical one.

    Examples
    --------
    >>> canonical_name("transformer.h.3.ln_1.weight"), canonical_name("model/h11/attn/c_proj/w")
    ('h.3.ln_1.weight', 'h.11.attn.c_proj.weight')
    """
    name = openai_name(name)
    # torch.compile and DistributedDataParallel wrap a model and put their names in front.
    for wrapper in ("_orig_mod.", "module.", "_orig_mod.", "transformer."):
        name = name.removeprefix(wrapper)
    return name


def openai_name(name: str) -> str:
    """Translate a name in OpenAI's checkpoints to the canonical one; others are as they were."""
    if not name.startswith("model/"):
        return name
    block = _OPENAI_BLOCK.search(name)
    found = _OPENAI.get(_OPENAI_BLOCK.sub("/h#/", name, count=1))
    if found is None:
        return name
    # int(): the names sort h10 before h2, so the number is read, never counted.
    return found.format(i=int(block[1])) if block else found


def check_shapes(config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Hold the tensors of a model against the table.

    Raises
    ------
    CheckpointError
        Naming the first tensor that is missing, unexpected, or of another shape than its config
        makes it, and how many more there are.
    """
    if config.n_layer > len(shapes):  # before a damaged config makes a table of a billion rows
        raise CheckpointError(
            f"the config makes {config.n_layer} layers, but there are only {len(shapes)} tensors"
        )
    expected = {name: shape for name, shape, _ in tensors(config)}
    missing = [name for name in expected if name not in shapes]
    unexpected = [name for name in shapes if name not in expected]
    wrong = [name for name in expected if name in shapes and shapes[name] != expected[name]]
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"tensor {name} has shape {list(shapes[name])}, but the config makes it "
            f"{list(expected[name])}{_and_more(wrong)}"
        )
    if missing:
        raise CheckpointError(
            f"tensor {missing[0]} of shape {list(expected[missing[0]])} is missing"
            f"{_and_more(missing)}"
        )
    if unexpected:
        name = unexpected[0]
        raise CheckpointError(
            f"tensor {escaped(name)} of shape {list(shapes[name])} is not part of a GPT-2 with "
            f"{config.n_layer} layers{_and_more(unexpected)}"
        )


def _and_more(names: list[str]) -> str:
    return f", and {len(names) - 1} more like it" if len(names) > 1 else ""
