"""How long runs will take: as long as kept runs of the same arm took, else as estimated. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from benchmarks.colocate.arms import Turn, estimated_s
from benchmarks.colocate.jobs import Size, jobs_of
from benchmarks.colocate.recorded import ArmRun

__all__ = ["DurationOf", "duration_of", "mixes_told"]

DurationOf = Callable[[Turn], float]


def duration_of(kept: Iterable[ArmRun], size: Size, count: int, cores: int) -> DurationOf:
    """A function that returns the expected seconds of a run, including its start. count: of the jobs in a mix."""
    took_s: dict[tuple[str, str], list[float]] = {}
    for run in kept:
        if not run.failure:
            took_s.setdefault((run.mix, run.arm), []).append(run.wall_s)

    def expected_s(turn: Turn) -> float:
        known = took_s.get((turn.mix, turn.arm.name))
        return median(known) if known else estimated_s(turn.arm, jobs_of(turn.mix, count, size), size.alone_s, cores)

    return expected_s


def mixes_told(turns: Sequence[Turn], expected_s: DurationOf) -> Iterable[str]:
    """A line for each mix that has runs left: how many, and how long they will take."""
    for mix in dict.fromkeys(turn.mix for turn in turns):
        left = [turn for turn in turns if turn.mix == mix]
        arms = ", ".join(dict.fromkeys(turn.arm.name for turn in left))
        rounds = len({turn.round for turn in left})
        total_s = sum(map(expected_s, left))
        yield f"{mix}: {len(left)} runs in {rounds} rounds, about {total_s / 60:.0f} min: {arms}"
