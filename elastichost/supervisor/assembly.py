"""Making the parts of a run: arena, dense vector, ledger, roster, checkpoints; anew or from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.arena.dense import DenseStore
from elastichost.arena.host import create_directory, free_bytes, owner_of
from elastichost.arena.layout import plan_layout
from elastichost.checkpoint.format import FoundCheckpoint
from elastichost.errors import CheckpointError
from elastichost.specs import ModelSpec
from elastichost.supervisor.checkpointing import Checkpointer, load_dense, read_record
from elastichost.supervisor.judging import Judge
from elastichost.supervisor.ledger import Ledger
from elastichost.supervisor.ledger_facts import LedgerSettings
from elastichost.supervisor.parts import Parts
from elastichost.supervisor.preflight import Preparation
from elastichost.supervisor.roster import Roster
from elastichost.supervisor.run import Run
from elastichost.supervisor.training import Training

__all__ = ["assemble"]


def assemble(
    run: Run,
    prepared: Preparation,
    model: ModelSpec,
    initial: npt.NDArray[np.float32],
    found: FoundCheckpoint | None,
    is_draining: Callable[[], bool],
) -> Parts:
    """Makes the arena and everything that works on it.

    initial: float32 [dense.elements], the model's own initial dense part. found: the checkpoint to go on from.
    Raises ArenaFullError, CheckpointError.
    """
    settings = _ledger_settings(run, prepared)
    if found is not None and found.manifest.model != model:
        raise CheckpointError(
            f"{found.directory} holds another model: {_difference(found.manifest.model, model)}",
            hint="resume with the model, tables and columns the run began with",
        )
    record = read_record(found.manifest) if found is not None else None
    ledger = Ledger.from_state(settings, record.ledger) if record is not None else Ledger(settings)
    create_directory(run.arena, owner_of(run.supervisor_pid, run.directory.path))
    budget_bytes = min(prepared.memory_bytes, free_bytes(run.arena))
    arena = Arena.create(run.arena, plan_layout(model, run.job.job.seed, budget_bytes))
    dense = DenseStore(arena)
    if found is not None and record is not None:
        state = load_dense(found, record)
        dense.load(state.vector, state.state, state.version, state.samples_applied, state.step)
    else:
        dense.load(initial, None, 1, 0, 0)
    run.note("arena", f"{arena.touched_bytes() / 1e6:.1f} MB in {run.arena}", data={"path": str(run.arena)})
    return _parts(run, prepared, model, arena, dense, ledger, found, is_draining)


def _parts(
    run: Run,
    prepared: Preparation,
    model: ModelSpec,
    arena: Arena,
    dense: DenseStore,
    ledger: Ledger,
    found: FoundCheckpoint | None,
    is_draining: Callable[[], bool],
) -> Parts:
    checkpointer = Checkpointer(run, model, ledger, dense, lambda: judge.memory)
    roster = Roster(run, model.tables, found.directory if found is not None else None)

    def may_grant() -> bool:
        return not checkpointer.holds_workers and not is_draining() and roster.was_published

    test_units = tuple(unit.samples for unit in prepared.test.units) if prepared.test is not None else ()
    training = Training(run, ledger, may_grant)
    judge = Judge(run, test_units, model.num_labels, may_grant)
    if found is not None:
        judge.recall(read_record(found.manifest).judge)
        checkpointer.checkpointed_at = ledger.samples_accounted
        checkpointer.newest = found.directory
    return Parts(run, arena, roster, training, judge, checkpointer)


def _ledger_settings(run: Run, prepared: Preparation) -> LedgerSettings:
    job = run.job
    return LedgerSettings(
        units=tuple(unit.samples for unit in prepared.train.units),
        epochs=job.train.epochs,
        batch_size=job.train.batch_size,
        order=job.data.order,
        seed=job.job.seed,
    )


def _difference(saved: ModelSpec, present: ModelSpec) -> str:
    """The first thing that is not the same, in words."""
    for name, before, now in (
        ("tables", saved.tables, present.tables),
        ("embeddings", saved.embeddings, present.embeddings),
        ("dense tensors", saved.dense.tensors, present.dense.tensors),
    ):
        if len(before) != len(now):
            return f"{len(before)} {name} instead of {len(now)}"
        for old, new in zip(before, now, strict=True):
            if old != new:
                return f"{name}: {old} instead of {new}"
    return "its columns or labels"
