"""The sentences and facts in a report of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from elastichost.human_readable import bytes_words, count_words, duration_words, plural
from elastichost.metrics import FINISHED_STATES
from elastichost.reporting.run.facts import Overview, Report, TunerModelFacts
from elastichost.tuner.policy.policy import SpeedForecast

__all__ = [
    "accuracy_words",
    "clock_words",
    "facts_of",
    "lead_of",
    "machine_facts_of",
    "memory_words",
    "model_facts_of",
    "rate_words",
    "speed_words",
    "without_course_words",
]


def rate_words(samples_per_s: float) -> str:
    return f"{count_words(round(samples_per_s))} samples/s"


def clock_words(utc: str) -> str:
    """2026-01-01T12:00:07.123Z -> "2026-01-01 12:00:07 UTC"."""
    return f"{utc[:10]} {utc[11:19]} UTC" if len(utc) >= 19 else utc


def lead_of(report: Report) -> str:
    """A summary of the run in two or three sentences."""
    return " ".join([_state_words(report), *_sample_words(report.overview), *_quality_words(report.overview)])


def _state_words(report: Report) -> str:
    run = report.overview
    time = duration_words(run.running_s)
    parts = f", in {plural(len(report.sessions), 'session')}" if len(report.sessions) > 1 else ""
    if run.is_running:
        return f"The run is in state {run.state}, {time} after it began{parts}."
    if run.state == "unknown":
        return f"The run lasted {time}{parts}; its end was not recorded."
    if run.state not in FINISHED_STATES:
        return f"The run died in state {run.state}, after {time}{parts}."
    if run.state == "quarantined":
        return f"Done after {time}{parts}, but some samples were quarantined."
    if run.state == "incomplete":
        return f"Done after {time}{parts}, but many ids had no row because memory was full."
    return f"{run.state.capitalize()} after {time}{parts}."


def _sample_words(run: Overview) -> Iterator[str]:
    if run.samples_trained is None:
        return
    planned = f" of {count_words(run.samples_planned)}" if run.samples_planned else ""
    rate = f", {rate_words(run.samples_per_s)}" if run.samples_per_s else ""
    yield f"It trained {count_words(run.samples_trained)}{planned} samples{rate}."


def _quality_words(run: Overview) -> Iterator[str]:
    if run.auc is None:
        return
    truth = f"; the true probabilities reach {run.truth_auc:.4f}" if run.truth_auc is not None else ""
    yield f"On the test set it reaches an AUC of {run.auc:.4f}{truth}."


def without_course_words(run: Overview) -> Iterator[str]:
    """Sentences about the quality of a run without a loss curve."""
    trained = run.samples_trained
    if trained is None:
        yield "Neither a loss nor an evaluation was recorded."
        return
    if not trained:
        yield "Nothing was trained."
        return
    time = f" in {duration_words(run.running_s)}" if run.running_s else ""
    yield f"The run trained {count_words(trained)} samples{time} without a recorded loss, so there is no loss curve."
    known = [("AUC", run.auc), ("log loss", run.logloss)]
    ended = [f"{name} {value:.4f}" for name, value in known if value is not None]
    yield f"At its end: {', '.join(ended)}." if ended else "The run was not evaluated."


def facts_of(report: Report) -> Iterator[tuple[str, str]]:
    """(name, value) of each known fact about the run."""
    run = report.overview
    yield "state", run.state
    yield from _times(report)
    yield from _counts(run)
    for name, value in (
        ("AUC", run.auc),
        ("log loss", run.logloss),
        ("normalised entropy", run.normalised_entropy),
        ("calibration", run.calibration),
        *run.metrics.items(),
    ):
        if value is not None:
            yield name, f"{value:.4f}"
    yield from _means(run)


def machine_facts_of(report: Report) -> Iterator[tuple[str, str]]:
    """(name, value) of the machine, the versions and the files of the run."""
    run, machine = report.overview, report.overview.machine
    if machine.platform:
        yield "machine", machine.platform
    names = [("python", machine.python), *machine.packages.items()]
    if any(version for _, version in names):
        yield "versions", ", ".join(f"{name} {version}" for name, version in names if version)
    yield "run directory", run.run_dir
    if run.checkpoint:
        yield "last checkpoint", run.checkpoint


def _times(report: Report) -> Iterator[tuple[str, str]]:
    run = report.overview
    if run.began_utc:
        yield "began", clock_words(run.began_utc)
    if run.ended_utc:
        yield "last event", clock_words(run.ended_utc)
    yield "running time", duration_words(run.running_s)
    if len(report.sessions) > 1:
        yield "sessions", str(len(report.sessions))


def _counts(run: Overview) -> Iterator[tuple[str, str]]:
    if run.samples_trained is not None:
        planned = f" of {run.samples_planned:,}" if run.samples_planned else ""
        yield "samples trained", f"{run.samples_trained:,}{planned}"
    lost = [(run.samples_skipped, "skipped"), (run.samples_quarantined, "quarantined")]
    if any(count for count, _ in lost):
        yield "samples left out", ", ".join(f"{count:,} {name}" for count, name in lost if count)
    if run.lookups_without_row:
        share = run.lookups_without_row / run.lookups if run.lookups else 0.0
        yield (
            "lookups without a row",
            f"{run.lookups_without_row:,} of {run.lookups:,} ({share:.1%}), because memory was full",
        )
    if run.samples_per_s:
        yield "mean speed", rate_words(run.samples_per_s)


def _means(run: Overview) -> Iterator[tuple[str, str]]:
    """(name, value) of the settings and processes of the run."""
    if run.batch_size is not None:
        yield "training", ", ".join(part for part in (run.mode, f"batches of {run.batch_size}") if part)
    if run.workers is not None and run.servers is not None:
        yield "last plan", f"{plural(run.workers, 'worker')}, {run.servers} PS"
    if run.tuner:
        yield (
            "tuner",
            {"act": "changes plans", "propose": "proposes plans", "watch": "only watches", "off": "off"}.get(
                run.tuner, run.tuner
            ),
        )
    if run.restarts is not None:
        yield "restarts", str(run.restarts)
    if run.torn_batches is not None:
        yield "torn batches", str(run.torn_batches)
    if run.arena_bytes:
        yield "rows", f"{bytes_words(run.arena_bytes)} of shared memory"
    if run.machine.cores is not None:
        gpus = f", {plural(run.machine.gpus, 'GPU')}" if run.machine.gpus else ""
        yield "cores of the job", f"{run.machine.cores}{gpus}"


def memory_words(report: Report) -> Iterator[str]:
    """Sentences on the peaks of memory and on the budget."""
    memory = report.memory
    if memory.peak_arena_bytes:
        yield f"The peak of the arena was {bytes_words(memory.peak_arena_bytes)}."
    if memory.peak_process_bytes:
        peak = bytes_words(memory.peak_process_bytes)
        yield f"The peak of all processes together, including the arena that they share, was {peak}."
    if memory.budget_bytes is not None:
        yield f"The job may use {bytes_words(memory.budget_bytes)}."
    elif memory.setting:
        yield f"The job may use {memory.setting} of the machine's memory, whose size was not recorded."
    if memory.peak_used_bytes:
        yield (
            f"At most {bytes_words(memory.peak_used_bytes)} of that were in use, or reserved for checkpoint copies and "
            "for indexes at their peak."
        )


def accuracy_words(report: Report) -> Iterator[str]:
    """Sentences on the accuracy of the tuner's forecasts, and on the fit of its model to the measurements."""
    chosen = [one for one in report.tuner if one.kind in ("try", "move")]
    foretold = [(one.expected, one.measured) for one in chosen if one.expected is not None and one.measured is not None]
    if foretold:
        apart = median(_apart(before, told) for before, told in foretold)
        hits = sum(before.low <= told.samples_per_s <= before.high for before, told in foretold)
        yield (
            f"Of {plural(len(foretold), 'forecast')}, {hits} had the measured speed in the 90 % interval; the median "
            f"error was {apart:.1%}."
        )
    measured = report.model.measured if report.model is not None else ()
    fitted = [(one.fitted, one.measured) for one in measured if one.fitted is not None]
    if fitted:
        apart = median(_apart(told, seen) for told, seen in fitted)
        yield f"Fitted to all measurements that the tuner uses, the model has a median error of {apart:.1%}."


def model_facts_of(model: TunerModelFacts) -> Iterator[tuple[str, str]]:
    """(name, value) of the fitted model of the tuner."""
    yield "model", model.name
    yield (
        "fitted to",
        f"{plural(model.observations, 'observation')} of {plural(model.configurations, 'configuration')}",
    )
    yield "rank", f"{model.rank} of {plural(model.parameters_total, 'parameter')} determined by measurement"
    yield "started with", "the history of similar jobs" if model.has_prior else "no history"
    if model.confidence is not None:
        yield "confidence", f"{model.confidence:.2f} (0 to 1)"


def _apart(told: SpeedForecast, seen: SpeedForecast) -> float:
    return abs(told.samples_per_s / max(seen.samples_per_s, 1e-9) - 1)


def speed_words(told: SpeedForecast) -> str:
    """The exact speed with its 90 % interval."""
    return f"{told.samples_per_s:,.0f} samples/s ({told.low:,.0f} to {told.high:,.0f})"
