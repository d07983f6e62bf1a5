"""What a report of many jobs says in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from elastichost.human_readable import bytes_words, count_words, duration_words, plural
from elastichost.reporting.host.facts import HostReport, HostSummary
from elastichost.reporting.run.view.words import clock_words, rate_words

__all__ = ["host_facts_of", "host_lead_of", "memory_words", "speed_sentences"]

POLICIES = {
    "complementary": "jobs run together that need different things",
    "rmixer_type": "a job runs beside jobs of other types, as RMixer has it",
    "fifo": "jobs start in the order in which they came",
    "random": "jobs start in an order by chance",
    "exclusive": "one job at a time",
}


def host_lead_of(report: HostReport) -> str:
    """The host in two or three sentences."""
    return " ".join([_state_words(report.summary), *_work_words(report.summary)])


def _state_words(host: HostSummary) -> str:
    time, total = duration_words(host.elapsed_s), sum(host.states.values())
    if not total:
        return f"{'Running' if host.is_running else 'It ran'} for {time}, without a job."
    counted = ", ".join(f"{count} {state}" for state, count in host.states.items())
    jobs = f"of {plural(total, 'job')} {counted}" if len(host.states) > 1 else f"all jobs are {next(iter(host.states))}"
    if host.is_running:
        return f"Running for {time} now: {jobs}."
    how = "Ended" if host.state == "ended" else f"It broke off while {host.state},"
    return f"{how} after {time}: {jobs}."


def _work_words(host: HostSummary) -> Iterator[str]:
    if host.samples_trained:
        rate = f", {rate_words(host.samples_per_s)} together" if host.samples_per_s else ""
        yield f"They trained {count_words(host.samples_trained)} samples{rate}."
    if host.most_together:
        cores = f" and kept {host.busy_cores:.1f} of {plural(host.cores, 'core')} busy" if host.busy_cores else ""
        yield f"At most {plural(host.most_together, 'job')} ran at once{cores}."


def host_facts_of(report: HostReport) -> Iterator[tuple[str, str]]:
    """(name, value) of what is known of the host."""
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
        yield "in use, mean", f"{host.busy_cores:.2f} cores"
    yield "memory for jobs", bytes_words(host.memory_bytes)
    if host.peak_bytes:
        yield "used at most", bytes_words(host.peak_bytes)
    if host.peak_charged_bytes:
        yield "charged at most", bytes_words(host.peak_charged_bytes)
    slow = [job.slowdown for job in report.jobs if job.slowdown is not None]
    if slow:
        yield "slowdown", f"{median(slow):.2f} in the median, {max(slow):.2f} at worst"
    yield "directory", host.directory


def memory_words(report: HostReport) -> Iterator[str]:
    """How estimates were met, and what happened where they were not."""
    known = [
        (job.peak_bytes / job.estimated_bytes, job) for job in report.jobs if job.estimated_bytes and job.peak_bytes
    ]
    if known:
        ratios = [ratio for ratio, _ in known]
        ratio, worst = max(known, key=lambda one: one[0])
        yield (
            f"Of what was estimated, jobs took {median(ratios):.0%} at their peaks in the median; most of all "
            f"{worst.job}, {ratio:.0%}."
        )
    times = sum(job.out_of_memory for job in report.jobs)
    yield f"Jobs ran out of memory {plural(times, 'time')}." if times else "No job ran out of memory."
    if report.summary.memory_bytes:
        yield f"All together may have {bytes_words(report.summary.memory_bytes)}."


def speed_sentences(report: HostReport) -> Iterator[str]:
    """How well speeds beside others were foretold."""
    beside = [one for one in report.together if one.others]
    if beside:
        apart = median(abs(one.measured - one.predicted) for one in beside)
        yield (
            f"Beside others, {plural(len(beside), 'speed')} lay {apart:.2f} from what was predicted in the median; "
            f"the least measured was {min(one.measured for one in beside):.2f} of the speed alone."
        )
