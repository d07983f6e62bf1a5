"""What the checkpoint controller does about old checkpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from elastichost.errors import CheckpointError, CheckpointSpaceError
from elastichost.runs.events import CheckpointFailed, DirectoryNotRemoved
from elastichost.supervisor.controllers import checkpoints
from elastichost.supervisor.controllers.checkpoints import MAX_RETRY_S, CheckpointController
from tests.supervisor.noted import Noted


def test_an_old_checkpoint_that_cannot_be_removed_is_told_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The new checkpoint is whole then: the run must not write it again, or end."""

    def refuses(*_: object) -> NoReturn:
        raise CheckpointError("cannot remove step-100: no permission")

    noted = Noted()
    run = SimpleNamespace(
        job=SimpleNamespace(checkpoint=SimpleNamespace(keep=2)),
        directory=SimpleNamespace(checkpoints=tmp_path, identity=SimpleNamespace(run_id="a1")),
        **noted.attributes,
    )
    monkeypatch.setattr(checkpoints, "retain", refuses)
    controller: Any = SimpleNamespace(_run=run, _mirror=None)
    assert CheckpointController._remove_old(controller, tmp_path / "step-300") == 0
    assert noted.events == [DirectoryNotRemoved(str(tmp_path), "cannot remove step-100: no permission")]


def test_a_disk_that_stays_full_for_hours_is_waited_for_at_the_longest_interval() -> None:
    """A full disk may fail a checkpoint every MAX_RETRY_S for days: the wait must not overflow."""
    noted = Noted()
    controller: Any = SimpleNamespace(
        _run=SimpleNamespace(now_s=lambda: 100.0, **noted.attributes),
        _evaluations=SimpleNamespace(give_up_best=lambda: None),
        _good=lambda: None,
        _cause="",
        _failed_in_a_row=0,
    )
    controller._later = partial(CheckpointController._later, controller)
    for _ in range(1024 + 1):
        CheckpointController._failed(controller, CheckpointSpaceError("the disk is full"), is_final=False)
    waits = [event.retry_in_s for event in noted.of(CheckpointFailed)]
    assert waits[:4] == [2.0, 4.0, 8.0, MAX_RETRY_S] and waits[1023:] == [MAX_RETRY_S] * 2
    assert controller.retry_not_before_s == 100.0 + MAX_RETRY_S
