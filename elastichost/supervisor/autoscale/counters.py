"""Sums up for the tuner what the processes of a run have done and used since its start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import psutil

from elastichost.plan import ProcessId
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.tuner.policy.profile import Totals
from elastichost.wire.facts import StepSample

__all__ = ["Counter"]


# A reader does work of its worker, on cores of its worker.
_CPU_OF = {"worker": "worker_cpu_s", "reader": "worker_cpu_s", "server": "server_cpu_s"}


@dataclass(slots=True)
class _Counted:
    """What is counted already of one incarnation. beat_s: time of the newest counted heartbeat of a worker. virtual_s:
    time of the newest heartbeat whose virtual CPU time is counted. cpu_s: CPU time at the last call; 0.0 before it."""

    beat_s: float = 0.0
    cpu_s: float = 0.0
    virtual_s: float = 0.0
    process: psutil.Process | None = None


@dataclass(slots=True)
class Counter:
    """Sums over all processes of a run. While workers with a GPU and CPU workers train, times are counted of the CPU
    workers alone: a mean over both kinds would be the time of no worker.

    micro_batches: of a step in sync mode; 0 in other modes. is_served: workers pull and push rows by messages.
    cpu_elsewhere: the CPU seconds of a process on another machine; None: it runs on this one. counts_source: waiting
    for the source counts as reading, as it must where a worker more brings its own connection and nothing else does;
    otherwise it counts as `source_wait_s` alone."""

    fleet: Fleet
    micro_batches: int
    is_served: bool
    cpu_elsewhere: Callable[[ProcessRecord], float | None] = lambda record: None
    counts_source: bool = True
    _incarnations: dict[ProcessId, _Counted] = field(default_factory=dict)
    _sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(Totals.__struct_fields__, 0.0))

    def totals(self) -> Totals:
        """The sums up to now. Call it at least every 5 s: the fleet keeps heartbeats for so long, and older ones are
        not counted."""
        live = [record for record in self.fleet if record.is_live and record.pid]
        for gone in self._incarnations.keys() - {record.process for record in live}:
            del self._incarnations[gone]
        workers = [record for record in live if record.process.role == "worker"]
        has_both_kinds = len({record.spec.gpu is None for record in workers}) == 2
        for record in live:
            counted = self._incarnations.setdefault(record.process, _Counted())
            is_beside = has_both_kinds and record.spec.gpu is not None  # only its samples are counted
            if is_beside:
                counted.cpu_s = 0.0
            elif record.window and record.window[-1][1].cpu_s is not None:
                self._count_virtual_cpu(record, counted)
            else:
                self._count_cpu(record, counted)
            if record.process.role == "worker":
                self._count_beats(record, counted, max(1, len(workers)), counts_times=not is_beside)
        return Totals(**self._sums)

    def _count_beats(self, record: ProcessRecord, counted: _Counted, workers: int, *, counts_times: bool) -> None:
        for at_s, sample in record.window:
            if at_s <= counted.beat_s:
                continue
            counted.beat_s = at_s
            self._sums["cpu_samples" if record.spec.gpu is None else "gpu_samples"] += sample.samples
            if counts_times:
                sums = _sums_of(sample, self.is_served, counts_source=self.counts_source)
                self._add(sums, sample.steps * self._batch(workers))

    def _batch(self, workers: int) -> float:
        """The number of batches that a counted step of a worker stands for. In sync mode it is one micro-batch, and
        micro_batches / workers of them are the worker's part of a step, which counts as one batch."""
        return workers / self.micro_batches if self.micro_batches else 1.0

    def _add(self, sums: Iterable[tuple[str, float]], batches: float) -> None:
        self._sums["batches"] += batches
        for name, value in sums:
            self._sums[name] += value

    def _count_virtual_cpu(self, record: ProcessRecord, counted: _Counted) -> None:
        """Adds the CPU time of an emulated process, which reports in its heartbeats what it would have used."""
        name = f"{record.process.role}_cpu_s"
        for at_s, sample in record.window:
            if at_s > counted.virtual_s:
                counted.virtual_s = at_s
                self._sums[name] += sample.cpu_s or 0.0

    def _count_cpu(self, record: ProcessRecord, counted: _Counted) -> None:
        name = _CPU_OF.get(record.process.role)
        if name is None:
            return
        used_s = self.cpu_elsewhere(record)
        if used_s is None:
            try:
                if counted.process is None:
                    counted.process = psutil.Process(record.pid)
                times = counted.process.cpu_times()
            except psutil.Error:
                return
            used_s = float(times.user + times.system)
        if counted.cpu_s:  # the time before the first call is the start of the process, and no cost of training
            self._sums[name] += max(0.0, used_s - counted.cpu_s)
        counted.cpu_s = used_s


def _sums_of(sample: StepSample, is_served: bool, *, counts_source: bool) -> tuple[tuple[str, float], ...]:
    """The summands of a heartbeat, as (name in `Totals`, value). A lookup is a pull with served access, and work of the
    reading thread with direct access."""
    waited_s = sum(stage.source_s for stage in sample.stages if stage.stage == "decode")
    reader_s = sample.read_s if counts_source else max(0.0, sample.read_s - waited_s)
    exchange_s = sample.push_s
    if is_served:
        exchange_s += sample.lookup_s
    else:
        reader_s += sample.lookup_s
    moved = float(sample.bytes_sent + sample.bytes_received)
    sums = (("compute_s", sample.compute_s), ("reader_s", reader_s), ("exchange_s", exchange_s))
    used = (("training_cpu_s", sample.training_cpu_s or 0.0), ("source_wait_s", waited_s))
    return (*sums, ("bytes_moved", moved), *used)
