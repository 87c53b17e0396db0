"""How fast a model is on this machine, and how close that is to what the machine can do.

Every pass through the model is timed in turn with its matrix products alone. Those are its limit:
a product of one row takes as long as its weights take to come from memory, and one of many rows
as long as its multiplications take.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from gpt2np.cache import KVCache
from gpt2np.config import Config
from gpt2np.errors import InputError
from gpt2np.kernels import product
from gpt2np.loading import Model
from gpt2np.model import forward
from gpt2np.params import Array, Params

SECONDS = 0.5  # to spend on each measurement
BATCHES = (4, 16, 64)

# Settings that bind NumPy's BLAS to other kernels and blocks than it would choose by itself.
BLAS_SETTINGS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
# How many threads it may use; Accelerate's is the last.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class Speed:
    """How fast passes of one form go, and how fast their products alone would."""

    batch: int  # B, the sequences
    new: int  # T, the positions that a pass adds to each
    cached: int  # the positions that each held before
    seconds: float  # one pass
    limit_seconds: float  # its products alone
    tokens_per_second: float
    limit_tokens_per_second: float
    limit_gigabytes_per_second: float  # of weights, in the products
    limit_gigaflops: float
    fraction: float  # of the limit that is reached


def measure(
    params: Params, *, batch: int = 1, new: int = 1, cached: int = 0, seconds: float = SECONDS
) -> Speed:
    """Time passes over `new` positions behind `cached` ones, for the last position's logits.

    Parameters
    ----------
    params : Params
    batch, new, cached : int
        B sequences; T new positions of each (1 when decoding); positions they hold already.
    seconds : float
        How long to go on measuring; one pass is timed in any case.

    Examples
    --------
    >>> from gpt2np.config import Config
    >>> params = Params.random(Config(vocab_size=10, n_ctx=8, n_embd=4, n_head=2, n_layer=1))
    >>> speed = measure(params, batch=2, new=3, cached=5, seconds=0.01)
    >>> speed.fraction == speed.limit_seconds / speed.seconds
    True
    """
    work = one_pass(params, batch, new, cached)
    limit = products(params, batch * new, head_rows=batch)
    taken, least = in_turn([work, limit], seconds)
    layers, head = sum(m.size for m in matrices(params)), params.lm_head.size
    return Speed(
        batch,
        new,
        cached,
        taken,
        least,
        tokens_per_second=batch * new / taken,
        limit_tokens_per_second=batch * new / least,
        limit_gigabytes_per_second=(layers + head) * params.dtype.itemsize / least / 1e9,
        limit_gigaflops=2 * batch * (new * layers + head) / least / 1e9,
        fraction=least / taken,
    )


def one_pass(params: Params, batch: int, new: int, cached: int) -> Callable[[], None]:
    """Make the function that passes over `new` positions behind `cached` ones."""
    cache = KVCache(params, batch, cached + new)
    cache.keys[...], cache.values[...] = 0, 0  # what they hold makes no difference to the speed
    cache.advance(np.zeros((batch, cached), np.intp))
    ids = np.zeros((batch, new), np.intp)

    def run() -> None:
        forward(params, ids, cache, last_only=True)
        cache.truncate(cached)

    return run


def matrices(params: Params) -> list[Array]:
    """Give the matrices of the layers, [in, out], in the order in which they are read."""
    return [
        p.weight
        for block in params.blocks
        for p in (block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj)
    ]


def products(params: Params, rows: int, head_rows: int) -> Callable[[], None]:
    """Make the function that does the matrix products of a pass, and nothing else."""
    pairs = [(m, rows) for m in matrices(params)] + [(params.lm_head.T, head_rows)]
    # One input of each shape: the weights alone come from memory, as in a pass.
    x = {(n, m.shape[0]): np.ones((n, m.shape[0]), m.dtype) for m, n in pairs}
    calls = [(x[n, m.shape[0]], m) for m, n in pairs if n]

    def run() -> None:
        for x, m in calls:
            product(x, m)

    return run


# The forms that `kernels.product` chooses from, and what it chooses.
FORMS: dict[str, Callable[[Array, Array], Array]] = {
    "row by row":  lambda x, W: (x[:, None] @ W)[:, 0],
    "x W":         lambda x, W: x @ W,
    "(W^T x^T)^T": lambda x, W: (W.T @ x.T).T,
    "gpt2np":      product,
}  # fmt: skip


def few_rows(params: Params, seconds: float) -> list[dict[str, Any]]:
    """Time every form of product over few rows: milliseconds for all matrices of a kind."""
    blocks = params.blocks
    kinds = {
        "mlp.c_fc": [p.mlp.c_fc.weight for p in blocks],
        "mlp.c_proj": [p.mlp.c_proj.weight for p in blocks],
        "logits": [params.lm_head.T],
    }
    found = []
    for kind, weights in kinds.items():
        for n in (1, *BATCHES):
            x = np.ones((n, weights[0].shape[0]), params.dtype)
            works = [partial(_each, form, x, weights) for form in FORMS.values()]
            best = in_turn(works, seconds / 4)
            taken = {form: 1e3 * t for form, t in zip(FORMS, best, strict=True)}
            found.append({"matrix": kind, "rows": n, "milliseconds": taken})
    return found


def _each(form: Callable[[Array, Array], Array], x: Array, weights: list[Array]) -> None:
    for W in weights:
        form(x, W)


@np.errstate(all="ignore")  # some BLAS raise flags that mean nothing: Accelerate on an M4
def in_turn(functions: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Give the best times of functions that are called in turn until the time is up."""
    best = [float("inf")] * len(functions)
    end = perf_counter() + seconds
    while True:
        for i, function in enumerate(functions):
            start = perf_counter()
            function()
            best[i] = min(best[i], perf_counter() - start)
        if perf_counter() >= end:
            return best


def forms(config: Config) -> list[dict[str, int]]:
    """The passes to measure: decoding at both ends of the context, batches, long prompts."""
    n_ctx = config.n_ctx
    near = min(64, n_ctx // 2)
    return [
        {"batch": 1, "new": 1, "cached": near},
        {"batch": 1, "new": 1, "cached": n_ctx - 1},
        *({"batch": size, "new": 1, "cached": near} for size in BATCHES),
        *({"batch": 1, "new": max(1, n_ctx // part), "cached": 0} for part in (4, 2)),
    ]


# Run by a process of its own: prints the first token, then the peak of its memory after more.
_START = """
import sys, gpt2np
source, dtype, new = sys.argv[1:]
model = gpt2np.load(source, dtype=dtype)
gpt2np.generate(model, [0], max_new_tokens=1, temperature=0)
print("first", flush=True)
gpt2np.generate(model, [0], max_new_tokens=int(new), temperature=0, stop_at_eot=False)
from gpt2np.bench import peak_memory
print(peak_memory() or "")
"""


def start(model: Model) -> tuple[float, int | None]:
    """Give the seconds from the start of a process to its first token, and the peak of its memory
    in bytes after up to 32 tokens; None where the system does not tell."""
    if model.source is None:
        raise InputError("a process cannot be started for a model that is not in a file")
    if getattr(sys, "frozen", False):  # then it is this program that sys.executable starts
        raise InputError("bench starts Python, which a packed program cannot: run it from Python")
    new = str(min(32, model.config.n_ctx - 1))
    began = perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", _START, model.source, str(model.params.dtype), new],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = iter(process.stdout or ())
        next(lines, "")
        taken = perf_counter() - began
        peak = next(lines, "").strip()
    if process.returncode:
        raise InputError(f"a process that generates with {model.source} failed: see above")
    return taken, int(peak) if peak else None


# Run by a process of its own: prints how many tokens a second it decodes, each delay counted.
_DECODE = """
import sys, gpt2np
from time import perf_counter
from gpt2np.bench import one_pass
source, dtype, seconds, cached = sys.argv[1:]
run, n = one_pass(gpt2np.load(source, dtype=dtype).params, 1, 1, int(cached)), 0
run()
began = perf_counter()
while perf_counter() - began < float(seconds) or not n:
    run()
    n += 1
print(n / (perf_counter() - began))
"""


def by_threads(model: Model, seconds: float) -> list[dict[str, Any]]:
    """Decode with the threads that BLAS has here, and with one: tokens a second on average.

    Not at best: threads that wait for each other lose most where other processes are at work.
    """
    cached = str(min(64, model.config.n_ctx // 2))
    arguments = [str(model.source), str(model.params.dtype), str(seconds), cached]
    found = []
    for n in dict.fromkeys((n_threads(), 1)):
        settings = dict.fromkeys((*THREADS, "MKL_NUM_THREADS"), str(n))
        printed = subprocess.check_output(
            [sys.executable, "-c", _DECODE, *arguments], env=os.environ | settings, text=True
        )
        found.append({"threads": n, "tokens_per_second": float(printed)})
    return found


def peak_memory() -> int | None:
    """The most bytes of memory this process had in use at once, mapped files among them."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    told = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    return int(told[1]) * 1024 if told else None


def machine() -> dict[str, Any]:
    """What the speeds depend on: processor, threads, NumPy, its BLAS and the settings of that."""
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return {
        "processor": processor(),
        "threads": n_threads(),
        "numpy": np.__version__,
        "blas": " ".join(str(blas.get(fact, "unknown")) for fact in ("name", "version")),
        "settings": {name: os.environ[name] for name in BLAS_SETTINGS if name in os.environ},
    }


def n_threads() -> int:
    """The threads that BLAS uses, as its variables say, or all cores."""
    for name in THREADS:
        if os.environ.get(name, "").isdigit():
            return max(1, int(os.environ[name]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The processor's name as the system gives it."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = ""
    name = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    if name:
        return name[1].strip()
    return platform.processor() or platform.machine()


def bench(model: Model, *, seconds: float = SECONDS, progress: bool = False) -> dict[str, Any]:
    """Measure everything that ``gpt2np bench`` shows.

    Parameters
    ----------
    model : Model
        From a file, as a process of its own loads it again.
    seconds : float
        How long to measure each form of pass.
    progress : bool
        Show a bar on standard error, if that is a terminal.

    Returns
    -------
    dict
        As ``gpt2np bench --json`` prints it.
    """
    from tqdm import tqdm  # only here is there a bar

    speeds = []
    cases = forms(model.config)
    with tqdm(total=len(cases) + 1, disable=None if progress else True, leave=False) as bar:
        bar.set_description("cold start")
        first, peak = start(model)
        bar.update()
        for case in cases:
            bar.set_description("{batch} x {new} behind {cached}".format(**case))
            speeds.append(asdict(measure(model.params, **case, seconds=seconds)))
            bar.update()
    return {
        "model": model.source,
        "dtype": str(model.params.dtype),
        "parameters": model.params.n_params,
        "weight_bytes": sum(array.nbytes for array in model.params.values()),
        "machine": machine(),
        "decode": [speed for speed in speeds if speed["new"] == 1],
        "prefill": [speed for speed in speeds if speed["new"] > 1],
        "few_rows": few_rows(model.params, seconds),
        "by_threads": by_threads(model, seconds),
        "cold_start_seconds": first,
        "peak_memory_bytes": peak,
    }
