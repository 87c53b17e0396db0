"""Measure the tokenizer against tiktoken and Hugging Face's tokenizers, one thread each.

    python tests/benchmarks/bench_tokenizer.py [--quick]

Encodes tinyshakespeare/input.txt (warm: seen before; cold: by a new tokenizer), then single pieces
of 256 and 512 KiB, and prints a Markdown table. What is compared runs in alternation.
"""

from __future__ import annotations

import argparse
import os
import random
import string
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from shared import SHARED
from timing import HEADER, Row, in_turn, machine, markdown, timed

from gpt2np import Tokenizer
from gpt2np.tokenizer import PIECE
from gpt2np.vocabulary import unwritten

TEXT = SHARED / "tinyshakespeare" / "input.txt"
RUNS = {
    "one letter": "a",
    "random letters": string.ascii_lowercase,
    "spaces": " ",
    "emoji": "😀",
}


def rows(quick: bool = False) -> Iterator[Row]:
    """Yield the lines of the table."""
    rounds = 3 if quick else 15
    yield from encoding(rounds)
    for name, letters in RUNS.items():
        texts = [run(letters, 2**n) for n in (18, 19)]
        works = {str(i): timed(lambda t=text: encode_once(t)) for i, text in enumerate(texts)}
        taken = in_turn(works, max(2, rounds // 4), pause=0)
        yield Row(
            f"encode 512 KiB of {name}",
            "256 KiB of it",
            "s",
            2.4,
            taken["1"],
            taken["0"],
            at_most=True,
        )


def encoding(rounds: int) -> Iterator[Row]:
    text = TEXT.read_text(encoding="utf-8")
    megabytes = len(text.encode()) / 1e6
    warm, vocabulary = Tokenizer.gpt2(), Tokenizer.gpt2()._vocabulary
    ids = warm.encode(text)
    works: dict[str, Callable[[], object]] = {
        "warm": lambda: warm.encode(text),
        "cold": lambda: Tokenizer(vocabulary, embedded=True).encode(text),
    }
    if find_spec("tiktoken"):
        theirs = tiktoken_gpt2()
        works["tiktoken"] = lambda: theirs.encode_ordinary(text)
    if find_spec("tokenizers"):
        huggingface = tokenizers_gpt2()
        works["tokenizers"] = lambda: huggingface.encode(text).ids
    for name, work in works.items():
        if work() != ids:
            raise RuntimeError(f"{name} gives other ids")
    rates = {
        name: megabytes / taken
        for name, taken in in_turn(
            {name: timed(work) for name, work in works.items()}, rounds, pause=0
        ).items()
    }
    for ours, peer, shown, target in (
        ("warm", "tiktoken",   "tiktoken encode_ordinary", 1.2),
        ("cold", "tiktoken",   "tiktoken encode_ordinary", 0.5),
        ("warm", "tokenizers", "HF tokenizers",            6.0),
    ):  # fmt: skip
        yield Row(
            f"encode tinyshakespeare, {ours}",
            shown,
            "MB/s",
            target,
            rates[ours],
            rates.get(peer, 0.0),
            missing=peer not in rates,
        )


def tiktoken_gpt2():
    import tiktoken

    ids = Tokenizer.gpt2()._vocabulary.ids
    return tiktoken.Encoding(
        "gpt2",
        pat_str=PIECE,
        special_tokens={"<|endoftext|>": 50256},
        mergeable_ranks={unwritten(token): id for token, id in ids.items()},
    )


def tokenizers_gpt2():
    os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    from tokenizers import ByteLevelBPETokenizer

    vocabulary = Tokenizer.gpt2()._vocabulary
    merges = [tuple(merge.split(" ")) for merge in vocabulary.merges]
    return ByteLevelBPETokenizer(dict(vocabulary.ids), merges)


def run(letters: str, size: int) -> str:
    """One piece of `size` bytes."""
    length = size // len(letters[0].encode())
    return "".join(random.Random(0).choices(letters, k=length))


def encode_once(text: str) -> list[int]:
    return Tokenizer.gpt2().encode(text)  # too long a piece to be remembered


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    table = [row.cells() for row in rows(parser.parse_args().quick)]
    print(f"{machine()}\n\n{markdown(HEADER, table)}")


if __name__ == "__main__":
    main()
