"""Reports the figures of all shapes: a table for a terminal, a Markdown page, and the JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.data_plane.shapes.arms import PRECISIONS
from benchmarks.data_plane.shapes.figures import ShapeResult
from benchmarks.harness.machine import Machine
from benchmarks.harness.output import markdown_table

__all__ = ["markdown", "notes", "shapes_json", "shapes_table"]

HEADINGS = (
    "shape",
    "ours, float32",
    "ours, bfloat16",
    "best peer, float32",
    "best peer, bfloat16",
    "ours / best peer",
    "float32 / peer",
    "share of products, float32",
    "share of products, bfloat16",
)
RATIOS = ("ours_over_best_peer", "float32_over_peer", "gemm_share_float32", "gemm_share_bfloat16")


def _row(result: ShapeResult) -> tuple[str, ...]:
    ours = (_speed(result, f"ours_{precision}") for precision in PRECISIONS)
    peers = (_peer(result, result.peers[precision]) for precision in PRECISIONS)
    return (result.name, *ours, *peers, *(_ratio(result, name) for name in RATIOS))


def _speed(result: ShapeResult, arm: str) -> str:
    figures = result.figures.get(arm)
    return "-" if figures is None else f"{figures.median:,.0f} ({figures.least:,.0f} to {figures.most:,.0f})"


def _peer(result: ShapeResult, arm: str | None) -> str:
    return "-" if arm is None else f"{_speed(result, arm)} {arm.partition('_')[0]}"


def _ratio(result: ShapeResult, name: str) -> str:
    ratio, verdict = result.ratios[name], result.verdicts.get(name)
    shown = "-" if ratio is None else f"{ratio:.2f}"
    return shown if verdict is None else f"{shown} (aim {verdict.aim}: {verdict.word})"


def shapes_table(results: Sequence[ShapeResult]) -> Table:
    """The table of all shapes, for a terminal: one column for each shape."""
    table = Table(title="samples/s: median (least to most)", title_justify="left", box=None, pad_edge=False)
    rows = [_row(result) for result in results]
    for heading in (HEADINGS[0], *(row[0] for row in rows)):
        table.add_column("" if heading == HEADINGS[0] else heading, overflow="fold")
    for place, heading in enumerate(HEADINGS[1:], 1):
        table.add_row(heading, *(row[place] for row in rows))
    return table


def notes(result: ShapeResult) -> list[str]:
    """What a reader must know about one shape: its sizes, disturbed windows, arms that were left out or failed."""
    told = [f"{result.name}: {result.shape}, batch size {result.shape.batch_size}"]
    if result.kept_disturbed:
        windows = sum(figures.windows for figures in result.figures.values())
        told.append(f"{result.name}: {result.kept_disturbed} of {windows} windows were disturbed: use a quiet machine")
    reasons = {**result.left_out, **result.failures}
    return told + [f"{result.name}: {arm}: {(why.splitlines() or [''])[0]}" for arm, why in reasons.items()]


def markdown(results: Sequence[ShapeResult], machine: Machine, command: str) -> str:
    """A Markdown page: the machine, the table, the notes, and every arm of every shape."""
    lines = [
        "# Shapes: samples per second",
        "",
        f"{machine}.",
        "",
        f"`{command}`: all arms run in interleaved rounds. Speeds are medians (least to most). Ratios are medians of",
        "quotients within a round. The share of products compares with steps that have only their matrix products.",
        "",
        *markdown_table(HEADINGS, [_row(result) for result in results]),
        "",
        *(f"- {note}" for result in results for note in notes(result)),
        "",
        *markdown_table(
            ("shape", "arm", "samples/s", "windows", "CPU us/sample", "MiB"),
            [
                (
                    result.name,
                    arm,
                    _speed(result, arm),
                    str(figures.windows),
                    f"{figures.cpu_us:.1f}",
                    f"{sum(figures.memory_bytes_by_role.values()) / 2**20:,.0f}",
                )
                for result in results
                for arm, figures in result.figures.items()
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def shapes_json(results: Sequence[ShapeResult], machine: Machine) -> dict[str, Any]:
    """The JSON object: `shapes` by name, then every arm, the reasons of missing arms, and the machine."""
    return {
        "shapes": {result.name: result.to_json() for result in results},
        "arms": {
            result.name: {
                arm: {"median": round(one.median), "min": round(one.least), "max": round(one.most)}
                for arm, one in result.figures.items()
            }
            for result in results
        },
        "best_peers": {result.name: dict(result.peers) for result in results},
        "missing": {
            result.name: {**result.left_out, **result.failures}
            for result in results
            if result.left_out or result.failures
        },
        "disturbed_windows": {result.name: result.kept_disturbed for result in results},
        "machine": machine.to_json(),
    }
