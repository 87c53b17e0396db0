"""What the command line answers to what it does not understand, and the examples of its help."""

import shlex

import pytest
from models import saved_model

import gpt2np
from gpt2np.cli import COMMANDS, EXAMPLES
from gpt2np.commands.golden import ACTIONS
from gpt2np.golden.tiny import IDS, tiny_model

ANSWERS = [
    ("generat x",                     "there is no command 'generat': did you mean generate?"),
    ("--versio",                      "there is no option --versio: did you mean --version?"),
    ("generate x --max-tokens 3",     "no option --max-tokens: did you mean --max-new-tokens?"),
    ("generate x --max-length=3",     "no option --max-length: did you mean --max-new-tokens?"),
    ("generate x --num-beam 3",       "no option --num-beam: did you mean --num-beams?"),
    ("generate x --do-sample",        "no option --do-sample: did you mean --temperature?"),
    ("generate x -n5 --stop-string y", "no option --stop-string: did you mean --stop?"),
    ("generate -hello",               "-hello: a text that begins with - goes after -- or in --p"),
    ("tokenize -x",                   "-x: a text that begins with - goes after -- or in --text="),
    ("score -x",                      "-x: a text that begins with - goes in --text="),
    ("generate --prompt -zoo",        "a value that begins with - is written --prompt=-zoo"),
    ("generate x --stop -foo",        "one that begins with - is written --stop=-..."),
    ("generate --text x",             "no option --text: did you mean --prompt?"),
    ("tokenize --prompt x",           "no option --prompt: did you mean --text?"),
    ("score --prompt x",              "no option --prompt: did you mean --text?"),
    ("generate x --prompt y",         "--prompt: not allowed with argument PROMPT"),
    ("generate x --max-length 3",     "--max-new-tokens? It does not count the prompt"),
    ("generate x --min-new-tokens 3", "--min-new-tokens: --ignore-eot goes on after the end"),
    ("generate x --device cuda",      "no option --device: leave it out, everything runs on the"),
    ("score --device cuda x",         "no option --device: leave it out, everything runs on the"),
    ("generate x --greedy",           "no option --greedy: -t 0 is greedy"),
    ("generate -n 4",                 '; the PROMPT "-" reads standard input'),
    ("tokenize",                      '; the TEXT "-" reads standard input'),
    ("score",                         '; the FILE "-" reads standard input'),
    ("generate -i -o out.txt",        "-i asks and answers in the terminal: leave out -o"),
    ("download tiny-shakespeare",     "tiny-shakespeare is embedded: there is nothing to download"),
    ("download GPT2",                 "did you mean 'gpt2'"),
    ("download 124m",                 "did you mean '124M'"),
    ("generate hello world",          "unexpected argument 'world': put a text of several"),
    ("golden chek a b",               "there is no 'chek': did you mean check?"),
    ("golden check --rtl 3 a b",      "no option --rtl: did you mean --rtol?"),
    ("generate x --on-full slid",     "--on-full: there is no 'slid': did you mean slide?"),
    ("generate x --dtype int8",       "'int8': choose from float32, float64"),
    ("generate x -k many",            "argument -k/--top-k: 'many' is not a whole number"),
    ("bench --seconds few",           "argument --seconds: 'few' is not a number"),
    ("generate x -k 0",               "--top-k must be an integer >= 1, not 0"),
    ("generate x --top-p 2",          "--top-p must be a number from 0 to 1, not 2.0"),
    ("generate x -n 600",             "--max-new-tokens 600 make 601"),
    ("generate x -n 600",             "shorten them, or set --on-full slide"),
    ("generate x --beams 2 -t 0.5",   "--beams 2 is beam search"),
    ("generate x --num-beams 0",      "--beams must be an integer >= 1, not 0"),
    ("generate x --stop ''",          "--stop is an empty text"),
    ("golden record a.npz --ids ''",  "nothing to read: give --text or --ids"),
    ("golden record a.npz --text ''", "nothing to read: give --text or --ids"),
    ("golden record a.npz --ids 5,7 --new -1", "--new must be an integer >= 0, not -1"),
    ("golden record a.npz --ids 5 --cache-split 1", "--cache-split is 1; one token is not split"),
    ("explain attn.score",            "no component 'attn.score': did you mean attn.scores?"),
    ("generate x --beams 2 -t 0.5",   "leave out --temperature"),
    ("score 'What is thy name?'",     "no file 'What is thy name?'; give a text itself by --text"),
    ("score What",                    "no file 'What'; give a text itself by --text"),
    ("score --text x --window 0",     "--window must be an integer from 2 to 512, not 0"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "answer"), ANSWERS)
def test_what_is_wrong_is_answered_in_one_line(run, line, answer):
    code, out, err = run(*shlex.split(line))
    assert (code, out) == (2, "")
    *told, last = err.splitlines()
    assert all(line.startswith("gpt2np: tiny-shakespeare") for line in told)
    assert answer in last


def test_a_text_may_begin_with_a_hyphen(run):
    for argv in (["--ids", "--", "-x"], ["--ids", "--text=-x"], ["--text=-x", "--ids"]):
        assert run("tokenize", *argv) == (0, "12 87\n", "")
    assert run("tokenize", "--ids", "-5 degrees")[0] == 0
    settings = "-t", "0", "-n", "3"
    expected = run("generate", *settings, "--", "-x")
    assert expected[1].startswith("-x")
    for argv in ([*settings, "--prompt=-x"], ["--prompt=-x", *settings]):
        assert run("generate", *argv) == expected


def test_beams_go_by_the_library_s_name_too(run):
    settings = "generate", "ROMEO:", "-n", "5"
    assert run(*settings, "--num-beams", "2") == run(*settings, "--beams", "2")


def test_a_stop_string_may_be_a_line_break(run, tmp_path):
    expected = gpt2np.generate(gpt2np.load(), "ROMEO:", seed=1, stop="\n\n").text
    for stop in (r"\n\n", "\n\n"):
        code, out, _ = run("generate", "ROMEO:", "--seed", "1", "--stop", stop)
        assert (code, out) == (0, f"ROMEO:{expected}\n")


def test_each_command_has_two_examples(run):
    assert EXAMPLES.keys() == COMMANDS.keys()
    for name, examples in EXAMPLES.items():
        _, out, _ = run(name, "--help")
        assert len(examples) == 2
        assert all(example in out.splitlines()[-2:][i] for i, example in enumerate(examples))


@pytest.mark.parametrize("action", ACTIONS)
def test_each_part_of_golden_has_two_examples(run, tmp_path, monkeypatch, action):
    monkeypatch.chdir(tmp_path)
    gpt2np.golden.record(tiny_model(), IDS).save("mine.npz")
    if action == "check":
        gpt2np.golden.record(tiny_model(), IDS).save("golden.npz")
        run("golden", "tokens", "kit")
        cases = (tmp_path / "kit" / "cases.txt").read_text(encoding="utf-8").splitlines()
        ids = "".join(line.split("\t")[2] + "\n" for line in cases)
        (tmp_path / "ids.txt").write_text(ids, encoding="utf-8")
    code, out, _ = run("golden", action, "--help")
    two = ACTIONS[action][1]
    assert (code, out.splitlines()[-2:]) == (0, [f"  {example}" for example in two])
    assert "--debug" in out
    for example in two:
        argv = ["tiny-shakespeare" if a == "gpt2" else a for a in shlex.split(example)[1:]]
        code, _, err = run(*argv)
        assert code == 0, err


@pytest.mark.parametrize(
    "example",
    [e for name, two in EXAMPLES.items() if name not in ("download", "bench") for e in two],
)
def test_the_examples_run(run, tmp_path, monkeypatch, example):
    """With the embedded model in place of those that would be downloaded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("ROMEO:\n", encoding="utf-8")
    (tmp_path / "corpus.jsonl").write_text('{"text": "a b"}\n', encoding="utf-8")
    (tmp_path / "corpus.txt").write_text("To be, or not to be", encoding="utf-8")
    question = '{"prefix": "To", "choices": ["be", "go"], "answer": 0}\n'
    (tmp_path / "questions.jsonl").write_text(question, encoding="utf-8")
    gpt2np.golden.record(tiny_model(), IDS).save("mine.npz")
    gpt2np.golden.record(tiny_model(), IDS).save("golden.npz") if "check" in example else None
    saved = saved_model("folder" if "info" in example else "other", n_embd=8)
    known = {"gpt2": "tiny-shakespeare", "ckpt.pt": saved}
    program, *argv = [known.get(part, part) for part in shlex.split(example)]
    assert program == "gpt2np"
    code, _, err = run(*argv)
    assert code == 0, err
