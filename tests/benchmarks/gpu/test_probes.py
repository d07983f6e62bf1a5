"""The probes: the registry lists every module that has a `run`, each says what it decides, and a dry run ends well."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.probes.registry import PROBES

ROOT = Path(__file__).parents[3]
PROBES_FOLDER = ROOT / "benchmarks" / "gpu" / "probes"
DRY = ["P0", "P1", "P1b", "P2", "P4"]  # the others need seconds or libraries of a machine with a GPU


def modules_with_run() -> dict[str, str]:
    """The docstrings of the modules that define `run`, by the name of the module."""
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in PROBES_FOLDER.glob("*.py")}
    runs = {
        name: tree
        for name, tree in trees.items()
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body)
    }
    return {name: ast.get_docstring(tree) or "" for name, tree in runs.items()}


def test_the_registry_lists_every_probe() -> None:
    listed = {probe.function for probe in PROBES.values()}
    assert listed == {f"benchmarks.gpu.probes.{name}:run" for name in modules_with_run()}


@pytest.mark.parametrize(("name", "docstring"), modules_with_run().items())
def test_a_probe_says_what_it_decides(name: str, docstring: str) -> None:
    assert "decide" in docstring, name


def test_a_dry_run_has_no_error_and_kills_and_maps_in_order(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.probes",
        "--dry-run",
        "--only",
        ",".join(DRY),
        "--out",
        str(tmp_path),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    results = [json.loads(line) for line in (tmp_path / "probes.jsonl").read_text().splitlines()]
    assert not [result for result in results if "error" in result]
    ended = {result["probe"]: result["exit_code"] for result in results if result.get("experiment") == "probe"}
    assert ended == dict.fromkeys(DRY, 0)
    survivals = [result["survived"] for result in results if result.get("experiment") == "survival"]
    assert survivals == [True] * 4
    kills = [result for result in results if result.get("experiment") == "kill"]
    assert len(kills) == 2
    assert all(kill["before"]["counters"] > 0 for kill in kills)
    assert all(kill["after"]["writes_after"] == 0 for kill in kills), "a killed thread of the double cannot write"


def test_an_unknown_probe_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.probes", "--only", "P99", "--out", str(tmp_path / "results")]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, "P99" in done.stderr) == (2, True)
    assert not (tmp_path / "results").exists()


def test_without_a_gpu_that_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.probes", "--only", "P1", "--out", str(tmp_path / "results")]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=hidden, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "the probes need a GPU" in done.stderr
    assert not (tmp_path / "results").exists()
