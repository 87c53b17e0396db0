"""llama.cpp's blocks: 32 numbers as small integers with a scale, and some with an offset; and its
K-quants: 256 numbers in groups, of which each has a small integer as its own scale.

https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-quants.c (dequantize_row_...)
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpt2np.checkpoints.base import Array, Bytes

STEP = 1 << 20  # numbers at a time, so that what is made in between stays small

Float32 = npt.NDArray[np.float32]


class Blocks(NamedTuple):
    """A type of block: its name, its size, and what its numbers are."""

    name: str
    bytes: int
    numbers_of: Callable[[Bytes], Array]  # [n, bytes] -> [n, numbers]
    numbers: int = 32

    def unpack(self, data: Bytes) -> Array:
        """Give the numbers of all blocks, one after another."""
        blocks = data.reshape(-1, self.bytes)
        result = np.empty((len(blocks), self.numbers), np.float32)
        with np.errstate(invalid="ignore"):  # of a damaged file's NaN and infinities
            step = STEP // self.numbers
            for start in range(0, len(blocks), step):
                result[start : start + step] = self.numbers_of(blocks[start : start + step])
        return result.reshape(-1)


def _half(blocks: Bytes, start: int) -> Float32:
    """The float16 that stands at a byte of each block: [n, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _integers(blocks: Bytes, start: int, stop: int, bits: int, run: int) -> Bytes:
    """Cut bytes into integers of so many bits: of every run of bytes, all the lowest first."""
    runs = blocks[:, start:stop].reshape(len(blocks), -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    cut: Bytes = runs >> shifts & np.uint8((1 << bits) - 1)  # [n, runs, 8 / bits, run]
    return cut.reshape(len(blocks), -1)


def _nibbles(blocks: Bytes, start: int) -> Bytes:
    return _integers(blocks, start, start + 16, bits=4, run=16)


def _fives(blocks: Bytes, high: int, low: int) -> Array:
    """The highest of their bits stand apart, in four bytes."""
    return _nibbles(blocks, low) | _integers(blocks, high, high + 4, bits=1, run=1) << 4


def _q4_0(blocks: Bytes) -> Array:
    return _half(blocks, 0) * (_nibbles(blocks, 2).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Array:
    return _half(blocks, 0) * _nibbles(blocks, 4).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Array:
    return _half(blocks, 0) * (_fives(blocks, 2, 6).astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Array:
    return _half(blocks, 0) * _fives(blocks, 4, 8).astype(np.float32) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Array:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _grouped(scales: Float32, integers: Array, offsets: Float32 | None = None) -> Array:
    """scale * integer, less an offset: [n, groups] and [n, 256] -> [n, 256]."""
    n, groups = scales.shape
    numbers: Array = scales[:, :, None] * integers.astype(np.float32).reshape(n, groups, -1)
    if offsets is not None:
        numbers -= offsets[:, :, None]
    return numbers.reshape(n, -1)


def _q2_k(blocks: Bytes) -> Array:
    scales, offsets = blocks[:, :16] & 15, blocks[:, :16] >> 4
    integers = _integers(blocks, 16, 80, bits=2, run=32)
    return _grouped(_half(blocks, 80) * scales, integers, _half(blocks, 82) * offsets)


def _q3_k(blocks: Bytes) -> Array:
    low = _integers(blocks, 32, 96, bits=2, run=32)
    high = _integers(blocks, 0, 32, bits=1, run=32)
    scales_low = _integers(blocks, 96, 104, bits=4, run=8)
    scales_high = _integers(blocks, 104, 108, bits=2, run=4)
    scales = (scales_low | scales_high << 4).astype(np.float32) - 32
    return _grouped(_half(blocks, 108) * scales, (low | high << 2).astype(np.int8) - 4)


def _scales_and_offsets(blocks: Bytes) -> tuple[Float32, Float32]:
    """Those of Q4_K and Q5_K: each [n, 8], of six bits, packed into twelve bytes.

    Four scales and four offsets fill the low bits of the first eight bytes. The highest two bits
    there belong to the other four of each, whose lower halves are the last four bytes.
    """
    first, second, third = (blocks[:, i : i + 4] for i in (4, 8, 12))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    offsets = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return _half(blocks, 0) * scales, _half(blocks, 2) * offsets


def _q4_k(blocks: Bytes) -> Array:
    scales, offsets = _scales_and_offsets(blocks)
    return _grouped(scales, _integers(blocks, 16, 144, bits=4, run=32), offsets)


def _q5_k(blocks: Bytes) -> Array:
    scales, offsets = _scales_and_offsets(blocks)
    high = _integers(blocks, 16, 48, bits=1, run=32)
    return _grouped(scales, _integers(blocks, 48, 176, bits=4, run=32) | high << 4, offsets)


def _q6_k(blocks: Bytes) -> Array:
    low = _integers(blocks, 0, 128, bits=4, run=64)
    high = _integers(blocks, 128, 192, bits=2, run=32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return _grouped(_half(blocks, 208) * scales, (low | high << 4).astype(np.int8) - 32)


Q4_0 = Blocks("Q4_0", 18, _q4_0)
Q4_1 = Blocks("Q4_1", 20, _q4_1)
Q5_0 = Blocks("Q5_0", 22, _q5_0)
Q5_1 = Blocks("Q5_1", 24, _q5_1)
Q8_0 = Blocks("Q8_0", 34, _q8_0)
Q2_K = Blocks("Q2_K", 84, _q2_k, 256)
Q3_K = Blocks("Q3_K", 110, _q3_k, 256)
Q4_K = Blocks("Q4_K", 144, _q4_k, 256)
Q5_K = Blocks("Q5_K", 176, _q5_k, 256)
Q6_K = Blocks("Q6_K", 210, _q6_k, 256)
