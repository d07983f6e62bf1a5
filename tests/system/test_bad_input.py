"""What chaos feeds to the command line is refused for what is wrong with it, and not for something else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastichost.chaos.faults.bad_input import check_refusals, feed_bad_input
from tests.system.test_run import Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system


def test_bad_input_is_refused_with_the_name_of_what_is_bad(folder: Path) -> None:
    """A copy of a run that lacked its identity was refused before its checkpoint was looked at."""
    run = Supervised(folder, rows=20_000)
    code, errors = run.finish()
    assert code == 0, errors
    refusals = feed_bad_input(folder / "job.toml", run.run_dir, os.environ)
    assert [one.case for one in refusals][-2:] == ["a truncated checkpoint", "a checkpoint with a flipped bit"]
    verdict = check_refusals(refusals, (), 0)
    assert verdict.holds, verdict
