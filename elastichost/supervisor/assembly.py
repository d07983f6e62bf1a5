"""Makes the components of a run and connects them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from elastichost.arena.arena import Arena
from elastichost.arena.watermarks import Watermarks
from elastichost.checkpoint.format import newest_best
from elastichost.host.inventory import memory_of_host
from elastichost.resources import memory_budget_bytes
from elastichost.runs.result import BestCheckpoint
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.checkpoints import CheckpointController, CheckpointState
from elastichost.supervisor.controllers.evaluations import EvaluationController, EvaluationState
from elastichost.supervisor.controllers.leases import HostWatermarks, LeaseController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.controllers.sync_crew import CrewLeaseController
from elastichost.supervisor.controllers.work_gate import WorkGate
from elastichost.supervisor.elastic_hosts.arena_replica import ArenaReplica
from elastichost.supervisor.elastic_hosts.loss import HostLosses
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.memory.gauge import MemoryGauge
from elastichost.supervisor.memory.lookups import LookupCount
from elastichost.supervisor.memory.monitor import MemoryWatch
from elastichost.supervisor.rebalancer import Rebalancer
from elastichost.supervisor.run_start import RunStart
from elastichost.supervisor.startup.preflight import Preparation

__all__ = ["assemble"]


def assemble(run: RunContext, prepared: Preparation, start: RunStart, is_stopping: Callable[[], bool]) -> Components:
    """Makes every component that works on the arena. is_stopping: whether the run was asked to stop."""
    model, ledger, dense = start.model, start.ledger, start.dense
    test_units = tuple(unit.samples for unit in prepared.test.units) if prepared.test is not None else ()
    lookups = LookupCount(run, start.lineage.lookups)
    left = start.taken_over.left if start.taken_over is not None else None
    sharding = ShardMapController(run, model.tables, start.restore_from, left)
    # The work gate depends on the checkpoint and the evaluation, and both depend on the leases. To break this cycle,
    # their states are made first, and the gate reads only the states.
    checkpoint, evaluation = CheckpointState(), EvaluationState()
    gate = WorkGate(run, ledger, sharding, checkpoint, evaluation, is_stopping, has_test=bool(test_units))
    leases = _leases(run, start, gate)
    evaluations = EvaluationController(run, evaluation, test_units, model.num_labels, gate.may_evaluate)
    checkpoints = CheckpointController(
        run, checkpoint, model, dense, leases, evaluations, sharding, lookups.total, is_stopping
    )
    _recall(run, start, leases, evaluations, checkpoints)
    gauges = (MemoryGauge(0, start.arena), *_other_gauges(run))
    budgets = _budgets(run, prepared.memory_bytes, gauges)
    memory = MemoryWatch(run, gauges, sharding, budgets, prepared.initial_plan.first.memory)
    rebalancer = Rebalancer(run, memory, sharding)
    losses = HostLosses(
        run, start.arena, sharding, checkpoints, memory, start.restore_from, trains_anew=start.kept is None
    )
    return Components(run, start.arena, sharding, leases, evaluations, checkpoints, rebalancer, memory, losses, lookups)


def _leases(run: RunContext, start: RunStart, gate: WorkGate) -> LeaseController:
    """The lease controller: leases go to single workers, and in sync mode to the whole crew (ranges of steps)."""
    if run.job.train.mode == "sync":
        watermarks = Watermarks(start.arena.directory)
        return CrewLeaseController(run, start.ledger, gate.may_train, gate.may_evaluate, start.dense, watermarks)
    return LeaseController(run, start.ledger, gate.may_train, HostWatermarks(run).begun)


def _recall(
    run: RunContext,
    start: RunStart,
    leases: LeaseController,
    evaluations: EvaluationController,
    checkpoints: CheckpointController,
) -> None:
    """Gives the components of a resumed run what the run did before."""
    evaluations.recall(start.lineage.evaluations, start.ledger.samples_accounted, _best(run))
    if start.kept is not None:
        newest, record = start.kept
        checkpoints.recall(newest, Ledger.from_state(start.ledger.settings, record.ledger).samples_accounted)
    if start.taken_over is not None:
        leases.recall(start.taken_over.committed, start.taken_over.staged)


def _best(run: RunContext) -> BestCheckpoint | None:
    """The checkpoint of the run that was the best by `checkpoint.keep_best`; None: there is none."""
    figure, source = run.job.checkpoint.keep_best, run.directory.checkpoint_source
    found = newest_best(*source.places, run_id=source.run_id, figure=figure) if figure else None
    if found is None or found.manifest.best is None:
        return None
    best = found.manifest.best
    return BestCheckpoint(str(found.directory), best.figure, best.value, best.samples)


def _other_gauges(run: RunContext) -> Iterator[MemoryGauge]:
    """One gauge for each host in use but host 0: emulated hosts on this machine, and other machines."""
    for host, directory in run.other_arenas.items():
        if not run.uses(host):
            continue
        arena = Arena.attach(directory)
        use = ArenaReplica(arena, run.machines.launchers[host]) if run.machines is not None else None
        yield MemoryGauge(host, arena, use)


def _budgets(run: RunContext, here_bytes: int, gauges: Sequence[MemoryGauge]) -> tuple[int, ...]:
    """The memory budget of each host, in bytes. Emulated hosts share the memory of this machine."""
    if run.machines is None:
        return (memory_of_host(here_bytes, len(gauges)),) * len(gauges)
    there = run.machines.memory_bytes()
    setting = run.job.resources.memory
    return (here_bytes, *(memory_budget_bytes(setting, there[gauge.host]) for gauge in gauges[1:]))
