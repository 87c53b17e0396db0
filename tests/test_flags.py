"""A BLAS that raises floating-point flags, as Accelerate on an M4: no warning, same numbers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

LIBRARIES = sorted(Path(np.__file__).parents[1].glob("numpy.libs/libscipy_openblas64*"))

CODE = """
import json
import sys
from pathlib import Path

import numpy as np

import gpt2np
from gpt2np.bench import measure
from gpt2np.checkpoints import safetensors
from gpt2np.cli import main

try:
    np.ones((32, 32)) @ np.ones((32, 32))
except RuntimeWarning:
    pass
else:
    sys.exit("no flag was raised")

model = gpt2np.load()
text = "To be, or not to be, that is the question: " * 6
print(gpt2np.generate(model, "ROMEO:", max_new_tokens=8, seed=1).ids)
print(gpt2np.generate(model, "ROMEO:", max_new_tokens=8, num_beams=3, temperature=0).ids)
print(gpt2np.score(model, text).words()[3])
print(gpt2np.perplexity(model, text, window=32))
folder = Path(sys.argv[1])
measure(model.params, seconds=0.01)
for argv in (
    ["golden", "record", folder / "run.npz", "--text", text[:80], "--new", "1"],
    ["golden", "record", folder / "double.npz", "--text", text[:80], "--new", "1",
     "--dtype", "float64"],
    ["golden", "check", folder / "double.npz", folder / "run.npz"],
    ["golden", "check", folder / "double.npz", folder / "run.npz", "-m", "tiny-shakespeare"],
    ["explain", "--html", folder / "page.html", "--text", text[:100]],
):
    assert main([str(word) for word in argv]) == 0, argv
print((folder / "page.html").stat().st_size)

right = gpt2np.golden.record(model, text[:60], new_tokens=2)
wrong = {**right.arrays, "h.1.attn.z": right.arrays["h.1.attn.z"][::-1] * 1.5}
print(*gpt2np.golden.check(gpt2np.golden.Golden(wrong), right, model=model).causes)

adapter, D = folder / "adapter", model.config.n_embd
gpt2np.save(model, folder / "base")
adapter.mkdir()
(adapter / "adapter_config.json").write_text(json.dumps({
    "peft_type": "LORA", "base_model_name_or_path": str(folder / "base"),
    "r": 2, "lora_alpha": 4, "target_modules": ["c_attn"],
}))
name = "base_model.model.transformer.h.0.attn.c_attn.lora_{}.weight"
safetensors.save(adapter / "adapter_model.safetensors", {
    name.format("A"): np.full((2, D), 0.01), name.format("B"): np.full((3 * D, 2), 0.1),
})
print(gpt2np.load(adapter).params["h.0.attn.c_attn.weight"][:2, :2])
"""


@pytest.mark.skipif(sys.platform != "linux" or not LIBRARIES, reason="needs NumPy's own OpenBLAS")
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_flags_raised_by_blas_warn_nobody(tmp_path):
    raising = tmp_path / "raise_flags.so"
    source = Path(__file__).with_name("raise_flags.c")
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", source, "-o", raising, "-ldl", "-lm"], check=True
    )
    outputs = []
    for name, settings in (
        ("plain", {}),
        ("flags", {"LD_PRELOAD": str(raising), "BLAS_SO": str(LIBRARIES[0])}),
    ):
        (tmp_path / name).mkdir()
        code = CODE if settings else CODE.replace('sys.exit("no flag was raised")', "pass")
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, str(tmp_path / name)],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.replace(str(tmp_path / name), ""))
    assert outputs[0] == outputs[1]
