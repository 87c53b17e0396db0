"""GGUF, as PyPI's gguf writes it and as transformers reads it; and what is refused by name."""

import struct

import numpy as np
import pytest
from checkpoint_files import Place, Typed, gguf_bytes
from closeness import near
from models import random_params

import gpt2np
from gpt2np import Config, Tokenizer
from gpt2np.checkpoints import ggml_blocks, gguf, open_checkpoint
from gpt2np.errors import CheckpointError, TokenizerError
from gpt2np.loading import inspect

CONFIG = Config(vocab_size=50257, n_ctx=1024, n_embd=32, n_head=2, n_layer=2)
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
K_QUANTS = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]  # which PyPI's gguf reads, and does not write

LAYERS = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
OUTER = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output"}


def gguf_arrays(params):
    """The tensors as llama.cpp's convert_hf_to_gguf.py names and turns them."""
    for name, array in params.items():
        layer, kind = name.rsplit(".", 1)
        if layer in OUTER:
            yield f"{OUTER[layer]}.{kind}", array
        else:
            _, i, layer = layer.split(".", 2)
            turned = array.T if array.ndim == 2 else array
            yield f"blk.{i}.{LAYERS[layer]}.{kind}", np.ascontiguousarray(turned)


def write_gguf(path, params, kind, *, tokenizer=None, output=False, head=None):
    """Write as llama.cpp's converter does; matrices in blocks, the rest as float32."""
    theirs = pytest.importorskip("gguf")
    kind, plain = (theirs.GGMLQuantizationType[name] for name in (kind, "F32"))
    config = params.config
    writer = theirs.GGUFWriter(path, "gpt2")
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(config.n_inner)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    if tokenizer is not None:
        ids = tokenizer._vocabulary.ids
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([*ids, "<|endoftext|>"])
        writer.add_token_types([1] * len(ids) + [3])
        writer.add_token_merges(list(tokenizer._vocabulary.merges))
        writer.add_bos_token_id(tokenizer.eot)
        writer.add_eos_token_id(tokenizer.eot)
    for name, array in gguf_arrays(params):
        chosen = kind if array.ndim == 2 and not name.startswith("position") else plain
        writer.add_tensor(name, theirs.quantize(array, chosen), raw_dtype=chosen)
        if output and name == "token_embd.weight":
            writer.add_tensor("output.weight", theirs.quantize(array, chosen), raw_dtype=chosen)
    if head is not None:
        data, head_kind = head
        writer.add_tensor("output.weight", data, raw_dtype=head_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def params():
    return random_params(CONFIG)


@pytest.mark.parametrize("kind", TYPES)
def test_equals_transformers(tmp_path, params, kind):
    """In weights bit for bit, in logits, in tokens, and in where a text ends."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    write_gguf(tmp_path / "model.gguf", params, kind, tokenizer=Tokenizer.gpt2())
    model = gpt2np.load(tmp_path)
    settings = {"gguf_file": "model.gguf", "dtype": torch.float32}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **settings).eval()
    for name, tensor in theirs.transformer.state_dict().items():
        np.testing.assert_array_equal(model.params[name], tensor.numpy(), strict=True)
    if kind == "F32":
        assert all((model.params[name] == array).all() for name, array in params.items())
    ids = [15496, 995, 50256, 11, 262]
    with torch.no_grad():
        assert near(gpt2np.forward(model.params, ids), theirs(torch.tensor([ids])).logits.numpy())
    assert model.config == CONFIG
    assert model.tokenizer == Tokenizer.gpt2()
    assert (model.bos, model.eos) == (theirs.config.bos_token_id, (theirs.config.eos_token_id,))
    if kind == "F32":
        spelt = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
        text = "Hello, wörld's  end<|endoftext|> 漢字\n"
        assert model.tokenizer.encode(text, special=True) == spelt(text)["input_ids"]


@pytest.mark.parametrize("kind", [*TYPES, *K_QUANTS])
def test_blocks_equal_those_of_the_gguf_package(kind):
    """On all that can stand in a file, infinities and NaNs as scales included."""
    theirs = pytest.importorskip("gguf")
    kind = theirs.GGMLQuantizationType[kind]
    numbers, size = theirs.GGML_QUANT_SIZES[kind]
    n = 70_000 // numbers * numbers
    raw = np.random.RandomState(0).bytes(n // numbers * size)
    rows = np.frombuffer(raw, np.uint8)
    with np.errstate(all="ignore"):
        expected = theirs.dequantize(rows, kind)
    tensors = {"w": Place((n,), int(kind), raw)}
    path = gguf_bytes({"general.architecture": "gpt2"}, tensors)
    found = gguf.read("x", np.frombuffer(path, np.uint8)).tensors["w"].astype(np.float32)
    same = (found.view(np.uint32) == expected.view(np.uint32)) | np.isnan(found)
    assert same.all()
    assert (np.isnan(found) == np.isnan(expected)).all()


def test_a_head_that_is_the_embedding_again_is_tied(tmp_path, params):
    """Files of before 2025 have it twice."""
    write_gguf(tmp_path / "model.gguf", params, "Q8_0", output=True)
    model = gpt2np.load(tmp_path)
    assert model.config == CONFIG
    assert model.params.lm_head is model.params.wte


def test_a_head_of_its_own_in_other_blocks(tmp_path):
    """Files that llama.cpp calls Q4_0 keep the head in Q6_K."""
    theirs, torch, transformers = (
        pytest.importorskip(name) for name in ("gguf", "torch", "transformers")
    )
    wide = random_params(Config(vocab_size=50257, n_ctx=1024, n_embd=256, n_head=2, n_layer=1))
    blocks = np.random.RandomState(1).randint(0, 256, (50257, 210)).astype(np.uint8)
    blocks[:, 208:] = np.full((50257, 1), 1e-5, "<f2").view(np.uint8)  # their scale
    kind = theirs.GGMLQuantizationType.Q6_K
    write_gguf(tmp_path / "x.gguf", wide, "Q4_0", tokenizer=Tokenizer.gpt2(), head=(blocks, kind))
    model = gpt2np.load(tmp_path)
    assert not model.config.tie_word_embeddings
    hf = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="x.gguf", dtype=torch.float32, tie_word_embeddings=False
    ).eval()
    np.testing.assert_array_equal(model.params.lm_head, hf.lm_head.weight.detach().numpy())
    with torch.no_grad():
        expected = hf(torch.tensor([[15496, 995, 11]])).logits.numpy()
    assert near(gpt2np.forward(model.params, [15496, 995, 11]), expected)


def test_what_is_not_in_blocks_is_mapped(tmp_path, params):
    write_gguf(tmp_path / "model.gguf", params, "F32")
    base = open_checkpoint(tmp_path).tensors["wte.weight"]
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)


# By hand, where PyPI's gguf cannot write it.

SIZES = {
    "general.architecture": "gpt2",
    "gpt2.block_count": 1,
    "gpt2.context_length": 8,
    "gpt2.embedding_length": 4,
    "gpt2.attention.head_count": 2,
    "gpt2.attention.layer_norm_epsilon": 1e-5,
}
TINY = random_params(Config(vocab_size=260, n_ctx=8, n_embd=4, n_head=2, n_layer=1))
TENSORS = {name: Place(array.shape[::-1], 0, array.tobytes()) for name, array in gguf_arrays(TINY)}
BYTES = list(Tokenizer.gpt2()._vocabulary.ids)[:256]
TOKENS = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": [*BYTES, "he", "<|user|>", "<|endoftext|>", "[PAD259]"],
    "tokenizer.ggml.token_type": [1] * 256 + [1, 4, 3, 5],
    "tokenizer.ggml.merges": ["h e"],
}


def write(path, fields, tensors=TENSORS, **options):
    path.write_bytes(gguf_bytes(fields, tensors, **options))
    return path


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [32, 64, 8])
def test_versions_and_alignments(tmp_path, version, alignment):
    fields = SIZES | {"general.alignment": alignment}
    path = write(tmp_path / "x", fields, version=version, alignment=alignment)
    loaded = gpt2np.load(path)
    assert all((loaded.params[name] == array).all() for name, array in TINY.items())
    assert loaded.config == TINY.config


def test_the_tokens_of_the_header(tmp_path):
    """Special ones, others that are found in any text, and those that only fill up."""
    ends = {"tokenizer.ggml.eos_token_id": 257, "tokenizer.ggml.bos_token_id": 258}
    model = gpt2np.load(write(tmp_path / "x", SIZES | TOKENS | ends))
    encode = model.tokenizer.encode
    assert encode("he<|user|>") == [256, 257]
    assert encode("<|endoftext|>", special=True) == [258]
    assert len(encode("<|endoftext|>")) > 1
    assert model.tokenizer.n_vocab == 259
    assert (model.bos, model.eos) == (258, (257,))
    assert inspect(tmp_path / "x").beside.boundary("eos_token_id", None, 260).said_by == "x"


def test_a_header_that_asks_for_a_token_before_each_text(tmp_path):
    """As transformers reads it; what it says of a space before a text is for SentencePiece."""
    transformers = pytest.importorskip("transformers")
    asks = {
        "bos_token_id": 258,
        "add_bos_token": Typed(7, True),
        "add_space_prefix": Typed(7, True),
    }
    fields = SIZES | TOKENS | {f"tokenizer.ggml.{key}": value for key, value in asks.items()}
    model = gpt2np.load(write(tmp_path / "x.gguf", fields))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="x.gguf")
    begin = [model.tokenizer.begins_with]
    assert begin + model.tokenizer.encode("he he") == theirs("he he")["input_ids"]


@pytest.mark.parametrize(
    "fields",
    [{"tokenizer.ggml.model": "llama"}, {"tokenizer.ggml.pre": "llama-bpe"}],
    ids=["SentencePiece", "cut in another way"],
)
def test_a_tokenizer_of_another_kind_leaves_the_weights_usable(tmp_path, fields):
    model = gpt2np.load(write(tmp_path / "x", SIZES | TOKENS | fields))
    assert not model.has_tokenizer
    with pytest.raises(TokenizerError, match="llama"):
        model.tokenizer.encode("he")


def test_a_header_that_does_not_say_what_kind_its_tokens_are(tmp_path):
    fields = {key: value for key, value in TOKENS.items() if not key.endswith("token_type")}
    model = gpt2np.load(write(tmp_path / "x", SIZES | fields))
    assert model.tokenizer.encode("<|user|>", special=True) == [257]
    assert len(model.tokenizer.encode("<|user|>")) > 1
    assert model.eos == (258,)


def test_the_header_decides_and_not_the_folder(tmp_path):
    (tmp_path / "config.json").write_text('{"n_layer": 7}')
    (tmp_path / "vocab.bpe").write_text("")
    model = gpt2np.load(write(tmp_path / "x.gguf", SIZES | TOKENS))
    assert model.config == TINY.config
    assert model.tokenizer.encode("he") == [256]


ONE = {"w": Place((2, 3), 0, bytes(24))}
GPT2 = {"general.architecture": "gpt2"}


def one(*place):
    return gguf_bytes(GPT2, {"w": Place(*place)})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gguf_bytes(GPT2, ONE, version=1), "is a GGUF of version 1; read are 2 and 3"),
        (gguf_bytes(GPT2, ONE, version=3 << 24), "is a big-endian GGUF: convert it with gguf-conv"),
        (gguf_bytes({"general.architecture": "llama"}, ONE), "the architecture 'llama': gpt2np"),
        (
            gguf_bytes(GPT2 | {"split.count": 3}, ONE),
            "is one of 3 parts: join them with",
        ),
        (gguf_bytes(GPT2 | {"general.alignment": 0}, ONE), "an impossible general.alignment, 0"),
        (gguf_bytes(GPT2 | {"general.alignment": 24}, ONE), "an impossible general.alignment, 24"),
        (
            one((256,), 16, bytes(66)),
            "tensor 'w' is IQ2_XXS, which gpt2np does not read .it",
        ),
        (one((32,), 20, bytes(18)), "tensor 'w' is IQ4_NL, which .*: use the model's F16 or Q8_0"),
        (one((128,), 14, bytes(105)), "does not consist of blocks of 256"),
        (one((256,), 36, bytes(256)), "tensor 'w' is of the unknown type 36"),
        (one((33,), 8, bytes(99)), "does not consist of blocks of 32"),
        (one((4,), 0, bytes(16), 1 << 40), "ends at byte 1099511627.*, the file at"),
        (one((1 << 40, 1 << 40), 0, b""), "has an impossible shape"),
        (gguf_bytes(GPT2, {**ONE, "v": Place((2,), 0, bytes(8), 0)}), "'v' and 'w' overlap"),
        (gguf_bytes(GPT2, ONE, counts=(1 << 60, 1)), "says it has 1152921504606846976 tensors"),
        (gguf_bytes(GPT2, ONE, counts=(1, 1 << 60)), "and 1152921504606846976 values: no GPT-2"),
        (gguf_bytes(GPT2 | {"x": Typed(13, 0)}, ONE), "is damaged: it has a value of type 13"),
        (gguf_bytes(GPT2 | {"x": [[1]]}, ONE), "is damaged: it has a list of values of type 9"),
        (gguf_bytes(GPT2, ONE)[:60], "is cut short or damaged, in its header"),
        (gguf_bytes(GPT2, ONE)[:-4], "tensor 'w' ends at byte"),
        (gguf_bytes(GPT2, ONE).replace(b"gpt2", b"\xff" * 4), "is cut short or damaged, in its"),
    ],
)
def test_what_is_refused(tmp_path, data, message):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path / "x")


def test_a_list_that_claims_a_billion_values(tmp_path):
    start = gguf_bytes(GPT2, {}, counts=(0, 2))
    data = start.rstrip(b"\0") + struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, 0, 1 << 30)
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CheckpointError, match="has lists of more than 2000000 values"):
        open_checkpoint(tmp_path / "x")


def test_blocks_are_unpacked_in_steps(monkeypatch):
    monkeypatch.setattr(ggml_blocks, "STEP", 64)
    data = np.arange(34 * 5, dtype=np.uint8)
    whole = ggml_blocks.Q8_0.unpack(data)
    parts = [ggml_blocks.Q8_0.unpack(data[i * 34 : (i + 1) * 34]) for i in range(5)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
