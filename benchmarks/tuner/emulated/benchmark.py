"""The control plane at the size of a cloud: hundreds of emulated workers on this host, and the accuracy of the
emulation.

    python -m benchmarks.tuner.emulated           20 -> 200 workers on 4 PS, jobs against the simulator, tuner: 6 min
    python -m benchmarks.tuner.emulated --quick   10 -> 60 workers on 4 PS: 15 s

Supervisor, workers and PS are real processes with real messages, leases and commits; computing is replaced by timed
waits (`[emulate]`). The benchmark measures the time until added workers are ready and have trained. While all workers
train, it measures the delay of heartbeats (from their creation in a process to the supervisor), the supervisor's CPU
time, and samples per second compared with the queue simulator for the same costs. It also compares the plan that the
tuner finds for a job without history with the best configuration in the simulator.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import msgspec
import psutil

from benchmarks.harness.aggregates import percentile
from benchmarks.harness.aims import Verdict, at_most, bounds_of
from benchmarks.harness.output import print_table, write_json
from benchmarks.harness.processes import busy_s
from benchmarks.harness.runner import print_verdicts
from benchmarks.harness.workshop import Workshop
from benchmarks.simulator.queueing.fork_join import simulate, throughputs
from benchmarks.tuner.emulated.cloud import JOB, EmulatedRun, running
from elastichost.config.job import load_job
from elastichost.emulation.costs import scenario_of
from elastichost.metrics import ProcessStatus
from elastichost.runs.events import Counts, LeaseGranted, PlanChanged, PlanReached
from elastichost.tuner.facts import Configuration
from elastichost.wire.commands import ScaleMsg

__all__ = ["main", "measure", "show", "verdicts_of"]

AIMS = (at_most(0.1, "heartbeat_p99_s"), at_most(0.25, "supervisor_cores"))
# Seconds of a batch on one core: the messages of 200 workers then need half of two cores.
BATCH_S, QUICK_BATCH_S = 2.0, 0.5
TRIALS: tuple[tuple[str, Configuration, float], ...] = (
    ("compute_bound", Configuration(8, 2, 2), 5.0),
    ("server_bound", Configuration(16, 2, 1), 10.0),
    ("network_bound", Configuration(16, 4, 1), 10.0),
    ("reader_bound", Configuration(8, 2, 4), 10.0),
    ("unpipelined", Configuration(8, 2, 1), 5.0),
    ("unpipelined", Configuration(16, 2, 1), 10.0),
)
# The scenarios for the tuner, and the factor by which they are slowed down.
TUNED = (("server_bound", 5.0), ("compute_bound", 5.0))


class ScaleOut(msgspec.Struct, frozen=True):
    """Seconds from the request until all added workers are forked, are ready, and have committed a first batch."""

    before: int
    after: int
    started_s: float
    ready_s: float
    trained_s: float


class Steady(msgspec.Struct, frozen=True):
    """Figures while all workers train. others_cores: cores that other processes used. late: number of processes for
    which the host was too slow. private_bytes: largest value of each role."""

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
    """A measured speed compared with the queue simulator. error: relative standard error of the measured speed."""

    name: str
    configuration: Configuration
    samples_per_s: float
    truth: float
    error: float

    @property
    def ratio(self) -> float:
        return self.samples_per_s / self.truth


class Tuned(msgspec.Struct, frozen=True):
    """The result of the tuner. share: speed of its last plan / speed of the best configuration, both by the simulator.
    settled_s: from the first sample to the last plan change. plans: number of plans that ran."""

    name: str
    first: Configuration
    last: Configuration
    best: Configuration
    share: float
    settled_s: float
    plans: int


class Figures(msgspec.Struct, frozen=True):
    scale_out: ScaleOut
    steady: Steady
    speeds: tuple[Speed, ...]
    tuned: tuple[Tuned, ...]
    aims: dict[str, float] = msgspec.field(default_factory=lambda: bounds_of(AIMS))


# --- measurements -----------------------------------------------------------------------------------------------------


def scale_out(run: EmulatedRun, before: int, after: int) -> ScaleOut:
    """Adds workers; returns when all of them have trained a batch."""
    run.wait(lambda: len(run.processes("worker")) == before)
    asked_s = time.monotonic()
    reached = run.scale(ScaleMsg(workers=after))
    first = msgspec.convert(reached.data["request_to_first_sample_s"], dict[str, float | None])
    run.look()

    def last_s(kind: str) -> float:
        return max(e.monotonic_s for e in run.lines if e.kind == kind and e.event.subject in first) - asked_s

    trained_s = max((at_s for at_s in first.values() if at_s is not None), default=math.nan)
    return ScaleOut(before, after, last_s("process_started"), last_s("process_ready"), trained_s)


def steady(run: EmulatedRun, seconds: float) -> tuple[Steady, float]:
    """The figures over `seconds` seconds, and samples/s."""
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
    """Compares a measured speed with the simulated speed for the same costs."""
    job = load_job(JOB, run.settings, environ={})
    of = scenario_of(job)
    truth = simulate(of, configuration, max(40, 20_000 // configuration.workers), seed=1).samples_per_s
    # n iterations with log times of lag-1 correlation rho count as n (1 - rho) / (1 + rho). In addition, at both
    # ends each worker is within a batch, which counts only when it is complete.
    batches, kept = max(1.0, samples_per_s * seconds / job.train.batch_size), of.autocorrelation
    noise = of.compute_cov / math.sqrt(max(1.0, batches * (1 - kept) / (1 + kept)))
    ends = math.sqrt(configuration.workers / 6) / batches
    return Speed(name, configuration, samples_per_s, truth, math.hypot(noise, ends))


def trial(folder: Path, workshop: Workshop, name: str, at: Configuration, slowdown: float, seconds: float) -> Speed:
    """Measures one scenario in one configuration."""
    settings = {
        "resources.workers": at.workers,
        "resources.servers": at.servers,
        "emulate.scenario": name,
        "emulate.slowdown": slowdown,
    }
    with running(folder, workshop, settings) as run:
        run.wait(lambda: len(run.processes("worker")) == at.workers)
        if at.worker_cores > 1:
            run.scale(ScaleMsg(worker_cores=at.worker_cores))
        time.sleep(3.0)  # batches that began in another configuration are complete then
        dense, began_s = run.dense(), time.monotonic()
        samples = dense.samples_applied()
        time.sleep(seconds)
        passed_s = time.monotonic() - began_s
        return speed_of(run, name, at, (dense.samples_applied() - samples) / passed_s, passed_s)


def tuned(folder: Path, workshop: Workshop, name: str, slowdown: float, seconds: float) -> Tuned:
    """Runs the tuner, without history, on a job with 1 to 32 workers and 1 to 8 PS on 64 cores."""
    settings = {
        "resources.workers": "[1, 32]",
        "resources.servers": "[1, 8]",
        "resources.cores": 64,
        "emulate.scenario": name,
        "emulate.slowdown": slowdown,
        "tuner.mode": "act",
        "tuner.warm_start": "false",
    }
    with running(folder, workshop, settings) as run:
        (lease, *_) = run.wait(lambda: [line for line in run.lines if isinstance(line.event, LeaseGranted)])
        ends_s = time.monotonic() + seconds
        run.wait(lambda: time.monotonic() > ends_s)
        plans = [line.event for line in run.lines if isinstance(line.event, PlanChanged)]
        changes = [(line.monotonic_s, line.event) for line in run.lines if isinstance(line.event, PlanReached)]
        began_s = lease.monotonic_s
        of = scenario_of(load_job(JOB, run.settings, environ={}))
    counts = [_size(changes[0][1].before)] if changes else [Configuration(plans[0].workers, plans[0].servers)]
    counts += [_size(change.after) for _, change in changes]
    lattice = (range(1, 33), range(1, 9), (1, 2, 3, 4, 6, 8))
    all_of_them = [Configuration(*one) for one in product(*lattice) if one[0] * one[2] + one[1] <= 64]
    coarse = throughputs(of, all_of_them, 600, seed=1)
    near = [all_of_them[index] for index in coarse.argsort()[-12:]]
    truth = dict(zip([*near, counts[-1]], throughputs(of, [*near, counts[-1]], 12_000, seed=2).tolist(), strict=True))
    best = max(truth, key=truth.__getitem__)
    settled_s = changes[-1][0] - began_s if changes else 0.0
    return Tuned(name, counts[0], counts[-1], best, truth[counts[-1]] / truth[best], settled_s, len(counts))


def _size(counts: Counts) -> Configuration:
    return Configuration(counts.workers, counts.servers, counts.worker_cores)


def measure(before: int, after: int, servers: int, seconds: float, trials: float, batch_s: float) -> Figures:
    """Measures everything. trials: seconds for each of TRIALS, 0 to skip them. batch_s: computing time of a batch on
    one core."""
    with Workshop() as workshop:
        settings = {
            "resources.workers": before,
            "resources.servers": servers,
            "emulate.compute_s": batch_s,
            "emulate.serial_s": batch_s / 40,
            "emulate.server_s": batch_s / 100,
        }
        with running(workshop.disk / "cloud", workshop, settings) as run:
            out = scale_out(run, before, after)
            run.wait(lambda: len(run.processes("worker")) == after)
            calm, samples_per_s = steady(run, seconds)
            speeds = [speed_of(run, "of the cloud", Configuration(after, servers), samples_per_s, calm.seconds)]
        for number, one in enumerate(TRIALS if trials else ()):
            speeds.append(trial(workshop.disk / f"trial-{number}", workshop, *one, trials))
        chosen = [tuned(workshop.disk / name, workshop, name, slow, 3 * trials) for name, slow in TUNED if trials]
    return Figures(out, calm, tuple(speeds), tuple(chosen))


def verdicts_of(figures: Figures) -> list[Verdict]:
    """The verdicts on the delay of heartbeats and on the supervisor's CPU use."""
    calm = figures.steady
    return [aim.judge(value) for aim, value in zip(AIMS, (calm.heartbeat_p99_s, calm.supervisor_cores), strict=True)]


# --- output -----------------------------------------------------------------------------------------------------------


def show(figures: Figures) -> None:
    """Prints the figures on stdout."""
    out, calm = figures.scale_out, figures.steady
    print(f"{out.before} -> {out.after} workers, seconds from the request until the last worker")
    print(f"  is forked {out.started_s:.2f}, is ready {out.ready_s:.2f}, has trained a batch {out.trained_s:.2f}\n")
    print(f"{calm.workers} workers and {calm.servers} PS for {calm.seconds:.0f} s, on {os.cpu_count()} cores")
    rows = [
        ("delay of heartbeats, p50", f"{1e3 * calm.heartbeat_p50_s:.1f} ms", ""),
        ("delay of heartbeats, p99", f"{1e3 * calm.heartbeat_p99_s:.1f} ms", "<= 100 ms"),
        ("delay of heartbeats, worst", f"{1e3 * calm.heartbeat_worst_s:.1f} ms", ""),
        ("supervisor", f"{100 * calm.supervisor_cores:.0f} % of a core", "<= 25 %"),
        *((f"all {role}s", f"{calm.cores_by_role[role]:.2f} cores", "") for role in ("worker", "server")),
        ("other processes on this machine", f"{calm.others_cores:.2f} cores", ""),
        *((f"private memory of a {role}", f"{size / 1e6:.1f} MB", "") for role, size in calm.private_bytes.items()),
        ("processes for which the host was too slow", f"{calm.late}", "0"),
    ]
    print_table(("", "measured", "aim"), rows)
    print("\nsamples per second compared with the queue simulator")
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
    if figures.tuned:
        print("\nthe tuner, without history")
        found = [
            (one.name, str(one.first), str(one.last), str(one.best), f"{one.share:.3f}", f"{one.settled_s:.0f} s")
            for one in figures.tuned
        ]
        print_table(("costs", "first", "last", "best", "last / best", "settled after"), found)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Returns 0 even if an aim is missed."""
    parser = argparse.ArgumentParser(
        prog="emulated", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=200, help="number of workers after scaling out (200)")
    parser.add_argument("--servers", type=int, default=4, help="number of PS (4)")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement (20)")
    parser.add_argument("--quick", action="store_true", help="60 workers, 4 PS, 4 seconds; skips the other parts")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(argv)
    if chosen.quick:
        figures = measure(10, 60, 4, 4.0, 0.0, QUICK_BATCH_S)
    else:
        figures = measure(20, chosen.workers, chosen.servers, chosen.seconds, chosen.seconds, BATCH_S)
    show(figures)
    print()
    print_verdicts(verdicts_of(figures))
    if chosen.json:
        write_json("emulated", figures, verdicts_of(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
