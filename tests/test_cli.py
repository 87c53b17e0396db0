"""The command line: what it prints, against the library's own answers, and how it ends."""

import ctypes
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import saved_model
from shared import needs_posix

import gpt2np
from gpt2np import Generation, bench, cli, generation, streams
from gpt2np.cli import COMMANDS, main
from gpt2np.commands import download, generate, score, tokenize
from gpt2np.golden.tiny import IDS, tiny_model
from gpt2np.tokenizer import Tokenizer

TOKENIZER = Tokenizer.gpt2()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A tiny model with a context long enough to interrupt."""
    path = tmp_path_factory.mktemp("model")
    return saved_model(path, TOKENIZER, n_ctx=50_000, n_embd=8, n_layer=1)


@pytest.fixture(scope="session")
def model(folder):
    return gpt2np.load(folder)


@contextmanager
def process(*argv, **options):
    command = [sys.executable, "-m", "gpt2np", *argv]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=options.pop("stdout", pipe), stderr=pipe, **options
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def finished(*argv, data=b"", **options):
    with process(*argv, **options) as child:
        out, err = child.communicate(data, timeout=60)
    return child.returncode, out, err


def one_line(err, pattern):
    """Whether standard error holds one line of error, of this content, and nothing after it."""
    *_, last = err.splitlines()
    return err.count("gpt2np: error: ") == 1 and re.fullmatch(f"gpt2np: error: {pattern}", last)


# What there is


def test_help(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert out.startswith("usage: gpt2np")
    assert all(f"    {name} " in out for name in COMMANDS)
    assert run("--help") == (0, out, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(run, name):
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: gpt2np {name}")
    assert "--debug" in out


# Each that there is, with what makes it print something soon. FOLDER is a model, OUT a new file.
PRINTING = {
    "generate":        "generate a -m FOLDER -n 3 --seed 1",
    "score":           "score --text a -m FOLDER",
    "evaluate":        "evaluate perplexity corpus.txt -m FOLDER",
    "tokenize":        "tokenize a",
    "explain":         "explain attn.scores",
    "explain --html":  "explain --html OUT.html",
    "bench":           "bench -m FOLDER --seconds 0.001",
    "info":            "info FOLDER",
    "convert":         "convert FOLDER OUT.npz",
    "golden record":   "golden record --weights tiny OUT.npz",
    "golden check":    "golden check mine.npz golden.npz",
    "golden tokens":   "golden tokens OUT",
    "golden sampling": "golden sampling OUT.npz",
}  # fmt: skip
WRITE = {"convert", "golden record", "golden tokens", "golden sampling"}  # and print only where


@pytest.fixture
def printing(run, tmp_path, monkeypatch):
    """Run one of these: its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "start", lambda model: (0.5, 123))
    (tmp_path / "corpus.txt").write_text("To be, or not to be", encoding="utf-8")
    for name in ("mine.npz", "golden.npz"):
        gpt2np.golden.record(tiny_model(), IDS).save(name)
    small = saved_model(tmp_path / "small", TOKENIZER, n_ctx=64, n_embd=8, n_layer=1)
    return lambda name, *more: run(*PRINTING[name].replace("FOLDER", small).split(), *more)


def test_every_command_is_among_them():
    parser = cli._Parser()
    import_module("gpt2np.commands.golden").add_arguments(parser)
    actions = next(a for a in parser._actions if a.dest == "action").choices
    names = {*COMMANDS, *(f"golden {action}" for action in actions)} - {"golden", "download"}
    assert names == PRINTING.keys() - {"explain --html"}


@pytest.mark.parametrize("name", PRINTING)
def test_every_result_can_be_had_as_json(printing, name):
    code, out, _ = printing(name, "--json")
    assert code == 0
    found = json.loads(out)
    assert found.keys() <= {"tokens", "ids"} or "token" not in found
    if name in WRITE:
        assert Path(found["written"]).exists()


@pytest.mark.parametrize("name", sorted(PRINTING.keys() - WRITE - {"explain --html"}))
def test_every_result_can_go_to_a_file(printing, name):
    _, expected, _ = printing(name)
    code, out, _ = printing(name, "-o", "o.csv" if name == "score" else "o.txt")
    assert (code, out) == (0, "")
    if name not in ("score", "bench"):  # another form, other times
        assert Path("o.txt").read_text(encoding="utf-8") == expected
        code, out, err = printing(name, "-o", "o.txt")
        assert (code, out) == (2, "")
        assert one_line(err, "o.txt is there already: give another -o OUT, or .* --force")
        assert printing(name, "-o", "o.txt", "--force")[0] == 0


@pytest.mark.parametrize("end", [KeyboardInterrupt, gpt2np.InputError("no more")])
def test_what_was_printed_before_the_end_is_kept(printing, monkeypatch, end):
    def pieces(*_, **__):
        yield "b"
        raise end

    Path("o.txt").write_text("older", encoding="utf-8")
    monkeypatch.setattr(generation, "stream", pieces)
    code, out, _ = printing("generate", "-o", "o.txt", "--force")
    assert (code, out) == (130 if end is KeyboardInterrupt else 2, "")
    assert Path("o.txt").read_text(encoding="utf-8") == "ab\n"
    printing("generate", "-o", "o.txt", "--force", "-m", "./no-such")
    assert Path("o.txt").read_text(encoding="utf-8") == "ab\n"


def test_two_that_differ_are_told_in_a_file_too(printing):
    gpt2np.golden.record(tiny_model(), [3, 1, 4]).save("golden.npz")
    code, out, _ = printing("golden check", "--json", "-o", "o.json")
    assert (code, out) == (1, "")
    assert json.loads(Path("o.json").read_text(encoding="utf-8"))["same"] is False


@needs_posix
def test_a_file_may_be_a_pipe(printing):
    gpt2np.golden.record(tiny_model(), [3, 1, 4]).save("golden.npz")
    code, out, err = finished(*PRINTING["golden check"].split(), "--json", "-o", "/dev/stdout")
    assert (code, err) == (1, b"")
    assert json.loads(out)["same"] is False


def test_version(run):
    assert run("--version") == (0, f"gpt2np {gpt2np.__version__}\n", "")


def test_module():
    assert finished("--version") == (0, f"gpt2np {gpt2np.__version__}{os.linesep}".encode(), b"")


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        (["tokenize", "--ids", "x"], "requests tqdm regex gpt2np.generation gpt2np.hub"),
        (["generate", "-m", "FOLDER", "-n", "1", "x"], "requests tqdm regex gpt2np.hub readline"),
        (["generate", "-m", "FOLDER", "-n", "1", "--json", "x"], "requests tqdm gpt2np.hub"),
    ],
)
def test_imports_only_what_it_needs(folder, command, unneeded):
    command = [folder if word == "FOLDER" else word for word in command]
    code = (
        "import sys; from gpt2np.cli import main; "
        f"assert main({command!r}) == 0; "
        f"sys.exit(str(found) if (found := sys.modules.keys() & {set(unneeded.split())!r}) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_user_that_is_not_there(run):
    code, out, err = run("info", "~nosuchuser/model")
    assert (code, out) == (2, "")
    assert one_line(err, "'~nosuchuser/model': there is no such file or folder")


# generate


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ("", {}),
        ("-n 7", {"max_new_tokens": 7}),
        ("--max-new-tokens 7 -t 0", {"max_new_tokens": 7, "temperature": 0}),
        ("--temperature 0.5", {"temperature": 0.5}),
        ("-k 5", {"top_k": 5}),
        ("--top-k 1", {"top_k": 1}),
        ("-p 0.001", {"top_p": 0.001}),
        ("--top-p 0.002", {"top_p": 0.002}),
        ("--min-p 0.9", {"min_p": 0.9}),
        ("-t 0 --repetition-penalty 1.3", {"temperature": 0, "repetition_penalty": 1.3}),
        ("-t 0 --no-repeat-ngram 2", {"temperature": 0, "no_repeat_ngram": 2}),
        ("--seed 9", {"seed": 9}),
        ("--stop a --stop e", {"stop": ["a", "e"]}),
    ],
)
def test_text_is_the_prompt_and_what_the_library_gives(run, folder, model, options, keywords):
    keywords = {"seed": 1} | keywords
    expected = "ROMEO:" + generation.generate(model, "ROMEO:", **keywords).text + "\n"
    code, out, err = run("generate", "ROMEO:", "-m", folder, "--seed", "1", *options.split())
    assert (code, out) == (0, expected)
    assert err == f"gpt2np: {folder} (0.8M parameters, float32)\n"


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ("--ignore-eot", {"stop_at_eot": False}),
        ("--eos 5 --eos 7", {"eos": [5, 7]}),
        ("--special", {"special": True}),
        ("--beams 4", {"num_beams": 4}),
        ("--lookup 8", {"lookup": 8}),
        ("--on-full refuse", {"on_full": "refuse"}),
        ("--num-samples 2", {"num_samples": 2, "progress": False}),
        ("--stop a --stop \u00e9", {"stop": ["a", "\u00e9"]}),
    ],
)
def test_options_are_the_arguments_of_the_library(run, folder, monkeypatch, options, keywords):
    calls = []

    def fake(model, prompts, **given):
        calls.append(given)
        return [Generation("!", [0], [1], [-1.0], "length")]

    def fake_stream(model, prompt, **given):
        calls.append(given)
        return iter("!")

    monkeypatch.setattr(generation, "generate", fake)
    monkeypatch.setattr(generation, "stream", fake_stream)
    code, out, _ = run("generate", "a", "-m", folder, *options.split())
    assert (code, calls) == (0, [keywords])
    assert out.endswith("a!\n")


def test_what_is_not_given_is_left_to_the_library(run, folder, monkeypatch):
    calls = []
    monkeypatch.setattr(generation, "stream", lambda *_, **given: calls.append(given) or iter("!"))
    run("generate", "a", "-m", folder)
    assert calls == [{}]


@pytest.mark.parametrize(("options", "told"), [((), 1), (("--special",), 0)])
def test_tells_that_a_prompt_spells_a_special_token(run, folder, options, told):
    code, _, err = run("generate", "a<|endoftext|>b", "-n", "1", "-m", folder, *options)
    assert (code, err.count("special token, which is read as plain text: --special")) == (0, told)


def test_tells_that_a_text_outgrew_the_context(run, tmp_path):
    saved_model(tmp_path, n_ctx=8, n_embd=8, n_layer=1)
    model = gpt2np.load(tmp_path)
    for n, told in ((7, 0), (8, 0), (9, 1), (30, 1)):  # the last of 1 + 8 needs no slide yet
        keywords = {"seed": 1, "max_new_tokens": n, "on_full": "slide"}
        text = generation.generate(model, "a", **keywords).text
        code, out, err = run(
            "generate", "a", "-m", str(tmp_path), "--seed", "1", "-n", str(n), "--on-full", "slide"
        )
        assert (code, out) == (0, f"a{text}\n")
        assert err.count("the context of 8 tokens") == told
    assert err.count("\n") == 2


def test_double_precision(run, folder):
    expected = generation.generate(gpt2np.load(folder, dtype="float64"), "a", temperature=0).text
    code, out, err = run("generate", "a", "-t0", "-m", folder, "--dtype", "float64", "--no-echo")
    assert (code, out) == (0, expected + "\n")
    assert err == f"gpt2np: {folder} (0.8M parameters, float64)\n"


def test_text_is_shown_as_it_comes(folder, monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    shown = []

    def pieces(*_, **__):
        for piece in ("one", " two"):
            shown.append(stdout.buffer.getvalue())
            yield piece
        shown.append(stdout.buffer.getvalue())

    monkeypatch.setattr(generation, "stream", pieces)
    monkeypatch.setattr(sys, "stdout", stdout)
    assert main(["generate", "a", "-m", folder]) == 0
    assert shown == [b"a", b"aone", b"aone two"]


@pytest.mark.parametrize(
    "case",
    [
        ("two\nlines\n", "two\nlines"),
        ("two\r\nlines\r\n", "two\nlines"),
        ("\ufeffa mark", "a mark"),
        ("a blank line\n\n", "a blank line\n"),
        ("caf\u00e9", "caf\u00e9"),
        ("", ""),
    ],
)
def test_prompt_from_a_file_or_standard_input(run, folder, tmp_path, monkeypatch, case):
    written, prompt = case
    args = ("-m", folder, "--seed", "3", "-n", "5")
    file = tmp_path / "prompt.txt"
    file.write_bytes(written.encode())
    expected = run("generate", prompt, *args)
    assert expected[1].startswith(prompt)
    assert run("generate", "-f", str(file), *args) == expected
    for source in (["-"], ["--file", "-"]):
        stdin = io.TextIOWrapper(io.BytesIO(written.encode()), encoding="ascii")
        monkeypatch.setattr(sys, "stdin", stdin)
        assert run("generate", *source, *args) == expected


GENERATE = ("generate", "-n", "2", "-t", "0", "--no-echo")
LAMBADA = '{"text": "one two"}\n'
CHOICE = '{"prefix": "one", "choices": ["two", "six"], "answer": 0}\n'
READERS = [  # every command that reads text; what it reads, under which name, and how ("-": piped)
    ((*GENERATE, "-f"), "a.txt", "one\ntwo\n"),
    ((*GENERATE, "--prompts"), "a.txt", "one\n\ntwo\n"),
    ((*GENERATE,), "-", "one\ntwo\n"),
    ((*GENERATE, "--prompts"), "-", "one\n\ntwo\n"),
    ((*GENERATE, "-i"), None, "one\ntwo\n"),
    (("score", "--format", "csv"), "a.txt", "one\ntwo\n"),
    (("score", "--format", "csv"), "-", "one\ntwo\n"),
    (("score", "--format", "csv", "--lines"), "a.txt", "one\n\ntwo\n"),
    (("score", "--format", "jsonl"), "a.jsonl", LAMBADA),
    (("score", "--format", "jsonl", "--field", "text"), "-", LAMBADA),
    (("score", "--format", "csv", "--column", "a"), "a.csv", 'a,b\n"one\ntwo",2\n'),
    (("score", "--format", "csv", "--column", "a"), "a.tsv", "a\tb\none\t2\n"),
    (("score", "--format", "csv", "--word-column", "a"), "a.csv", "a,b\none,2\ntwo,3\n"),
    (("tokenize", "--ids", "-f"), "a.txt", "one\ntwo\n"),
    (("tokenize", "--ids"), "-", "one\ntwo\n"),
    (("tokenize", "--decode"), "-", "11\n12\n"),
    (("evaluate", "lambada"), "a.jsonl", LAMBADA),
    (("evaluate", "choice"), "a.jsonl", CHOICE),
    (("evaluate", "perplexity"), "a.txt", "one\ntwo\n"),
    (("evaluate", "perplexity"), "a.jsonl", LAMBADA),
]


@pytest.mark.parametrize(("argv", "name", "text"), READERS)
def test_text_from_windows_is_the_same_text(run, folder, tmp_path, monkeypatch, argv, name, text):
    """Without the byte-order mark in front of it, and with no more than a line feed at its ends."""
    monkeypatch.chdir(tmp_path)
    told = []
    for data in (text.encode(), b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))
        if name not in ("-", None):
            Path(name).write_bytes(data)
        model = () if argv[0] == "tokenize" else ("-m", folder)
        told.append(run(*argv, *([name] if name else []), *model))
    assert told[0][0] == 0, told[0]
    assert told[0] == told[1]


def test_json(run, folder, model):
    code, out, _ = run(
        "generate",
        "caf\u00e9",
        "-m",
        folder,
        "--seed",
        "5",
        "--num-samples",
        "3",
        "--stop",
        "a",
        "--json",
    )
    lines = [json.loads(line) for line in out.splitlines()]
    expected = generation.generate(model, "caf\u00e9", seed=5, num_samples=3, stop=["a"])
    assert code == 0
    assert "caf\u00e9" in out
    assert {line.pop("tokens_per_second") > 0 for line in lines} == {True}
    assert lines == [
        {
            "prompt": "caf\u00e9",
            "text": each.text,
            "ids": each.ids,
            "logprobs": each.logprobs,
            "finish_reason": each.finish_reason,
        }
        for each in expected
    ]


def test_several_completions_as_text(run, folder, model):
    args = ("generate", "ab", "-m", folder, "--seed", "2", "--num-samples", "2")
    one, two = (each.text for each in generation.generate(model, "ab", seed=2, num_samples=2))
    out = f"======== 1 of 2 ========\nab{one}\n======== 2 of 2 ========\nab{two}\n"
    assert run(*args)[:2] == (0, out)
    assert run(*args, "--no-echo")[1] == out.replace("\nab", "\n")


@pytest.mark.parametrize("samples", [1, 2])
def test_prompts_from_a_file_in_batches(run, folder, model, tmp_path, samples):
    prompts = [*"abcdefghij", "", "two words", "line\u2028separator"]
    assert len(prompts) > generate.BATCH
    file = tmp_path / "prompts.txt"
    file.write_bytes("\r\n".join(prompts).encode() + b"\n")
    code, out, _ = run(
        "generate",
        "--prompts",
        str(file),
        "-m",
        folder,
        "--seed",
        "4",
        "-n",
        "3",
        "--num-samples",
        str(samples),
        "--json",
    )
    expected = generation.generate(model, prompts, seed=4, max_new_tokens=3, num_samples=samples)
    if samples > 1:
        expected = [each for group in expected for each in group]
    lines = [json.loads(line) for line in out.split("\n")[:-1]]
    assert code == 0
    assert [line["ids"] for line in lines] == [each.ids for each in expected]
    assert [line["prompt"] for line in lines] == [p for p in prompts for _ in range(samples)]


def test_prompts_show_progress_on_a_terminal(run, folder, tmp_path, monkeypatch):
    file = tmp_path / "prompts.txt"
    file.write_text("a\nb\n", encoding="utf-8")
    args = ("generate", "--prompts", str(file), "-m", folder, "-n", "1", "--seed", "1")
    _, plain, err = run(*args)
    assert err.count("\n") == 1
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    code, out, err = run(*args)
    assert (code, out) == (0, plain)
    assert "2/2" in err


def test_error_in_a_batch_says_where(run, folder, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("a\n" * 9, encoding="utf-8")
    code, out, err = run("generate", "--prompts", str(file), "-m", folder, "-n", "50000")
    assert (code, out) == (2, "")
    assert one_line(err, "in lines 1 to 8 of the prompts: .*50001.*50000.*")


# generate -i


def test_interactive(run, folder, model, monkeypatch):
    typed = iter(["a", KeyboardInterrupt, "too long " * 50_000, "b", EOFError])

    def type_next(prompt=""):
        line = next(typed)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", type_next)
    code, out, err = run("generate", "-i", "-m", folder, "--seed", "1")
    texts = [generation.generate(model, prompt, seed=1).text for prompt in "ab"]
    assert (code, out) == (0, f"{texts[0]}\n\n{texts[1]}\n")
    assert one_line(err, "a prompt of .* the model's context is 50000.*")


def test_interactive_tells_after_each_text_that_it_outgrew_the_context(
    run, tmp_path, monkeypatch, capsys
):
    saved_model(tmp_path, n_ctx=8, n_embd=8, n_layer=1)
    told = []

    def type_next(prompt=""):
        told.append(capsys.readouterr().err.count("the context of 8 tokens"))
        if len(told) == 4:
            raise EOFError
        return ["a", "a a a a a a a", "a"][len(told) - 1]

    monkeypatch.setattr("builtins.input", type_next)
    assert (
        run("generate", "-i", "-m", str(tmp_path), "-n", "5", "--on-full", "slide", "--ignore-eot")[
            0
        ]
        == 0
    )
    assert told == [0, 0, 1, 0]


@needs_posix
def test_terminal_session(folder, tmp_path):
    in_terminal = (
        "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    )
    command = [
        sys.executable,
        "-m",
        "gpt2np",
        "generate",
        "-i",
        "-m",
        folder,
        "--ignore-eot",
        "-n",
        "40000",
    ]
    env = os.environ | {"GPT2NP_HOME": str(tmp_path), "TERM": "dumb"}
    with subprocess.Popen(
        [sys.executable, "-c", in_terminal, *command],
        env=env,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        try:
            for line in (b"first\n", b"second\n"):
                read_until(child.stdout, b"> ")
                child.stdin.write(line)
                read_until(child.stdout, b"\n")  # the echo of what was typed
                assert child.stdout.read(1)  # and some text
                child.stdin.write(b"\x03")  # Ctrl-C
            read_until(child.stdout, b"\n> ")
            child.stdin.write(b"\x04")  # Ctrl-D
            assert child.wait(60) == 0
        finally:
            child.kill()
    assert (tmp_path / "history").read_text(encoding="utf-8").split() == ["first", "second"]


def read_until(stream, end):
    seen = b""
    while not seen.endswith(end):
        byte = stream.read(1)
        assert byte, seen
        seen += byte


# tokenize


def test_table(run):
    assert run("tokenize", "Hello w\u00f6rld \U0001f600!") == (
        0,
        r"""
    id  bytes           piece
 15496  48 65 6c 6c 6f  'Hello'
   266  20 77           ' w'
 30570  c3 b6 72        'ör'
   335  6c 64           'ld'
 30325  20 f0 9f 98     b' \xf0\x9f\x98'
   222  80              b'\x80'
     0  21              '!'
tokens: 7, bytes: 18
""".lstrip("\n"),
        "",
    )


@given(st.text().filter(lambda text: text != "-"))
@example("")
@example("--")
@example("--ids")
@example("two\nlines\r\n\n")
@example("<|endoftext|>")
@settings(max_examples=30, deadline=None)
def test_ids_and_back(text):
    ids = TOKENIZER.encode(text)
    assert out_of("tokenize", "--ids", "--", text) == " ".join(map(str, ids)) + "\n"
    if ids:
        assert out_of("tokenize", "--decode", *map(str, ids)) == text + "\n"


def out_of(*argv):
    with redirect_stdout(io.StringIO()) as out:
        assert main(argv) == 0
    return out.getvalue()


def test_tokens_as_json(run):
    code, out, _ = run("tokenize", "--json", "w\u00f6 \U0001f600")
    assert (code, out.count("\n")) == (0, 1)
    assert json.loads(out) == {
        "ids":    [86, 9101, 30325, 222],
        "tokens": ["w", "\u00f6", " \ufffd", "\ufffd"],
        "bytes":  ["77", "c3b6", "20f09f98", "80"],
    }  # fmt: skip


def test_end_of_text_is_a_token_only_if_asked(run):
    text = "<|endoftext|>"
    assert run("tokenize", "--ids", text)[1].split() == list(map(str, TOKENIZER.encode(text)))
    assert run("tokenize", "--ids", "--special", text)[1] == "50256\n"


def test_tokenize_a_file_or_standard_input(run, tmp_path, monkeypatch):
    data = "\ufeffcaf\u00e9\r\n\n".encode()
    expected = (0, " ".join(map(str, TOKENIZER.encode("caf\u00e9\n\n"))) + "\n", "")
    file = tmp_path / "text.txt"
    file.write_bytes(data)
    assert run("tokenize", "--ids", "-f", str(file)) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))
    assert run("tokenize", "--ids", "-") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(expected[1].encode())))
    assert run("tokenize", "--decode", "-") == (0, "caf\u00e9\n\n\n", "")


def test_tokenizer_of_a_model(run, folder, tmp_path):
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\na b\n", encoding="utf-8")
    for source, ids in (
        (tmp_path, "256 66\n"),
        (tmp_path / "vocab.bpe", "256 66\n"),
        (folder, "39305\n"),
    ):
        assert run("tokenize", "--ids", "abc", "-m", str(source)) == (0, ids, "")


def test_model_without_a_tokenizer(run, tmp_path):
    saved_model(tmp_path, vocab_size=10, n_ctx=8, n_embd=8, n_layer=1)
    for command in ("generate", "tokenize"):
        code, out, err = run(command, "a", "-m", str(tmp_path))
        assert (code, out) == (2, "")
        assert one_line(err, ".*tokenizer.*")


# download


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ([], {"origin": "hf", "revision": None}),
        (["--from", "openai"], {"origin": "openai", "revision": None}),
        (["--revision", "v1"], {"origin": "hf", "revision": "v1"}),
    ],
)
def test_download(run, monkeypatch, tmp_path, options, keywords):
    calls = []
    monkeypatch.setattr(download, "download", lambda *a, **k: calls.append((a, k)) or tmp_path)
    assert run("download", "gpt2", *options) == (0, f"{tmp_path}\n", "")
    assert calls == [(("gpt2",), keywords)]


# Errors


@pytest.mark.parametrize(
    ("argv", "pattern"),
    [
        (["frobnicate"], r".*'frobnicate'.*generate.* \(see gpt2np --help\)"),
        (["--frobnicate"], r".*--frobnicate.* \(see gpt2np --help\)"),
        (["generate"], r".*PROMPT.*--prompts.* \(see gpt2np generate --help\)"),
        (["generate", "a", "b\nc"], r"unexpected argument 'b\\nc': .* \(see gpt2np --help\)"),
        (["generate", "a", "-i"], r".*-i.*"),
        (["generate", "a", "-n", "x"], r".*-n.*'x'.*"),
        (["generate", "a a", "-n", "49999"], r"(?=.*\b49999\b)(?=.*\b50001\b).*\b50000\b.*"),
        (["generate", "aa", "-n", "-1"], r"--max-new-tokens.*-1.*"),
        (["generate", "a", "-t", "-1"], r"--temperature.*-1.*"),
        (["generate", "a", "-p", "nan"], r"--top-p.*nan.*"),
        (["generate", "a", "--seed", "-1"], r"--seed.*-1.*"),
        (["generate", "a", "--stop", ""], r"--stop.*"),
        (["generate", "a", "--num-samples", "0"], r"--num-samples.*0.*"),
        (["generate", "\ud800"], r".*PROMPT.*"),
        (["generate", "-f", "no/such"], r"no/such: No such file or directory"),
        (["generate", "-f", "."], r"\.: .+"),
        (["generate", "--prompts", "none"], r"none: No such file or directory"),
        (["generate", "a", "-m", "gtp2"], r".*'gtp2'.*'gpt2'.*"),
        (["tokenize"], r".*TEXT.*"),
        (["tokenize", "--decode", "50257"], r"50257 .*50256"),
        (["tokenize", "--decode", "-1"], r".*"),
        (["tokenize", "--decode", "a"], r"'a' is not a token id.*"),
        (["tokenize", "--decode", "9" * 5000], r"'9+' is not a token id.*"),
        (["tokenize", "a", "-m", "gtp2"], r".*'gtp2'.*'gpt2'.*"),
        (["download", "gtp2"], r".*'gtp2'.*'gpt2'.*"),
        (["download", "gpt2", "--from", "x"], r".*--from.*'x'.*"),
    ],
)
def test_error_is_one_line(run, folder, argv, pattern):
    if argv[0] == "generate" and "-m" not in argv:
        argv = [*argv, "-m", folder]
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert one_line(err, pattern), err


def test_file_that_is_not_utf8(run, tmp_path, monkeypatch):
    data = b"caf\xc3\xa9 \xe9!"
    file = tmp_path / "latin.txt"
    file.write_bytes(data)
    for args in (["tokenize", "-f"], ["generate", "-f"], ["generate", "--prompts"]):
        code, out, err = run(*args, str(file))
        assert (code, out) == (2, "")
        assert one_line(err, rf"{re.escape(str(file))} is not UTF-8: byte 6 is 0xe9; .*")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert one_line(run("tokenize", "-")[2], "standard input is not UTF-8: byte 6 is 0xe9; .*")


def test_out_of_memory(run, folder, monkeypatch):
    def fail(*_, **__):
        raise MemoryError("Unable to allocate 5.9 GiB")

    monkeypatch.setattr(generation, "stream", fail)
    code, out, err = run("generate", "a", "-m", folder)
    assert (code, out) == (2, "")
    assert one_line(err, "not enough memory: Unable to allocate 5.9 GiB")


def test_error_after_some_text(run, folder, monkeypatch):
    def pieces(*_, **__):
        yield "b"
        raise gpt2np.InputError("no\nmore")

    monkeypatch.setattr(generation, "stream", pieces)
    code, out, err = run("generate", "a", "-m", folder)
    assert (code, out) == (2, "ab\n")
    assert one_line(err, "no more")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["score", "-m", "FOLDER", "--text", "To be", "-o"], "o.csv"),
        (["score", "-m", "FOLDER", "--text", "To be", "-o"], "o.tsv"),
        (["score", "-m", "FOLDER", "--text", "To be", "-o"], "o.table"),
        (["golden", "record", "-m", "FOLDER", "--ids", "1,2", "--new", "1"], "o.npz"),
        (["golden", "record", "-m", "FOLDER", "--ids", "1,2", "--new", "1"], "o.safetensors"),
        (["explain", "--text", "To be", "--html"], "o.html"),
    ],
)
def test_a_command_replaces_its_own_output_alone(run, folder, tmp_path, argv, name):
    argv = [folder if word == "FOLDER" else word for word in argv]
    out = tmp_path / name
    for _ in "ab":
        assert run(*argv, str(out))[0] == 0
    whole = out.read_bytes()
    for foreign in (b"mine", whole[:4] + b"mine", b"\0" * 2000):
        out.write_bytes(foreign)
        code, stdout, err = run(*argv, str(out))
        assert (code, stdout) == (2, "")
        assert one_line(err, re.escape(str(out)) + r" is there already, and not as .*--force")
        assert out.read_bytes() == foreign
    assert run(*argv, str(out), "--force")[0] == 0
    assert out.read_bytes() == whole


def test_a_closed_pipe_as_windows_tells_of_it(run, monkeypatch):
    """Python says EINVAL there; of a file that cannot be, it says so with its name."""
    monkeypatch.setattr(cli, "WINDOWS", True)
    for error, code in (
        (OSError(errno.EINVAL, "Invalid argument"), 141),
        (OSError(errno.EINVAL, "Invalid argument", "a?b"), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 2),
    ):
        monkeypatch.setattr(tokenize, "run", raising(error))
        assert run("tokenize", "x")[0] == code


def test_patterns_are_expanded_where_no_shell_does(run, tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "[c].txt"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    seen = []
    monkeypatch.setattr(score, "run", lambda args: seen.append(args.files))
    monkeypatch.chdir(tmp_path)
    for windows in (True, False):
        monkeypatch.setattr(cli, "WINDOWS", windows)
        run("score", "?.txt", "-", "[c].txt", "no*", "a.txt")
    assert seen[0] == ["a.txt", "b.txt", "-", "[c].txt", "no*", "a.txt"]
    assert seen[1] == ["?.txt", "-", "[c].txt", "no*", "a.txt"]


@pytest.mark.parametrize(("told", "set_", "takes"), [(1, 1, True), (1, 0, False), (0, 1, False)])
def test_colours_go_where_a_windows_console_takes_them(monkeypatch, told, set_, takes):
    """Those before Windows 10 refuse the mode; a file has none. What is set is added to."""
    modes = []
    kernel32 = SimpleNamespace(
        GetConsoleMode=lambda handle, mode: setattr(mode._obj, "value", 0x3) or told,
        SetConsoleMode=lambda handle, mode: modes.append(mode) or set_,
    )
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    msvcrt = SimpleNamespace(get_osfhandle=lambda descriptor: 7)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    with open(os.devnull, "w", encoding="utf-8") as stream:
        assert streams._takes_escape_codes_on_windows(stream) is takes
    assert modes == [0x7] * told


def test_the_readme_s_commands_work_in_any_shell():
    """PowerShell 5 has no &&, cmd.exe no single quotes and no comments, and both their own ways
    to go on."""
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    commands = "".join(re.findall(r"```sh\n(.*?)```", readme, re.DOTALL))
    commands += "\n".join(re.findall(r"`((?:pip|python|pytest|gpt2np) [^`]*)`", readme))
    assert "gpt2np generate" in commands
    for lacking in ("&&", "'", "#", "\\\n", "$(", "`"):
        assert lacking not in commands


def raising(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize("newline", ["\r\n", None])
def test_lines_end_alike_on_every_system(monkeypatch, newline):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="cp1252", newline=newline)
    monkeypatch.setattr(sys, "stdout", stdout)
    assert (
        main(["tokenize", "--decode", *map(str, TOKENIZER.encode("caf\u00e9\r\n\U0001f600"))]) == 0
    )
    assert stdout.buffer.getvalue() == "caf\u00e9\r\n\U0001f600\n".encode()


@pytest.mark.parametrize("problem", ["full", "closed by its reader"])
@needs_posix
def test_messages_that_nobody_gets_fail_nothing(folder, problem):
    if problem == "full":
        if not os.path.exists("/dev/full"):
            pytest.skip("no device that is always full")
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stderr = os.pipe()
        os.close(reader)
    command = [sys.executable, "-m", "gpt2np", "score", "-m", folder, "--text", "a", "--format"]
    done = subprocess.run(
        [*command, "csv"], stdout=subprocess.PIPE, stderr=stderr, check=False, timeout=60
    )
    os.close(stderr)
    assert done.returncode == 0
    assert done.stdout.startswith(b'"file","line","index"')


@pytest.mark.parametrize(
    "argv",
    [
        ["--debug", "tokenize", "-f", "no/such"],
        ["tokenize", "--debug", "-f", "no/such"],
        ["tokenize", "-f", "no/such", "--debug"],
    ],
)
def test_debug_shows_the_traceback(run, argv):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("Traceback")
    assert "in read_text" in err
    assert "FileNotFoundError" in err.splitlines()[-1]


# Processes: signals, pipes and locales


@needs_posix
def test_interrupted(folder):
    with process("generate", "a", "-m", folder, "-n", "40000", "--ignore-eot") as child:
        assert child.stdout.read(20)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert out.endswith(b"\n")
    assert err.count(b"\n") == 1  # the model's name


@needs_posix
def test_interrupted_with_nothing_printed(folder):
    with process("generate", "a", "-m", folder, "-n", "40000", "--json", "--ignore-eot") as child:
        assert child.stderr.readline()
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60) == (b"", b"")
    assert child.returncode == 130


@pytest.mark.parametrize(
    "module", ["gpt2np.cli", "gpt2np.files", "gpt2np.commands", "numpy.linalg"]
)
def test_interrupted_while_something_is_imported(module):
    """What is here is what the script ``gpt2np`` does."""
    code = f"""if True:
        import signal, sys
        class Finder:
            def find_spec(self, name, *_):
                if name == {module!r}:
                    signal.raise_signal(signal.SIGINT)
        sys.meta_path.insert(0, Finder())
        from gpt2np.__main__ import main
        main()
    """
    command = [sys.executable, "-c", code, "tokenize", "x"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@needs_posix
def test_closed_pipe(folder):
    with process("generate", "a", "-m", folder, "-n", "40000", "--ignore-eot") as child:
        assert child.stdout.read(1)
        child.stdout.close()
        err = child.stderr.read()
        assert child.wait(60) == 141
    assert err.count(b"\n") == 1


@needs_posix
@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["tokenize", "Hello"]])
def test_pipe_closed_before_the_first_byte(argv):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    try:
        assert finished(*argv, stdout=write, env=env) == (141, None, b"")
    finally:
        os.close(write)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_full_disk():
    with open("/dev/full", "wb") as full:
        code, _, err = finished("tokenize", "Hello", stdout=full)
    assert code == 2
    assert one_line(err.decode(), ".*No space left on device")


@needs_posix
@pytest.mark.parametrize("encoding", [None, "ascii"])
def test_any_locale(encoding):
    """Python knows ASCII alone here; the text has UTF-8 and a byte that is not even that."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LC_", "LANG", "PYTHON"))
    }
    env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if encoding:
        env["PYTHONIOENCODING"] = encoding
    text = "w\u00f6 \ufffd"
    ids = TOKENIZER.encode(text)
    argument = b"w\xc3\xb6 \xff"
    assert finished("tokenize", "--ids", argument, env=env) == (
        0,
        " ".join(map(str, ids)).encode() + b"\n",
        b"",
    )
    out = b"w? ?\n" if encoding else text.encode() + b"\n"
    assert finished("tokenize", "--decode", *map(str, ids), env=env) == (0, out, b"")


def test_decode_speaks_json(run):
    code, out, _ = run("tokenize", "--decode", "15496", "995", "--json")
    assert code == 0
    assert json.loads(out) == {
        "text": "Hello world",
        "ids": [15496, 995],
        "tokens": ["Hello", " world"],
        "bytes": ["48656c6c6f", "20776f726c64"],
    }
