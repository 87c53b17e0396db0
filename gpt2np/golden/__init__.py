"""Golden activations: record a run, hold another implementation's against it, find the fault.

golden = record(model, "First Citizen:")        ids, activations, logits, greedy continuation
golden.save("golden.npz")
print(check("mine.npz", "golden.npz"))          the first point that diverges, and why
"""

from gpt2np.golden.check import check
from gpt2np.golden.files import Golden, read
from gpt2np.golden.record import record
from gpt2np.golden.report import Report, Row

__all__ = ["Golden", "Report", "Row", "check", "read", "record"]
