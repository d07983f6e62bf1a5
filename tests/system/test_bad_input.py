"""The bad input that `chaos` gives to the command line is refused for the right reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastichost.chaos.faults.bad_input import check_refusals, feed_bad_input
from tests.system.test_run import Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system


def test_bad_input_is_refused_with_the_name_of_what_is_bad(folder: Path) -> None:
    """Regression: a copy of a run without its identity was refused before its checkpoint was read."""
    run = Supervised(folder, rows=20_000)
    code, errors = run.finish()
    assert code == 0, errors
    refusals = feed_bad_input(folder / "job.toml", run.run_dir, os.environ)
    assert [one.case for one in refusals][-2:] == ["a truncated checkpoint", "a checkpoint with a flipped bit"]
    verdict = check_refusals(refusals, (), 0)
    assert verdict.holds, verdict
