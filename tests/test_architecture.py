"""The storeys hold: who may import whom, which modules are pure, what the command line loads."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "elastichost"
BENCHMARKS = ROOT / "benchmarks"
# Decisions depend on their arguments only: no clock, no randomness, no environment, no sockets, no threads.
IMPURE = frozenset({"asyncio", "datetime", "os", "random", "secrets", "socket", "threading", "time", "uuid", "zmq"})
PURE_OF_LEDGER = ("early_stopping", "evaluation", "ledger", "replay", "state")
PURE_OF_EMULATION = ("batches", "costs", "load", "model", "prices", "server_queue", "timeline")
PURE_OF_CHAOS = ("faults/message_faults", "goodput", "invariants", "scene", "schedule", "verdicts")
PURE_MODULES = (
    *sorted((PACKAGE / "supervisor" / "core").glob("*.py")),
    *(PACKAGE / "supervisor" / "ledger" / f"{name}.py" for name in PURE_OF_LEDGER),
    PACKAGE / "runs" / "facts.py",
    PACKAGE / "runs" / "journal_replay.py",
    *sorted((PACKAGE / "runs" / "events").glob("*.py")),
    *(PACKAGE / "chaos" / f"{name}.py" for name in PURE_OF_CHAOS),
    *sorted((PACKAGE / "dispatcher" / "core").glob("*.py")),
    *(PACKAGE / "emulation" / f"{name}.py" for name in PURE_OF_EMULATION),
    PACKAGE / "worker" / "commit" / "exchange.py",
    PACKAGE / "ps" / "session.py",
    PACKAGE / "sharding.py",
    *sorted((PACKAGE / "tuner").rglob("*.py")),
)
HEAVY = frozenset({"fbgemm_gpu", "numba", "numpy", "pyarrow", "scipy", "torch", "torchrec"})
LIMIT_LINES = 400
MOST_MODULES = 14


def imported_names(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in it; relative imports stay inside the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module


def test_imports_go_only_downward() -> None:
    """The contracts are in pyproject.toml."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PURE_MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_modules_import_nothing_impure(path: Path) -> None:
    found = {name.partition(".")[0] for name in imported_names(path)}
    assert not found & IMPURE


def test_a_room_holds_few_modules_and_says_what_they_are() -> None:
    for folder in sorted({path.parent for path in (*PACKAGE.rglob("*.py"), *BENCHMARKS.rglob("*.py"))}):
        modules = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")]
        assert len(modules) <= MOST_MODULES, folder
        parents = (PACKAGE / "supervisor", PACKAGE / "tuner", PACKAGE / "worker", PACKAGE / "ps", PACKAGE / "cli")
        if folder.parent in parents or folder.is_relative_to(BENCHMARKS):
            told = (folder / "__init__.py").read_text()
            missing = [name for name in modules if name not in told]
            is_told = not missing or folder == PACKAGE / "tuner" / "colocation"
            assert is_told, f"{folder}/__init__.py does not tell of {missing}"


def test_a_subject_of_the_benchmarks_has_a_folder_of_its_own() -> None:
    assert {path.name for path in BENCHMARKS.glob("*.py")} == {"__init__.py", "__main__.py", "registry.py"}
    for folder in sorted({path.parent for path in BENCHMARKS.rglob("*.py")} - {BENCHMARKS}):
        modules = [path for path in folder.glob("*.py") if not path.stem.startswith("__")]
        assert len(modules) >= 2 or [path for path in folder.iterdir() if (path / "__init__.py").exists()], folder


def test_a_wheel_is_the_package_and_nothing_of_the_benchmarks() -> None:
    """The contract in pyproject.toml forbids the package to import them."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build == {"packages": ["elastichost"]}
    assert not [path for path in PACKAGE.rglob("*") if "simulator" in path.name]


def test_models_know_nothing_of_elastichost() -> None:
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
def test_front_doors_load_nothing_heavy(module: str) -> None:
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
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not {"eval", "exec"} & {call.id for call in calls if isinstance(call, ast.Name)}, path
        loads = [ast.unparse(call) for call in calls if isinstance(call, ast.Attribute)]
        assert "torch.load" not in loads, path


def test_a_file_is_one_idea() -> None:
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        # the list of messages is one idea, however long; so is the list of sentences, one for each kind of event
        if (lines := len(path.read_text().splitlines())) > LIMIT_LINES and path.name not in ("messages.py", "text.py")
    }
    assert not too_long
