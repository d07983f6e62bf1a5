"""The tests can fail: they find each fault of the catalogue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.catalogue import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_to_be_replaced_occurs_once(mutation: Mutation) -> None:
    """Otherwise the fault could not be put into the copy."""
    assert (ROOT / "elastichost" / mutation.file).read_text().count(mutation.old) == 1


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_fault_is_found() -> None:
    """Runs in a process that has imported nothing of the project."""
    run = subprocess.run([sys.executable, "-m", "tests.mutations"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
