"""Record what other tools make of the same weights and texts, for tests/test_peers.py.

Needs an environment of its own: ``pip install torch==2.13.0 transformers==5.24.0 lm-eval==0.4.13
minicons==0.3.39 wordsprobability==0.17``, and gpt2np. Then ``python tests/peers/record.py``
writes values.json beside itself. Everything is computed in float64 where the tool allows it.
"""

import itertools
import json
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, GPT2LMHeadModel

import gpt2np

HERE = Path(__file__).parent
SENTENCES = [
    "The horse raced past the barn fell.",
    "I didn't say it, he said to the old king.",
    "What is thy name, good fellow?",
    "Na\u00efve caf\u00e9 owners smile twice.",
]
PAIRS = [
    ("The king is", " dead"),
    ("The king is ", "dead"),
    ("The ca", "t sat"),
    ("", "Good morrow, cousin."),
    ("To be, or not to be:\n", "that is the question"),
    ("O Romeo, Romeo, wherefore art thou", " Romeo?"),
    ("ROMEO:\nBut, soft! what light " * 60, "through yonder window breaks?"),
]
CHOICES = [
    {
        "prefix": "My lord, the king is",
        "choices": ["dead", "a fool, and no man loves him", "."],
        "answer": 0,
    },
    {"prefix": "O Romeo, wherefore art", "choices": ["thou", "you all", "not"], "answer": 0},
    {"prefix": "Good", "choices": ["the", "morrow, cousin", "night, good night"], "answer": 2},
    {
        "prefix": "What is",
        "choices": ["thy name", "it", "the matter, my good lord?"],
        "answer": "the matter, my good lord?",
    },
    {"prefix": "He", "choices": ["are", "is"], "answer": 1},
]
PAIRS_OF_SENTENCES = [
    {"sentence_good": "The kings are dead.", "sentence_bad": "The kings is dead."},
    {"sentence_good": "He is my brother.", "sentence_bad": "He are my brother."},
    {"sentence_good": "She loves herself.", "sentence_bad": "She loves himself."},
    {"sentence_good": "What art thou?", "sentence_bad": "What are thou?"},
]
LAMBADA = [
    {"text": "The king of all this land did love the queen, and she did love the king"},
    {"text": "Good morrow, cousin. Is the day so young? Good morrow to thee, good cousin"},
    {"text": "O Romeo, Romeo! wherefore art thou Romeo? Deny thy father and refuse thy name"},
    {"text": "I pray thee, tell me what thou wilt, my lord, and I will tell thee what I will"},
]
DOCUMENT = (
    ' = The King = \n\n The king , who was dead , said : " I am not well @-@ made . " It cost '
    "1 @,@ 000 crowns ( or 2 @.@ 5 pounds ) and the queen 's horse ; but N men were there .\n"
) * 6


def folder_of(model, folder):
    gpt2np.save(model, folder)
    return str(folder)


def lm_eval(folder, max_length):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(pretrained=folder, dtype="float64", device="cpu", batch_size=1, max_length=max_length)

    def ask(kind, arguments):
        made = [Instance(kind, {}, arguments=a, idx=i) for i, a in enumerate(arguments)]
        return getattr(lm, kind)(made, disable_tqdm=True)

    return ask


def of_lm_eval(folder, max_length):
    from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer

    ask = lm_eval(folder, max_length)
    choices = []
    for item in [*CHOICES, *PAIRS_OF_SENTENCES]:
        if "prefix" in item:
            prefix, options, delimiter = item["prefix"], item["choices"], " "
            answer = item["answer"]
            answer = options.index(answer) if isinstance(answer, str) else answer
        else:
            prefix, answer = "", 0
            options, delimiter = [item["sentence_good"], item["sentence_bad"]], " "
        lls = np.array(
            [ll for ll, _ in ask("loglikelihood", [(prefix, delimiter + o) for o in options])]
        )
        lengths = np.array([float(len(o)) for o in options])
        n_bytes = np.array([float(len(o.encode())) for o in options])
        choices.append(
            {
                "lls": lls.tolist(),
                "acc": int(lls.argmax() == answer),
                "acc_norm": int((lls / lengths).argmax() == answer),
                "acc_bytes": int((lls / n_bytes).argmax() == answer),
            }
        )
    lambada = [
        (" ".join(item["text"].split(" ")[:-1]), " " + item["text"].split(" ")[-1])
        for item in LAMBADA
    ]
    doc = {"page": DOCUMENT}
    rolling = ask("loglikelihood_rolling", [(wikitext_detokenizer(doc),)])[0]
    counts = process_results(doc, [rolling])
    return {
        "pairs": [[ll, bool(greedy)] for ll, greedy in ask("loglikelihood", PAIRS)],
        "choices": choices,
        "lambada": [[ll, bool(greedy)] for ll, greedy in ask("loglikelihood", lambada)],
        "detokenized": wikitext_detokenizer(doc),
        "rolling": rolling,
        "n_words": counts["word_perplexity"][1],
        "n_bytes": counts["byte_perplexity"][1],
        "rolling_plain": ask("loglikelihood_rolling", [(DOCUMENT,)])[0],
    }


def of_minicons(folder):
    from minicons import scorer

    lm = scorer.IncrementalLMScorer(folder, device="cpu", torch_dtype=torch.float64)
    split = str.split
    common = {"surprisal": True, "base_two": True, "bos_token": True}
    return {
        "tokens": [
            [[token, value] for token, value in row] for row in lm.token_score(SENTENCES, **common)
        ],
        "words": [
            lm.word_score_tokenized([s], split, bow_correction=fixed, **common)[0]
            for s, fixed in itertools.product(SENTENCES, (False, True))
        ],
    }


def of_wordsprobability(folder):
    from wordsprobability import main
    from wordsprobability.models import bow_lm

    class Own(bow_lm.BaseBOWModel):
        def _initialise_model(self):
            model = GPT2LMHeadModel.from_pretrained(folder)  # its checks need float32
            return model.eval(), AutoTokenizer.from_pretrained(folder)

        def _get_n_logits(self):
            return self.model.config.vocab_size

        def _get_tokens(self, _, labels, __, ___):
            return np.array(self.tokenizer.convert_ids_to_tokens(labels.view(-1).tolist()))

    own = Own()
    main.get_model = lambda name: own
    main.get_bow_symbol = lambda name: "\u0120"
    found = []
    for sentence in SENTENCES:
        table = main.agg_surprisal_per_word(
            main.get_surprisals_per_subword([sentence], "own"), "own"
        )
        found.append(
            [
                [word, float(s) / np.log(2)]
                for word, s in zip(table.word, table.surprisal, strict=True)
            ]
        )
    return found


def main():
    values = {
        "versions": {
            name: version(name)
            for name in ("torch", "transformers", "lm-eval", "minicons", "wordsprobability")
        },
        "sentences": SENTENCES, "pairs": PAIRS, "choices": [*CHOICES, *PAIRS_OF_SENTENCES],
        "lambada": LAMBADA, "document": DOCUMENT,
    }  # fmt: skip
    models = {
        "tiny-shakespeare": (gpt2np.load(), 256),
        "random 124M": (
            gpt2np.Model(gpt2np.Params.random(gpt2np.Config()), gpt2np.Tokenizer.gpt2()),
            256,
        ),
    }
    for name, (model, max_length) in models.items():
        with tempfile.TemporaryDirectory() as path:
            folder = folder_of(model, Path(path) / "model")
            values[name] = {
                "max_length": max_length,
                "lm-eval": of_lm_eval(folder, max_length),
                "minicons": of_minicons(folder),
                "wordsprobability": of_wordsprobability(folder),
            }
    (HERE / "values.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
