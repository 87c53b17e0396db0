"""The tokenizer's kit: what it writes, and that each fault of a port is named by it."""

import subprocess

import pytest
from c_port import COMPILER, SOURCES, needs_compiler

from gpt2np import Tokenizer
from gpt2np.cli import main
from gpt2np.errors import CheckpointError, InputError
from gpt2np.golden.tokens import FAULTS, check_tokens, read_cases, texts, write_kit

GPT2 = Tokenizer.gpt2()


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kit")
    write_kit(folder)
    return folder


def answers(path, ids):
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in ids))
    return path


def test_cases_are_texts_pieces_and_ids_in_lines_for_fgets(kit):
    lines = (kit / "cases.txt").read_bytes().split(b"\n")[:-1]
    assert len(lines) == len(texts()) > 250
    assert max(map(len, lines)) < 4095
    for line, text in zip(lines, texts(), strict=True):
        data, pieces, ids = line.decode("ascii").split("\t")
        assert bytes.fromhex(data.strip("-")) == text.encode()
        assert bytes.fromhex(pieces.replace(" ", "").strip("-")) == text.encode()
        assert [int(id) for id in ids.split() if id != "-"] == GPT2.encode(text)


def test_the_vocabulary_and_the_merges_are_there_in_numbers(kit):
    tokens = [line.split() for line in (kit / "tokens.txt").read_text().splitlines()]
    assert [int(id) for id, _ in tokens] == list(range(50257))
    data = [bytes.fromhex(token) for _, token in tokens]
    assert data[15496] == b"Hello"
    assert data[-1] == b"<|endoftext|>"
    merges = [
        tuple(map(int, line.split())) for line in (kit / "merges.txt").read_text().splitlines()
    ]
    assert [to for _, _, to in merges] == list(range(256, 50256))
    assert all(data[a] + data[b] == data[to] for a, b, to in merges)


def test_a_tokenizer_made_of_the_kit_alone_agrees(kit):
    """tiktoken, with the kit's tokens for ranks."""
    tiktoken = pytest.importorskip("tiktoken")
    header = (kit / "unicode.h").read_text()
    pattern = header.split("is taken:\n   ")[1].split(" */")[0]
    tokens = [line.split() for line in (kit / "tokens.txt").read_text().splitlines()]
    ranks = {bytes.fromhex(token): int(id) for id, token in tokens[:-1]}
    encoding = tiktoken.Encoding("kit", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for case in read_cases(kit / "cases.txt"):
        assert tuple(encoding.encode(case.data.decode())) == case.ids


def test_the_right_ids_agree(kit, tmp_path):
    mine = answers(tmp_path / "mine.txt", map(GPT2.encode, texts()))
    report = check_tokens(mine, kit / "cases.txt")
    assert str(report) == f"all {len(texts())} agree"
    assert check_tokens(kit / "cases.txt", kit / "cases.txt").to_dict()["same"] is True


def test_answers_from_windows(kit, tmp_path):
    mine = answers(tmp_path / "mine.txt", map(GPT2.encode, texts()))
    lines = mine.read_text().encode().replace(b"\n", b"\r\n")
    mine.write_bytes(b"\xef\xbb\xbf" + lines)
    assert check_tokens(mine, kit / "cases.txt").to_dict()["same"] is True
    mine.write_text("1 2\n", "utf-16")
    with pytest.raises(CheckpointError, match=r"expected ids .* in UTF-8"):
        check_tokens(mine, kit / "cases.txt")


@pytest.mark.parametrize("cause", FAULTS)
def test_each_fault_is_named(kit, tmp_path, cause):
    ids_of = {GPT2.token_bytes(id): id for id in range(50256)}
    rows = [FAULTS[cause].encode(text, ids_of) for text in texts()]
    report = check_tokens(answers(tmp_path / "mine.txt", rows), kit / "cases.txt")
    assert report.causes == (cause,)


def test_a_token_taken_for_special_is_named(kit, tmp_path):
    rows = [GPT2.encode(text, special=True) for text in texts()]
    report = check_tokens(answers(tmp_path / "mine.txt", rows), kit / "cases.txt")
    assert "within a text is the token" in report.causes[0]
    number, mine, theirs = report.different[0]
    assert theirs.data == b"<|endoftext|>"
    assert mine.ids == (50256,)
    assert f"first line {number}: '<|endoftext|>'" in str(report)


def test_the_first_id_that_differs_is_shown_where_they_differ_in_number(kit, tmp_path):
    rows = list(map(GPT2.encode, texts()))
    rows[2] = [*rows[2], 7]
    report = check_tokens(answers(tmp_path / "mine.txt", rows), kit / "cases.txt")
    assert "first line 3: 'Hello world'\n  from id 2 on: mine 7, theirs none" in str(report)
    assert "none that is known" in str(report)


@pytest.mark.parametrize("text", ["1 x\n", "1\n2\n", "zz\tz\t1\n", "\xff\n", "1" * 5000 + "\n"])
def test_what_are_no_answers_is_told(kit, tmp_path, text):
    (tmp_path / "mine.txt").write_text(text, "latin-1")
    with pytest.raises((CheckpointError, InputError), match=r"expected ids|lines"):
        check_tokens(tmp_path / "mine.txt", kit / "cases.txt")


def test_the_commands(tmp_path, capsys):
    assert main(["golden", "tokens", str(tmp_path / "kit")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(tmp_path / "kit" / "cases.txt")
    cases = str(tmp_path / "kit" / "cases.txt")
    assert main(["golden", "check", cases, cases]) == 0
    mine = answers(tmp_path / "mine.txt", [[50256, *GPT2.encode(text)] for text in texts()])
    with pytest.raises(SystemExit, match="1"):
        main(["golden", "check", str(mine), cases])
    assert "<|endoftext|> is put before the ids" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").touch()
    assert main(["golden", "tokens", str(tmp_path / "other")]) == 2


# tests/c/bpe.c, made of the kit alone: the fault that is planted -> what the cause says.

PLANTED = {
    "ASCII classes":           r"\p{L}, \p{N} and \s are ASCII's alone",
    "ASCII spaces":            r"\s is ASCII's alone",
    "Latin-1":                 "cut by its bytes, as if it were Latin-1",
    "no contractions":         "contractions are not cut",
    "contractions of any case": "contractions are cut whatever their case",
    "no space before":         "cut from the space before them",
    "no lookahead":            "the lookahead is missing",
    "not cut":                 "the text is not cut",
    "longest match":           "the longest token that fits is taken",
    "first pair":              "the first pair that is listed is merged",
    "highest rank":            "the pair of highest rank is merged",
    "no merges":               "nothing is merged",
    "sign of char":            "char has a sign: bytes above 127 are left out",
    "seven bits":              "char has a sign: bytes above 127 lose their highest bit",
    "byte order":              "the order of bytes: single bytes have their values",
    "NUL ends":                "the text ends at its first NUL",
    "bos":                     "<|endoftext|> is put before the ids",
}  # fmt: skip


@pytest.fixture(scope="module")
def port(kit):
    """The port, compiled with the kit's own header."""
    flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", kit]
    subprocess.run([COMPILER, *flags, "-o", kit / "bpe", SOURCES / "bpe.c"], check=True)

    def run(*faults):
        with open(kit / "cases.txt", "rb") as cases, open(kit / "ids.txt", "wb") as ids:
            subprocess.run([kit / "bpe", kit, *faults], stdin=cases, stdout=ids, check=True)
        return check_tokens(kit / "ids.txt", kit / "cases.txt")

    return run


@needs_compiler
def test_the_sound_port_agrees(port):
    assert not port().different


@needs_compiler
@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_in_c_is_named(port, fault):
    causes = port(fault).causes
    assert len(causes) == 1
    assert PLANTED[fault] in causes[0]
