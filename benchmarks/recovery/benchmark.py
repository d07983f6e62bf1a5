"""Recovery: the cost of the death of a process, compared with an elastic peer (torchrun) on this machine.

    python -m elastichost bench recovery            about ten minutes
    python -m elastichost bench recovery --quick    a few of each: two minutes

Real runs, real kills. All times are seconds from the signal:

    noticed    the supervisor has detected the exit, or (after SIGSTOP) the hang
    back       the successor works: a worker has committed its first batch, a PS serves
    full       training is at 95 % of the rate before the fault, over 0.3 s
    lost       seconds of undisturbed training that are missing in the three seconds after the signal; the undisturbed
               rate is the mean of the rates before and after these seconds

The goodput at one fault a minute is extrapolated from `lost`. For the peer, `back` means that all its ranks train
again.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.harness.aggregates import Percentiles, percentiles_of
from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.harness.workshop import Workshop
from benchmarks.recovery import scale_out
from benchmarks.recovery.course import goodput_at
from benchmarks.recovery.torchrun import PeerHurt, killed_ranks
from benchmarks.recovery.watched_run import Hurt, RunWatched, watched

__all__ = ["PARTS", "Amounts", "checkpoints_of", "hangs_of", "kills_of", "main", "peer_of"]

MINUTE_S = 60.0
DEFAULT_EVERY_S = 60.0  # between two checkpoints, by default
AIMS_S = {"noticed": 0.2, "hang": 3.0, "worker": 1.0, "server": 1.0, "scale out": scale_out.AIM_S}
PARTS = ("kills", "checkpoints", "scale-out", "peer")
WORKER, SERVER = "worker killed", "PS killed"
GOODPUT = "goodput at one a minute"


class Amounts(msgspec.Struct, frozen=True):
    """The number of repetitions of each part."""

    kills: int
    hangs: int
    checkpoints: int
    scale_outs: int
    hand_overs: int
    peer_kills: int


FULL = Amounts(kills=30, hangs=5, checkpoints=10, scale_outs=30, hand_overs=10, peer_kills=10)
QUICK = Amounts(kills=4, hangs=1, checkpoints=3, scale_outs=3, hand_overs=2, peer_kills=2)


class Stall(msgspec.Struct, frozen=True):
    """One checkpoint: the seconds in which training stands still, and its bytes."""

    stall_s: float
    bytes: int


# --- what is measured -------------------------------------------------------------------------------------------------


def kills_of(job: RunWatched, times: int) -> Benchmark[Hurt]:
    """The benchmark that kills workers and PS alternately."""

    def kill(role: Literal["worker", "server"]) -> Callable[[int], Hurt]:
        return lambda number: job.kill(role, number)

    aims_s = {"noticed": (AIMS_S["noticed"],) * 2, "back": (AIMS_S["worker"], AIMS_S["server"])}
    aims_s["full rate"] = aims_s["back"]
    return Benchmark(
        title="a process is killed: seconds from the signal, medians",
        arms={WORKER: kill("worker"), SERVER: kill("server")},
        rounds=Rounds(times),
        figures=(
            Figure("noticed", "s", lambda one: one.noticed_s, percentiles_of, ".2f"),
            Figure("back", "s", lambda one: one.back_s, percentiles_of, ".2f"),
            Figure("full rate", "s", lambda one: one.full_s, percentiles_of, ".2f"),
            Figure("never at the full rate while watched", "", lambda one: one.full_s is None, sum, ".0f"),
            Figure("training lost", "s", lambda one: one.lost_s, percentiles_of, ".2f"),
            Figure(GOODPUT, "", lambda one: one.lost_s, _goodput, ".1%"),
        ),
        aims=(
            *(
                Aim(name, bound, "at most", arm, ".2f")
                for name, bounds in aims_s.items()
                for arm, bound in zip((WORKER, SERVER), bounds, strict=True)
            ),
            *(Aim(GOODPUT, 0.98, "at least", arm, ".1%") for arm in (WORKER, SERVER)),
        ),
    )


def _goodput(lost_s: Sequence[float]) -> float:
    return goodput_at(sum(lost_s) / len(lost_s), MINUTE_S)


def hangs_of(job: RunWatched, times: int) -> Benchmark[float]:
    return Benchmark(
        title="a worker is stopped (SIGSTOP) and never resumed",
        arms={"worker stopped": lambda number: job.stop(number)},
        rounds=Rounds(times),
        figures=(Figure("hang noticed", "s", lambda seconds: seconds, percentiles_of, ".2f"),),
        aims=(Aim("hang noticed", AIMS_S["hang"], "at most", form=".2f"),),
    )


def checkpoints_of(next_stall: Callable[[int], Stall], times: int) -> Benchmark[Stall]:
    return Benchmark(
        title=f"checkpoints; share of the time with one checkpoint every {DEFAULT_EVERY_S:g} s",
        arms={"checkpoint": next_stall},
        rounds=Rounds(times),
        figures=(
            Figure("standstill", "s", lambda one: one.stall_s, percentiles_of, ".2f"),
            Figure("size", "MB", lambda one: one.bytes / 1e6, max, ",.0f"),
            Figure("standstill per GB", "s", lambda one: one.stall_s / (one.bytes / 1e9), percentiles_of, ".2f"),
            Figure("share of the time", "", lambda one: one.stall_s, _share, ".2%"),
        ),
        aims=(
            Aim("standstill per GB", 0.5, "at most", form=".2f"),
            Aim("share of the time", 0.01, "at most", form=".2%"),
        ),
    )


def _share(stalls_s: Sequence[float]) -> float:
    typical_s = percentiles_of(stalls_s).p50
    return typical_s / (DEFAULT_EVERY_S + typical_s)


def peer_of(next_kill: Callable[[int], PeerHurt], times: int) -> Benchmark[PeerHurt]:
    """The benchmark of torchrun. never back: kills after which its ranks did not train again, so that torchrun had to
    be started again."""
    return Benchmark(
        title="torchrun, two ranks",
        arms={"torchrun, rank killed": next_kill},
        rounds=Rounds(times),
        figures=(
            Figure("back", "s", lambda one: one.back_s, percentiles_of, ".2f"),
            Figure("never back", "times", lambda one: one.back_s is None, sum, ".0f"),
            Figure("steps done again", "", lambda one: one.steps_lost, _mean, ".0f"),
        ),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# --- the parts --------------------------------------------------------------------------------------------------------


def measure(job: Path, amounts: Amounts, settings: Sequence[str], parts: Sequence[str]) -> dict[str, Outcome[Any]]:
    """Measures the parts and returns their outcomes by name. Raises RuntimeError if a run ends during a measurement."""
    return {name: found for part in parts for name, found in _part(part, job, amounts, settings)}


def _part(part: str, job: Path, amounts: Amounts, settings: Sequence[str]) -> Iterator[tuple[str, Outcome[Any]]]:
    match part:
        case "kills":
            with Workshop() as workshop, watched(job, ["checkpoint.every_s=1e6", *settings], workshop, part) as hurt:
                yield "kills", run(kills_of(hurt, amounts.kills))
                yield "hangs", run(hangs_of(hurt, amounts.hangs))
        case "checkpoints":
            with Workshop() as workshop, watched(job, ["checkpoint.every_s=2", *settings], workshop, part) as written:
                yield "checkpoints", run(checkpoints_of(_stalls(written), amounts.checkpoints))
        case "scale-out":
            joined, moved = scale_out.measure(job, amounts.scale_outs, settings, amounts.hand_overs)
            yield from (("scale out", joined), ("hand over", moved))
        case "peer":
            with Workshop() as workshop, contextlib.closing(killed_ranks(workshop)) as kills:
                yield "peer", run(peer_of(lambda _: next(kills), amounts.peer_kills))


def _stalls(written: RunWatched) -> Callable[[int], Stall]:
    """The stalls of checkpoints, without the first one: it touches fresh pages for its copies, and later ones reuse
    them."""

    def next_stall(number: int) -> Stall:
        if number == 0:
            written.wait_whole()
            written.next_checkpoint()
        event = written.next_checkpoint()
        return Stall(event.stall_s, event.bytes)

    return next_stall


# --- for programs -----------------------------------------------------------------------------------------------------


def figures_of(outcomes: dict[str, Outcome[Any]]) -> dict[str, object]:
    """The figures for the JSON output; None for a part that was left out. aims_s: bounds of the medians."""
    found: dict[str, object] = dict.fromkeys(("worker", "server", "hang", "checkpoints", "scale_out", "peer"))
    if (kills := outcomes.get("kills")) is not None:
        found |= {"worker": _killed(kills, WORKER), "server": _killed(kills, SERVER)}
    if (hangs := outcomes.get("hangs")) is not None:
        found["hang"] = hangs.figure("hang noticed", "worker stopped")
    if (checkpoints := outcomes.get("checkpoints")) is not None:
        found["checkpoints"] = _checkpoints(checkpoints)
    if "scale out" in outcomes:
        joined, moved = outcomes["scale out"], outcomes["hand over"]
        found["scale_out"] = scale_out.figures_of(joined.values(scale_out.JOINS), moved.values(scale_out.MOVES))
    if (peer := outcomes.get("peer")) is not None:
        (arm,) = peer.benchmark.arms
        names = {"back": "back", "never_back": "never back", "steps_lost": "steps done again"}
        found["peer"] = {key: peer.figure(name, arm) for key, name in names.items()}
    return {**found, "aims_s": AIMS_S}


def _killed(kills: Outcome[Hurt], arm: str) -> dict[str, object]:
    names = {
        "noticed": "noticed",
        "back": "back",
        "full": "full rate",
        "never_full": "never at the full rate while watched",
        "lost": "training lost",
        "goodput_at_one_a_minute": GOODPUT,
    }
    return {key: kills.figure(name, arm) for key, name in names.items()}


def _checkpoints(outcome: Outcome[Stall]) -> dict[str, object]:
    stalls = outcome.values("checkpoint")
    stall, bytes_each = outcome.figure("standstill", "checkpoint"), max(one.bytes for one in stalls)
    assert isinstance(stall, Percentiles)
    return {
        "times": len(stalls),
        "bytes": bytes_each,
        "stall": stall,
        "stall_s_per_gb": stall.p50 / (bytes_each / 1e9),
        "share": outcome.figure("share of the time", "checkpoint"),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few repetitions of each part")
    parser.add_argument(
        "--job", type=Path, default=EXAMPLES / "synthetic.toml", help="job file (the synthetic example)"
    )
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help=f"comma-separated: {', '.join(PARTS)}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting of the job; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(argv)
    parts = chosen.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    outcomes = measure(chosen.job, QUICK if chosen.quick else FULL, chosen.set, [one for one in PARTS if one in parts])
    print_outcomes(list(outcomes.values()))
    if chosen.json:
        verdicts = [verdict for outcome in outcomes.values() for verdict in outcome.verdicts()]
        write_json("recovery", figures_of(outcomes), verdicts)
    return exit_code(outcomes.values())
