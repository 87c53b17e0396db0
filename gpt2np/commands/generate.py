"""gpt2np generate: continue a text, and show it as it comes."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from gpt2np import generation
from gpt2np.cli import complain
from gpt2np.commands import (
    add_model_options,
    add_output,
    add_text,
    load_model,
    read_text,
    tell_of_special_tokens,
    text,
)
from gpt2np.errors import GPT2Error, InputError
from gpt2np.files import rename
from gpt2np.generation import Generation
from gpt2np.loading import Model
from gpt2np.options import unescaped
from gpt2np.params import Array, Ids
from gpt2np.streams import say


def stop(argument: str) -> str:
    """Give a stop string, in which ``\\n`` is a line break."""
    return unescaped(text(argument))


BATCH = 8  # prompts of a file that are continued at a time: a weight is read once for them all

# The options that are arguments of gpt2np.generate under the name that comes second. What is not
# given is left to the defaults there.
_SETTINGS: tuple[tuple[tuple[str, ...], str, dict[str, Any], str], ...] = (
    (("-n", "--max-new-tokens"), "max_new_tokens",     {"type": int, "metavar": "N"},
     "how many tokens to generate at most (40)"),
    (("-t", "--temperature"),    "temperature",        {"type": float, "metavar": "T"},
     "below 1 sharper, above 1 flatter, 0 always takes the likeliest token (1)"),
    (("-k", "--top-k"),          "top_k",              {"type": int, "metavar": "K"},
     "draw from the K likeliest tokens"),
    (("-p", "--top-p"),          "top_p",              {"type": float, "metavar": "P"},
     "draw from the likeliest tokens whose probabilities reach P together"),
    (("--min-p",),               "min_p",              {"type": float, "metavar": "P"},
     "draw from the tokens at least P times as likely as the likeliest"),
    (("--repetition-penalty",),  "repetition_penalty", {"type": float, "metavar": "X"},
     "above 1 makes tokens less likely that are there already (1)"),
    (("--no-repeat-ngram",),     "no_repeat_ngram",    {"type": int, "metavar": "N"},
     "repeat no sequence of N tokens"),
    (("--seed",),                "seed",               {"type": int, "metavar": "N"},
     "the same seed gives the same text; the r-th of several has the seed N + r, from r = 0"),
    (("--stop",),                "stop",               {"action": "append", "type": stop,
                                                        "metavar": "TEXT"},
     r"end where TEXT (\n: a line break) comes up, and leave it out; may be given several times"),
    (("--ignore-eot",),          "stop_at_eot",        {"action": "store_const", "const": False},
     "go on after the end of text"),
    (("--eos",),                 "eos",                {"action": "append", "type": int,
                                                        "metavar": "ID"},
     "the id that ends a text, instead of the model's own; may be given several times"),
    (("--special",),             "special",            {"action": "store_const", "const": True},
     "let special tokens that a prompt spells, such as <|endoftext|>, mean themselves"),
    (("--num-samples",),         "num_samples",        {"type": int, "metavar": "N"},
     "how many completions of each prompt (1)"),
    (("--beams", "--num-beams"), "num_beams",          {"type": int, "metavar": "N"},
     "beam search: the likeliest text that N parallel searches find, with nothing drawn"),
    (("--lookup",),              "lookup",             {"type": int, "metavar": "K"},
     "draft up to K tokens at a time from earlier text: faster where the text repeats itself"),
    (("--on-full",),             "on_full",            {"choices": ("refuse", "slide")},
     "what to do with more tokens than the context holds: refuse them, or slide, which reads the "
     "last half of the context again as if it were the whole text"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    given = parser.add_mutually_exclusive_group(required=True)
    add_text(given, "prompt", 'the text to continue; "-" reads standard input, "" starts afresh')
    given.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help="a file with the prompt, in UTF-8; a line break at its end does not count",
    )
    given.add_argument("--prompts", metavar="FILE", help="a file with one prompt on each line")
    given.add_argument(
        "-i",
        "--interactive",
        action="store_true",
        help="ask for prompts; Ctrl-C stops a text, Ctrl-D (on Windows Ctrl-Z and Enter) leaves",
    )
    parser.add_argument(
        "--no-echo",
        dest="echo",
        action="store_false",
        help="print the completion without the prompt before it",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object on a line for each completion: prompt, text "
        "(the completion), ids, logprobs, finish_reason (length, stop or "
        "eot), tokens_per_second",
    )
    add_output(parser)
    add_model_options(parser)
    settings = parser.add_argument_group("how to generate")
    for flags, name, how, what in _SETTINGS:
        settings.add_argument(*flags, dest=name, default=argparse.SUPPRESS, help=what, **how)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    settings = {name: getattr(args, name) for _, name, *_ in _SETTINGS if hasattr(args, name)}
    if "" in settings.get("stop", ()):
        raise InputError("--stop is an empty text, which stands everywhere: leave it out")
    if args.interactive and args.result is not None:
        raise InputError("-i asks and answers in the terminal: leave out -o")
    prompts = [] if args.interactive else _prompts(args)  # first, as a model may take long
    model = load_model(args)
    if args.interactive:
        args.echo = False  # it stands above already
        _interact(model, settings, args)
    else:
        _continue(model, prompts, settings, args)


def _prompts(args: argparse.Namespace) -> list[str]:
    if args.prompts is not None:
        # Lines as in a text file of any system: no other character ends one.
        lines = io.StringIO(read_text(args.prompts), newline=None)
        return [line.removesuffix("\n") for line in lines]
    if args.prompt in (None, "-"):
        return [read_text(args.file or "-").removesuffix("\n").removesuffix("\r")]
    return [args.prompt]


def _continue(
    model: Model, prompts: Sequence[str], settings: dict[str, Any], args: argparse.Namespace
) -> None:
    """Continue prompts: a single plain text as it comes, anything else when it is whole."""
    if not settings.get("special"):
        tell_of_special_tokens(model, prompts)
    total = len(prompts) * settings.get("num_samples", 1)
    with _telling_of_slides(model, settings) as watched:
        if total == 1 and not args.json:
            _print_stream(
                prompts[0] if args.echo else "", generation.stream(model, prompts[0], **watched)
            )
        else:
            _print_completions(model, prompts, watched, args, total)


def _print_completions(
    model: Model,
    prompts: Sequence[str],
    settings: dict[str, Any],
    args: argparse.Namespace,
    total: int,
) -> None:
    number = 0
    with _bar(len(prompts)) as bar:
        for prompt, completions, speed in _completions(model, prompts, settings):
            with bar.external_write_mode() if bar else nullcontext():
                for completion in completions:
                    number += 1
                    if args.json:
                        _print_json(prompt, completion, speed)
                    else:
                        if total > 1:
                            print(f"======== {number} of {total} ========")
                        print(prompt if args.echo else "", completion, sep="", flush=True)
            if bar:
                bar.update()


@contextmanager
def _telling_of_slides(model: Model, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Tell at the end whether a text outgrew the context, as it is another computation then."""
    if settings.get("on_full") != "slide":
        yield settings
        return
    n_ctx, longest = model.config.n_ctx, 0

    def watch(ids: Ids, logits: Array) -> Array:
        nonlocal longest
        longest = max(longest, len(ids))
        return logits

    try:
        yield settings | {"processors": [watch]}
    finally:
        if longest > n_ctx:
            say(
                f"gpt2np: beyond the context of {n_ctx} tokens, each token follows from the "
                f"last {n_ctx // 2} to {n_ctx} alone"
            )


def _print_stream(prompt: str, pieces: Iterator[str]) -> None:
    try:
        print(prompt, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
    finally:
        print()  # after Ctrl-C as well, so that what follows begins a line


def _print_json(prompt: str, completion: Generation, speed: float) -> None:
    print(json.dumps({
        "prompt":            prompt,
        "text":              completion.text,
        "ids":               completion.ids,
        "logprobs":          completion.logprobs,
        "finish_reason":     completion.finish_reason,
        "tokens_per_second": round(speed, 1),
    }, ensure_ascii=False), flush=True)  # fmt: skip


def _completions(
    model: Model, prompts: Sequence[str], settings: dict[str, Any]
) -> Iterator[tuple[str, list[Generation], float]]:
    """Give each prompt with its completions and the tokens a second of the batch it was in.

    The batches show in nothing but the speed: each completion has the seed it has in one call.
    """
    seed = settings.get("seed")
    for start in range(0, len(prompts), BATCH):
        batch = prompts[start : start + BATCH]
        if seed is not None:
            settings = settings | {"seed": seed + start * settings.get("num_samples", 1)}
        began = perf_counter()
        try:
            results = generation.generate(
                model, batch, progress=len(prompts) == 1 and sys.stderr.isatty(), **settings
            )
        except GPT2Error as error:
            if len(prompts) == 1:
                raise
            where = f"in lines {start + 1} to {start + len(batch)}"
            raise InputError(f"{where} of the prompts: {error}") from error
        groups = [result if isinstance(result, list) else [result] for result in results]
        tokens = sum(len(completion.ids) for group in groups for completion in group)
        speed = tokens / (perf_counter() - began)
        for prompt, group in zip(batch, groups, strict=True):
            yield prompt, group, speed


@contextmanager
def _bar(n_prompts: int) -> Iterator[Any]:
    """Count several prompts on standard error, if that is a terminal."""
    if n_prompts < 2 or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(total=n_prompts, unit="prompt") as bar:
        yield bar


def _interact(model: Model, settings: dict[str, Any], args: argparse.Namespace) -> None:
    """Continue line by line what is typed."""
    with _history():
        while True:
            try:
                prompt = input("> " if sys.stdin.isatty() else "")
            except EOFError:
                return
            except KeyboardInterrupt:
                print()
                continue
            try:
                _continue(model, [prompt], settings, args)
            except GPT2Error as error:
                complain(error)
            except KeyboardInterrupt:
                pass  # stops this text


@contextmanager
def _history() -> Iterator[None]:
    """Let the lines typed be edited and remembered, where the system can do that."""
    if not sys.stdin.isatty() or not find_spec("readline"):
        yield
        return
    import readline  # whose import is what gives input() its editing

    from gpt2np.hub import own_cache

    file = own_cache() / "history"
    with suppress(OSError):  # none yet, or not one that can be read
        readline.read_history_file(file)
    readline.set_history_length(1000)
    try:
        yield
    finally:
        with suppress(OSError):  # the lines were a convenience: no reason to fail
            file.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=file.parent) as folder:
                part = Path(folder) / file.name
                readline.write_history_file(part)
                rename(part, file)
