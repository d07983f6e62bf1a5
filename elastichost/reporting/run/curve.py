"""Reads the learning curve of a run: the exact one, or for older runs what its workers reported."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from elastichost.reporting.run.facts import Course, Curve
from elastichost.reporting.run.sessions import Axis
from elastichost.reporting.run.sources import Sources
from elastichost.run_files import METRICS_FILE
from elastichost.runs.learning_curve import CurvePoint, read_curve

__all__ = ["curve_of", "read_run_curve", "reported_curve"]


def read_run_curve(sources: Sources, axis: Axis, course: Course) -> Curve:
    """The exact curve; if the run has none, or one without losses, the curve that its workers reported."""
    try:
        points = read_curve(sources.run)
    except sqlite3.Error as error:
        if not any(gap.source == METRICS_FILE for gap in sources.gaps):
            sources.miss(METRICS_FILE, f"its learning curve cannot be read: {error}")
        points = []
    return curve_of(points, axis) if any(point.loss for point in points) else reported_curve(course)


def curve_of(points: list[CurvePoint], axis: Axis) -> Curve:
    """The exact curve. Points that were written before a roll-back to a checkpoint are no longer in it."""
    sizes = sorted(point.of_samples for point in points)
    return Curve(
        samples=tuple(float(point.samples) for point in points),
        loss=tuple(point.loss for point in points),
        at_s=tuple(_running_s(point.unix_s, axis) for point in points),
        every_samples=float(sizes[len(sizes) // 2]),
        is_exact=True,
    )


def _running_s(unix_s: float, axis: Axis) -> float | None:
    """The running time of a moment on the wall clock. None: no session of the run is known to have begun before it."""
    for session in reversed(axis.sessions):
        if session.began_utc and (passed_s := unix_s - datetime.fromisoformat(session.began_utc).timestamp()) >= 0:
            return session.at_s + min(passed_s, session.duration_s)
    return None


def reported_curve(course: Course) -> Curve:
    """The loss that the workers reported, at each number of samples. Where the run went back to a checkpoint, only what
    it trained afterwards is kept."""
    kept: list[tuple[float, float, float | None]] = []
    for samples, loss, at_s in zip(course.samples, course.loss, course.at_s, strict=True):
        if samples is None or loss is None:
            continue
        while kept and kept[-1][0] >= samples:
            kept.pop()
        kept.append((samples, loss, at_s))
    if not kept:
        return Curve()
    samples_of, losses, times = zip(*kept, strict=True)
    return Curve(samples_of, losses, times)
