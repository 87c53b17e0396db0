"""Golden activations: record a run, hold another implementation's against it, find the fault.

golden = record(model, "First Citizen:")        ids, activations, logits, greedy continuation
golden.save("golden.npz")
print(check("mine.npz", "golden.npz"))          the first point that diverges, and why
"""

from gpt2np.golden.compare import Report, check
from gpt2np.golden.judge import Row
from gpt2np.golden.record import Golden, record

__all__ = ["Golden", "Report", "Row", "check", "record"]
