"""What the benchmarks share: a clean environment, timing in alternation, Markdown tables."""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from gpt2np import bench

PEERS = ("torch", "transformers", "ctranslate2", "tiktoken", "tokenizers")

# Workers of one library spin for a while after their last product; the next contender must not
# share the cores with them.
PAUSE = 0.3  # seconds


def restart(threads: int) -> None:
    """Run the script again, with this number of threads for every library and NumPy's BLAS free
    to choose its kernels, unless it already runs so."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    wanted = {
        **{name: value for name, value in os.environ.items()
           if name not in bench.BLAS_SETTINGS},
        **dict.fromkeys(names, str(threads)),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }  # fmt: skip
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.argv], wanted)


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest of `rounds` times of each work, all taken in turn: A B C A B C ..."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            gc.collect()
            time.sleep(PAUSE)
            times[name].append(seconds(work))
    return {name: min(taken) for name, taken in times.items()}


def medians(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each work, all taken in turn without a pause between."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: statistics.median(taken) for name, taken in times.items()}


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table so that it is aligned as plain text, too."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )


def machine() -> str:
    """One line: processor, threads, and the versions of all that was measured."""
    found = bench.machine()
    versions = [f"Python {platform.python_version()}", f"NumPy {found['numpy']} ({found['blas']})"]
    for name in PEERS:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    return f"{found['processor']}, {found['threads']} threads; {', '.join(versions)}"
