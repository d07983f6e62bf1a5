"""What the processes of a run cost, measured once a second; kept in metrics.db for later."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from elastichost.atomic_write import is_out_of_space
from elastichost.metrics import ProcessStatus, RunStatus

__all__ = ["MetricsStore", "ProcessMeter", "Pss", "Usage", "anonymous_bytes", "own_bytes", "processes_alike"]

FEW = 16  # so many are measured at once
FRESH_S = 0.9  # what was measured so long ago is measured anew
# Reading PSS walks the page tables of everything that is mapped: at most this share of the time goes to a process' own,
# at most that one to those of all where they are many, and at most so long to those of few.
PSS_TIME_SHARE = 0.01
PSS_TIME_SHARE_OF_MANY = 0.001  # where many runs share a host: together they would take a core
PSS_SHARE_OF_ALL = 0.02
PSS_AT_ONCE_S = 0.05
_TICKS_PER_S, _PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS process (
    elapsed_s REAL, role TEXT, idx INTEGER, incarnation INTEGER, pid INTEGER, state TEXT, cpu_percent REAL,
    pss_bytes INTEGER, rss_bytes INTEGER, context_switches INTEGER, samples_per_s REAL, wait_fraction REAL,
    compute_ms REAL, gpu_memory_bytes INTEGER);
CREATE TABLE IF NOT EXISTS run (
    elapsed_s REAL, state TEXT, epoch INTEGER, samples_trained INTEGER, samples_per_s REAL, loss REAL, test_auc REAL,
    workers INTEGER, servers INTEGER, arena_bytes INTEGER);
"""


_TABLES = ("run", "process")
FLUSH_S = 5.0
FINE_S = 3600.0
COARSE_S = 60
THIN_EVERY_S = 600.0
MOST_HELD = 600


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process: CPU percent of one core (None: it was never measured before) and context switches since the last
    measurement, memory now.
    private_bytes: of pss_bytes what is no page of a file. The arena's are counted there, and libraries' are the
    kernel's to drop; nor, where many runs share a host, those that all of them were forked with."""

    cpu_percent: float | None = None
    pss_bytes: int = 0
    private_bytes: int = 0
    rss_bytes: int = 0
    context_switches: int = 0


@dataclass(slots=True)
class _MeteredProcess:
    at_s: float
    cpu_s: float
    switches: int
    usage: Usage = Usage()
    anonymous_bytes: int = 0  # when its memory was measured
    pss_not_before_s: float = 0.0


class ProcessMeter:
    """Measures processes by pid; one that has ended measures as zero. Many are measured a few at a time: `ahead`."""

    def __init__(self, *, shares_host: bool = False) -> None:
        self._shares_host = shares_host
        self._pss_time_share = PSS_TIME_SHARE_OF_MANY if shares_host else PSS_TIME_SHARE
        self._watched: dict[int, _MeteredProcess] = {}
        self._pss_not_before_s = 0.0
        self._alike: tuple[float, int] | None = None  # when they were counted, and how many they were

    def measure(self, pids: Iterable[int], now_s: float, *, thoroughly: bool = False) -> dict[int, Usage]:
        """Of all of them; what was measured ahead is not measured again. thoroughly: memory of each, however lately it
        was measured."""
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
        return {pid: self._watched[pid].usage if pid in self._watched else Usage() for pid in wanted}

    def private_bytes(self) -> int:
        """Of all that were measured: as it was then, and what they have taken since. Quick; 0 for many."""
        if len(self._watched) > FEW:
            return 0
        total = 0
        for pid, watched in self._watched.items():
            if now_bytes := anonymous_bytes(pid):  # else it has ended, and holds nothing
                total += watched.usage.private_bytes + max(0, now_bytes - watched.anonymous_bytes)
        return total

    def ahead(self, pids: Sequence[int], now_s: float) -> None:
        """Call it often. Measures some of those whose turn it is, so that `measure` takes no longer than with few."""
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
        """Whose page tables may be read, and were read longest ago, first."""
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
        """Returns how long it took."""
        watched, began_s = self._watched[pid], time.perf_counter()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found = _pss_bytes(pid)
            forked = self._forked(now_s) if self._shares_host else 1
            private_bytes = own_bytes(found.private, found.anonymous, forked)
            watched.usage = replace(watched.usage, pss_bytes=found.pss, private_bytes=private_bytes)
            watched.anonymous_bytes = anonymous_bytes(pid)
        took_s = time.perf_counter() - began_s
        watched.pss_not_before_s = now_s + took_s / self._pss_time_share
        return took_s

    def _forked(self, now_s: float) -> int:
        """As `processes_alike`, which reads a file of every process of the host: once for all that is measured now. Of
        another moment it is of no use: one process more or less makes tens of megabytes."""
        if self._alike is None or self._alike[0] != now_s:
            self._alike = now_s, processes_alike()
        return self._alike[1]


class Pss(NamedTuple):
    """Bytes of one process: all, of it anonymous, both with shared pages divided; anonymous undivided."""

    pss: int
    private: int
    anonymous: int


def _pss_bytes(pid: int) -> Pss:
    """All, and of it anonymous: shared pages are divided among their users; the latter undivided."""
    found = {b"Pss:": 0, b"Pss_Anon:": 0, b"Anonymous:": 0}
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b" ")
            if name in found:
                found[name] = int(rest.split()[0]) * 1024
    return Pss(found[b"Pss:"], found[b"Pss_Anon:"], found[b"Anonymous:"])


def own_bytes(pss_anon: int, anonymous: int, forked: int) -> int:
    """Private memory of a process without the pages that all n that were forked from one share:

    Pss_Anon = own + shared / n,    Anonymous = own + shared;    own = Pss_Anon - (Anonymous - Pss_Anon) / (n - 1)
    """
    if forked < 2:
        return pss_anon
    return max(0, pss_anon - max(0, anonymous - pss_anon) // (forked - 1))


def processes_alike() -> int:
    """How many processes have this one's command line: those that were forked from the same one, and that itself."""
    mine = Path("/proc/self/cmdline").read_bytes()
    count = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                count += file.read() == mine
    return count


def anonymous_bytes(pid: int) -> int:
    """Of one process, what is no page of a file or of shared memory: quick to read. What it shares with others since
    they were forked is counted in full. 0: it has ended."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/statm", "rb") as file:
        _, resident, shared = map(int, file.read().split()[:3])
        return max(0, resident - shared) * _PAGE_BYTES
    return 0


class _Found(NamedTuple):
    cpu_s: float
    rss_bytes: int
    switches: int


def _read(pid: int) -> _Found | None:
    """None when there is no such process. Two files, read as they are: there may be hundreds of processes."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        status = Path(f"/proc/{pid}/status").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = stat.rpartition(b")")[2].split()  # from the third on; the second, its name, may hold anything
    switches = [int(line.split()[1]) for line in status.splitlines()[-2:] if b"ctxt_switches" in line]
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return _Found(cpu_s, int(fields[21]) * _PAGE_BYTES, sum(switches))


class MetricsStore:
    """metrics.db: one row per process and second, one per run and second. One writer; readers are not disturbed.

    Every row is committed at once, into the log beside the file (metrics.db-wal), and every FLUSH_S from there into
    the file itself: whoever copies or reads that alone lacks seconds. Of what is older than FINE_S one second in
    COARSE_S is kept. On a full disk rows wait, MOST_HELD seconds at most; `problem` says why, and `dropped` counts the
    seconds that are lost.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=OFF")  # a lost last second of metrics is no loss
        self._connection.executescript(_SCHEMA)
        self._held: deque[RunStatus] = deque()
        self._flush_at_s = self._thin_at_s = 0.0
        self._thinned = {table: self._last_row(table) for table in _TABLES}
        self.problem = ""
        self.dropped = 0

    def add(self, status: RunStatus) -> None:
        """Raises sqlite3.Error for what is no want of space."""
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
        """Of this supervisor's rows that are older: those of one second in COARSE_S stay."""
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

    def close(self) -> None:
        self._connection.close()


def _row(elapsed_s: float, p: ProcessStatus) -> tuple[float | int | str | None, ...]:
    usage = (p.cpu_percent, p.memory_bytes, p.rss_bytes, p.context_switches)
    speed = (p.samples_per_s, p.wait_fraction, p.compute_ms, p.gpu_memory_bytes)
    return (elapsed_s, p.role, p.index, p.incarnation, p.pid, p.state, *usage, *speed)
