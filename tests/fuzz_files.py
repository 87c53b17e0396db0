"""Aim outputs at inputs, end commands while they write, close their streams: nothing may be lost.

    PYTHONPATH=. python tests/fuzz_files.py [--seed 1] [--count 1000] [outputs | ends | streams]

outputs   a random command is told to write to a random path, spelt in a random way: what it reads
          stays as it was, what is foreign too unless it was forced, and nothing else is left.
ends      a command is ended while it writes: its output is the old or the new one, whole, and after
          a signal that can be caught nothing is left beside it.
streams   standard input, output and error are closed in all combinations: no message lands in an
          output, no traceback is shown, and what is lost makes the exit code 2.

test_fuzz_files.py runs a bounded part of each.
"""

import argparse
import hashlib
import io
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from models import saved_model

import gpt2np
from gpt2np.cli import main

FOREIGN = ("notes.csv", "notes.jsonl", "page.html", "run.npz", "run.safetensors", "plain")


def contents(folder):
    """What every file under a folder holds; where a link leads."""
    return {
        path: os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).digest()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def run(argv):
    """Run a command in this process: its exit code and what it says on standard error."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
        try:
            code = main([str(word) for word in argv])
        except SystemExit as end:
            code = end.code
    return code, err.getvalue()


# Outputs


def make_world(folder):
    """A model, links to it, texts, and files that are nobody's."""
    model = Path(saved_model(folder / "M", gpt2np.Tokenizer.gpt2(), n_ctx=16, n_embd=8, n_layer=1))
    (folder / "texts.txt").write_text("To be\nor not\n", encoding="utf-8")
    (folder / "texts.jsonl").write_text('{"text": "To be"}\n', encoding="utf-8")
    for name in FOREIGN:
        (folder / name).write_text(f"the only copy of {name}", encoding="utf-8")
    (folder / "link").symlink_to(model)
    (folder / "to-weights.csv").symlink_to(model / "model.safetensors")
    (folder / "to-texts.jsonl").symlink_to("texts.txt")
    os.link(model / "model.safetensors", folder / "hard.safetensors")
    os.link(folder / "texts.txt", folder / "hard.csv")
    (folder / "elsewhere").mkdir()


def spelt(rng, path, folder):
    """The same path in another way."""
    name = os.path.relpath(path, folder)
    return rng.choice([
        str(path),
        name,
        f"./{name}",
        f"elsewhere/../{name}",
        f"{folder}/elsewhere/..//{name}",
        name.replace("M/", "link/"),
    ])  # fmt: skip


def aim(rng, folder):
    """A command that writes, and where to."""
    inside = sorted(path for path in (folder / "M").iterdir() if path.is_file())
    beside = sorted(path for path in folder.iterdir() if path.is_symlink() or path.is_file())
    target = rng.choice([
        rng.choice(inside),
        rng.choice(beside),
        rng.choice(beside),
        folder / "M" / rng.choice(["new", "new.csv", "new.npz", "sub/new.jsonl"]),
        folder / rng.choice(["M", "link", "elsewhere"]),
        folder / "new" / rng.choice(["a", "a.npz", "a.csv"]),
        folder / f"new{rng.choice(['.csv', '.jsonl', '.npz', '.html', '.safetensors', ''])}",
    ])  # fmt: skip
    out = spelt(rng, target, folder)
    model = rng.choice(["M", "link", str(folder / "M"), "M/model.safetensors", "M/config.json"])
    texts = rng.choice(["texts.txt", "texts.jsonl", "./texts.txt", str(folder / "texts.txt")])
    form = rng.choice(["csv", "tsv", "jsonl", "table"])
    argv = rng.choice([
        ["score", texts, "-m", model, "-o", out, "--format", form],
        ["score", texts, "-m", model, "-o", out, "--format", "jsonl", "--resume"],
        ["golden", "record", out, "-m", model, "--ids", "1,2", "--new", "1"],
        ["golden", "record", out, "--weights", "tiny", "--new", "1"],
        ["explain", "--html", out, "-m", model, "--text", "To be"],
        ["convert", model, out, "--dtype", rng.choice(["float16", "float32"])],
    ])  # fmt: skip
    if rng.random() < 0.4:
        argv.append("--force")
    return argv


def fuzz_outputs(rng, count):
    """Count how it went; an AssertionError tells of what was lost."""
    counts = Counter()
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make_world(folder)
        os.chdir(folder)
        try:
            before = contents(folder)
            for _ in range(count):
                argv = aim(rng, folder)
                code, err = run(argv)
                after = contents(folder)
                assert code in (0, 2), (argv, code, err)
                assert err.count("gpt2np: error: ") == (code == 2), (argv, err)
                assert "Traceback" not in err, (argv, err)
                lost = {path for path in before if after.get(path) != before[path]}
                read = set() if "--weights" in argv else {folder / "M"}
                read |= {folder / Path(argv[1]).name} if argv[0] == "score" else set()
                assert "--force" in argv or not lost, (argv, lost)
                assert not any({path, *path.parents} & read for path in lost), (argv, lost)
                left = [path for path in after if path.name.endswith(".tmp")]
                assert not left, (argv, left)
                counts[argv[0], "refused" if code else "written"] += 1
                if after != before:
                    os.chdir(home)
                    for path in sorted(folder.rglob("*"), reverse=True):
                        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
                    make_world(folder)
                    os.chdir(folder)
                    before = contents(folder)
        finally:
            os.chdir(home)
    return counts


# Ends


def fuzz_ends(rng, count):
    """Count how commands ended that were sent a signal after a random time."""
    counts = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_world(folder)
        texts = folder / "many.txt"
        texts.write_text("".join(f"{i} and so on\n" for i in range(400)), encoding="utf-8")
        out = folder / "elsewhere" / "out.csv"
        argv = ["score", "--lines", texts, "-m", folder / "M", "-o", out]
        command = [sys.executable, "-m", "gpt2np", *map(str, argv)]
        began = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        whole, longest = out.read_bytes(), time.monotonic() - began
        old = b'"file","line","index",old\n'
        for _ in range(count):
            out.write_bytes(old)
            number = rng.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
                time.sleep(rng.uniform(0, 1.1) * longest)
                child.send_signal(number)
                err = child.communicate(timeout=60)[1]
            assert out.read_bytes() in (old, whole), number
            left = [path.name for path in out.parent.iterdir() if path != out]
            # Before the command has begun to run, a signal ends the process as any other.
            if number == signal.SIGKILL:
                run([*argv[:1], "--text", "a", *argv[3:5], "-o", out.with_name("next.csv")])
                out.with_name("next.csv").unlink()
                left = [path.name for path in out.parent.iterdir() if path != out]
            elif child.returncode > 0:
                assert child.returncode == 128 + number, (child.returncode, err)
            assert not left, (number, left, err)
            how = "done" if child.returncode == 0 else "ended"
            counts[number.name, how, "new" if out.read_bytes() == whole else "old"] += 1
    return counts


# Streams


def fuzz_streams(rng, count):
    """Count how commands fared whose streams were closed."""
    counts = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_world(folder)
        model = str(folder / "M")
        # A command; whether it writes to standard output, and whether it reads standard input.
        commands = [
            (["tokenize", "--ids", "To be"], True, False),
            (["tokenize", "--ids", "-"], True, True),
            (["generate", "-m", model, "To be", "-n", "2", "-t", "0"], True, False),
            (["generate", "-m", model, "-i", "-n", "2", "-t", "0"], True, True),
            (["score", "-m", model, "--text", "To be"], True, False),
            (["score", "-m", model, "--text", "To be", "-o", "OUT.csv"], False, False),
            (["score", "-m", model, "-", "-o", "OUT.jsonl"], False, True),
            (["golden", "record", "OUT.npz", "-m", model, "--ids", "1,2"], True, False),
            (["info", model], True, False),
            (["tokenize", "-f", "no/such"], False, False),
            (["--help"], True, False),
        ]
        closings = list(itertools.product([False, True], repeat=3))
        cases = list(itertools.product(range(len(commands)), closings))
        rng.shuffle(cases)
        usual = {}
        for which, closed in sorted(cases[:count], key=lambda case: any(case[1])):
            argv, writes, reads = commands[which]
            for each in {which} - usual.keys():
                usual[each] = stream_run(folder, argv, (False, False, False))
            code, out, err, files = stream_run(folder, argv, closed)
            good, expected, said, written = usual[which]
            lost = (writes and closed[1]) or (reads and closed[0])
            assert code == (2 if lost else good), (argv, closed, code, err)
            assert out == ("" if closed[1] or (lost and closed[0]) else expected), (argv, closed)
            assert "Traceback" not in err, (argv, closed, err)
            assert closed[2] or lost or err == said, (argv, closed, err)
            if not (reads and closed[0]):
                assert files == written, (argv, closed)
            counts["lost output or input, exit code 2" if lost else "as ever"] += 1
    return counts


def stream_run(folder, argv, closed):
    """Run a command in a shell that closes streams: exit code, output, error, files written."""
    closing = "".join(
        sign for sign, shut in zip((" <&-", " >&-", " 2>&-"), closed, strict=True) if shut
    )
    shell = ["sh", "-c", f'exec "$@"{closing}', "sh", sys.executable, "-m", "gpt2np", *argv]
    done = subprocess.run(
        shell, input=b"To be\n", capture_output=True, cwd=folder, check=False, timeout=120
    )
    files = {path.name: hashlib.sha256(path.read_bytes()).digest() for path in folder.glob("OUT*")}
    for path in folder.glob("OUT*"):
        path.unlink()
    return done.returncode, done.stdout.decode(), done.stderr.decode(), files


PARTS = {"outputs": fuzz_outputs, "ends": fuzz_ends, "streams": fuzz_streams}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    for part in args.parts:
        print(f"{part}:")
        for outcome, n in sorted(PARTS[part](random.Random(args.seed), args.count).items()):
            print(f"  {outcome}: {n}")
