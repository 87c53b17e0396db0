"""gpt2np evaluate: how well a model does a task."""

from __future__ import annotations

import argparse
import json
import math
import sys

from gpt2np import evaluation
from gpt2np.commands import add_model_options, add_output, load_model
from gpt2np.scoring import RECIPES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "task",
        choices=evaluation.TASKS,
        metavar="TASK",
        help="lambada: JSON lines with a text, whose last word is to be predicted; choice: JSON "
        "lines with prefix, choices and answer, or sentence_good and sentence_bad; perplexity: "
        "a text, or JSON lines with a text each",
    )
    parser.add_argument("file", metavar="FILE", help="what the task reads, in UTF-8")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_output(parser)
    parser.add_argument(
        "--window",
        type=int,
        metavar="N",
        help="read at most N tokens at a time (the model's context)",
    )
    parser.add_argument(
        "--join",
        default=" ",
        metavar="TEXT",
        help="what stands between a prefix and its choices (a space)",
    )
    of_perplexity = parser.add_argument_group("perplexity")
    of_perplexity.add_argument(
        "--recipe",
        choices=RECIPES,
        default="lm-eval",
        help="lm-eval: windows that do not overlap, each token predicted (the default); strided: "
        "each token with at least window - stride before it; hf: transformers' page to the letter",
    )
    of_perplexity.add_argument(
        "--stride", type=int, metavar="N", help="move on by N tokens (half the window)"
    )
    of_perplexity.add_argument(
        "--n-words", type=int, metavar="N", help="how many words the original text has"
    )
    of_perplexity.add_argument(
        "--detokenize", choices=("wikitext",), help="undo a tokenization before the text is read"
    )
    add_model_options(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    model = load_model(args)
    result = evaluation.evaluate(
        model,
        args.task,
        args.file,
        join=args.join,
        window=args.window,
        stride=args.stride,
        recipe=args.recipe,
        n_words=args.n_words,
        detokenize=args.detokenize,
        progress=sys.stderr.isatty() if sys.stderr else False,
    )
    if args.json:
        values = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in result.to_dict().items()
        }
        print(json.dumps(values, ensure_ascii=False))
    else:
        print(result)
