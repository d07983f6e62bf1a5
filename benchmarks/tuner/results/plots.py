"""Plots of the tuner's benchmarks: accuracy by job, the course of live runs, policies on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.tuner import live, real
from benchmarks.tuner.simulated import benchmark as simulated

__all__ = ["save_plots"]

COLOURS = {
    "elastichost": "#0b3c73",
    "queues": "#5b9bd0",
    "dlrover_rm": "#c9a876",
    "optimus": "#969696",
    "pollux": "#bdbdbd",
    "oracle": "#525252",
}
OTHER = "#d9d9d9"


def save_plots(figures: Mapping[str, msgspec.Raw], folder: Path) -> dict[str, str]:
    """Draws the plots into `folder`. figures: kept figures by part. Returns the file names by part."""
    makers: dict[str, Callable[[msgspec.Raw], Any]] = {"real": _accuracy, "live": _courses, "simulated": _policies}
    found = {}
    for name, make in makers.items():
        if name in figures:
            found[name] = f"tuner_{name}.png"
            make(figures[name]).savefig(folder / found[name], dpi=120, metadata={"Software": None})
    return found


def _panels(count: int, width: float, height: float) -> tuple[Any, Sequence[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for panel in panels:
        panel.grid(axis="y", linewidth=0.4, color="#dddddd")
        panel.set_axisbelow(True)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return figure, panels


def _accuracy(raw: msgspec.Raw) -> Any:
    found = msgspec.json.decode(raw, type=real.Figures)
    figure, (panel,) = _panels(1, 9.0, 3.6)
    arms = [arm for arm in real.ARMS if arm in COLOURS]
    width = 0.8 / len(arms)
    for number, model in enumerate(arms):
        for place, (name, models) in enumerate(found.by_case.items()):
            one = models[model]
            middle, at = 100 * one.median, place + (number - (len(arms) - 1) / 2) * width
            panel.bar(at, middle, 0.92 * width, color=COLOURS[model], label=model if place == 0 else None)
            panel.plot([at, at], [middle, 100 * one.p90], color="#333333", linewidth=0.8)
            panel.plot([at - 0.3 * width, at + 0.3 * width], [100 * found.repeatability[name]] * 2, color="#b03030")
    panel.set_xticks(range(len(found.by_case)), list(found.by_case), rotation=15, fontsize=8)
    panel.set_ylabel("held-out error, %")
    panel.set_title(
        "Median over runs (line: P90; red: how much blocks of one configuration differ)", loc="left", fontsize=9
    )
    panel.legend(frameon=False, fontsize=8)
    return figure


def _courses(raw: msgspec.Raw) -> Any:
    found = msgspec.json.decode(raw, type=live.Figures)
    names = list(found.end_over_best)
    figure, panels = _panels(len(names), 4.5 * len(names), 3.4)
    for panel, name in zip(panels, names, strict=True):
        at_s = [(number + 0.5) * live.WINDOW_S for number in range(len(found.course[name]))]
        panel.plot(at_s, found.course[name], color=COLOURS["elastichost"], linewidth=1.2, marker=".")
        for plan, share in found.plans.items():
            panel.axhline(share.median, color="#969696", linewidth=0.7, linestyle=":")
            panel.annotate(plan, (1.0, share.median), xycoords=("axes fraction", "data"), fontsize=7)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("seconds of training")
        panel.set_title(f"start: {name}", loc="left", fontsize=9)
    panels[0].set_ylabel("speed over the best static plan's")
    return figure


def _policies(raw: msgspec.Raw) -> Any:
    found = msgspec.json.decode(raw, type=simulated.Results)
    column = found.columns.get("sensible") or next(iter(found.columns.values()))
    names = sorted(column.ratios, key=lambda name: column.ratios[name]["oracle"].mean)
    figure, panels = _panels(2, 9.0, 3.6)
    for place, name in enumerate(names):
        ratio = column.ratios[name]["oracle"]
        panels[0].bar(place, ratio.mean, 0.8, color=COLOURS.get(name, OTHER))
        panels[0].plot([place, place], [ratio.low, ratio.high], color="#333333", linewidth=0.8)
        for offset, field, colour in ((-0.2, "cpu_used", "#5b9bd0"), (0.2, "memory_used", "#c9a876")):
            used = column.spreads[name][field]
            panels[1].bar(place + offset, 100 * used.mean, 0.36, color=colour)
            panels[1].plot([place + offset] * 2, [100 * used.low, 100 * used.high], color="#333333", linewidth=0.8)
    panels[0].set_title(f"Mean completion time over the oracle's, {column.requests} requests", loc="left", fontsize=9)
    panels[1].set_title("Used of what was allocated, %: CPU (blue), memory", loc="left", fontsize=9)
    for panel in panels:
        panel.set_xticks(range(len(names)), names, rotation=35, ha="right", fontsize=8)
    return figure
