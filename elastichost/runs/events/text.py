"""The sentence that a person reads for an event, rendered from its fields. Nothing reads a fact back from it. Pure.

One function for each kind of event, in the order of the modules. The time, and the process or job that the event is
about, are shown beside the sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from elastichost.human_readable import mib, plural
from elastichost.runs.events import buckets, checkpoints, data, hosts, jobs, memory, plan, processes, run
from elastichost.runs.events.base import Event
from elastichost.runs.facts import Quarantined

__all__ = ["RECOVERED", "text_of"]

RECOVERED = 0.9  # of the throughput before a change: from there on it counts as back


@singledispatch
def text_of(event: Event) -> str:
    """Plain English, one line or two. Raises TypeError for a kind without a sentence: a test asks for all kinds."""
    raise TypeError(f"no sentence for events of kind {event.kind}")


# --- the run ----------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: run.RunStarted) -> str:
    return f"run {event.directory} started"


@text_of.register
def _(event: run.RunEnded) -> str:
    return f"the run has ended: {event.state}"


@text_of.register
def _(event: run.RunFailed) -> str:
    return f"a fault of elastichost: {event.error_type}: {event.message}" if event.is_bug else event.message


@text_of.register
def _(event: run.RunFinishing) -> str:
    return f"the run finishes: {event.reason}"


@text_of.register
def _(event: run.EpochStarted) -> str:
    return f"epoch {event.epoch} begins: {event.reason}"


@text_of.register
def _(event: run.EarlyStopped) -> str:
    return f"training stops early: {event.reason}; {event.dropped:,} samples are not trained"


@text_of.register
def _(event: run.ArenaOpened) -> str:
    origin = {"new": "with initial rows", "checkpoint": "with rows of a checkpoint", "arena": "reused"}[event.origin]
    return f"arena opened {origin}: {mib(event.touched_bytes)} in {', '.join(event.directories)}"


@text_of.register
def _(event: run.ArenaReused) -> str:
    return (
        f"resume: the arena {event.path} belongs to this run, fits the job and is not in use. Training goes on in it "
        f"after {event.trained:,} samples in {event.batches:,} batches; nothing is lost"
    )


@text_of.register
def _(event: run.ArenaRejected) -> str:
    return f"resume: the arena of the supervisor that died is not used: {event.reason}"


@text_of.register
def _(event: run.StartedFromCheckpoint) -> str:
    if event.is_foreign:
        return f"training begins from the checkpoint of another run, as --from asked: {event.checkpoint}"
    return f"resume: training goes on from the checkpoint {event.checkpoint}"


@text_of.register
def _(event: run.RolledBack) -> str:
    entry = event.entry
    number = f" (roll back {event.number} of {event.most})" if event.number else ""
    where = f"to the checkpoint {entry.checkpoint}" if entry.checkpoint else "to its beginning: there is no checkpoint"
    barred = f"; positions {entry.start} to {entry.stop} of unit {entry.unit} are left out" if entry.stop else ""
    return (
        f"the run goes back {where}{number}: {entry.reason}; {entry.samples:,} samples trained since are lost{barred}"
    )


@text_of.register
def _(event: run.RollBackRefused) -> str:
    return f"the run cannot be rolled back: {event.reason}"


@text_of.register
def _(event: run.SupervisorStalled) -> str:
    return f"the supervisor did not run for {event.stalled_s:.1f} s; all deadlines are extended by that"


@text_of.register
def _(event: run.ProcessesKilled) -> str:
    return f"killed at the end of the run, since they did not end by themselves: {', '.join(event.processes)}"


@text_of.register
def _(event: run.DirectoryLeftBehind) -> str:
    return event.problem


@text_of.register
def _(event: run.DirectoryNotRemoved) -> str:
    return f"{event.path} cannot be removed: {event.error}"


@text_of.register
def _(event: run.DiskFull) -> str:
    held = (
        "Training waits, and goes on by itself when there is space"
        if event.is_training_held
        else "Training goes on; what could not be written waits in memory"
    )
    files = ", ".join(event.files)
    return (
        f"{event.error}: {files} on {event.file_system} cannot be written for {event.since_s:.0f} s; free some space "
        f"there. {held}"
    )


@text_of.register
def _(event: run.DiskFreed) -> str:
    return f"there is space again after {event.after_s:.0f} s: everything is written"


@text_of.register
def _(event: run.RecordingStopped) -> str:
    return f"{event.problem}; `replay` knows nothing of what follows"


@text_of.register
def _(event: run.HistoryUnavailable) -> str:
    return f"history of jobs: {event.error}"


@text_of.register
def _(event: run.MessageRefused) -> str:
    if event.count == 1:
        return f"message refused: {event.error}"
    return f"{event.count} messages refused; the last: {event.error}"


@text_of.register
def _(event: run.CommandRefused) -> str:
    return f"{event.command or 'command'} refused: {event.error}"


@text_of.register
def _(event: run.Warned) -> str:
    return event.message


# --- processes --------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: processes.ForkServerReady) -> str:
    compiled = " and all kernels compiled" if event.compiled_kernels else ""
    return f"the fork server is ready: libraries imported{compiled} in {event.seconds:.1f} s"


@text_of.register
def _(event: processes.ForkServerThreads) -> str:
    return f"the fork server has {event.threads} threads: only one survives a fork"


@text_of.register
def _(event: processes.ForkServerLost) -> str:
    return f"the fork server ended ({event.reason}); the supervisor starts another"


@text_of.register
def _(event: processes.ProcessStarting) -> str:
    return f"starting {event.process} ({event.reason})"


@text_of.register
def _(event: processes.ProcessStarted) -> str:
    return f"{event.process} has pid {event.pid}"


@text_of.register
def _(event: processes.ProcessStartFailed) -> str:
    return f"{event.process} could not be started: {event.reason}"


@text_of.register
def _(event: processes.ProcessConnected) -> str:
    return f"{event.process} is connected"


@text_of.register
def _(event: processes.ProcessReady) -> str:
    return f"{event.process} is ready"


@text_of.register
def _(event: processes.ProcessEnded) -> str:
    return f"{event.process} ended: {event.reason}"


@text_of.register
def _(event: processes.ProcessLost) -> str:
    if event.reported:  # the report was told when it came
        return f"{event.process} ended after it had reported {event.reported}"
    return f"{event.process} was lost while {event.state}: {event.reason}"


@text_of.register
def _(event: processes.ProcessReported) -> str:
    if event.ends_run:  # the run shows the whole error once, when it ends
        return f"{event.process} reports an error that ends the run: {event.error_type}"
    return f"{event.process} reports {event.error_type}: {event.message}"


@text_of.register
def _(event: processes.ReportNotKept) -> str:
    return f"the report of {event.process} is not kept: {event.error}"


@text_of.register
def _(event: processes.ProcessKilling) -> str:
    return f"killing {event.process}: {event.reason}"


@text_of.register
def _(event: processes.ProcessDraining) -> str:
    return f"{event.process} drains: {event.reason}"


@text_of.register
def _(event: processes.ProcessStopping) -> str:
    return f"{event.process} stops: {event.reason}"


@text_of.register
def _(event: processes.ProcessRepinning) -> str:
    return f"{event.process} moves to cores {_numbers(event.cores)} with {plural(event.threads, 'thread')}"


@text_of.register
def _(event: processes.ProcessRepinned) -> str:
    return f"{event.process} runs on cores {_numbers(event.cores)}"


@text_of.register
def _(event: processes.ProcessSlow) -> str:
    return f"{event.process} is slow: {event.reason}"


@text_of.register
def _(event: processes.ProcessUnreachable) -> str:
    return f"{event.message_type} could not be sent to {event.process}: {event.error}"


# --- the plan ---------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: plan.PlanChanged) -> str:
    return f"plan: {event.reason}"


@text_of.register
def _(event: plan.PlanReached) -> str:
    changes = [
        f"{name.replace('_', ' ')} {old} -> {new}"
        for name in plan.Counts.__struct_fields__
        if (old := getattr(event.before, name)) != (new := getattr(event.after, name))
    ]
    parts = [f"{', '.join(changes) or 'unchanged'} in {_seconds(event.reached_s)}"]
    for index, at_s in event.first_sample_s.items():
        when = "has nothing to train" if at_s is None else f"trained its first sample after {_seconds(at_s)}"
        parts.append(f"worker-{index} {when}")
    if event.handover_s is not None:
        parts.append(f"{event.buckets_moved} buckets changed owners in {_seconds(event.handover_s)}")
    if event.dip is not None:
        parts.append(_throughput(event.dip, event.recovered_s))
    return "; ".join(parts)


def _throughput(dip: float, recovered_s: float | None) -> str:
    if dip >= RECOVERED:
        return f"throughput never below {100 * min(dip, 1.0):.0f} % of before"
    back = "and stays lower" if recovered_s is None else f"and was back after {_seconds(recovered_s)}"
    return f"throughput fell to {100 * dip:.0f} % of before {back}"


@text_of.register
def _(event: plan.TunerDecided) -> str:
    return f"tuner{' (only watches)' * event.only_watches}: {event.decision.reason}"


@text_of.register
def _(event: plan.TunerOff) -> str:
    return f"tuner: {event.reason}"


@text_of.register
def _(event: plan.TunerOnlyWatches) -> str:
    return "tuner: a size was asked for and stays; from now on the tuner only watches"


@text_of.register
def _(event: plan.TunerFailed) -> str:
    return f"tuner: stopped after an error of its own, the plan stays: {event.error_type}: {event.message}"


# --- samples ----------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: data.LeaseGranted) -> str:
    return f"lease {event.lease}: positions {event.start} to {event.stop} of unit {event.unit}"


@text_of.register
def _(event: data.LeasesFolded) -> str:
    return f"{event.leases:,} leases up to number {event.lease}"


@text_of.register
def _(event: data.LeasesSettled) -> str:
    return (
        f"leases of {event.process} settled: {event.trained} samples were applied, {event.returned} are trained again"
    )


@text_of.register
def _(event: data.BatchTorn) -> str:
    within = "a batch" if event.batches == 1 else f"{event.batches} batches"
    return f"{event.process} died within {within}: rows may hold a part of it"


@text_of.register
def _(event: data.SamplesQuarantined) -> str:
    if event.cause == "roll_back":
        return f"{_positions(event.entry)} are left out: the run was rolled back because of them"
    return f"{_positions(event.entry)} are left out: {event.entry.failures} workers died on them"


@text_of.register
def _(event: data.PositionsLeftOut) -> str:
    positions = f"positions {event.start} to {event.stop} of unit {event.unit}"
    return f"{positions} are left out of the step: {event.failures} workers died on them"


@text_of.register
def _(event: data.MicroBatchesAssigned) -> str:
    shares = ", ".join(f"worker-{index}: {count}" for index, count in sorted(event.shares.items()))
    return f"micro-batches of a step: {shares or 'no worker'}; {event.reason}"


@text_of.register
def _(event: data.EvaluationStarted) -> str:
    return f"evaluation after {event.samples:,} samples begins: {event.reason}"


@text_of.register
def _(event: data.EvaluationFinished) -> str:
    return f"{event.reason}; {event.test_samples:,} samples scored in {event.seconds:.1f} s"


def _positions(entry: Quarantined) -> str:
    return f"positions {entry.start} to {entry.stop} of unit {entry.unit}"


# --- checkpoints ------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: checkpoints.CheckpointStarted) -> str:
    return f"checkpoint begins: {event.reason}"


@text_of.register
def _(event: checkpoints.CheckpointWritten) -> str:
    return (
        f"checkpoint {event.path.rpartition('/')[2]} written: {event.rows:,} rows, {mib(event.bytes)} in "
        f"{event.seconds:.2f} s; training stood still for {event.stall_s:.2f} s"
    )


@text_of.register
def _(event: checkpoints.CheckpointFailed) -> str:
    kept = f"the newest good one is {event.newest}" if event.newest else "there is none yet"
    return (
        f"checkpoint failed: {event.error} ({event.failed_in_a_row} in a row; {kept}); tried again in "
        f"{event.retry_in_s:g} s, training goes on"
    )


@text_of.register
def _(event: checkpoints.CheckpointAbandoned) -> str:
    return f"checkpoint given up: {event.reason}"


@text_of.register
def _(event: checkpoints.CheckpointMirrored) -> str:
    return f"checkpoint {event.checkpoint} copied to {event.mirror} ({mib(event.bytes)})"


@text_of.register
def _(event: checkpoints.MirrorFailed) -> str:
    return f"checkpoint {event.checkpoint} is not in the mirror: {event.error}"


@text_of.register
def _(event: checkpoints.MirrorUnfinished) -> str:
    return f"the mirror {event.mirror} may lack the newest checkpoint"


@text_of.register
def _(event: checkpoints.MirrorMissing) -> str:
    return f"checkpoint.mirror: there is no host {event.host!r} in this run; checkpoints have no mirror"


# --- buckets ----------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: buckets.HandoverStarted) -> str:
    return f"hand-over begins: buckets of {_servers(event.before)} go to {_servers(event.servers)}: {event.reason}"


@text_of.register
def _(event: buckets.HandoverReverted) -> str:
    return f"hand-over called back: {event.reason}"


@text_of.register
def _(event: buckets.ShardMapPublished) -> str:
    moved = f"; {event.moved} buckets changed owners in {1000 * event.took_s:.0f} ms" if event.moved else ""
    return f"shard map {event.epoch} published: {', '.join(event.owners)}{moved}"


@text_of.register
def _(event: buckets.BucketsMoving) -> str:
    return f"{plural(event.buckets, 'bucket')} will be copied to arenas of other hosts: {event.reason}"


@text_of.register
def _(event: buckets.BucketsMoved) -> str:
    copied_s = event.seconds - event.drained_s
    return (
        f"{plural(event.buckets, 'bucket')} ({mib(event.bytes)}) moved to other arenas: copied in {copied_s:.2f} s, "
        f"handed over in {1000 * event.drained_s:.0f} ms"
    )


@text_of.register
def _(event: buckets.MoveAborted) -> str:
    again = ""
    if event.full_host is not None:
        again = f"; tried again when memory is free there, or in {event.wait_s:.0f} s, then less and less often"
    return f"{plural(event.buckets, 'bucket')} stay where they are: {event.reason}{again}"


@text_of.register
def _(event: buckets.BucketsStay) -> str:
    return f"buckets stay with their parameter servers: {event.reason}"


@text_of.register
def _(event: buckets.BalancingOff) -> str:
    return f"buckets are not moved by load: {event.reason}"


def _servers(indices: Iterable[int]) -> str:
    return ", ".join(f"server-{index}" for index in indices) or "no server"


# --- memory -----------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: memory.MemoryBudgetSet) -> str:
    where = f"host {event.host}: " if event.names_host else ""
    files = forecast = ""
    if event.files_free_bytes is not None:
        files = f", because the file system of the arena has {mib(event.files_free_bytes)} free"
    if event.forecast_bytes is not None:
        median, high = event.forecast_bytes
        forecast = f"; like similar jobs it will need {mib(median)}, at most {mib(high)}"
    return (
        f"memory: {where}budget {mib(event.budget_bytes)}; rows {mib(event.rows_bytes)}, processes "
        f"{mib(event.private_bytes)}, kept for copies of checkpoints {mib(event.copies_bytes)}; "
        f"{mib(max(0, event.left_bytes))} left{files}{forecast}"
    )


@text_of.register
def _(event: memory.MemoryBudgetLent) -> str:
    return f"memory: the host lends {mib(event.budget_bytes)} from now on"


@text_of.register
def _(event: memory.MemoryActed) -> str:
    return f"memory: {event.reason}"


@text_of.register
def _(event: memory.MemoryWarned) -> str:
    why = {
        "watch": '; tuner.memory = "watch": nothing is done about it',
        "sync": "; in sync mode no rows are evicted and no ids left out, since rows may not depend on when ids came",
        "none_helps": "",
    }[event.inaction]
    return f"memory: {event.reason}{why}"


@text_of.register
def _(event: memory.MemoryActionMeasured) -> str:
    action = {
        "evict": "evicting rows",
        "admit": "admitting ids later",
        "shrink": "fewer workers",
        "move": "moving buckets",
    }.get(event.action, event.action)
    dropped = f"; {event.dropped_rows:,} rows evicted in {event.rounds} rounds" if event.rounds else ""
    left_out = f"; {event.left_out:,} lookups found no row" if event.left_out else ""
    return (
        f"memory: effect of {action}: {_signed(event.grown_bytes)} within {event.samples:,} samples, where "
        f"{_signed(event.expected_bytes)} were expected without it{dropped}{left_out}"
    )


@text_of.register
def _(event: memory.MemoryMoveRefused) -> str:
    if event.too_few:
        return f"memory: host {event.host} has too few buckets to move some of them to another host"
    return "memory: buckets cannot move to another host while something else is changing hands"


@text_of.register
def _(event: memory.MemoryFull) -> str:
    if event.is_files:
        full = (
            f"the file system of the arena is full: rows take {mib(event.used_bytes)} of it, "
            f"{mib(event.files_free_bytes)} are free ({event.repair})"
        )
    else:
        full = f"all of the {mib(event.budget_bytes)} that resources.memory allows is used"
    return f"memory: {full}: new ids get no row until some is free"


@text_of.register
def _(event: memory.MemoryFreed) -> str:
    return f"memory: new ids get rows again; {event.left_out:,} lookups found no row meanwhile"


@text_of.register
def _(event: memory.MemoryForecastFailed) -> str:
    return f"memory: the forecast stopped after an error of its own: {event.error_type}: {event.message}"


@text_of.register
def _(event: memory.LookupsWithoutRow) -> str:
    return f"memory: {event.message}"


# --- hosts ------------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: hosts.HostJoinAsked) -> str:
    return f"asked to let {', '.join(event.hosts)} join"


@text_of.register
def _(event: hosts.HostJoinAbandoned) -> str:
    return f"no host joins: {event.reason}"


@text_of.register
def _(event: hosts.HostJoined) -> str:
    return f"host {event.name} has joined"


@text_of.register
def _(event: hosts.HostLost) -> str:
    return f"host {event.name} is lost: {event.reason}"


@text_of.register
def _(event: hosts.RowsRolledBack) -> str:
    loss = event.loss
    where = f"the checkpoint {loss.checkpoint}" if loss.checkpoint else "initial values: there is no checkpoint"
    return (
        f"host {loss.name} had {loss.buckets} buckets with {loss.rows:,} rows; they are on host 0 now, "
        f"{loss.rows_restored:,} rows from {where}. These rows lose what {loss.samples:,} samples taught them since; "
        "all other rows, the dense part and the count of samples stay"
    )


@text_of.register
def _(event: hosts.HostsFileNotWritten) -> str:
    return f"{event.path} could not be written, a resume would use the hosts of before: {event.error}"


# --- many jobs on a host ----------------------------------------------------------------------------------------------


@text_of.register
def _(event: jobs.HostPrepared) -> str:
    return f"libraries imported in {event.seconds:.1f} s; jobs can start"


@text_of.register
def _(event: jobs.HostStopping) -> str:
    return f"{event.signal}: jobs save what they have trained and end; send it again to end them at once"


@text_of.register
def _(event: jobs.HostWarned) -> str:
    return event.problem


@text_of.register
def _(event: jobs.JobSubmitted) -> str:
    return "in the queue"


@text_of.register
def _(event: jobs.JobWarned) -> str:
    return event.message


@text_of.register
def _(event: jobs.JobExamined) -> str:
    return f"{event.bound} job; peak memory {mib(event.peak_bytes)}; {event.samples:,} samples"


@text_of.register
def _(event: jobs.JobStarted) -> str:
    return event.reason


@text_of.register
def _(event: jobs.JobDone) -> str:
    return f"done after {event.seconds:.1f} s"


@text_of.register
def _(event: jobs.JobCancelled) -> str:
    return f"cancelled; what it has trained is in {event.run_dir}" if event.run_dir else "cancelled"


@text_of.register
def _(event: jobs.JobStopping) -> str:
    return f"told to save and end: {event.reason}"


@text_of.register
def _(event: jobs.JobStopped) -> str:
    how = "saved" if event.is_saved else f"ended before it could save ({event.reason})"
    return f"{how}; go on with: resume {event.run_dir}"


@text_of.register
def _(event: jobs.JobRequeued) -> str:
    return event.reason


@text_of.register
def _(event: jobs.JobFailed) -> str:
    return event.reason


@text_of.register
def _(event: jobs.JobMemoryActed) -> str:
    return event.reason


@text_of.register
def _(event: jobs.JobTended) -> str:
    return event.reason


@text_of.register
def _(event: jobs.JobShared) -> str:
    cores = f" on cores {_numbers(event.cores)}" if event.cores else ""
    return f"{event.size}{cores}: {event.reason}"


# --- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(cores: Iterable[int]) -> str:
    return ", ".join(map(str, cores))


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _signed(size_bytes: float) -> str:
    return f"{'-' if size_bytes < 0 else '+'}{mib(abs(size_bytes))}"
