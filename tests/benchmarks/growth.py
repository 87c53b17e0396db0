"""Measure how the cost of gpt2np grows: with cached positions, prompt, batch and model size.

    python tests/benchmarks/growth.py [--seconds 2] [--threads 2]

Prints Markdown tables. Each pass is timed in turn with its matrix products alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from timing import machine, markdown, restart

import gpt2np
from gpt2np.bench import Speed, measure, n_threads
from gpt2np.config import PRESETS, Config
from gpt2np.schema import tensors

CACHED = (1, 64, 128, 256, 512, 768, 1023)
LENGTHS = (16, 64, 128, 256, 512, 1023)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def any_weights(config: Config) -> gpt2np.Params:
    """Make weights that each take up memory of their own; their values do not matter here."""
    return gpt2np.Params(
        config, {name: np.full(shape, 0.01, np.float32) for name, shape, _ in tensors(config)}
    )


def available_bytes() -> int:
    """How much memory can be had without swapping, where the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 1 << 62
    return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])


def cached(params: gpt2np.Params, seconds: float) -> Iterator[list[str]]:
    yield ["cached positions", "ms a token", "of that at 64", "cache read, MB", "of the products"]
    speeds = {n: measure(params, cached=n, seconds=seconds) for n in CACHED}
    config = params.config
    for n, speed in speeds.items():
        read = 2 * config.n_layer * config.n_embd * n * params.dtype.itemsize
        yield [
            f"{n}",
            milliseconds(speed),
            f"{speed.seconds / speeds[64].seconds:.2f} x",
            f"{read / 1e6:.1f}",
            f"{speed.fraction:.0%}",
        ]


def prefill(params: gpt2np.Params, seconds: float) -> Iterator[list[str]]:
    yield ["prompt", "ms", "tokens/s", "products alone, GFLOP/s", "of the products"]
    for n in LENGTHS:
        speed = measure(params, new=n, seconds=seconds)
        yield [
            f"{n}",
            milliseconds(speed),
            f"{speed.tokens_per_second:.0f}",
            f"{speed.limit_gigaflops:.0f}",
            f"{speed.fraction:.0%}",
        ]


def batch(params: gpt2np.Params, seconds: float) -> Iterator[list[str]]:
    yield ["batch", "ms a step", "tokens/s", "of batch 1", "of the products"]
    alone = 0.0
    for n in BATCHES:
        speed = measure(params, batch=n, cached=64, seconds=seconds)
        alone = alone or speed.tokens_per_second
        yield [
            f"{n}",
            milliseconds(speed),
            f"{speed.tokens_per_second:.0f}",
            f"{speed.tokens_per_second / alone:.1f} x",
            f"{speed.fraction:.0%}",
        ]


def sizes(seconds: float) -> Iterator[list[str]]:
    yield ["model", "parameters", "read a token, MB", "ms a token", "GB/s", "of the products"]
    for name, config in PRESETS.items():
        shapes = [shape for _, shape, _ in tensors(config)]
        count = sum(int(np.prod(shape)) for shape in shapes)
        if 4.4 * count > available_bytes():
            yield [name, f"{count:,}", "", "not enough memory", "", ""]
            continue
        params = any_weights(config)
        speed = measure(params, cached=64, seconds=seconds)
        read = 4 * (count - params.wpe.size)
        yield [
            name,
            f"{count:,}",
            f"{read / 1e6:.0f}",
            milliseconds(speed),
            f"{read / speed.seconds / 1e9:.1f}",
            f"{speed.fraction:.0%}",
        ]
        del params  # before the next is made


def milliseconds(speed: Speed) -> str:
    return f"{1000 * speed.seconds:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure each line")
    parser.add_argument("--threads", type=int, default=n_threads())
    arguments = parser.parse_args()
    restart(arguments.threads)
    print(machine())
    params = any_weights(PRESETS["gpt2"])
    for title, lines in (
        ("Decoding behind cached positions, 124M", cached(params, arguments.seconds)),
        ("Prefill, 124M", prefill(params, arguments.seconds)),
        (
            "Decoding of batches behind 64 cached positions each, 124M",
            batch(params, arguments.seconds),
        ),
        ("Decoding behind 64 cached positions, all sizes", sizes(arguments.seconds)),
    ):
        header, *rows = lines
        print(f"\n{title}\n\n{markdown(header, rows)}", flush=True)


if __name__ == "__main__":
    main()
