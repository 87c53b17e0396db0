"""How the house is built: what may import what, and how large the reference may grow."""

import ast
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gpt2np

PACKAGE = Path(gpt2np.__file__).parent
TESTS = Path(__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}

# The reference: GPT-2 itself, whatever grows around it.
FENCE = (
    *("config", "schema", "params", "kernels", "layers", "model", "cache", "trace"),
    *("tokenizer", "vocabulary", "sampling"),
)
BESIDE_IT = ["errors", "assets_path", "answers", "notebook"]  # each imports none to its right
# What reads and writes files: Tokenizer.from_files and Tokenizer.save.
WAYS_OUT = {"tokenizer": {"gpt2np.tokenizer_files"}, "vocabulary": {"gpt2np.files"}}
# Each imports none of those to its right.
ORDER = ["gpt2np.kernels", "gpt2np.layers", "gpt2np.model", "gpt2np.generation", "gpt2np.commands"]
RUNTIME = {"numpy", "regex", "requests", "tqdm", "gpt2np"}


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path):
    """The full names that a file imports, within functions as well, but not for types alone."""
    pending, names = [tree(path)], set()
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def modules_of(module):
    """The modules of gpt2np that one imports."""
    found = set()
    for name in imported(MODULES[module]):
        of = name if name in MODULES else name.rpartition(".")[0]
        if of in MODULES and of != module:
            found.add(of)
    return found


@cache
def reached_from(module):
    """All modules that come with one."""
    found, pending = set(), [module]
    while pending:
        for name in modules_of(pending.pop()) - found:
            found.add(name)
            pending.append(name)
    return found


def within(module, package):
    return module == package or module.startswith(f"{package}.")


def test_the_reference_stays_a_reference():
    paths = [MODULES[f"gpt2np.{name}"] for name in FENCE]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths) < 2500
    allowed = {f"gpt2np.{name}" for name in [*FENCE, *BESIDE_IT]}
    for name in FENCE:
        assert modules_of(f"gpt2np.{name}") <= allowed | WAYS_OUT.get(name, set()), name
    for i, name in enumerate(BESIDE_IT):
        assert modules_of(f"gpt2np.{name}") <= {f"gpt2np.{left}" for left in BESIDE_IT[:i]}, name


def test_there_is_no_circle():
    # An order exists, or this raises CycleError with the circle.
    list(TopologicalSorter({name: modules_of(name) for name in MODULES}).static_order())


def test_imports_go_one_way():
    for i, lower in enumerate(ORDER):
        for module in (name for name in MODULES if within(name, lower)):
            for upper in ORDER[i + 1 :]:
                up = [name for name in reached_from(module) if within(name, upper)]
                assert not up, f"{module} reaches {up}"


def test_nothing_but_the_runtime_packages_is_imported():
    for module, path in MODULES.items():
        packages = {name.partition(".")[0] for name in imported(path)}
        assert not packages - RUNTIME - sys.stdlib_module_names, module


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.name)
def test_no_test_imports_a_test(path):
    assert not [name for name in imported(path) if name.startswith("test_")]
