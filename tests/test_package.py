"""What is built can be installed, has all it needs, and needs nothing more."""

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from trellisnet import __version__
from trellisnet.models.shipped import pretrained_names

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "trellisnet"


def build(kind, project, to):
    """Build without isolation, as a network would otherwise be needed; the same files give the same bytes."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(to)]
    done = subprocess.run(command, cwd=project, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = to.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"trellisnet-{__version__}.dist-info"
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    package = {f"trellisnet/{path.relative_to(SOURCE).as_posix()}" for path in files}
    about = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert names == package | about
    assert "trellisnet/py.typed" in names
    assert {"trellisnet/recipes/demo.yaml", "trellisnet/tables.yaml"} <= set(names)
    trained = {name for name in package if name.startswith("trellisnet/pretrained/")}
    assert {Path(name).suffix for name in package - trained} == {".py", ".typed", ".yaml"}  # no data, nothing compiled
    assert {Path(name).suffix for name in trained} == {".json", ".jsonl", ".safetensors", ".yaml"}
    assert {f"trellisnet/pretrained/{name}/checksums.json" for name in pretrained_names()} <= trained
    assert all(path.stat().st_size < 2_000_000 for path in files)


def test_the_metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    about = Parser().parsestr(archive.read(f"trellisnet-{__version__}.dist-info/METADATA").decode())
    assert about["Name"] == "trellisnet"
    assert about["Version"] == __version__
    assert about["License-Expression"] == "MIT"
    assert about["License-File"] == "LICENSE"
    assert about["Requires-Python"] == ">=3.10"
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert {"bench", "dev", "plots", "tables", "text"} <= set(about.get_all("Provides-Extra"))
    needed = [Requirement(each) for each in about.get_all("Requires-Dist")]
    core = {each.name for each in needed if each.marker is None}
    assert {"torch", "numpy", "safetensors"} <= core
    assert not core & {"hatchling", "matplotlib", "pytest", "pyarrow", "tokenizers", "torchvision"}
    assert about.get_payload() == (ROOT / "README.md").read_text()
    assert archive.read(f"trellisnet-{__version__}.dist-info/entry_points.txt").decode().split() == [
        *("[console_scripts]", "trellisnet", "=", "trellisnet.cli:script")
    ]


def test_the_sdist_builds_the_same_wheel(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (project,) = tmp_path.iterdir()
    again = build("wheel", project, tmp_path / "wheel")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_sdist_has_what_a_reader_needs(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {"README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "pyproject.toml"} <= names
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.py")} <= names
    assert not {name.split("/")[0] for name in names} & {"tests", "benchmarks", "docs", ".venv", "runs"}


def test_the_changelog_tells_of_this_version():
    assert re.search(rf"^## {re.escape(__version__)} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["preferred-citation"]["title"] == "Trellis Networks for Sequence Modeling"


BESIDE = ("extras", "files", "checksums", "vocabulary")
BELOW = {  # what a level may know of beside itself; data stands beside the models
    "core": set(),
    "baselines": {"core", "extras"},
    "models": {"core", "baselines", *BESIDE},
    "data": {"core", *BESIDE},
    "training": {"core", "baselines", "models", "data", *BESIDE, "process"},
    "integrations": {"core", "baselines", "models", "data", "training", *BESIDE},
    "commands": set(),  # all
}


def imported(path):
    """The modules of the package that a file imports, and names that it takes from the package's root."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they lead"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1:] for name in names if name.split(".")[0] == "trellisnet")


def is_allowed(parts, level):
    """The root gives names of every level, so only the commands, the highest level, may ask it for more than this."""
    home = parts[0] if parts else None
    return home in BELOW[level] | {level, "__version__"} or level == "commands"


@pytest.mark.parametrize("level", BELOW)
def test_nothing_imports_upwards(level):
    for path in (SOURCE / level).rglob("*.py"):
        for parts in imported(path):
            assert is_allowed(parts, level), (path, parts)


@pytest.mark.parametrize(
    "line", ["import trellisnet", "from trellisnet import TrellisLM", "import trellisnet.models.language"]
)
def test_an_upward_import_would_be_seen(line, tmp_path):
    (tmp_path / "file.py").write_text(line)
    (parts,) = imported(tmp_path / "file.py")
    assert not is_allowed(parts, "core")


def core_distributions():
    """The package's dependencies and theirs, without extras that nobody asked for."""
    found, waiting = set(), [("trellisnet", "")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for each in map(Requirement, metadata.requires(name) or ()):
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                waiting += [(canonical(each.name), extra) for extra in ("", *each.extras)]
    return {name for name, _ in found}


def canonical(name):
    return name.lower().replace("_", "-").replace(".", "-")


def not_installed_with_it():
    """Modules that the development environment has, but an environment with the package alone would not."""
    core = core_distributions()
    modules = metadata.packages_distributions()
    return sorted(name for name, owners in modules.items() if not core & set(map(canonical, owners)))


# In an isolated interpreter: the installed wheel comes first, and what its dependencies do not bring is hidden.
HIDE = """
import sys
from importlib.machinery import PathFinder

folder, hidden = sys.argv[1], set(sys.argv[2].split())
sys.path.insert(0, folder)
asked = []


def find_spec(name, path=None, target=None, found=PathFinder.find_spec):
    if name.partition(".")[0] not in hidden:
        return found(name, path, target)
    asked.append(name)  # and not found, as where it is not installed: who only looks whether it is there gets an answer


PathFinder.find_spec = staticmethod(find_spec)
"""

IMPORT = """
import json

import torch

before = list(asked)  # torch looks for things of its own
import trellisnet

for name in trellisnet.__all__:  # they are imported when they are asked for
    getattr(trellisnet, name)
import trellisnet.data

x = torch.randn(7, 2, 3, requires_grad=True)
trellisnet.TrellisNet(3, 8, num_layers=4)(x)[0].sum().backward()
built = [name for name in ("torch.utils.cpp_extension",) if name in sys.modules]
print(json.dumps([trellisnet.__file__, asked[len(before):], built, float(x.grad.abs().sum()) > 0]))
"""

COMMAND = """
from importlib.metadata import distribution

(entry,) = distribution("trellisnet").entry_points
sys.argv = ["trellisnet", *sys.argv[3:]]
entry.load()()
"""


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the wheel, as pip installs it."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", str(folder)]
    done = subprocess.run([*command, str(wheel)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def isolated(code, folder, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-I", "-c", HIDE + code, str(folder), " ".join(not_installed_with_it()), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_extras_and_tools_are_told_from_dependencies():
    hidden = not_installed_with_it()
    assert {"pytest", "hypothesis", "pyarrow", "tokenizers", "hatchling"} <= set(hidden)
    assert not {"torch", "numpy", "yaml", "rich", "jsonargparse", "typing_extensions"} & set(hidden)


def test_hidden_modules_cannot_be_imported(installed):
    code = "try:\n    import hypothesis\nexcept ModuleNotFoundError:\n    print(asked)"
    assert isolated(code, installed).strip() == "['hypothesis']"


def test_the_installed_package_works_without_extras(installed):
    home, asked, built, has_gradient = json.loads(isolated(IMPORT, installed))
    assert Path(home).is_relative_to(installed)
    assert asked == []
    assert built == []
    assert has_gradient


def test_the_installed_command_works_without_extras(installed):
    assert "usage: trellisnet COMMAND" in isolated(COMMAND, installed, "--help")
    recipes = isolated(COMMAND, installed, "recipes")
    for path in (SOURCE / "recipes").glob("*.yaml"):
        assert f"\n{path.stem} " in recipes
