"""What is built: the wheel, the sdist and an editable install; what they hold and what they do."""

import doctest
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipapp
import zipfile
from pathlib import Path

import pytest

import gpt2np
from gpt2np import assets_path

ROOT = Path(gpt2np.__file__).parents[1]
pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").is_file(), reason="gpt2np is installed: there is no source tree"
)


def files_of(*folders):
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_and_its_assets(build):
    wheel = zipfile.ZipFile(build("wheel"))
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assets = {"assets/vocab.bpe", "assets/README.md", "assets/tutorial.ipynb"} | files_of(
        "assets/tiny-shakespeare"
    )
    assert "gpt2np/py.typed" in names
    assert names == files_of("gpt2np") | {f"gpt2np/{name}" for name in assets}
    (licence,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    text = wheel.read(licence).decode()
    assert "vocab.bpe" in text
    assert "Software Copyright (c) 2019 OpenAI" in text


def test_the_sdist_holds_all_that_its_tests_need(build):
    with tarfile.open(build("sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    own = {"README.md", "LICENSE", "pyproject.toml", ".gitattributes"}
    assert names >= files_of("gpt2np", "tests", "assets") | own


def test_the_page_of_an_index_leads_nowhere_it_cannot(build):
    """A link into the repository or a picture of it would be broken there."""
    wheel = zipfile.ZipFile(build("wheel"))
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = wheel.read(name).decode()
    told, page = metadata.split("\n\n", 1)
    assert f"\nVersion: {gpt2np.__version__}\n" in told
    places = re.findall(r"\]\(([^)]*)\)|^\[\w+\]:\s*(\S+)|<(?:img|a)\b([^>]*)>", page, re.MULTILINE)
    assert [place for place in map("".join, places) if not place.startswith("https://")] == []
    assert not re.search(r"\]\[\w+\]", page)
    assert "`gpt2np/model.py` is the forward pass" in " ".join(page.split())
    assert "\npip install gpt2np\n" in page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme) - 500 < len(page) < len(readme)


def test_what_makes_the_page_is_as_its_examples_say():
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    module = runpy.run_path(str(ROOT / "assets" / "index_page.py"))
    (example,) = doctest.DocTestFinder().find(module["index_page"], globs=module)
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_changes_tell_of_this_version():
    changes = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Changes\n")[2]
    assert changes.strip().startswith(f"- {gpt2np.__version__}: ")


def test_the_metadata_passes_twine(build):
    check = pytest.importorskip("twine.commands.check", reason="twine is not installed")
    assert not check.check([str(build("wheel")), str(build("sdist"))], strict=True)


def test_a_zipapp_says_to_unpack_it(tmp_path):
    for name, source in (("gpt2np", "gpt2np"), ("gpt2np/assets", "assets")):
        unneeded = shutil.ignore_patterns("__pycache__", "golden.*", "*.png")
        shutil.copytree(ROOT / source, tmp_path / "app" / name, ignore=unneeded)
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz", main="gpt2np.__main__:main")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*command):
        return subprocess.run(
            [sys.executable, *command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("app.pyz", "tokenize", "--ids", "Hello")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    found = re.search(
        r"assets is not there: .* in app\.pyz, .*python -m (\S+) (\S+) (\S+) FOLDER", done.stderr
    )
    assert run("-m", *found.groups(), "folder").returncode == 0
    assert run("folder", "tokenize", "--ids", "Hello").stdout == "15496\n"


@pytest.mark.parametrize(
    ("frozen", "help"), [(True, "PyInstaller --collect-all"), (False, "again")]
)
def test_what_is_not_there_is_told_with_what_to_do(monkeypatch, tmp_path, run, frozen, help):
    """As tried with PyInstaller: it misses the commands, and without them the assets."""
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    monkeypatch.setattr(assets_path, "__file__", str(tmp_path / "gpt2np" / "assets_path.py"))
    with pytest.raises(gpt2np.GPT2Error, match=f"gpt2np.assets is not there: .* {help}"):
        assets_path.assets()
    monkeypatch.setitem(sys.modules, "gpt2np.commands.tokenize", None)
    code, out, err = run("tokenize", "x")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(f"error: .*gpt2np.commands.tokenize.*: .* {help}", err)


def test_it_works_outside_of_its_tree_and_without_a_network(python, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    command = [python, "-m", "gpt2np", "generate", "ROMEO:", "--seed", "1", "-n", "5"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    expected = gpt2np.generate(gpt2np.load(), "ROMEO:", seed=1, max_new_tokens=5).text
    assert done.stdout.startswith("ROMEO:" + expected)
