"""The largest simulated clusters: time of the simulator, time of decisions, peak memory.

`python -m benchmarks.tuner.simulated.scale [--quick] [--json] [--trace FILE] [--part NAME]`. Parts, each in a process
of its own:

engine    20,000 drawn jobs on 1,000 hosts, each as its user asked for; CPU seconds outside of the policy: at most 30
decision  4,000 jobs at once, until each of them was measured once; 99th percentile of the CPU time of one decision of
          `--policy`: at most 1 s. Nearly all of the time of this part is that of the tuners of the jobs
trace     5,000 jobs of the trace on 1,000 hosts under `--policy`; needs --trace. The times between arrivals are not
          stretched: periods of the trace are laid over each other, of the length at which the jobs ask for `--load` of
          the cores while they arrive

Aims are judged only at these sizes. Times are CPU time. The tuners of single jobs, which live runs have in processes of
their own, count neither for decisions nor for the simulator.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.harness.output import print_table, write_json
from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.jobs import SimulatedJob, draw_jobs, spread_out
from benchmarks.simulator.cluster.traces.replay import core_seconds
from benchmarks.simulator.policy_registry import POLICIES
from benchmarks.simulator.queueing import truth_tables
from benchmarks.tuner.simulated.conditions.host_mixes import HOST_MIXES
from benchmarks.tuner.simulated.conditions.trace_jobs import TraceChoice, jobs_of_trace, period_for_load
from benchmarks.tuner.simulated.plan import OURS, Plan, make_arm
from benchmarks.tuner.simulated.runs import WARM_UP, timed, timed_decisions
from elastichost.errors import ConfigError

__all__ = ["PARTS", "Scale", "ScaleFigures", "main", "measure"]

PARTS = ("engine", "decision", "trace")
ENGINE_JOBS, DECISION_JOBS, TRACE_JOBS, HOSTS = 20_000, 4_000, 5_000, 1_000
QUICK_SHARE = 100  # a quick run has this part of the jobs and the hosts
MOST_ENGINE_S, MOST_DECISION_S = 30.0, 1.0  # aims
MIB = 2**20


class Scale(msgspec.Struct, frozen=True):
    """What is measured. jobs: of the part."""

    part: str
    jobs: int
    hosts: int
    load: float = 0.9
    policy: str = OURS
    hosts_mix: str = "same"
    trace: str = ""
    seed: int = 1


class ScaleFigures(msgspec.Struct, frozen=True):
    """The figures of one part. busy: allocated share of all cores, from the first arrival to the last. engine_s,
    tuners_s, decisions_s: CPU seconds of the simulator, of the tuners of single jobs, of all decisions. period_h: in
    which the jobs of a trace arrive. peak_bytes: memory of the process. aim: "" without one."""

    scale: Scale
    policy: str
    completed: int
    busy: float
    most_at_once: int
    decisions: int
    decision_p99_s: float
    engine_s: float
    tuners_s: float
    decisions_s: float
    events: int
    period_h: float
    peak_bytes: int
    aim: str = ""


def measure(scale: Scale) -> ScaleFigures:
    """Measures one part in this process. Raises ConfigError if the trace cannot be read."""
    timed_decisions(Plan(), scale.policy, WARM_UP)  # loads modules and compiled code
    if scale.part == "decision":
        return _decision(scale)
    plan = Plan(jobs=scale.jobs, hosts=scale.hosts, hosts_mix=scale.hosts_mix)
    name = "static" if scale.part == "engine" else scale.policy
    settings = plan.settings(name)
    cores = sum(host.cores for host in settings.hosts)
    jobs = _drawn(scale, plan, cores) if scale.part == "engine" else _traced(scale, plan, cores)
    policy = timed(make_arm(name, jobs, scale.seed))
    began_s = time.process_time()
    result = simulate_jobs(jobs, policy, settings, scale.seed)
    took_s = time.process_time() - began_s
    decisions_s = sum(policy.seconds)
    engine_s = took_s - decisions_s - policy.observed_s
    aim = _aim(engine_s, MOST_ENGINE_S, scale.jobs >= ENGINE_JOBS) if scale.part == "engine" else ""
    return ScaleFigures(
        scale=scale,
        policy=name,
        completed=sum(job.outcome == "completed" for job in result.jobs),
        busy=result.busy_share,
        most_at_once=policy.most_jobs,
        decisions=result.decisions,
        decision_p99_s=float(np.quantile(policy.seconds, 0.99)),
        engine_s=engine_s,
        tuners_s=policy.observed_s,
        decisions_s=decisions_s,
        events=result.events,
        period_h=(jobs[-1].arrived_s - jobs[0].arrived_s) / 3600,
        peak_bytes=_peak_bytes(),
        aim=aim,
    )


def _decision(scale: Scale) -> ScaleFigures:
    began_s = time.process_time()
    policy = timed_decisions(Plan(hosts_mix=scale.hosts_mix), scale.policy, scale.jobs)
    took_s, decisions_s = time.process_time() - began_s, sum(policy.seconds)
    p99_s = float(np.quantile(policy.seconds, 0.99))
    return ScaleFigures(
        scale=scale,
        policy=scale.policy,
        completed=0,
        busy=0.0,
        most_at_once=policy.most_jobs,
        decisions=len(policy.seconds),
        decision_p99_s=p99_s,
        engine_s=took_s - decisions_s - policy.observed_s,
        tuners_s=policy.observed_s,
        decisions_s=decisions_s,
        events=0,
        period_h=0.0,
        peak_bytes=_peak_bytes(),
        aim=_aim(p99_s, MOST_DECISION_S, scale.jobs >= DECISION_JOBS),
    )


def _drawn(scale: Scale, plan: Plan, cores: int) -> tuple[SimulatedJob, ...]:
    """Drawn jobs that ask for the load between the first arrival and the last."""
    jobs = draw_jobs(scale.seed, scale.jobs, plan.mix, truth_tables.tables(), plan.settings("static").limits)
    lasts_s = core_seconds(jobs) / (scale.load * cores)
    return spread_out(jobs, lasts_s / max(1e-9, jobs[-1].arrived_s))


def _traced(scale: Scale, plan: Plan, cores: int) -> tuple[SimulatedJob, ...]:
    limits, choice = plan.settings(scale.policy).limits, TraceChoice(scale.trace)
    as_they_were = jobs_of_trace(choice, scale.seed, scale.jobs, plan.mix, limits)
    period_s = period_for_load(as_they_were, cores, scale.load)
    folded = msgspec.structs.replace(choice, period_s=period_s)
    return jobs_of_trace(folded, scale.seed, scale.jobs, plan.mix, limits)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _aim(seconds: float, most_s: float, is_judged: bool) -> str:
    if not is_judged:
        return f"<= {most_s:g} s, at full size"
    return f"<= {most_s:g} s: {'yes' if seconds <= most_s else 'NO'}"


# --- the command ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the parts and prints a table. Returns 2 for a trace that cannot be read or is missing, else 0."""
    chosen = _parser().parse_args(arguments)
    parts = tuple(chosen.part or (part for part in PARTS if part != "trace" or chosen.trace is not None))
    if "trace" in parts and chosen.trace is None:
        print("the part trace needs --trace FILE", file=sys.stderr)
        return 2
    share = QUICK_SHARE if chosen.quick else 1
    sizes = {"engine": ENGINE_JOBS, "decision": DECISION_JOBS, "trace": TRACE_JOBS}
    found = []
    for part in parts:
        scale = Scale(
            part=part,
            jobs=chosen.jobs or sizes[part] // share,
            hosts=chosen.hosts or HOSTS // share,
            load=chosen.load,
            policy=chosen.policy,
            hosts_mix=chosen.hosts_mix,
            trace="" if chosen.trace is None else str(chosen.trace.absolute()),
        )
        print(f"{part}: {scale.jobs:,} jobs, {scale.hosts:,} hosts", file=sys.stderr, flush=True)
        try:
            # a process of its own, because the peak of memory is that of a process
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found.append(pool.submit(measure, scale).result())
        except ConfigError as error:
            print(f"{error}", file=sys.stderr)
            return 2
    _show(found)
    if chosen.json:
        write_json("scale", {"parts": found})
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuner.simulated.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--part", action="append", choices=PARTS, help="repeatable; default: all that are possible")
    add("--jobs", type=int, default=0, help="number of jobs of every part, instead of its own")
    add("--hosts", type=int, default=0)
    add("--load", type=float, default=0.9)
    add("--policy", choices=tuple(POLICIES), default=OURS, help="of the parts decision and trace")
    add("--hosts-mix", choices=tuple(HOST_MIXES), default="same", help="kinds of hosts")
    add("--trace", type=Path, help="a trace file, as `benchmarks.simulator.cluster.traces.trace` describes them")
    add("--quick", action="store_true", help="a hundredth of the jobs and the hosts")
    add("--json", action="store_true", help="print one JSON object as the last line")
    return parser


def _show(found: Sequence[ScaleFigures]) -> None:
    header = ("part", "policy", "jobs", "hosts", "busy", "most at once", "completed", "decisions", "p99, ms")
    rows = [
        (
            one.scale.part,
            one.policy,
            f"{one.scale.jobs:,}",
            f"{one.scale.hosts:,}",
            f"{one.busy:.2f}",
            f"{one.most_at_once:,}",
            f"{one.completed:,}",
            f"{one.decisions:,}",
            f"{1e3 * one.decision_p99_s:,.1f}",
        )
        for one in found
    ]
    print_table(header, rows)
    print()
    _show_costs(found)


def _show_costs(found: Sequence[ScaleFigures]) -> None:
    header = ("part", "simulator, s", "events/s", "tuners, s", "decisions, s", "arrivals, h", "peak, MiB", "aim")
    rows = [
        (
            one.scale.part,
            f"{one.engine_s:,.1f}",
            f"{one.events / one.engine_s:,.0f}" if one.engine_s else "-",
            f"{one.tuners_s:,.1f}",
            f"{one.decisions_s:,.1f}",
            f"{one.period_h:,.1f}",
            f"{one.peak_bytes / MIB:,.0f}",
            one.aim,
        )
        for one in found
    ]
    print_table(header, rows)


if __name__ == "__main__":
    raise SystemExit(main())
