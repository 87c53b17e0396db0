"""Tokenizers as they lie beside models, held against tokenizers and transformers.

TOKENIZERS=200 pytest tests/test_tokenizer_files.py tries more of them than the 12 it tries
otherwise; SEED begins elsewhere.
"""

import itertools
import json
import os
import random
import shutil
import unicodedata

import pytest

import gpt2np
from gpt2np import Tokenizer, TokenizerError
from gpt2np.cli import main

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import AddedToken, Regex, decoders, models, normalizers, processors, trainers  # noqa: E402
from tokenizers import pre_tokenizers as pre  # noqa: E402

TRIED = int(os.environ.get("TOKENIZERS", "12"))
SEED = int(os.environ.get("SEED", "0"))
END = "<|endoftext|>"
CORPUS = [
    "low lower lowest newest widest Hello World",
    "don't  stop\n\nnow 123 1234",
    "naïve café 中文 😀😀 ﬁne Ⅷ x² ΣΑΣ İstanbul",
] * 3
WORDS = ["<extra>", "<extra>s", "中文", "[X]", "low", "<pad>", "ﬁx", "Low", " low", END, "FIX", "-"]
# Letters that normalization joins, takes apart, or reads as others, and all that is in WORDS.
PARTS = [
    *"lowernstidHWÉé  \n\t123中😀Σσς'İıﬁⅧ²_-.\u00a0\u3000\u212b\u0301\u0344\u200d\u0e33ǅßﷺ\u0958",
    *("e\u0301", "a\u0323\u0307", "\u1100\u1161", "\u1100\u1161\u11a8", "\uac00\u11a8", "カ\uff9e"),
    *("est", "\u1e9b\u0323", "ﬁx", "<unk>", *WORDS),
]
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
FORMS = [normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD]


def cutter(rng):
    pattern = rng.choice([" ", GPT4, r"\s+|[a-z]{2}", r"(?=[A-Z])", r"\d{3}", r"\p{N}{1,3}", None])
    if pattern is None:
        return pre.Digits(individual_digits=rng.random() < 0.5)
    pattern = pattern if pattern == " " else Regex(pattern)
    return pre.Split(pattern, rng.choice(BEHAVIORS), rng.random() < 0.3)


def any_tokenizer(rng):
    """A tokenizer with any of the settings that there are, trained by tokenizers."""
    made = tokenizers.Tokenizer(models.BPE())
    last = pre.ByteLevel(add_prefix_space=rng.random() < 0.4, use_regex=rng.random() < 0.7)
    before = [cutter(rng) for _ in range(rng.choice([0, 0, 1, 2]))]
    made.pre_tokenizer = pre.Sequence([*before, last]) if before else last
    forms = rng.choices([*FORMS, normalizers.Lowercase], k=rng.choice([0, 0, 1, 2]))
    if forms:
        made.normalizer = normalizers.Sequence([form() for form in forms])
    made.decoder = decoders.ByteLevel()
    whole = rng.random() < 0.8
    alphabet = sorted(pre.ByteLevel.alphabet()) if whole else []
    trainer = trainers.BpeTrainer(
        vocab_size=320 if whole else 70,
        show_progress=False,
        special_tokens=["<unk>"],
        initial_alphabet=alphabet,
    )
    made.train_from_iterator(CORPUS, trainer)
    content = json.loads(made.to_str())
    content["model"]["unk_token"] = None if whole else "<unk>"
    made = tokenizers.Tokenizer.from_str(json.dumps(content))
    for word in rng.sample(WORDS, rng.choice([0, 2, 5])):
        token = AddedToken(word, special=rng.random() < 0.5, **flags(rng))
        (made.add_special_tokens if token.special else made.add_tokens)([token])
    return made


def flags(rng):
    chances = {"lstrip": 0.3, "rstrip": 0.3, "single_word": 0.2, "normalized": 0.5}
    return {flag: rng.random() < chance for flag, chance in chances.items()}


def texts(rng, parts, n):
    return ["".join(rng.choices(parts, k=rng.randrange(14))) for _ in range(n)]


@pytest.mark.parametrize("seed", range(SEED, SEED + TRIED))
def test_any_tokenizer_json_gives_the_ids_text_and_places_that_tokenizers_gives(tmp_path, seed):
    rng = random.Random(seed)
    theirs = any_tokenizer(rng)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_files(tmp_path / "tokenizer.json")
    ours.save(tmp_path / "saved")
    assert Tokenizer.from_files(tmp_path / "saved") == ours
    saved = tmp_path / "saved" / "tokenizer.json"
    saved = tokenizers.Tokenizer.from_file(str(saved)) if saved.exists() else theirs
    assert ours.n_vocab == theirs.get_vocab_size()
    for text in texts(rng, PARTS, 40):
        for special in (True, False):
            theirs.encode_special_tokens = saved.encode_special_tokens = not special
            found = theirs.encode(text)
            ids = ours.encode(text, special=special)
            assert ids == found.ids == saved.encode(text).ids
            assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
            places = ours.spans(text, special=special)
            if theirs.normalizer is None:
                assert places == found.offsets
            # Where letters were joined, theirs is the first of them alone.
            for (start, end), (first, last) in zip(places, found.offsets, strict=True):
                assert start <= last
                assert first <= end
            for start, end in places:
                assert 0 <= start < end <= len(text)


@pytest.mark.parametrize(
    ("form", "text", "places"),
    [
        ("NFC", "xe\u0301y", [(0, 1), (1, 3), (1, 3), (3, 4)]),
        ("NFD", "\u00e9y", [(0, 1), (0, 1), (0, 1), (1, 2)]),
        ("NFKC", "ﬁx", [(0, 1), (0, 1), (1, 2)]),
        ("NFKD", "a²", [(0, 1), (1, 2)]),
        ("Lowercase", "AİΣ", [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3), (2, 3)]),
        ("NFC", "\ud83d\ude00e\u0301", [(0, 2), (0, 2), (0, 2), (0, 2), (2, 4), (2, 4)]),
        ("NFC", "", []),
    ],
)
def test_places_are_those_of_the_text_that_was_given(tmp_path, form, text, places):
    content = byte_tokenizer()
    content["normalizer"] = {"type": form}
    assert Tokenizer.from_files(write(tmp_path, "t.json", content)).spans(text) == places
    # What the places hold is what the tokens say.
    for (start, end), (again, stop) in itertools.pairwise(places):
        assert end == again or (start, end) == (again, stop)


def byte_tokenizer(**more):
    """tokenizer.json of one token a byte."""
    alphabet = sorted(pre.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(models.BPE({char: id for id, char in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return json.loads(made.to_str()) | more


def write(folder, name, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_every_letter_is_normalized_as_tokenizers_does(tmp_path):
    """Every one that has long been assigned: libraries differ in the Unicode that they know."""
    letters = map(chr, range(0x110000))
    old = [c for c in letters if unicodedata.ucd_3_2_0.category(c) not in ("Cs", "Cn", "Co")]
    text = "\n".join(old)
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        content = byte_tokenizer(normalizer={"type": form})
        ours = Tokenizer.from_files(write(tmp_path, f"{form}.json", content))
        theirs = getattr(normalizers, form)().normalize_str(text)
        assert ours.decode(ours.encode(text)) == theirs


# Folders as transformers reads them


@pytest.fixture(scope="module")
def pair():
    """The tokens and merges of a small GPT-2."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=310, show_progress=False, initial_alphabet=alphabet)
    made.train_from_iterator(CORPUS, trainer)
    model = json.loads(made.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


TOKENS = [END, "<s>", "</s>", "<pad>", "<unk>", "<x>", "<|user|>", "low", "[MASK]", "<x>y"]
NAMES = ["bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "cls_token"]


def any_entry(rng, **more):
    token = rng.choice(TOKENS)
    return token if rng.random() < 0.6 else {"content": token, **flags(rng), **more}


def any_folder(rng, folder, vocabulary, merges):
    """Write a folder with some of the files that may lie beside a model, and anything in them."""
    vocabulary = dict(vocabulary)
    for token in ([END] if rng.random() < 0.9 else []) + rng.sample(TOKENS, rng.choice([0, 1, 3])):
        vocabulary.setdefault(token, len(vocabulary))
    write(folder, "config.json", {"model_type": "gpt2"})
    whole = rng.random() < 0.5
    if whole:
        made = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
        made.pre_tokenizer = pre.ByteLevel(add_prefix_space=rng.random() < 0.3)
        made.decoder = decoders.ByteLevel()
        for token in rng.sample(TOKENS, rng.choice([0, 1, 3])):
            special = rng.random() < 0.5
            added = AddedToken(token, special=special, **flags(rng))
            (made.add_special_tokens if special else made.add_tokens)([added])
        if rng.random() < 0.3:
            made.normalizer = normalizers.Lowercase()
        if rng.random() < 0.3 and (id := made.token_to_id("<s>")) is not None:
            made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", id)])
        made.save(str(folder / "tokenizer.json"))
    else:
        write(folder, "vocab.json", vocabulary)
        write(folder, "merges.txt", "\n".join(["#version: 0.2", *map(" ".join, merges), ""]))
    if whole or rng.random() < 0.7:
        write(folder, "tokenizer_config.json", any_config(rng, whole, vocabulary))
    if rng.random() < 0.4:
        named = {name: any_entry(rng) for name in NAMES[:4] if rng.random() < 0.4}
        if rng.random() < 0.2:
            named["additional_special_tokens"] = rng.sample(TOKENS, 2)
        write(folder, "special_tokens_map.json", named)
    if rng.random() < 0.4:
        added = rng.sample(TOKENS, rng.choice([1, 2]))
        ids = {token: vocabulary.get(token, len(vocabulary) + i) for i, token in enumerate(added)}
        write(folder, "added_tokens.json", ids)


def any_config(rng, whole, vocabulary):
    classes = ["GPT2Tokenizer", "GPT2TokenizerFast"]
    if whole:
        classes += ["PreTrainedTokenizerFast", "TokenizersBackend", "Unheard"]
    config = {"tokenizer_class": rng.choice(classes)} if whole or rng.random() < 0.5 else {}
    for name in ("add_prefix_space", "add_bos_token"):
        if rng.random() < 0.3:
            config[name] = rng.random() < 0.6
    for name in NAMES:
        if rng.random() < 0.25:
            config[name] = rng.choice([any_entry(rng, __type="AddedToken")] * 9 + [None])
    if rng.random() < 0.2:
        config["additional_special_tokens"] = rng.sample(TOKENS, 2)
    if rng.random() < 0.1:
        config["extra_special_tokens"] = rng.sample(TOKENS, 2)
    if rng.random() < 0.4:
        config["added_tokens_decoder"] = {
            str(vocabulary.get(token, len(vocabulary) + i)): {
                "content": token, "special": rng.random() < 0.5, **flags(rng)
            }
            for i, token in enumerate(rng.sample(TOKENS, rng.choice([1, 2, 3])))
        }  # fmt: skip
    return config


def auto(folder):
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("seed", range(SEED, SEED + TRIED))
def test_any_folder_gives_what_transformers_makes_of_it(tmp_path, pair, seed):
    rng = random.Random(seed)
    any_folder(rng, tmp_path, *pair)
    try:
        theirs = auto(tmp_path)
    except Exception:
        pytest.skip("transformers does not read this one")
    ours = Tokenizer.from_files(tmp_path)
    if END in theirs.get_vocab() and ours.eot is None:
        pytest.skip("transformers adds the end of text to every vocabulary; gpt2np where it is")
    ours.save(tmp_path / "saved")
    shutil.copy(tmp_path / "config.json", tmp_path / "saved")
    assert Tokenizer.from_files(tmp_path / "saved") == ours
    saved = auto(tmp_path / "saved")
    for text in texts(rng, [*"lowernstid'  \n123中😀", *TOKENS, "est", " <x> "], 20):
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, special=True) == ids
        assert saved.encode(text, add_special_tokens=False) == ids
        assert saved.encode(text) == theirs.encode(text)
        assert theirs.encode("z" + text) == [
            *([] if ours.begins_with is None else [ours.begins_with]),
            *ours.encode("z" + text, special=True),
        ]
        theirs.backend_tokenizer.encode_special_tokens = True
        assert ours.encode(text) == theirs.backend_tokenizer.encode(text, None, False, False).ids
        theirs.backend_tokenizer.encode_special_tokens = False


USER = {"<|user|>": 50257}
FLAGS = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
DECODER = {"50257": {"content": "<|user|>", "special": True, **FLAGS}}
CASES = [  # files beside GPT-2's vocabulary, a text, its ids with special=True, and without
    ({"added_tokens.json": USER}, "<|user|>Hello", [50257, 15496], [50257, 15496]),
    (
        {"tokenizer_config.json": {"added_tokens_decoder": DECODER}},
        "<|user|>Hi",
        [50257, 17250],
        [27, 91, 7220, 91, 29, 17250],
    ),
    ({"tokenizer_config.json": {"add_prefix_space": True}}, "Hello", [18435], [18435]),
    ({"special_tokens_map.json": {"pad_token": "<p>"}}, "<p>Hi", [50257, 17250], None),
    ({"tokenizer_config.json": {"add_bos_token": True}}, "Hello", [15496], [15496]),
]


@pytest.mark.parametrize(("files", "text", "special", "plain"), CASES, ids=str)
def test_what_lies_beside_the_vocabulary(tmp_path, files, text, special, plain):
    Tokenizer.gpt2().save(tmp_path)
    for name, content in files.items():
        write(tmp_path, name, content)
    write(tmp_path, "config.json", {"model_type": "gpt2"})
    tokenizer = Tokenizer.from_files(tmp_path)
    assert tokenizer.encode(text, special=True) == special
    assert auto(tmp_path).encode(text, add_special_tokens=False) == special
    assert plain is None or tokenizer.encode(text) == plain
    assert tokenizer.decode(special) in (text, " " + text)
    asked = files.get("tokenizer_config.json", {}).get("add_bos_token")
    assert tokenizer.begins_with == (50256 if asked else None)


# Models with a tokenizer of another kind, of another place, or of none


CONFIG = gpt2np.Config(50257, 8, 4, 1, 1)
OTHERS = {  # what lies in the folder, and what the message says
    "spiece.model": ("\n\x0e", "has spiece.model, which might be one"),
    "vocab.txt": ("[PAD]\n[UNK]\nthe\n", "has vocab.txt"),
    "tokenizer.model": ("\n\x0e", "has tokenizer.model"),
    "aitextgen.tokenizer.json": (byte_tokenizer(), "has aitextgen.tokenizer.json"),
    "my-vocab.json": ({"a": 0}, "has my-vocab.json"),
    "added_tokens.json": (USER, "adds tokens to a vocabulary that is not there"),
    "tokenizer_config.json": ({"tokenizer_class": "T5TokenizerFast"}, "is for a T5Tokenizer"),
    "tokenizer.json": (
        {"model": {"type": "WordLevel", "vocab": {"a": 0}}, "pre_tokenizer": None},
        'tokenizer.json: model is "WordLevel"',
    ),
    "tokenizer.json, no steps": (
        byte_tokenizer(pre_tokenizer={"type": "Sequence", "pretokenizers": []}),
        "tokenizer.json: pre_tokenizer is null",
    ),
    "tokenizer.json, other steps": (
        byte_tokenizer(normalizer={"type": "Strip"}),
        'tokenizer.json: normalizer is "Strip"',
    ),
    "vocab.json": ({"中": 0}, "has vocab.json; expected"),
}


@pytest.fixture
def folder(tmp_path):
    return gpt2np.save(gpt2np.Model(gpt2np.Params.random(CONFIG)), tmp_path / "model")


@pytest.mark.parametrize("name", OTHERS)
def test_another_tokenizer_leaves_the_weights_usable(folder, capsys, name):
    content, says = OTHERS[name]
    write(folder, name.split(",")[0], content)
    model = gpt2np.load(folder)
    assert len(gpt2np.generate(model, [1, 2], max_new_tokens=2, stop_at_eot=False).ids) == 2
    with pytest.raises(TokenizerError) as caught:
        _ = model.tokenizer
    assert says in str(caught.value)
    assert str(folder) in str(caught.value)
    assert main(["info", str(folder)]) == 0
    assert f"tokenizer: none: {folder}" in capsys.readouterr().out
    assert main(["generate", "Hello", "-m", str(folder), "-n", "1"]) == 2
    assert says in capsys.readouterr().err
    # Another one will do.
    assert gpt2np.load(folder, tokenizer=Tokenizer.gpt2()).tokenizer == Tokenizer.gpt2()
    assert main(["generate", "Hello", "-m", str(folder), "-n", "1", "--tokenizer", "gpt2"]) == 0


def test_another_tokenizer_is_not_gpt2s_after_convert(folder, tmp_path, capsys):
    write(folder, "vocab.txt", "[PAD]\n[UNK]\n")
    assert main(["convert", str(folder), str(tmp_path / "new")]) == 0
    told = capsys.readouterr().err
    assert f"gpt2np: no tokenizer is written: {folder} has vocab.txt" in told
    with pytest.raises(TokenizerError, match="which is not GPT-2's"):
        _ = gpt2np.load(tmp_path / "new").tokenizer


def test_gpt2s_own_is_meant_where_nothing_points_elsewhere(folder, tmp_path):
    assert gpt2np.load(folder).tokenizer == Tokenizer.gpt2()
    lone = folder.rename(tmp_path / "checkpoint-500")
    write(tmp_path, "tokenizer.json", byte_tokenizer())
    with pytest.raises(TokenizerError, match=r"one level up, has tokenizer\.json"):
        _ = gpt2np.load(lone).tokenizer
    assert gpt2np.load(lone, tokenizer=tmp_path).tokenizer.n_vocab == 256


def test_a_tokenizer_from_elsewhere_is_kept_by_pickle_and_by_save(folder, tmp_path):
    import pickle

    write(tmp_path, "x-vocab.json", byte_tokenizer()["model"]["vocab"])
    write(tmp_path, "x-merges.txt", "#version: 0.2\n")
    for source in (tmp_path / "x-vocab.json", str(tmp_path / "x-merges.txt")):
        model = gpt2np.load(folder, tokenizer=source)
        assert model.tokenizer.n_vocab == 256
        assert pickle.loads(pickle.dumps(model)).tokenizer == model.tokenizer
        assert gpt2np.load(folder, tokenizer=str(folder)).tokenizer == Tokenizer.gpt2()
        again = gpt2np.load(gpt2np.save(model, tmp_path / "again", overwrite=True))
        assert again.tokenizer == model.tokenizer
    write(folder, "tokenizer_config.json", {"tokenizer_class": "T5Tokenizer"})
    with pytest.raises(TokenizerError, match="T5Tokenizer"):
        gpt2np.load(tmp_path / "again", tokenizer=folder)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "added_tokens.json", "special_tokens_map.json", "vocab.bpe"]
)
def test_no_tokenizer_is_left_that_contradicts_what_is_saved(folder, tmp_path, name):
    new = tmp_path / "new"
    new.mkdir()
    write(new, name, byte_tokenizer() if name == "tokenizer.json" else {})
    model = gpt2np.load(folder)
    with pytest.raises(gpt2np.InputError, match=f"holds a model already .{name}"):
        gpt2np.save(model, new)
    if name != "vocab.bpe":
        with pytest.raises(gpt2np.InputError, match=f"another tokenizer's {name}"):
            model.tokenizer.save(new)
    gpt2np.save(model, new, overwrite=True)
    assert not (new / name).exists()
    assert gpt2np.load(new).tokenizer == Tokenizer.gpt2()


def test_gpt1s_vocabulary_is_refused_as_such(tmp_path):
    write(tmp_path, "vocab.json", {"l": 0, "o": 1, "w</w>": 2, "lo": 3, "low</w>": 4})
    write(tmp_path, "merges.txt", "#version: 0.2\nl o\nlo w</w>\n")
    with pytest.raises(TokenizerError, match="no byte and no merge gives 'w</w>'"):
        Tokenizer.from_files(tmp_path)


def test_a_name_is_no_file():
    with pytest.raises(TokenizerError, match=r"for GPT-2's own write Tokenizer.gpt2\(\)"):
        Tokenizer.from_files("gpt2")
    with pytest.raises(gpt2np.InputError, match=r"made by Tokenizer.gpt2\(\)"):
        Tokenizer("gpt2")


def test_patterns_that_would_mean_something_else_are_refused(tmp_path):
    for pattern in (r"^a", r"a$", r"\h+", r"[[:alpha:]]", r"a{1,2}+", r"(?m)a", "a\\"):
        content = byte_tokenizer()
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
        steps = [split, content["pre_tokenizer"]]
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
        with pytest.raises(TokenizerError, match="pattern"):
            Tokenizer.from_files(write(tmp_path, "t.json", content))


def test_added_tokens_by_the_hundred_thousand(tmp_path):
    """One look at each place that might begin one, however many there are."""
    content = byte_tokenizer()
    content["added_tokens"] = [
        {"id": 256 + i, "content": f"<t{i}>", "special": False, **FLAGS} for i in range(100_000)
    ]
    tokenizer = Tokenizer.from_files(write(tmp_path, "t.json", content))
    assert tokenizer.encode("<t7><t99999>") == [263, 100_255]
    looks = []

    class Counted(dict):
        def get(self, key):
            looks.append(key)
            return super().get(key)

    added = tokenizer._added_as_written
    added._tokens = Counted(added._tokens)
    tokenizer.encode("<t1>no <b>word</b> of them<t12" * 100)
    assert len(looks) <= 6 * 100 * 4
