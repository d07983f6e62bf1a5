"""The arms: policies that decide which jobs run together, and estimates of their duration."""

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
    "UNTRACKED",
    "Arm",
    "Turn",
    "arms_of",
    "estimated_s",
    "policy_options",
    "turns",
]

SHIPPED, TUNED, OURS, RMIXER = "sequential_shipped", "sequential_tuned", "ours", "rmixer_type"
UNTRACKED = "untracked"


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm. settings: of the policy; "CORES" stands for the number of cores of the host. is_static: each job runs in
    its best static plan with the tuner off. counts_jobs: as many jobs run at once as there are cores."""

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
        Arm(SHIPPED, "exclusive", "one after another, each as it runs alone, with its tuner"),
        Arm(TUNED, "exclusive", "one after another, each in its best static plan", (), is_static=True),
        Arm("fifo", "fifo", "in order of arrival, as many jobs as cores", counts_jobs=True),
        Arm("random_1", "random", "any job that fits, drawn with seed 1", ("seed=1",), counts_jobs=True),
        Arm("random_2", "random", "any job that fits, drawn with seed 2", ("seed=2",), counts_jobs=True),
        Arm("random_3", "random", "any job that fits, drawn with seed 3", ("seed=3",), counts_jobs=True),
        Arm(RMIXER, "rmixer_type", "RMixer's rule: a job of another type than the dominant one"),
        Arm(
            "concurrency",
            "complementary",
            "ours without its parts, as many jobs as cores",
            _CONCURRENT,
            counts_jobs=True,
        ),
        Arm("memory", "complementary", "adds admission by memory", ("complementarity=false", "feedback=false")),
        Arm("complementarity", "complementary", "adds the choice of complementary jobs", ("feedback=false",)),
        Arm(OURS, "complementary", "adds feedback: the complete policy"),
        Arm(UNTRACKED, "complementary", "ours without the measured input", ("input_tracking=false",)),
    )
}
RANDOMS = tuple(name for name, arm in ARMS.items() if arm.policy == "random")
# each of these arms adds one part of the policy to the arm before it
PARTS = (SHIPPED, "concurrency", "memory", "complementarity", OURS)
# In these mixes one job can fill the cores, so that only the comparison with the sequential arms is of interest.
FEW: tuple[MixName, ...] = ("embedding_bound", "dense_bound")
FEW_ARMS = (SHIPPED, TUNED, RMIXER, OURS)
QUICK_ARMS = (SHIPPED, RMIXER, OURS)
DISK_ARMS = (SHIPPED, RMIXER, UNTRACKED, OURS)  # a static plan would be that of jobs which have the source alone


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of one arm."""

    mix: MixName
    arm: Arm
    round: int


def arms_of(mix: MixName, chosen: Sequence[str], *, quick: bool) -> tuple[Arm, ...]:
    """The arms of a mix. chosen: their names; empty for the default arms of the mix. Raises KeyError for an unknown
    name."""
    names = chosen or _default_arms(mix, quick=quick)
    return tuple(ARMS[name] for name in dict.fromkeys(names))


def _default_arms(mix: MixName, *, quick: bool) -> tuple[str, ...]:
    if mix == "disk_bound":
        return DISK_ARMS[-2:] if quick else DISK_ARMS
    if quick:
        return QUICK_ARMS
    return FEW_ARMS if mix in FEW else tuple(name for name in ARMS if name != UNTRACKED)


def turns(
    mixes: Sequence[MixName], chosen: Sequence[str], rounds: int, *, quick: bool, without: Sequence[str] = ()
) -> Iterator[Turn]:
    """All runs: in each round and mix one run of every arm; each round begins with another arm. Raises ValueError for a
    mix without arms."""
    for number in range(rounds):
        for mix in mixes:
            arms = tuple(arm for arm in arms_of(mix, chosen, quick=quick) if arm.name not in without)
            if not arms:
                raise ValueError(f"{mix}: no arm remains without {', '.join(without)}")
            first = number % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                yield Turn(mix, arm, number)


def policy_options(arm: Arm, cores: int) -> list[str]:
    """The options of `elastichost run` for an arm."""
    settings = [setting.replace("CORES", str(cores)) for setting in arm.settings]
    return ["--policy", arm.policy, *(part for setting in settings for part in ("--policy-set", setting))]


# --- durations --------------------------------------------------------------------------------------------------------

READY_S = 6.0  # time for the import of the libraries
# Share of the host that a job of a kind keeps busy; only used to estimate durations. Measured on two cores.
BUSY: dict[Kind, float] = {"input": 0.15, "embedding": 0.95, "dense": 0.95, "balanced": 0.9, "disk": 0.15}
assert set(BUSY) == set(KINDS)


def estimated_s(arm: Arm, jobs: Sequence[Job], alone_s: Mapping[Kind, float], cores: int) -> float:
    """The estimated seconds of an arm, including its start."""
    seconds = [alone_s[job.shape.kind] for job in jobs]
    if arm.is_sequential:
        return READY_S + sum(seconds)
    source_s = sum(s for s, job in zip(seconds, jobs, strict=True) if job.shape.kind == "disk")
    work_s = sum(s * BUSY[job.shape.kind] for s, job in zip(seconds, jobs, strict=True))
    at_once = cores if arm.counts_jobs else len(jobs)
    return READY_S + max(work_s, source_s, max(seconds), sum(seconds) / at_once)
