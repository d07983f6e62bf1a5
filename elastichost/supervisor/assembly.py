"""Making the parts of a run: arena, dense vector, ledger, roster, checkpoints; anew, from the arena of a supervisor
that died, or from a checkpoint."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.files import MORE_ROOM
from elastichost.arena.host import create_directory, free_bytes
from elastichost.arena.layout import ArenaLayout, plan_layout
from elastichost.arena.least_room import address_bytes, least_room
from elastichost.arena.owner import owner_of
from elastichost.arena.watermarks import Watermarks
from elastichost.checkpoint.format import FoundCheckpoint
from elastichost.checkpoint.manifest import DIGEST_NAME, MANIFEST_NAME
from elastichost.errors import ArenaFullError
from elastichost.host.environment import check_address_space
from elastichost.host.inventory import memory_of_host
from elastichost.plan import ProcessId
from elastichost.resources import memory_budget_bytes
from elastichost.runs.events import ArenaOpened, ArenaRejected, ArenaReused, BatchTorn, DirectoryNotRemoved
from elastichost.runs.facts import ArenaOrigin, Lineage
from elastichost.sharding import even_shard_map
from elastichost.specs import ModelSpec
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import Run
from elastichost.supervisor.controllers.checkpoints import CheckpointController
from elastichost.supervisor.controllers.evaluations import EvaluationController
from elastichost.supervisor.controllers.leases import Training
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.controllers.sync_crew import CrewTraining
from elastichost.supervisor.core.core_assignment import pin
from elastichost.supervisor.elastic_hosts.arena_replica import Double
from elastichost.supervisor.elastic_hosts.loss import HostLosses
from elastichost.supervisor.ledger.checkpoint_record import RunRecord
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.state import LedgerSettings
from elastichost.supervisor.memory.gauge import MemoryGauge
from elastichost.supervisor.memory.lookups import LookupCount
from elastichost.supervisor.memory.monitor import MemoryWatch
from elastichost.supervisor.rebalancer import Balancer
from elastichost.supervisor.startup.arena_takeover import ArenaClaim, TakenOver, TakeoverRefusal, rescue
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.startup.resume_source import ResumeSource, newest_kept, starting_point
from elastichost.tuner.placement.resize import resized_plan

__all__ = ["assemble"]


@dataclass(frozen=True, slots=True)
class _RunStart:
    """What the parts of a run begin with. `restore_from`: the checkpoint PS fill their buckets from; `kept`: the newest
    one, and its record."""

    arena: Arena
    dense: DenseStore
    ledger: Ledger
    lineage: Lineage
    restore_from: Path | None = None
    kept: tuple[Path, RunRecord] | None = None
    rescued: TakenOver | None = None


def assemble(
    run: Run,
    prepared: Preparation,
    model: ModelSpec,
    initial: npt.NDArray[np.float32],
    heritage: ResumeSource,
    is_draining: Callable[[], bool],
) -> Components:
    """Makes the arena, or takes one over, and everything that works on it.

    initial: float32 [dense.elements], the model's own initial dense part. Raises ArenaFullError, CheckpointError.
    """
    settings = _ledger_settings(run, prepared)
    found = _from_arena(run, model, settings, heritage, prepared.cores)
    if isinstance(found, TakeoverRefusal):
        beginning = _anew(run, prepared, model, initial, settings, heritage, found.reason)
    else:
        beginning = found
    return _parts(run, prepared, model, beginning, is_draining)


# --- from the arena of a supervisor that died ---------------------------------------------------------------------


def _from_arena(
    run: Run, model: ModelSpec, settings: LedgerSettings, heritage: ResumeSource, cores: tuple[int, ...]
) -> _RunStart | TakeoverRefusal:
    """A TakeoverRefusal, with the reason in the journal, when there is no arena to go on from, or it does not fit. The
    arena is left as it is then, and still held."""
    claim = heritage.claim
    if claim is None:
        return TakeoverRefusal("the run is a new one")
    rescued = _rescue(run, claim, model, settings)
    if isinstance(rescued, TakeoverRefusal) and rescued.needs_servers:
        resized = resized_plan(run.plan, f"resume: {rescued.reason}", servers=rescued.needs_servers)
        run.plan = pin(resized, cores, run.cores_elsewhere).plan
        run.decided(run.plan.reason)
        rescued = _rescue(run, claim, model, settings)
    if isinstance(rescued, TakeoverRefusal):
        if not claim.recollection.has_ended:
            run.note(ArenaRejected(rescued.reason))
        return rescued
    run.arena = rescued.arena.directory
    run.started_from = rescued.lineage.started_from
    _note_arena(run, rescued.arena, "arena", None)
    ledger, version = rescued.ledger, rescued.dense.version()
    ledger.bar(heritage.barred)
    run.note(ArenaReused(str(run.arena), ledger.trained, version - 1))
    run.torn_batches += rescued.lineage.torn_batches
    for torn in rescued.torn:
        run.torn_batches += torn.batches
        run.note(BatchTorn(ProcessId("worker", torn.worker, torn.incarnation), torn.batches, with_supervisor=True))
    kept = newest_kept(heritage)
    return _RunStart(rescued.arena, rescued.dense, ledger, rescued.lineage, kept=kept, rescued=rescued)


def _rescue(run: Run, claim: ArenaClaim, model: ModelSpec, settings: LedgerSettings) -> TakenOver | TakeoverRefusal:
    job = run.job
    return rescue(
        claim,
        run.directory.path,
        model,
        job.job.seed,
        settings,
        [spec.index for spec in run.plan.servers],
        in_place=job.train.mode != "sync",
        micros=job.train.micro_batches,
    )


def _give_up(run: Run, claim: ArenaClaim) -> None:
    """Its memory is needed: the checkpoint is what counts from now on."""
    if claim.held is None:
        return
    try:
        claim.held.remove()
    except OSError as error:
        run.note(DirectoryNotRemoved(str(claim.held.path), str(error)))
    claim.release()


# --- anew, or from a checkpoint -----------------------------------------------------------------------------------


def _anew(
    run: Run,
    prepared: Preparation,
    model: ModelSpec,
    initial: npt.NDArray[np.float32],
    settings: LedgerSettings,
    heritage: ResumeSource,
    why_not_arena: str,
) -> _RunStart:
    source = starting_point(run, model, settings, heritage, why_not_arena)
    if heritage.claim is not None:  # what was found good replaces the arena, whose memory is needed
        _give_up(run, heritage.claim)
    ledger, found = source.ledger, source.found
    others = [path for host, path in run.other_arenas.items() if run.uses(host)]
    for directory in (run.arena, *others):
        create_directory(directory, owner_of(run.supervisor_pid, run.directory.path))
    budget_bytes = min(prepared.memory_bytes, free_bytes(run.arena))
    # The bits of a sync run depend on its seed alone; elsewhere nobody must be able to aim at the index.
    index_key = None if run.job.train.mode == "sync" else secrets.randbits(63)
    layout = plan_layout(model, run.job.job.seed, budget_bytes, index_key)
    _check_room(run, layout)
    # With several hosts the rows of a bucket take memory where its owner is.
    arena = Arena.create(run.arena, layout, whole=not run.other_arenas)
    for directory in others:
        Arena.create(directory, layout, whole=False).close()
    if run.machines is not None:
        run.machines.make_arenas(layout)
        if found is not None:
            run.machines.send_checkpoint(found.directory, _files_elsewhere(run, found))
    dense = DenseStore(arena)
    state = source.dense
    if found is None or state is None:
        dense.load(initial, None, 1, 0, 0)
        lineage = Lineage(settings.data)
        _note_arena(run, arena, "new", lineage)
        return _RunStart(arena, dense, ledger, lineage)
    dense.load(state.vector, state.state, state.version, state.samples_applied, state.step)
    _note_arena(run, arena, "checkpoint", source.lineage)
    kept = (found.directory, source.record) if source.record is not None else None
    return _RunStart(arena, dense, ledger, source.lineage, found.directory, kept)


def _check_room(run: Run, layout: ArenaLayout) -> None:
    """Raises ArenaFullError when the file system of the arena could not even hold what every batch needs, and
    PreflightError when its files cannot be mapped."""
    if run.job.emulate.enabled:
        return  # nobody looks up a row
    workers, servers = (
        [one for one in processes if one.host == 0] for processes in (run.plan.workers, run.plan.servers)
    )
    check_address_space(address_bytes(layout, len(workers)))
    least, free = least_room(layout, len(workers), len(servers)), free_bytes(run.arena)
    if least.total > free:
        raise ArenaFullError(
            f"the job needs at least {least.total / 1e6:,.1f} MB in {run.arena.parent} to begin with ({least}), "
            f"{free / 1e6:,.1f} MB are free",
            hint=MORE_ROOM,
        )


def _files_elsewhere(run: Run, found: FoundCheckpoint) -> dict[int, set[str]]:
    """What PS of other machines fill their buckets from, by host: the manifest, and the files with their buckets."""
    model, hosts = found.manifest.model, {spec.index: spec.host for spec in run.plan.servers}
    owners = even_shard_map(model.tables, tuple(hosts), epoch=0).owners
    tables = {embedding.index: embedding.table for embedding in model.embeddings}
    wanted: dict[int, set[str]] = {host: {MANIFEST_NAME, DIGEST_NAME} for host in run.elsewhere}
    for block in found.manifest.blocks:
        if block.kind in ("dense", "dense_state"):
            continue
        table = tables[block.owner] if block.kind in ("rows", "state") else block.owner
        host = hosts[owners[table][block.bucket]]
        if host in wanted:
            wanted[host].add(block.file)
    return wanted


def _note_arena(run: Run, arena: Arena, origin: ArenaOrigin, lineage: Lineage | None) -> None:
    run.note(ArenaOpened(str(run.arena), tuple(map(str, run.arenas)), arena.touched_bytes(), origin, lineage))


# --- the parts ----------------------------------------------------------------------------------------------------


def _parts(
    run: Run, prepared: Preparation, model: ModelSpec, beginning: _RunStart, is_draining: Callable[[], bool]
) -> Components:
    ledger = beginning.ledger
    is_sync, every_samples = run.job.train.mode == "sync", run.job.evaluate.every_samples
    checkpointer = CheckpointController(
        run,
        model,
        ledger,
        beginning.dense,
        lambda: (judge.memory, lookups.total()),
        lambda: training.committed_step(),
        lambda: roster.holdings.owners,
        is_draining,
    )
    lookups = LookupCount(run, beginning.lineage.lookups)
    left = beginning.rescued.left if beginning.rescued is not None else None
    roster = ShardMapController(run, model.tables, beginning.restore_from, left)

    def may_evaluate() -> bool:
        return not checkpointer.holds_workers and not is_draining() and roster.was_published

    def may_grant() -> bool:
        # A crew is evaluated between two steps: it must come to the end of what it was given.
        since = ledger.samples_accounted - (judge.evaluated_at or 0)
        is_due = judge.is_open or 0 < every_samples <= since
        if run.journal.problem:
            return False  # whoever resumes the run has to know of every lease
        return may_evaluate() and not (is_sync and test_units and is_due)

    marks: dict[Path, Watermarks] = {}

    def begun(worker: int, incarnation: int) -> int:
        # An incarnation was on one host, and no other incarnation of the run bears its number. A machine may join, or
        # be lost.
        for directory in (run.arena, *(path for host, path in run.other_arenas.items() if run.uses(host))):
            if directory not in marks:
                marks[directory] = Watermarks(directory)
        return max(mark.begun(worker, incarnation) for mark in marks.values())

    test_units = tuple(unit.samples for unit in prepared.test.units) if prepared.test is not None else ()
    training = (
        CrewTraining(run, ledger, may_grant, may_evaluate, beginning.dense, Watermarks(beginning.arena.directory))
        if is_sync
        else Training(run, ledger, may_grant, begun)
    )
    judge = EvaluationController(run, test_units, model.num_labels, may_evaluate)
    judge.recall(beginning.lineage.evaluations)
    if beginning.kept is not None:
        newest, record = beginning.kept
        checkpointer.recall(newest, Ledger.from_state(ledger.settings, record.ledger).samples_accounted)
    if beginning.rescued is not None:
        training.recall(beginning.rescued.committed, beginning.rescued.staged)
    gauges = (MemoryGauge(0, beginning.arena), *_other_gauges(run))
    budgets = _budgets(run, prepared.memory_bytes, gauges)
    memory = MemoryWatch(run, gauges, roster, budgets, prepared.beginning.first.memory)
    balancer = Balancer(run, memory, roster)
    losses = HostLosses(run, beginning.arena, roster, checkpointer, memory)
    return Components(run, beginning.arena, roster, training, judge, checkpointer, balancer, memory, losses, lookups)


def _other_gauges(run: Run) -> Iterator[MemoryGauge]:
    """Of the other hosts, on this machine or on their own."""
    for host, directory in run.other_arenas.items():
        if not run.uses(host):
            continue
        arena = Arena.attach(directory)
        use = Double(arena, run.machines.launchers[host]) if run.machines is not None else None
        yield MemoryGauge(host, arena, use)


def _budgets(run: Run, here_bytes: int, gauges: Sequence[MemoryGauge]) -> tuple[int, ...]:
    """What every host may use. Emulated ones share this machine's memory."""
    if run.machines is None:
        return (memory_of_host(here_bytes, len(gauges)),) * len(gauges)
    there = run.machines.memory_bytes()
    setting = run.job.resources.memory
    return (here_bytes, *(memory_budget_bytes(setting, there[gauge.host]) for gauge in gauges[1:]))


def _ledger_settings(run: Run, prepared: Preparation) -> LedgerSettings:
    job = run.job
    return LedgerSettings(
        units=tuple(unit.samples for unit in prepared.train.units),
        epochs=job.train.epochs,
        batch_size=job.train.batch_size,
        order=job.data.order,
        in_order=job.train.mode == "sync",
        seed=job.job.seed,
    )
