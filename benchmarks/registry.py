"""The benchmarks by name, for `elastichost bench NAME` and `python -m benchmarks NAME`."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["BENCHMARKS", "abouts", "run"]

# name -> the module with its `main`
BENCHMARKS: dict[str, str] = {
    "access-speed": "benchmarks.training.access_speed",
    "arena": "benchmarks.arena.benchmark",
    "colocate": "benchmarks.colocate.benchmark",
    "colocate-simulated": "benchmarks.colocate_simulated.benchmark",
    "data-plane": "benchmarks.data_plane.benchmark",
    "gpu": "benchmarks.gpu.benchmark",
    "hostile": "benchmarks.hostile.benchmark",
    "input": "benchmarks.input.benchmark",
    "links": "benchmarks.training.links",
    "memory-estimate": "benchmarks.memory_estimate.benchmark",
    "models": "benchmarks.models.benchmark",
    "observers": "benchmarks.training.observers",
    "ray-recovery": "benchmarks.ray_recovery.benchmark",
    "reader": "benchmarks.reader.benchmark",
    "recovery": "benchmarks.recovery.benchmark",
    "retail-quality": "benchmarks.training.retail_quality",
    "scale-out": "benchmarks.recovery.scale_out",
    "search": "benchmarks.search.benchmark",
    "serving": "benchmarks.serving.benchmark",
    "store": "benchmarks.input.store",
    "tuner": "benchmarks.tuner.suite",
}
ROOT = Path(__file__).parents[1]


def abouts() -> dict[str, str]:
    """The first line of each benchmark's docstring, by name. The modules are parsed, not imported, because importing
    torch takes seconds."""
    found = {}
    for name, module in BENCHMARKS.items():
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        found[name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def run(name: str, arguments: Sequence[str]) -> int:
    """Runs a benchmark and returns its exit code. Raises KeyError for an unknown name."""
    return importlib.import_module(BENCHMARKS[name]).main(arguments) or 0
