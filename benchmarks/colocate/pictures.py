"""Draws charts: speed-ups of arms by mix with the bound, and jobs and cores over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.colocate.arms import ARMS, OURS, RMIXER, SHIPPED
from benchmarks.colocate.figures import Figures, MixFigures
from benchmarks.colocate.jobs import KINDS
from benchmarks.colocate.recorded import ArmRun

__all__ = ["save_pictures"]

KIND_COLOURS = {
    "input": "#c9a876",
    "embedding": "#2a6fb0",
    "dense": "#525252",
    "balanced": "#8dbbdf",
    "disk": "#7a5195",
}
COLOURS = {OURS: "#0b3c73", SHIPPED: "#737373", "sequential_tuned": "#969696", RMIXER: "#c9a876"}
PART_COLOUR, OTHER_COLOUR, BOUND_COLOUR = "#8dbbdf", "#d9d9d9", "#b03030"
SHOWN = (SHIPPED, RMIXER, OURS)  # arms side by side in the chart of jobs over time


def save_pictures(figures: Figures, runs: Sequence[ArmRun], folder: Path) -> list[Path]:
    """Draws colocate.png, and colocate_jobs.png of one round of one mix; leaves out a chart without measurements."""
    found = []
    if any(mix.arms for mix in figures.mixes.values()):
        found.append(folder / "colocate.png")
        _speedups([mix for mix in figures.mixes.values() if mix.arms]).savefig(found[-1], dpi=120)
    if shown := _shown(runs):
        found.append(folder / "colocate_jobs.png")
        _jobs(shown).savefig(found[-1], dpi=120)
    return found


def _panels(rows: int, columns: int, width: float, height: float, **more: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **more)
    for panel in panels.flat:
        panel.grid(axis="y", linewidth=0.4, color="#dddddd")
        panel.set_axisbelow(True)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return figure, panels


def _speedups(mixes: Sequence[MixFigures]) -> Any:
    figure, panels = _panels(1, len(mixes), max(6.0, 3.4 * len(mixes)), 3.8)
    for panel, mix in zip(panels[0], mixes, strict=True):
        names = [name for name in ARMS if name in mix.arms and mix.arms[name].speedup is not None]
        for place, name in enumerate(names):
            speedup = mix.arms[name].speedup
            assert speedup is not None
            is_part = name in ("concurrency", "memory", "complementarity")
            colour = COLOURS.get(name, PART_COLOUR if is_part else OTHER_COLOUR)
            panel.bar(place, speedup.median, 0.8, color=colour)
            panel.plot([place, place], [speedup.least, speedup.most], color="#333333", linewidth=0.8)
            above = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "fontsize": 7}
            panel.annotate(f"{speedup.median:.2f}", (place, speedup.most), **above)
        if mix.bound is not None:
            panel.axhline(mix.bound.median, color=BOUND_COLOUR, linewidth=1.0)
            panel.annotate(
                f"bound {mix.bound.median:.2f}",
                (0.0, mix.bound.median),
                xycoords=("axes fraction", "data"),
                xytext=(2, 2),
                textcoords="offset points",
                color=BOUND_COLOUR,
                fontsize=7,
            )
        panel.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
        panel.set_title(f"{mix.mix}, {mix.jobs} jobs", loc="left", fontsize=9)
    panels[0][0].set_ylabel("speed-up over one after another")
    return figure


# --- jobs over time ---------------------------------------------------------------------------------------------------


def _shown(runs: Sequence[ArmRun]) -> list[ArmRun]:
    """The runs of one round, from the mix with the most kinds of jobs."""
    good = [run for run in runs if not run.failure and run.jobs]
    if not good:
        return []
    mix = max(dict.fromkeys(run.mix for run in good), key=lambda name: _kinds(good, name))
    first = min(run.round for run in good if run.mix == mix)
    by_arm = {run.arm: run for run in good if (run.mix, run.round) == (mix, first)}
    return [by_arm[name] for name in SHOWN if name in by_arm]


def _kinds(runs: Sequence[ArmRun], mix: str) -> int:
    return len({job.kind for run in runs if run.mix == mix for job in run.jobs})


def _jobs(runs: Sequence[ArmRun]) -> Any:
    """The chart of jobs over time: a bar from start to end of each job, and below it the cores in use by kind."""
    figure, panels = _panels(
        2, len(runs), 4.6 * len(runs), 5.4, sharex="all", sharey="row", gridspec_kw={"height_ratios": (3, 1)}
    )
    for above, below, run in zip(*panels, runs, strict=True):
        for place, job in enumerate(sorted(run.jobs, key=lambda one: (one.started_s, one.job))):
            above.barh(place, job.wall_s, left=job.started_s, height=0.8, color=KIND_COLOURS[job.kind])
        above.set_title(f"{run.mix}: {run.arm}, {run.makespan_s:.0f} s", loc="left", fontsize=9)
        above.set_yticks([])
        _draw_cores(below, run)
        below.set_xlabel("seconds since the host was ready")
    panels[0][0].set_ylabel("jobs, in order of start")
    panels[0][0].invert_yaxis()
    panels[1][0].set_ylabel("cores in use")
    for kind in KINDS:
        panels[0][-1].barh(0, 0, color=KIND_COLOURS[kind], label=kind)
    panels[0][-1].legend(frameon=False, fontsize=8)
    return figure


def _draw_cores(panel: Any, run: ArmRun) -> None:
    kinds = {job.job: job.kind for job in run.jobs}
    times = sorted({use.at_s for use in run.uses})
    place = {at_s: index for index, at_s in enumerate(times)}
    used = np.zeros((len(KINDS), len(times)))
    for use in run.uses:
        used[KINDS.index(kinds[use.job]), place[use.at_s]] += use.cores
    if times:
        panel.stackplot(times, used, colors=[KIND_COLOURS[kind] for kind in KINDS], step="post")
    panel.axhline(run.cores, color=BOUND_COLOUR, linewidth=0.8)
    panel.set_ylim(bottom=0)
