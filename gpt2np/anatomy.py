"""The ledger: every component of GPT-2 in order of the flow, and the exact account of its cost.

Each component stands once, with its formula, its shapes, its place in the sources and the function
of gpt2np that computes it. Parameters are not written down here: they are counted off
`gpt2np.schema`, and line numbers of our own code off the code itself.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gpt2np.config import Config
from gpt2np.errors import InputError
from gpt2np.schema import TABLE, sizes

OPENAI = "openai/gpt-2 @ 9b63575"
PAPER = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners"
ATTENTION_PAPER = "Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762"
LAYER_NORM_PAPER = "Ba et al. 2016, Layer Normalization, arXiv:1607.06450"
GELU_PAPER = "Hendrycks and Gimpel 2016, Gaussian Error Linear Units, arXiv:1606.08415"
BPE_PAPER = "Sennrich et al. 2016, Neural Machine Translation of Rare Words with Subword Units"
TYING_PAPER = "Press and Wolf 2017, Using the Output Embedding to Improve Language Models"
RESIDUAL_PAPER = "He et al. 2016, Deep Residual Learning for Image Recognition, arXiv:1512.03385"
DROPOUT_PAPER = (
    "Srivastava et al. 2014, Dropout: A Simple Way to Prevent Neural Networks from Overfitting"
)
TOP_P_PAPER = "Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv:1904.09751"


@dataclass(frozen=True)
class Component:
    """One step of the flow.

    Attributes
    ----------
    name : str
        What `explain` calls it; for a point of the flow, the name of its activation.
    title : str
    takes, gives : str
        Shapes, in the symbols of the shape alphabet.
    formula, latex : str
        What it computes, for a terminal and for a page.
    flops : str
        Floating-point operations of one instance, as an expression in the symbols: 2 for a
        multiplication and an addition; "" where there is next to nothing to compute.
    explanation : str
    openai, huggingface, paper : str
        Where OpenAI's code, Hugging Face's and the literature have it.
    function : str
        Ours, as module:function.
    per_layer : int
        How many there are in each block; 0 for what stands outside of the blocks.
    tensors : str
        The component of `gpt2np.schema` whose tensors it holds.
    also : tuple of str
        Other names for it.
    """

    name: str
    title: str
    takes: str
    gives: str
    formula: str
    latex: str
    explanation: str
    openai: str
    huggingface: str
    paper: str
    function: str
    flops: str = ""
    per_layer: int = 0
    tensors: str = ""
    also: tuple[str, ...] = ()

    @property
    def sources(self) -> list[str]:
        """Where else it can be read."""
        openai = f"{OPENAI}, {self.openai}" if self.openai else ""
        huggingface = f"transformers, {self.huggingface}" if self.huggingface else ""
        return [source for source in (openai, huggingface, self.paper) if source]

    @property
    def code(self) -> str:
        """Our function and where it stands, such as ``gpt2np/layers.py:42 layer_norm``."""
        path = Path(inspect.getsourcefile(self._object) or "").name
        line = inspect.getsourcelines(self._object)[1]
        return f"gpt2np/{path}:{line} {self.function.split(':')[1]}"

    @property
    def source_text(self) -> str:
        """The text of our function."""
        return inspect.getsource(self._object)

    @property
    def _object(self) -> Any:
        module, path = self.function.split(":")
        value: Any = import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
        return inspect.unwrap(value)


COMPONENTS = (
    Component(
        "tokenizer",
        "byte-level BPE",
        "text",
        "ids [B, T]",
        "ids = merge(pieces(bytes(text)))",
        r"\mathrm{ids} = \mathrm{merge}(\mathrm{pieces}(\mathrm{bytes}(\text{text})))",
        "Text is cut into words, numbers, punctuation and white space, and each piece is spelt "
        "in bytes, so nothing is ever unknown. Then neighbouring tokens of a piece are joined by "
        "a fixed list of 50,000 merges, the earliest in the list first. The vocabulary is the 256 "
        "bytes, one token for each merge, and <|endoftext|>. Nothing of it is learned by the "
        "network.",
        "src/encoder.py lines 53-101, Encoder.bpe and encode",
        "GPT2Tokenizer",
        BPE_PAPER,
        "gpt2np.tokenizer:Tokenizer.encode",
        also=("bpe", "tokenization"),
    ),
    Component(
        "wte",
        "token embedding",
        "ids [B, T]",
        "[B, T, D]",
        "wte[ids]",
        r"W_{te}[\mathrm{ids}]",
        "Each token has a learned vector of D numbers, a row of wte, which is looked up: there is "
        "nothing to multiply. The same matrix projects to logits at the end, so a token's row "
        "says both what it means where it is read and where it is to be expected.",
        "src/model.py lines 154-157, model",
        "GPT2Model.wte",
        PAPER,
        "gpt2np.model:embed",
        tensors="wte",
        also=("embedding",),
    ),
    Component(
        "wpe",
        "position embedding",
        "positions [B, T]",
        "[B, T, D]",
        "x = wte[ids] + wpe[positions]",
        r"x = W_{te}[\mathrm{ids}] + W_{pe}[\mathrm{positions}]",
        "But for its mask, attention takes no notice of order: a score does not depend on where "
        "its two tokens stand. So each absolute position adds a learned vector of its own. There "
        "is one row for each of n_ctx positions, which is why no sequence can be longer.",
        "src/model.py lines 141-144, positions_for; lines 152-157, model",
        "GPT2Model.wpe",
        PAPER,
        "gpt2np.model:embed",
        flops="B*T*D",
        tensors="wpe",
        also=("position", "positional_embedding"),
    ),
    Component(
        "dropout",
        "dropout (training only)",
        "[B, T, D]",
        "[B, T, D]",
        "x at inference",
        r"x",
        "In training, numbers of the embedding, of each attention pattern and of what attention "
        "and MLP add to the stream are set to zero at random, a tenth of them in Hugging Face's "
        "configuration, and the others divided by 0.9. At inference it is the identity: gpt2np "
        "has no code for it, and neither has what OpenAI published.",
        "",
        "GPT2Model.drop",
        DROPOUT_PAPER,
        "gpt2np.model:embed",
        also=("drop",),
    ),
    Component(
        "ln_1",
        "LayerNorm before attention",
        "[B, T, D]",
        "[B, T, D]",
        "(x - mean(x)) / sqrt(var(x) + ε) · g + b",
        r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b",
        "Each position is shifted to mean 0 and scaled to variance 1 over its D numbers, then "
        "given a learned gain and bias. The variance is divided by D, not D - 1, and ε = 1e-5 "
        "stands inside the root. GPT-2 normalises what goes into attention and MLP, and leaves "
        "the residual stream itself alone.",
        "src/model.py lines 28-38, norm; line 126, block",
        "GPT2Block.ln_1",
        LAYER_NORM_PAPER,
        "gpt2np.layers:layer_norm",
        flops="7*B*T*D",
        per_layer=1,
        tensors="ln_1",
        also=("ln", "norm", "layer_norm", "layernorm"),
    ),
    Component(
        "attn.c_attn",
        "queries, keys and values",
        "[B, T, D]",
        "[B, T, 3D] -> 3 x [B, H, T, K]",
        "[q k v] = x W + b",
        r"[q\;k\;v] = x W + b",
        "One linear map makes, side by side, what each position asks for (query), what it offers "
        "(key) and what it passes on (value). Each is cut into H heads of width K = D / H. W is "
        "stored [in, out], the other way round from torch's nn.Linear.",
        "src/model.py lines 50-56, conv1d; lines 75-77, 102-103, attn",
        "GPT2Attention.c_attn",
        ATTENTION_PAPER,
        "gpt2np.layers:linear",
        flops="2*B*T*D*3*D + B*T*3*D",
        per_layer=1,
        tensors="attn.c_attn",
        also=("c_attn", "qkv", "attn.q", "attn.k", "attn.v", "q", "k", "v"),
    ),
    Component(
        "attn.scores",
        "attention scores",
        "q [B, H, T, K], k [B, H, S, K]",
        "[B, H, T, S]",
        "q kᵀ / √K + mask",
        r"\frac{q k^\top}{\sqrt{K}} + \mathrm{mask}",
        "How well each query fits each key. Undivided, their spread would grow with the root of "
        "the width, and the softmax would harden. The mask puts -∞ where a key is later than the "
        "query: query t of T, both counted from 0, sees keys 0 ... S - T + t. OpenAI's code puts "
        "-1e10, which comes to the same.",
        "src/model.py lines 58-66, attention_mask; lines 83-96, attn",
        "GPT2Attention.scaling",
        ATTENTION_PAPER,
        "gpt2np.layers:attention_scores",
        flops="2*B*H*T*S*K + B*H*T*S",
        per_layer=1,
        also=("scores", "mask"),
    ),
    Component(
        "attn.pattern",
        "attention pattern",
        "[B, H, T, S]",
        "[B, H, T, S]",
        "softmax(scores)",
        r"\mathrm{softmax}(\mathrm{scores})",
        "Each row becomes a distribution over the keys that its query sees: how much of each of "
        "those positions flows to this one. The maximum is taken off first, which changes nothing "
        "but keeps exp finite.",
        "src/model.py lines 20-23, softmax; line 97, attn",
        "eager_attention_forward",
        ATTENTION_PAPER,
        "gpt2np.layers:softmax",
        flops="5*B*H*T*S",
        per_layer=1,
        also=("pattern", "softmax"),
    ),
    Component(
        "attn.z",
        "what each head gathers",
        "pattern [B, H, T, S], v [B, H, S, K]",
        "[B, T, H, K]",
        "z = pattern v",
        r"z = \mathrm{pattern} \, v",
        "In each head, each position takes the mean of the values up to its own, weighted by its "
        "pattern. This is the only place where information moves from one position to another.",
        "src/model.py lines 91-99, attn",
        "eager_attention_forward",
        ATTENTION_PAPER,
        "gpt2np.layers:attention",
        flops="2*B*H*T*S*K",
        per_layer=1,
        also=("z",),
    ),
    Component(
        "attn.c_proj",
        "attention's output",
        "[B, T, D]",
        "[B, T, D]",
        "z W + b",
        r"z W + b",
        "The heads, side by side again, are mixed and written back to the residual stream. W is "
        "square, so no shape shows whether it is transposed: only numbers do.",
        "src/model.py lines 79-81, 110-111, attn",
        "GPT2Attention.c_proj",
        ATTENTION_PAPER,
        "gpt2np.layers:linear",
        flops="2*B*T*D*D + B*T*D",
        per_layer=1,
        tensors="attn.c_proj",
        also=("c_proj",),
    ),
    Component(
        "resid_mid",
        "residual stream",
        "[B, T, D] twice",
        "[B, T, D]",
        "x + attn(ln_1(x)), then x + mlp(ln_2(x))",
        r"x + \mathrm{attn}(\mathrm{ln}_1(x)),\quad x + \mathrm{mlp}(\mathrm{ln}_2(x))",
        "Attention and MLP do not replace the stream, they add to it. So every block reads the "
        "sum of the embedding and of all that was written before, and gradients reach the "
        "embedding unhindered.",
        "src/model.py lines 123-130, block",
        "GPT2Block.forward",
        RESIDUAL_PAPER,
        "gpt2np.model:block",
        flops="B*T*D",
        per_layer=2,
        also=("residual", "resid", "block"),
    ),
    Component(
        "ln_2",
        "LayerNorm before the MLP",
        "[B, T, D]",
        "[B, T, D]",
        "(x - mean(x)) / sqrt(var(x) + ε) · g + b",
        r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b",
        "The same as ln_1, with a gain and bias of its own. It reads the stream after attention "
        "has added to it.",
        "src/model.py lines 28-38, norm; line 128, block",
        "GPT2Block.ln_2",
        LAYER_NORM_PAPER,
        "gpt2np.layers:layer_norm",
        flops="7*B*T*D",
        per_layer=1,
        tensors="ln_2",
    ),
    Component(
        "mlp.c_fc",
        "MLP, up",
        "[B, T, D]",
        "[B, T, F]",
        "x W + b",
        r"x W + b",
        "Each position by itself is mapped to F numbers, 4 D in all published models. They can be "
        "read as patterns that the position is tested for.",
        "src/model.py line 118, mlp",
        "GPT2MLP.c_fc",
        PAPER,
        "gpt2np.layers:linear",
        flops="2*B*T*D*F + B*T*F",
        per_layer=1,
        tensors="mlp.c_fc",
        also=("c_fc",),
    ),
    Component(
        "mlp.act",
        "GELU",
        "[B, T, F]",
        "[B, T, F]",
        "x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))",
        r"\frac{x}{2}\left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)",
        "Lets large numbers through and holds back negative ones, smoothly. OpenAI's GPT-2 uses "
        "this tanh form; models trained with nanoGPT use the exact one, x/2 (1 + erf(x / √2)), "
        "and the two differ by up to 5e-4.",
        "src/model.py lines 25-26, gelu; line 118, mlp",
        "GPT2MLP.act",
        GELU_PAPER,
        "gpt2np.layers:gelu_tanh",
        flops="8*B*T*F",
        per_layer=1,
        also=("gelu", "act"),
    ),
    Component(
        "mlp.c_proj",
        "MLP, down",
        "[B, T, F]",
        "[B, T, D]",
        "x W + b",
        r"x W + b",
        "Maps back from F to D. Each row of W is what one of the patterns, where it is found, adds "
        "to the residual stream.",
        "src/model.py line 119, mlp",
        "GPT2MLP.c_proj",
        PAPER,
        "gpt2np.layers:linear",
        flops="2*B*T*F*D + B*T*D",
        per_layer=1,
        tensors="mlp.c_proj",
    ),
    Component(
        "ln_f",
        "final LayerNorm",
        "[B, T, D]",
        "[B, T, D]",
        "(x - mean(x)) / sqrt(var(x) + ε) · g + b",
        r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b",
        "The residual stream after the last block is normalised once more before it is read. The "
        "first GPT normalised after each step instead, and had no need of this.",
        "src/model.py line 167, model",
        "GPT2Model.ln_f",
        PAPER,
        "gpt2np.layers:layer_norm",
        flops="7*B*T*D",
        tensors="ln_f",
        also=("final_norm", "final_layer_norm"),
    ),
    Component(
        "logits",
        "tied projection",
        "[B, T, D]",
        "[B, T, V]",
        "h wteᵀ",
        r"h\, W_{te}^\top",
        "The logit of a token is the dot product of the final state with the token's own "
        "embedding. So the projection has no parameters, unless the model has a head of its own "
        "(lm_head).",
        "src/model.py lines 170-172, model",
        "GPT2LMHeadModel.lm_head",
        TYING_PAPER,
        "gpt2np.model:unembed",
        flops="2*B*T*D*V",
        tensors="lm_head",
        also=("lm_head", "projection", "unembed", "unembedding"),
    ),
    Component(
        "cache",
        "key-value cache",
        "k, v [B, H, T, K]",
        "k, v [B, H, S, K]",
        "k, v of all positions so far",
        r"k_{0 \ldots S-1},\; v_{0 \ldots S-1}",
        "Attention is causal, so keys and values never change once computed. Kept, they make "
        "the next token cost one position instead of all: the weights are read once a token, and "
        "2 L D numbers a position are kept.",
        "src/model.py lines 104-108, attn",
        "DynamicCache.update",
        "",
        "gpt2np.cache:KVCache.extend",
        per_layer=1,
        also=("kv_cache", "kvcache"),
    ),
    Component(
        "sampling",
        "sampling",
        "logits [V]",
        "id",
        "id ~ softmax(filter(logits / temperature))",
        r"\mathrm{id} \sim \mathrm{softmax}(\mathrm{filter}(\mathrm{logits} / \tau))",
        "The logits become a distribution to draw from. Temperature sharpens or flattens it; "
        "top-k and top-p leave out the unlikely tail; temperature 0 takes the likeliest token.",
        "src/sample.py lines 5-40, top_k_logits and top_p_logits; lines 61-72, sample_sequence",
        "GPT2LMHeadModel.generate",
        TOP_P_PAPER,
        "gpt2np.sampling:Sampling.pick",
        also=("sample", "top_k", "top_p", "temperature"),
    ),
)


def _operations(whole: str) -> str:
    return " + ".join(c.flops for c in COMPONENTS if c.name.startswith(f"{whole}."))


# What is taken apart above: `explain` knows these as well, the table has only their parts.
WHOLES = (
    Component(
        "attn",
        "attention",
        "[B, T, D]",
        "[B, T, D]",
        "[q k v] = x W + b; z = softmax(q kᵀ / √K + mask) v; z W' + b'",
        r"[q\;k\;v] = x W + b,\quad "
        r"z = \mathrm{softmax}\left(\frac{q k^\top}{\sqrt{K}} + \mathrm{mask}\right) v,\quad "
        r"z W' + b'",
        "Each position looks for something, and takes what fits from itself and from the "
        "positions before it; H heads of width K do so side by side. It is the only part in which "
        "positions see each other. Its steps are attn.c_attn, attn.scores, attn.pattern, attn.z "
        "and attn.c_proj.",
        "src/model.py lines 69-112, attn",
        "GPT2Attention.forward",
        ATTENTION_PAPER,
        "gpt2np.model:self_attention",
        flops=_operations("attn"),
        per_layer=1,
        tensors="attn",
        also=("self_attention",),
    ),
    Component(
        "mlp",
        "MLP",
        "[B, T, D]",
        "[B, T, D]",
        "gelu(x W + b) W' + b'",
        r"\mathrm{gelu}(x W + b) W' + b'",
        "Works on each position by itself, through a layer four times as wide as the stream. Two "
        "thirds of a block's parameters are here. Its steps are mlp.c_fc, mlp.act and mlp.c_proj.",
        "src/model.py lines 115-120, mlp",
        "GPT2MLP.forward",
        PAPER,
        "gpt2np.model:mlp",
        flops=_operations("mlp"),
        per_layer=1,
        tensors="mlp",
        also=("feed_forward", "ffn"),
    ),
)


@dataclass(frozen=True)
class Account:
    """What one component costs in a given model and run.

    Attributes
    ----------
    component : Component
    calculation : str
        How its parameters are counted, such as ``"D*3D + 3D = 768*2304 + 2304"``.
    each, instances, total : int
        Parameters of one instance, how many there are, and of all.
    flops : int
        Floating-point operations of all instances for this run.
    """

    component: Component
    calculation: str
    each: int
    instances: int
    total: int
    flops: int


@dataclass(frozen=True)
class Ledger:
    """The whole account of a model, in order of the flow.

    Attributes
    ----------
    config : Config
    symbols : dict of str to int
        B, T, S and the model's own.
    rows : tuple of Account
    """

    config: Config
    symbols: Mapping[str, int]
    rows: tuple[Account, ...]

    def of(self, component: Component) -> Account:
        """The account of a component, or of a whole that the rows have the parts of."""
        return _account(component, self.config, self.symbols)

    @property
    def n_params(self) -> int:
        """The parameters of all components."""
        return sum(row.total for row in self.rows)

    @property
    def formula(self) -> str:
        """The parameters as one formula in the symbols."""
        head = "" if self.config.tie_word_embeddings else " + V*D"
        if self.config.n_inner == 4 * self.config.n_embd:
            return f"V*D + n_ctx*D + L*(12*D*D + 13*D) + 2*D{head}"
        return f"V*D + n_ctx*D + L*(4*D*D + 2*D*F + 9*D + F) + 2*D{head}"

    @property
    def formula_value(self) -> int:
        """What the formula comes to."""
        return evaluate(self.formula, self.symbols)

    @property
    def flops(self) -> int:
        """Floating-point operations of the forward pass of this run."""
        return sum(row.flops for row in self.rows)

    @property
    def bytes_read_per_token(self) -> int:
        """Bytes that decoding a token of each of B sequences reads for each of them, in float32:
        its share of all weights but the embeddings, a row of either embedding, and the keys and
        values of S positions."""
        n = self.symbols
        head = 0 if self.config.tie_word_embeddings else n["V"] * n["D"]
        looked_up = (n["V"] + n["n_ctx"]) * n["D"]
        shared = self.n_params - head - looked_up + n["V"] * n["D"]
        own = 2 * n["D"] + evaluate("2*L*D", n) * n["S"]
        return round(4 * (shared / n["B"] + own))

    @property
    def cache_bytes_per_token(self) -> int:
        """Bytes that the cache holds for each position in float32: 2 L D numbers."""
        return 4 * evaluate("2*L*D", self.symbols)

    def numbers(self, shape: str) -> str:
        """Give a shape that is written in symbols in numbers, "" where it has none.

        >>> ledger(Config(), T=5).numbers("[B, T, 3D] -> 3 x [B, H, T, K]")
        '[1, 5, 2304], [1, 12, 5, 64]'
        """
        shapes = [part.split("]")[0].split(", ") for part in shape.split("[")[1:]]
        return ", ".join(
            f"[{', '.join(str(self.symbols[symbol]) for symbol in symbols)}]" for symbols in shapes
        )

    def with_numbers(self, shape: str) -> str:
        """Give a shape in symbols, and in numbers where it has any.

        >>> ledger(Config(), T=5).with_numbers("ids [B, T]")
        'ids [B, T] = [1, 5]'
        """
        numbers = self.numbers(shape)
        return f"{shape} = {numbers}" if numbers else shape

    def facts(self, row: Account) -> dict[str, str]:
        """Give what a component takes, gives and costs, in words for a reader."""
        parameters = f"{row.calculation} = {row.each:,}" if row.each else "none"
        if row.each and row.instances > 1:
            parameters += f"; {row.instances} of them, {row.total:,}"
        return {
            "in": self.with_numbers(row.component.takes),
            "out": self.with_numbers(row.component.gives),
            "parameters": parameters,
            "operations": f"{row.flops:,}" if row.flops else "none",
        }


def ledger(config: Config, *, B: int = 1, T: int | None = None, S: int | None = None) -> Ledger:
    """Account for a model and a run of it.

    Parameters
    ----------
    config : Config
    B, T : int
        The sequences and their new positions: 1, and n_ctx unless given.
    S : int, optional
        Cached and new positions: T unless given.

    Examples
    --------
    >>> account = ledger(Config())
    >>> account.n_params == account.formula_value == 124_439_808
    True
    >>> account.cache_bytes_per_token
    73728
    """
    T = config.n_ctx if T is None else T
    S = T if S is None else S
    for name, value in (("B", B), ("T", T), ("S", S)):
        if value < 1:
            raise InputError(f"{name} is {value}; give 1 or more")
    if not T <= S <= config.n_ctx:
        raise InputError(f"T={T} and S={S}: T is at most S, and S at most {config.n_ctx}")
    symbols = {
        **sizes(config),
        "B": B,
        "T": T,
        "S": S,
        "H": config.n_head,
        "K": config.head_width,
        "L": config.n_layer,
    }
    return Ledger(config, symbols, tuple(_account(c, config, symbols) for c in COMPONENTS))


def _account(component: Component, config: Config, symbols: Mapping[str, int]) -> Account:
    own = component.tensors
    rows = [row for row in TABLE if own and f"{row.component}.".startswith(f"{own}.")]
    if component.tensors == "lm_head" and config.tie_word_embeddings:
        rows = []
    products = ["*".join(row.shape.split()) for row in rows]
    numbers = ["*".join(str(symbols[s]) for s in row.shape.split()) for row in rows]
    each = sum(math.prod(symbols[s] for s in row.shape.split()) for row in rows)
    instances = component.per_layer * config.n_layer or 1
    calculation = f"{' + '.join(products)} = {' + '.join(numbers)}" if rows else "0"
    flops = instances * evaluate(component.flops, symbols) if component.flops else 0
    return Account(component, calculation, each, instances, each * instances, flops)


def evaluate(expression: str, symbols: Mapping[str, int]) -> int:
    """Compute an expression of sums and products in the symbols.

    >>> evaluate("2*D*(D + 3*D)", {"D": 10})
    800
    """

    def value(node: ast.expr) -> int:
        match node:
            case ast.BinOp(left, ast.Add(), right):
                return value(left) + value(right)
            case ast.BinOp(left, ast.Mult(), right):
                return value(left) * value(right)
            case ast.Name(name) if name in symbols:
                return symbols[name]
            case ast.Constant(int(number)):
                return number
        raise InputError(f"not a sum or product of symbols: {expression!r}")

    return value(ast.parse(expression, mode="eval").body)


@cache
def _names() -> dict[str, Component]:
    return {
        _key(name): component
        for component in reversed((*WHOLES, *COMPONENTS))  # the first to claim a name keeps it
        for name in (component.title, component.name, *component.also)
    }


def _key(name: str) -> str:
    """Leave out of a name what module it is in, and how its words are joined."""
    name = re.sub(r"^(transformer\.)?(h\.\d+\.)?", "", name.strip().lower())
    return re.sub(r"[ -]+", "_", name)


def find(name: str) -> Component:
    """Find a component by its name, its title or one of its other names, of any block.

    Raises
    ------
    InputError
        There is none; the message lists those that there are.

    Examples
    --------
    >>> find("h.3.attn.c_attn").title, find("gelu").name, find("final norm").name
    ('queries, keys and values', 'mlp.act', 'ln_f')
    """
    key = _key(name)
    if key not in _names():
        known = ", ".join(component.name for component in (*COMPONENTS, *WHOLES))
        raise InputError(f"there is no component {name!r}; there are {known}")
    return _names()[key]
