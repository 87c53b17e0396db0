"""gpt2np bench: that it measures the passes and products it says it does; never how fast."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import gpt2np
from gpt2np import bench
from gpt2np.commands import bench as command
from gpt2np.config import BY_NAME, Config
from gpt2np.errors import InputError
from gpt2np.saving import save
from gpt2np.schema import tensors

CONFIG = Config(vocab_size=50257, n_ctx=48, n_embd=16, n_head=2, n_layer=2)


def n_params() -> int:
    return sum(int(np.prod(shape)) for _, shape, _ in tensors(CONFIG))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = gpt2np.Model(gpt2np.Params.random(CONFIG), gpt2np.Tokenizer.gpt2())
    return str(save(model, tmp_path_factory.mktemp("model")))


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([*given, "--seconds", "0.01"])


@pytest.fixture(scope="module")
def found(folder):
    return bench.bench(gpt2np.load(folder), seconds=0.01)


def test_json_is_what_the_function_gives(folder, found, capsys, monkeypatch):
    monkeypatch.setattr(bench, "start", lambda model: (0.5, 123))
    command.run(arguments("--model", folder, "--json"))
    out, err = capsys.readouterr()
    printed = json.loads(out)
    assert err == ""  # no bar where standard error is no terminal
    assert printed.keys() == found.keys()
    assert printed["machine"] == found["machine"]
    assert [each["threads"] for each in printed["by_threads"]][-1] == 1
    assert (printed["cold_start_seconds"], printed["peak_memory_bytes"]) == (0.5, 123)
    assert [line.keys() for line in printed["decode"]] == [line.keys() for line in found["decode"]]


def test_the_model_is_described(folder, found):
    assert found["model"] == folder
    assert found["dtype"] == "float32"
    assert (found["parameters"], found["weight_bytes"]) == (n_params(), 4 * n_params())


def test_every_form_of_pass_is_measured(found):
    decode = [(line["batch"], line["cached"]) for line in found["decode"]]
    assert decode == [(1, 24), (1, 47), (4, 24), (16, 24), (64, 24)]
    assert [(line["new"], line["cached"]) for line in found["prefill"]] == [(12, 0), (24, 0)]


def test_figures_agree_with_each_other(found):
    layers = 2 * 12 * 16 * 16  # L x 12 x D x D
    head = 50257 * 16
    for line in [*found["decode"], *found["prefill"]]:
        assert line["fraction"] > 0  # how much more depends on what else the machine is doing
        assert line["fraction"] == pytest.approx(line["limit_seconds"] / line["seconds"])
        tokens = line["batch"] * line["new"]
        assert line["tokens_per_second"] == pytest.approx(tokens / line["seconds"])
        assert line["limit_tokens_per_second"] == pytest.approx(tokens / line["limit_seconds"])
        gigabytes = line["limit_gigabytes_per_second"] * line["limit_seconds"]
        assert gigabytes == pytest.approx(4e-9 * (layers + head))
        # The head is for the last position alone.
        gigaflops = line["limit_gigaflops"] * line["limit_seconds"]
        assert gigaflops == pytest.approx(2e-9 * (tokens * layers + line["batch"] * head))


def test_every_form_of_product_is_timed(found):
    rows = [(line["matrix"], line["rows"]) for line in found["few_rows"]]
    assert rows == [(m, n) for m in ("mlp.c_fc", "mlp.c_proj", "logits") for n in (1, 4, 16, 64)]
    for line in found["few_rows"]:
        assert list(line["milliseconds"]) == ["row by row", "x W", "(W^T x^T)^T", "gpt2np"]
        assert all(taken > 0 for taken in line["milliseconds"].values())


def test_a_process_was_started(found):
    assert found["cold_start_seconds"] > 0
    # NumPy alone takes more than this; the test's own process, far more.
    assert found["weight_bytes"] + 20e6 < found["peak_memory_bytes"] < found["weight_bytes"] + 150e6


def test_the_table_shows_each_figure(folder, capsys, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(bench, "start", lambda model: (0.5, None))
    command.run(arguments("--model", folder))
    out = capsys.readouterr().out
    for words in (
        f"{n_params():,} parameters",
        "OPENBLAS_CORETYPE=Haswell is set",
        "decode, batch 64, 24 cached",
        "prefill of 24",
        "mlp.c_proj, 16 rows",
        "GB/s",
        "GFLOP/s",
        "threads      tokens/s",
        "cold start   0.50 s",
        "peak memory  unknown",
    ):
        assert words in out


def test_products_are_those_of_the_pass(monkeypatch):
    """The products timed multiply the same rows by the same matrices as the forward pass does."""
    params = gpt2np.Params.random(CONFIG)
    weights = {id(params[name]): name for name, shape, _ in tensors(CONFIG) if len(shape) == 2}
    seen: list[tuple[int, int, int]] = []
    real = bench.product

    def watched(x, m):
        seen.append((x.shape[0], *m.shape))
        return real(x, m)

    monkeypatch.setattr(bench, "product", watched)
    bench.products(params, 6, head_rows=2)()
    assert len(weights) == 2 * 4 + 2  # the matrices of both layers, wte and wpe
    assert seen == 2 * [(6, 16, 48), (6, 16, 16), (6, 16, 64), (6, 64, 16)] + [(2, 16, 50257)]


def test_measuring_passes_over_the_positions_it_is_given(monkeypatch):
    params = gpt2np.Params.random(CONFIG)
    seen = set()
    real = bench.forward

    def watched(params, ids, cache, *, last_only):
        seen.add((*ids.shape, cache.length, cache.capacity, last_only))
        return real(params, ids, cache, last_only=last_only)

    limits = []
    monkeypatch.setattr(bench, "forward", watched)
    monkeypatch.setattr(
        bench,
        "products",
        lambda _, rows, head_rows: limits.append((rows, head_rows)) or (lambda: None),
    )
    bench.measure(params, batch=3, new=5, cached=7, seconds=0.05)
    assert seen == {(3, 5, 7, 12, True)}
    assert limits == [(15, 3)]


def test_times_are_taken_in_turn():
    calls: list[str] = []
    bench.in_turn([lambda: calls.append("a"), lambda: calls.append("b")], 0.001)
    assert calls[:4] == ["a", "b", "a", "b"]
    assert len(calls) % 2 == 0
    calls.clear()
    bench.in_turn([lambda: calls.append("a"), lambda: calls.append("b")], 0.0)
    assert calls == ["a", "b"]


def test_a_context_of_one_position():
    config = Config(vocab_size=10, n_ctx=1, n_embd=4, n_head=2, n_layer=1)
    params = gpt2np.Params.random(config)
    for form in bench.forms(config):
        assert bench.measure(params, **form, seconds=0.001).seconds > 0


def test_peak_memory_is_the_system_s():
    resource = pytest.importorskip("resource", reason="this system does not tell")
    pages = np.ones(50_000_000, np.uint8)
    peak = bench.peak_memory()
    del pages
    if peak is None:
        pytest.skip("this system does not tell")
    assert peak > 50e6
    assert peak == pytest.approx(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, rel=0.1)


@pytest.mark.parametrize("name", ["distilgpt2", "82M"])
def test_a_shape_needs_no_model(monkeypatch, capsys, tmp_path, name):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(BY_NAME, name, BY_NAME["distilgpt2"]._replace(config=CONFIG))
    command.run(arguments("--shape", name, "--json"))
    printed = json.loads(capsys.readouterr().out)
    assert printed["model"] == f"random weights of the shape of {name}"
    assert printed["cold_start_seconds"] > 0
    assert not os.listdir(tmp_path)  # on Windows too, which removes nothing that is mapped


def test_what_a_system_does_not_tell_is_unknown(monkeypatch):
    monkeypatch.setattr(np, "show_config", lambda mode: {"Build Dependencies": {"blas": {}}})
    monkeypatch.setattr(Path, "read_text", lambda path, **_: "Name:\tpython\n")
    assert bench.machine()["blas"] == "unknown unknown"
    assert bench.peak_memory() is None


def test_decoding_is_timed_on_all_threads_and_on_one(folder, monkeypatch):
    seen = []
    run = subprocess.check_output
    monkeypatch.setattr(
        subprocess, "check_output", lambda *a, **k: seen.append(k["env"]) or run(*a, **k)
    )
    for name in bench.THREADS:
        monkeypatch.setenv(name, "2")
    found = bench.by_threads(gpt2np.load(folder), 0.01)
    assert [each["threads"] for each in found] == [2, 1]
    assert all(each["tokens_per_second"] > 0 for each in found)
    assert [{env[name] for name in bench.THREADS} for env in seen] == [{"2"}, {"1"}]
    monkeypatch.setattr(bench, "n_threads", lambda: 1)
    assert [each["threads"] for each in bench.by_threads(gpt2np.load(folder), 0.01)] == [1]


@pytest.mark.parametrize(
    ("all_threads", "advice"), [(50, ": set OPENBLAS_NUM_THREADS=1"), (95, "")]
)
def test_one_thread_is_advised_where_it_is_faster(all_threads, advice):
    rates = [
        {"threads": 2, "tokens_per_second": all_threads},
        {"threads": 1, "tokens_per_second": 100},
    ]
    assert command._threads(rates).endswith(f": {all_threads} on 2, 100 on 1{advice}")


def test_threads_are_those_that_blas_is_told(monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VECLIB_MAXIMUM_THREADS", "3")
    assert bench.n_threads() == 3


def test_what_cannot_be_measured_is_refused(folder):
    with pytest.raises(InputError, match="not both"):
        command.run(arguments("--model", folder, "--shape", "gpt2"))
    for name in ("gpt3", ""):
        with pytest.raises(InputError, match=f"--shape {name}: known are gpt2, 124M"):
            command.run(arguments("--shape", name))
    with pytest.raises(InputError, match="not in a file"):
        bench.bench(gpt2np.Model(gpt2np.Params.random(CONFIG)), seconds=0.01)


def test_a_process_that_fails_is_told(folder, monkeypatch, capfd):
    model = gpt2np.load(folder)
    monkeypatch.setattr(bench, "_START", "raise SystemExit('no luck')")
    with pytest.raises(InputError, match="failed"):
        bench.start(model)
    assert "no luck" in capfd.readouterr().err


def test_a_packed_program_is_no_python(folder, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(InputError, match="a packed program cannot"):
        bench.start(gpt2np.load(folder))


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_odd_times_are_refused(folder, seconds):
    given = arguments("--model", folder)
    given.seconds = float(seconds)
    with pytest.raises(InputError, match="give more than 0, at most 3600"):
        command.run(given)
