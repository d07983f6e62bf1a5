"""Reports the measurements: tables for a terminal, a Markdown page, and a JSON object for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.data_plane.figures import ArmFigures
from benchmarks.harness.aims import Verdict
from benchmarks.harness.machine import Machine
from benchmarks.harness.output import markdown_table

__all__ = [
    "CaseResult",
    "disturbance",
    "figures_table",
    "markdown",
    "ratios_table",
    "to_json",
]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """All arms in one setting. `rejected`: windows that were measured again because other processes used the machine.
    `kept_disturbed`: disturbed windows that count because no attempt was better. `failures`: reason by arm.
    `verdicts`: by ratio, for the ratios that have an aim with this batch size."""

    model: str
    batch_size: int
    words: Mapping[str, str]
    figures: Mapping[str, ArmFigures]
    ratios: Mapping[str, float | None]
    best_peer: str | None
    rejected: int
    kept_disturbed: int
    failures: Mapping[str, str]
    verdicts: Mapping[str, Verdict]


HEADINGS = ("arm", "samples/s", "min", "max", "CPU us/sample", "MiB", "description", "CPU us/sample by role")
NUMBERS = slice(1, 6)
SHOWN_CPU_US = 0.05


def _by_role(figures: ArmFigures) -> str:
    """CPU time by role as text; "" if there is one role."""
    if len(figures.cpu_us_by_role) == 1:
        return ""
    shown = sorted(figures.cpu_us_by_role.items(), key=lambda item: -item[1])
    return ", ".join(f"{role} {spent:.1f}" for role, spent in shown if spent >= SHOWN_CPU_US)


def _rows(result: CaseResult) -> list[tuple[str, ...]]:
    return [
        (
            name,
            f"{figures.median:,.0f}",
            f"{figures.least:,.0f}",
            f"{figures.most:,.0f}",
            f"{figures.cpu_us:.1f}",
            f"{sum(figures.memory_bytes_by_role.values()) / 2**20:,.0f}",
            words,
            _by_role(figures),
        )
        for name, words in result.words.items()
        if (figures := result.figures.get(name)) is not None
    ]


def _ratio_rows(result: CaseResult) -> list[tuple[str, str, str, str]]:
    rows = []
    for name, value in result.ratios.items():
        verdict = result.verdicts.get(name)
        reached = verdict.word if verdict is not None and value is not None else ""
        shown = "-" if value is None else f"{value:.2f}"
        rows.append((name, shown, "" if verdict is None else str(verdict.aim), reached))
    return rows


def figures_table(result: CaseResult) -> Table:
    """The table of figures of one setting, for a terminal."""
    table = Table(title=_title(result), title_justify="left", box=None, pad_edge=False)
    for heading in HEADINGS:
        is_number = heading in HEADINGS[NUMBERS]
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=heading == "arm" or is_number)
    for row in _rows(result):
        table.add_row(*row)
    return table


def ratios_table(result: CaseResult) -> Table:
    """The table of ratios (medians of the quotients within a round) and their aims."""
    table = Table(box=None, pad_edge=False)
    table.add_column("ratio")
    table.add_column("measured", justify="right")
    table.add_column("aim", justify="right")
    table.add_column("")
    for name, shown, aim, reached in _ratio_rows(result):
        style = {"reached": "green", "not reached": "yellow"}.get(reached, "")
        table.add_row(name, shown, aim, reached, style=style)
    return table


def _title(result: CaseResult) -> str:
    return f"{result.model}, batch size {result.batch_size}" + (
        f", best peer {result.best_peer}" if result.best_peer is not None else ""
    )


def markdown(results: Sequence[CaseResult], machine: Machine, picture: str | None) -> str:
    """A Markdown page: the machine, the chart, then both tables of every setting."""
    lines = [
        "# Data plane: samples per second",
        "",
        f"{machine}.",
        "",
        "`python -m elastichost bench data-plane`: all arms run in interleaved rounds, and an arm is stopped while",
        "another arm is measured. Figures are medians over rounds. Ratios are medians of quotients within a round.",
        "",
    ]
    if picture is not None:
        lines += [f"![samples per second]({picture})", ""]
    for result in results:
        lines += [f"## {_title(result)}", "", *markdown_table(HEADINGS, _rows(result)), ""]
        lines += [*markdown_table(("ratio", "measured", "aim", ""), _ratio_rows(result)), ""]
        lines += [disturbance(result), ""]
        lines += [f"{name} failed: {why.splitlines()[0]}\n" for name, why in result.failures.items()]
    return "\n".join(lines)


def disturbance(result: CaseResult) -> str:
    """A sentence on how much other processes used the machine, and how far that affects the figures."""
    told = f"{result.rejected} windows were measured again because other processes used more than 5 % of the machine"
    if not result.kept_disturbed:
        return told
    windows = sum(figures.windows for figures in result.figures.values())
    return f"{told}; {result.kept_disturbed} of the {windows} windows that count were disturbed: use a quiet machine"


def to_json(results: Sequence[CaseResult], headline: CaseResult, machine: Machine) -> dict[str, Any]:
    """The JSON object: batch_size and ratios of the headline setting, then its arms, the machine, and all settings."""
    return {
        **_case_json(headline),
        "machine": machine.to_json(),
        "cases": [_case_json(result) for result in results],
    }


def _case_json(result: CaseResult) -> dict[str, Any]:
    return {
        "batch_size": result.batch_size,
        "ratios": {name: None if value is None else round(value, 4) for name, value in result.ratios.items()},
        "model": result.model,
        "best_peer": result.best_peer,
        "arms": {name: _arm_json(figures) for name, figures in result.figures.items()},
        "rejected_windows": result.rejected,
        "kept_disturbed_windows": result.kept_disturbed,
        "failures": dict(result.failures),
    }


def _arm_json(figures: ArmFigures) -> dict[str, Any]:
    return {
        "samples_per_s": {
            "median": round(figures.median),
            "min": round(figures.least),
            "max": round(figures.most),
        },
        "windows": figures.windows,
        "cpu_us_per_sample": round(figures.cpu_us, 3),
        "cpu_us_per_sample_by_role": {role: round(spent, 3) for role, spent in figures.cpu_us_by_role.items()},
        "memory_bytes_by_role": dict(figures.memory_bytes_by_role),
    }
