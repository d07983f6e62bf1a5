"""The arms: who runs beside whom, by which rule, and about how long each will take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.colocate.jobs import KINDS, Job, Kind, MixName

__all__ = [
    "ARMS",
    "OURS",
    "PARTS",
    "RANDOMS",
    "RMIXER",
    "SHIPPED",
    "TUNED",
    "Arm",
    "Turn",
    "arms_of",
    "estimated_s",
    "policy_options",
    "turns",
]

SHIPPED, TUNED, OURS, RMIXER = "sequential_shipped", "sequential_tuned", "ours", "rmixer_type"


@dataclass(frozen=True, slots=True)
class Arm:
    """settings: of the policy; "CORES" stands for the host's. is_static: each job in its best static plan, its tuner
    off. counts_jobs: it runs as many jobs at once as there are cores."""

    name: str
    policy: str
    about: str
    settings: tuple[str, ...] = ()
    is_static: bool = False
    counts_jobs: bool = False

    @property
    def is_sequential(self) -> bool:
        return self.policy == "exclusive"


_CONCURRENT = ("complementarity=false", "memory_admission=false", "feedback=false", "most_jobs=CORES")
ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(SHIPPED, "exclusive", "one after another, each as it would run alone, its tuner acting"),
        Arm(TUNED, "exclusive", "one after another, each in its best static plan", (), is_static=True),
        Arm("fifo", "fifo", "in order of arrival, as many as there are cores", counts_jobs=True),
        Arm("random_1", "random", "any that fits, drawn with seed 1", ("seed=1",), counts_jobs=True),
        Arm("random_2", "random", "with seed 2", ("seed=2",), counts_jobs=True),
        Arm("random_3", "random", "with seed 3", ("seed=3",), counts_jobs=True),
        Arm(RMIXER, "rmixer_type", "RMixer's rule: another type than the one that dominates"),
        Arm(
            "concurrency",
            "complementary",
            "ours, only as many as there are cores",
            _CONCURRENT,
            counts_jobs=True,
        ),
        Arm("memory", "complementary", "with admission by memory", ("complementarity=false", "feedback=false")),
        Arm("complementarity", "complementary", "with who adds most to the worth of the host", ("feedback=false",)),
        Arm(OURS, "complementary", "with feedback: all of it"),
    )
}
RANDOMS = tuple(name for name, arm in ARMS.items() if arm.policy == "random")
# what each part adds to the one before it
PARTS = (SHIPPED, "concurrency", "memory", "complementarity", OURS)
# Where no more is to be had than full cores, what decides is the sequential arms.
FEW: tuple[MixName, ...] = ("embedding_bound", "dense_bound")
FEW_ARMS = (SHIPPED, TUNED, RMIXER, OURS)
QUICK_ARMS = (SHIPPED, RMIXER, OURS)


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of one arm."""

    mix: MixName
    arm: Arm
    round: int


def arms_of(mix: MixName, chosen: Sequence[str], *, quick: bool) -> tuple[Arm, ...]:
    """chosen: by name; none: those that are usual for the mix. Raises KeyError for a name that is none."""
    names = chosen or (QUICK_ARMS if quick else FEW_ARMS if mix in FEW else tuple(ARMS))
    return tuple(ARMS[name] for name in dict.fromkeys(names))


def turns(
    mixes: Sequence[MixName], chosen: Sequence[str], rounds: int, *, quick: bool, without: Sequence[str] = ()
) -> Iterator[Turn]:
    """Round by round, in each mix one run of every arm; each round begins with another arm. Raises ValueError where no
    arm is left."""
    for number in range(rounds):
        for mix in mixes:
            arms = tuple(arm for arm in arms_of(mix, chosen, quick=quick) if arm.name not in without)
            if not arms:
                raise ValueError(f"{mix}: no arm is left without {', '.join(without)}")
            first = number % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                yield Turn(mix, arm, number)


def policy_options(arm: Arm, cores: int) -> list[str]:
    """Of `run`."""
    settings = [setting.replace("CORES", str(cores)) for setting in arm.settings]
    return ["--policy", arm.policy, *(part for setting in settings for part in ("--policy-set", setting))]


# --- how long ---------------------------------------------------------------------------------------------------------

READY_S = 6.0  # until the libraries are imported
# Of the host that a job of a kind keeps busy, for the plan alone: measured on two cores, and all below 1.
BUSY: dict[Kind, float] = {"input": 0.15, "embedding": 0.95, "dense": 0.95, "balanced": 0.9}
assert set(BUSY) == set(KINDS)


def estimated_s(arm: Arm, jobs: Sequence[Job], alone_s: Mapping[Kind, float], cores: int) -> float:
    """Seconds that an arm will take, its start too."""
    seconds = [alone_s[job.shape.kind] for job in jobs]
    if arm.is_sequential:
        return READY_S + sum(seconds)
    work_s = sum(s * BUSY[job.shape.kind] for s, job in zip(seconds, jobs, strict=True))
    at_once = cores if arm.counts_jobs else len(jobs)
    return READY_S + max(work_s, max(seconds), sum(seconds) / at_once)
