"""What the benchmarks share: a clean environment, timing in alternation, Markdown tables."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        **{name: value for name, value in os.environ.items() if name not in bench.BLAS_SETTINGS},
        **dict.fromkeys(names, str(threads)),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.argv], wanted)


def in_turn(
    works: Mapping[str, Callable[[], float]],
    rounds: int,
    *,
    pause: float = PAUSE,
    statistic: Callable[[list[float]], float] = min,
) -> dict[str, float]:
    """Call functions that each give a time, in turn: A B C A B C ...; sum up the times of each."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            if pause:
                gc.collect()
                time.sleep(pause)
            times[name].append(work())
    return {name: statistic(taken) for name, taken in times.items()}


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Make a function that calls `work` and gives the seconds it took."""

    def timed_work() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return timed_work


def first_output(command: Sequence[str]) -> float:
    """Start a process and give the seconds until the first byte of its output."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        found = process.stdout.read(1) if process.stdout else b""
        taken = time.perf_counter() - start
        process.communicate()
    if not found or process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {process.returncode}")
    return taken


@dataclass(frozen=True)
class Row:
    """One line of the table; a peer that is not installed has no numbers."""

    work: str
    against: str
    unit: str
    target: float
    ours: float = 0.0
    theirs: float = 0.0
    at_most: bool = False  # the target is a limit to the cost ours / theirs
    missing: bool = False

    @property
    def ratio(self) -> float:
        """How many times better gpt2np is; where the target is a limit, the cost."""
        quotient = self.ours / self.theirs
        return quotient if self.at_most or "/s" in self.unit else 1 / quotient

    def cells(self) -> list[str]:
        target = f"{'<=' if self.at_most else '>='} {self.target:g}"
        if self.missing:
            return [self.work, "", self.against, "not installed", "", target, ""]
        reached = self.ratio <= self.target if self.at_most else self.ratio >= self.target
        return [
            self.work,
            f"{self.ours:.4g} {self.unit}",
            self.against,
            f"{self.theirs:.4g} {self.unit}",
            f"{self.ratio:.2f}",
            target,
            "yes" if reached else "no",
        ]


HEADER = ("work", "gpt2np", "against", "theirs", "ratio", "target", "reached")


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
