"""Measures CPU time and memory of a run's processes once a second, and stores the measurements in metrics.db."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from elastichost.atomic_write import is_out_of_space
from elastichost.measurement_database import open_database
from elastichost.metrics import GpuStatus, ProcessStatus, RunStatus

__all__ = [
    "MetricsStore",
    "ProcessMeter",
    "Pss",
    "Usage",
    "anonymous_bytes",
    "context_switches",
    "own_bytes",
    "processes_alike",
]

FEW = 16  # up to this number of processes, all are measured at once
FRESH_S = 0.9  # a measurement that is older is repeated
# To read PSS the kernel walks the page tables of all mapped memory, so the time for it is limited.
PSS_TIME_SHARE = 0.01  # of the time, for one process
PSS_TIME_SHARE_OF_MANY = 0.001  # the same where many runs share a host: together they would take a core
PSS_SHARE_OF_ALL = 0.02  # of the time, for all processes together where there are more than FEW
PSS_AT_ONCE_S = 0.05  # in one call, where there are at most FEW
_TICKS_PER_S, _PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_SWITCHES = re.compile(rb"^(?:non)?voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS process (
    elapsed_s REAL, role TEXT, idx INTEGER, incarnation INTEGER, pid INTEGER, state TEXT, cpu_percent REAL,
    pss_bytes INTEGER, rss_bytes INTEGER, context_switches INTEGER, samples_per_s REAL, wait_fraction REAL,
    compute_ms REAL, gpu_memory_bytes INTEGER);
CREATE TABLE IF NOT EXISTS run (
    elapsed_s REAL, state TEXT, epoch INTEGER, samples_trained INTEGER, samples_per_s REAL, loss REAL, test_auc REAL,
    workers INTEGER, servers INTEGER, arena_bytes INTEGER);
CREATE TABLE IF NOT EXISTS gpu (
    elapsed_s REAL, idx INTEGER, busy REAL, memory_busy REAL, own_busy REAL, used_bytes INTEGER, own_bytes INTEGER,
    received_bytes_per_s REAL, sent_bytes_per_s REAL, clock_mhz INTEGER, power_w REAL, temperature_c INTEGER);
"""


_TABLES = ("run", "process", "gpu")
FLUSH_S = 5.0
FINE_S = 3600.0
COARSE_S = 60
THIN_EVERY_S = 600.0
MOST_HELD = 600


@dataclass(frozen=True, slots=True)
class Usage:
    """The measurements of one process. cpu_percent: since the last measurement, 100 is one core, None at the first one.
    context_switches: since the last measurement. pss_bytes: as last measured, other memory: as of now.

    private_bytes: the part of the memory that is not in files. Pages of the arena are counted with the arena, and the
    kernel can drop pages of libraries. Where many runs share a host, the pages that all processes share since they were
    forked are not counted either. anonymous_bytes: see the function of this name; 0: not known.
    """

    cpu_percent: float | None = None
    pss_bytes: int = 0
    private_bytes: int = 0
    rss_bytes: int = 0
    context_switches: int = 0
    anonymous_bytes: int = 0


@dataclass(slots=True)
class _MeteredProcess:
    at_s: float
    cpu_s: float
    switches: int
    usage: Usage = Usage()
    anonymous_bytes: int = 0  # at the time its memory was measured
    pss_not_before_s: float = 0.0


class ProcessMeter:
    """Measures processes by pid; the values of an ended process are zero. More than FEW processes are measured a few at
    a time, with `ahead`."""

    def __init__(self, *, shares_host: bool = False) -> None:
        self._shares_host = shares_host
        self._pss_time_share = PSS_TIME_SHARE_OF_MANY if shares_host else PSS_TIME_SHARE
        self._watched: dict[int, _MeteredProcess] = {}
        self._pss_not_before_s = 0.0
        self._alike: tuple[float, int] | None = None  # time and result of the last `processes_alike`

    def measure(self, pids: Iterable[int], now_s: float, *, thoroughly: bool = False) -> dict[int, Usage]:
        """The usage of each process. Processes that `ahead` has just measured are not measured again. thoroughly: the
        memory of every process is measured, also if it was measured just before."""
        wanted = set(pids)
        for gone in self._watched.keys() - wanted:
            del self._watched[gone]
        for pid in self._stale(wanted, now_s):
            self._measure_one(pid, now_s)
        if thoroughly:
            for pid in list(self._watched):
                self._measure_pss(pid, now_s)
        elif len(wanted) <= FEW:
            began_s = time.perf_counter()
            for pid in self._due(now_s):
                self._measure_pss(pid, now_s)
                if time.perf_counter() - began_s > PSS_AT_ONCE_S:
                    break
        if len(self._watched) > FEW:
            return {pid: self._watched[pid].usage if pid in self._watched else Usage() for pid in wanted}
        return {pid: _present(pid, self._watched[pid]) if pid in self._watched else Usage() for pid in wanted}

    def private_bytes(self) -> int:
        """The private memory of all measured processes now. It is quick. 0 when there are more than FEW processes."""
        if len(self._watched) > FEW:
            return 0
        return sum(_private_bytes(watched, anonymous_bytes(pid)) for pid, watched in self._watched.items())

    def ahead(self, pids: Sequence[int], now_s: float) -> None:
        """Measures some of the processes with old measurements, so that `measure` takes no longer than with FEW
        processes. Call it often."""
        if len(pids) <= FEW:
            return
        for pid in self._stale(pids, now_s)[:FEW]:
            self._measure_one(pid, now_s)
        if now_s >= self._pss_not_before_s and (due := self._due(now_s)):
            took_s = self._measure_pss(due[0], now_s)
            self._pss_not_before_s = now_s + took_s / PSS_SHARE_OF_ALL

    def _stale(self, pids: Iterable[int], now_s: float) -> list[int]:
        return [pid for pid in pids if (one := self._watched.get(pid)) is None or now_s - one.at_s >= FRESH_S]

    def _due(self, now_s: float) -> list[int]:
        """The processes with page tables that may be read again, those read longest ago first."""
        due = [(one.pss_not_before_s, pid) for pid, one in self._watched.items() if now_s >= one.pss_not_before_s]
        return [pid for _, pid in sorted(due)]

    def _measure_one(self, pid: int, now_s: float) -> None:
        found = _read(pid)
        if found is None:
            self._watched.pop(pid, None)
            return
        watched = self._watched.get(pid)
        if watched is None:
            watched = _MeteredProcess(now_s, found.cpu_s, found.switches, anonymous_bytes=anonymous_bytes(pid))
            self._watched[pid] = watched
        passed_s = max(now_s - watched.at_s, 1e-3)
        percent = 100 * (found.cpu_s - watched.cpu_s) / passed_s if now_s > watched.at_s else watched.usage.cpu_percent
        new_switches = found.switches - watched.switches
        watched.at_s, watched.cpu_s, watched.switches = now_s, found.cpu_s, found.switches
        watched.usage = replace(
            watched.usage, cpu_percent=percent, rss_bytes=found.rss_bytes, context_switches=new_switches
        )

    def _measure_pss(self, pid: int, now_s: float) -> float:
        """Measures the memory of a process. Returns the time that this took, in seconds."""
        watched, began_s = self._watched[pid], time.perf_counter()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found = _pss_bytes(pid)
            forked = self._forked(now_s) if self._shares_host else 1
            private_bytes = own_bytes(found.private, found.anonymous, forked)
            watched.usage = replace(watched.usage, pss_bytes=found.pss, private_bytes=private_bytes)
            watched.anonymous_bytes = found.anonymous
        took_s = time.perf_counter() - began_s
        watched.pss_not_before_s = now_s + took_s / self._pss_time_share
        return took_s

    def _forked(self, now_s: float) -> int:
        """`processes_alike`, computed once for each time of measurement, because it reads a file of every process of
        the host. A result of another time cannot be used: one process more or less makes tens of megabytes."""
        if self._alike is None or self._alike[0] != now_s:
            self._alike = now_s, processes_alike()
        return self._alike[1]


def _private_bytes(watched: _MeteredProcess, now_bytes: int) -> int:
    """The private memory now: as it was measured, and what the process has taken or given back since. All that changes
    is its own, but for pages that were shared. now_bytes: its anonymous memory; 0: it has ended."""
    return max(0, watched.usage.private_bytes + now_bytes - watched.anonymous_bytes) if now_bytes else 0


def _present(pid: int, watched: _MeteredProcess) -> Usage:
    """The usage with the memory of now."""
    if not (now_bytes := anonymous_bytes(pid)):
        return Usage()
    return replace(watched.usage, private_bytes=_private_bytes(watched, now_bytes), anonymous_bytes=now_bytes)


class Pss(NamedTuple):
    """Memory of one process in bytes. pss: all; private: the anonymous part; in both, a shared page is divided among
    the processes that use it. anonymous: the anonymous part with shared pages counted in full."""

    pss: int
    private: int
    anonymous: int


def _pss_bytes(pid: int) -> Pss:
    """Reads /proc/PID/smaps_rollup. Raises OSError when the process has ended or belongs to another user."""
    found = {b"Pss:": 0, b"Pss_Anon:": 0, b"Anonymous:": 0}
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b" ")
            if name in found:
                found[name] = int(rest.split()[0]) * 1024
    return Pss(found[b"Pss:"], found[b"Pss_Anon:"], found[b"Anonymous:"])


def own_bytes(pss_anon: int, anonymous: int, forked: int) -> int:
    """The private memory of a process without the pages that it shares with all n processes forked from the same one:

    Pss_Anon = own + shared / n,    Anonymous = own + shared;    own = Pss_Anon - (Anonymous - Pss_Anon) / (n - 1)
    """
    if forked < 2:
        return pss_anon
    return max(0, pss_anon - max(0, anonymous - pss_anon) // (forked - 1))


def processes_alike() -> int:
    """The number of processes with the command line of this one: the processes forked from the same one, and that
    one."""
    mine = Path("/proc/self/cmdline").read_bytes()
    count = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                count += file.read() == mine
    return count


def anonymous_bytes(pid: int) -> int:
    """The resident memory of a process that is neither in files nor in shared memory. It is quick to read. Pages that
    it shares since a fork are counted in full. 0: the process has ended."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/statm", "rb") as file:
        _, resident, shared = map(int, file.read().split()[:3])
        return max(0, resident - shared) * _PAGE_BYTES
    return 0


class _Found(NamedTuple):
    cpu_s: float
    rss_bytes: int
    switches: int


def _read(pid: int) -> _Found | None:
    """CPU time, memory and context switches of a process; None when it has ended. It reads only two files, because
    there may be hundreds of processes."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        status = Path(f"/proc/{pid}/status").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = stat.rpartition(b")")[2].split()  # from the third on; the second, its name, may hold any characters
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return _Found(cpu_s, int(fields[21]) * _PAGE_BYTES, context_switches(status))


def context_switches(status: bytes) -> int:
    """The context switches of a process since its start, voluntary or not, from its /proc/PID/status. Pure. The lines
    are found by their names: kernels for x86 write further lines behind them. 0: the kernel does not count them."""
    return sum(map(int, _SWITCHES.findall(status)))


class MetricsStore:
    """The file metrics.db: one row per second for the run, one for each of its processes, and one for each of its GPUs.
    There is one writer; readers do not block it.

    Every row is committed at once to the log beside the file (metrics.db-wal), and every FLUSH_S from there to the file
    itself: a copy of the file alone lacks the last seconds. Of rows older than FINE_S, one second in COARSE_S is kept.
    On a full disk rows wait in memory, at most MOST_HELD seconds of them; `problem` is then the reason, and `dropped`
    counts the seconds that are lost. set_aside: see `MeasurementDatabase`.
    """

    def __init__(self, path: Path) -> None:
        self._connection, self.set_aside = open_database(path, _SCHEMA)
        self._held: deque[RunStatus] = deque()
        self._flush_at_s = self._thin_at_s = 0.0
        self._thinned = {table: self._last_row(table) for table in _TABLES}
        self.problem = ""
        self.dropped = 0

    def add(self, status: RunStatus) -> None:
        """Stores the measurements of one second. Raises sqlite3.Error for errors other than missing space."""
        self._held.append(status)
        if len(self._held) > MOST_HELD:
            self._held.popleft()
            self.dropped += 1
        try:
            while self._held:
                self._insert(self._held[0])
                self._held.popleft()
            self._keep_small(status.elapsed_s)
        except sqlite3.OperationalError as error:
            if not is_out_of_space(error):
                raise
            self.problem = str(error)
        else:
            self.problem = ""

    def _keep_small(self, elapsed_s: float) -> None:
        if elapsed_s >= self._thin_at_s + FINE_S + THIN_EVERY_S:
            self._thin_at_s = elapsed_s - FINE_S
            self._thin(self._thin_at_s)
        if not self._flush_at_s <= elapsed_s < self._flush_at_s + FLUSH_S:
            self._flush_at_s = elapsed_s
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _thin(self, before_s: float) -> None:
        """Deletes this supervisor's rows before `before_s`, except those of one second in COARSE_S."""
        with self._connection:
            for table in _TABLES:
                query = f"SELECT max(rowid) FROM {table} WHERE rowid > ? AND elapsed_s < ?"
                last = self._connection.execute(query, (self._thinned[table], before_s)).fetchone()[0]
                if last is not None:
                    query = f"DELETE FROM {table} WHERE rowid > ? AND rowid <= ? AND CAST(elapsed_s AS INTEGER) % ?"
                    self._connection.execute(query, (self._thinned[table], last, COARSE_S))
                    self._thinned[table] = last

    def _last_row(self, table: str) -> int:
        return int(self._connection.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()[0])

    def _insert(self, status: RunStatus) -> None:
        s = status
        progress = (s.elapsed_s, s.state, s.epoch, s.samples_trained, s.samples_per_s, s.loss, s.test_auc)
        row = (*progress, s.plan.workers, s.plan.servers, s.arena_bytes)
        with self._connection:
            self._connection.execute(f"INSERT INTO run VALUES ({','.join('?' * len(row))})", row)
            rows = [_row(s.elapsed_s, process) for process in s.processes]
            self._connection.executemany(f"INSERT INTO process VALUES ({','.join('?' * 14)})", rows)
            gpus = [_gpu_row(s.elapsed_s, gpu) for gpu in s.gpus if not gpu.problem]
            self._connection.executemany(f"INSERT INTO gpu VALUES ({','.join('?' * 12)})", gpus)

    def close(self) -> None:
        self._connection.close()


def _row(elapsed_s: float, p: ProcessStatus) -> tuple[float | int | str | None, ...]:
    usage = (p.cpu_percent, p.memory_bytes, p.rss_bytes, p.context_switches)
    speed = (p.samples_per_s, p.wait_fraction, p.compute_ms, p.gpu_memory_bytes)
    return (elapsed_s, p.role, p.index, p.incarnation, p.pid, p.state, *usage, *speed)


def _gpu_row(elapsed_s: float, g: GpuStatus) -> tuple[float | int | None, ...]:
    use = (g.busy, g.memory_busy, g.own_busy, g.used_bytes, g.own_bytes, g.received_bytes_per_s, g.sent_bytes_per_s)
    return (elapsed_s, g.index, *use, g.clock_mhz, g.power_w, g.temperature_c)
