"""Renders the sentence that a person reads for an event from the event's fields. Pure.

There is one function for each kind of event, in the order of the event modules. The display shows the time and the
subject (the process or job that the event is about) beside the sentence. No code parses a sentence: facts are read from
the fields of the event.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from elastichost.human_readable import mib, plural
from elastichost.runs.events import buckets, checkpoints, data, hosts, jobs, memory, plan, processes, run
from elastichost.runs.events.base import Event
from elastichost.runs.facts import Quarantined

__all__ = ["RECOVERED", "text_of"]

RECOVERED = 0.9  # the throughput counts as recovered at this share of its value before the change


@singledispatch
def text_of(event: Event) -> str:
    """The event as one or two lines of English. Raises TypeError for a kind without a sentence (a test covers every
    kind)."""
    raise TypeError(f"no sentence for events of kind {event.kind}")


# --- the run ----------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: run.RunStarted) -> str:
    return f"run {event.directory} started"


@text_of.register
def _(event: run.RunEnded) -> str:
    return f"the run ended: {event.state}"


@text_of.register
def _(event: run.RunFailed) -> str:
    return f"bug in elastichost: {event.error_type}: {event.message}" if event.is_bug else event.message


@text_of.register
def _(event: run.RunFinishing) -> str:
    return f"the run is ending: {event.reason}"


@text_of.register
def _(event: run.EpochStarted) -> str:
    return f"epoch {event.epoch + 1} started: {event.reason}"


@text_of.register
def _(event: run.EarlyStopped) -> str:
    return f"training stops early: {event.reason}; the remaining {event.dropped:,} samples are not trained"


@text_of.register
def _(event: run.ArenaOpened) -> str:
    origin = {"new": "initial rows", "checkpoint": "rows of a checkpoint", "arena": "the rows that it already held"}
    where = ", ".join(event.directories)
    return f"arena opened with {origin[event.origin]}: {mib(event.touched_bytes)} in {where}"


@text_of.register
def _(event: run.ArenaReused) -> str:
    return (
        f"resume: the arena {event.path} belongs to this run, fits the job and is not in use. Training continues in it "
        f"after {event.trained:,} samples in {event.batches:,} committed batches; nothing is lost"
    )


@text_of.register
def _(event: run.ArenaRejected) -> str:
    return f"resume: the arena of the previous supervisor, which died, is not used: {event.reason}"


@text_of.register
def _(event: run.StartedFromCheckpoint) -> str:
    if event.is_foreign:
        return f"training starts from a checkpoint of another run (--from): {event.checkpoint}"
    return f"resume: training continues from checkpoint {event.checkpoint}"


@text_of.register
def _(event: run.RolledBack) -> str:
    entry = event.entry
    number = f" (roll back {event.number} of at most {event.most})" if event.number else ""
    where = f"checkpoint {entry.checkpoint}" if entry.checkpoint else "its beginning, because there is no checkpoint"
    barred = f"; positions {entry.start} to {entry.stop} of unit {entry.unit} are left out" if entry.stop else ""
    return (
        f"the run rolls back to {where}{number}: {entry.reason}; "
        f"the training of {entry.samples:,} samples since then is lost{barred}"
    )


@text_of.register
def _(event: run.RollBackRefused) -> str:
    return f"the run cannot be rolled back: {event.reason}"


@text_of.register
def _(event: run.SupervisorStalled) -> str:
    return f"the supervisor did not run for {event.stalled_s:.1f} s; all deadlines are extended by this time"


@text_of.register
def _(event: run.ProcessesKilled) -> str:
    return f"killed processes that did not exit at the end of the run: {', '.join(event.processes)}"


@text_of.register
def _(event: run.DirectoryLeftBehind) -> str:
    return event.problem


@text_of.register
def _(event: run.DirectoryNotRemoved) -> str:
    return f"{event.path} could not be removed: {event.error}"


@text_of.register
def _(event: run.DiskFull) -> str:
    held = (
        "Training waits, and continues by itself when there is space"
        if event.is_training_held
        else "Training goes on; unwritten data is kept in memory"
    )
    files = ", ".join(event.files)
    return (
        f"{files} on {event.file_system} could not be written for {event.since_s:.0f} s: {event.error}; free some "
        f"space there. {held}"
    )


@text_of.register
def _(event: run.DiskFreed) -> str:
    return f"the disk has space again after {event.after_s:.0f} s; all waiting data is written"


@text_of.register
def _(event: run.LoggerFailed) -> str:
    return f"the logger {event.logger} ended: {event.problem}; `elastichost log` sends what is missing"


@text_of.register
def _(event: run.RecordingStopped) -> str:
    return f"{event.problem}; `elastichost replay` cannot repeat later decisions"


@text_of.register
def _(event: run.HistoryUnavailable) -> str:
    return f"the history of jobs is not available: {event.error}"


@text_of.register
def _(event: run.MeasurementsSetAside) -> str:
    return f"the measurements of an earlier process were damaged and are kept in {event.file}; new ones are written"


@text_of.register
def _(event: run.MessageRefused) -> str:
    if event.count == 1:
        return f"a message was refused: {event.error}"
    return f"{event.count} messages were refused; the last one: {event.error}"


@text_of.register
def _(event: run.CommandRefused) -> str:
    command = f"the command {event.command}" if event.command else "a command"
    return f"{command} was refused: {event.error}"


@text_of.register
def _(event: run.Warned) -> str:
    return event.message


# --- processes --------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: processes.KernelsMissing) -> str:
    return f"compiling the kernels, which takes about {event.compile_s:.0f} s; later starts find them compiled"


@text_of.register
def _(event: processes.ForkServerReady) -> str:
    compiled = " and compiled all kernels" if event.compiled_kernels else ""
    return f"imported the libraries{compiled} in {event.seconds:.1f} s, once for all processes"


@text_of.register
def _(event: processes.ForkServerThreads) -> str:
    return f"the fork server has {event.threads} threads; a process that it forks keeps only one of them"


@text_of.register
def _(event: processes.ForkServerLost) -> str:
    return f"the fork server exited ({event.reason}); the supervisor starts a new one"


@text_of.register
def _(event: processes.ProcessStarting) -> str:
    return f"starting {event.process} ({event.reason})"


@text_of.register
def _(event: processes.ProcessStarted) -> str:
    return f"{event.process} started with pid {event.pid}"


@text_of.register
def _(event: processes.ProcessStartFailed) -> str:
    return f"{event.process} could not be started: {event.reason}"


@text_of.register
def _(event: processes.ProcessConnected) -> str:
    return f"{event.process} connected to the supervisor"


@text_of.register
def _(event: processes.ProcessReady) -> str:
    return f"{event.process} is ready"


@text_of.register
def _(event: processes.ProcessEnded) -> str:
    return f"{event.process} exited as requested: {event.reason}"


@text_of.register
def _(event: processes.ProcessLost) -> str:
    if event.reported:  # the ProcessReported event has the message
        return f"{event.process} exited after it reported {event.reported}"
    return f"{event.process} exited in state {event.state}: {event.reason}"


@text_of.register
def _(event: processes.ProcessReported) -> str:
    if event.ends_run:  # the whole error is shown once, when the run ends
        return f"{event.process} reported an error that ends the run: {event.error_type}"
    return f"{event.process} reported {event.error_type}: {event.message}"


@text_of.register
def _(event: processes.ReportNotKept) -> str:
    return f"the error report of {event.process} could not be written: {event.error}"


@text_of.register
def _(event: processes.LogNotKept) -> str:
    return f"{event.process} starts without a log, which could not be opened: {event.error}"


@text_of.register
def _(event: processes.ProcessKilling) -> str:
    return f"killing {event.process}: {event.reason}"


@text_of.register
def _(event: processes.ProcessDraining) -> str:
    return f"draining {event.process}: {event.reason}"


@text_of.register
def _(event: processes.ProcessStopping) -> str:
    return f"stopping {event.process}: {event.reason}"


@text_of.register
def _(event: processes.ProcessRepinning) -> str:
    return f"moving {event.process} to cores {_numbers(event.cores)} with {plural(event.threads, 'thread')}"


@text_of.register
def _(event: processes.ProcessRepinned) -> str:
    return f"{event.process} now runs on cores {_numbers(event.cores)} with {plural(event.threads, 'thread')}"


@text_of.register
def _(event: processes.ProcessSlow) -> str:
    return f"{event.process} is slow: {event.reason}"


@text_of.register
def _(event: processes.ProcessUnreachable) -> str:
    return f"the message {event.message_type} could not be sent to {event.process}: {event.error}"


@text_of.register
def _(event: processes.GpuUnreadable) -> str:
    return f"NVML does not tell about the GPUs: {event.reason}; the run goes on without their figures"


@text_of.register
def _(event: processes.GpuLost) -> str:
    return f"GPU {event.gpu} ({event.name}) is lost: {event.reason}; the run goes on without it"


@text_of.register
def _(event: processes.GpuShareExceeded) -> str:
    return (
        f"{event.process} has {mib(event.used_bytes)} of GPU {event.gpu}, more than its share of "
        f"{mib(event.share_bytes)}: others on this GPU may run out of memory"
    )


# --- the plan ---------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: plan.PlanChanged) -> str:
    return f"new plan: {event.reason}"


@text_of.register
def _(event: plan.PlanReached) -> str:
    changes = [
        f"{name.replace('_', ' ')} {old} -> {new}"
        for name in plan.Counts.__struct_fields__
        if (old := getattr(event.before, name)) != (new := getattr(event.after, name))
    ]
    parts = [f"plan reached after {_seconds(event.reached_s)}: {', '.join(changes) or 'sizes unchanged'}"]
    for index, at_s in event.first_sample_s.items():
        when = "has trained no sample yet" if at_s is None else f"trained its first sample after {_seconds(at_s)}"
        parts.append(f"worker-{index} {when}")
    if event.handover_s is not None:
        parts.append(f"{plural(event.buckets_moved, 'bucket')} changed owners in {_seconds(event.handover_s)}")
    if event.dip is not None:
        parts.append(_throughput(event.dip, event.recovered_s))
    return "; ".join(parts)


def _throughput(dip: float, recovered_s: float | None) -> str:
    if dip >= RECOVERED:
        return f"throughput stayed at or above {100 * min(dip, 1.0):.0f} % of its value before the change"
    back = "has not recovered" if recovered_s is None else f"recovered after {_seconds(recovered_s)}"
    return f"throughput fell to {100 * dip:.0f} % of its value before the change and {back}"


@text_of.register
def _(event: plan.TunerDecided) -> str:
    unless = " (decision not carried out)" * event.only_watches + " proposes" * event.is_proposal
    return f"tuner{unless}: {event.decision.reason}"


@text_of.register
def _(event: plan.ProposalGranted) -> str:
    return f"the dispatcher granted what the tuner proposed: {event.configuration}"


@text_of.register
def _(event: plan.TunerOff) -> str:
    return f"the tuner is off: {event.reason}"


@text_of.register
def _(event: plan.TunerOnlyWatches) -> str:
    return "a size was requested and stays; from now on the decisions of the tuner are not carried out"


@text_of.register
def _(event: plan.TunerFailed) -> str:
    return f"the tuner stopped after an internal error; the plan stays: {event.error_type}: {event.message}"


# --- input ------------------------------------------------------------------------------------------------------------

WHY = {
    "tune": "as the model of the input predicts",
    "probe": "workers still wait for the source",
    "return": "back to the knobs before, because the others were no better",
    "shrink": "less memory is left",
    "settle": "the input stays as it is",
    "measure": "the source became slower, and is measured anew",
    "cache": "what is read is kept for the next epoch",
}


@text_of.register
def _(event: data.InputTuned) -> str:
    decision, knobs = event.decision, event.decision.knobs
    parts = [plural(knobs.connections, "connection"), plural(knobs.decode_threads, "decode thread")]
    parts += [f"ranges of {mib(knobs.range_bytes)}", f"{mib(knobs.prefetch_bytes)} ahead"]
    parts += {"none": [], "disk": ["kept on the disk"], "memory": ["kept decoded in memory"]}[knobs.cache]
    said = f"input{' (decision not carried out)' * event.only_watches}: {', '.join(parts)} for each worker: "
    said += WHY[decision.kind]
    if decision.kind == "shrink":
        return said
    said += f"; {decision.samples_per_s:,.0f} samples/s, workers waited {100 * decision.wait_share:.0f} % of the time"
    return said + (f"; {decision.expected:,.0f} expected, bound by {decision.limit}" if decision.expected else "")


@text_of.register
def _(event: data.SourceTroubled) -> str:
    what = {
        "stalled": "gives no bytes",
        "reset": "ends or refuses connections",
        "refused": "refuses requests",
        "gone": "is given up",
        "recovered": "gives bytes again",
    }[event.trouble]
    error = f" ({event.error})" if event.error else ""
    return f"the source {event.source} {what}{error}; waiting for it since {_seconds(event.waited_s)}"


@text_of.register
def _(event: data.SourceRecovered) -> str:
    failed = plural(event.requests, "request")
    return f"the source {event.source} gives bytes again after {_seconds(event.waited_s)}; {failed} failed"


# --- samples ----------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: data.LeaseGranted) -> str:
    return f"{event.process} got lease {event.lease}: positions {event.start} to {event.stop} of unit {event.unit}"


@text_of.register
def _(event: data.LeasesFolded) -> str:
    return f"this line replaces {plural(event.leases, 'older lease')} with numbers up to {event.lease}"


@text_of.register
def _(event: data.LeasesSettled) -> str:
    return (
        f"leases of {event.process} were settled: {event.trained} unreported samples had been applied, "
        f"{event.returned} samples will be trained again"
    )


@text_of.register
def _(event: data.BatchTorn) -> str:
    if event.batches == 1:
        return f"{event.process} died within a batch; rows may hold a part of this batch"
    return f"{event.process} died within {event.batches} batches; rows may hold parts of these batches"


@text_of.register
def _(event: data.SamplesQuarantined) -> str:
    if event.cause == "roll_back":
        return f"{_positions(event.entry)} are left out, because they caused a roll back"
    return (
        f"{_positions(event.entry)} are left out, because {plural(event.entry.failures, 'worker')} died while "
        "training them"
    )


@text_of.register
def _(event: data.PositionsLeftOut) -> str:
    positions = f"positions {event.start} to {event.stop} of unit {event.unit}"
    return f"{positions} are left out of the step, because {plural(event.failures, 'worker')} died while training them"


@text_of.register
def _(event: data.MicroBatchesAssigned) -> str:
    shares = ", ".join(f"worker-{index}: {count}" for index, count in sorted(event.shares.items()))
    return f"micro-batches per step: {shares or 'no worker'}; {event.reason}"


@text_of.register
def _(event: data.EvaluationStarted) -> str:
    return f"evaluation started after {event.samples:,} samples: {event.reason}"


@text_of.register
def _(event: data.EvaluationFinished) -> str:
    return f"evaluation finished: {event.reason}; {event.test_samples:,} samples scored in {event.seconds:.1f} s"


@text_of.register
def _(event: data.MetricFailed) -> str:
    return f"metric {event.function} of label {event.label} gave no figure: {event.problem}"


def _positions(entry: Quarantined) -> str:
    return f"positions {entry.start} to {entry.stop} of unit {entry.unit}"


# --- checkpoints ------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: checkpoints.CheckpointStarted) -> str:
    return f"checkpoint started: {event.reason}"


@text_of.register
def _(event: checkpoints.CheckpointWritten) -> str:
    return (
        f"checkpoint {event.path.rpartition('/')[2]} written: {event.rows:,} rows, {mib(event.bytes)} in "
        f"{event.seconds:.2f} s; training was paused for {event.stall_s:.2f} s"
    )


@text_of.register
def _(event: checkpoints.BestCheckpointWritten) -> str:
    return f"best so far: {event.figure} {event.value:.5f} after {event.samples:,} samples, kept as {event.path}"


@text_of.register
def _(event: checkpoints.CheckpointFailed) -> str:
    kept = f"the newest good one is {event.newest}" if event.newest else "there is none yet"
    return (
        f"checkpoint failed: {event.error} (failures in a row: {event.failed_in_a_row}; {kept}); the next attempt "
        f"is in {event.retry_in_s:g} s, and training goes on"
    )


@text_of.register
def _(event: checkpoints.CheckpointAbandoned) -> str:
    return f"checkpoint abandoned: {event.reason}"


@text_of.register
def _(event: checkpoints.CheckpointMirrored) -> str:
    return f"checkpoint {event.checkpoint} was copied to the mirror {event.mirror} ({mib(event.bytes)})"


@text_of.register
def _(event: checkpoints.MirrorFailed) -> str:
    return f"checkpoint {event.checkpoint} could not be copied to the mirror: {event.error}"


@text_of.register
def _(event: checkpoints.MirrorUnfinished) -> str:
    return f"the run ended during a copy to the mirror {event.mirror}; the mirror may lack the newest checkpoint"


@text_of.register
def _(event: checkpoints.MirrorMissing) -> str:
    return f"checkpoint.mirror names the host {event.host!r}, which is not in this run; checkpoints are not mirrored"


# --- buckets ----------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: buckets.HandoverStarted) -> str:
    return f"hand-over of buckets started: from {_servers(event.before)} to {_servers(event.servers)}: {event.reason}"


@text_of.register
def _(event: buckets.HandoverReverted) -> str:
    return f"hand-over of buckets reverted: {event.reason}"


@text_of.register
def _(event: buckets.ShardMapPublished) -> str:
    moved = f"; {plural(event.moved, 'bucket')} changed owners in {1000 * event.took_s:.0f} ms" if event.moved else ""
    return f"shard map {event.epoch} published with owners {', '.join(event.owners)}{moved}"


@text_of.register
def _(event: buckets.BucketsMoving) -> str:
    return f"copying {plural(event.buckets, 'bucket')} to arenas of other hosts: {event.reason}"


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
        again = (
            f"; the next attempt is when host {event.full_host} has free memory, or in {event.wait_s:.0f} s; "
            "later attempts wait longer"
        )
    return f"the move of {plural(event.buckets, 'bucket')} was aborted: {event.reason}{again}"


@text_of.register
def _(event: buckets.BucketsStay) -> str:
    return f"no buckets are moved between parameter servers: {event.reason}"


@text_of.register
def _(event: buckets.BalancingOff) -> str:
    return f"load balancing of buckets is off: {event.reason}"


def _servers(indices: Iterable[int]) -> str:
    return ", ".join(f"server-{index}" for index in indices) or "no server"


# --- memory -----------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: memory.MemoryBudgetSet) -> str:
    where = f"host {event.host}: " if event.names_host else ""
    files = forecast = ""
    if event.files_free_bytes is not None:
        files = f" (the file system of the arena has {mib(event.files_free_bytes)} free)"
    if event.forecast_bytes is not None:
        median, high = event.forecast_bytes
        forecast = f"; similar jobs needed {mib(median)} (median), at most {mib(high)}"
    return (
        f"memory: {where}budget {mib(event.budget_bytes)}; rows {mib(event.rows_bytes)}, processes "
        f"{mib(event.private_bytes)}, reserved for checkpoint copies {mib(event.copies_bytes)}; "
        f"{mib(max(0, event.left_bytes))} left{files}{forecast}"
    )


@text_of.register
def _(event: memory.MemoryBudgetLent) -> str:
    return f"memory: the dispatcher changed the budget of this run to {mib(event.budget_bytes)}"


@text_of.register
def _(event: memory.MemoryActed) -> str:
    return f"memory: {event.reason}"


@text_of.register
def _(event: memory.MemoryWarned) -> str:
    why = {
        "watch": '; no action is taken, because tuner.memory = "watch"',
        "sync": "; sync mode evicts no rows and leaves out no ids, because rows must not depend on when ids arrive",
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
    dropped = f"; {event.dropped_rows:,} rows evicted in {plural(event.rounds, 'round')}" if event.rounds else ""
    left_out = f"; {event.left_out:,} lookups found no row" if event.left_out else ""
    return (
        f"memory: effect of {action}: {_signed(event.grown_bytes)} within {event.samples:,} samples; the forecast "
        f"without it was {_signed(event.expected_bytes)}{dropped}{left_out}"
    )


@text_of.register
def _(event: memory.MemoryMoveRefused) -> str:
    if event.too_few:
        return f"memory: host {event.host} has too few buckets to move some of them to another host"
    return "memory: buckets cannot move to another host while another hand-over or move is under way"


@text_of.register
def _(event: memory.MemoryFull) -> str:
    if event.is_files:
        full = (
            f"the file system of the arena is full: rows take {mib(event.used_bytes)}, "
            f"{mib(event.files_free_bytes)} are free ({event.repair})"
        )
    else:
        full = f"the whole budget of {mib(event.budget_bytes)} (resources.memory) is used"
    return f"memory: {full}; new ids get no row until memory is free"


@text_of.register
def _(event: memory.MemoryFreed) -> str:
    return f"memory: new ids get rows again; {event.left_out:,} lookups found no row in the meantime"


@text_of.register
def _(event: memory.MemoryForecastFailed) -> str:
    return f"memory: the forecast stopped after an internal error: {event.error_type}: {event.message}"


@text_of.register
def _(event: memory.LookupsWithoutRow) -> str:
    return f"memory: {event.message}"


# --- hosts ------------------------------------------------------------------------------------------------------------


@text_of.register
def _(event: hosts.HostJoinAsked) -> str:
    return f"a command requests that these hosts join the run: {', '.join(event.hosts)}"


@text_of.register
def _(event: hosts.HostJoinAbandoned) -> str:
    return f"no host joins the run: {event.reason}"


@text_of.register
def _(event: hosts.HostJoined) -> str:
    return f"host {event.name} joined the run"


@text_of.register
def _(event: hosts.HostLost) -> str:
    return f"host {event.name} is lost: {event.reason}"


@text_of.register
def _(event: hosts.RowsRolledBack) -> str:
    loss = event.loss
    where = f"checkpoint {loss.checkpoint}" if loss.checkpoint else "initial values, because there is no checkpoint"
    return (
        f"host {loss.name} had {plural(loss.buckets, 'bucket')} with {loss.rows:,} rows; these buckets are on host 0 "
        f"now, with {loss.rows_restored:,} rows from {where}. These rows lose the updates of {loss.samples:,} samples "
        "trained since then; all other rows, the dense part and the sample count are unchanged"
    )


@text_of.register
def _(event: hosts.HostsFileNotWritten) -> str:
    return f"{event.path} could not be written; a resume would use the previous hosts: {event.error}"


# --- many jobs on a host ----------------------------------------------------------------------------------------------


@text_of.register
def _(event: jobs.HostPrepared) -> str:
    return f"libraries imported in {event.seconds:.1f} s; jobs can start"


@text_of.register
def _(event: jobs.HostStopping) -> str:
    return f"received {event.signal}: all jobs save their progress and exit; a second signal ends them at once"


@text_of.register
def _(event: jobs.HostWarned) -> str:
    return event.problem


@text_of.register
def _(event: jobs.JobSubmitted) -> str:
    return "the job is in the queue"


@text_of.register
def _(event: jobs.JobWarned) -> str:
    return event.message


@text_of.register
def _(event: jobs.JobExamined) -> str:
    return f"examined: {event.bound} job; peak memory {mib(event.peak_bytes)}; {event.samples:,} samples"


@text_of.register
def _(event: jobs.JobStarted) -> str:
    guessed = [name.replace("_", " ") for name, basis in event.basis.items() if basis == "estimated"]
    return event.reason + (f"; estimated: its demand for {', '.join(guessed)}" if guessed else "")


@text_of.register
def _(event: jobs.JobDone) -> str:
    return f"the job is done after {event.seconds:.1f} s"


@text_of.register
def _(event: jobs.JobCancelled) -> str:
    return f"the job was cancelled; its progress is in {event.run_dir}" if event.run_dir else "the job was cancelled"


@text_of.register
def _(event: jobs.JobStopping) -> str:
    return f"the job is asked to save its progress and exit: {event.reason}"


@text_of.register
def _(event: jobs.JobStopped) -> str:
    how = "saved its progress" if event.is_saved else f"exited before it saved its progress ({event.reason})"
    return f"the job {how}; continue it with: elastichost resume {event.run_dir}"


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
    return f"the job now has {event.size}{cores}: {event.reason}"


# --- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(cores: Iterable[int]) -> str:
    return ", ".join(map(str, cores))


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _signed(size_bytes: float) -> str:
    return f"{'-' if size_bytes < 0 else '+'}{mib(abs(size_bytes))}"
