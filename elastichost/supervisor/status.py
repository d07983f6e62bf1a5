"""What a run reports once a second: status.json, metrics.db with the learning curve, and the status that the observer
shows."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Mapping, Sequence

import msgspec

from elastichost.atomic_write import is_out_of_space
from elastichost.host.nvml.report import GpuReporter
from elastichost.host.process_meter import MetricsStore, ProcessMeter, Usage
from elastichost.metrics import GpuStatus, PlanStatus, ProcessStatus, ProposedPlan, RunStatus
from elastichost.plan import ProcessId
from elastichost.resources import GpuDevice
from elastichost.run_files import METRICS_FILE, STATUS_FILE
from elastichost.runs.events import GpuLost, GpuShareExceeded, GpuUnreadable, MeasurementsSetAside
from elastichost.runs.learning_curve import CurveWriter, samples_per_point
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.startup.tuner_settings import configuration_of
from elastichost.tuner.cluster.proposals import Proposal
from elastichost.tuner.facts import Configuration

__all__ = ["Reporter"]

EVERY_S = 1.0
CONTEXT_BYTES = 1 << 30  # memory of a CUDA context, which no share limits: 0.5 to 0.8 GiB on an H200


class Reporter:
    """Measures memory and CPU, and reports them with the progress and the learning curve of the run once a second."""

    def __init__(self, run: RunContext, gpus: Sequence[GpuDevice] = ()) -> None:
        self._run = run
        self._gpus = GpuReporter(gpus)
        self._gpu_problem = ""  # the newest that an event told
        self.lost_gpus: frozenset[int] = frozenset()
        self._over_share: set[ProcessId] = set()  # an event told it
        self._meter = ProcessMeter(shares_host=run.shares_host)
        self._store = MetricsStore(run.directory.metrics)
        if self._store.set_aside is not None:
            run.note(MeasurementsSetAside(self._store.set_aside.name))
        self._curve: CurveWriter | None = None  # from the first time that the number of samples is known
        self._went_back: int | None = None  # number of batches up to which the curve must go back
        self._began_s = run.now_s()
        self._next_s = 0.0
        self.problems: dict[str, str] = {}  # file -> why it cannot be written, "" when it can
        self.arena_bytes = 0
        self._copies_bytes = 0
        self._elsewhere_bytes = 0  # private memory of processes on other machines
        self.peak_bytes = 0  # most memory at one time: rows, checkpoint copies of them, and processes
        self.peak_workers = 0  # live workers at that time
        self.private_bytes: dict[int, int] = {}  # pid -> private memory, for each process on this machine

    @property
    def elapsed_s(self) -> float:
        return self._run.now_s() - self._began_s

    def tick(self, state: str, components: Components | None, now_s: float) -> None:
        """Call it every turn. Updates the peak memory each time, and reports when a second has passed."""
        if components is not None:  # each turn, because copies can exist for less than a second
            self._copies_bytes = components.copies_bytes()
            self._takes(self._meter.private_bytes())
        if now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            self.report(state, components, now_s)
        else:
            self._meter.ahead(self._pids(), now_s)

    def _pids(self) -> list[int]:
        """Pids of all processes of the run on this machine."""
        run = self._run
        here = (record for record in run.fleet if record.spec.host not in run.elsewhere)
        of_fleet = [record.pid for record in here if record.is_live and record.pid]
        return [run.supervisor_pid, run.launcher.server_pid, *of_fleet]

    def report(self, state: str, components: Components | None, now_s: float, *, thoroughly: bool = False) -> None:
        """Measures and reports now. thoroughly: reads the memory of every process again."""
        live = [record for record in self._run.fleet if record.is_live]
        usage = self._meter.measure(self._pids(), now_s, thoroughly=thoroughly)
        self.private_bytes = {pid: one.private_bytes for pid, one in usage.items() if one.private_bytes}
        gpus = self._look_at_gpus(live, now_s)
        processes = tuple(
            _with_usage(record, self._usage(record, usage), self._gpus.memory_bytes.get(record.pid)) for record in live
        )
        if components is not None:
            self.arena_bytes = max(self.arena_bytes, components.arena_bytes())
            self._copies_bytes = components.copies_bytes()
        self._elsewhere_bytes = self._private_elsewhere(live)
        self._takes(sum(self.private_bytes.values()))
        status = msgspec.structs.replace(self._status(state, components, processes), gpus=gpus)
        self._write_status(status)
        self.problems[METRICS_FILE] = self._store_measurements(status, components)
        self._run.observer.on_status(status)

    def went_back(self, batches: int) -> None:
        """The run goes on from a checkpoint after this number of batches."""
        self._went_back = batches

    def _store_measurements(self, status: RunStatus, components: Components | None) -> str:
        """Returns why metrics.db cannot be written now, "" when it can. Training does not depend on it: another program
        may have locked it, or its disk may be full. A later call writes what is missing."""
        try:
            self._store.add(status)
            if components is None or self._run.job.emulate.enabled:  # an emulated model has no loss
                return self._store.problem
            curve = self._curve_of(components)
            if self._went_back is not None:
                curve.went_back(self._went_back)
                self._went_back = None
            curve.poll(time.time())
        except sqlite3.Error as error:
            return str(error)
        return self._store.problem or curve.problem

    def _look_at_gpus(self, live: Sequence[ProcessRecord], now_s: float) -> tuple[GpuStatus, ...]:
        """Measures the GPUs. Notes lost GPUs, an error of NVML, and processes with more memory of a GPU than their
        share."""
        here = [record for record in live if record.pid and record.spec.host not in self._run.elsewhere]
        found = self._gpus.look(now_s, {record.pid for record in here})
        for one in found:
            if one.index in self._gpus.lost and one.index not in self.lost_gpus:
                self.lost_gpus |= {one.index}
                self._run.note(GpuLost(one.index, one.name, one.problem))
        problem = next((one.problem for one in found if one.problem and one.index not in self.lost_gpus), "")
        if problem and problem != self._gpu_problem:
            self._run.note(GpuUnreadable(problem))
        self._gpu_problem = problem
        total_bytes = {one.index: one.total_bytes for one in found}
        for record in here:
            used_bytes = self._gpus.memory_bytes.get(record.pid, 0)
            gpu, fraction = record.spec.gpu, record.spec.gpu_memory_fraction
            if gpu not in total_bytes or record.process in self._over_share:
                continue
            share_bytes = round(fraction * total_bytes[gpu])
            if used_bytes > share_bytes + CONTEXT_BYTES:
                self._over_share.add(record.process)
                self._run.note(GpuShareExceeded(record.process, gpu, used_bytes, share_bytes))
        return found

    def _curve_of(self, components: Components) -> CurveWriter:
        if self._curve is None:
            every = samples_per_point(components.leases.ledger.samples_planned, self._run.job.train.batch_size)
            self._curve = CurveWriter(self._run.directory.path, every)
        return self._curve

    def _write_status(self, status: RunStatus) -> None:
        try:
            self._run.directory.write_status(status)
        except OSError as error:
            if not is_out_of_space(error):
                raise
            self.problems[STATUS_FILE] = error.strerror or str(error)
        else:
            self.problems[STATUS_FILE] = ""

    def _usage(self, record: ProcessRecord, here: Mapping[int, Usage]) -> Usage:
        """CPU and memory of a process, measured on its own machine."""
        machines, host = self._run.machines, record.spec.host
        if machines is None or host not in self._run.elsewhere:
            return here.get(record.pid, Usage())
        one = machines.usage(host, record.process)
        if one is None:
            return Usage()
        return Usage(one.cpu_percent, one.pss_bytes, one.private_bytes, one.rss_bytes, one.context_switches)

    def _private_elsewhere(self, live: Sequence[ProcessRecord]) -> int:
        machines = self._run.machines
        if machines is None:
            return 0
        away = (machines.usage(record.spec.host, record.process) for record in live)
        own = sum(machines.own_private_bytes(host) for host in self._run.elsewhere)
        return own + sum(usage.private_bytes for usage in away if usage is not None)

    def _status(self, state: str, components: Components | None, processes: tuple[ProcessStatus, ...]) -> RunStatus:
        run = self._run
        common = RunStatus(
            run_dir=str(run.directory.path),
            job=run.job.job.name,
            state=state,
            supervisor_pid=run.supervisor_pid,
            commands=run.commands.address,
            epochs=run.job.train.epochs,
            processes=processes,
            plan=_size(configuration_of(run.plan)),
            last_decision=run.last_decision,
            frontier=run.frontier,
            proposal=_proposed(run.proposal),
            is_measured=run.is_measured,
            input=run.input,
            elapsed_s=self.elapsed_s,
            arena_bytes=self.arena_bytes,
            private_bytes=sum(self.private_bytes.values()) + self._elsewhere_bytes + self._copies_bytes,
        )
        return common if components is None else _with_progress(common, components, run)

    def _takes(self, private_bytes: int) -> None:
        used_bytes = self.arena_bytes + self._copies_bytes + private_bytes + self._elsewhere_bytes
        if used_bytes > self.peak_bytes:
            self.peak_bytes, self.peak_workers = used_bytes, len(self._run.fleet.live("worker"))

    def close(self) -> None:
        """Writes the last point of the learning curve, and closes metrics.db. All processes have ended."""
        self._gpus.close()
        with contextlib.suppress(sqlite3.Error):  # it is locked or full: the run has ended nevertheless
            self._store.close()
            if self._curve is not None:
                self._curve.close(time.time())


def _size(configuration: Configuration) -> PlanStatus:
    return PlanStatus(configuration.workers, configuration.servers, configuration.worker_cores)


def _proposed(proposal: Proposal | None) -> ProposedPlan | None:
    if proposal is None:
        return None
    return ProposedPlan(_size(proposal.present), _size(proposal.wanted), proposal.kind, proposal.reason)


def _with_usage(record: ProcessRecord, usage: Usage, gpu_memory_bytes: int | None) -> ProcessStatus:
    """gpu_memory_bytes: as NVML tells, with the context of CUDA; None: what the process reported is kept."""
    virtual = record.virtual_cpu_percent
    return msgspec.structs.replace(
        record.status(),
        cpu_percent=usage.cpu_percent if virtual is None else virtual,
        memory_bytes=usage.pss_bytes,
        anonymous_bytes=usage.anonymous_bytes,
        rss_bytes=usage.rss_bytes,
        context_switches=usage.context_switches,
        gpu_memory_bytes=record.gpu_memory_bytes if gpu_memory_bytes is None else gpu_memory_bytes,
    )


def _with_progress(status: RunStatus, components: Components, run: RunContext) -> RunStatus:
    ledger = components.leases.ledger
    rate = sum(record.samples_per_s for record in run.fleet.working("worker"))
    losses = [record.losses for record in run.fleet if record.process.role == "worker"]
    loss_sum, loss_samples = sum(loss for loss, _ in losses), sum(samples for _, samples in losses)
    left = ledger.samples_planned - ledger.samples_accounted
    figures = components.evaluations.figures
    return msgspec.structs.replace(
        status,
        epoch=ledger.epoch,
        samples_planned=ledger.samples_planned,
        samples_trained=ledger.trained,
        samples_per_s=rate,
        eta_s=left / rate if rate > 0 else None,
        loss=loss_sum / loss_samples if loss_samples else None,
        test_auc=figures.auc if figures is not None else None,
        test_metrics=figures.metrics if figures is not None else {},
    )
