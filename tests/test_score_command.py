"""gpt2np score: what it writes, against the library's own answers, and how it goes on."""

import argparse
import csv
import errno
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from models import saved_model
from shared import needs_posix

import gpt2np
from gpt2np import Tokenizer, scoring
from gpt2np.commands import score as command
from gpt2np.files import lock_holder, try_lock

TEXTS = [
    "It was the best of times,",
    "",
    "it was  the worst\nof \u201ctimes\u201d \U0001f600 \x1b[31m",
]
TOLERANCE = {"abs": 2e-5}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    return saved_model(path, gpt2np.Tokenizer.gpt2(), n_ctx=16, n_embd=8, n_layer=1)


@pytest.fixture(scope="session")
def model(folder):
    return gpt2np.load(folder)


@pytest.fixture
def run(run, folder):
    """Run gpt2np score on the model, as `run` runs any command."""
    return lambda *argv: run("score", "-m", folder, *map(str, argv))


@pytest.fixture
def files(tmp_path):
    """TEXTS in every kind of file."""
    paths = []
    for i, text in enumerate(TEXTS):
        paths.append(tmp_path / f"{i}.txt")
        paths[-1].write_text(text + "\n", encoding="utf-8", newline="")
    jsonl = tmp_path / "texts.jsonl"
    jsonl.write_text(
        "".join(json.dumps({"text": t, "other": "o" + t}) + "\n" for t in TEXTS), encoding="utf-8"
    )
    return paths, jsonl


def error(err):
    """The error on standard error, which is its last line."""
    *_, last = err.splitlines()
    assert err.count("gpt2np: error: ") == 1
    return last.removeprefix("gpt2np: error: ")


def records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table_rows(path):
    # Before Python 3.11, csv reads no NUL.
    file = io.StringIO(path.read_bytes().decode().replace("\0", "\u2400"), newline="")
    return list(csv.DictReader(file, delimiter="," if path.suffix == ".csv" else "\t"))


def near(number, x):
    return number in (None, "") if math.isnan(x) else float(number) == pytest.approx(x, **TOLERANCE)


# What is read


@pytest.mark.parametrize(
    "lines",
    [
        "one two\n\nthree\n",
        "one two\r\n\r\nthree",
        "one two\n\nthree\r\n",
        "\ufeffone two\n\nthree",
    ],
)
def test_lines(run, tmp_path, lines):
    path = tmp_path / "a.txt"
    path.write_text(lines, encoding="utf-8", newline="")
    run("--lines", path, "-o", tmp_path / "o.jsonl")
    found = records(tmp_path / "o.jsonl")
    assert [(r["file"], r["line"], "".join(r["tokens"])) for r in found] == [
        (str(path), 1, "one two"),
        (str(path), 2, ""),
        (str(path), 3, "three"),
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a\nb\n", "a\nb"),
        ("a\r\nb\r\n", "a\nb"),
        ("\ufeffa\n\ufeff", "a\n\ufeff"),
        ("a\n\n", "a\n"),
        ("a\u2028b", "a\u2028b"),
        ("", ""),
    ],
)
def test_a_file_is_one_text(run, tmp_path, content, text):
    path = tmp_path / "a.txt"
    path.write_text(content, encoding="utf-8", newline="")
    run(path, "-o", tmp_path / "o.jsonl")
    [record] = records(tmp_path / "o.jsonl")
    assert record["ids"] == Tokenizer.gpt2().encode(text)
    assert (record["file"], record["line"]) == (str(path), None)


def test_json_lines(run, tmp_path, files):
    _, jsonl = files
    for i, (options, wanted) in enumerate([
        ([],                       TEXTS),
        (["--field", "other"],     ["o" + text for text in TEXTS]),
        (["--lines"],              jsonl.read_text(encoding="utf-8").splitlines()),
    ]):  # fmt: skip
        code, _, _ = run(jsonl, *options, "-o", tmp_path / f"{i}.jsonl")
        found = records(tmp_path / f"{i}.jsonl")
        assert code == 0
        assert [r["ids"] for r in found] == [Tokenizer.gpt2().encode(text) for text in wanted]
        assert [r["line"] for r in found] == [1, 2, 3]


def test_json_lines_may_have_empty_lines_and_lone_surrogates(run, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n {"text": "\\ud83d"}\n\n', encoding="utf-8")
    run(path, "-o", tmp_path / "o.jsonl")
    assert [(r["line"], r["tokens"]) for r in records(tmp_path / "o.jsonl")] == [
        (1, ["a"]),
        (3, ["\ufffd"]),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "a.jsonl, line 2 is not JSON: "),
        ("[" * 100_000, "a.jsonl, line 2 is not JSON: "),
        ('"text"', "a.jsonl, line 2 has no text in the field 'text'"),
        ('{"text": 3}', "a.jsonl, line 2 has no text in the field 'text'"),
        ('{"Text": "a"}', "a.jsonl, line 2 has no text in the field 'text': name another with --f"),
    ],
)
def test_what_is_no_json_with_a_text(run, tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' + line, encoding="utf-8")
    code, out, err = run(path)
    assert (code, out) == (2, "")
    assert message in error(err)
    assert "parameters" not in err  # found before the model is loaded


def test_standard_input_and_text(run, monkeypatch, tmp_path, model):
    wanted = scoring.score(model, "a b").surprisal.sum()
    for options, stdin in (
        (["-"], b"a b\n"),
        (["--text", "a b"], b""),
        (["--field", "text", "-"], b'{"text": "a b"}'),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        path = tmp_path / f"{options[0]}.jsonl"
        assert run(*options, "-o", path)[0] == 0
        [record] = records(path)
        assert record["bits"] == pytest.approx(wanted, **TOLERANCE)
        assert record["file"] == (None if "--text" in options else "-")


# What is written


@pytest.mark.parametrize("options", ["", "--no-bos", "--window 8 --stride 3"])
def test_every_token_in_every_format(run, tmp_path, files, model, options):
    settings = {"bos": "--no-bos" not in options}
    settings |= {"window": 8, "stride": 3} if "--window" in options else {}
    scores = scoring.score(model, TEXTS, **settings)
    for name in ("o.jsonl", "o.csv", "o.tsv"):
        code, out, _ = run(*files[0], *options.split(), "-o", tmp_path / name)
        assert (code, out) == (0, "")
    rows = table_rows(tmp_path / "o.csv")
    assert rows == table_rows(tmp_path / "o.tsv")
    assert list(rows[0]) == [
        "file",
        "line",
        "index",
        "start",
        "end",
        "token_id",
        "token",
        "surprisal",
        "rank",
        "entropy",
    ]
    at = iter(rows)
    for path, s, r in zip(files[0], scores, records(tmp_path / "o.jsonl"), strict=True):
        assert (r["file"], r["line"], r["model"], r["unit"]) == (
            str(path),
            None,
            model.source,
            "token",
        )
        assert (r["bos"], r["window"], r["stride"]) == (
            settings["bos"],
            settings.get("window", 16),
            settings.get("stride", 8),
        )
        assert (r["ids"], r["tokens"], r["rank"]) == (s.ids, s.tokens, s.rank.tolist())
        assert list(zip(r["start"], r["end"], strict=True)) == s.offsets
        assert all(map(near, r["surprisal"], s.surprisal))
        assert all(map(near, r["entropy"], s.entropy))
        assert near(r["perplexity"], s.perplexity) or r["perplexity"] == pytest.approx(s.perplexity)
        assert r["n_tokens"] == len(s.ids) - (not settings["bos"] and len(s.ids) > 0)
        assert r["n_words"] == len(s.text.split())
        assert r["bits"] == pytest.approx(np.nansum(s.surprisal), abs=1e-4)
        for i, token in enumerate(s.tokens):
            row = next(at)
            assert (row["file"], row["line"], row["index"]) == (str(path), "", str(i))
            assert (int(row["token_id"]), row["token"]) == (s.ids[i], token)
            assert (int(row["start"]), int(row["end"])) == s.offsets[i]
            assert near(row["surprisal"], s.surprisal[i])
            assert near(row["entropy"], s.entropy[i])
            assert int(row["rank"]) == s.rank[i]
    assert next(at, None) is None


@pytest.mark.parametrize("correction", [True, False])
def test_every_word_in_every_format(run, tmp_path, files, model, correction):
    options = ["--words"] if correction else ["--words", "--boundary", "none"]
    for name in ("o.jsonl", "o.csv"):
        assert run(files[1], *options, "-o", tmp_path / name)[0] == 0
    _, table, _ = run(files[1], *options)
    words = [
        s.words(boundary="whitespace" if correction else None) for s in scoring.score(model, TEXTS)
    ]
    rows = table_rows(tmp_path / "o.csv")
    assert [(int(r["line"]), r["word"], int(r["start"]), int(r["end"])) for r in rows] == [
        (line, w.text, w.start, w.end) for line, many in enumerate(words, 1) for w in many
    ]
    for r, many in zip(records(tmp_path / "o.jsonl"), words, strict=True):
        assert (r["unit"], r["boundary"]) == ("word", "whitespace" if correction else "none")
        assert r["words"] == [w.text for w in many]
        assert r["surprisal"] == pytest.approx([w.surprisal for w in many], **TOLERANCE)
    assert [float(r["surprisal"]) for r in rows] == pytest.approx(
        [w.surprisal for many in words for w in many], **TOLERANCE
    )
    shown = re.findall(r"^ +(\d+\.\d\d)  (.*)$", table, re.MULTILINE)
    assert [name for _, name in shown] == [
        w.text.replace("\x1b", "\\x1b") for many in words for w in many
    ]
    assert [float(bits) for bits, _ in shown] == pytest.approx(
        [w.surprisal for many in words for w in many], abs=0.006
    )


def test_the_table(run, files, model):
    code, out, err = run(*files[0])
    assert code == 0
    assert err.startswith("gpt2np: ")
    assert err.count("\n") == 1
    lines = iter(out.splitlines())
    for path, s in zip(files[0], scoring.score(model, TEXTS), strict=True):
        assert next(lines) == f"==== {path} ===="
        assert next(lines).split() == ["bits", "rank", "entropy", "token"]
        for token, *numbers in zip(s.tokens, s.surprisal, s.rank, s.entropy, strict=True):
            shown = next(lines).split(maxsplit=3)
            assert [float(n) for n in shown[:3]] == pytest.approx(numbers, abs=0.006)
            assert shown[3] == repr(token)
    assert next(lines).startswith("texts: 3, tokens: 26, words: 14, bits: ")
    assert next(lines, None) is None
    assert "\033" not in out
    assert "====" not in run(files[0][0])[1]


def test_the_total(run, tmp_path, files, model):
    scores = scoring.score(model, TEXTS)
    tokens, bits = sum(len(s.ids) for s in scores), sum(s.surprisal.sum() for s in scores)
    wanted = run(files[1])[1].splitlines()[-1] + "\n"
    numbers = re.fullmatch(
        r"texts: 3, tokens: (\d+), words: 14, bits: ([\d.]+), perplexity: "
        r"([\d,.]+) \(window 16, stride 8\)\n",
        wanted,
    )
    assert int(numbers[1]) == tokens
    assert float(numbers[2]) == pytest.approx(bits, abs=0.06)
    assert float(numbers[3].replace(",", "")) == pytest.approx(2 ** (bits / tokens), rel=1e-5)
    for name in ("o.csv", "o.jsonl"):
        _, out, err = run(files[1], "-o", tmp_path / name)
        assert out == ""
        assert err.endswith(wanted)
    _, out, err = run(files[1], "--format", "jsonl")
    assert [json.loads(line) for line in out.splitlines()] == records(tmp_path / "o.jsonl")
    assert err.endswith(wanted)
    assert "perplexity: nan" in run("--text", "")[1]


def test_quotes_and_line_breaks_survive(run, tmp_path):
    text = 'a "b",\r\n\tc\r\rNA; \x00'
    for name in ("o.csv", "o.tsv"):
        run("--text", text, "-o", tmp_path / name)
        tokens = "".join(row["token"] for row in table_rows(tmp_path / name))
        assert tokens == text.replace("\0", "\u2400")


def test_dtype(run, tmp_path, folder):
    run("--text", "a b c", "--dtype", "float64", "-o", tmp_path / "o.jsonl")
    [record] = records(tmp_path / "o.jsonl")
    wanted = scoring.score(gpt2np.load(folder, dtype="float64"), "a b c")
    assert record["dtype"] == "float64"
    assert record["surprisal"] == [round(x, 5) for x in wanted.surprisal]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("FILE -o o.txt", r"o.txt ends in none of .csv, .tsv and .jsonl: give --form"),
        ("FILE -o o", r"o ends in none of"),
        ("FILE --resume", r"--resume goes on with an output in jsonl: give -o"),
        ("FILE -o o.csv --resume", r"--resume goes on with an output in jsonl: give -o"),
        ("FILE --window 17", r"window must be an integer from 2 to 16, not 17"),
        ("FILE --stride 17", r"stride must be an integer from 1 to 16, not 17"),
        ("absent.txt", r"absent.txt: No such file or directory"),
        ("FILE --text a", r"argument --text: not allowed with argument FILE"),
        ("", r"one of the arguments FILE --text is required"),
        ("FILE --lines --field a", r"argument --field: not allowed with argument --lines"),
        ("FILE -o absent/o.csv", r"No such file or directory"),
        ("FILE -o absent/o.jsonl", r"absent/o.jsonl: No such file or directory"),
    ],
)
def test_what_cannot_be_done(run, files, monkeypatch, options, message):
    monkeypatch.chdir(files[1].parent)
    code, out, err = run(*(str(files[0][0]) if o == "FILE" else o for o in options.split()))
    assert (code, out) == (2, "")
    assert message in error(err)


def test_a_format_may_be_named(run, tmp_path, files):
    run(files[0][0], "-o", tmp_path / "o.txt", "--format", "table")
    assert "  'It'\n" in (tmp_path / "o.txt").read_text(encoding="utf-8")
    _, out, _ = run(files[0][0], "--format", "csv")
    assert out.startswith('"file","line","index"')


def failing_at(monkeypatch, text, failure):
    """Let the scoring of a text fail, each text being scored by itself."""
    real = scoring.score
    scored = []

    def fake(model, texts, **settings):
        for one in texts:
            if one == text:
                raise failure
            scored.append(one)
        return real(model, texts, **settings)

    monkeypatch.setattr(scoring, "score", fake)
    monkeypatch.setattr(command, "BATCH", 1)
    return scored


@pytest.mark.parametrize("name", ["o.csv", "o.tsv", "o.table"])
def test_files_are_whole_or_as_they_were(run, tmp_path, files, monkeypatch, name):
    run(*files[0], "-o", tmp_path / name)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with monkeypatch.context() as patch:
        failing_at(patch, TEXTS[2], OSError("no more"))
        assert run(*files[0], "-o", tmp_path / name)[0] == 2
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert run(*files[0][:1], "-o", tmp_path / name)[0] == 0  # its own may be replaced
    assert (tmp_path / name).read_bytes() != before[tmp_path / name]


@pytest.mark.parametrize("name", ["o.csv", "o.tsv", "o.table", "o.jsonl"])
def test_another_s_file_is_replaced_only_by_force(run, tmp_path, name):
    out = tmp_path / name
    out.write_text("what was there", encoding="utf-8")
    code, _, err = run("--text", "a", "-o", out)
    assert code == 2
    assert error(err).startswith(f"{out} is there already")
    assert out.read_text(encoding="utf-8") == "what was there"
    assert run("--text", "a", "-o", out, "--force")[0] == 0
    run("--text", "a", "-o", tmp_path / f"new-{name}")
    assert out.read_bytes() == (tmp_path / f"new-{name}").read_bytes()


# Going on


@pytest.fixture
def interrupted(run, tmp_path, files):
    """A whole output, and where one goes on with a part of it."""
    run(files[1], "-o", tmp_path / "whole.jsonl")
    return tmp_path / "whole.jsonl", tmp_path / "part.jsonl", files[1]


def same_records(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            same = a[name] == b[name]
            assert same or a[name] == pytest.approx(b[name], **TOLERANCE)
    return True


@pytest.mark.parametrize("share", [0, 0.01, 0.2, 0.4, 0.7, 0.99, 1])
def test_goes_on_where_it_was_interrupted(run, interrupted, monkeypatch, share):
    whole, part, texts = interrupted
    data = whole.read_bytes()
    data = data[: int(share * len(data))]
    part.write_bytes(data)
    scored = failing_at(monkeypatch, None, None)
    code, _, err = run(texts, "-o", part, "--resume")
    assert code == 0
    assert part.read_bytes().startswith(data[: data.rfind(b"\n") + 1])
    assert same_records(records(part), records(whole))
    assert scored == TEXTS[data.count(b"\n") :]
    _, _, total = run(texts, "-o", whole, "--resume")
    assert total.splitlines()[-1] == err.splitlines()[-1]


def test_a_torn_line_that_lacks_only_its_end(run, interrupted):
    whole, part, texts = interrupted
    part.write_bytes(whole.read_bytes()[:-1])
    assert run(texts, "-o", part, "--resume")[0] == 0
    assert same_records(records(part), records(whole))


@pytest.mark.parametrize(
    "notes",
    ["precious notes", '{"text": "to be scored"}', '{"file": "mine", "line": 1, "text": "notes"}'],
)
def test_resume_leaves_other_files_alone(run, interrupted, tmp_path, notes):
    texts = interrupted[2]
    out = tmp_path / "notes.jsonl"
    out.write_text(notes)
    code, _, err = run(texts, "-o", str(out), "--resume")
    assert code == 2
    assert error(err) == f"{out} ends in what is not an output of this command"
    assert out.read_text() == notes


@pytest.mark.parametrize("more", [["--format", "csv"], ["--format", "jsonl", "--resume"]])
def test_an_input_is_not_written_over(run, tmp_path, more):
    file = tmp_path / "in.txt"
    file.write_text("To be")
    code, _, err = run(str(file), "-o", str(file), *more)
    assert code == 2
    assert error(err) == f"{file} is one of the files to read: give another -o OUT"
    assert file.read_text() == "To be"


def test_without_a_standard_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert not command._is_terminal(argparse.Namespace(output=None))


def test_resume_may_begin(run, interrupted):
    whole, part, texts = interrupted
    assert run(texts, "-o", part, "--resume")[0] == 0
    assert same_records(records(part), records(whole))


def test_what_is_there_is_not_overwritten(run, interrupted):
    whole, _, texts = interrupted
    before = whole.read_bytes()
    code, _, err = run(texts, "-o", whole)
    assert code == 2
    assert error(err) == f"{whole} is there already: continue it with --resume, or remove it"
    assert whole.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--no-bos"], "line 1: bos is True, now False; resume with the same"),
        (["--words"], "line 1: unit is 'token', now 'word'"),
        (["--window", "8"], "line 1: window is 16, now 8"),
        (["--stride", "1"], "line 1: stride is 8, now 1"),
        (["--dtype", "float64"], "line 1: dtype is 'float32', now 'float64'"),
        (["-m", "tiny-shakespeare"], "line 1: model is "),
    ],
)
def test_resume_with_other_options(run, interrupted, options, message):
    whole, _, texts = interrupted
    before = whole.read_bytes()
    code, _, err = run(texts, "-o", whole, "--resume", *options)
    assert code == 2
    assert message in error(err)
    assert whole.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\nnotes', "part.jsonl, line 1 is not an output of this command"),
        (b"[]\n", "part.jsonl, line 1 is not an output of this command"),
        (b"\xff\xfe\n", "part.jsonl, line 1 is not an output of this command"),
        (b"WHOLE WHOLE", "part.jsonl has 6 lines for 3 texts"),
        (b"WHOLE.TXT", "part.jsonl, line 1: file is "),
    ],
)
def test_resume_with_another_file(run, interrupted, files, content, message):
    whole, part, texts = interrupted
    if content == b"WHOLE.TXT":
        run(*files[0], "-o", part)
    else:
        part.write_bytes(content.replace(b"WHOLE", whole.read_bytes()).replace(b"\n ", b"\n"))
    before = part.read_bytes()
    code, _, err = run(texts, "-o", part, "--resume")
    assert code == 2
    assert message in error(err)
    assert part.read_bytes() == before


def test_one_writer_at_a_time(run, interrupted):
    whole, _, texts = interrupted
    before = whole.read_bytes()
    with open(whole, "ab") as other:
        assert try_lock(other.fileno())
        for more in ["--resume"], ["--force"]:
            code, _, err = run(texts, "-o", whole, *more)
            assert code == 2
            holder = lock_holder(other.fileno())
            assert error(err) == (
                f"{whole} is being written by {holder}: wait for it, or give another -o OUT"
            )
    if sys.platform == "linux":
        assert holder == f"process {os.getpid()}"
    assert whole.read_bytes() == before
    assert run(texts, "-o", whole, "--resume")[0] == 0


@needs_posix
def test_an_output_where_there_are_no_locks(run, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("gpt2np.files.fcntl.flock", refuse)
    code, _, err = run("--text", "one", "-o", tmp_path / "o.jsonl")
    assert code == 0
    assert err.count(f"{tmp_path} is on a file system without locks: let one process") == 1
    assert len(records(tmp_path / "o.jsonl")) == 1


def test_two_at_once_make_no_more_lines_than_texts(tmp_path, folder):
    texts, out = tmp_path / "texts.txt", tmp_path / "out.jsonl"
    texts.write_text("".join(f"{i} " * 30 + "\n" for i in range(40)), encoding="utf-8")
    argv = ["score", "-m", folder, "--lines", texts, "-o", out, "--resume"]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "gpt2np", *argv], stderr=subprocess.PIPE, encoding="utf-8"
        )
        for _ in range(2)
    ]
    errors = [process.communicate()[1] for process in both]
    for process, err in zip(both, errors, strict=True):  # the second may come when all is done
        assert process.returncode == 0 or "is being written by" in err
    assert 0 in [process.returncode for process in both]
    assert [record["line"] for record in records(out)] == list(range(1, 41))


@pytest.mark.parametrize("units", [[], ["--words"]])
def test_resume_with_texts_that_were_edited(run, interrupted, units):
    _, part, texts = interrupted
    assert run(texts, "-o", part, *units)[0] == 0
    part.write_bytes(b"".join(part.read_bytes().splitlines(True)[:2]))
    before, content = part.read_bytes(), texts.read_text(encoding="utf-8")
    for edited, message in (
        (content.replace("best", "last"), "part.jsonl, line 1: crc32 is "),
        (content.replace("worst", "least"), ""),
    ):  # not scored yet
        texts.write_text(edited, encoding="utf-8")
        code, _, err = run(texts, "-o", part, "--resume", *units)
        assert code == (2 if message else 0)
        assert message in err
        assert part.read_bytes().startswith(before)
        assert (part.read_bytes() == before) == bool(message)


def test_what_was_done_stays_after_a_failure(run, interrupted, monkeypatch):
    whole, part, texts = interrupted
    with monkeypatch.context() as patch:
        failing_at(patch, TEXTS[2], OSError("no more"))
        assert run(texts, "-o", part)[0] == 2
    assert len(records(part)) == 2
    with monkeypatch.context() as patch:
        failing_at(patch, TEXTS[2], KeyboardInterrupt())
        code, _, err = run(texts, "-o", part, "--resume")
        assert code == 130
        assert err.endswith(f"gpt2np: stopped: --resume goes on with {part}\n")
    assert run(texts, "-o", part, "--resume")[0] == 0
    assert same_records(records(part), records(whole))


def test_every_text_is_written_when_it_is_done(run, interrupted, monkeypatch):
    _, part, texts = interrupted
    monkeypatch.setattr(command, "BATCH", 1)
    real, written = scoring.score, []

    def noting(model, texts, **settings):
        written.append(part.read_bytes().count(b"\n"))
        return real(model, texts, **settings)

    monkeypatch.setattr(scoring, "score", noting)
    assert run(texts, "-o", part)[0] == 0
    assert written == [0, 1, 2]


@needs_posix
@pytest.mark.parametrize("stop", ["SIGINT", "SIGKILL"])
def test_goes_on_after_a_signal(run, folder, tmp_path, stop):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{i} " * 300 + "\n" for i in range(60)), encoding="utf-8")
    out = tmp_path / "o.jsonl"
    argv = [sys.executable, "-m", "gpt2np", "score", "-m", folder, "--lines", str(texts)]
    with subprocess.Popen([*argv, "-o", str(out)], stderr=subprocess.PIPE) as child:
        deadline = time.monotonic() + 60
        while not (out.exists() and out.read_bytes().count(b"\n") > 3):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        child.send_signal(getattr(signal, stop))
        err = child.stderr.read()
    assert child.returncode == (130 if stop == "SIGINT" else -signal.SIGKILL)
    assert b"Traceback" not in err
    done = out.read_bytes().count(b"\n")
    assert 3 < done < 60
    texts.write_text("".join(f"{i} " * 300 + "\n" for i in range(done + 2)), encoding="utf-8")
    assert run("--lines", texts, "-o", out, "--resume")[0] == 0
    assert [r["line"] for r in records(out)] == list(range(1, done + 3))


# On a terminal


def on_terminal(folder, *argv, **environment):
    """What the command shows on a terminal of 40 columns."""
    import pty

    master, slave = pty.openpty()
    variables = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    variables |= {"COLUMNS": "40", "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **environment}
    command = [sys.executable, "-m", "gpt2np", "score", "-m", folder, *argv]
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL, env=variables) as child:
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            shown += part
    os.close(master)
    assert child.returncode == 0
    return shown.decode().replace("\r\n", "\n")


@needs_posix
def test_colours_and_width_on_a_terminal(folder, run):
    text = "a " + "\u9be8" * 30
    coloured = on_terminal(folder, "--text", text, "--words")
    assert re.findall(r"\033\[\d+m(.*?)\033\[0m", coloured) == ["a", "\u9be8" * 15 + "\u2026"]
    plain = on_terminal(folder, "--text", text, "--words", NO_COLOR="1", COLUMNS="200")
    assert plain == run("--text", text, "--words")[1]


def test_colours_go_by_surprisal(monkeypatch, model):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    s = scoring.score(model, "a b c d", bos=False)
    s.logprobs[1:] = np.array([3.9, 7.9, 8.1]) * -math.log(2)
    table = command._table(
        command.Document("f", 3, "a b c d"), s, {"unit": "token"}, heading=True, terminal=True
    )
    first, _, unknown, *rest = table.splitlines()
    assert first == "==== f, line 3 ===="
    assert unknown.split() == ["nan", "0", "nan", "'a'"]
    assert [re.search(r"\033\[(\d+)m' .'\033\[0m$", line)[1] for line in rest] == ["32", "33", "31"]
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert "\033" not in command._table(
                command.Document(None, None, ""), s, {"unit": "token"}, heading=False, terminal=True
            )


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab\u2026"),
        ("abcd", 1, "\u2026"),
        ("abcd", -9, "\u2026"),
        ("\u9be8\u9be8", 4, "\u9be8\u9be8"),
        ("\u9be8\u9be8", 3, "\u9be8\u2026"),
        ("\u9be8\u9be8", 2, "\u2026"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ("", 0, ""),
    ],
)
def test_cut(text, width, cut):
    assert command._cut(text, width) == cut


def test_a_bar_for_several_texts(run, files, tmp_path, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for texts, n, done in ((files[1], 3, 0), (files[0][0], 1, 0), (files[1], 3, 2)):
        out = tmp_path / f"{done}{n}.jsonl"
        if done:
            run(texts, "-o", out)
            out.write_bytes(b"".join(out.read_bytes().splitlines(True)[:done]))
        shown = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", shown)
            assert run(texts, "-o", out, "--resume")[0] == 0
        assert (f"| {n}/{n} " in shown.getvalue()) == (n > 1)
        assert (f"| {done}/{n} " in shown.getvalue()) == (n > 1)
        assert shown.getvalue().count("\ntexts: ") == 1


def test_imports_only_what_it_needs(folder):
    code = (
        "import sys; from gpt2np.cli import main; "
        f"assert main(['score', '-m', {folder!r}, '--text', 'x']) == 0; "
        "unneeded = {'requests', 'tqdm', 'gpt2np.generation', 'gpt2np.hub'}; "
        "sys.exit(str(found) if (found := sys.modules.keys() & unneeded) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
