"""The tokenizer against OpenAI's files, tiktoken and Hugging Face's tokenizers."""

import base64
import hashlib
import itertools
import json
import os
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import SHARED, needs_shared

from gpt2np import GPT2Error, Tokenizer, TokenizerError, assets_path
from gpt2np import tokenizer as tokenizer_module
from gpt2np.assets_path import assets
from gpt2np.tokenizer import ASCII_PIECE, CHUNK, PIECE, SPACE, _merge_long, _merge_short
from gpt2np.vocabulary import unwritten, written

BPE = SHARED / "gpt2-bpe"
CASES = Path(__file__).parent / "gpt2-cases.json"
GPT2 = Tokenizer.gpt2()
MERGES = (assets() / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
RANKS = {merge: rank for rank, merge in enumerate(MERGES)}

# All of Unicode that has long been assigned (libraries differ in the version they know), and with
# more weight what the rule for pieces looks at.
CHARACTERS = st.characters(exclude_categories=["Cs", "Cn"])
TELLING = (
    "'''strevmldaSTXthe 0149  \n\n\t\r\x0b\x1c\x1f\0\x7f_-!<|>\x85\xa0\u1680\u180e\u200b\u2028"
    "\u3000\ufeff\u2019\u0663\xb2\u2167\u0301\u093f\u200d\ufe0f😀👩🤗中ひ한éßǅ"
)
TEN_TEXTS = st.one_of(
    st.text(CHARACTERS, min_size=10, max_size=200), st.text(TELLING, min_size=10, max_size=200)
).map(lambda text: [text[i * len(text) // 10 : (i + 1) * len(text) // 10] for i in range(10)])


def ids_with_openai_names():
    return json.loads((BPE / "encoder.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tiktoken_gpt2():
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {unwritten(token): id for id, token in enumerate(byte_tokens())}
    ranks |= {unwritten(m.replace(" ", "")): 256 + i for i, m in enumerate(MERGES)}
    return tiktoken.Encoding(
        "gpt2", pat_str=PIECE, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )


def byte_tokens():
    """The first 256 tokens, one per byte, in OpenAI's order."""
    return [token for token, id in GPT2._vocabulary.ids.items() if id < 256]


@pytest.fixture(scope="module")
def tokenizers_gpt2():
    tokenizers = pytest.importorskip("tokenizers")
    if not BPE.is_dir():
        pytest.skip(f"the reference data is not there: {BPE}")
    return tokenizers.ByteLevelBPETokenizer(str(BPE / "encoder.json"), str(BPE / "vocab.bpe"))


# Known answers


def test_published_cases():
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    assert len(cases["cases"]) == 40
    for text, ids in cases["cases"]:
        assert GPT2.encode(text) == ids, text
        assert GPT2.decode(ids) == text
    for text, ids in cases["special"]:
        assert GPT2.encode(text, special=True) == ids, text


@needs_shared
def test_cases_of_llama_cpp():
    separator = "\n__ggml_vocab_test__\n"
    folder = SHARED / "tokenizer-cases"
    texts = (folder / "llama-cpp-gpt-2.inp").read_text(encoding="utf-8").removesuffix(separator)
    lines = (folder / "llama-cpp-gpt-2.out").read_text(encoding="utf-8").splitlines()
    texts = texts.split(separator)
    assert len(texts) == len(lines) == 46
    for text, line in zip(texts, lines, strict=True):
        assert GPT2.encode(text) == [int(id) for id in line.split()], text


@needs_shared
def test_tiny_shakespeare():
    text = (SHARED / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    ids = GPT2.encode(text)
    digest = hashlib.sha256(np.array(ids, "<u2").tobytes()).hexdigest()
    assert len(ids) == 338_025
    assert digest == "25c01b32b32f41897a6359dd222ec114992dc30c357bcafbfe6c56672f76cd31"
    assert GPT2.decode(ids) == text


def test_every_token_that_is_text_encodes_to_itself():
    whole = []
    for id in range(GPT2.n_vocab):
        try:
            text = GPT2.decode_bytes([id]).decode("utf-8")
        except UnicodeDecodeError:
            continue
        whole.append(text)
        assert GPT2.encode(text, special=True) == [id]
    assert len(whole) == 49_913
    assert sum("\ufffd" not in text for text in whole) == 49_905


def test_every_token_merges_to_itself():
    """What lets a piece that is a token do without merging."""
    for merge in MERGES:
        token = merge.replace(" ", "")
        assert _merge_short(list(token), RANKS) == [token]


def test_surrogates():
    for text, same in (
        ("\ud83d", "\ufffd"),
        ("\ude00", "\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00x", "\ufffd😀x"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ufeffa\ud83d", "\ufeffa\ufffd"),
        ("a \udc80b", "a \ufffdb"),
    ):
        assert GPT2.encode(text) == GPT2.encode(same)


def test_half_a_surrogate_pair_is_the_replacement_character():
    assert GPT2.encode("\ud83d") == [4210]


@given(st.text(st.characters(), max_size=30))
def test_no_text_fails_to_encode(text):
    assert GPT2.decode(GPT2.encode(text)) == re.sub(
        "[\ud800-\udfff]",
        "\ufffd",
        re.sub(
            "([\ud800-\udbff])([\udc00-\udfff])",
            lambda m: chr(0x10000 + (ord(m[1]) - 0xD800) * 0x400 + ord(m[2]) - 0xDC00),
            text,
        ),
    )


# Others' implementations


@settings(max_examples=1000, deadline=None)
@given(TEN_TEXTS)
def test_10_000_texts_as_tiktoken_and_tokenizers(tiktoken_gpt2, tokenizers_gpt2, texts):
    for text in texts:
        ids = GPT2.encode(text)
        assert ids == tiktoken_gpt2.encode_ordinary(text)
        assert ids == tokenizers_gpt2.encode(text).ids  # which knows no special token
        assert GPT2.encode(text, special=True) == tiktoken_gpt2.encode(text, allowed_special="all")
        assert GPT2.decode(ids) == text


@pytest.mark.parametrize("letters", ["a", "ab", ascii_lowercase, "😀", "中文é", " ", "\n "])
def test_long_pieces_as_tiktoken(tiktoken_gpt2, letters):
    rng = random.Random(len(letters))
    for length in (63, 64, 65, 66, 3000):
        text = "".join(rng.choices(letters, k=length))
        assert GPT2.encode(text) == tiktoken_gpt2.encode_ordinary(text)


@needs_shared
def test_vocabulary_follows_from_the_merges():
    assert sha256(BPE / "vocab.bpe") == sha256(assets() / "vocab.bpe")
    assert GPT2._vocabulary.ids | {"<|endoftext|>": 50256} == ids_with_openai_names()
    assert Tokenizer.from_files(BPE) == GPT2


@needs_shared
def test_save_writes_the_published_files(tmp_path):
    GPT2.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(os.listdir(folder)) == ["merges.txt", "vocab.json"]
    assert sha256(folder / "vocab.json") == sha256(BPE / "encoder.json")
    assert sha256(folder / "merges.txt") == sha256(BPE / "vocab.bpe")


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


# How text is cut


def test_ascii_rule_is_the_rule():
    unicode_pieces, ascii_pieces = regex.compile(PIECE).findall, re.compile(ASCII_PIECE).findall
    characters = list(map(chr, range(128)))
    for first, second in itertools.product(characters, repeat=2):
        for text in (first + second, f"a{first}{second}", f" {first}{second}", f"{first}{second}x"):
            assert ascii_pieces(text) == unicode_pieces(text)
    for letters in itertools.product("'strevmldaS0! \n\x1c", repeat=4):
        text = "".join(letters)
        assert ascii_pieces(text) == unicode_pieces(text)
    for letters in itertools.product("'sl0! \n", repeat=6):
        text = "".join(letters)
        assert ascii_pieces(text) == unicode_pieces(text)


def test_chunks_keep_pieces_whole():
    pieces, chunks = regex.compile(PIECE).findall, re.compile(CHUNK).findall
    for letters in itertools.chain(
        itertools.product("'sa0! \n\xa0\u3000\x1cé\u0301", repeat=4),
        itertools.product("a! \n\xa0'", repeat=5),
    ):
        text = "".join(letters)
        assert [piece for chunk in chunks(text) for piece in pieces(chunk)] == pieces(text)


def test_white_space_is_that_of_the_rule():
    every = "".join(map(chr, range(0x110000)))
    assert re.findall(f"[{SPACE}]", every) == regex.findall(r"\s", every)


# Long pieces


class Counting(dict):
    """A table of ranks that counts how often it is asked."""

    asked = 0

    def get(self, key, default=None):
        self.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize("letters", ["a", ascii_lowercase, "=-", written("😀".encode())])
def test_long_pieces_take_look_ups_in_proportion(letters):
    asked = []
    for length in (4096, 8192):
        ranks = Counting(RANKS)
        list(_merge_long(random.Random(0).choices(letters, k=length), ranks))
        asked.append(ranks.asked)
    assert asked[1] <= 2.1 * asked[0]
    assert asked[0] <= 3 * 4096


@given(st.text(st.sampled_from("abcde Ġ-="), max_size=64), st.randoms(use_true_random=False))
def test_both_ways_to_merge_agree(word, rng):
    assert list(_merge_long(word, RANKS)) == _merge_short(list(word), RANKS)
    sample = rng.sample(MERGES[:300], 150)
    ranks = {merge: rank for rank, merge in enumerate(sample)}
    assert list(_merge_long(word, ranks)) == _merge_short(list(word), ranks)


def test_a_merge_that_is_listed_before_its_parts_goes_first():
    ranks = {"ab a": 0, "a b": 1}
    for merge in (_merge_short, _merge_long):
        assert list(merge(list("abab"), ranks)) == ["aba", "b"]


@pytest.mark.parametrize("letters", ["a", "漢", "ab\u00e9😀"])
def test_a_piece_of_any_length_takes_few_bytes_a_character(letters):
    """Measured in a process of its own: with NumPy's and this process's memory left out."""
    code = (
        "import resource, sys; from gpt2np import Tokenizer; tokenizer = Tokenizer.gpt2();"
        "tokenizer.encode('a é'); measure = resource.getrusage;"
        "size = lambda: measure(resource.RUSAGE_SELF).ru_maxrss;"
        "text = sys.argv[1] * (2**20 // len(sys.argv[1])); before = size();"
        "ids = tokenizer.encode(text); print((size() - before) * 1024 / len(text));"
        "assert tokenizer.decode(ids) == text"
    )
    if sys.platform != "linux":
        pytest.skip("other systems count their memory in other units, or do not tell")
    taken = float(subprocess.check_output([sys.executable, "-c", code, letters], text=True))
    assert taken < 100


@pytest.mark.parametrize("letters", ["a", "ab", ascii_lowercase, "中文é"])
def test_pieces_held_in_arrays_are_the_same(monkeypatch, letters):
    text = "".join(random.Random(1).choices(letters, k=3000))
    ids = GPT2.encode(text)
    monkeypatch.setattr(tokenizer_module, "_MANY", 0)
    assert GPT2.encode(text) == ids


def test_a_hundred_thousand_bytes_in_one_piece():
    for letter in ("a", " ", "😀"):
        text = letter * (2**17 // len(letter.encode()))
        assert GPT2.decode(GPT2.encode(text)) == text


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(tokenizer_module, "_REMEMBERED", 50)
    tokenizer = Tokenizer(GPT2._vocabulary)
    for number in range(500):
        text = f"word{number} and {'long' * 20}{number}"
        assert tokenizer.encode(text) == GPT2.encode(text)
        assert len(tokenizer._chunk_ids) <= 50
    assert max(map(len, tokenizer._chunk_ids)) <= 64


# Wrong arguments


@pytest.mark.parametrize(
    "ids",
    [
        [50257],
        [-1],
        [1, 2, 99999],
        [1.0],
        ["a"],
        "12",
        [None],
        [2**70],
        np.array([0.5]),
        np.array([[1, 2]]),
        [1, -50257],
    ],
)
def test_decode_names_the_id_and_the_range(ids):
    wrong = next(i for i in ids if not (type(i) is int and 0 <= i < 50257))
    with pytest.raises(TokenizerError, match="whole numbers 0 to 50256") as caught:
        GPT2.decode(ids)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize(
    "kind", [list, tuple, iter, np.array, lambda x: np.array(x, "u2"), lambda x: (i for i in x)]
)
def test_decode_takes_any_iterable(kind):
    assert GPT2.decode(kind([15496, 995])) == "Hello world"


def test_decode_takes_what_counts_as_an_integer():
    class Id:
        def __init__(self, id):
            self.id = id

        def __index__(self):
            return self.id

    assert GPT2.decode([Id(15496), np.uint16(995)]) == "Hello world"
    assert GPT2.token_bytes(Id(995)) == b" world"
    assert GPT2.decode(995) == GPT2.decode(np.argmax(np.arange(996))) == " world"
    with pytest.raises(TokenizerError, match="is no token id"):
        GPT2.decode([Id(15496), Id(-1)])


def test_decode_nothing():
    assert GPT2.decode([]) == ""
    assert GPT2.encode("") == GPT2.encode("", special=True) == []


def test_decode_bytes_keeps_parts_of_characters():
    assert GPT2.decode([47249]) == "\ufffd"
    assert GPT2.decode_bytes([47249]) == GPT2.token_bytes(47249) == b"\xf0\x9f\x98"
    assert b"".join(map(GPT2.token_bytes, range(50257))) == GPT2.decode_bytes(range(50257))


@pytest.mark.parametrize("text", [b"abc", bytearray(b"a"), None, 3, ["a"]])
def test_encode_takes_str_only(text):
    with pytest.raises(TokenizerError, match=type(text).__name__) as caught:
        GPT2.encode(text)
    assert ("decode it first" in str(caught.value)) == isinstance(text, bytes | bytearray)


def test_end_of_text_is_plain_unless_special():
    assert (GPT2.n_vocab, GPT2.eot) == (50257, 50256)
    assert 50256 not in GPT2.encode("a<|endoftext|>b")
    assert GPT2.encode("<|endoftext|>a<|endoftext|><|endoftext|>", special=True) == [
        50256,
        64,
        50256,
        50256,
    ]


# As an object


def test_equal_by_content_and_small_to_pickle(tmp_path):
    again = pickle.loads(pickle.dumps(GPT2))
    assert again is GPT2
    assert len(pickle.dumps(GPT2)) < 200
    other = Tokenizer.from_files(write(tmp_path, "vocab.bpe", "#version: 0.2\nh e\nhe l\n"))
    assert other != GPT2
    assert other != "tokenizer"
    copy = pickle.loads(pickle.dumps(other))
    assert copy is not other
    assert copy == other
    assert hash(copy) == hash(other)
    assert copy.encode("hello") == other.encode("hello")
    assert repr(other) == "<Tokenizer with 259 tokens>"


def test_import_loads_neither_numpy_nor_regex():
    code = (
        "import sys, gpt2np.tokenizer as t; t.Tokenizer.gpt2().encode('Hello world');"
        "print({'numpy', 'regex'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_files_are_utf8_whatever_the_locale(tmp_path):
    GPT2.save(tmp_path)
    code = (
        "import sys, gpt2np; t = gpt2np.Tokenizer.from_files(sys.argv[1]);"
        "assert t == gpt2np.Tokenizer.gpt2(); t.save(sys.argv[1] + '/again');"
        "print(t.encode('na\\u00efve \\u4e2d'))"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-X", "utf8=0", "-c", code, str(tmp_path)]
    printed = subprocess.check_output(command, env=environment, text=True)
    assert printed.strip() == str(GPT2.encode("na\u00efve \u4e2d"))
    for name in ("vocab.json", "merges.txt"):
        assert sha256(tmp_path / name) == sha256(tmp_path / "again" / name)


def test_assets_are_found_or_missed_clearly(tmp_path, monkeypatch):
    monkeypatch.setattr(assets_path, "__file__", str(tmp_path / "gpt2np" / "assets_path.py"))
    with pytest.raises(GPT2Error, match="installation is incomplete"):
        assets()
    for folder in (tmp_path / "assets", tmp_path / "gpt2np" / "assets"):  # the inner one wins
        folder.mkdir(parents=True)
        assert folder == assets() if write(folder, "vocab.bpe", "") else False


# The forms of files


def test_files_that_windows_has_edited(tmp_path):
    wanted = Tokenizer.from_files(write(tmp_path, "vocab.bpe", "#version: 0.2\na b\nab c\n"))
    wanted.save(tmp_path)
    (tmp_path / "vocab.bpe").unlink()
    for file in tmp_path.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert Tokenizer.from_files(tmp_path) == wanted
    assert Tokenizer.from_files(tmp_path / "merges.txt") == wanted
    write(tmp_path, "merges.txt", "a b\n".encode("utf-16"))
    with pytest.raises(TokenizerError, match=r"merges.txt is UTF-16"):
        Tokenizer.from_files(tmp_path)


def write(folder, name, content):
    file = folder / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        text = content if isinstance(content, str) else json.dumps(content)
        file.write_text(text, encoding="utf-8", newline="")
    return file


@needs_shared
def test_files_in_any_order_and_under_any_name(tmp_path):
    vocabulary = write(tmp_path, "one", (BPE / "encoder.json").read_bytes())
    merges = write(tmp_path, "two", (BPE / "vocab.bpe").read_bytes().replace(b"\n", b"\r\n"))
    assert Tokenizer.from_files(vocabulary, merges) == GPT2
    assert Tokenizer.from_files(str(merges), vocabulary) == GPT2
    assert Tokenizer.from_files(merges) == GPT2
    assert Tokenizer.from_files(vocabulary, merges).encode("it's <|endoftext|>", special=True) == (
        GPT2.encode("it's <|endoftext|>", special=True)
    )


CORPUS = ["low lower lowest newest widest", "don't  stop\n\nnow 123 1234", "naïve café 中文 😀😀"]
WORDS = ["low", "est", "<pad>", "<unk>", "<extra>", "<extra>s", "[X]", "中文"]
SAMPLES = st.lists(st.sampled_from([*"lowernstid'  \n123é中😀", *WORDS]), max_size=20).map("".join)


def trained(*, initial=True, unknown=None, **byte_level):
    """A small tokenizer that tokenizers has just trained, as the content of tokenizer.json."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE(unk_token=unknown))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(**byte_level)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        CORPUS * 3,
        trainers.BpeTrainer(
            vocab_size=330 if initial else 60,
            show_progress=False,
            special_tokens=["<pad>", *([unknown] if unknown else []), "<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if initial else [],
        ),
    )
    made.add_tokens(["<extra>", "<extra>s", "中文"])
    made.add_special_tokens(["[X]"])
    return json.loads(made.to_str())


@pytest.mark.parametrize(
    "settings_",
    [
        {"add_prefix_space": False},
        {"add_prefix_space": True},
        {"add_prefix_space": False, "use_regex": False},
        {"add_prefix_space": True, "use_regex": False},
        {"add_prefix_space": False, "initial": False},
        {"add_prefix_space": False, "initial": False, "unknown": "<unk>"},
    ],
)
@pytest.mark.parametrize("merges_as", ["pairs", "strings"])
def test_tokenizer_json_as_tokenizers(tmp_path, settings_, merges_as):
    tokenizers = pytest.importorskip("tokenizers")
    content = trained(**settings_)
    if merges_as == "strings":
        content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    file = write(tmp_path, "tokenizer.json", content)
    ours, theirs = Tokenizer.from_files(file), tokenizers.Tokenizer.from_file(str(file))
    ours.save(tmp_path / "saved")
    assert Tokenizer.from_files(tmp_path / "saved") == ours
    saved = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    assert ours.n_vocab == theirs.get_vocab_size()
    assert ours.eot == theirs.token_to_id("<|endoftext|>")

    @settings(max_examples=150, deadline=None, database=None)
    @given(SAMPLES)
    def same(text):
        for special in (True, False):
            for other in (theirs, saved):
                other.encode_special_tokens = not special
                assert ours.encode(text, special=special) == other.encode(text).ids
        ids = ours.encode(text, special=True)
        if settings_ == {"add_prefix_space": False}:
            assert ours.decode(ids) == text

    same()


def test_saved_pair_is_replaced_where_there_was_a_whole(tmp_path):
    write(tmp_path, "tokenizer.json", "{}")
    GPT2.save(tmp_path, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["merges.txt", "vocab.json"]


# Files that cannot be used

TINY = {**{c: i for i, c in enumerate(byte_tokens())}, "he": 256, "hel": 257}
WHOLE = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": TINY, "merges": ["h e", "he l"]},
}


def changed(**changes):
    return {**WHOLE, **changes}


def model(**changes):
    return {**WHOLE, "model": {**WHOLE["model"], **changes}}


def added(**changes):
    return changed(added_tokens=[{"id": 258, "content": "<a>", "special": True, **changes}])


SENTENCEPIECE = b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x08\n\x03\xe2\x96\x81\x15\xcd\xcc"
TIKTOKEN = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
BAD = {
    "SentencePiece":       (SENTENCEPIECE,                          "SentencePiece"),
    "WordPiece":           ("[PAD]\n[UNK]\n[CLS]\nthe\n##s\n",      "WordPiece"),
    "tiktoken":            (TIKTOKEN,                               "tiktoken"),
    "binary":              (b"\x89PNG\xff\x00",                     "not text in UTF-8"),
    "prose":               ("Once upon a time\n",                   "no list of merges"),
    "empty":               ("",                                     "no list of merges"),
    "half JSON":           (json.dumps(WHOLE)[:300],                "not whole, or not JSON"),
    "deep JSON":           ('{"a":' * 100_000,                      "not whole, or not JSON"),
    "ids alone":           (TINY,                                   "make no tokenizer"),
    "three parts":         ("#version: 0.2\nh e\nhe l l\n",         "merge 2 is 'he l l'"),
    "blank line":          ("#version: 0.2\nh e\n\nhe l\n",         "merge 2 is ''"),
    "unknown part":        ("#version: 0.2\nh e\nhx l\n",           "merge 2 is 'hx l'"),
    "merge twice":         ("#version: 0.2\nh e\nl l\nh e\n",       "merge 3 is 'h e'"),
    "part too early":      ("#version: 0.2\nhe l\nh e\n",           "merge 1 is 'he l'"),
    "Unigram":             (model(type="Unigram"),                  'model is "Unigram"'),
    "WordPiece JSON":      (model(type="WordPiece"),                'model is "WordPiece"'),
    "dropout":             (model(dropout=0.1),                     "dropout is 0.1"),
    "prefix":              (model(continuing_subword_prefix="##"),  "continuing_subword_prefix"),
    "suffix":              (model(end_of_word_suffix="</w>"),       "end_of_word_suffix"),
    "byte_fallback":       (model(byte_fallback=True),              "byte_fallback is true"),
    "fuse_unk":            (model(fuse_unk=True),                   "fuse_unk is true"),
    "ignore_merges":       (model(ignore_merges=True),              "ignore_merges is true"),
    "normalizer":          (changed(normalizer={"type": "Strip"}),  'normalizer is "Strip"'),
    "pre-tokenizer":       (changed(pre_tokenizer={"type": "Split"}), 'pre_tokenizer is "Split"'),
    "no pre-tokenizer":    (changed(pre_tokenizer=None),            "pre_tokenizer is null"),
    "decoder":             (changed(decoder={"type": "Fuse"}),      'decoder is "Fuse"'),
    "vocabulary a list":   (model(vocab=[["a", 0.1]]),              "not as Hugging Face"),
    "no vocabulary":       (changed(model={"type": "BPE"}),         "not as Hugging Face"),
    "merges of numbers":   (model(merges=[[1, 2]]),                 "not as Hugging Face"),
    "merge of one":        (model(merges=["h e", ["he"]]),          "merge 2 is 'he'"),
    "merge not in it":     (model(merges=["h e", "l l"]),           "merge 2 is 'l l'.*lacks 'll'"),
    "hole":                (model(vocab={**TINY, "hel": 300}),      "no token has the id 257"),
    "id twice":            (model(vocab={**TINY, "hel": 256}),      "'he' and 'hel' both"),
    "id not whole":        (model(vocab={**TINY, "hel": 257.5}),    "'hel' has the id 257.5"),
    "id a string":         (model(vocab={**TINY, "hel": "257"}),    "'hel' has the id '257'"),
    "id true":             (model(vocab={**TINY, "hel": True}),     "'hel' has the id True"),
    "id negative":         (model(vocab={**TINY, "hel": -1}),       "'hel' has the id -1"),
    "not written so":      (model(vocab={**TINY, "中": 258, "中h": 259}, merges=["中 h"]),
                                                                    "'中 h' is not written as"),
    "added elsewhere":     (added(content="hel"),                   "'hel' has the id 257 and"),
    "added leaves a hole": (added(id=300),                          "no token has the id 258"),
    "added on another":    (added(id=3),                            "both have the id 3"),
    "added is empty":      (added(content=""),                      "token 258 is ''"),
    "added not a str":     (added(content=5),                       "258, 5, is no text"),
    "added twice":         (changed(added_tokens=2 * added()["added_tokens"]), "there twice"),
    "half a pair":         (added(content="\ud83d"),                "token 258 is '.ud83d'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_unusable_files_are_named(tmp_path, name):
    content, message = BAD[name]
    file = write(tmp_path, "file", content)
    with pytest.raises(TokenizerError, match=message) as caught:
        Tokenizer.from_files(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_base_of_the_bad_files_is_good(tmp_path):
    tokenizer = Tokenizer.from_files(write(tmp_path, "tokenizer.json", WHOLE))
    assert tokenizer.encode("hello") == [257, TINY["l"], TINY["o"]]
    assert Tokenizer.from_files(write(tmp_path, "added.json", added())).n_vocab == 259


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({**TINY, "hel": 300}, "no token has the id 257"),
        ({**TINY, "hel": 256}, "both have the id 256"),
        ({**TINY, "hel": None}, "has the id None"),
        ({**TINY, "": 258}, "token 258 is ''"),
        ({**TINY, "\udfff": 258}, "which no text contains"),
        ({k: TINY[k] for k in TINY if k != "hel"}, "merge 2 is 'he l', but .* lacks 'hel'"),
    ],
)
def test_pair_that_does_not_fit(tmp_path, vocabulary, message):
    merges = write(tmp_path, "merges.txt", "#version: 0.2\nh e\nhe l\n")
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_files(write(tmp_path, "vocab.json", vocabulary), merges)


def test_files_that_are_not_there(tmp_path):
    merges = write(tmp_path, "vocab.bpe", "#version: 0.2\nh e\n")
    with pytest.raises(TokenizerError, match=r"missing\.json cannot be read"):
        Tokenizer.from_files(tmp_path / "missing.json", merges)
    with pytest.raises(TokenizerError, match="no files make no tokenizer"):
        Tokenizer.from_files()
    with pytest.raises(TokenizerError, match="make no tokenizer"):
        Tokenizer.from_files(merges, merges)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TokenizerError, match=r"has no tokenizer; expected vocab\.bpe"):
        Tokenizer.from_files(tmp_path / "empty")
    write(tmp_path / "empty", "tokenizer.model", SENTENCEPIECE)
    write(tmp_path / "empty", "merges.txt", "h e\n")
    with pytest.raises(TokenizerError, match=r"has merges\.txt, tokenizer\.model; expected"):
        Tokenizer.from_files(tmp_path / "empty")


def test_written_and_unwritten_are_inverse():
    every = bytes(range(256))
    assert unwritten(written(every)) == every
    assert written(b" A\n") == "ĠAĊ"
