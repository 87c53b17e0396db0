"""The ledger: every component of GPT-2 in order of the flow, and the exact account of its cost.

Each component stands once, with its formula, its shapes, its place in the sources and the function
of gpt2np that computes it. Parameters are not written down here: they are counted off
`gpt2np.schema`, and line numbers of our own code off the code itself.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from gpt2np.config import Config
from gpt2np.errors import InputError, shown
from gpt2np.options import did_you_mean
from gpt2np.schema import TABLE, sizes

# The code that is cited, and where its lines can be read.
OPENAI = "openai/gpt-2 @ 9b63575"
HUGGING_FACE = "transformers @ 71c6f69"
CONFIGURATION = "openai-community/gpt2 @ 607a30d"
_LINES = {
    OPENAI: "https://github.com/openai/gpt-2/blob/9b63575ef42771a015060c964af2c3da4cf7c8ab/",
    HUGGING_FACE: "https://github.com/huggingface/transformers/blob/71c6f699ac9b/"
    "src/transformers/models/gpt2/",
}
_CONFIGURATION_URL = (
    "https://huggingface.co/openai-community/gpt2/blob/607a30d783dfa663caf39e06633721c8d4cfcd7e/"
    "config.json"
)

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


class Source(NamedTuple):
    """Where something can be read: a text, and an address where there is one."""

    text: str
    url: str = ""


def cited(repository: str, lines: str) -> list[Source]:
    """Give each of the places that a component names in a repository.

    >>> for source in cited(OPENAI, "src/model.py 28-38 norm, 126 block"):
    ...     print(source.text, source.url[-20:])
    openai/gpt-2 @ 9b63575, src/model.py 28-38, norm src/model.py#L28-L38
    openai/gpt-2 @ 9b63575, src/model.py 126, block ab/src/model.py#L126
    """
    file, _, places = lines.partition(" ")
    if not places:  # a name without lines, or nothing
        return [Source(f"{repository}, {file}")] if file else []
    sources = []
    for place in places.split(", "):
        span, _, name = place.partition(" ")
        anchor = "-".join(f"L{line}" for line in span.split("-"))
        url = f"{_LINES[repository]}{file}#{anchor}"
        sources.append(Source(f"{repository}, {file} {span}, {name}", url))
    return sources


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
    explanation : str
    openai, huggingface : str
        Where OpenAI's code and Hugging Face's have it: a file, then lines and what they are in.
    paper : str
        Where the literature has it.
    settings : str
        What of GPT-2's published configuration it follows.
    function : str
        Ours, as module:function.
    flops : str
        Floating-point operations of one instance, as a sum of products in the symbols: 2 for a
        multiplication and an addition; "" where there is next to nothing to compute.
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
    function: str
    openai: str = ""
    huggingface: str = ""
    paper: str = ""
    settings: str = ""
    flops: str = ""
    per_layer: int = 0
    tensors: str = ""
    also: tuple[str, ...] = ()

    @property
    def sources(self) -> list[Source]:
        """Where else it can be read."""
        return [
            *cited(OPENAI, self.openai),
            *cited(HUGGING_FACE, self.huggingface),
            *([Source(self.settings, _CONFIGURATION_URL)] if self.settings else []),
            *([Source(self.paper)] if self.paper else []),
        ]

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
        name="tokenizer",
        title="byte-level BPE",
        takes="text",
        gives="ids [B, T]",
        formula="ids = merge(pieces(bytes(text)))",
        latex=r"\mathrm{ids} = \mathrm{merge}(\mathrm{pieces}(\mathrm{bytes}(\text{text})))",
        explanation=(
            "Text is cut into words, numbers, punctuation and white space, and each piece is "
            "spelt in bytes, so nothing is ever unknown. Then neighbouring tokens of a piece are "
            "joined by a fixed list of 50,000 merges, the earliest in the list first. The "
            "vocabulary is the 256 bytes, one token for each merge, and <|endoftext|>. Nothing of "
            "it is learned by the network."
        ),
        openai="src/encoder.py 53-101 Encoder.bpe and encode",
        huggingface="GPT2Tokenizer",
        paper=BPE_PAPER,
        function="gpt2np.tokenizer:Tokenizer.encode",
        also=("bpe", "tokenization"),
    ),
    Component(
        name="wte",
        title="token embedding",
        takes="ids [B, T]",
        gives="E_t [B, T, D]",
        formula="E_t = wte[ids]",
        latex=r"E_t = W_{te}[\mathrm{ids}]",
        explanation=(
            "Each token has a learned vector of D numbers, a row of wte, which is looked up: "
            "there is nothing to multiply. The same matrix projects to logits at the end, so a "
            "token's row says both what it means where it is read and where it is to be expected."
        ),
        openai="src/model.py 154-157 model",
        huggingface="modeling_gpt2.py 492 GPT2Model.wte, 569 GPT2Model.forward",
        paper=PAPER,
        function="gpt2np.model:embed",
        tensors="wte",
        also=("embedding",),
    ),
    Component(
        name="wpe",
        title="position embedding",
        takes="positions [B, T]",
        gives="E_pos [B, T, D]",
        formula="E_pos = wpe[positions]",
        latex=r"E_{pos} = W_{pe}[\mathrm{positions}]",
        explanation=(
            "Each absolute position, counted from 0, has a learned vector too, a row of wpe. But "
            "for its mask, attention takes no notice of order: a score does not depend on where "
            "its two tokens stand. The table has n_ctx rows, which is why no sequence, cached "
            "positions included, can be longer."
        ),
        openai="src/model.py 141-144 positions_for, 152-157 model",
        huggingface="modeling_gpt2.py 493 GPT2Model.wpe, 573-576 GPT2Model.forward",
        paper=PAPER,
        settings=f"{CONFIGURATION}, n_positions 1024",
        function="gpt2np.model:embed",
        tensors="wpe",
        also=("position", "positional_embedding"),
    ),
    Component(
        name="embed",
        title="sum of the embeddings",
        takes="E_t, E_pos [B, T, D]",
        gives="[B, T, D]",
        formula="E_t + E_pos",
        latex=r"E_t + E_{pos}",
        explanation=(
            "The vectors of token and position are added, number by number. That is how the "
            "residual stream begins: what and where share the same D numbers, and it is left to "
            "the network to tell them apart."
        ),
        openai="src/model.py 157 model",
        huggingface="modeling_gpt2.py 577 GPT2Model.forward",
        paper=PAPER,
        function="gpt2np.model:embed",
        flops="B T D",
        also=("sum", "x_0", "input"),
    ),
    Component(
        name="dropout",
        title="dropout, p_embd = 0.1, training only",
        takes="[B, T, D]",
        gives="x_0 [B, T, D]",
        formula="x at inference",
        latex=r"x_0 = x",
        explanation=(
            "In training, numbers of the embedding, of each attention pattern and of what "
            "attention and MLP add to the stream are set to zero at random, a tenth of them in "
            "the published configuration, and the others divided by 0.9. At inference it is the "
            "identity: gpt2np has no code for it, and neither has what OpenAI published."
        ),
        huggingface="modeling_gpt2.py 495 GPT2Model.drop, 603 GPT2Model.forward",
        paper=DROPOUT_PAPER,
        settings=f"{CONFIGURATION}, embd_pdrop, attn_pdrop and resid_pdrop 0.1",
        function="gpt2np.model:embed",
        also=("drop",),
    ),
    Component(
        name="ln_1",
        title="LayerNorm before attention",
        takes="[B, T, D]",
        gives="[B, T, D]",
        formula="(x - mean(x)) / sqrt(var(x) + ε) · g + b",
        latex=r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b",
        explanation=(
            "Each position is shifted to mean 0 and scaled to variance 1 over its D numbers, then "
            "given a learned gain and bias. The variance is divided by D, not D - 1, and ε = "
            "1e-5 stands inside the root. GPT-2 normalises what goes into attention and MLP, and "
            "leaves the residual stream itself alone."
        ),
        openai="src/model.py 28-38 norm, 126 block",
        huggingface="modeling_gpt2.py 252 GPT2Block.ln_1, 273 GPT2Block.forward",
        paper=LAYER_NORM_PAPER,
        function="gpt2np.layers:layer_norm",
        flops="7 B T D",
        per_layer=1,
        tensors="ln_1",
        also=("ln", "norm", "layer_norm", "layernorm"),
    ),
    Component(
        name="attn.c_attn",
        title="queries, keys and values",
        takes="[B, T, D]",
        gives="[B, T, 3D] -> 3 x [B, H, T, K]",
        formula="[q k v] = x W + b",
        latex=r"[q\;k\;v] = x W + b",
        explanation=(
            "One linear map makes, side by side, what each position asks for (query), what it "
            "offers (key) and what it passes on (value). Each is cut into H heads of width K = D "
            "/ H. W is stored [in, out], the other way round from torch's nn.Linear."
        ),
        openai="src/model.py 50-56 conv1d, 75-77 attn, 102-103 attn",
        huggingface="modeling_gpt2.py 106 GPT2Attention.c_attn, 185-191 GPT2Attention.forward",
        paper=ATTENTION_PAPER,
        function="gpt2np.layers:linear",
        flops="2 B T D 3D + B T 3D",
        per_layer=1,
        tensors="attn.c_attn",
        also=("c_attn", "qkv", "attn.q", "attn.k", "attn.v", "q", "k", "v"),
    ),
    Component(
        name="attn.scores",
        title="attention scores",
        takes="q [B, H, T, K], k [B, H, S, K]",
        gives="[B, H, T, S]",
        formula="q kᵀ / √K + mask",
        latex=r"\frac{q k^\top}{\sqrt{K}} + \mathrm{mask}",
        explanation=(
            "A score says how well a query fits a key: it is their dot product. Undivided, their "
            "spread would grow with the root of the width, and the softmax would harden. The mask "
            "puts -∞ where a key is later than the query: query t of T, both counted from 0, "
            "sees keys 0 ... S - T + t. OpenAI's code puts -1e10, which comes to the same."
        ),
        openai="src/model.py 58-66 attention_mask, 83-96 attn",
        huggingface="modeling_gpt2.py 96-100 GPT2Attention.scaling, 58-61 eager_attention_forward",
        paper=ATTENTION_PAPER,
        function="gpt2np.layers:attention_scores",
        flops="2 B H T S K + B H T S",
        per_layer=1,
        also=("scores", "mask"),
    ),
    Component(
        name="attn.pattern",
        title="attention pattern",
        takes="[B, H, T, S]",
        gives="[B, H, T, S]",
        formula="softmax(scores)",
        latex=r"\mathrm{softmax}(\mathrm{scores})",
        explanation=(
            "Each row becomes a distribution over the keys that its query sees: how much of each "
            "of those positions flows to this one. The maximum is taken off first, which changes "
            "nothing but keeps exp finite."
        ),
        openai="src/model.py 20-23 softmax, 97 attn",
        huggingface="modeling_gpt2.py 63 eager_attention_forward",
        paper=ATTENTION_PAPER,
        function="gpt2np.layers:softmax",
        flops="5 B H T S",
        per_layer=1,
        also=("pattern", "softmax"),
    ),
    Component(
        name="attn.z",
        title="what each head gathers",
        takes="pattern [B, H, T, S], v [B, H, S, K]",
        gives="[B, T, H, K]",
        formula="z = pattern v",
        latex=r"z = \mathrm{pattern} \, v",
        explanation=(
            "In each head, each position takes the mean of the values up to its own, weighted by "
            "its pattern. This is the only place where information moves from one position to "
            "another."
        ),
        openai="src/model.py 91-99 attn",
        huggingface="modeling_gpt2.py 69 eager_attention_forward",
        paper=ATTENTION_PAPER,
        function="gpt2np.layers:attention",
        flops="2 B H T S K",
        per_layer=1,
        also=("z",),
    ),
    Component(
        name="attn.c_proj",
        title="attention's output",
        takes="[B, T, D]",
        gives="[B, T, D]",
        formula="z W + b",
        latex="z W + b",
        explanation=(
            "The heads, side by side again, are mixed and written back to the residual stream. W "
            "is square, so no shape shows whether it is transposed: only numbers do."
        ),
        openai="src/model.py 79-81 attn, 110-111 attn",
        huggingface="modeling_gpt2.py 107 GPT2Attention.c_proj, 222-223 GPT2Attention.forward",
        paper=ATTENTION_PAPER,
        function="gpt2np.layers:linear",
        flops="2 B T D D + B T D",
        per_layer=1,
        tensors="attn.c_proj",
        also=("c_proj",),
    ),
    Component(
        name="resid_mid",
        title="residual stream",
        takes="[B, T, D] twice",
        gives="[B, T, D]",
        formula="x + attn(ln_1(x)), then x + mlp(ln_2(x))",
        latex=r"x + \mathrm{attn}(\mathrm{ln}_1(x)),\quad x + \mathrm{mlp}(\mathrm{ln}_2(x))",
        explanation=(
            "Attention and MLP do not replace the stream, they add to it. So every block reads "
            "the sum of the embedding and of all that was written before, and gradients reach the "
            "embedding unhindered."
        ),
        openai="src/model.py 123-130 block",
        huggingface="modeling_gpt2.py 282 GPT2Block.forward, 307 GPT2Block.forward",
        paper=RESIDUAL_PAPER,
        function="gpt2np.model:block",
        flops="B T D",
        per_layer=2,
        also=("residual", "resid", "block"),
    ),
    Component(
        name="ln_2",
        title="LayerNorm before the MLP",
        takes="[B, T, D]",
        gives="[B, T, D]",
        formula="(x - mean(x)) / sqrt(var(x) + ε) · g + b",
        latex=r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b",
        explanation=(
            "The same as ln_1, with a gain and bias of its own. It reads the stream after "
            "attention has added to it."
        ),
        openai="src/model.py 28-38 norm, 128 block",
        huggingface="modeling_gpt2.py 254 GPT2Block.ln_2, 304 GPT2Block.forward",
        paper=LAYER_NORM_PAPER,
        function="gpt2np.layers:layer_norm",
        flops="7 B T D",
        per_layer=1,
        tensors="ln_2",
    ),
    Component(
        name="mlp.c_fc",
        title="MLP, up",
        takes="[B, T, D]",
        gives="[B, T, F]",
        formula="x W + b",
        latex="x W + b",
        explanation=(
            "Each position by itself is mapped to F numbers, 4 D in all published models. They "
            "can be read as patterns that the position is tested for."
        ),
        openai="src/model.py 118 mlp",
        huggingface="modeling_gpt2.py 233 GPT2MLP.c_fc, 239 GPT2MLP.forward",
        paper=PAPER,
        function="gpt2np.layers:linear",
        flops="2 B T D F + B T F",
        per_layer=1,
        tensors="mlp.c_fc",
        also=("c_fc",),
    ),
    Component(
        name="mlp.act",
        title="GELU",
        takes="[B, T, F]",
        gives="[B, T, F]",
        formula="x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))",
        latex=r"\frac{x}{2}\left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)",
        explanation=(
            "GELU lets large numbers through and holds back negative ones, smoothly. OpenAI's "
            "GPT-2 uses this tanh form; models trained with nanoGPT use the exact one, x/2 (1 + "
            "erf(x / √2)), and the two differ by up to 5e-4."
        ),
        openai="src/model.py 25-26 gelu, 118 mlp",
        huggingface="modeling_gpt2.py 235 GPT2MLP.act, 240 GPT2MLP.forward",
        paper=GELU_PAPER,
        function="gpt2np.layers:gelu_tanh",
        flops="8 B T F",
        per_layer=1,
        also=("gelu", "act"),
    ),
    Component(
        name="mlp.c_proj",
        title="MLP, down",
        takes="[B, T, F]",
        gives="[B, T, D]",
        formula="x W + b",
        latex="x W + b",
        explanation=(
            "The F numbers are mapped back to D. Each row of W is what one of the patterns, where "
            "it is found, adds to the residual stream."
        ),
        openai="src/model.py 119 mlp",
        huggingface="modeling_gpt2.py 234 GPT2MLP.c_proj, 241 GPT2MLP.forward",
        paper=PAPER,
        function="gpt2np.layers:linear",
        flops="2 B T F D + B T D",
        per_layer=1,
        tensors="mlp.c_proj",
    ),
    Component(
        name="ln_f",
        title="final LayerNorm",
        takes="[B, T, D]",
        gives="h_final [B, T, D]",
        formula="(x - mean(x)) / sqrt(var(x) + ε) · g + b",
        latex=r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b",
        explanation=(
            "The residual stream after the last block is normalised once more before it is read. "
            "The first GPT normalised after each step instead, and had no need of this."
        ),
        openai="src/model.py 167 model",
        huggingface="modeling_gpt2.py 497 GPT2Model.ln_f, 619 GPT2Model.forward",
        paper=PAPER,
        function="gpt2np.layers:layer_norm",
        flops="7 B T D",
        tensors="ln_f",
        also=("final_norm", "final_layer_norm"),
    ),
    Component(
        name="logits",
        title="tied projection",
        takes="h_final [B, T, D]",
        gives="[B, T, V]",
        formula="h wteᵀ",
        latex=r"h\, W_{te}^\top",
        explanation=(
            "The logit of a token is the dot product of the final state with the token's own "
            "embedding. So the projection has no parameters, unless the model has a head of its "
            "own (lm_head)."
        ),
        openai="src/model.py 170-172 model",
        huggingface=(
            "modeling_gpt2.py 637 GPT2LMHeadModel, 642 GPT2LMHeadModel.lm_head, 697 "
            "GPT2LMHeadModel.forward"
        ),
        paper=TYING_PAPER,
        function="gpt2np.model:unembed",
        flops="2 B T D V",
        tensors="lm_head",
        also=("lm_head", "projection", "unembed", "unembedding"),
    ),
    Component(
        name="cache",
        title="key-value cache",
        takes="k, v [B, H, T, K]",
        gives="k, v [B, H, S, K]",
        formula="k, v of all positions so far",
        latex=r"k_{0 \ldots S-1},\; v_{0 \ldots S-1}",
        explanation=(
            "Attention is causal, so keys and values never change once computed. Kept, they make "
            "the next token cost one position instead of all: the weights are read once a token, "
            "and 2 L D numbers a position are kept."
        ),
        openai="src/model.py 104-108 attn",
        huggingface="modeling_gpt2.py 193-199 GPT2Attention.forward",
        function="gpt2np.cache:KVCache.extend",
        per_layer=1,
        also=("kv_cache", "kvcache"),
    ),
    Component(
        name="sampling",
        title="sampling",
        takes="logits [V]",
        gives="id",
        formula="id ~ softmax(filter(logits / temperature))",
        latex=r"\mathrm{id} \sim \mathrm{softmax}(\mathrm{filter}(\mathrm{logits} / \tau))",
        explanation=(
            "The logits become a distribution to draw from. Temperature sharpens or flattens it; "
            "top-k and top-p leave out the unlikely tail; temperature 0 takes the likeliest "
            "token."
        ),
        openai="src/sample.py 5-40 top_k_logits and top_p_logits, 61-72 sample_sequence",
        huggingface="GPT2LMHeadModel.generate",
        paper=TOP_P_PAPER,
        function="gpt2np.sampling:Sampling.pick",
        also=("sample", "top_k", "top_p", "temperature"),
    ),
)


def _operations(whole: str) -> str:
    return " + ".join(c.flops for c in COMPONENTS if c.name.startswith(f"{whole}."))


# What is taken apart above: `explain` knows these as well, the table has only their parts.
WHOLES = (
    Component(
        name="attn",
        title="attention",
        takes="[B, T, D]",
        gives="[B, T, D]",
        formula="[q k v] = x W + b; z = softmax(q kᵀ / √K + mask) v; z W' + b'",
        latex=(
            r"[q\;k\;v] = x W + b,\quad "
            r"z = \mathrm{softmax}\left(\frac{q k^\top}{\sqrt{K}} + \mathrm{mask}\right) v,\quad "
            r"z W' + b'"
        ),
        explanation=(
            "Each position looks for something, and takes what fits from itself and from the "
            "positions before it; H heads of width K do so side by side. It is the only part in "
            "which positions see each other. Its steps are attn.c_attn, attn.scores, "
            "attn.pattern, attn.z and attn.c_proj."
        ),
        openai="src/model.py 69-112 attn",
        huggingface="modeling_gpt2.py 144-226 GPT2Attention.forward",
        paper=ATTENTION_PAPER,
        function="gpt2np.model:self_attention",
        flops=_operations("attn"),
        per_layer=1,
        tensors="attn",
        also=("self_attention",),
    ),
    Component(
        name="mlp",
        title="MLP",
        takes="[B, T, D]",
        gives="[B, T, D]",
        formula="gelu(x W + b) W' + b'",
        latex=r"\mathrm{gelu}(x W + b) W' + b'",
        explanation=(
            "Works on each position by itself, through a layer four times as wide as the stream. "
            "Two thirds of a block's parameters are here. Its steps are mlp.c_fc, mlp.act and "
            "mlp.c_proj."
        ),
        openai="src/model.py 115-120 mlp",
        huggingface="modeling_gpt2.py 238-243 GPT2MLP.forward",
        paper=PAPER,
        function="gpt2np.model:mlp",
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
    calculation, flops_calculation : str
        How its parameters and its operations are counted, as ``"D*3D + 3D = 768*2304 + 2304"``.
    each, flops_each : int
        Parameters of one instance, and its floating-point operations in this run.
    instances : int
        How many there are.
    """

    component: Component
    calculation: str
    each: int
    flops_calculation: str
    flops_each: int
    instances: int

    @property
    def total(self) -> int:
        """The parameters of all instances."""
        return self.each * self.instances

    @property
    def flops(self) -> int:
        """The operations of all instances."""
        return self.flops_each * self.instances


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
        before, block, after = self._formula
        return f"{starred(before)} + L*({starred(block)}) + {starred(after)}"

    @property
    def formula_value(self) -> int:
        """What the formula comes to."""
        before, block, after = (evaluate(part, self.symbols) for part in self._formula)
        return before + self.config.n_layer * block + after

    @property
    def _formula(self) -> tuple[str, str, str]:
        """What stands before the blocks, in each of them, and after them."""
        usual = self.config.n_inner == 4 * self.config.n_embd
        block = "12 D D + 13 D" if usual else "4 D D + 2 D F + 9 D + F"
        return "V D + n_ctx D", block, "2 D" if self.config.tie_word_embeddings else "2 D + V D"

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
        own = 2 * n["D"] + evaluate("2 L D", n) * n["S"]
        return round(4 * (shared / n["B"] + own))

    @property
    def cache_bytes_per_token(self) -> int:
        """Bytes that the cache holds for each position in float32: 2 L D numbers."""
        return 4 * evaluate("2 L D", self.symbols)

    def numbers(self, shape: str) -> str:
        """Give a shape that is written in symbols in numbers, "" where it has none.

        >>> ledger(Config(), T=5).numbers("[B, T, 3D] -> 3 x [B, H, T, K]")
        '[1, 5, 2304], [1, 12, 5, 64]'
        """
        return ", ".join(map(str, self.shapes(shape)))

    def shapes(self, shape: str) -> list[list[int]]:
        """Give the same as lists, [] where there are none."""
        written = [part.split("]")[0].split(", ") for part in shape.split("[")[1:]]
        return [[self.symbols[symbol] for symbol in symbols] for symbols in written]

    def with_numbers(self, shape: str) -> str:
        """Give a shape in symbols, and in numbers where it has any.

        >>> ledger(Config(), T=5).with_numbers("ids [B, T]")
        'ids [B, T] = [1, 5]'
        """
        numbers = self.numbers(shape)
        return f"{shape} = {numbers}" if numbers else shape

    def facts(self, row: Account) -> dict[str, str]:
        """Give what a component takes, gives and costs, in words for a reader."""
        facts = {
            "in": self.with_numbers(row.component.takes),
            "out": self.with_numbers(row.component.gives),
            "parameters": _counted(row.calculation, row.each, row.instances),
            "operations": _counted(row.flops_calculation, row.flops_each, row.instances),
        }
        if row.component.name == "wpe":
            facts["limit"] = f"at most {self.config.n_ctx:,} positions, cached ones included"
        return facts


def _counted(calculation: str, each: int, instances: int) -> str:
    """Say how something is counted, of one instance and then of all."""
    if not each:
        return "none"
    total = f"; x {instances} = {each * instances:,}" if instances > 1 else ""
    return f"{calculation} = {each:,}{total}"


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
    instances = component.per_layer * config.n_layer or 1
    parameters, flops = " + ".join(row.shape for row in rows), component.flops
    return Account(
        component,
        _calculation(parameters, symbols),
        evaluate(parameters, symbols),
        _calculation(flops, symbols),
        evaluate(flops, symbols),
        instances,
    )


def evaluate(expression: str, symbols: Mapping[str, int]) -> int:
    """Compute a sum of products in the symbols.

    >>> evaluate("2 D D + 3 D", {"D": 10})
    230
    """
    terms = expression.split(" + ") if expression else []
    return sum(math.prod(map(int, _numbers(term, symbols))) for term in terms)


def _numbers(term: str, symbols: Mapping[str, int]) -> list[str]:
    return [str(symbols.get(factor, factor)) for factor in term.split()]


def starred(expression: str) -> str:
    """Write products with a star between their factors.

    >>> starred("2 D D + 3 D")
    '2*D*D + 3*D'
    """
    return " + ".join("*".join(term.split()) for term in expression.split(" + "))


def _calculation(expression: str, symbols: Mapping[str, int]) -> str:
    """Give a sum of products in symbols, and in numbers."""
    if not expression:
        return "0"
    numbers = " + ".join(" ".join(_numbers(term, symbols)) for term in expression.split(" + "))
    return f"{starred(expression)} = {starred(numbers)}"


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
        known = [component.name for component in (*COMPONENTS, *WHOLES)]
        hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        raise InputError(f"there is no component {shown(name)}{hint}")
    return _names()[key]
