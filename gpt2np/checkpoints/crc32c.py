"""CRC-32C (Castagnoli), vectorised, as no standard library has it: some 400 MB a second.

A CRC is the remainder of the message by a fixed polynomial of degree 32, over GF(2). With the
message as rows of 2^13 words of 32 bits, Horner's rule takes a row at a time: times x^(32 * 2^13),
plus the next row. In the end the row's two halves fold into one, and that again, to a single word.
A product with a constant is linear in the bits, so it is looked up, half a word at a time.
"""

from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from gpt2np.checkpoints.base import Bytes

Words = npt.NDArray[np.uint32]

POLYNOMIAL = 0x82F63B78  # the bits are reflected: the highest is the coefficient of x^0
PREFIX = np.frombuffer(b"\x54\x64\x1f\x64", np.uint8)  # leaves all ones, where a CRC begins
LEVEL = 13
ROW = 4 << LEVEL


def crc32c(data: Bytes) -> int:
    """The checksum of the bytes.

    >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
    '0xe3069283'
    """
    head = len(data) % ROW
    start = np.concatenate([np.zeros(2 * ROW - 4 - head, np.uint8), PREFIX, data[:head]])
    state: Words = np.zeros(1 << LEVEL, np.uint32)
    for row in chain(start.reshape(2, ROW), data[head:].reshape(-1, ROW)):
        state = _times(state, LEVEL) ^ row.view("<u4")
    for level in range(LEVEL)[::-1]:
        left, right = state.reshape(2, -1)
        state = _times(left, level) ^ right
    return int(_times(state, 0)[0]) ^ 0xFFFFFFFF


def masked_crc32c(data: Bytes) -> int:
    """The checksum as LevelDB and TensorFlow store it, so that it can itself be checksummed."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _times(words: Words, level: int) -> Words:
    """Each word times x^(32 * 2^level)."""
    lower, upper = _tables(level)
    halves = words.astype("<u4", copy=False).view("<u2")
    return lower.take(halves[::2]) ^ upper.take(halves[1::2])


@cache
def _tables(level: int) -> tuple[Words, Words]:
    """The products of all lower and all upper halves of a word with x^(32 * 2^level)."""
    bits: Words = np.left_shift(1, np.arange(32, dtype=np.uint32))
    if level == 0:
        for _ in range(32):  # times x: a bit that leaves stands for the polynomial
            bits = np.where(bits & 1, bits >> 1 ^ POLYNOMIAL, bits >> 1)
    else:
        bits = _times(_times(bits, level - 1), level - 1)
    return _sums(bits[:16]), _sums(bits[16:])


def _sums(values: Words) -> Words:
    """The sums of all subsets of the values; bit i of the index says whether value i is in."""
    table: Words = np.zeros(1, np.uint32)
    for value in values:
        table = np.concatenate([table, table ^ value])
    return table
