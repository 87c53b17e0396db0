"""Spoil recordings at random and check them: a Report or an error of ours, nothing else.

    PYTHONPATH=. python tests/fuzz_dumps.py --seconds 600 [--seed 1]

A few good recordings are changed as bytes, and by their parts, so that the change reaches the code
behind checksums and lengths. test_dumps_fuzz.py runs the same for seconds.
"""

import argparse
import io
import json
import random
import shutil
import sys
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
from debug_state import debug_state, state_of

from gpt2np.checkpoints import safetensors
from gpt2np.errors import CheckpointError, InputError
from gpt2np.golden import check, record
from gpt2np.golden.tiny import IDS, tiny_model

MODEL = tiny_model()
GOOD = {
    "full": record(MODEL, IDS, new_tokens=2),
    "weights": record(MODEL, IDS, new_tokens=2, cache_split=5, weights=True),
}
EXTREMES = [0, -1, 1, 3, 10**9, 2**31, 2**63, 10**400, 0.5, 1e308, "a", None, True, [], {}, [[]]]
TYPES = ["?", "i1", "u8", "i8", ">f4", "f2", "f8", "g", "c8", "U3", "S2", "M8[s]", [("a", "i4")]]
NAMES = ["h.999999.ln_1", "h.3", "blocks.7.hook_q", "h." + "9" * 5000, "ids", "wpe", "é"]
KINDS = ["npz", "deflated", "safetensors", "folder", "bin", "raw"]


def spoiled_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        match rng.randrange(4):
            case 0:
                data[rng.randrange(len(data))] = rng.randrange(256)
            case 1:
                at = rng.randrange(len(data))
                data[at : at + 8] = rng.choice(EXTREMES[:7]).to_bytes(9, "little", signed=True)[:8]
            case 2:
                del data[rng.randrange(len(data)) :]
                data += b"\0" * (not data)
            case 3:
                at, to = rng.randrange(len(data)), rng.randrange(len(data))
                data[to : to + 64] = data[at : at + 64]
    return bytes(data)


def spoiled_array(array, rng):
    shape = rng.choice([(), (0,), (0, 3), (1,) * 8, (3, 1, 2), (2, 3, 4, 5, 6), array.shape])
    holes = np.where(array > rng.random(), rng.choice([np.nan, np.inf, -np.inf]), array)
    return rng.choice([
        array.ravel()[: rng.randrange(array.size + 1)],
        array.T,
        array[..., None],
        np.zeros(shape),
        np.zeros(shape, rng.choice(TYPES)),
        np.ones(3, rng.choice(TYPES[:-3])),
        np.full_like(array, rng.choice([0, 1, 100, 127])),
        holes if array.dtype.kind == "f" else array,
        np.repeat(array, rng.choice([0, 2, 3]), axis=0) if array.ndim else array,
    ])  # fmt: skip


def spoiled_meta(meta, rng):
    meta = json.loads(json.dumps(meta))
    if rng.random() < 0.2:
        return rng.choice(EXTREMES)
    inner = meta if rng.random() < 0.3 else meta["config"]
    inner[rng.choice(list(inner))] = rng.choice(EXTREMES)
    if rng.random() < 0.2:
        meta["config"] = rng.choice(EXTREMES)
    return meta


def parts_of(rng):
    golden = GOOD[rng.choice(list(GOOD))]
    arrays, meta = dict(golden.arrays), golden.meta
    for name in rng.sample(list(arrays), rng.choice([0, 1, 1, 3])):
        arrays[name] = spoiled_array(arrays[name], rng)
    for name in rng.sample(list(arrays), rng.choice([0, 0, 1, 9])):
        array = arrays.pop(name)
        if rng.random() < 0.5:
            names = [
                "h.999999.ln_1",
                "h.3",
                "blocks.7.hook_q",
                "h." + "9" * 5000,
                "ids",
                "wpe",
                "é",
            ]
            arrays[rng.choice([*names, *arrays])] = array
    return arrays, spoiled_meta(meta, rng) if rng.random() < 0.5 else meta


def text_of(meta, rng):
    text = json.dumps(meta)
    return text if rng.random() < 0.9 else text.replace("16", "9" * 5000)


def zip_of(arrays, text, rng, *, deflated):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if deflated else 0) as archive:
        for name, array in {**arrays, "meta": np.array(text)}.items():
            entry = io.BytesIO()
            np.save(entry, array)
            data = entry.getvalue()
            archive.writestr(
                f"{name[:60000]}.npy", spoiled_bytes(data, rng) if rng.random() < 0.01 else data
            )
    data = bytearray(file.getvalue())
    if rng.random() < 0.3:  # flags, method, checksum or sizes of one entry, in both places
        field, signature = rng.choice([(2, 4), (4, 2), (10, 4), (14, 4)]), b"PK\1\2"
        at = data.find(signature, rng.randrange(len(data)))
        if at > 0:
            value = rng.choice([1, 8, 12, 14, 99, 255, 2**31, 2**32 - 1])
            size = field[1]
            data[at + 6 + field[0] : at + 6 + field[0] + size] = value.to_bytes(8, "little")[:size]
    return bytes(data)


def write(folder, kind, rng):
    """Write a spoiled recording, and give its path."""
    arrays, meta = parts_of(rng)
    text, path = text_of(meta, rng), folder / "a.npz"
    if kind in ("npz", "deflated"):
        path.write_bytes(zip_of(arrays, text, rng, deflated=kind == "deflated"))
    elif kind == "safetensors":
        path = folder / "a.safetensors"
        held = {name: array for name, array in arrays.items() if array.dtype.name in SAFE}
        safetensors.save(path, held, metadata={"meta": text})
    elif kind == "folder":
        path = folder / "a"
        path.mkdir()
        for name, array in arrays.items():
            np.save(path / f"{name[:200]}.npy", array)
        (path / "meta.json").write_text(text)
    elif kind == "bin":
        path = folder / "a.bin"
        path.write_bytes(spoiled_bytes(STATE, rng))
    else:
        path.write_bytes(spoiled_bytes(RAW[rng.randrange(2)], rng))
    return path


SAFE = {"bool", "int8", "uint64", "int64", "float32", "float16", "float64"}
STATE = debug_state(*state_of(MODEL))
RAW = [
    zip_of(GOOD["full"].arrays, json.dumps(GOOD["full"].meta), random.Random(1), deflated=deflated)
    for deflated in (False, True)
]


def try_one(path, rng):
    """Check a recording in both directions; what comes of it, and the time it takes."""
    start = time.process_time()
    outcome, other = "checked", GOOD[rng.choice(list(GOOD))]
    for pair in ((path, other), (other, path)):
        try:
            report = check(*pair, model=MODEL if rng.random() < 0.2 else None)
            assert str(report).isascii() or "é" in str(report)
            json.dumps(report.to_dict(), allow_nan=False)
        except (CheckpointError, InputError) as error:
            outcome, message = "refused", str(error)
            assert message.isprintable(), f"not one line of text: {message!r}"
            assert len(message) < 1200, f"too long: {message!r}"
    return outcome, time.process_time() - start


def fuzz(seconds, seed=0, inputs=sys.maxsize):
    """Counts by form and outcome, and the longest time; an input follows from its number."""
    counts, longest = Counter(), 0.0
    end = time.monotonic() + seconds
    for i in range(seed << 40, (seed << 40) + min(inputs, 1 << 40)):
        if time.monotonic() > end:
            break
        rng, kind = random.Random(i), KINDS[i % len(KINDS)]
        folder = Path(tempfile.mkdtemp())
        try:
            with np.errstate(all="ignore"):
                outcome, taken = try_one(write(folder, kind, rng), rng)
        except Exception as error:
            raise AssertionError(f"input {i} of {kind}") from error
        finally:
            shutil.rmtree(folder)
        counts[kind, outcome] += 1
        longest = max(longest, taken)
    return counts, longest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts, longest = fuzz(options.seconds, options.seed)
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{kind:12} {outcome:8} {count:9,}")
    import resource  # which Windows lacks

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{sum(counts.values()):,} inputs; the longest took {longest:.3f} s; at most {peak} MiB")


if __name__ == "__main__":
    main()
