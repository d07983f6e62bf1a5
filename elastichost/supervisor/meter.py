"""What the processes of a run cost, measured once a second; kept in metrics.db for later."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from elastichost.metrics import ProcessStatus, RunStatus

__all__ = ["Meter", "MetricsStore", "Usage"]

# Reading PSS walks the page tables of everything that is mapped: at most this share of the time goes to it.
PSS_TIME_SHARE = 0.01

_SCHEMA = """
CREATE TABLE IF NOT EXISTS process (
    elapsed_s REAL, role TEXT, idx INTEGER, life INTEGER, pid INTEGER, state TEXT, cpu_percent REAL, pss_bytes INTEGER,
    rss_bytes INTEGER, context_switches INTEGER, samples_per_s REAL, wait_fraction REAL, compute_ms REAL,
    gpu_memory_bytes INTEGER);
CREATE TABLE IF NOT EXISTS run (
    elapsed_s REAL, state TEXT, epoch INTEGER, samples_trained INTEGER, samples_per_s REAL, loss REAL, test_auc REAL,
    workers INTEGER, servers INTEGER, arena_bytes INTEGER);
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process: CPU percent of one core and context switches since the last measurement, memory now."""

    cpu_percent: float = 0.0
    pss_bytes: int = 0
    rss_bytes: int = 0
    context_switches: int = 0


@dataclass(slots=True)
class _Watched:
    process: psutil.Process
    at_s: float
    cpu_s: float
    switches: int
    pss_bytes: int = 0
    pss_not_before_s: float = 0.0


class Meter:
    """Measures processes by pid; one that has ended measures as zero."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}

    def measure(self, pids: Iterable[int], now_s: float) -> dict[int, Usage]:
        wanted = set(pids)
        for gone in self._watched.keys() - wanted:
            del self._watched[gone]
        return {pid: self._measure_one(pid, now_s) for pid in wanted}

    def _measure_one(self, pid: int, now_s: float) -> Usage:
        try:
            watched = self._watched.get(pid)
            if watched is None:
                process = psutil.Process(pid)
                watched = self._watched[pid] = _Watched(process, now_s, _cpu_s(process), _switches(process))
            cpu_s, switches = _cpu_s(watched.process), _switches(watched.process)
            passed_s = max(now_s - watched.at_s, 1e-3)
            percent = 100 * (cpu_s - watched.cpu_s) / passed_s if now_s > watched.at_s else 0.0
            new_switches = switches - watched.switches
            watched.at_s, watched.cpu_s, watched.switches = now_s, cpu_s, switches
            self._measure_pss(watched, pid, now_s)
            return Usage(percent, watched.pss_bytes, watched.process.memory_info().rss, new_switches)
        except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError):
            self._watched.pop(pid, None)
            return Usage()

    def _measure_pss(self, watched: _Watched, pid: int, now_s: float) -> None:
        if now_s < watched.pss_not_before_s:
            return
        began_s = time.perf_counter()
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    watched.pss_bytes = int(line.split()[1]) * 1024
                    break
        watched.pss_not_before_s = now_s + (time.perf_counter() - began_s) / PSS_TIME_SHARE


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _switches(process: psutil.Process) -> int:
    counts = process.num_ctx_switches()
    return int(counts.voluntary + counts.involuntary)


class MetricsStore:
    """metrics.db: one row per process and second, one per run and second. One writer; readers are not disturbed."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=OFF")  # a lost last second of metrics is no loss
        self._connection.executescript(_SCHEMA)

    def add(self, status: RunStatus) -> None:
        s = status
        progress = (s.elapsed_s, s.state, s.epoch, s.samples_trained, s.samples_per_s, s.loss, s.test_auc)
        row = (*progress, s.plan.workers, s.plan.servers, s.arena_bytes)
        with self._connection:
            self._connection.execute(f"INSERT INTO run VALUES ({','.join('?' * len(row))})", row)
            rows = [_row(s.elapsed_s, process) for process in s.processes]
            self._connection.executemany(f"INSERT INTO process VALUES ({','.join('?' * 14)})", rows)

    def close(self) -> None:
        self._connection.close()


def _row(elapsed_s: float, p: ProcessStatus) -> tuple[float | int | str, ...]:
    usage = (p.cpu_percent, p.memory_bytes, p.rss_bytes, p.context_switches)
    speed = (p.samples_per_s, p.wait_fraction, p.compute_ms, p.gpu_memory_bytes)
    return (elapsed_s, p.role, p.index, p.life, p.pid, p.state, *usage, *speed)
