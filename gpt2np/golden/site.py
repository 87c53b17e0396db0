"""What is known of a computation, and of one point in it: what the faults are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gpt2np.config import Config
from gpt2np.golden.names import kind_and_block
from gpt2np.params import Array, Ids


@dataclass(frozen=True)
class Run:
    """What is known of a computation."""

    at: Mapping[str, Array]  # its activations by point, `embed` among them
    config: Config | None = None
    params: Mapping[str, Array] = field(default_factory=dict)
    ids: Ids | None = None  # [B, N + T]
    past: tuple[Array, Array] | None = None  # keys and values [L, B, H, N, K] of the first N

    @property
    def held(self) -> int:
        """N, how many positions were read before."""
        return 0 if self.past is None else int(self.past[0].shape[3])


@dataclass(frozen=True)
class Site:
    """A point of a run. What was not recorded raises a KeyError where it is asked for."""

    run: Run
    point: str
    clean: Array  # the activation without a fault

    def __getitem__(self, name: str) -> Array:
        """Give an activation; {i} stands for this block."""
        return self.run.at[name.format(i=self.i)]

    @property
    def i(self) -> int:
        return kind_and_block(self.point)[1]

    @property
    def config(self) -> Config:
        if self.run.config is None:
            raise KeyError("config")
        return self.run.config

    @property
    def x(self) -> Array:  # [B, T, D]
        """What goes into the block; into ln_f, for that."""
        i = self.config.n_layer if self.point == "ln_f" else self.i
        return self[f"h.{i - 1}" if i else "embed"]

    @property
    def input(self) -> Array:
        """What a LayerNorm or a linear map is applied to."""
        match kind_and_block(self.point)[0]:
            case "h.{i}.attn.c_attn":
                return self["h.{i}.ln_1"]
            case "h.{i}.attn.c_proj":
                z = self["h.{i}.attn.z"]
                return z.reshape(*z.shape[:2], -1)
            case "h.{i}.ln_2":
                return self["h.{i}.resid_mid"]
            case "h.{i}.mlp.c_fc":
                return self["h.{i}.ln_2"]
            case "h.{i}.mlp.c_proj":
                return self["h.{i}.mlp.act"]
        return self.x

    def parameter(self, kind: str, module: str = "") -> Array:
        """Give the weight or bias of the point's module, or of another one."""
        return self.run.params[f"{module.format(i=self.i) or self.point}.{kind}"]

    @property
    def head(self) -> Array:  # [V, D]
        tied = self.config.tie_word_embeddings
        return self.run.params["wte.weight" if tied else "lm_head.weight"]

    @property
    def ids(self) -> Ids:  # [B, T]
        if self.run.ids is None:
            raise KeyError("ids")
        return self.run.ids[:, self.run.held :]

    def keys(self, which: int = 0) -> Array:  # [B, H, S, K]
        """The keys, or with 1 the values, of all positions."""
        new = self["h.{i}.attn.v" if which else "h.{i}.attn.k"]
        if self.run.past is None:
            return new
        return np.concatenate([self.run.past[which][self.i], new], axis=2)
