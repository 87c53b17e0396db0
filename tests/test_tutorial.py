"""assets/tutorial.ipynb: each cell runs, and shows what the text below it says."""

import json
import os
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "assets" / "tutorial.ipynb"


def cells():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def test_nothing_that_was_run_is_kept():
    for cell in cells():
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            assert cell["execution_count"] is None


@pytest.mark.filterwarnings("default")  # other people's
def test_the_tutorial_shows_what_it_says(monkeypatch, tmp_path):
    for package in ("nbclient", "nbformat", "ipykernel", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import nbclient
    import nbformat

    root = str(NOTEBOOK.parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    promised = 0
    for code, told in zip(notebook.cells, notebook.cells[1:], strict=False):
        if code.cell_type != "code":
            continue
        assert told.source.startswith("You should see"), "say what should be seen"
        shown = "".join(out.text for out in code.outputs if out.output_type == "stream")
        for block in re.findall("```\n(.*?)\n```", told.source, re.DOTALL):
            for line in block.splitlines():
                assert line in shown
                promised += 1
        kinds = [kind for out in code.outputs for kind in out.get("data", {})]
        assert ("image/png" in kinds) == ("plt.show()" in code.source)
        if code.source.splitlines()[-1] in ("cache", "score") or "explain(" in code.source:
            assert "text/html" in kinds
    assert promised > 15
