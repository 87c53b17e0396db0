"""Record tf-sharded/: a checkpoint that TensorFlow wrote, and what OpenAI's model says with it.

Twelve layers, so that h10 comes before h2 by name, in three shards. The weights are those of
`weights()`, so that a test can hold the checkpoint against them; expected.npz is the answer of
OpenAI's own model.py. Needs tensorflow-cpu (2.19 was used) and a checkout of
https://github.com/openai/gpt-2 (122c55a was used):

    python record_tensorflow.py path/to/gpt-2/src
"""

import json
import os
import sys
import types
from pathlib import Path

import numpy as np

HPARAMS = {"n_vocab": 61, "n_ctx": 20, "n_embd": 16, "n_head": 4, "n_layer": 12}
SHARDS = 3
FOLDER = Path(__file__).parent / "tf-sharded"


def weights():
    """Name -> array, under OpenAI's names; biases and gains are random too."""
    D, L = HPARAMS["n_embd"], HPARAMS["n_layer"]
    shapes = {"wpe": (HPARAMS["n_ctx"], D), "wte": (HPARAMS["n_vocab"], D)}
    for i in range(L):
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h{i}/{norm}/g": (D,), f"h{i}/{norm}/b": (D,)}
        for layer, n_in, n_out in [
            ("attn/c_attn", D, 3 * D),
            ("attn/c_proj", D, D),
            ("mlp/c_fc", D, 4 * D),
            ("mlp/c_proj", 4 * D, D),
        ]:
            shapes |= {f"h{i}/{layer}/w": (1, n_in, n_out), f"h{i}/{layer}/b": (n_out,)}
    shapes |= {"ln_f/g": (D,), "ln_f/b": (D,)}
    random = np.random.RandomState(2019)
    return {
        f"model/{name}": (0.2 * random.randn(*shape) + name.endswith("/g")).astype(np.float32)
        for name, shape in shapes.items()
    }


def tokens():
    return np.random.RandomState(2020).randint(HPARAMS["n_vocab"], size=(2, HPARAMS["n_ctx"]))


def record(openai_source):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    # model.py is of TensorFlow 1: it asks for `tf` and for HParams, a bag of attributes.
    contrib = types.ModuleType("tensorflow.contrib.training")
    contrib.HParams = types.SimpleNamespace
    sys.modules |= {
        "tensorflow": tf,
        "tensorflow.contrib": types.ModuleType("tensorflow.contrib"),
        "tensorflow.contrib.training": contrib,
    }
    sys.path.insert(0, openai_source)
    import model

    placed = []

    def device(operation):
        if "Variable" in operation.type:
            placed.append(operation)
            return f"/cpu:{len(placed) % SHARDS}"
        return ""

    X = tf.placeholder(tf.int32, [2, HPARAMS["n_ctx"]])
    with tf.device(device):
        results = model.model(hparams=types.SimpleNamespace(**HPARAMS), X=X)
    saver = tf.train.Saver(sharded=True)
    FOLDER.mkdir(exist_ok=True)
    os.chdir(FOLDER)  # so that the file `checkpoint` holds a plain name, as OpenAI's does
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": SHARDS})) as session:
        values = weights()
        for variable in tf.global_variables():
            variable.load(values.pop(variable.op.name), session)
        assert not values, f"OpenAI's model lacks {list(values)}"
        logits, present = session.run([results["logits"], results["present"]], {X: tokens()})
        saver.save(session, "./model.ckpt", write_meta_graph=False)
    np.savez_compressed("expected.npz", tokens=tokens(), logits=logits, present=present[:1])
    Path("hparams.json").write_text(json.dumps(HPARAMS) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(os.path.abspath(sys.argv[1]))
