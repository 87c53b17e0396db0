"""A small GPT-2 written by itself, with faults to switch on: what the checks are tried on.

What it computes shares no code with the package, and stands under Hugging Face's names. A fault, or
several with " + " between, holds in all blocks.
"""

import math

import numpy as np

from gpt2np.golden import Golden
from gpt2np.golden.tiny import IDS


class FaultyGPT2:
    def __init__(self, weights, n_head, fault="", epsilon=1e-5, past=None):
        self.w, self.n_head, self.epsilon = weights, n_head, epsilon
        self.faults = fault.split(" + ")
        self.past = past  # keys and values [L, B, H, N, K]
        self.seen = {}
        self.random = np.random.default_rng(0)

    def keep(self, name, array):
        if self.has(f"half {name}"):
            array = array.astype(np.float16).astype(array.dtype)
        self.seen[name] = array
        return array

    def has(self, fault):
        return fault in self.faults

    def chosen(self, by_fault, otherwise):
        return next((by_fault[fault] for fault in self.faults if fault in by_fault), otherwise)

    def run(self, ids):
        w, T = self.w, ids.shape[1]
        first = 0 if self.past is None or self.has("positions restart") else self.past.shape[4]
        first += self.chosen({"positions from 1": 1, "positions from 2": 2}, 0)
        tokens = ids + self.has("ids plus one")
        x = self.keep("wte", w["wte.weight"][tokens % len(w["wte.weight"])])
        if self.has("embeddings scaled"):
            x = self.keep("wte", x * np.float32(math.sqrt(x.shape[-1])))
        positions = (first + np.arange(T)) % len(w["wpe.weight"])
        wpe = self.keep("wpe", w["wpe.weight"][positions][None])
        if self.has("no positions"):
            wpe = self.keep("wpe", np.zeros_like(wpe))
        x = self.keep("drop", self.drop(x + wpe))
        layers = sum(name.endswith("ln_1.weight") for name in w) - self.has("no last block")
        for i in range(layers):
            x = self.block(x, i)
        h = self.keep("ln_f", x) if self.has("no final norm") else self.norm("ln_f", x)
        self.keep("logits", self.head(h))
        return self.seen

    def head(self, h):
        wte = self.w["wte.weight"]
        if self.has("untied head"):
            wte = self.random.normal(size=wte.shape).astype(wte.dtype)
        if self.has("head reshaped"):
            return h @ wte.reshape(h.shape[-1], -1)
        logits = h @ wte.T
        if self.has("log-probabilities"):
            logits = logits - logits.max(-1, keepdims=True)
            return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return logits

    def drop(self, x, p=0.1):
        if not self.has("dropout"):
            return x
        return np.where(self.random.random(x.shape) < p, 0, x / x.dtype.type(1 - p))

    def norm(self, name, x):
        D = x.shape[-1]
        module = {"ln_2": "ln_1", "ln_1": "ln_2"}.get(name[-4:], name[-4:])
        of = name[:-4] + module if self.has("norms exchanged") else name
        if self.has("blocks by name") and name.endswith("ln_1"):
            i = int(name.split(".")[1])
            layers = sum(n.endswith("ln_1.weight") for n in self.w)
            of = f"h.{sorted(map(str, range(layers)))[i]}.ln_1"
        epsilon = 1e-3 if self.has("epsilon") else self.epsilon
        rms = self.has("RMSNorm")
        mean = 0 if rms or self.has("no mean") else x.sum(-1, keepdims=True) / D
        divisor = D - self.chosen({"variance n - 1": 1, "torch.std": 1}, 0)
        variance = ((x - mean) ** 2).sum(-1, keepdims=True) / divisor
        if self.has("epsilon outside") or self.has("torch.std"):
            y = (x - mean) / (np.sqrt(variance) + x.dtype.type(epsilon))
        else:
            y = (x - mean) / np.sqrt(variance + x.dtype.type(epsilon))
        gain, bias = self.w[f"{of}.weight"], self.w[f"{of}.bias"]
        if self.has("gain and bias exchanged"):
            gain, bias = bias, gain
        if not self.has("no gain"):
            y = y * gain
        if not (rms or self.has("no norm bias")):
            y = y + bias
        return self.keep(name, x if self.has("no norm") else y)

    def linear(self, name, x):
        W, b = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        module = name.split(".", 2)[-1]
        if self.has(f"transposed {module}"):
            W = np.ascontiguousarray(W.T).reshape(W.shape)
        if self.has(f"half weight {module}"):
            W = W.astype(np.float16).astype(W.dtype)
        y = x @ W if self.has(f"no bias {module}") else x @ W + b
        return self.keep(name, y)

    def block(self, x, i):
        h = f"h.{i}"
        if self.has("norm after attention"):
            x = self.keep(f"{h}.resid_mid", self.norm(f"{h}.ln_1", x + self.attention(x, i)))
            act = self.keep(f"{h}.mlp.act", self.gelu(self.linear(f"{h}.mlp.c_fc", x)))
            return self.keep(h, self.norm(f"{h}.ln_2", x + self.linear(f"{h}.mlp.c_proj", act)))
        attended = self.drop(self.attention(self.norm(f"{h}.ln_1", x), i))
        if self.has("residual after norm"):
            mid = self.seen[f"{h}.ln_1"] + attended
        else:
            mid = attended if self.has("no residual") else x + attended
        self.keep(f"{h}.resid_mid", mid)
        normed = self.norm(f"{h}.ln_2", x if self.has("parallel blocks") else mid)
        act = self.keep(f"{h}.mlp.act", self.gelu(self.linear(f"{h}.mlp.c_fc", normed)))
        moved = self.drop(self.linear(f"{h}.mlp.c_proj", act))
        return self.keep(h, moved if self.has("no second residual") else mid + moved)

    def gelu(self, x):
        erf = np.vectorize(math.erf, otypes=[x.dtype])
        forms = {
            "relu":         lambda: np.maximum(x, 0),
            "silu":         lambda: x / (1 + np.exp(-x)),
            "sigmoid gelu": lambda: x / (1 + np.exp(-1.702 * x)),
            "erf gelu":     lambda: x / 2 * (1 + erf(x / math.sqrt(2))),
        }  # fmt: skip
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return self.chosen(forms, lambda: x / 2 * (1 + np.tanh(inner)))()

    def attention(self, x, i):
        H, name = self.n_head, f"h.{i}.attn"
        (B, T, D), K = x.shape, x.shape[-1] // self.n_head
        qkv = self.linear(f"{name}.c_attn", x)
        if self.has("columns by head"):
            qkv = self.keep(
                f"{name}.c_attn", qkv.reshape(B, T, 3, H, K).swapaxes(2, 3).reshape(B, T, 3 * D)
            )
        q, k, v = qkv[..., :D], qkv[..., D : 2 * D], qkv[..., 2 * D :]
        if self.has("k before q"):
            q, k = k, q
        if self.has("v first"):
            q, k, v = k, v, q
        if self.has("heads first"):
            q, k, v = np.moveaxis(qkv.reshape(B, T, H, 3, K), 3, 0).reshape(3, B, T, D)
        q, k, v = (
            self.keep(f"{name}.{letter}", self.split(part))
            for letter, part in (("q", q), ("k", k), ("v", v))
        )
        if self.past is not None:
            k = np.concatenate([self.past[0, i], k], 2)
            v = np.concatenate([self.past[1, i], v], 2)
        scores = self.scores(q, k)
        self.keep(f"{name}.scores", scores)
        if self.has("softmax over queries"):
            e = np.exp(scores - scores.max())
            pattern = e / e.sum(-2, keepdims=True)
        else:
            e = np.exp(scores - scores.max(-1, keepdims=True))
            pattern = e / e.sum(-1, keepdims=True)
        pattern = self.drop(self.keep(f"{name}.pattern", pattern))
        z = (pattern @ v).transpose(0, 2, 1, 3)
        if self.has("heads not moved back"):
            z = z.transpose(0, 2, 1, 3).reshape(B, T, H, K)
        self.keep(f"{name}.z", z)
        return self.linear(f"{name}.c_proj", z.reshape(B, T, D))

    def split(self, x):  # [B, T, D] -> [B, H, T, K]
        (B, T, D), H = x.shape, self.n_head
        if self.has("heads interleaved"):
            return x.reshape(B, T, D // H, H).transpose(0, 3, 1, 2)
        if self.has("heads not moved"):
            return x.reshape(B, H, T, D // H)
        return x.reshape(B, T, H, D // H).transpose(0, 2, 1, 3)

    def scores(self, q, k):
        (_, H, T, K), S = q.shape, k.shape[2]
        scale = self.chosen({"unscaled": 1, "scaled by D": H * K, "scaled by K": K * K}, K)
        scores = q @ k.swapaxes(2, 3) / q.dtype.type(math.sqrt(scale))
        diagonal = S - T + 1
        diagonal += self.chosen({"mask sees next": 1, "mask hides itself": -1}, 0)
        if self.has("mask from the left"):
            diagonal = 1
        if self.has("no mask"):
            return scores
        hidden = np.triu(np.ones((T, S), bool), diagonal)
        return np.where(hidden, q.dtype.type(0 if self.has("mask of 0") else -np.inf), scores)


def dump(model, fault="", ids=(IDS,), past=None, **settings):
    weights = {name: np.array(array) for name, array in model.params.items()}
    faulty = FaultyGPT2(weights, model.config.n_head, fault, past=past, **settings)
    with np.errstate(all="ignore"):
        return Golden(faulty.run(np.array(ids)), name="mine")
