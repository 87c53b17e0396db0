"""Train the embedded model: a small GPT-2 with the genuine vocabulary, on Shakespeare's plays.

    python assets/train_tiny_shakespeare.py INPUT.TXT [OUT_FOLDER]

Development only; needs torch and transformers. INPUT.TXT is karpathy/char-rnn's
tinyshakespeare, named by its sha256 below. The last 5% of its tokens are held out, and the
weights kept are those with the lowest held-out loss.

A third of the vocabulary's rows would see too little text, and three quarters none at all. So while
training, the vector of a token is the sum of one of its own (which those that never occur lack)
and the mean of vectors of its spelling: hashed n-grams of its characters. What is learned of one
spelling serves all tokens that share it. The sums are the rows of WTE; the model is a plain GPT-2.

The softmax runs over the tokens that occur and, in each step, a sample of the others, which counts
for them all. The weights saved are an exponential moving average over the steps; the held-out
loss is that of the whole vocabulary.
"""

import copy
import hashlib
import json
import math
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from gpt2np.checkpoints import safetensors
from gpt2np.tokenizer import Tokenizer

TEXT_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
HELD_OUT = 0.05
BATCH, STEPS, WARM_UP = 4, 1000, 100
LEARNING_RATE, WEIGHT_DECAY, AVERAGING = 2e-3, 0.1, 0.995
BUCKETS = 1 << 15  # of n-gram vectors
OWN_DROPOUT = 0.25  # of the tokens' own vectors, in each step
SAMPLED = 4096  # tokens that never occur, in each step
CONFIG = GPT2Config(
    n_layer=4,
    n_head=4,
    n_embd=128,
    n_positions=512,
    vocab_size=50257,
    resid_pdrop=0.2,
    embd_pdrop=0.2,
    attn_pdrop=0.0,
)


class Embedding(torch.nn.Module):
    """Vectors of tokens, from their own and those of their spelling."""

    def __init__(self, spellings: list[str], seen: np.ndarray) -> None:
        super().__init__()
        grams = [ngrams(text) for text in spellings]
        self.own = torch.nn.Parameter(0.02 * torch.randn(len(seen), CONFIG.n_embd))
        self.grams = torch.nn.EmbeddingBag(BUCKETS, CONFIG.n_embd, mode="mean")
        torch.nn.init.normal_(self.grams.weight, std=0.05)
        self.seen = torch.from_numpy(seen)
        self.unseen = torch.from_numpy(np.setdiff1d(np.arange(len(spellings)), seen))
        self.features = [torch.tensor(indices) for indices in grams]

    def spelt(self, ids: torch.Tensor) -> torch.Tensor:
        """The part of the vectors that comes of the spelling."""
        bags = [self.features[i] for i in ids.tolist()]
        offsets = torch.tensor([0, *(len(bag) for bag in bags[:-1])]).cumsum(0)
        return self.grams(torch.cat(bags), offsets)

    def forward(self) -> torch.Tensor:
        """Vectors of the tokens that occur, in order, and of a sample of the others."""
        sampled = self.unseen[torch.randperm(len(self.unseen))[:SAMPLED]]
        keep = (torch.rand(len(self.seen), 1) >= OWN_DROPOUT) / (1 - OWN_DROPOUT)
        return torch.cat([self.own * keep + self.spelt(self.seen), self.spelt(sampled)])

    def all(self) -> torch.Tensor:
        """Vectors of the whole vocabulary: WTE."""
        vectors = self.spelt(torch.arange(len(self.features)))
        vectors[self.seen] += self.own
        return vectors


def ngrams(text: str) -> list[int]:
    """Buckets of the n-grams of a spelling, 1 to 5 characters, as it is and in lower case."""
    found = {
        f"={text}",
        *(
            f"{kind}{form[i : i + n]}"
            for kind, form in (("", f"{text}|"), ("lower:", f"{text.lower()}|"))
            for n in range(1, 6)
            for i in range(len(form) - n + 1)
        ),
    }
    return sorted({zlib.crc32(gram.encode()) % BUCKETS for gram in found})


def cross_entropy(
    model: GPT2LMHeadModel, vectors: torch.Tensor, window: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Mean nats per token of windows [B, T + 1], given as rows of the vectors; a logit counts
    as if there were exp(weight) of it."""
    states = model.transformer(inputs_embeds=vectors[window[:, :-1]]).last_hidden_state
    logits = states @ vectors.T + weights
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())


def speech_starts(ids: np.ndarray, newline: int, newlines: int) -> np.ndarray:
    """Where, a whole window before the end, a token that is none follows a blank line."""
    after = np.arange(2, len(ids) - CONFIG.n_positions)
    blank = (ids[after - 1] == newlines) | (
        (ids[after - 1] == newline) & np.isin(ids[after - 2], [newline, newlines])
    )
    return after[blank & ~np.isin(ids[after], [newline, newlines])]


def sample_windows(
    tokens: torch.Tensor, starts: np.ndarray, eot: int, rng: np.random.Generator
) -> torch.Tensor:
    """Random windows [B, T + 1]; a quarter open with <|endoftext|> and a speech's first line."""
    length = CONFIG.n_positions
    windows = []
    for _ in range(BATCH):
        if rng.random() < 0.25:
            at = int(rng.choice(starts))
            windows.append(torch.cat([torch.tensor([eot]), tokens[at : at + length]]))
        else:
            at = int(rng.integers(len(tokens) - length))
            windows.append(tokens[at : at + length + 1])
    return torch.stack(windows)


@torch.no_grad()
def evaluate(model: GPT2LMHeadModel, vectors: torch.Tensor, tokens: torch.Tensor) -> float:
    """Mean nats per token over consecutive windows, each scored from its second token on."""
    model.eval()
    length = CONFIG.n_positions
    total, count = 0.0, 0
    for at in range(0, len(tokens) - 1, length):
        window = tokens[at : at + length + 1][None]
        loss = cross_entropy(model, vectors, window, torch.zeros(len(vectors)))
        total += loss.item() * (window.shape[1] - 1)
        count += window.shape[1] - 1
    return total / count


def learning_rate(step: int) -> float:
    """Linear warm-up, then a cosine down to a hundredth."""
    if step < WARM_UP:
        return LEARNING_RATE * (step + 1) / WARM_UP
    progress = (step - WARM_UP) / (STEPS - WARM_UP)
    return LEARNING_RATE * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


def save(model: GPT2LMHeadModel, vectors: torch.Tensor, folder: Path) -> None:
    """Write config.json and model.safetensors (float16, Hugging Face's names) to folder."""
    tensors = {
        name.removeprefix("transformer."): tensor.detach().numpy()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    tensors["wte.weight"] = vectors.numpy()
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.save(
        folder / "model.safetensors", tensors, dtype="float16", metadata={"format": "pt"}
    )
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "vocab_size": CONFIG.vocab_size,
        "n_positions": CONFIG.n_positions,
        "n_embd": CONFIG.n_embd,
        "n_layer": CONFIG.n_layer,
        "n_head": CONFIG.n_head,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def main(text_file: Path, folder: Path) -> None:
    data = text_file.read_bytes()
    if hashlib.sha256(data).hexdigest() != TEXT_SHA256:
        sys.exit(f"{text_file} is not the text this model is trained on (sha256 {TEXT_SHA256})")
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    tokenizer = Tokenizer.gpt2()
    ids = np.array(tokenizer.encode(data.decode("utf-8")))
    split = len(ids) - int(HELD_OUT * len(ids))
    eot = tokenizer.encode("<|endoftext|>", special=True)[0]
    seen = np.union1d(ids[:split], [eot])
    row = np.zeros(CONFIG.vocab_size, np.intp)
    row[seen] = np.arange(len(seen))
    training = torch.from_numpy(row[ids[:split]])
    held_out = torch.from_numpy(ids[split:])
    starts = speech_starts(ids[:split], *(tokenizer.encode(text)[0] for text in ("\n", "\n\n")))
    print(
        f"{split} training and {len(held_out)} held-out tokens, {len(seen)} distinct, "
        f"{len(starts)} speeches",
        flush=True,
    )

    config = copy.deepcopy(CONFIG)
    config.vocab_size = 1  # the embedding is not the model's own while training
    spellings = [tokenizer.token_bytes(i).decode("latin-1") for i in range(CONFIG.vocab_size)]
    modules = torch.nn.ModuleList([GPT2LMHeadModel(config), Embedding(spellings, seen)])
    average = copy.deepcopy(modules)
    optimizer = torch.optim.AdamW(
        [
            {
                "params": [p for p in modules.parameters() if p.ndim == 2],
                "weight_decay": WEIGHT_DECAY,
            },
            {"params": [p for p in modules.parameters() if p.ndim != 2], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.99),
    )
    weights = torch.zeros(len(seen) + SAMPLED)
    weights[len(seen) :] = math.log((CONFIG.vocab_size - len(seen)) / SAMPLED)
    best = math.inf
    began = time.monotonic()
    losses: list[float] = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        model, embedding = modules.train()
        window = sample_windows(training, starts, int(row[eot]), rng)
        loss = cross_entropy(model, embedding(), window, weights)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        with torch.no_grad():
            keep = min(AVERAGING, (step + 1) / (step + 10))
            for mean, new in zip(average.parameters(), modules.parameters(), strict=True):
                mean.lerp_(new, 1 - keep)
        if (step + 1) % 100 == 0:
            model, embedding = average
            with torch.no_grad():
                vectors = embedding.all()
            loss_held_out = evaluate(model, vectors, held_out)
            print(
                f"step {step + 1}: training {np.mean(losses[-100:]):.3f}, "
                f"held out {loss_held_out:.4f}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
            if loss_held_out < best:
                best = loss_held_out
                save(model, vectors, folder)
    print(f"best held-out loss {best:.4f} nats per token")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(*sys.argv[2:] or [Path(__file__).parent / "tiny-shakespeare"]))
