"""What is shipped: metadata, extras, CI, and a wheel that works in an empty environment."""

import ast
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LARGE = {"spark", "mlflow"}  # tested by make test-spark, make test-mlflow
FOR_DEVELOPERS = {"all", "test", "dev", "docs"}
PYTHONS = [
    row.rpartition(" ")[2]
    for row in PROJECT["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", row)
]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def groups_in_code():
    """The groups that `extra(module, group, purpose)` tells users to install."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "extra":
                group = node.args[1]
                assert isinstance(group, ast.Constant), f"{path}: a group as it is, not worked out"
                yield group.value


def test_extras_in_messages_and_documents_exist():
    named = {group for group in groups_in_code() if group is not None}
    assert {"pyod", "skops", "mlflow"} <= named, "they were found"
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]:
        for groups in re.findall(r"(?:reconform|'\.)\[([a-z,]+)\]'", page.read_text("utf-8")):
            named.update(groups.split(","))
    assert named - set(EXTRAS) == set()


def test_all_has_every_extra_of_users():
    (everything,) = EXTRAS["all"]
    listed = re.fullmatch(r"reconform\[([a-z,]+)\]", everything)[1].split(",")
    assert sorted(listed) == sorted(set(EXTRAS) - FOR_DEVELOPERS - LARGE)
    assert "reconform[all]" in EXTRAS["test"], "what users can have is tested"


def test_ci_is_one_file_and_every_python_is_the_same_everywhere():
    workflow = text(".github/workflows/ci.yml")
    assert re.findall(r"run: (.*)", workflow) == [".ci/run"], "the same commands, and no others"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    (matrix,) = re.findall(r"python-version: \[(.*)\]", workflow)
    assert re.findall(r'"(.*?)"', matrix) == PYTHONS
    assert re.search(r"^PROMISED := (.*)$", text("Makefile"), re.MULTILINE)[1].split() == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_ci_runs_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE))
    run = re.findall(r"^make ([\w-]+)", text(".ci/run"), re.MULTILINE)
    assert {"check", "test", "test-lowest", "test-slow"} <= set(run) <= targets


def test_one_version():
    version = PROJECT["version"]
    assert re.search(r"^version: (.*)$", text("CITATION.cff"), re.MULTILINE)[1] == version
    assert re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)[1] == version


def test_missing_pythons_are_named():
    """`make test-all` where there is no Python at all says which are missing, and fails."""
    command = ["make", "test-all", "PROMISED=3.98", "WHERE_AVAILABLE=3.99"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Python 3.99 is not installed here and is left out." in done.stdout
    said = "Not tested, as it was not found (looked for python3.x and pyenv's): 3.98."
    assert said in done.stdout


def test_nothing_claims_a_published_package():
    """Until there is one (docs/releasing.md): what users read says what works today."""
    if "unreleased" not in text("CHANGELOG.md").partition("\n## ")[2].partition("\n")[0]:
        pytest.skip("released")
    pages = [p for p in (ROOT / "docs").rglob("*.md") if p.name != "releasing.md"]
    for page in [ROOT / "README.md", *pages]:
        assert not re.search(r"pip install (-U )?'?reconform\b", page.read_text("utf-8")), page


# None at all: a version that does not exist is a fault of ours, and fails.
NO_REGISTRY = ("from versions: none", "Failed to establish", "name resolution")


def called(*command, cwd):
    """Run a command; skip where packages cannot be had, fail with its output where it fails."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    said = {"capture_output": True, "text": True, "check": False}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=clean, **said)
    said = done.stdout + done.stderr
    if done.returncode and any(reason in said for reason in NO_REGISTRY):
        pytest.skip(f"no package index can be reached: {said.strip().splitlines()[-1]}")
    assert done.returncode == 0, said
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source archive, and the wheel that is built from it and not from the working tree."""
    pytest.importorskip("build", reason="needs build: pip install build")
    folder = tmp_path_factory.mktemp("dist")
    called(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def tracked(folder):
    names = subprocess.run(
        ["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if names.returncode:
        pytest.skip("not a git repository: cannot tell what belongs to the package")
    return set(names.stdout.split("\0")) - {""}


@pytest.mark.slow
def test_what_is_in_the_wheel(built):
    from packaging.metadata import Metadata

    wheel, source = built
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        raw = archive.read(metadata)
        assert any(n.endswith("/licenses/LICENSE") for n in archive.namelist())
    assert {f"src/{name}" for name in inside} == tracked("src")
    said = Metadata.from_email(raw, validate=True)  # what an index checks, and raises
    assert (said.name, str(said.version)) == ("reconform", PROJECT["version"])
    assert said.description_content_type == "text/markdown"
    assert set(said.provides_extra) == set(EXTRAS)
    assert email.message_from_bytes(raw).get_payload().startswith("# reconform")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked(".") - names == set(), "an unpacked archive is the repository: its tests run"
    assert not [n for n in names if "__pycache__" in n or n.endswith((".nbi", ".nbc"))]


TRY = """
import numpy as np, reconform
assert "site-packages" in reconform.__file__, reconform.__file__
rng = np.random.default_rng(0)
new = rng.normal(size=(40, 2)); new[:4] += 9
cad = reconform.ConformalDetector("mahalanobis", "split", random_state=0)
found = cad.fit(rng.normal(size=(200, 2))).discover(new, fdr=0.2)
assert found.mask[:4].all(), found
try:
    import reconform.distributed
except ImportError as error:
    assert "pip install 'reconform[dask]'" in str(error), error
else:
    raise AssertionError("the environment is not empty")
"""


def interpreter(version):
    """A Python of this version: this one, one on the path, or pyenv's, as `make test-all` looks."""
    installed = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
    for python in (sys.executable, f"python{version}", *map(str, installed)):
        if shutil.which(python) is None:
            continue
        ask = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return python
    pytest.skip(f"Python {version} is not installed here")


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_works_in_an_empty_environment(built, tmp_path, version):
    wheel, _ = built
    called(interpreter(version), "-m", "venv", tmp_path / "empty", cwd=tmp_path)
    programs = tmp_path / "empty" / ("Scripts" if os.name == "nt" else "bin")
    python = programs / "python"
    called(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    called(python, "-c", TRY, cwd=tmp_path)
    assert PROJECT["version"] in called(programs / "reconform", "--version", cwd=tmp_path)
    called(python, "-m", "pip", "check", cwd=tmp_path)
