"""Observes each job a few times a second: its status file, and what /proc and NVML report about its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from elastichost.dispatcher.facts import JobObservation, JobSample
from elastichost.dispatcher.isolation.process_meter import HostProcesses, TreeUsage, core_waits, read_bytes
from elastichost.errors import PreflightError
from elastichost.host.nvml.use import GpuMeter, GpuUse
from elastichost.host.process_meter import anonymous_bytes
from elastichost.metrics import RunStatus, read_status
from elastichost.run_files import STATUS_FILE

__all__ = ["JobObserver"]

WINDOW_S = 1.5  # least duration of a measurement, because a job writes its status once a second


@dataclass(slots=True)
class _Mark:
    """The counters of a job at the beginning of a measurement."""

    at_s: float
    samples: int
    all_cpu_s: float
    worker_cpu_s: float
    workers: tuple[int, ...]  # pids; the CPU time of a new incarnation starts at 0, so a measurement needs equal pids
    host_busy_s: float
    gpu: _GpuTime
    read_bytes: int | None
    traffic_bytes: int | None
    core_waits: tuple[dict[int, float] | None, ...]  # of each worker, by thread


@dataclass(frozen=True, slots=True)
class _GpuTime:
    """Totals since the first observation. own_s, own_memory_s: seconds in which GPUs computed for a job, and moved
    memory for it. busy_s: seconds in which they computed for any process."""

    own_s: float = 0.0
    own_memory_s: float = 0.0
    busy_s: float = 0.0

    def and_then(self, own_s: float, own_memory_s: float, busy_s: float) -> _GpuTime:
        return _GpuTime(self.own_s + own_s, self.own_memory_s + own_memory_s, self.busy_s + busy_s)


@dataclass(slots=True)
class _ObservedJob:
    """What is kept of a job between observations."""

    mark: _Mark | None = None
    cpu: tuple[float, float] | None = None  # time of the last observation, and CPU seconds by then
    cores: float = 0.0  # cores in use, smoothed over about a second
    written_ns: int = 0  # modification time of the status file that was read last
    status: RunStatus | None = None
    gpu: _GpuTime = _GpuTime()
    gpu_memory_bytes: int = 0
    has_gpu_alone: bool = False  # no other process has memory on its GPU


@dataclass(slots=True)
class JobObserver:
    """Observes all jobs. cores: number of cores that jobs may use. traffic_bytes: returns the bytes that a job has
    moved between memory and caches; None where they are not counted."""

    cores: int
    gpu_meter: GpuMeter = field(default_factory=lambda: GpuMeter(()))
    traffic_bytes: Callable[[str], int | None] = lambda job: None
    _watched: dict[str, _ObservedJob] = field(default_factory=dict)

    def look(self, pids: Mapping[str, int], run_dirs: Mapping[str, Path], now_s: float) -> tuple[JobObservation, ...]:
        """Returns one observation of each job whose supervisor is alive. pids: job -> pid of its supervisor. run_dirs:
        job -> its run directory."""
        for gone in self._watched.keys() - pids.keys():
            del self._watched[gone]
        processes = HostProcesses()
        trees = {job: tree for job, pid in pids.items() if (tree := processes.tree(pid)) is not None}
        busy_s = _busy_s()
        self._take_gpus(trees, self.gpu_meter.look(now_s))
        return tuple(self._seen(job, tree, processes, run_dirs[job], busy_s, now_s) for job, tree in trees.items())

    def _take_gpus(self, trees: Mapping[str, TreeUsage], uses: Sequence[GpuUse]) -> None:
        """Adds the use of GPUs to the jobs. Use that belongs to no known process is divided evenly among the jobs that
        have memory on the GPU."""
        for job in trees:
            watched = self._watched.setdefault(job, _ObservedJob())
            watched.gpu_memory_bytes, watched.has_gpu_alone = 0, True
        for use in uses:
            there = [job for job, tree in trees.items() if not use.memory_bytes.keys().isdisjoint(tree.pids)]
            for job in there:
                watched, pids = self._watched[job], trees[job].pids
                named = [use.by_pid[pid] for pid in pids if pid in use.by_pid]
                own_s = sum(one[0] for one in named) + use.nobodys[0] / len(there)
                own_memory_s = sum(one[1] for one in named) + use.nobodys[1] / len(there)
                watched.gpu = watched.gpu.and_then(own_s, own_memory_s, max(use.busy_s, own_s))
                watched.gpu_memory_bytes += sum(use.memory_bytes.get(pid, 0) for pid in pids)
                watched.has_gpu_alone &= use.memory_bytes.keys() <= set(pids)

    def _seen(
        self, job: str, tree: TreeUsage, processes: HostProcesses, run_dir: Path, busy_s: float, now_s: float
    ) -> JobObservation:
        watched = self._watched.setdefault(job, _ObservedJob())
        is_new = _read_newer(watched, run_dir, tree.pids)
        if watched.cpu is not None and now_s > watched.cpu[0]:
            share = min(1.0, (now_s - watched.cpu[0]) / 1.0)
            used = max(0.0, tree.cpu_s - watched.cpu[1]) / (now_s - watched.cpu[0])
            watched.cores += share * (used - watched.cores)
        watched.cpu = now_s, tree.cpu_s
        look = self._look(job, tree, processes, busy_s, now_s) if is_new else None
        status = watched.status
        memory = status.arena_bytes + status.private_bytes if status is not None else 0
        return JobObservation(
            job, status, look, watched.cores, memory, _grown_bytes(status), tree.pids, watched.gpu_memory_bytes
        )

    def _look(
        self, job: str, tree: TreeUsage, processes: HostProcesses, busy_s: float, now_s: float
    ) -> JobSample | None:
        watched = self._watched[job]
        status = watched.status
        if status is None or status.state != "training" or _has_trained_all(status):
            watched.mark = None
            return None
        crew = [one for one in status.processes if one.role == "worker" and one.pid is not None]
        workers = tuple(one.pid for one in crew if one.pid is not None)
        mark = _Mark(
            now_s,
            status.samples_trained,
            tree.cpu_s,
            processes.cpu_s(workers),
            workers,
            busy_s,
            watched.gpu,
            read_bytes(workers),
            self.traffic_bytes(job),
            tuple(map(core_waits, workers)),
        )
        before = watched.mark
        if before is None or before.workers != mark.workers or not workers:
            watched.mark = mark
            return None
        seconds = now_s - before.at_s
        if seconds < WINDOW_S:
            return None
        watched.mark = mark
        return JobSample(
            seconds=seconds,
            samples=mark.samples - before.samples,
            worker_cpu_s=max(0.0, mark.worker_cpu_s - before.worker_cpu_s),
            all_cpu_s=max(0.0, mark.all_cpu_s - before.all_cpu_s),
            workers=len(workers),
            host_share=(mark.host_busy_s - before.host_busy_s) / seconds / self.cores,
            gpu_s=mark.gpu.own_s - before.gpu.own_s if watched.gpu_memory_bytes else None,
            gpu_memory_s=mark.gpu.own_memory_s - before.gpu.own_memory_s,
            gpu_share=(mark.gpu.busy_s - before.gpu.busy_s) / seconds,
            link_bytes=_link_bytes(watched, status, seconds),
            read_bytes=_more(before.read_bytes, mark.read_bytes),
            input_wait_s=seconds * sum(one.input_wait_fraction for one in crew),
            core_wait_s=_waited_s(before.core_waits, mark.core_waits),
            traffic_bytes=_more(before.traffic_bytes, mark.traffic_bytes),
            message_bytes=seconds * sum(one.message_bytes_per_s for one in status.processes),
        )


def _link_bytes(watched: _ObservedJob, status: RunStatus, seconds: float) -> float | None:
    """Bytes over the bus at the rates of the status. Those are of whole GPUs, so of the job if it is alone there."""
    if not watched.gpu_memory_bytes or not watched.has_gpu_alone:
        return None
    total = 0.0
    for gpu in status.gpus:
        if gpu.received_bytes_per_s is None or gpu.sent_bytes_per_s is None:
            return None
        total += seconds * max(gpu.received_bytes_per_s, gpu.sent_bytes_per_s)
    return total if status.gpus else None


def _has_trained_all(status: RunStatus) -> bool:
    """Whether its last samples are trained. Then it has read nothing for a while, which tells nothing of its speed."""
    return 0 < status.samples_planned <= status.samples_trained


def _more(before: int | None, now: int | None) -> float | None:
    """What a counter has grown by; None: one of its values is not known."""
    return None if before is None or now is None else float(max(0, now - before))


def _waited_s(before: Sequence[dict[int, float] | None], now: Sequence[dict[int, float] | None]) -> float | None:
    """Seconds without a core of the thread of each worker that waited longest, summed over workers. A thread that began
    in between has waited since its start. None: not known of one of them."""
    total_s = 0.0
    for old, new in zip(before, now, strict=True):
        if old is None or new is None:
            return None
        total_s += max(waited_s - old.get(thread, 0.0) for thread, waited_s in new.items())
    return total_s


def _grown_bytes(status: RunStatus | None) -> int:
    """The bytes that workers and PS have taken since the status was written; below 0: that they have given back. A
    status is up to a second old, but the dispatcher must see a fast growth at once."""
    grown = 0
    for one in status.processes if status is not None else ():
        if one.pid and one.anonymous_bytes and (now_bytes := anonymous_bytes(one.pid)):
            grown += now_bytes - one.anonymous_bytes
    return grown


def _read_newer(watched: _ObservedJob, run_dir: Path, pids: tuple[int, ...]) -> bool:
    """Reads the status file if it is newer than the last one that was read. Returns whether there is a new status. The
    status of an earlier supervisor is ignored, because its memory is free."""
    try:
        written_ns = (run_dir / STATUS_FILE).stat().st_mtime_ns
        if written_ns == watched.written_ns:
            return False
        status, watched.written_ns = read_status(run_dir), written_ns
    except (OSError, PreflightError):
        return False
    watched.status = status if status.supervisor_pid in pids else None
    return watched.status is not None


def _busy_s() -> float:
    """CPU seconds of all processes of this host since it was booted."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
