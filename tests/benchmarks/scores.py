"""How fast experiments are scored, beside minicons and transformers on the same weights.

    python tests/benchmarks/scores.py [--model SOURCE] [--rounds 5]

Two works, each tool in turn in every round: 500 sentences of a table to a row for each word
(minicons: word_score_tokenized, corrected), and 2,000 short texts to the surprisal of each token
(transformers, in batches of 16, padded). Medians and ratios are printed. Needs torch,
transformers and minicons beside gpt2np; what tests/peers/record.py needs will do.
"""

import argparse
import csv
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import gpt2np
from gpt2np.cli import main as gpt2np_command

SUBJECTS = ["The king", "My lord of Gloucester", "An old man", "The messenger", "She"]
VERBS = ["did love", "has seen", "spoke to", "would not follow", "remembers"]
OBJECTS = ["the queen", "his brother's horse", "all that came before", "me", "thy fair daughter"]
ENDS = ["in the garden.", "before the battle was lost.", "again.", "and said nothing."]


def sentences(n):
    rng = np.random.default_rng(0)
    parts = (SUBJECTS, VERBS, OBJECTS, ENDS)
    return [" ".join(part[rng.integers(len(part))] for part in parts) for _ in range(n)]


def works(model, folder, workplace):
    import torch
    from minicons import scorer
    from transformers import AutoTokenizer, GPT2LMHeadModel

    table, out = workplace / "stimuli.csv", workplace / "words.csv"
    stimuli, texts = sentences(500), sentences(2000)
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("item", "sentence"), *enumerate(stimuli)])
    theirs = scorer.IncrementalLMScorer(folder, device="cpu")
    hf, tokenizer = (
        GPT2LMHeadModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    tokenizer.pad_token = tokenizer.eos_token = "<|endoftext|>"

    def ours_table():
        argv = ["score", str(table), "-m", folder, "--column", "sentence", "--words", "--force"]
        assert gpt2np_command([*argv, "--boundary", "space", "-o", str(out)]) == 0

    def minicons_table():
        words = []
        for i in range(0, len(stimuli), 16):
            words += theirs.word_score_tokenized(
                stimuli[i : i + 16], str.split, bow_correction=True, bos_token=True,
                surprisal=True, base_two=True,
            )  # fmt: skip
        with (workplace / "theirs.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows((i, *w) for i, row in enumerate(words) for w in row)

    def ours_texts():
        return [s.surprisal for s in gpt2np.score(model, texts)]

    @torch.no_grad()
    def transformers_texts():
        found = []
        for i in range(0, len(texts), 16):
            batch = tokenizer(
                ["<|endoftext|>" + text for text in texts[i : i + 16]],
                return_tensors="pt",
                padding=True,
            )
            logits = hf(**batch).logits[:, :-1]
            logprobs = torch.log_softmax(logits, -1)
            targets = batch.input_ids[:, 1:, None]
            picked = logprobs.gather(-1, targets)[..., 0] / -np.log(2)
            found += [
                row[mask.bool()].numpy()
                for row, mask in zip(picked, batch.attention_mask[:, 1:], strict=True)
            ]
        return found

    for a, b in zip(ours_texts(), transformers_texts(), strict=True):
        np.testing.assert_allclose(a, b, atol=5e-3)
    return {
        "500 sentences to a row a word": {"gpt2np": ours_table, "minicons": minicons_table},
        "2,000 short texts": {"gpt2np": ours_texts, "transformers": transformers_texts},
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        if args.model == "random":
            params = gpt2np.Params.random(gpt2np.Config())
            model = gpt2np.Model(params, gpt2np.Tokenizer.gpt2())
        else:
            model = gpt2np.load(args.model)
        folder = str(gpt2np.save(model, Path(path) / "model"))
        model = gpt2np.load(folder)
        for work, tools in works(model, folder, Path(path)).items():
            seconds = {name: [] for name in tools}
            for _ in range(args.rounds):
                for name, run in tools.items():
                    began = time.perf_counter()
                    run()
                    seconds[name].append(time.perf_counter() - began)
            ours, theirs = (statistics.median(times) for times in seconds.values())
            told = ", ".join(f"{name} {statistics.median(t):.2f} s" for name, t in seconds.items())
            print(f"{work}: {told}; {theirs / ours:.2f} times as fast")


if __name__ == "__main__":
    main()
