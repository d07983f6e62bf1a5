"""Prints the figures as tables on stdout."""

from __future__ import annotations

from benchmarks.colocate.arms import ARMS, OURS, SHIPPED, TUNED, UNTRACKED
from benchmarks.colocate.figures import DISTURBED, ArmFigures, Figures, MixFigures, verdicts_of
from benchmarks.colocate.quality import MemoryEstimates, Parity
from benchmarks.colocate.recorded import Campaign
from benchmarks.harness.aggregates import Spread
from benchmarks.harness.output import print_table
from benchmarks.harness.runner import print_verdicts

__all__ = ["show"]

HEADER = ("arm", "makespan s", "samples/s", "speed-up", "ours over it", "worst slowdown", "turnaround s", "busy", "OOM")
EVEN = 1.03  # co-location counts as a gain if ours / sequential tuned is at least this


def show(figures: Figures, campaign: Campaign) -> None:
    """Prints all figures on stdout."""
    machine = campaign.machine
    print(f"size {campaign.size}, {campaign.jobs} jobs a mix; {machine.cpu}, {machine.cores} cores, {machine.system}")
    if campaign.gpu:
        print(f"Dense parts on a GPU ({campaign.gpu}), one worker a job; bounds consider only the CPU and its memory.")
    if figures.commits:
        print("Commits (+: with changed files): " + ", ".join(f"{n} runs of {c}" for c, n in figures.commits.items()))
    print("Makespan: from the moment the host is ready (libraries are imported) to the end of the last job.")
    print("Input jobs have one reader with one connection of a fixed rate in every arm: `resources.workers = 1`.")
    for mix in figures.mixes.values():
        print(f"\n=== {mix.mix}: {mix.jobs} jobs\n")
        _show_mix(mix)
    print()
    _show_memory("memory estimates, all arms that share the host", figures.memory)
    _show_memory("memory estimates, ours", figures.memory_of_ours)
    _show_alone(figures)
    print()
    print_verdicts(verdicts_of(figures))


def _show_mix(mix: MixFigures) -> None:
    if mix.arms:
        print_table(HEADER, [_row(name, one) for name, one in mix.arms.items()])
        print()
    for name in mix.arms:
        print(f"  {name}: {ARMS[name].about}")
    if mix.bound is not None:
        print(f"\nbound: {_short(mix.bound)} times as fast as one after another; {mix.binding}")
        print(f"ours reaches {_or_dash(mix.ours_over_bound)} of the bound")
    if mix.bound_of_plans is not None:
        reached = _or_dash(mix.ours_over_bound_of_plans)
        print(f"bound with static plans allowed: {_short(mix.bound_of_plans)}; ours reaches {reached} of that bound")
    if mix.ours_over_random is not None:
        print(f"ours over random, all its seeds: {_short(mix.ours_over_random)}")
    if (tuned := mix.arms.get(TUNED)) is not None and tuned.ours_over is not None:
        print(f"ours over sequential tuned: {_short(tuned.ours_over)}{_plainly(tuned.ours_over)}")
    if (untracked := mix.arms.get(UNTRACKED)) is not None and untracked.ours_over is not None:
        print(f"gain by tracking the input, ours over untracked: {_short(untracked.ours_over)}")
    if mix.parts:
        print("parts of the gain: " + ", ".join(f"{name} x {_short(one)}" for name, one in mix.parts.items()))
    if mix.auc is not None:
        print(_auc(mix.auc))
    for name, one in mix.arms.items():
        if one.foreign_share > DISTURBED:
            print(f"{name} was disturbed: other processes used {one.foreign_share:.0%} of the machine")
    for name, why in mix.failures.items():
        print(f"FAILED {name}: {why}")


def _row(name: str, one: ArmFigures) -> tuple[str, ...]:
    return (
        name,
        _short(one.makespan_s),
        f"{one.samples_per_s.median:,.0f}",
        "" if name == SHIPPED else _or_dash(one.speedup),
        "" if name == OURS else _or_dash(one.ours_over),
        _or_dash(one.worst_slowdown),
        f"{one.turnaround_s.median:.1f}",
        f"{one.busy.median:.0%}",
        str(one.out_of_memory),
    )


def _short(spread: Spread) -> str:
    """The median, with the range if there is one."""
    return str(spread) if spread.least < spread.most else f"{spread.median:.3g}"


def _or_dash(spread: Spread | None) -> str:
    return _short(spread) if spread is not None else "-"


def _plainly(over_tuned: Spread) -> str:
    if over_tuned.median >= EVEN:
        return ""
    return ": co-location gains nothing here" + (" and costs time" if over_tuned.median < 1 / EVEN else "")


def _auc(found: Parity) -> str:
    spread = "-" if found.spread_over_seeds is None else f"{found.spread_over_seeds:.4f}"
    verdict = {True: " (within chance)", False: " (MORE than chance)", None: ""}[found.is_noise]
    planted = "" if found.planted is None else f"; {found.planted:.1%} of the AUC of the true probabilities"
    return (
        f"AUC of {found.jobs} jobs, ours minus sequential: largest {found.largest:+.4f} ({found.largest_job}), mean "
        f"{found.mean:+.4f}; standard deviation over seeds of one job {spread}{verdict}{planted}"
    )


def _show_memory(what: str, found: MemoryEstimates) -> None:
    if found.p50 is None or found.p90 is None or found.max_under is None or found.max_over is None:
        return
    unseen = f"; {found.unseen} more without a measured peak" if found.unseen else ""
    print(
        f"{what}: |error| median {found.p50:.1%}, 90 % below {found.p90:.1%}; under by {found.max_under:.1%} at most, "
        f"over by {found.max_over:.1%} ({found.jobs} jobs{unseen})"
    )


def _show_alone(figures: Figures) -> None:
    for kind, seconds in figures.alone_s.items():
        cold_s = figures.cold_s.get(kind)
        beside = f"; `run JOB`, which imports torch first: {cold_s:.1f} s" if cold_s is not None else ""
        print(f"one {kind} job alone, libraries imported: {seconds:.1f} s{beside}")
    if figures.plans:
        print("best static plans, workers: " + ", ".join(f"{shape} {n}" for shape, n in figures.plans.items()))
