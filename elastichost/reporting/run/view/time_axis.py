"""The axis of running time that charts of a run share, with its marks. Pure."""

from __future__ import annotations

from elastichost.reporting.render.chart import ChartAxis, ChartMark, Values
from elastichost.reporting.run.facts import Report

__all__ = ["has_values", "resume_marks", "time_axis", "total_s"]


def has_values(values: Values) -> bool:
    return any(value is not None for value in values)


def total_s(report: Report) -> float:
    """The running time of all sessions together."""
    last = report.sessions[-1] if report.sessions else None
    return last.at_s + last.duration_s if last is not None else report.overview.running_s


def time_axis(report: Report) -> ChartAxis:
    total = max(total_s(report), 1.0)
    unit = "hours:minutes:seconds" if total >= 3600 else "minutes:seconds"
    return ChartAxis(f"running time, {unit}", "moment", least=0.0, most=total)


def resume_marks(report: Report) -> tuple[ChartMark, ...]:
    return tuple(
        ChartMark("resume", session.at_s, "the run was resumed", is_solid=True) for session in report.sessions[1:]
    )
