"""The control plane at the size of a cloud: hundreds of emulated workers on this host, and whether they keep to their
costs.

    python -m benchmarks.tuner.emulated           20 -> 200 workers on 8 PS, then six jobs against the simulator: 4 min
    python -m benchmarks.tuner.emulated --quick   10 -> 60 workers on 4 PS: 15 s

Supervisor, workers and PS are real processes with real messages, leases and commits; computing is timed waits
(`[emulate]`). Measured: how long it takes until so many more workers are ready and have trained; while all train, how
late heartbeats are handled (from the moment a process took one to the moment the supervisor has it), the supervisor's
CPU time, and samples a second against what the micro simulator says of the same costs.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from benchmarks.measuring import percentile, print_table, write_json
from benchmarks.processes import busy_s
from benchmarks.workshop import ROOT, Workshop
from elastichost.arena.arena import Arena
from elastichost.arena.dense import DenseStore
from elastichost.chaos.tails import JournalTail
from elastichost.config import load_job
from elastichost.emulation.costs import scenario_of
from elastichost.metrics import JournalEvent, ProcessStatus, RunStatus, read_status
from elastichost.simulator.micro import simulate
from elastichost.tuner.facts import Configuration
from elastichost.wire.commands import Accepted, CommandClient, Reached, Scale

__all__ = ["main"]

Found = TypeVar("Found")

JOB = ROOT / "examples" / "emulated.toml"
BEAT = struct.Struct("<2d")  # when it was handled, and how late
LIMIT_S = 120.0
POLL_S = 0.02
AIMS = {"heartbeat_p99_s": 0.1, "supervisor_cores": 0.25}
COMMON = {
    "data.synthetic.rows": 2_000_000_000,
    "emulate.hosts": 64,
    "checkpoint.every_s": 1e6,
    "tuner.mode": "off",
}
# Seconds of a batch on one core: 200 workers then exchange as many messages as half of two cores carries.
BATCH_S, QUICK_BATCH_S = 2.0, 0.5
TRIALS: tuple[tuple[str, Configuration, float], ...] = (
    ("compute_bound", Configuration(8, 2, 2), 5.0),
    ("server_bound", Configuration(16, 2, 1), 10.0),
    ("network_bound", Configuration(16, 4, 1), 10.0),
    ("reader_bound", Configuration(8, 2, 4), 10.0),
    ("unpipelined", Configuration(8, 2, 1), 5.0),
    ("unpipelined", Configuration(16, 2, 1), 10.0),
)


class ScaleOut(msgspec.Struct, frozen=True):
    """Seconds since the request, of all newcomers: forked, ready, with a first batch committed."""

    before: int
    after: int
    started_s: float
    ready_s: float
    trained_s: float


class Steady(msgspec.Struct, frozen=True):
    """While all train. others_cores: what of the machine something else used meanwhile. late: processes that the host
    was too slow for. private_bytes: the largest of each role."""

    seconds: float
    workers: int
    servers: int
    heartbeats: int
    heartbeat_p50_s: float
    heartbeat_p99_s: float
    heartbeat_worst_s: float
    supervisor_cores: float
    cores_by_role: dict[str, float]
    others_cores: float
    late: int
    private_bytes: dict[str, int]


class Speed(msgspec.Struct, frozen=True):
    """Against the micro simulator. error: standard error of the measured one, relative, as far as noise makes it."""

    name: str
    configuration: Configuration
    samples_per_s: float
    truth: float
    error: float

    @property
    def ratio(self) -> float:
        return self.samples_per_s / self.truth


class Figures(msgspec.Struct, frozen=True):
    scale_out: ScaleOut
    steady: Steady
    speeds: tuple[Speed, ...]
    aims: dict[str, float] = msgspec.field(default_factory=lambda: dict(AIMS))


# --- a run under way --------------------------------------------------------------------------------------------------


class EmulatedRun:
    """Seen from outside; its supervisor also notes how late every heartbeat came."""

    def __init__(self, folder: Path, workshop: Workshop, settings: Mapping[str, object]) -> None:
        self.run_dir, self._beats = folder / "run", folder / "beats"
        folder.mkdir()
        self.settings = [f"{key}={value}" for key, value in {**COMMON, **settings}.items()]
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.tuner.emulated", "--supervise", str(folder), *self.settings],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**workshop.environment(), "ELASTICHOST_ARENA_DIR": str(workshop.memory)},
        )
        self._tail = JournalTail(self.run_dir / "journal.jsonl")
        self.events: list[JournalEvent] = []

    def wait(self, find: Callable[[], Found | None]) -> Found:
        """What it finds. Raises RuntimeError when the run ends before, or after too long."""
        deadline_s = time.monotonic() + LIMIT_S
        while not (found := find()):
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self._log.seek(0)
                raise RuntimeError(f"the run ended, or did nothing for {LIMIT_S:g} s:\n{self._log.read()[-4000:]}")
            time.sleep(POLL_S)
            self.events += self._tail.poll()
        return found

    def status(self) -> RunStatus | None:
        return read_status(self.run_dir) if (self.run_dir / "status.json").exists() else None

    def processes(self, role: str) -> list[ProcessStatus]:
        """That work."""
        status = self.status()
        known = status.processes if status is not None else ()
        return [one for one in known if one.role == role and one.state in ("training", "late", "serving")]

    def scale(self, command: Scale) -> Reached:
        status = self.wait(self.status)
        client = CommandClient(status.commands)
        try:
            client.send(command)
            while not isinstance(reply := client.receive(LIMIT_S), Reached):
                if not isinstance(reply, Accepted):
                    raise RuntimeError(f"{command}: {reply}")
            return reply
        finally:
            client.close()

    def dense(self) -> DenseStore:
        (event,) = self.wait(lambda: [event for event in self.events if event.kind == "arena"])
        store = DenseStore(Arena.attach(Path(str(event.data["path"]))))
        store.samples_applied()  # the first call loads compiled code, which takes a while
        return store

    def delays_s(self, since_s: float, until_s: float) -> list[float]:
        """How late the heartbeats were that came in a time."""
        content = self._beats.read_bytes()
        whole = len(content) // BEAT.size * BEAT.size
        return [late_s for at_s, late_s in BEAT.iter_unpack(content[:whole]) if since_s <= at_s <= until_s]

    def close(self) -> None:
        """Ends the run with everything it started."""
        for _ in range(2):
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
        self.process.wait(30)
        self._log.close()


@contextmanager
def running(folder: Path, workshop: Workshop, settings: Mapping[str, object]) -> Iterator[EmulatedRun]:
    run = EmulatedRun(folder, workshop, settings)
    try:
        yield run
    finally:
        run.close()


def supervise(folder: Path, settings: Sequence[str]) -> int:
    """The process that `EmulatedRun` starts."""
    from elastichost.supervisor import run_job
    from elastichost.supervisor.observed import Fleet, ProcessRecord
    from elastichost.wire.control import Heartbeat

    plain = Fleet.heartbeat
    with (folder / "beats").open("wb", buffering=BEAT.size) as file:

        def heartbeat(fleet: Fleet, record: ProcessRecord, beat: Heartbeat, now_s: float) -> None:
            if beat.sample.taken_s:
                now_s = time.monotonic()
                file.write(BEAT.pack(now_s, now_s - beat.sample.taken_s))
            plain(fleet, record, beat, now_s)

        Fleet.heartbeat = heartbeat  # type: ignore[method-assign]
        return int(run_job(load_job(JOB, settings, environ={}), folder / "run").exit_code)


# --- measuring --------------------------------------------------------------------------------------------------------


def scale_out(run: EmulatedRun, before: int, after: int) -> ScaleOut:
    """Returns when everyone has trained."""
    run.wait(lambda: len(run.processes("worker")) == before)
    asked_s = time.monotonic()
    reached = run.scale(Scale(workers=after))
    first = msgspec.convert(reached.data["request_to_first_sample_s"], dict[str, float | None])
    run.events += run._tail.poll()

    def last_s(kind: str) -> float:
        return max(e.monotonic_s for e in run.events if e.kind == kind and e.process in first) - asked_s

    trained_s = max((at_s for at_s in first.values() if at_s is not None), default=math.nan)
    return ScaleOut(before, after, last_s("process_started"), last_s("ready"), trained_s)


def steady(run: EmulatedRun, seconds: float) -> tuple[Steady, float]:
    """The figures of so long, and samples a second."""
    dense, status = run.dense(), run.wait(run.status)
    roles = {one.pid: one.role for one in status.processes if one.pid} | {run.process.pid: "supervisor"}
    watched = {pid: psutil.Process(pid) for pid in roles}
    began_s, samples, busy = time.monotonic(), dense.samples_applied(), busy_s()
    used = {pid: _cpu_s(process) for pid, process in watched.items()}
    time.sleep(seconds)
    ended_s, trained, others = time.monotonic(), dense.samples_applied() - samples, busy_s() - busy
    passed_s, by_role = ended_s - began_s, dict.fromkeys(("supervisor", "worker", "server"), 0.0)
    for pid, process in watched.items():
        spent = (_cpu_s(process) - used[pid]) / passed_s
        by_role[roles[pid]] = by_role.get(roles[pid], 0.0) + spent
    delays = run.delays_s(began_s, ended_s)
    workers, servers = run.processes("worker"), run.processes("server")
    private = {"worker": workers, "server": servers}
    found = Steady(
        seconds=passed_s,
        workers=len(workers),
        servers=len(servers),
        heartbeats=len(delays),
        heartbeat_p50_s=percentile(delays, 50),
        heartbeat_p99_s=percentile(delays, 99),
        heartbeat_worst_s=max(delays),
        supervisor_cores=by_role["supervisor"],
        cores_by_role=by_role,
        others_cores=max(0.0, others / passed_s - sum(by_role.values())),
        late=sum(one.state == "late" for one in workers),
        private_bytes={role: max(map(_private_bytes, of_role)) for role, of_role in private.items()},
    )
    return found, trained / passed_s


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _private_bytes(process: ProcessStatus) -> int:
    facts = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    return 1024 * sum(int(line.split()[1]) for line in facts if line.startswith("Private_"))


def speed_of(run: EmulatedRun, name: str, configuration: Configuration, samples_per_s: float, seconds: float) -> Speed:
    """Beside what the simulator says of the same costs."""
    job = load_job(JOB, run.settings, environ={})
    of = scenario_of(job)
    truth = simulate(of, configuration, max(40, 20_000 // configuration.workers), seed=1).samples_per_s
    # n iterations whose log times have lag-1 correlation rho count as n (1 - rho) / (1 + rho); besides, at both ends
    # each worker is somewhere within a batch, which counts when it is done
    batches, kept = max(1.0, samples_per_s * seconds / job.train.batch_size), of.autocorrelation
    noise = of.compute_cov / math.sqrt(max(1.0, batches * (1 - kept) / (1 + kept)))
    ends = math.sqrt(configuration.workers / 6) / batches
    return Speed(name, configuration, samples_per_s, truth, math.hypot(noise, ends))


def trial(folder: Path, workshop: Workshop, name: str, at: Configuration, slowdown: float, seconds: float) -> Speed:
    """One scenario in one configuration."""
    settings = {
        "resources.workers": at.workers,
        "resources.servers": at.servers,
        "emulate.scenario": name,
        "emulate.slowdown": slowdown,
    }
    with running(folder, workshop, settings) as run:
        run.wait(lambda: len(run.processes("worker")) == at.workers)
        if at.worker_cores > 1:
            run.scale(Scale(worker_cores=at.worker_cores))
        time.sleep(3.0)  # what was begun in another configuration is over
        dense, began_s = run.dense(), time.monotonic()
        samples = dense.samples_applied()
        time.sleep(seconds)
        passed_s = time.monotonic() - began_s
        return speed_of(run, name, at, (dense.samples_applied() - samples) / passed_s, passed_s)


def measure(before: int, after: int, servers: int, seconds: float, trials: float, batch_s: float) -> Figures:
    """trials: seconds for each of TRIALS; 0: none of them. batch_s: of computing, on one core."""
    with Workshop() as workshop:
        settings = {
            "resources.workers": before,
            "resources.servers": servers,
            "emulate.compute_s": batch_s,
            "emulate.serial_s": batch_s / 40,
            "emulate.server_s": batch_s / 20,
        }
        with running(workshop.disk / "cloud", workshop, settings) as run:
            out = scale_out(run, before, after)
            run.wait(lambda: len(run.processes("worker")) == after)
            calm, samples_per_s = steady(run, seconds)
            speeds = [speed_of(run, "of the cloud", Configuration(after, servers), samples_per_s, calm.seconds)]
        for number, one in enumerate(TRIALS if trials else ()):
            speeds.append(trial(workshop.disk / f"trial-{number}", workshop, *one, trials))
    return Figures(out, calm, tuple(speeds))


# --- showing ----------------------------------------------------------------------------------------------------------


def show(figures: Figures) -> None:
    """On stdout."""
    out, calm = figures.scale_out, figures.steady
    print(f"{out.before} -> {out.after} workers, seconds from the request until the last of them is")
    print(f"  forked {out.started_s:.2f}, ready {out.ready_s:.2f}, has trained a batch {out.trained_s:.2f}\n")
    print(f"{calm.workers} workers and {calm.servers} PS for {calm.seconds:.0f} s, on {os.cpu_count()} cores")
    rows = [
        ("heartbeat handled after, p50", f"{1e3 * calm.heartbeat_p50_s:.1f} ms", ""),
        ("heartbeat handled after, p99", f"{1e3 * calm.heartbeat_p99_s:.1f} ms", "<= 100 ms"),
        ("heartbeat handled after, worst", f"{1e3 * calm.heartbeat_worst_s:.1f} ms", ""),
        ("supervisor", f"{100 * calm.supervisor_cores:.0f} % of a core", "<= 25 %"),
        *((f"all {role}s", f"{calm.cores_by_role[role]:.2f} cores", "") for role in ("worker", "server")),
        ("others on this machine", f"{calm.others_cores:.2f} cores", ""),
        *((f"private memory of a {role}", f"{size / 1e6:.1f} MB", "") for role, size in calm.private_bytes.items()),
        ("workers that came late", f"{calm.late}", "0"),
    ]
    print_table(("", "measured", "aim"), rows)
    print("\nsamples a second against the micro simulator")
    speeds = [
        (
            one.name,
            str(one.configuration),
            f"{one.samples_per_s:,.0f}",
            f"{one.truth:,.0f}",
            f"{one.ratio:.3f} +- {one.error:.3f}",
        )
        for one in figures.speeds
    ]
    print_table(("costs", "configuration", "measured", "simulated", "ratio"), speeds)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="emulated", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=200, help="after scaling out (200)")
    parser.add_argument("--servers", type=int, default=8, help="PS (8)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (20)")
    parser.add_argument("--quick", action="store_true", help="60 workers, 4 PS, 5 seconds, no trials")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--supervise", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("settings", nargs="*", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.supervise is not None:
        return supervise(chosen.supervise, chosen.settings)
    if chosen.quick:
        figures = measure(10, 60, 4, 5.0, 0.0, QUICK_BATCH_S)
    else:
        figures = measure(20, chosen.workers, chosen.servers, chosen.seconds, chosen.seconds, BATCH_S)
    show(figures)
    if chosen.json:
        write_json("emulated", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
