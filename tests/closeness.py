"""When two arrays are the same up to rounding, and when draws are those of a distribution."""

import math

import numpy as np

# Of the largest number: between two implementations, and where only the order of additions
# differs, which the shapes decide.
IMPLEMENTATION = {np.float32: 2e-5, np.float64: 1e-12}
ORDER = {np.float32: 1e-5, np.float64: 1e-13}


def near(ours, theirs, tolerance=ORDER, scale=None):
    """Equal in dtype and shape, and in numbers to `tolerance`, one for all or one per dtype.

    It is relative to the largest of theirs; with `scale` to each of them, or `scale` if larger.
    """
    theirs = np.asarray(theirs, np.asarray(theirs).dtype.newbyteorder("="))
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    if isinstance(tolerance, dict):
        tolerance = tolerance[ours.dtype.type]
    size = np.abs(theirs).max() if scale is None else np.maximum(np.abs(theirs), scale)
    return bool((np.abs(ours - theirs) <= tolerance * size).all())


def assert_close(ours, theirs, tolerance=IMPLEMENTATION, scale=None, what=""):
    theirs = np.asarray(theirs, np.asarray(theirs).dtype.newbyteorder("="))
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), what
    worst = np.abs(ours - theirs).max()
    assert near(ours, theirs, tolerance, scale), f"{what} off by {worst}".strip()


def chi_square_p(counts, probs):
    """Pearson's test that `counts` were drawn from `probs`; rare outcomes are pooled.

    The survival function by Wilson and Hilferty's approximation, good to 1e-3 from 3 degrees on.
    """
    n = sum(counts)
    assert all(count == 0 for count, p in zip(counts, probs, strict=True) if p == 0)
    cells = sorted(zip(probs, counts, strict=True), reverse=True)
    common = [(p * n, count) for p, count in cells if p * n >= 10]
    rare = [sum(x) for x in zip(*[(p * n, c) for p, c in cells if 0 < p * n < 10], strict=True)]
    if rare and rare[0] >= 10:
        common.append(tuple(rare))
    k = len(common) - 1
    assert k >= 3
    chi2 = sum((count - expected) ** 2 / expected for expected, count in common)
    z = ((chi2 / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))
    return math.erfc(z / math.sqrt(2)) / 2
