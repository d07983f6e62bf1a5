"""The suite can fail: each of these faults is seen by the tests that are there for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.catalogue import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_to_be_replaced_is_there(mutation: Mutation) -> None:
    """A fault that cannot be put in shows nothing."""
    assert (ROOT / "elastichost" / mutation.file).read_text().count(mutation.old) == 1


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_every_fault_is_seen() -> None:
    """In a process that has imported nothing of the project's."""
    run = subprocess.run([sys.executable, "-m", "tests.mutations"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
