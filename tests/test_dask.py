"""Scoring a corpus with dask.distributed, by the README's recipe: two worker processes."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from models import saved_model

import gpt2np

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="/proc tells of memory on Linux alone"
)

TEXTS = [f"This is text number {i}, which is none of the others. " * (i % 4 + 1) for i in range(16)]
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of 90 MB, so that a copy of its weights would show."""
    path = tmp_path_factory.mktemp("model")
    return Path(saved_model(path, gpt2np.Tokenizer.gpt2(), n_ctx=64, n_embd=384, n_head=6))


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def surprisal(text, model):
    return gpt2np.score(model, text).surprisal


def memory(file=None):
    """Bytes that this process holds: memory of its own, and pages of a file."""
    own = kilobytes("Anonymous", Path("/proc/self/smaps_rollup").read_text())
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M)
    of_file = [one for one in maps if file and one.split("\n", 1)[0].endswith(str(file))]
    pages = sum(kilobytes("Rss", one) - kilobytes("Anonymous", one) for one in of_file)
    return {"own": own * 1024, "pages": pages * 1024}


def kilobytes(name, entry):
    return int(re.search(rf"^{name}: +(\d+) kB", entry, re.M)[1])


def held(texts, model, file):
    """Score, and give what this process holds then beside the model."""
    for text in texts:
        surprisal(text, model)
    return os.getpid(), memory(file)


def test_a_model_pickles_to_its_source(folder):
    model = gpt2np.load(folder)
    data = pickle.dumps(model)
    assert len(data) < 1000
    copy = pickle.loads(data)
    assert copy.source == model.source
    np.testing.assert_array_equal(copy.params.wte, model.params.wte)


def test_same_numbers_as_one_process(client, folder):
    model = gpt2np.load(folder)
    futures = client.map(surprisal, TEXTS, model=model)
    for text, found in zip(TEXTS, client.gather(futures), strict=True):
        # Dask gives each worker one BLAS thread, and the order of sums depends on their number.
        np.testing.assert_allclose(found, surprisal(text, model), rtol=1e-6)
    workers = {address for where in client.who_has(futures).values() for address in where}
    assert len(workers) == 2


def test_no_worker_holds_a_copy_of_the_weights(client, folder):
    model = gpt2np.load(folder)
    file = folder / "model.safetensors"
    size = file.stat().st_size
    assert size > 80 * MEGABYTE
    before = client.run(memory)
    # The model as an argument of each task: a worker opens it for the task alone.
    found = {
        address: client.submit(held, TEXTS, model, file, workers=[address], pure=False)
        for address in before
    }
    after = {address: future.result() for address, future in found.items()}
    assert len({pid for pid, _ in after.values()} | {os.getpid()}) == 3
    for address, (_, now) in after.items():
        # mlp.c_proj is laid out anew on loading; the rest is the tokenizer and what is computed.
        laid_out = sum(p.mlp.c_proj.weight.nbytes for p in model.params.blocks)
        assert now["own"] - before[address]["own"] < laid_out + size / 2
        assert now["pages"] > 0.9 * (size - laid_out)
