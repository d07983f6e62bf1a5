"""What a run begins with: an arena, a dense part and a ledger. They are new, come from a checkpoint, or are taken over
from a supervisor that died."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from fractions import Fraction
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
from elastichost.checkpoint.format import FoundCheckpoint
from elastichost.checkpoint.manifest import DIGEST_NAME, MANIFEST_NAME
from elastichost.errors import ArenaFullError
from elastichost.host.environment import check_address_space
from elastichost.human_readable import mib
from elastichost.plan import ProcessId
from elastichost.runs.events import ArenaOpened, ArenaRejected, ArenaReused, BatchTorn, DirectoryNotRemoved
from elastichost.runs.facts import ArenaOrigin, Lineage
from elastichost.sharding import even_shard_map
from elastichost.specs import ModelSpec
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan import PlanController
from elastichost.supervisor.ledger.checkpoint_record import RunRecord
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.state import LedgerSettings
from elastichost.supervisor.startup.arena_takeover import ArenaClaim, TakenOver, TakeoverRefusal, take_over_arena
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.startup.resume_source import ResumeSource, newest_kept, starting_point
from elastichost.supervisor.startup.room import memory_for_rows, shares_of_rows

__all__ = ["RunStart", "start_run"]


@dataclass(frozen=True, slots=True)
class RunStart:
    """What the components of a run begin with. restore_from: the checkpoint that PS fill their buckets from. kept: the
    run's own newest checkpoint, and its record."""

    model: ModelSpec
    arena: Arena
    dense: DenseStore
    ledger: Ledger
    lineage: Lineage
    restore_from: Path | None = None
    kept: tuple[Path, RunRecord] | None = None
    taken_over: TakenOver | None = None


def start_run(
    run: RunContext,
    prepared: Preparation,
    plans: PlanController,
    model: ModelSpec,
    initial: npt.NDArray[np.float32],
    source: ResumeSource,
) -> RunStart:
    """Makes a new arena, or takes over the arena of a supervisor that died.

    initial: float32 [dense.elements], the dense part as the user's model initializes it. Raises ArenaFullError,
    CheckpointError.
    """
    settings = _ledger_settings(run, prepared)
    found = _from_arena(run, plans, model, settings, source)
    if isinstance(found, TakeoverRefusal):
        return _anew(run, prepared, model, initial, settings, source, found.reason)
    return found


# --- from the arena of a supervisor that died ---------------------------------------------------------------------


def _from_arena(
    run: RunContext, plans: PlanController, model: ModelSpec, settings: LedgerSettings, resume_source: ResumeSource
) -> RunStart | TakeoverRefusal:
    """Takes an arena over. Returns a TakeoverRefusal, with the reason in the journal, when there is no arena or it does
    not fit the job; the arena is then unchanged and still held."""
    claim = resume_source.claim
    if claim is None:
        return TakeoverRefusal("the run is a new one")
    taken_over = _take_over(run, claim, model, settings)
    if isinstance(taken_over, TakeoverRefusal) and taken_over.needs_servers:
        plans.needs_servers(taken_over.needs_servers, f"resume: {taken_over.reason}")
        taken_over = _take_over(run, claim, model, settings)
    if isinstance(taken_over, TakeoverRefusal):
        if not claim.replayed.has_ended:
            run.note(ArenaRejected(taken_over.reason))
        return taken_over
    run.arena = taken_over.arena.directory
    run.started_from = taken_over.lineage.started_from
    _note_arena(run, taken_over.arena, "arena", None)
    ledger, version = taken_over.ledger, taken_over.dense.version()
    ledger.bar(resume_source.barred)
    run.note(ArenaReused(str(run.arena), ledger.trained, version - 1))
    run.torn_batches += taken_over.lineage.torn_batches
    for torn in taken_over.torn:
        run.torn_batches += torn.batches
        run.note(BatchTorn(ProcessId("worker", torn.worker, torn.incarnation), torn.batches, with_supervisor=True))
    kept = newest_kept(resume_source)
    return RunStart(
        model, taken_over.arena, taken_over.dense, ledger, taken_over.lineage, kept=kept, taken_over=taken_over
    )


def _take_over(
    run: RunContext, claim: ArenaClaim, model: ModelSpec, settings: LedgerSettings
) -> TakenOver | TakeoverRefusal:
    job = run.job
    return take_over_arena(
        claim,
        run.directory.path,
        model,
        job.job.seed,
        settings,
        [spec.index for spec in run.plan.servers],
        in_place=job.train.mode != "sync",
        micros=job.train.micro_batches,
        may_be_resident=job.resources.model_memory == "gpu",
    )


def _give_up(run: RunContext, claim: ArenaClaim) -> None:
    """Removes an arena that is not taken over: its memory is needed, and the run begins from a checkpoint."""
    if claim.held is None:
        return
    try:
        claim.held.remove()
    except OSError as error:
        run.note(DirectoryNotRemoved(str(claim.held.path), str(error)))
    claim.release()


# --- anew, or from a checkpoint -----------------------------------------------------------------------------------


def _anew(
    run: RunContext,
    prepared: Preparation,
    model: ModelSpec,
    initial: npt.NDArray[np.float32],
    settings: LedgerSettings,
    resume_source: ResumeSource,
    why_not_arena: str,
) -> RunStart:
    source = starting_point(run, model, settings, resume_source, why_not_arena)
    if resume_source.claim is not None:  # the starting point passed its checks, so the old arena can go
        _give_up(run, resume_source.claim)
    ledger, found = source.ledger, source.found
    others = [path for host, path in run.other_arenas.items() if run.uses(host)]
    for directory in (run.arena, *others):
        create_directory(directory, owner_of(run.supervisor_pid, run.directory.path))
    budget_bytes = memory_for_rows(prepared.memory_bytes, free_bytes(run.arena), prepared.others)
    # In sync mode the bits of the model must depend on the seed alone. In other modes the key is secret, so that chosen
    # ids cannot make the hash index slow.
    index_key = None if run.job.train.mode == "sync" else secrets.randbits(63)
    layout = plan_layout(model, run.job.job.seed, budget_bytes, index_key)
    _check_room(run, layout, shares_of_rows(run.plan, prepared.others).get(0, Fraction(0)))
    # With several hosts the rows of a bucket use memory on the host of its owner, so no arena is reserved as a whole.
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
        return RunStart(model, arena, dense, ledger, lineage)
    dense.load(state.vector, state.state, state.version, state.samples_applied, state.step)
    _note_arena(run, arena, "checkpoint", source.lineage)
    kept = (found.directory, source.record) if source.record is not None else None
    return RunStart(model, arena, dense, ledger, source.lineage, found.directory, kept)


def _check_room(run: RunContext, layout: ArenaLayout, share: Fraction) -> None:
    """Raises ArenaFullError when the file system of the arena is smaller than the least that any batch needs, and
    PreflightError when the arena's files do not fit into the address space. share: of all rows, those on this host."""
    if run.job.emulate.enabled:
        return  # emulated processes look up no rows
    workers, servers = (
        [one for one in processes if one.host == 0] for processes in (run.plan.workers, run.plan.servers)
    )
    check_address_space(address_bytes(layout, len(workers)))
    least, free = least_room(layout, len(workers), len(servers), share), free_bytes(run.arena)
    if least.total > free:
        raise ArenaFullError(
            f"the job needs at least {mib(least.total)} in {run.arena.parent} to start ({least}), "
            f"but only {mib(free)} are free",
            hint=MORE_ROOM,
        )


def _files_elsewhere(run: RunContext, found: FoundCheckpoint) -> dict[int, set[str]]:
    """Host -> checkpoint files that the PS of that machine need: the manifest, and the files with their buckets."""
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


def _note_arena(run: RunContext, arena: Arena, origin: ArenaOrigin, lineage: Lineage | None) -> None:
    run.note(ArenaOpened(str(run.arena), tuple(map(str, run.arenas)), arena.touched_bytes(), origin, lineage))


def _ledger_settings(run: RunContext, prepared: Preparation) -> LedgerSettings:
    job = run.job
    return LedgerSettings(
        units=tuple(unit.samples for unit in prepared.train.units),
        epochs=job.train.epochs,
        batch_size=job.train.batch_size,
        order=job.data.order,
        in_order=job.train.mode == "sync",
        seed=job.job.seed,
    )
