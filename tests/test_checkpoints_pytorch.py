"""What torch.save writes, in both of its formats, read without torch and held against torch."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import (
    SYSTEM,
    dict_of,
    name,
    storage,
    stream,
    tensor,
    text,
    torch_legacy,
    torch_zip,
    tuple_of,
)

from gpt2np.checkpoints import open_checkpoint
from gpt2np.errors import CheckpointError

torch = pytest.importorskip("torch")
nn = torch.nn

BOTH_FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
TYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)


def save(value, path, zipped, protocol=2):
    torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)


def check_equal(read, expected):
    expected = expected.detach()
    expected = expected.float() if expected.dtype == torch.bfloat16 else expected
    np.testing.assert_array_equal(read, expected.numpy(), strict=True)
    assert not read.flags.writeable
    assert read.flags.aligned


def some_tensors():
    torch.manual_seed(0)
    base = torch.randn(24)
    tensors = {f"type.{t}": torch.randint(0, 2, (3, 5)).to(getattr(torch, t)) for t in TYPES}
    tensors |= {f"step.{t}": torch.arange(11).to(getattr(torch, t))[2:9:3] for t in TYPES[:-1]}
    return tensors | {
        "base": base,
        "part": base[4:10].view(2, 3),
        "transposed": torch.randn(3, 4).T,
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "column": torch.randn(4, 5)[:, 2],
        "scalar": torch.tensor(2.5),
        "scalar inside": base[7],
        "empty": torch.zeros(2, 0, 3),
        "empty inside": base[24:],
        "one": torch.randn(1, 1, 1),
        "parameter": nn.Parameter(torch.randn(2, 2)),
        "ü\n": torch.ones(2),
    }


@BOTH_FORMATS
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_reads_tensors_of_every_kind(tmp_path, zipped, protocol):
    tensors = some_tensors()
    save(tensors, tmp_path / "x", zipped, protocol)
    checkpoint = open_checkpoint(tmp_path / "x", verify=True)
    assert checkpoint.format == "pytorch"
    assert checkpoint.files == (tmp_path / "x",)
    assert list(checkpoint.tensors) == list(tensors)
    assert checkpoint.metadata == {}
    for key, expected in tensors.items():
        check_equal(checkpoint.tensors[key], expected)
        assert checkpoint.dtypes[key] == str(expected.dtype).removeprefix("torch.")


@BOTH_FORMATS
def test_tied_tensors_share_memory(tmp_path, zipped):
    weight = torch.randn(5, 4)
    save({"wte.weight": weight, "lm_head.weight": weight}, tmp_path / "x", zipped)
    wte, head = open_checkpoint(tmp_path / "x").tensors.values()
    assert np.shares_memory(wte, head)


def test_a_zip_is_mapped_and_not_copied(tmp_path):
    save({"w": torch.randn(50, 4), "h": torch.randn(3).half()}, tmp_path / "x", True)
    for array in open_checkpoint(tmp_path / "x").tensors.values():
        owner = array
        while not isinstance(owner, np.memmap):
            owner = owner.base
            assert owner is not None, "a copy was made"


def test_the_name_of_the_file_does_not_matter(tmp_path):
    for file in ("pytorch_model.bin", "a b.safetensors", "noextension"):
        save({"w": torch.ones(3)}, tmp_path / file, True)  # the zip's root is named after the file
        assert open_checkpoint(tmp_path / file).format == "pytorch"


# Models, as their makers save them.


class NanoGPT(nn.Module):
    """The modules, and so the names and layouts, of nanoGPT's model.py."""

    def __init__(self, layers=2, width=8, vocabulary=17, context=6, bias=True):
        super().__init__()
        h = nn.ModuleList()
        for _ in range(layers):
            block = nn.Module()
            block.ln_1, block.ln_2 = (nn.LayerNorm(width, bias=bias) for _ in range(2))
            block.attn, block.mlp = nn.Module(), nn.Module()
            block.attn.c_attn = nn.Linear(width, 3 * width, bias=bias)
            block.attn.c_proj = nn.Linear(width, width, bias=bias)
            mask = torch.tril(torch.ones(context, context)).view(1, 1, context, context)
            block.attn.register_buffer("bias", mask)
            block.mlp.c_fc = nn.Linear(width, 4 * width, bias=bias)
            block.mlp.c_proj = nn.Linear(4 * width, width, bias=bias)
            h.append(block)
        wte, wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        ln_f = nn.LayerNorm(width, bias=bias)
        self.transformer = nn.ModuleDict({"wte": wte, "wpe": wpe, "h": h, "ln_f": ln_f})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = wte.weight


@BOTH_FORMATS
def test_reads_a_checkpoint_of_nanogpt(tmp_path, zipped):
    model = NanoGPT(bias=False)
    moments = {"step": torch.tensor(9.0), "exp_avg": torch.ones(17, 8)}
    groups = [{"lr": 6e-4, "betas": (0.9, 0.95), "foreach": None, "params": [0]}]
    model_args = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 8,
        "block_size": 6,
        "bias": False,
        "vocab_size": 17,
        "dropout": 0.0,
    }
    config = {"out_dir": "out", "learning_rate": 6e-4, "compile": True, "init_from": None}
    checkpoint = {
        "model": {f"_orig_mod.{key}": value for key, value in model.state_dict().items()},
        "optimizer": {"state": {0: moments}, "param_groups": groups},  # as AdamW's
        "model_args": model_args,
        "iter_num": 2000,
        "best_val_loss": torch.tensor(3.25),
        "config": config,
    }
    save(checkpoint, tmp_path / "ckpt.pt", zipped)
    read = open_checkpoint(tmp_path)
    optimizer = read.metadata.pop("optimizer")
    assert "state" not in optimizer  # which has tensors
    assert read.metadata == {
        "model_args": model_args,
        "iter_num": 2000,
        "best_val_loss": 3.25,
        "config": config,
    }
    assert list(read.tensors) == list(checkpoint["model"])
    for key, expected in checkpoint["model"].items():
        check_equal(read.tensors[key], expected)


@BOTH_FORMATS
def test_reads_a_state_dict_of_a_module(tmp_path, zipped):
    """With its _metadata, an attribute of the OrderedDict; minGPT saves nothing more."""
    state = NanoGPT().state_dict()
    assert state._metadata
    save(state, tmp_path / "model.pt", zipped)
    read = open_checkpoint(tmp_path)
    assert list(read.tensors) == list(state)
    for key, expected in state.items():
        check_equal(read.tensors[key], expected)


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict"])
def test_finds_nested_weights(tmp_path, key):
    save({"epoch": 3, key: {"w": torch.ones(2)}, "loose": torch.ones(4)}, tmp_path / "x", True)
    read = open_checkpoint(tmp_path / "x")
    assert list(read.tensors) == ["w"]
    assert read.metadata == {"epoch": 3}


def test_what_is_not_plain_is_no_metadata(tmp_path):
    cycle = []
    cycle.append(cycle)
    laughs = "ha"
    for _ in range(40):
        laughs = [laughs, laughs]
    deep = []
    for _ in range(100):
        deep = [deep]
    value = {
        "w": torch.ones(2),
        "plain": {"a": [1, 2.5, None, ("b", True)], "size": torch.ones(2, 3).shape},
        "device": torch.device("cpu"),
        "type": torch.bfloat16,
        "history": list(range(20_000)),
        "cycle": cycle,
        "deep": deep,
        "laughs": laughs,
        "tensors": [torch.ones(2)],
        7: "seven",
    }
    save(value, tmp_path / "x", True)
    read = open_checkpoint(tmp_path / "x")
    assert read.metadata == {
        "plain": {"a": [1, 2.5, None, ("b", True)], "size": (2, 3)},
        "device": "cpu",
        "type": "torch.bfloat16",
    }


def test_reads_shards(tmp_path):
    """As save_pretrained cut them while it wrote .bin, which it has not done since version 5."""
    state = NanoGPT().state_dict()
    names = list(state)
    files = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
    places = {}
    for file, part in zip(files, (names[:9], names[9:]), strict=True):
        save({key: state[key].clone() for key in part}, tmp_path / file, True)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    read = open_checkpoint(tmp_path)
    assert [file.name for file in read.files] == ["pytorch_model.bin.index.json", *files]
    for key, expected in state.items():
        check_equal(read.tensors[key], expected)


def test_torch_itself_is_not_imported(tmp_path):
    save({"w": torch.ones(3)}, tmp_path / "x", True)
    code = (
        "import sys; from gpt2np.checkpoints import open_checkpoint; "
        f"open_checkpoint({str(tmp_path / 'x')!r}); assert 'torch' not in sys.modules"
    )
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


# What is refused, and how that is said.

STATE = dict_of({"w": tensor(storage("0"))})
FLOATS = {"0": np.arange(6, dtype="<f4")}


def zipped(pickled, **options):
    return torch_zip(stream(pickled), {"0": FLOATS["0"].tobytes()}, **options)


OLD_STATE = dict_of({"w": tensor(storage("0", "FloatStorage", 6, b"N"))})


def legacy(pickled=OLD_STATE, **options):
    return torch_legacy(stream(pickled), options.pop("storages", FLOATS), **options)


def test_the_hand_made_files_are_good(tmp_path):
    for data in (zipped(STATE), legacy()):
        (tmp_path / "x").write_bytes(data)
        assert list(torch.load(tmp_path / "x", weights_only=True)) == ["w"]
        check_equal(open_checkpoint(tmp_path / "x").tensors["w"], torch.arange(6.0).view(2, 3))


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (
            name("posix", "system") + tuple_of(text("true")) + b"R",
            "an object of 'posix.system', not",
        ),
        (
            name("builtins", "eval") + tuple_of(text("1")) + b"R",
            "an object of 'builtins.eval', not",
        ),
        (name("__main__", "GPT") + b")\x81", "an object of '__main__.GPT'.*save model.state_dict"),
        (
            name("torch._utils", "_rebuild_tensor_v3"),
            "an object of 'torch._utils._rebuild_tensor_v3'",
        ),
        (name("torch", "FloatStorage") + b")R", "it calls what is no function"),
        (STATE + b"\x82\1", "it has the opcode EXT1, which no checkpoint needs"),
        (b"]", "holds a list, not the dictionary of a model's tensors"),
        (b"}", "holds no tensors: load it in torch"),
        (dict_of({"w": tensor(storage("1"))}), "storage '1' is missing"),
        (dict_of({"w": tensor(storage("0", size=7))}), "'0' should hold 7 numbers of float32 but"),
        (dict_of({"w": tensor(storage("0", "HalfStorage"))}), "should hold 6 numbers of float16"),
        (
            dict_of({"w": tensor(storage("0", "ComplexFloatStorage"))}),
            "has a tensor 'w' of the kind 'torch.Complex",
        ),
        (dict_of({"w": tensor(storage("0"), offset=1)}), "'0' reaches beyond its 6 numbers"),
        (dict_of({"w": tensor(storage("0"), shape=(1 << 20, 1), strides=(0, 0))}), "beyond its 6"),
        (dict_of({"w": tensor(storage("0"), strides=(4, 1))}), "reaches beyond its 6 numbers"),
        (dict_of({"w": tensor(storage("0"), strides=(-1, 1))}), "impossible offset or strides"),
        (dict_of({"w": tensor(storage("0"), offset=-1)}), "impossible offset or strides"),
        (dict_of({"w": tensor(storage("0"), strides=(1,))}), "impossible offset or strides"),
        (dict_of({"w": tensor(storage("0"), shape=(-2, -3))}), "impossible shape"),
    ],
)
def test_a_wrong_object_is_refused(tmp_path, pickled, message):
    (tmp_path / "x").write_bytes(zipped(pickled))
    with pytest.raises(CheckpointError, match=message) as error:
        open_checkpoint(tmp_path / "x")
    assert str(error.value).isprintable()


def test_few_numbers_must_not_unfold_to_many(tmp_path):
    shared = {f"w{i}": tensor(storage("0", size=6000)) for i in range(100)}
    spread = {key: tensor(storage("0", size=6000), 0, (60, 100), (100, 1)) for key in shared}
    for pickled, good in [(dict_of(shared), True), (dict_of(spread), False)]:
        (tmp_path / "x").write_bytes(torch_zip(stream(pickled), {"0": bytes(24_000)}))
        if good:
            assert len(open_checkpoint(tmp_path / "x").tensors) == 100
            continue
        with pytest.raises(CheckpointError, match="tensors take 2400000 bytes, the file has"):
            open_checkpoint(tmp_path / "x")


def test_damage_is_named(tmp_path):
    flipped = bytearray(zipped(STATE))
    flipped[flipped.index(FLOATS["0"].tobytes()) + 7] ^= 1
    storages = {"0": FLOATS["0"], "7": FLOATS["0"]}
    for data, message in [
        (zipped(STATE)[:-30], "is cut short or damaged, its zip directory is broken"),
        (zipped(STATE, compress=8), "'data.pkl' is compressed"),
        (zipped(STATE, extra={"b/data.pkl": b""}), "is a zip archive, but not one of torch.save"),
        (torch_zip(stream(STATE), {}, root="a/b"), "is a zip archive, but not one of torch.save"),
        (zipped(STATE, root="../.."), "is a zip archive, but not one of torch.save"),
        (bytes(flipped), "the checksum of 'data/0' is wrong"),
        (legacy()[:-4], "is cut short: storage '0' ends at byte"),
        (legacy()[:100], "the pickle in .* cannot be read: expected 3 bytes"),
        (legacy(magic=0x1950A86A20F9469CFC6D), "is a plain pickle"),
        (legacy(protocol=1002), "was written by an unknown version of torch"),
        (legacy(system=SYSTEM | {"little_endian": False}), "is big-endian"),
        (legacy(storages=storages), "no tensor uses its storage '7'"),
        (legacy(keys=[]), "storage '0' is missing"),
        (legacy(keys=[("0",)]), "no tensor uses its storage a tuple"),
    ]:
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(tmp_path / "x", verify=True)


def test_big_endian_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(zipped(STATE, byteorder="big"))
    with pytest.raises(CheckpointError, match="is big-endian"):
        open_checkpoint(tmp_path / "x")
