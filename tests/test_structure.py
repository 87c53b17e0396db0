"""How the house is built: what may import what, and how large the reference may grow."""

import ast
import re
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


def calls(module):
    """The calls in a module: what is called, as it is written, and the node."""
    nodes = (node for node in ast.walk(tree(MODULES[module])) if isinstance(node, ast.Call))
    return [(ast.unparse(node.func), node) for node in nodes]


def callers(*names):
    """The modules that call a function or a method of one of these names."""
    return {
        module for module in MODULES for name, _ in calls(module) if name.split(".")[-1] in names
    }


def test_one_module_knows_each_thing_that_systems_do_in_their_own_way():
    """How files are renamed, locked and mapped."""
    renames = {
        module
        for module in MODULES
        for name, node in calls(module)
        # str.replace takes two arguments, and a model's a dictionary.
        if name.split(".")[-1] in ("renames", "move", "link")
        or name in ("os.rename", "os.replace")
        or (name.endswith((".rename", ".replace")) and len(node.args) == 1 and not node.keywords)
    }
    assert renames == {"gpt2np.files"}
    assert callers("flock", "lockf", "locking") == {"gpt2np.files"}
    assert callers("memmap", "mmap") == {"gpt2np.checkpoints.base"}


def test_no_line_end_is_the_systems_own():
    """Text is written as bytes, or through a stream whose line ends are named."""
    text = re.compile(r"(?=.*[wxa+])[rwxat+]+")
    for module in MODULES:
        for name, node in calls(module):
            words = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if name != "archive.open" and name.split(".")[-1] in ("open", "fdopen"):  # a zip's
                writes = any(isinstance(word, str) and text.fullmatch(word) for word in words)
            else:
                writes = name.endswith("TextIOWrapper")
            assert not writes or "newline" in {k.arg for k in node.keywords}, module
            assert not name.endswith(".write_text"), module  # but files.write_text, by its name


# Those that BLAS computes. Accelerate raises floating-point flags at any of them (test_flags.py).
PRODUCTS = {"dot", "vdot", "vecdot", "matvec", "vecmat", "inner", "matmul", "tensordot", "einsum"}
QUIET = {  # each is called with such flags ignored, from model.forward to golden.check
    *("gpt2np.kernels", "gpt2np.layers", "gpt2np.model", "gpt2np.predictions", "gpt2np.adapters"),
    "gpt2np.bench",
}


def test_products_are_where_flags_are_ignored():
    found = callers(*PRODUCTS, "lstsq", "solve") | {
        module
        for module, path in MODULES.items()
        if any(isinstance(node, ast.MatMult) for node in ast.walk(tree(path)))
    }
    assert {module for module in found if not within(module, "gpt2np.golden")} == QUIET


def test_bytes_have_an_order():
    """What is read from bytes or made bytes is never in the order of the machine."""
    many = re.compile(r"[=|@]?[iufc](2|4|8|16)")
    for module, path in MODULES.items():
        for name, node in calls(module):
            method = name.split(".")[-1]
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if method in ("view", "dtype", "frombuffer", "fromfile", "astype", "ascontiguousarray"):
                assert not [w for w in words if isinstance(w, str) and many.fullmatch(w)], module
            if method in ("frombuffer", "fromfile"):
                assert ast.unparse(node.args[1]) == "np.uint8", module
            if method in ("from_bytes", "to_bytes"):
                assert words[-1] in ("little", "big"), module
            if name.startswith("struct.") and method in ("pack", "unpack", "Struct"):
                form = node.args[0]
                first = form.values[0] if isinstance(form, ast.JoinedStr) else form
                assert not isinstance(first, ast.Constant) or first.value[0] in "<>", module
        numbers = [
            word
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
            if ast.unparse(node.targets[0]) == "NUMBERS"
            for word in ast.literal_eval(node.value).values()
        ]
        assert all(word[0] in "<>" for word in numbers), module


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.name)
def test_no_test_imports_a_test(path):
    assert not [name for name in imported(path) if name.startswith("test_")]
