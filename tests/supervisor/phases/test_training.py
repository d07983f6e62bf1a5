"""The phase in which a run trains: a full disk while it stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.errors import DiskFullError
from elastichost.supervisor.core.disk_space import DiskSpace
from elastichost.supervisor.phases.disk_watch import STOP_WITHOUT_SPACE_S
from elastichost.supervisor.phases.training import TrainingPhase
from tests.supervisor.noted import Noted


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_run_that_has_saved_all_does_not_fail_for_its_journal(tmp_path: Any, is_saved: bool) -> None:
    """Regression: its last checkpoint took the last free bytes, and while it was mirrored the run failed with
    "samples are not saved"."""
    now_s = [0.0]
    run = SimpleNamespace(
        recorder=SimpleNamespace(flush=lambda: None, waits=""),
        journal=SimpleNamespace(problem="no space left on device"),
        fleet=SimpleNamespace(live=lambda role: ()),
        directory=SimpleNamespace(path=tmp_path),
        space=DiskSpace(),
        now_s=lambda: now_s[0],
        **Noted().attributes,
    )
    phase: Any = SimpleNamespace(
        _run=run,
        _reporter=SimpleNamespace(problems={}),
        _is_saved=is_saved,
        stopping_since_s=0.0,
        components=SimpleNamespace(checkpoints=SimpleNamespace(newest=None)),
    )
    TrainingPhase._look_at_space(phase)
    now_s[0] = STOP_WITHOUT_SPACE_S + 1.0
    if is_saved:
        TrainingPhase._look_at_space(phase)
    else:
        with pytest.raises(DiskFullError, match="not saved"):
            TrainingPhase._look_at_space(phase)
