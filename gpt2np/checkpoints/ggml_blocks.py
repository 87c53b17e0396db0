"""llama.cpp's blocks: 32 numbers as small integers with a scale, and some with an offset.

https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-quants.c (dequantize_row_...)
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpt2np.checkpoints.base import Array, Bytes

NUMBERS = 32
STEP = 1 << 15  # blocks at a time, so that what is made in between stays small

Float32 = npt.NDArray[np.float32]


class Blocks(NamedTuple):
    """A type of block: its name, its size, and what its numbers are."""

    name: str
    bytes: int
    numbers_of: Callable[[Bytes], Array]  # [n, bytes] -> [n, 32]
    numbers: int = NUMBERS

    def unpack(self, data: Bytes) -> Array:
        """Give the numbers of all blocks, one after another."""
        blocks = data.reshape(-1, self.bytes)
        result = np.empty((len(blocks), self.numbers), np.float32)
        with np.errstate(invalid="ignore"):  # of a damaged file's NaN and infinities
            for start in range(0, len(blocks), STEP):
                result[start : start + STEP] = self.numbers_of(blocks[start : start + STEP])
        return result.reshape(-1)


def _half(blocks: Bytes, start: int) -> Float32:
    """The float16 that stands at a byte of each block: [n, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(blocks: Bytes, start: int) -> Bytes:
    """The 32 integers of four bits from a byte on: the lower halves come first."""
    packed = blocks[:, start : start + NUMBERS // 2]
    return np.concatenate([packed & 0xF, packed >> 4], axis=1)


def _fives(blocks: Bytes, high: int, low: int) -> Bytes:
    """The 32 integers of five bits: the highest bits stand apart, in four bytes."""
    bits = np.unpackbits(blocks[:, high : high + 4], axis=1, bitorder="little")
    fives: Bytes = _nibbles(blocks, low) | bits << np.uint8(4)
    return fives


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


Q4_0 = Blocks("Q4_0", 18, _q4_0)
Q4_1 = Blocks("Q4_1", 20, _q4_1)
Q5_0 = Blocks("Q5_0", 22, _q5_0)
Q5_1 = Blocks("Q5_1", 24, _q5_1)
Q8_0 = Blocks("Q8_0", 34, _q8_0)
