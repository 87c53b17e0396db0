"""Train the embedded model: a small GPT-2 with the genuine vocabulary, on Shakespeare's plays.

    python assets/train_tiny_shakespeare.py INPUT.TXT [OUT_FOLDER]

Development only; needs torch and transformers. INPUT.TXT is karpathy/char-rnn's
tinyshakespeare, named by its sha256 below. The last 5% of its tokens are held out, and the
weights kept are those with the lowest held-out loss.

Only some 11,700 of the 50,257 tokens occur in the training text. All the others share one row of
WTE while training, so the softmax runs over the tokens that occur and one that counts for the
rest: the loss is exactly that of the whole vocabulary with those rows equal, at a quarter of the
cost. The weights saved are an exponential moving average over the steps.
"""

import copy
import hashlib
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from gpt2np.checkpoints import safetensors
from gpt2np.tokenizer import Tokenizer

TEXT_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
HELD_OUT = 0.05
RARE = 0.002  # of the training tokens are taken for one that never occurs, so that it may
BATCH, STEPS, WARM_UP = 4, 1600, 100
LEARNING_RATE, WEIGHT_DECAY, AVERAGING = 2e-3, 0.5, 0.995
CONFIG = GPT2Config(
    n_layer=4, n_head=4, n_embd=128, n_positions=512, vocab_size=50257,
    resid_pdrop=0.3, embd_pdrop=0.3, attn_pdrop=0.0,
)  # fmt: skip


def compact_vocabulary(tokens: np.ndarray) -> tuple[np.ndarray, int]:
    """Map from token id to its row while training, and the number of rows of their own."""
    seen = np.unique(tokens)
    row = np.full(CONFIG.vocab_size, len(seen))
    row[seen] = np.arange(len(seen))
    return row, len(seen)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, sharing: int) -> torch.Tensor:
    """Mean nats per token; the last row counts once for each of the tokens that share it."""
    shared_row = logits.shape[-1] - 1
    logits[..., shared_row] += math.log(sharing)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return loss + math.log(sharing) * (targets == shared_row).float().mean()


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
def evaluate(model: GPT2LMHeadModel, tokens: torch.Tensor, sharing: int) -> float:
    """Mean nats per token over consecutive windows, each scored from its second token on."""
    model.eval()
    length = CONFIG.n_positions
    total, count = 0.0, 0
    for at in range(0, len(tokens) - 1, length):
        window = tokens[at : at + length + 1][None]
        loss = cross_entropy(model(window[:, :-1]).logits, window[:, 1:], sharing)
        total += loss.item() * (window.shape[1] - 1)
        count += window.shape[1] - 1
    model.train()
    return total / count


def learning_rate(step: int) -> float:
    """Linear warm-up, then a cosine down to a hundredth."""
    if step < WARM_UP:
        return LEARNING_RATE * (step + 1) / WARM_UP
    progress = (step - WARM_UP) / (STEPS - WARM_UP)
    return LEARNING_RATE * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


def save(model: GPT2LMHeadModel, row: np.ndarray, folder: Path) -> None:
    """Write config.json and model.safetensors (float16, Hugging Face's names) to folder."""
    tensors = {
        name.removeprefix("transformer."): tensor.detach().numpy()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    tensors["wte.weight"] = tensors["wte.weight"][row]
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.save(folder / "model.safetensors", tensors, dtype="float16",
                     metadata={"format": "pt"})
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "vocab_size": CONFIG.vocab_size, "n_positions": CONFIG.n_positions,
        "n_embd": CONFIG.n_embd, "n_layer": CONFIG.n_layer, "n_head": CONFIG.n_head,
        "bos_token_id": 50256, "eos_token_id": 50256, "tie_word_embeddings": True,
    }  # fmt: skip
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
    row, rows = compact_vocabulary(ids[:split])
    sharing = CONFIG.vocab_size - rows
    tokens = torch.from_numpy(row[ids])
    training, held_out = tokens[:split], tokens[split:]
    # A speech begins after a blank line ("\n\n" is one token or ends in two newline tokens).
    newline = np.isin(ids[:split], tokenizer.encode("\n\n") + tokenizer.encode("\n"))
    starts = np.flatnonzero(newline[:-1] & ~newline[1:] & (ids[: split - 1] == 198)) + 1
    blank = np.append(False, newline[:-2]) | (ids[: split - 1] == 628)
    starts = starts[blank[starts - 1] & (starts < split - CONFIG.n_positions)]
    print(f"{split} training and {len(held_out)} held-out tokens, {rows} distinct, "
          f"{len(starts)} speeches", flush=True)

    config = copy.deepcopy(CONFIG)
    config.vocab_size = rows + 1
    model = GPT2LMHeadModel(config)
    average = copy.deepcopy(model)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY},
         {"params": vectors, "weight_decay": 0.0}],
        betas=(0.9, 0.99),
    )
    best = math.inf
    began = time.monotonic()
    losses: list[float] = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        window = sample_windows(training, starts, rows, rng)
        window[torch.rand(window.shape) < RARE] = rows
        loss = cross_entropy(model(window[:, :-1]).logits, window[:, 1:], sharing)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        with torch.no_grad():
            keep = min(AVERAGING, (step + 1) / (step + 10))
            for mean, new in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(new, 1 - keep)
        if (step + 1) % 50 == 0:
            loss_held_out = evaluate(average, held_out, sharing)
            print(f"step {step + 1}: training {np.mean(losses[-50:]):.3f}, "
                  f"held out {loss_held_out:.4f}, {time.monotonic() - began:.0f} s", flush=True)
            if loss_held_out < best:
                best = loss_held_out
                save(average, row, folder)
    print(f"best held-out loss {best:.4f} nats per token")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(*sys.argv[2:] or [Path(__file__).parent / "tiny-shakespeare"]))
