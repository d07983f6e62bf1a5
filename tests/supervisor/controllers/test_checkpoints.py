"""What the checkpoint controller does about old checkpoints, full disks, and the mark of the best checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from elastichost.checkpoint.format import BestFigure, new_staging, newest_best
from elastichost.checkpoint.places import RunIdentity
from elastichost.config.job import make_job
from elastichost.errors import CheckpointError, CheckpointSpaceError
from elastichost.runs.events import BestCheckpointWritten, CheckpointFailed, CheckpointWritten, DirectoryNotRemoved
from elastichost.runs.result import BestCheckpoint, Lookups
from elastichost.specs import DenseSpec, ModelSpec
from elastichost.supervisor.controllers import checkpoints
from elastichost.supervisor.controllers.checkpoints import MAX_RETRY_S, CheckpointController, CheckpointState, _OpenCut
from elastichost.supervisor.controllers.evaluations import EvaluationController, EvaluationState
from elastichost.supervisor.core.checkpoint_cut import Cut
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.state import LedgerSettings
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


def test_the_best_checkpoint_keeps_its_mark_when_another_of_the_same_name_replaces_it(tmp_path: Path) -> None:
    """Samples that are skipped or quarantined train nothing, so the next checkpoint has the same name and weights."""
    noted, model = Noted(), ModelSpec((), (), DenseSpec((), 0, 0), 1, 1)
    raw = {"model": {"build": "a:b"}, "data": {"format": "synthetic"}, "checkpoint": {"keep_best": "auc"}}
    run: Any = SimpleNamespace(
        job=make_job(raw, Path("/jobs"), "job", environ={}),
        directory=SimpleNamespace(checkpoints=tmp_path, identity=RunIdentity("r1", "job")),
        now_s=lambda: 0.0,
        **noted.attributes,
    )
    evaluations = EvaluationController(run, EvaluationState(), (10,), 1, lambda: True)
    state, best = CheckpointState(), BestFigure("auc", 0.8, 100)
    of_ledger = Ledger(LedgerSettings((1000,), 1, 10)).state()
    ledger = SimpleNamespace(state=lambda: of_ledger, samples_accounted=100, trained=100, epoch=0)
    dense = SimpleNamespace(version=1, step=0, samples_applied=100)
    controller: Any = SimpleNamespace(
        _run=run,
        _state=state,
        _leases=SimpleNamespace(committed_step=lambda: 0),
        _ledger=ledger,
        _dense=SimpleNamespace(state_copy=lambda: dense),
        _evaluations=evaluations,
        _lookups=Lookups,
        _model=model,
        _mirror=None,
        _cause="",
        _remove_old=lambda final: 0,
    )

    def takes_checkpoint(number: int, accounted: int) -> None:
        ledger.samples_accounted = accounted
        state.open = _OpenCut(Cut(number), new_staging(tmp_path, number), is_final=False)
        CheckpointController._take_copies(controller, number, ())
        CheckpointController._commit(controller)

    evaluations._state.candidate = best
    takes_checkpoint(1, 100)
    takes_checkpoint(2, 130)
    found = newest_best(tmp_path, run_id="r1")
    assert found is not None and (found.directory.name, found.manifest.best) == ("step-100", best)
    assert evaluations.best == BestCheckpoint(str(tmp_path / "step-100"), "auc", 0.8, 100)
    assert [event.samples for event in noted.of(CheckpointWritten)] == [100, 130]
    assert len(noted.of(BestCheckpointWritten)) == 1, "the best evaluation is told once"
    ledger.trained = 150
    takes_checkpoint(3, 180)
    assert (again := newest_best(tmp_path, run_id="r1")) is not None and again.directory.name == "step-100"


@pytest.mark.parametrize("is_own", [True, False])
def test_a_checkpoint_of_another_run_is_not_this_runs_newest(tmp_path: Path, is_own: bool) -> None:
    """Regression: `resume RUN --from OTHER` that was stopped at once said that all is saved, and the next resume took
    an older checkpoint of RUN."""
    newest = (tmp_path if is_own else tmp_path / "other") / "step-100"
    place = SimpleNamespace(directory=SimpleNamespace(checkpoint_source=SimpleNamespace(places=(tmp_path,))))
    controller: Any = SimpleNamespace(_mirror=None, _run=place)
    CheckpointController.recall(controller, newest, 100)
    assert (controller.newest, controller.checkpointed_at) == (newest, 100 if is_own else None)
