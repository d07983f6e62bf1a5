"""Constructs run directories, with the run's own writers where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np

from elastichost.host.process_meter import MetricsStore
from elastichost.metrics import PlanStatus, ProcessStatus, RunStatus
from elastichost.plan import Access, ProcessId
from elastichost.runs.events import (
    AnyEvent,
    CheckpointStarted,
    CheckpointWritten,
    Counts,
    EvaluationFinished,
    EvaluationStarted,
    JournalLine,
    LeaseGranted,
    LeasesSettled,
    PlanChanged,
    PlanReached,
    ProcessConnected,
    ProcessLost,
    ProcessReady,
    RunEnded,
    RunStarted,
)
from elastichost.runs.facts import EvaluationMemory
from elastichost.tuner.facts import Configuration, Workload
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.policy import Decision, TunerSettings, TunerState, advance
from elastichost.tuner.policy.profile import BlockSettings, ProfileSample, Totals
from elastichost.tuner.records import Record, TunerLooked, TunerOpened

__all__ = [
    "BEGAN_S",
    "NOW",
    "SETTINGS",
    "STARTED",
    "evaluated",
    "line",
    "lost",
    "plan",
    "reached",
    "server",
    "status",
    "tuned",
    "worker",
    "write_journal",
    "write_lines",
    "write_metrics",
    "write_run",
]

NOW = "2026-01-02T00:00:00.000Z"
BEGAN_S = 1000.0  # of the monotonic clock
JOB = '[job]\nname = "shop"\n[train]\nmode = "async"\nbatch_size = 64\nepochs = 2\n[resources]\nmemory = "1GiB"\n'


STARTED = RunStarted("shop-1", "shop-1")


def line(at_s: float, event: AnyEvent) -> JournalLine:
    """A line of the journal. at_s: seconds after BEGAN_S."""
    utc = f"2026-01-01T00:{int(at_s) // 60 % 60:02d}:{at_s % 60:06.3f}Z"
    return JournalLine(utc, BEGAN_S + at_s, event)


def worker(index: int = 0, incarnation: int = 1) -> ProcessId:
    return ProcessId("worker", index, incarnation)


def server(index: int = 0, incarnation: int = 1) -> ProcessId:
    return ProcessId("server", index, incarnation)


def plan(workers: int, servers: int, reason: str, access: Access = "direct") -> PlanChanged:
    names = [f"worker-{index}" for index in range(workers)] + [f"server-{index}" for index in range(servers)]
    return PlanChanged(workers, servers, 1, tuple(names), access, reason)


def reached(before: int, after: int, reached_s: float) -> PlanReached:
    """The event of a reached plan with another number of workers."""
    return PlanReached(Counts(before, 1, 1), Counts(after, 1, 1), reached_s, {}, None, 0, 100.0, None, None)


def lost(process: ProcessId) -> ProcessLost:
    """The event of a process that was killed."""
    return ProcessLost(process, pid=4000, code=-9, state="running", reason="signal 9")


def evaluated(samples: int, auc: float | None, logloss: float | None = None) -> EvaluationFinished:
    return EvaluationFinished(samples, 100, 0.4, auc, logloss, None, EvaluationMemory(samples), "the best so far")


def write_lines(path: Path, lines: Iterable[msgspec.Struct]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def write_journal(run: Path, *lines: JournalLine) -> None:
    write_lines(run / "journal.jsonl", lines)


def status(elapsed_s: float, samples: int, **facts: object) -> RunStatus:
    """A status with one worker and one PS."""
    processes = tuple(
        ProcessStatus(role, 0, 1, 4000 + n, "training", cpu_percent=50.0 + n, memory_bytes=100 << 20, rss_bytes=1 << 20)
        for n, role in enumerate(("worker", "server"))
    )
    known = RunStatus(
        run_dir="/runs/shop",
        job="shop",
        state="training",
        supervisor_pid=1,
        samples_planned=2000,
        samples_trained=samples,
        samples_per_s=100.0 if samples else 0.0,
        loss=0.5 if samples else None,
        processes=processes,
        plan=PlanStatus(1, 1),
        elapsed_s=elapsed_s,
        arena_bytes=50 << 20,
    )
    return msgspec.structs.replace(known, **facts)


def write_metrics(path: Path, statuses: Iterable[RunStatus]) -> None:
    store = MetricsStore(path)
    for one in statuses:
        store.add(one)
    store.close()


def write_run(run: Path, *, state: str = "done") -> Path:
    """Writes a run of ten seconds with several kinds of events."""
    run.mkdir(parents=True)
    (run / "job.resolved.toml").write_text(JOB)
    (run / "versions.json").write_text('{"python": "3.11.7", "platform": "Linux", "elastichost": "0.1.0"}')
    write_journal(
        run,
        line(0.0, STARTED),
        line(0.5, plan(1, 1, "cold start")),
        line(0.9, ProcessConnected(worker())),
        line(1.0, LeaseGranted(worker(), lease=1, epoch=0, unit=0, start=0, stop=64)),
        line(3.0, CheckpointStarted(1, "every 3 s")),
        line(3.5, CheckpointWritten("/runs/shop/checkpoints/step-300", 300, 500, 1 << 20, 0.5, 0.1, 0)),
        line(4.0, lost(worker())),
        line(4.1, LeasesSettled(worker(), trained=10, skipped=0, returned=54)),
        line(4.25, ProcessReady(worker(incarnation=2))),
        line(6.0, EvaluationStarted(600, "half of it")),
        line(6.4, evaluated(600, 0.7, 0.6)),
        line(7.0, plan(2, 1, "scale workers=2")),
        line(8.0, reached(1, 2, 0.1)),
        line(10.0, RunEnded(state)),
    )
    write_metrics(run / "metrics.db", [status(float(at_s), 100 * at_s) for at_s in range(11)])
    ended = status(10.0, 1000, state=state, run_dir=str(run))
    (run / "status.json").write_bytes(msgspec.json.encode(ended))
    return run


# --- the tuner --------------------------------------------------------------------------------------------------------

SETTINGS = TunerSettings(
    workload=Workload(batch_size=100, host_cores=4, dense_bytes=100_000, row_bytes=1000, ids_per_sample=8.0),
    bounds=Bounds(Configuration(1, 1), Configuration(4, 2, 2), cores=4, oversubscription=2.0),
    block=BlockSettings(least_s=3.0),
    explore="free",
    most_trials=4,
)


def speed(configuration: Configuration) -> float:
    """The speed of a configuration in samples/s, for batches of 100 and a limited number of cores."""
    c = configuration
    threads = c.workers * c.worker_cores
    useful = min(threads, 4) * (1.0 - 0.08 * max(0, threads - 4))
    return 5_000.0 * useful * (1 - 0.03 * (c.servers - 1))


def tuned(
    seconds: int,
    *,
    settings: TunerSettings = SETTINGS,
    began_s: float = BEGAN_S,
    slower: Callable[[float], float] = lambda _: 1.0,
) -> list[Record]:
    """The records of a run that follows the tuner's decisions at once. slower: a factor on all speeds by time."""
    rng = np.random.default_rng(settings.seed)
    state, records = TunerState(), list[Record]([TunerOpened(settings)])
    configuration, samples, noise, batches = Configuration(2, 1), 0.0, 0.0, 0.0
    for turn in range(2 * seconds):
        at_s = turn * 0.5
        noise = 0.65 * noise + 0.01 * float(rng.standard_normal())
        rate = speed(configuration) * math.exp(noise) * slower(at_s)
        samples, batches = samples + rate * 0.5, batches + rate * 0.5 / 100
        compute_s = batches * 100 * configuration.workers / rate
        totals = Totals(batches, compute_s * 0.9, compute_s * 0.05, compute_s * 0.05, 0.0, compute_s, compute_s * 0.02)
        look = ProfileSample(began_s + at_s, configuration, True, int(samples), totals)
        decision: Decision | None
        state, decision = advance(state, look, 50_000_000, settings)
        records.append(TunerLooked(look, 50_000_000, decision))
        if decision is not None:
            configuration = decision.configuration
    return records
