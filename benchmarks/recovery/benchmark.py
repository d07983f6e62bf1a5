"""Recovery: what the death of a process costs, and the elastic peer (torchrun) on the same machine.

    python -m elastichost bench recovery            about ten minutes
    python -m elastichost bench recovery --quick    a few of each: two minutes

Real runs, real kills. Seconds are from the signal itself:

    noticed    the supervisor knows: an exit, or (SIGSTOP) a hang
    back       the successor works: a worker has committed its first batch, a PS serves
    full       training is at 95 % of its rate before, over 0.3 s
    lost       seconds of undisturbed training that are missing in the three seconds after it; the undisturbed rate is
               the mean of that before and that after them

The goodput at one fault a minute is extrapolated from `lost`. A peer's `back`: all its ranks train again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.harness.measuring import print_table, write_json
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.harness.workshop import Workshop
from benchmarks.recovery import scale_out
from benchmarks.recovery.course import Percentiles, goodput_at, percentiles_of
from benchmarks.recovery.torchrun import PeerHurt, measure_peer
from benchmarks.recovery.watched_run import Hurt, watched

__all__ = ["main"]

MINUTE_S = 60.0
DEFAULT_EVERY_S = 60.0  # between two checkpoints, if a job does not say
AIMS = {"noticed": 0.2, "hang": 3.0, "worker": 1.0, "server": 1.0, "scale out": 0.3}
PARTS = ("kills", "checkpoints", "scale-out", "peer")


class Killed(msgspec.Struct, frozen=True):
    """Of the kills of one role. `never_full`: how many were not at their full rate within the time watched."""

    noticed: Percentiles
    back: Percentiles
    full: Percentiles | None
    never_full: int
    lost: Percentiles
    goodput_at_one_a_minute: float


class Checkpoints(msgspec.Struct, frozen=True):
    """share: of the run time, with one checkpoint every 60 s."""

    times: int
    bytes: int
    stall: Percentiles
    stall_s_per_gb: float
    share: float


class Peer(msgspec.Struct, frozen=True):
    """torchrun, two ranks. never_back: kills after which its ranks did not come to train again, and it had to be
    started anew; steps_lost: done again after each kill, on average."""

    back: Percentiles | None
    never_back: int
    steps_lost: float


class Figures(msgspec.Struct, frozen=True):
    """None: was left out. aims_s: of the medians."""

    worker: Killed | None = None
    server: Killed | None = None
    hang: Percentiles | None = None
    checkpoints: Checkpoints | None = None
    scale_out: scale_out.Figures | None = None
    peer: Peer | None = None
    aims_s: dict[str, float] = msgspec.field(default_factory=AIMS.copy)


class Amounts(msgspec.Struct, frozen=True):
    """How often each thing is done."""

    kills: int
    hangs: int
    checkpoints: int
    scale_outs: int
    hand_overs: int
    peer_kills: int


FULL = Amounts(kills=30, hangs=5, checkpoints=10, scale_outs=30, hand_overs=10, peer_kills=10)
QUICK = Amounts(kills=4, hangs=1, checkpoints=3, scale_outs=3, hand_overs=2, peer_kills=2)


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(job: Path, amounts: Amounts, settings: Sequence[str], parts: Sequence[str]) -> Figures:
    """Raises RuntimeError when a run ends meanwhile."""
    figures = Figures()
    if "kills" in parts:
        figures = _kills(job, amounts, settings)
    if "checkpoints" in parts:
        figures = msgspec.structs.replace(figures, checkpoints=_checkpoints(job, amounts, settings))
    if "scale-out" in parts:
        found = scale_out.measure(job, amounts.scale_outs, settings, amounts.hand_overs)
        figures = msgspec.structs.replace(figures, scale_out=found)
    if "peer" in parts:
        _say(f"torchrun, {amounts.peer_kills} kills")
        with Workshop() as workshop:
            hurt = measure_peer(amounts.peer_kills, workshop)
        figures = msgspec.structs.replace(figures, peer=peer_of(hurt))
    return figures


def _kills(job: Path, amounts: Amounts, settings: Sequence[str]) -> Figures:
    """Workers and PS in turns: a machine that drifts drifts for both."""
    found: dict[Literal["worker", "server"], list[Hurt]] = {"worker": [], "server": []}
    with Workshop() as workshop, watched(job, ["checkpoint.every_s=1e6", *settings], workshop, "kills") as run:
        for number in range(amounts.kills):
            for role in found:
                _say(f"kill {number + 1} of {amounts.kills}: {role}")
                found[role].append(run.kill(role, number))
        hangs = [run.stop(number) for number in range(amounts.hangs)]
    return Figures(worker=killed_of(found["worker"]), server=killed_of(found["server"]), hang=percentiles_of(hangs))


def killed_of(found: Sequence[Hurt]) -> Killed:
    """Raises ValueError when there are none."""
    full = [one.full_s for one in found if one.full_s is not None]
    lost = [one.lost_s for one in found]
    return Killed(
        noticed=percentiles_of([one.noticed_s for one in found]),
        back=percentiles_of([one.back_s for one in found]),
        full=percentiles_of(full) if full else None,
        never_full=len(found) - len(full),
        lost=percentiles_of(lost),
        goodput_at_one_a_minute=goodput_at(sum(lost) / len(lost), MINUTE_S),
    )


def _checkpoints(job: Path, amounts: Amounts, settings: Sequence[str]) -> Checkpoints:
    with Workshop() as workshop, watched(job, ["checkpoint.every_s=2", *settings], workshop, "checkpoints") as run:
        run.wait_whole()
        # the first one touches fresh pages for its copies; they are kept
        _, *events = run.checkpoints(amounts.checkpoints + 1)
    return checkpoints_of([(event.stall_s, event.bytes) for event in events])


def checkpoints_of(found: Sequence[tuple[float, int]]) -> Checkpoints:
    """(seconds of standstill, bytes) of each. Raises ValueError when there are none."""
    stalls = percentiles_of([stall_s for stall_s, _ in found])
    bytes_each = max(count for _, count in found)
    return Checkpoints(
        times=len(found),
        bytes=bytes_each,
        stall=stalls,
        stall_s_per_gb=stalls.p50 / (bytes_each / 1e9),
        share=stalls.p50 / (DEFAULT_EVERY_S + stalls.p50),
    )


def peer_of(hurt: Sequence[PeerHurt]) -> Peer:
    """Raises ZeroDivisionError when there are none."""
    back = [one.back_s for one in hurt if one.back_s is not None]
    lost = sum(one.steps_lost for one in hurt) / len(hurt)
    return Peer(percentiles_of(back) if back else None, len(hurt) - len(back), lost)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- what is shown ----------------------------------------------------------------------------------------------------


def rows_of(figures: Figures) -> list[tuple[str, ...]]:
    """Lines of the table: name, median, p99, worst, aim."""
    rows: list[tuple[str, ...]] = []

    def add(name: str, found: Percentiles | scale_out.Percentiles | None, aim: str = "") -> None:
        if found is not None:
            goal = f"<= {AIMS[aim]:g}" if aim else ""
            rows.append((name, f"{found.p50:.2f}", f"{found.p99:.2f}", f"{found.worst:.2f}", goal))

    for name, killed, aim in (("worker", figures.worker, "worker"), ("PS", figures.server, "server")):
        if killed is not None:
            add(f"{name} killed: noticed", killed.noticed, "noticed")
            add("  back", killed.back, aim)
            add("  full rate", killed.full, aim)
            add("  training lost", killed.lost)
    add("worker stopped: noticed", figures.hang, "hang")
    if figures.scale_out is not None:
        add("scale out: first batch", figures.scale_out.total, "scale out")
    if figures.checkpoints is not None:
        add("checkpoint: standstill", figures.checkpoints.stall)
    if figures.peer is not None:
        add("torchrun, rank killed: back", figures.peer.back)
    return rows


def show(figures: Figures) -> None:
    """On stdout."""
    print_table(("seconds", "median", "p99", "worst", "aim"), rows_of(figures))
    for name, killed in (("worker", figures.worker), ("PS", figures.server)):
        if killed is not None:
            share = killed.goodput_at_one_a_minute
            print(f"goodput at one killed {name} a minute: {share:.1%} (aim 98 %), from {killed.lost.times} kills")
    if figures.checkpoints is not None:
        found = figures.checkpoints
        print(
            f"checkpoint: {found.stall_s_per_gb:.2f} s of standstill per GB (aim 0.5), {found.share:.2%} of the time "
            f"with one every {DEFAULT_EVERY_S:g} s (aim 1 %)"
        )
    if figures.peer is not None:
        stuck = figures.peer.never_back
        never = f"; {stuck} times its ranks never trained again" if stuck else ""
        print(f"torchrun: {figures.peer.steps_lost:.0f} steps done again after each kill{never}")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="elastichost bench recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few of each")
    parser.add_argument(
        "--job", type=Path, default=EXAMPLES / "synthetic.toml", help="job file (the synthetic example)"
    )
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help=f"comma-separated: {', '.join(PARTS)}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="more settings of the job")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    chosen = parser.parse_args(argv)
    parts = chosen.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    figures = measure(chosen.job, QUICK if chosen.quick else FULL, chosen.set, parts)
    show(figures)
    if chosen.json:
        write_json("recovery", figures)


if __name__ == "__main__":
    main()
