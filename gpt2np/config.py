"""The shape of a GPT-2: every hyperparameter that changes what the model computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from gpt2np.answers import Answering
from gpt2np.errors import CheckpointError, InputError, as_integer, as_number, shown

# As Hugging Face calls them; layers.ACTIVATIONS has the functions. gelu_new is OpenAI's tanh form,
# "gelu" the exact one with erf, which nanoGPT trains with.
TANH_GELUS, ERF_GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), ("gelu", "gelu_python")
ACTIVATIONS = (*TANH_GELUS, *ERF_GELUS, "quick_gelu", "silu", "swish", "relu", "tanh")

# What else a config may call a field; the first that is there counts, as in transformers. OpenAI's
# hparams.json has n_vocab.
OTHER_NAMES = {
    "vocab_size": ("n_vocab",),
    "n_ctx":      ("max_position_embeddings", "n_positions"),
    "n_embd":     ("hidden_size",),
    "n_head":     ("num_attention_heads",),
    "n_layer":    ("num_hidden_layers",),
}  # fmt: skip


@dataclass(frozen=True)
class Config(Answering):
    """The hyperparameters of a GPT-2, under the names of Hugging Face's ``GPT2Config``.

    Parameters
    ----------
    vocab_size, n_ctx, n_embd, n_head, n_layer : int
        V, the longest sequence, D, H and L. The defaults are the 124M model's.
    n_inner : int, optional
        F, the width of the MLP; 4 * n_embd unless given.
    activation_function : str
        ``gelu_new`` (the tanh form), ``gelu`` (erf), or another of ``ACTIVATIONS``.
    layer_norm_epsilon : float
        Added to the variance inside the root.
    scale_attn_weights : bool
        Divide the scores by sqrt(K).
    scale_attn_by_inverse_layer_idx : bool
        Divide them by the block's number, counted from 1, as well.
    reorder_and_upcast_attn : bool
        Compute the scores in float32. Only half precision could tell, and nothing here is.
    tie_word_embeddings : bool
        Project to logits with WTE itself; else with a matrix of its own, ``lm_head.weight``.

    Raises
    ------
    CheckpointError
        A value that no GPT-2 can have, or an activation that is not one of those above.

    Examples
    --------
    >>> from gpt2np.config import Config
    >>> Config()                                             # doctest: +ELLIPSIS
    Config(vocab_size=50257, n_ctx=1024, n_embd=768, n_head=12, n_layer=12, n_inner=3072, ...
    >>> Config(n_embd=100)
    Traceback (most recent call last):
    gpt2np.errors.CheckpointError: config: n_embd is 100, not a multiple of n_head, 12
    """

    vocab_size: int = 50257
    n_ctx: int = 1024
    n_embd: int = 768
    n_head: int = 12
    n_layer: int = 12
    n_inner: int = 0  # 0 stands for 4 * n_embd, and is replaced by it
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    reorder_and_upcast_attn: bool = False
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        try:  # NumPy's numbers become Python's
            for name in ("vocab_size", "n_ctx", "n_embd", "n_head", "n_layer", "n_inner"):
                size = as_integer(name, getattr(self, name), int(name != "n_inner"), 2**31 - 1)
                object.__setattr__(self, name, size)
            epsilon = as_number("layer_norm_epsilon", self.layer_norm_epsilon, 0)
        except InputError as error:
            raise CheckpointError(f"config: {error}") from None
        object.__setattr__(self, "layer_norm_epsilon", epsilon)
        if self.n_embd % self.n_head:
            raise CheckpointError(
                f"config: n_embd is {self.n_embd}, not a multiple of n_head, {self.n_head}"
            )
        if self.n_inner == 0:
            object.__setattr__(self, "n_inner", 4 * self.n_embd)
        if self.activation_function not in ACTIVATIONS:
            raise CheckpointError(
                f"config: activation_function is {shown(self.activation_function)}, which is none "
                f"of {', '.join(ACTIVATIONS)}"
            )
        for field in fields(self):
            if field.type == "bool" and not isinstance(getattr(self, field.name), bool):
                raise CheckpointError(
                    f"config: {field.name} is {shown(getattr(self, field.name))}, not true or false"
                )

    @property
    def head_width(self) -> int:
        """K, the width of one head's queries, keys and values."""
        return self.n_embd // self.n_head

    def score_scale(self, layer: int) -> float:
        """What the attention scores of block ``layer``, counted from 0, are multiplied by."""
        scale = self.head_width**-0.5 if self.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.scale_attn_by_inverse_layer_idx else scale

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Read the contents of a Hugging Face config.json or of OpenAI's hparams.json.

        What is not said has ``GPT2Config``'s default, which is the 124M model's.

        Raises
        ------
        CheckpointError
            The values describe another model than GPT-2, or none.

        Examples
        --------
        >>> from gpt2np.config import Config
        >>> hparams = {"n_vocab": 50257, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12}
        >>> Config.from_dict(hparams) == Config()
        True
        """
        if values.get("model_type", "gpt2") != "gpt2":
            raise CheckpointError(
                f"config: model_type is {shown(values['model_type'])}, not 'gpt2'"
            )
        for refused in ("add_cross_attention", "quantization_config"):
            if values.get(refused):
                raise CheckpointError(f"config: {refused} is set, which gpt2np does not compute")
        taken = {
            field.name: values[name]
            for field in fields(cls)
            for name in (*OTHER_NAMES.get(field.name, ()), field.name)[::-1]
            if name in values
        }
        if taken.get("n_inner", 0) is None:
            taken["n_inner"] = 0
        return cls(**taken)

    def to_dict(self) -> dict[str, Any]:
        """Give the contents of the Hugging Face config.json for this model."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.n_inner == 4 * self.n_embd:
            values["n_inner"] = None
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            **values,
            "n_positions": self.n_ctx,
        }


class KnownModel(NamedTuple):
    """A GPT-2 that has a name: the names, where it was published, and its shape."""

    names: tuple[str, ...]  # the hub's first, then OpenAI's sizes, as counted now and in 2019
    repository: str  # on the Hugging Face hub
    original: str | None  # the folder in which OpenAI published it
    config: Config


MODELS = (
    KnownModel(("gpt2",        "124M",  "117M"),  "openai-community/gpt2",        "124M",
               Config(n_layer=12, n_embd=768,  n_head=12)),
    KnownModel(("gpt2-medium", "355M",  "345M"),  "openai-community/gpt2-medium", "355M",
               Config(n_layer=24, n_embd=1024, n_head=16)),
    KnownModel(("gpt2-large",  "774M",  "762M"),  "openai-community/gpt2-large",  "774M",
               Config(n_layer=36, n_embd=1280, n_head=20)),
    KnownModel(("gpt2-xl",     "1558M", "1542M"), "openai-community/gpt2-xl",     "1558M",
               Config(n_layer=48, n_embd=1600, n_head=25)),
    KnownModel(("distilgpt2",),                   "distilbert/distilgpt2",        None,
               Config(n_layer=6,  n_embd=768,  n_head=12)),
)  # fmt: skip

PRESETS = {model.names[0]: model.config for model in MODELS}
BY_NAME = {name: model for model in MODELS for name in (*model.names, model.repository)}
