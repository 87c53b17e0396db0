"""The golden for sampling, against a sampler written apart from the package."""

import numpy as np
import pytest

from gpt2np.cli import main
from gpt2np.golden import Golden
from gpt2np.golden.draws import SETTINGS, record_sampling


def chosen_from(logits, before, settings):
    """Which ids stay, and with what probabilities, by plain loops over ids in order."""
    x = [float(number) for number in logits]
    penalty = settings["repetition_penalty"]
    for id in {int(id) for id in before}:
        x[id] = x[id] * penalty if x[id] < 0 else x[id] / penalty
    n = int(settings["no_repeat_ngram"])
    if n:
        last = tuple(before[len(before) - n + 1 :])
        for at in range(len(before) - n + 1):
            if tuple(before[at : at + n - 1]) == last:
                x[int(before[at + n - 1])] = -np.inf
    x = [number / settings["temperature"] for number in x]
    order = sorted(range(len(x)), key=lambda id: (-x[id], id))
    if settings["top_k"]:
        order = order[: int(settings["top_k"])]

    def shares(order):
        weights = [np.exp(x[id] - x[order[0]]) for id in order]
        return [weight / sum(weights) for weight in weights]

    if settings["top_p"]:
        mass, n = 0, 0
        for share in shares(order):
            if mass < settings["top_p"]:
                n += 1
            mass += share
        order = order[:n]
    if settings["min_p"]:
        first = shares(order)[0]
        order = [
            id
            for id, share in zip(order, shares(order), strict=True)
            if share >= settings["min_p"] * first
        ]
    order = [id for id in order if x[id] > -np.inf]
    result = np.zeros(len(x))
    result[order] = shares(order)
    return result


@pytest.mark.parametrize("c", range(len(SETTINGS)))
def test_each_case(c):
    arrays = record_sampling().arrays
    names = ["repetition_penalty", "no_repeat_ngram", "temperature", "top_k", "top_p", "min_p"]
    settings = {name: arrays[name][c] for name in names}
    right = chosen_from(arrays["logits"][c], arrays["ids"][c], settings)
    np.testing.assert_allclose(arrays["probabilities"][c], right, rtol=1e-12, atol=0)
    assert np.array_equal(arrays["kept"][c], right > 0)
    for uniform, id in zip(arrays["uniforms"][c], arrays["drawn"][c], strict=True):
        below, upto = right[:id].sum(), right[: id + 1].sum()
        assert below + 5e-5 < uniform < upto - 5e-5


def test_the_command(tmp_path, capsys):
    assert main(["golden", "sampling", str(tmp_path / "a.npz")]) == 0
    again = Golden.load(tmp_path / "a.npz")
    assert again.arrays["drawn"].shape == (len(SETTINGS), 16)
    assert again.meta["order"][0] == "repetition_penalty"
    assert len({int(id) for id in again.arrays["drawn"][0]}) > 3
