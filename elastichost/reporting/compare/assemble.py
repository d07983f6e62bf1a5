"""Compares the reports of runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from elastichost.reporting.compare.facts import ComparedRun, Comparison, SettingDifference
from elastichost.reporting.run.facts import Gap, Report

__all__ = ["comparison_of"]


def comparison_of(reports: Sequence[Report], now_utc: str) -> Comparison:
    """The comparison of at least two runs, in the given order."""
    names = _names([report.overview.run_dir for report in reports])
    return Comparison(
        made_utc=now_utc,
        runs=tuple(_compared(name, report) for name, report in zip(names, reports, strict=True)),
        differences=tuple(_differences(reports)),
        gaps=tuple(
            Gap(f"{name}/{gap.source}", gap.text)
            for name, report in zip(names, reports, strict=True)
            for gap in report.gaps
        ),
    )


def _names(directories: Sequence[str]) -> list[str]:
    """The name of each directory; the whole path where several have the same name, numbered where a run is named
    twice."""
    counts = Counter(PurePath(directory).name for directory in directories)
    names = [path if counts[PurePath(path).name] > 1 else PurePath(path).name for path in directories]
    return [f"{name} ({names[:at].count(name) + 1})" if name in names[:at] else name for at, name in enumerate(names)]


def _compared(name: str, report: Report) -> ComparedRun:
    run = report.overview
    return ComparedRun(
        name=name,
        job=run.job,
        run_dir=run.run_dir,
        state=run.state,
        began_utc=run.began_utc,
        samples_trained=run.samples_trained,
        running_s=run.running_s,
        samples_per_s=run.samples_per_s,
        auc=run.auc,
        logloss=run.logloss,
        peak_bytes=report.memory.peak_process_bytes,
        workers=run.workers,
        servers=run.servers,
        restarts=run.restarts,
        faults=sum(report.story.fault_counts.values()),
        curve=report.curve,
    )


def _differences(reports: Sequence[Report]) -> Iterator[SettingDifference]:
    """In the order of the settings in the first run that has them."""
    names = dict.fromkeys(name for report in reports for name in report.settings)
    for name in names:
        values = tuple(report.settings.get(name) for report in reports)
        if len(set(values)) > 1:
            yield SettingDifference(name, values)
