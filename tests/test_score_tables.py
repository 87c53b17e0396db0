"""gpt2np score of tables: columns carried through, a word in each row, and Dask's workers."""

import csv
import io
import json
import os
import signal
import threading
import time

import numpy as np
import pytest
from models import saved_model

import gpt2np
from gpt2np import scoring
from gpt2np.commands import score as command

TABLE = """item,condition,sentence
1,a,The horse raced past the barn fell.
1,b,"The horse, which was ""raced"", fell
down."
2,a,
"""
WORDS = """item,condition,region,note
1,a,The,x
1,a,horse,
2,a,Did,"y, z"
1,a,fell.,
2,a,n't,
2,a,go.,
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    return saved_model(path, gpt2np.Tokenizer.gpt2(), n_ctx=32, n_embd=8, n_layer=1)


@pytest.fixture(scope="module")
def model(folder):
    return gpt2np.load(folder)


@pytest.fixture
def score(run, folder, tmp_path):
    """Run gpt2np score on a content of a file."""

    def score_(content, *options, name="in.csv"):
        (tmp_path / name).write_text(content, encoding="utf-8")
        return run("score", "-m", folder, tmp_path / name, *options)

    return score_


@pytest.fixture
def run(run):
    return lambda *argv: run(*map(str, argv))


def rows_of(text, delimiter=","):
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def test_the_other_columns_are_carried_through(score, model, tmp_path):
    texts = [row["sentence"] for row in rows_of(TABLE)]
    expected = scoring.score(model, texts)
    for options, name in (((), "in.csv"), (("--input-format", "csv"), "in.txt")):
        code, out, _ = score(TABLE, "--column", "sentence", "--format", "csv", *options, name=name)
        assert code == 0
        rows = rows_of(out)
        assert list(rows[0])[:5] == ["file", "line", "index", "item", "condition"]
        assert [(r["item"], r["condition"]) for r in rows] == [
            pair
            for s, pair in zip(expected, [("1", "a"), ("1", "b"), ("2", "a")], strict=True)
            for _ in s.ids
        ]
        assert [float(r["surprisal"]) for r in rows] == pytest.approx(
            np.concatenate([s.surprisal for s in expected]), abs=2e-5
        )
    code, out, _ = score(
        TABLE.replace(",", "\t"), "--column", "item", "--format", "tsv", name="a.tsv"
    )
    assert (code, rows_of(out, "\t")[0]["condition"]) == (0, "a")
    code, _, _ = score(TABLE, "--column", "sentence", "--words", "-o", tmp_path / "o.jsonl")
    records = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [(r["item"], r["condition"], r["line"]) for r in records] == [
        ("1", "a", 1), ("1", "b", 2), ("2", "a", 3),
    ]  # fmt: skip
    assert [r["bits"] for r in records] == pytest.approx(
        [sum(w.surprisal for w in s.words()) for s in expected], abs=2e-5
    )


def test_the_fields_of_json_lines_are_carried_through(score, tmp_path):
    lines = [{"text": "a b", "nr": 1, "tags": ["x"]}, {"text": "c", "nr": None}]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    assert score(content, "-o", tmp_path / "o.jsonl", name="a.jsonl")[0] == 0
    records = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [(r["nr"], r.get("tags")) for r in records] == [(1, ["x"]), (None, None)]
    _, out, _ = score(content, "--format", "csv", name="a.jsonl")
    assert [(r["nr"], r["tags"]) for r in rows_of(out)] == [("1", '["x"]')] * 2 + [("", "")]
    half = tmp_path / "o.jsonl"
    half.write_bytes(half.read_bytes().splitlines(True)[0])
    assert score(content, "-o", half, "--resume", name="a.jsonl")[0] == 0
    assert half.read_text().count("\n") == 2


def test_a_column_may_be_called_id(score, model, tmp_path):
    s = scoring.score(model, "a b")
    for content, name, options in (
        ("id,sentence\ns7,a b\n", "in.csv", ("--column", "sentence")),
        ('{"id": "s7", "text": "a b"}\n', "in.jsonl", ()),
    ):
        code, out, _ = score(content, *options, "--format", "csv", name=name)
        assert code == 0
        assert [(r["id"], int(r["token_id"])) for r in rows_of(out)] == [("s7", i) for i in s.ids]
        output = tmp_path / f"{name}.out.jsonl"
        assert score(content, *options, "-o", output, name=name)[0] == 0
        record = json.loads(output.read_text())
        assert (record["id"], record["ids"]) == ("s7", s.ids)


@pytest.mark.parametrize("join", [" ", ""])
def test_a_word_in_each_row(score, model, join):
    code, out, _ = score(WORDS, "--word-column", "region", "--by", "item,condition", "--join", join)
    assert code == 0
    rows, given = rows_of(out), rows_of(WORDS)
    assert [{name: row[name] for name in given[0]} for row in rows] == given  # in their order
    for item, words in (("1", ["The", "horse", "fell."]), ("2", ["Did", "n't", "go."])):
        expected = scoring.score(model, join.join(words)).words(words)
        of_item = [row for row in rows if row["item"] == item]
        assert [float(row["surprisal"]) for row in of_item] == pytest.approx(
            [word.surprisal for word in expected], abs=2e-5
        )
        assert [row["shared"] for row in of_item] == [str(word.shared) for word in expected]
        assert [int(row["n_tokens"]) for row in of_item] == [w.stop - w.first for w in expected]


def test_a_whole_table_may_be_one_text(score, model):
    _, out, _ = score("w\nThe\ncat\n", "--word-column", "w", "--boundary", "none")
    plain = scoring.score(model, "The cat").words(boundary=None)
    assert [float(row["surprisal"]) for row in rows_of(out)] == pytest.approx(
        [word.surprisal for word in plain], abs=2e-5
    )


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (TABLE, "", "is a table of the columns item, condition, sentence: name the texts' with"),
        (TABLE, "--column text", "has no column 'text': it has item, condition, sentence"),
        (WORDS, "--word-column word", "has no column 'word'"),
        (WORDS, "--word-column region --by id", "has no column 'id'"),
        ("a,a\n1,2\n", "--column a", "has two columns called 'a'"),
        ("a,b\n1\n", "--column a", "row 1 has 1 cells, and the table 2 columns"),
        ("", "--column a", "is empty: a table begins with the names of its columns"),
        ('a\n"x', "--column a", "is not csv: "),
        ("a,index\nx,1\n", "--column a --format csv", "a column 'index', and so has what is"),
        ("a,bits\nx,1\n", "--column a --format jsonl", "a column 'bits', and so has what is"),
        ("a,entropy\nx,1\n", "--word-column a", "a column 'entropy', and so has what is"),
        ('a\n x\n" "\n', "--word-column a", "row 2 has no word in column a"),
        (WORDS, "--word-column region --format table", "no table, no --resume"),
        (WORDS, "--word-column region --input-format text", "is no table"),
    ],
)
def test_tables_that_cannot_be_scored(score, content, options, message):
    code, out, err = score(content, *options.split())
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert err.count("error: ") == 1


def test_a_table_as_prose_where_that_is_asked_for(score):
    code, out, _ = score("a,b\n", "--input-format", "text")
    assert code == 0
    assert "','" in out


def test_an_infinite_surprisal_is_written_as_such(model):
    s = scoring.score(model, "a b")
    s.logprobs[1] = -np.inf
    document = command.Document("f", None, "a b")
    settings = {"unit": "token"}
    record = json.loads(command._json_line(document, s, settings))
    assert (record["surprisal"][1], record["bits"], record["perplexity"]) == ("inf", "inf", "inf")
    assert [float(x) for x in record["surprisal"]][1] == np.inf
    rows = command._rows(document, s, settings, [], ",")
    assert float(rows_of("a,b,c,d,e,f,g,bits,rank,entropy\n" + rows)[1]["bits"]) == np.inf
    total = command.Total()
    total.add(2, 2, "inf")
    assert "perplexity: inf" in str(total)


# Dask


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        local_directory=str(tmp_path_factory.mktemp("dask")),
    ) as cluster:
        yield cluster


def test_dask_gives_the_same_in_the_same_order_though_a_worker_is_killed(
    score, cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(command, "BATCH", 60)
    lines = "".join(json.dumps({"text": f"This is text {i}."}) + "\n" for i in range(120))
    score(lines, "-o", tmp_path / "one.jsonl", name="a.jsonl")
    address = cluster.scheduler_address
    pids = [worker.pid for worker in cluster.workers.values()]

    def kill():
        time.sleep(0.5)
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    options = ("--dask", address, "-o", tmp_path / "two.jsonl")
    assert score(lines, *options, name="a.jsonl")[0] == 0
    killer.join()
    one, two = ((tmp_path / f"{n}.jsonl").read_text().splitlines() for n in ("one", "two"))
    assert len(one) == len(two) == 120
    for a, b in zip(map(json.loads, one), map(json.loads, two), strict=True):
        for name in ("surprisal", "entropy"):  # the order of sums depends on the number of threads
            assert a.pop(name) == pytest.approx(b.pop(name), abs=2e-4)
        for name in ("bits", "perplexity"):
            assert a.pop(name) == pytest.approx(b.pop(name), rel=1e-4)
        assert a == b
    half = tmp_path / "two.jsonl"
    half.write_bytes(b"".join(half.read_bytes().splitlines(True)[:50]))
    assert score(lines, *options, "--resume", name="a.jsonl")[0] == 0
    assert len(half.read_text().splitlines()) == 120


def test_dask_that_is_not_there(score):
    pytest.importorskip("distributed", reason="Dask is not installed")
    code, _, err = score("a\n", "--dask", "tcp://127.0.0.1:1", name="a.txt")
    assert code == 2
    assert "there is no Dask scheduler at tcp://127.0.0.1:1" in err
