"""The architecture: allowed imports, names of modules and classes, sizes of files, what the command line loads."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "elastichost"
BENCHMARKS = ROOT / "benchmarks"
HEAVY = frozenset({"fbgemm_gpu", "numba", "numpy", "pyarrow", "scipy", "torch", "torchrec"})
LIMIT_LINES = 400
# Last words of module names that end in "ing" and are allowed: the field's terms for a thing, or no gerunds at all.
FIELD_WORDS = {
    "embedding": "a row of numbers for an id",
    "framing": "how messages are told apart in a stream of bytes",
    "hashing": "functions, not an activity",
    "queueing": "queueing theory",
    "reporting": "the part of a system that makes reports",
    "routing": "which node a key belongs to",
    "serving": "answering requests with a model that is trained",
    "sharding": "how keys are divided among nodes",
    "staging": "where a write lies until it is committed",
    "stopping": "early stopping",
    "training": "the phase of a run in which its job trains",
    "ceiling": "a noun",
    "keyring": "a noun",
}


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file; each file is read once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_names(path: Path) -> Iterator[str]:
    """Yields every module that a file imports, anywhere in it, but no relative imports: they stay inside the
    package."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module


def test_imports_go_only_downward() -> None:
    """The contracts are in pyproject.toml."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_subject_of_the_benchmarks_has_a_folder_of_its_own() -> None:
    assert {path.name for path in BENCHMARKS.glob("*.py")} == {"__init__.py", "__main__.py", "registry.py"}
    for folder in sorted({path.parent for path in BENCHMARKS.rglob("*.py")} - {BENCHMARKS}):
        modules = [path for path in folder.glob("*.py") if not path.stem.startswith("__")]
        assert len(modules) >= 2 or [path for path in folder.iterdir() if (path / "__init__.py").exists()], folder


def test_a_wheel_has_the_package_and_nothing_of_the_benchmarks() -> None:
    """The contract in pyproject.toml forbids the package to import them."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build == {"packages": ["elastichost"]}
    assert not [path for path in PACKAGE.rglob("*") if "simulator" in path.name]


def defined_classes() -> dict[str, list[str]]:
    """Returns each top-level class of the package, with the modules that define it."""
    found = defaultdict[str, list[str]](list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    return found


def test_no_two_classes_have_the_same_name() -> None:
    classes = defined_classes()
    assert len(classes) > 500
    assert not {name: modules for name, modules in classes.items() if len(modules) > 1}


def is_gerund(name: str) -> bool:
    """Whether a module's name ends in a gerund that is not in FIELD_WORDS."""
    last = name.rpartition("_")[2]
    return last.endswith("ing") and last not in FIELD_WORDS


@pytest.mark.parametrize(
    ("name", "expected"),
    [("judging", True), ("row_opening", True), ("staging", False), ("early_stopping", False), ("plan", False)],
)
def test_gerunds(name: str, expected: bool) -> None:
    assert is_gerund(name) is expected


def test_modules_are_named_by_nouns() -> None:
    names = {path.stem: path for path in PACKAGE.rglob("*.py")}
    names |= {path.parent.name: path.parent for path in PACKAGE.rglob("__init__.py")}
    assert not {str(path.relative_to(PACKAGE)) for name, path in names.items() if is_gerund(name)}
    used = {name.rpartition("_")[2] for name in names}
    assert not set(FIELD_WORDS) - used, "no module has that word any more"


def test_models_import_nothing_of_elastichost() -> None:
    for path in sorted((PACKAGE / "models").rglob("*.py")):
        assert not [name for name in imported_names(path) if name.partition(".")[0] == "elastichost"], path


def test_help_loads_nothing_heavy() -> None:
    script = "import sys; from elastichost.cli import run_command_line as run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "elastichost.cli" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize(
    "module", ["elastichost", "elastichost.config.job", "elastichost.models", "elastichost.supervisor"]
)
def test_public_modules_load_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & HEAVY


def test_public_names_of_the_package_load() -> None:
    script = "import elastichost; print([getattr(elastichost, name) is not None for name in elastichost.__all__])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "False" not in done.stdout


def test_nothing_is_unpickled_or_evaluated() -> None:
    """What arrives from outside the process is decoded by msgspec or read as raw arrays."""
    for path in sorted(PACKAGE.rglob("*.py")):
        assert not {"pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle"} & set(imported_names(path)), path
        calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        assert not {"eval", "exec"} & {call.id for call in calls if isinstance(call, ast.Name)}, path
        loads = [ast.unparse(call) for call in calls if isinstance(call, ast.Attribute)]
        assert "torch.load" not in loads, path


def test_no_file_is_longer_than_the_limit() -> None:
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        # the list of messages and the list of sentences for events are one idea each, however long
        if (lines := len(path.read_text().splitlines())) > LIMIT_LINES and path.name not in ("messages.py", "text.py")
    }
    assert not too_long
