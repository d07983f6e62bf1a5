"""Shows many jobs on one host: a live table on a terminal, plain lines elsewhere, both on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from elastichost.cli.watch.run_view import CATEGORY_STYLES
from elastichost.dispatcher.facts import HostStatus, JobStatus
from elastichost.human_readable import bytes_words, count_words, duration_words

if TYPE_CHECKING:  # this import loads numpy, which `--help` does not need
    from elastichost.runs.events import JournalLine

__all__ = ["HostDisplay", "host_line", "host_picture", "job_table", "open_host_display"]

PLAIN_INTERVAL_S = 10.0
MOST_ROWS = 30  # of a live table
STYLES = {"running": "green", "failed": "red", "stopping": "yellow", "paused": "yellow", "done": "cyan"}
KIND_STYLES = {"job_memory_acted": "yellow", "job_requeued": "yellow"}
QUIET_KINDS = frozenset({"job_submitted", "job_examined"})
ORDER = ("running", "starting", "paused", "stopping", "waiting", "failed", "stopped", "cancelled", "done")


class HostDisplay:
    """Draws each status and prints each event of a host. With `live` None it prints plain lines."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console, self._live = console, live
        self._printed_s: float | None = None

    def on_status(self, status: HostStatus) -> None:
        if self._live is not None:
            self._live.update(host_picture(status))
        elif self._printed_s is None or status.elapsed_s - self._printed_s >= PLAIN_INTERVAL_S:
            self._printed_s = status.elapsed_s
            self._console.print(host_line(status), soft_wrap=True)

    def on_event(self, line: JournalLine) -> None:
        from elastichost.runs.events.text import text_of

        event = line.event
        if line.kind in QUIET_KINDS:
            return
        shown = Text(event.subject, style="cyan").append("  " if event.subject else "")
        shown.append(text_of(event), style=KIND_STYLES.get(line.kind, CATEGORY_STYLES.get(event.category, "")))
        self.show(shown)

    def show(self, line: Text) -> None:
        """Prints a line above the live table."""
        (self._live.console if self._live is not None else self._console).print(line, soft_wrap=True)


@contextmanager
def open_host_display(console: Console, *, live: bool = True) -> Iterator[HostDisplay]:
    if not (live and console.is_terminal):
        yield HostDisplay(console, None)
        return
    with Live(console=console, refresh_per_second=4, transient=True, redirect_stdout=False) as screen:
        yield HostDisplay(console, screen)


def host_line(status: HostStatus) -> Text:
    """The host in one line."""
    counts = {state: sum(job.state == state for job in status.jobs) + status.left_out.get(state, 0) for state in ORDER}
    words = [f"[{duration_words(status.elapsed_s)}]", status.state]
    words += [f"{count} {state}" for state, count in counts.items() if count]
    if status.cores:
        words.append(f"cores {status.cpu_cores:.1f}/{status.cores}")
    words.append(f"memory {bytes_words(status.used_bytes)} used, {bytes_words(status.charged_bytes)} charged")
    rate = sum(job.samples_per_s for job in status.jobs)
    if rate:
        words.append(f"{count_words(round(rate))} samples/s")
    return Text("  ".join(words))


def host_picture(status: HostStatus) -> RenderableType:
    """The whole screen of a host: its line, its jobs, the last decision."""
    parts: list[RenderableType] = [host_line(status), job_table(status, MOST_ROWS)]
    if status.last_decision:
        parts.append(Text(status.last_decision, style="dim"))
    return Group(*parts)


def job_table(status: HostStatus, most: int = 0) -> Table:
    """The table of jobs, running ones first. `most` limits the rows; 0 shows all."""
    table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
    for name in ("job", "state", "size"):
        table.add_column(name, no_wrap=True)
    for name in ("done", "samples/s", "speed", "cores", "memory", "charged"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="ellipsis", no_wrap=True, ratio=1)
    jobs = sorted(status.jobs, key=lambda job: (ORDER.index(job.state), job.submitted_s, job.job))
    for job in jobs[: most or len(jobs)]:
        table.add_row(*_row(job))
    if most and len(jobs) > most:
        table.add_row(f"and {len(jobs) - most} more")
    if left_out := sum(status.left_out.values()):
        table.add_row(f"and {left_out} that ended earlier")
    return table


def _row(job: JobStatus) -> tuple[str | Text, ...]:
    share = f"{100 * job.samples_trained / job.samples_planned:.0f}%" if job.samples_planned else ""
    where = f" GPU {job.gpu}" if job.gpu is not None else ""
    return (
        Text(job.job, style="cyan"),
        Text(job.state, style=STYLES.get(job.state, "")),
        f"{job.workers}+{job.servers}{where}" if job.workers else "",
        share,
        count_words(round(job.samples_per_s)) if job.samples_per_s else "",
        f"{job.predicted_speed:.2f}" if job.predicted_speed else "",
        f"{job.cpu_cores:.1f}" if job.cpu_cores else "",
        bytes_words(job.memory_bytes) if job.memory_bytes else "",
        bytes_words(job.charged_bytes) if job.charged_bytes else "",
        _ending(job) if job.state == "done" else job.own_tuner if job.state == "running" and job.own_tuner else job.why,
    )


def _ending(job: JobStatus) -> str:
    """How long a job that is done took, and its AUC."""
    words = []
    if job.ended_s is not None and job.started_s is not None:
        words.append(duration_words(job.ended_s - job.started_s))
    if job.test_auc is not None:
        words.append(f"AUC {job.test_auc:.4f}")
    return "  ".join(words)
