"""The next step of a run: an epoch, a checkpoint, an evaluation, its end, or to wait."""

from __future__ import annotations

import msgspec

from elastichost.supervisor.core.agenda import (
    BeginCheckpoint,
    BeginEpoch,
    BeginEvaluation,
    Finish,
    Policy,
    Situation,
    Wait,
    next_step,
)

POLICY = Policy(has_test=True, evaluate_every_samples=0, early_stop_patience=0, checkpoint_every_s=60)
TRAINING = Situation(
    is_stopping=False,
    is_epoch_done=False,
    is_finished=False,
    has_outstanding=True,
    samples=500,
    live_workers=2,
    unsettled_workers=0,
    servers_ready=True,
    checkpoint_open=False,
    evaluation_open=False,
    best_waits=False,
    checkpointed_at=None,
    evaluated_at=None,
    checkpoint_not_before_s=100.0,
    retry_not_before_s=0.0,
)


def step(now_s: float = 10.0, policy: Policy = POLICY, **changes: object) -> object:
    """The next step of a run that trains, except for these changes."""
    return next_step(msgspec.structs.replace(TRAINING, **changes), policy, now_s)


def test_a_run_that_trains_waits_for_the_end_of_the_epoch() -> None:
    assert isinstance(step(), Wait)


def test_a_checkpoint_begins_when_it_is_due_and_samples_were_trained_since_the_last() -> None:
    assert step(100.0) == BeginCheckpoint("one every 60 s", is_final=False)
    assert isinstance(step(100.0, checkpointed_at=500), Wait)
    assert isinstance(step(100.0, unsettled_workers=1), Wait)
    assert isinstance(step(100.0, servers_ready=False), Wait)
    assert isinstance(step(100.0, policy=msgspec.structs.replace(POLICY, checkpoint_every_s=0.0)), Wait)


def test_an_evaluation_begins_after_the_configured_number_of_samples() -> None:
    often = msgspec.structs.replace(POLICY, evaluate_every_samples=200)
    assert isinstance(step(policy=often), BeginEvaluation)
    assert isinstance(step(policy=often, evaluated_at=400), Wait)
    assert isinstance(step(policy=often, evaluation_open=True), Wait)


def test_the_next_epoch_begins_after_the_evaluation_that_early_stopping_needs() -> None:
    assert isinstance(step(is_epoch_done=True), BeginEpoch)
    patient = msgspec.structs.replace(POLICY, early_stop_patience=1)
    assert isinstance(step(policy=patient, is_epoch_done=True), BeginEvaluation)
    assert isinstance(step(policy=patient, is_epoch_done=True, evaluated_at=500), BeginEpoch)


def test_after_the_last_epoch_the_run_evaluates_saves_and_finishes() -> None:
    end = {"is_epoch_done": True, "is_finished": True}
    assert isinstance(step(**end), BeginEvaluation)
    assert step(**end, evaluated_at=500) == BeginCheckpoint("training is done", is_final=True)
    assert isinstance(step(**end, evaluated_at=500, servers_ready=False), Wait)
    done = step(**end, evaluated_at=500, checkpointed_at=500)
    assert isinstance(done, Finish)
    assert done.status == "done"


def test_a_run_asked_to_stop_drains_saves_and_finishes() -> None:
    assert isinstance(step(is_stopping=True), Wait)
    assert isinstance(step(is_stopping=True, live_workers=0, unsettled_workers=1), Wait)
    assert isinstance(step(is_stopping=True, live_workers=0), BeginCheckpoint)
    finish = step(is_stopping=True, live_workers=0, checkpointed_at=500)
    assert isinstance(finish, Finish)
    assert finish.status == "stopped"


def test_in_sync_mode_an_evaluation_begins_only_when_no_lease_is_outstanding() -> None:
    policy = msgspec.structs.replace(POLICY, has_test=True, evaluate_every_samples=100, is_sync=True)
    due = msgspec.structs.replace(TRAINING, evaluated_at=0)
    assert isinstance(next_step(due, policy, 0.0), Wait)
    done = msgspec.structs.replace(due, has_outstanding=False)
    assert isinstance(next_step(done, policy, 0.0), BeginEvaluation)


def test_the_checkpoint_of_the_best_evaluation_comes_before_all_else() -> None:
    often = msgspec.structs.replace(POLICY, evaluate_every_samples=200, keeps_best=True)
    assert isinstance(step(policy=often), Wait)  # a lease is outstanding
    assert isinstance(step(policy=often, has_outstanding=False), BeginEvaluation)
    wanted = BeginCheckpoint("the evaluation is the best so far", is_final=False)
    assert step(policy=often, evaluated_at=500, best_waits=True) == wanted
    assert step(policy=often, evaluated_at=500, best_waits=True, is_epoch_done=True, checkpointed_at=500) == wanted
    assert isinstance(step(policy=often, best_waits=True, servers_ready=False), Wait)
    last = step(policy=often, best_waits=True, is_epoch_done=True, is_finished=True, checkpointed_at=500)
    assert last == BeginCheckpoint("the evaluation is the best so far", is_final=True)
    stopped = step(policy=often, is_stopping=True, live_workers=0, checkpointed_at=500, best_waits=True)
    assert isinstance(stopped, BeginCheckpoint)


def test_with_a_best_checkpoint_every_epoch_is_evaluated() -> None:
    keeps = msgspec.structs.replace(POLICY, keeps_best=True)
    assert isinstance(step(policy=keeps, is_epoch_done=True), BeginEvaluation)
    assert isinstance(step(policy=keeps, is_epoch_done=True, evaluated_at=500), BeginEpoch)
