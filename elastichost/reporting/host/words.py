"""The sentences and facts in a report of many jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from elastichost.human_readable import bytes_words, count_words, duration_words, plural
from elastichost.reporting.host.facts import HostReport, HostSummary
from elastichost.reporting.run.view.words import clock_words, rate_words

__all__ = ["host_facts_of", "host_lead_of", "memory_words", "speed_sentences"]

POLICIES = {
    "complementary": "jobs that need different resources run together",
    "rmixer_type": "a job runs beside jobs of other types (the rule of RMixer)",
    "fifo": "jobs start in the order of their submission",
    "random": "jobs start in random order",
    "exclusive": "one job runs at a time",
}


def host_lead_of(report: HostReport) -> str:
    """A summary of the host in two or three sentences."""
    return " ".join([_state_words(report.summary), *_work_words(report.summary)])


def _state_words(host: HostSummary) -> str:
    time, total = duration_words(host.elapsed_s), sum(host.states.values())
    if not total:
        return f"The host {'has been running' if host.is_running else 'ran'} for {time} without a job."
    counted = ", ".join(f"{count} {state}" for state, count in host.states.items())
    jobs = f"{plural(total, 'job')}: {counted}" if len(host.states) > 1 else f"all jobs are {next(iter(host.states))}"
    if host.is_running:
        return f"The host has been running for {time}; {jobs}."
    how = "ended" if host.state == "ended" else f"died in state {host.state}"
    return f"The host {how} after {time}; {jobs}."


def _work_words(host: HostSummary) -> Iterator[str]:
    if host.samples_trained:
        rate = f", {rate_words(host.samples_per_s)} together" if host.samples_per_s else ""
        jobs = "The listed jobs" if host.left_out else "The jobs"
        yield f"{jobs} trained {count_words(host.samples_trained)} samples{rate}."
    if host.most_together:
        cores = f" and kept {host.busy_cores:.1f} of {plural(host.cores, 'core')} busy" if host.busy_cores else ""
        yield f"At most {plural(host.most_together, 'job')} ran at once{cores}."


def host_facts_of(report: HostReport) -> Iterator[tuple[str, str]]:
    """(name, value) of each known fact about the host."""
    host = report.summary
    yield "state", host.state
    words = POLICIES.get(host.policy, "")
    yield "policy", f"{host.policy}: {words}" if words else host.policy
    if host.began_utc:
        yield "began", clock_words(host.began_utc)
    yield "time", duration_words(host.elapsed_s)
    gpus = f", {plural(host.gpus, 'GPU')}" if host.gpus else ""
    yield "cores", f"{host.cores}{gpus}"
    if host.busy_cores is not None:
        yield "cores in use, mean", f"{host.busy_cores:.2f}"
    yield "memory of all jobs", bytes_words(host.memory_bytes)
    if host.peak_bytes:
        yield "memory in use, peak", bytes_words(host.peak_bytes)
    if host.peak_charged_bytes:
        yield "memory charged, peak", bytes_words(host.peak_charged_bytes)
    slow = [job.slowdown for job in report.jobs if job.slowdown is not None]
    if slow:
        yield "slowdown", f"median {median(slow):.2f}, largest {max(slow):.2f}"
    yield "directory", host.directory


def memory_words(report: HostReport) -> Iterator[str]:
    """Sentences that compare the peaks of memory with their estimates and count out-of-memory endings."""
    known = [
        (job.peak_bytes / job.estimated_bytes, job) for job in report.jobs if job.estimated_bytes and job.peak_bytes
    ]
    if known:
        ratios = [ratio for ratio, _ in known]
        ratio, worst = max(known, key=lambda one: one[0])
        yield (
            f"The peak memory of a job was {median(ratios):.0%} of its estimate in the median, and at most {ratio:.0%} "
            f"({worst.job})."
        )
    times = sum(job.out_of_memory for job in report.jobs)
    yield f"Jobs ran out of memory {plural(times, 'time')}." if times else "No job ran out of memory."
    if report.summary.memory_bytes:
        yield f"All jobs together may use {bytes_words(report.summary.memory_bytes)}."


def speed_sentences(report: HostReport) -> Iterator[str]:
    """A sentence on how well the speeds of jobs that ran together were predicted."""
    beside = [one for one in report.together if one.others]
    if beside:
        apart = median(abs(one.measured - one.predicted) for one in beside)
        yield (
            f"Of {plural(len(beside), 'speed')} measured beside other jobs, the median error of the prediction was "
            f"{apart:.2f}; the lowest measured speed was {min(one.measured for one in beside):.2f} of the speed alone."
        )
