"""Samples per second as grouped bars: one group for each batch size, one bar for each arm, min and max as whiskers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.data_plane.report import CaseResult
from benchmarks.harness.machine import Machine

__all__ = ["is_available", "save_plot"]

# peers in greys and browns, elastichost in blues: served light, direct dark
COLOURS = {
    "tbe1": "#d9d9d9",
    "tbe2": "#bdbdbd",
    "dmp": "#969696",
    "rpc": "#c9a876",
    "tensorflow": "#e0c9a6",
    "bare_loop": "#737373",
    "bare_loop_fused": "#525252",
    "served1": "#b5d3ea",
    "served2": "#8dbbdf",
    "direct1": "#5b9bd0",
    "direct2": "#2a6fb0",
    "direct2_fused": "#0b3c73",
    "direct1_fused": "#4a86bd",
}
MORE_WORKERS = "#14548f"


def is_available() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def save_plot(results: Sequence[CaseResult], machine: Machine, path: Path) -> None:
    """Draws one panel for each model, one above the other."""
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(result.model for result in results))
    widest = max(len([r for r in results if r.model == model]) for model in models)
    figure = Figure(figsize=(max(8.0, 4.2 * widest), 0.9 + 3.6 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), 1, squeeze=False)[:, 0]
    for panel, model in zip(panels, models, strict=True):
        _draw(panel, [result for result in results if result.model == model])
        panel.set_title(f"Criteo-26, {model}", loc="left", fontsize=11)
    handles: dict[str, Any] = {}
    for panel in panels:
        handles.update(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.suptitle(
        f"Samples per second on {machine.cores} cores ({machine.cpu}): median, min, max",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    figure.savefig(path, dpi=140)


def _draw(panel: Any, results: Sequence[CaseResult]) -> None:
    for group, result in enumerate(results):
        names = [name for name in result.words if name in result.figures]
        width = 0.86 / max(1, len(names))
        for position, name in enumerate(names):
            figures = result.figures[name]
            middle = figures.median / 1e3
            at = group + (position - (len(names) - 1) / 2) * width
            whiskers = [[middle - figures.least / 1e3], [figures.most / 1e3 - middle]]
            panel.bar(
                at,
                middle,
                0.92 * width,
                color=COLOURS.get(name, MORE_WORKERS),
                label=f"{name}: {result.words[name]}",
                yerr=whiskers,
                error_kw={"elinewidth": 0.8, "ecolor": "#333333", "capsize": 1.5},
            )
            panel.annotate(
                f"{middle:.0f}",
                (at, figures.most / 1e3),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
    panel.set_xticks(range(len(results)), [f"B = {result.batch_size}" for result in results])
    panel.set_ylabel("thousand samples/s")
    panel.set_ylim(bottom=0)
    panel.grid(axis="y", linewidth=0.4, color="#dddddd")
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
