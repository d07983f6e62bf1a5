"""Reads a run directory into a report, even if some of its files are missing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.metrics import FINISHED_STATES, RunStatus
from elastichost.reporting.run.curve import read_run_curve
from elastichost.reporting.run.facts import Course, Machine, Memory, Overview, Report, Story
from elastichost.reporting.run.heat import HeatFolder
from elastichost.reporting.run.knowledge import Knowledge, decisions_of_journal, with_outcomes
from elastichost.reporting.run.measurements import course_of, gpu_courses, process_courses, read_measurements
from elastichost.reporting.run.memory import budget_bytes_of, memory_steps_of
from elastichost.reporting.run.sessions import Axis, Chapter, axis_of, chapters_of
from elastichost.reporting.run.sources import JobFacts, ResultFacts, Sources, open_sources
from elastichost.reporting.run.story import story_of, tuner_decisions_of
from elastichost.reporting.run.trained import flat_settings, trained_of
from elastichost.resources import memory_budget_bytes
from elastichost.run_files import METRICS_FILE
from elastichost.runs.events import RunFailed
from elastichost.runs.events.text import text_of
from elastichost.tuner.records import BalanceLooked, FirstPlanMade, MemoryLooked, TunerLooked, TunerOpened

__all__ = ["read_report"]

UNLIMITED = 1 << 62
_TOOLS = frozenset({"python", "platform"})


class _Recorded:
    """The contents of decisions.jsonl."""

    def __init__(self) -> None:
        self.knowledge = Knowledge()
        self.heat = HeatFolder()
        self.cores: int | None = None
        self.gpus: int | None = None
        self.budget_bytes: int | None = None
        self.peak_used_bytes: int | None = None

    def read(self, sources: Sources, axis: Axis) -> None:
        for record in sources.records():
            match record:
                case FirstPlanMade(request=request):
                    self.cores, self.gpus = len(request.cores), len(request.gpus)
                case TunerOpened(settings=settings):
                    self.knowledge.opened(settings)
                    self.cores = self.cores or settings.workload.host_cores or None
                    self.budget_bytes = settings.bounds.memory_bytes or self.budget_bytes
                case TunerLooked():
                    self.knowledge.looked(record, axis.next_at_s(record.look.at_s))
                case BalanceLooked():
                    self.heat.looked(record, axis.next_at_s(record.now_s))
                case MemoryLooked(look=look):
                    used = sum(host.used_bytes for host in look.hosts)
                    self.peak_used_bytes = max(used, self.peak_used_bytes or 0)
                case _:
                    pass


def read_report(run: Path, *, is_running: bool, now_utc: str) -> Report:
    """All values of a report. is_running: the supervisor is alive. now_utc: ISO 8601. Raises PreflightError if the
    directory does not exist."""
    sources = open_sources(run)
    job, versions, status = sources.job(), sources.versions(), sources.status()
    result = sources.result(is_expected=status is not None and status.state in FINISHED_STATES)
    chapters = chapters_of(sources.journal())
    measurements = read_measurements(run / METRICS_FILE)
    if measurements.problem:
        sources.miss(METRICS_FILE, measurements.problem)
    axis = axis_of(chapters, [session.duration_s for session in measurements.sessions])
    recorded = _Recorded()
    recorded.read(sources, axis)
    course, story = course_of(measurements, axis), story_of(chapters, axis)
    processes, curve = process_courses(measurements, axis), read_run_curve(sources, axis, course)
    decided = recorded.knowledge.decisions() or decisions_of_journal(tuner_decisions_of(chapters, axis))
    decisions = with_outcomes(decided, story.plans)
    machine = Machine(
        versions.get("platform", ""),
        versions.get("python", ""),
        {name: version for name, version in versions.items() if name not in _TOOLS},
        recorded.cores,
        recorded.gpus,
    )
    return Report(
        made_utc=now_utc,
        overview=_overview(run, job, status, result, chapters, axis, course, machine, is_running=is_running),
        trained=trained_of(job.content),
        settings=flat_settings(job.content),
        curve=curve,
        gaps=tuple(sources.gaps),
        sessions=axis.sessions,
        course=course,
        processes=processes,
        gpus=gpu_courses(measurements, axis),
        story=_with_threads(story, recorded.knowledge),
        tuner=decisions,
        model=recorded.knowledge.model(),
        memory=_memory(job, course, recorded, chapters, axis),
        heat=recorded.heat.heat(),
    )


def _overview(
    run: Path,
    job: JobFacts,
    status: RunStatus | None,
    result: ResultFacts | None,
    chapters: tuple[Chapter, ...],
    axis: Axis,
    course: Course,
    machine: Machine,
    *,
    is_running: bool,
) -> Overview:
    """The run as a whole: each value comes from the result, else from the last status, else from the measurements."""
    ended = result if result is not None else ResultFacts()
    test, samples, processes = ended.test, ended.samples, ended.processes
    trained = [int(count) for count in course.samples if count is not None]
    last = status if status is not None else RunStatus(run_dir=str(run), job="", state="", supervisor_pid=0)
    return Overview(
        job=job.name or last.job or run.name,
        run_dir=str(run),
        state=ended.status or last.state or "unknown",
        is_running=is_running,
        message=ended.message or _last_words(chapters),
        began_utc=chapters[0].lines[0].time_utc if chapters else "",
        ended_utc=chapters[-1].lines[-1].time_utc if chapters and not is_running else "",
        running_s=axis.total_s or ended.wall_s or last.elapsed_s,
        mode=job.mode,
        batch_size=job.batch_size,
        epochs=job.epochs,
        samples_planned=samples.planned if samples is not None else last.samples_planned or None,
        samples_trained=samples.trained if samples is not None else last.samples_trained or max(trained, default=None),
        samples_skipped=samples.skipped if samples is not None else 0,
        samples_quarantined=samples.quarantined if samples is not None else 0,
        lookups=ended.lookups.total,
        lookups_without_row=ended.lookups.without_row,
        samples_per_s=ended.samples_per_s or _mean_rate(course),
        auc=test.auc if test is not None else last.test_auc,
        truth_auc=test.truth_auc if test is not None else None,
        logloss=test.logloss if test is not None else None,
        normalised_entropy=test.normalised_entropy if test is not None else None,
        calibration=test.calibration if test is not None else None,
        metrics=test.metrics if test is not None else last.test_metrics,
        workers=processes.workers if processes is not None else last.plan.workers or None,
        servers=processes.servers if processes is not None else last.plan.servers or None,
        restarts=processes.restarts if processes is not None else None,
        torn_batches=ended.torn_batches,
        arena_bytes=ended.arena_bytes or last.arena_bytes or None,
        checkpoint=ended.checkpoint,
        tuner=job.tuner,
        machine=machine,
    )


def _last_words(chapters: tuple[Chapter, ...]) -> str:
    """The error that ended the last session, "" if there was none."""
    failed = [line.event for line in chapters[-1].lines if isinstance(line.event, RunFailed)] if chapters else []
    return text_of(failed[-1]) if failed else ""


def _mean_rate(course: Course) -> float | None:
    """The mean speed in samples/s over the time in which samples were trained; None without such a time."""
    rates = [rate for rate in course.counted_per_s if rate]
    return sum(rates) / len(rates) if rates else None


def _with_threads(story: Story, knowledge: Knowledge) -> Story:
    """The story with the threads that the tuner recorded twice a second. Without a tuner, the threads come from the
    journal's events of pinning."""
    return msgspec.structs.replace(story, threads=knowledge.threads or story.threads)


def _memory(job: JobFacts, course: Course, recorded: _Recorded, chapters: tuple[Chapter, ...], axis: Axis) -> Memory:
    arena = [int(size) for size in course.arena_bytes if size]
    processes = [int(size) for size in course.process_bytes if size]
    return Memory(
        setting=str(job.memory),
        budget_bytes=budget_bytes_of(chapters) or recorded.budget_bytes or _budget_bytes(job.memory),
        peak_arena_bytes=max(arena, default=None),
        peak_process_bytes=max(processes, default=None),
        peak_used_bytes=recorded.peak_used_bytes,
        steps=memory_steps_of(chapters, axis),
    )


def _budget_bytes(setting: str | int) -> int | None:
    """The budget in bytes. None: the setting is empty, or a share of a memory whose size was not recorded."""
    if isinstance(setting, str) and (not setting or "%" in setting):
        return None
    try:
        return memory_budget_bytes(setting, UNLIMITED)
    except ValueError:
        return None
