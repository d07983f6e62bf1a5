"""Cached machine code is never older than any source from which it was compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.test_run import ROOT

PART = """
from elastichost.arena.compiled import compiled, exactly_compiled, inlined


@{decorator}
def part(x: int) -> int:
    return x + {number}
"""
KERNEL = """
from elastichost.arena.compiled import compiled
from part import part


@compiled
def kernel(x: int) -> int:
    return part(x)


print(kernel(0), len(kernel.stats.cache_hits))
"""


def call(folder: Path) -> list[str]:
    """The result of the kernel, and whether its machine code was loaded from the cache."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(folder / "kernel.py")], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.thorough
def test_a_change_in_a_called_function_recompiles_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    for decorator in ("inlined", "compiled", "exactly_compiled"):
        (tmp_path / "part.py").write_text(PART.format(decorator=decorator, number=1))
        assert call(tmp_path) == ["1", "0"]
        assert call(tmp_path) == ["1", "1"], "the machine code must come from the cache on disk"
        (tmp_path / "part.py").write_text(PART.format(decorator=decorator, number=2))
        assert call(tmp_path) == ["2", "0"]
