"""Samples the workers' speeds once a second, and reports or replaces slow workers as `tuner.health` decides."""

from __future__ import annotations

from elastichost.runs.events import ProcessSlow
from elastichost.supervisor.context import RunContext, exit_cause
from elastichost.supervisor.controllers.leases import LeaseController
from elastichost.supervisor.controllers.processes import ProcessController
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.lifecycle import State
from elastichost.tuner.health import HealthSettings, HealthState, Remark, WorkerSpeed, observe
from elastichost.tuner.health_record import is_telling, packed, rounded
from elastichost.tuner.records import HealthOpened, SpeedsLooked

__all__ = ["StragglerWatch"]

EVERY_S = 1.0
RECORDED_EVERY_S = 60.0  # a sample is recorded at least this often, so that the record shows the workers' speeds


class StragglerWatch:
    """Reports and replaces slow workers. With supervision.straggler_s = 0 it does nothing."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._settings = HealthSettings(after_s=run.job.supervision.straggler_s)
        self._state = HealthState()
        self._next_s = run.now_s() + EVERY_S / 2  # between two reports of the status, to keep turns short
        self._was_opened = False
        self._recorded = HealthState()  # after the last look that was recorded
        self._recorded_s = 0.0
        self._workers: tuple[tuple[int, int], ...] | None = None  # of that look

    def look(self, leases: LeaseController, processes: ProcessController, now_s: float) -> None:
        """Samples the speeds, once a second. Call it in every turn in which workers may train."""
        if self._settings.after_s <= 0 or now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        is_sync = self._run.job.train.mode == "sync"
        speeds = [
            speed_of(record, has_work=leases.has_work(record.process), is_sync=is_sync)
            for record in self._run.fleet.working("worker")
            if record.state == State.RUNNING and record.signs.has_worked
        ]
        if len(speeds) < 2:
            speeds = []  # there is no other worker to compare with; earlier samples are forgotten
        self._state, remarks = observe(self._state, speeds, self._settings, now_s)
        self._record(speeds, remarks, now_s)
        for remark in remarks:
            if remark.replace:
                processes.replace(remark.process, f"replaced: {remark.reason}")
            else:
                self._run.note(ProcessSlow(remark.process, remark.reason), exit_cause(remark.process))

    def _record(self, speeds: list[WorkerSpeed], remarks: tuple[Remark, ...], now_s: float) -> None:
        is_due = bool(speeds) and now_s - self._recorded_s >= RECORDED_EVERY_S
        if not is_due and not is_telling(self._recorded, self._state, remarks):
            return
        if not self._was_opened:
            self._was_opened = True
            self._run.recorder.write(HealthOpened(self._settings))
        found = packed(speeds, self._state, self._workers)
        self._recorded, self._recorded_s = self._state, now_s
        self._workers = tuple((speed.process.index, speed.process.incarnation) for speed in speeds)
        self._run.recorder.write(SpeedsLooked(now_s, found, remarks))


def speed_of(record: ProcessRecord, *, has_work: bool, is_sync: bool) -> WorkerSpeed:
    """The speed of a worker over the window of its heartbeats, in samples per second and thread."""
    samples = sum(sample.samples for _, sample in record.window)
    compute_s = sum(sample.compute_s for _, sample in record.window)
    wall_s = sum(sample.seconds - sample.wait_peers_s for _, sample in record.window)
    threads = max(1, record.spec.threads)
    is_known = samples > 0 and compute_s > 0 and wall_s > 0
    return WorkerSpeed(
        record.process,
        rounded(samples / compute_s / threads) if is_known else None,
        rounded(samples / wall_s / threads) if is_known and not is_sync else None,
        has_work=has_work,
        is_gpu=record.spec.gpu is not None,
    )
