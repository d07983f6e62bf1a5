"""What the checkpoint controller does about old checkpoints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from elastichost.errors import CheckpointError
from elastichost.runs.events import DirectoryNotRemoved
from elastichost.supervisor.controllers import checkpoints
from elastichost.supervisor.controllers.checkpoints import CheckpointController
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
    controller: Any = SimpleNamespace(_run=run)
    assert CheckpointController._remove_old(controller, tmp_path / "step-300") == 0
    assert noted.events == [DirectoryNotRemoved(str(tmp_path), "cannot remove step-100: no permission")]
