"""Shows a run while it trains: a live screen on a terminal, plain lines elsewhere.

The display goes to stderr; stdout is for data. `picture` and `plain_line` are pure functions of a RunStatus, and the
display classes only draw their results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elastichost.human_readable import bytes_words, count_words, duration_words
from elastichost.metrics import FINISHED_STATES, GpuStatus, ProcessStatus, RunStatus
from elastichost.resources import core_list
from elastichost.runs.observer import RunObserver

if TYPE_CHECKING:  # this import loads numpy, which `--help` does not need
    from elastichost.runs.events import Category, JournalLine

__all__ = ["CATEGORY_STYLES", "LiveDisplay", "PlainDisplay", "event_line", "open_display", "picture", "plain_line"]

PLAIN_INTERVAL_S = 10.0
STATE_STYLES = {"running": "green", "failed": "red", "lost": "red", "draining": "yellow", "stopping": "yellow"}
CATEGORY_STYLES: dict[Category, str] = {"warning": "yellow", "fault": "red"}
# Routine events: the journal has them, but on a screen they would only be noise. "run_failed" repeats the error of the
# run, which the caller prints next, with its hint.
QUIET_KINDS = frozenset(
    {
        "arena_opened",
        "lease_granted",
        "leases_settled",
        "process_connected",
        "process_ended",
        "process_ready",
        "process_repinned",
        "process_started",
        "run_ended",
        "run_failed",
        "shard_map_published",
    }
)


@contextmanager
def open_display(console: Console, *, live: bool = True) -> Iterator[RunObserver]:
    """A LiveDisplay on a terminal, a PlainDisplay elsewhere or when `live` is False."""
    if not (live and console.is_terminal):
        yield PlainDisplay(console)
        return
    with Live(console=console, refresh_per_second=4, transient=True, redirect_stdout=False) as screen:
        yield LiveDisplay(screen)


class LiveDisplay:
    """Redraws one picture; events scroll by above it."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def on_status(self, status: RunStatus) -> None:
        self._live.update(picture(status))

    def on_event(self, line: JournalLine) -> None:
        if line.kind not in QUIET_KINDS:
            self._live.console.print(event_line(line))


class PlainDisplay:
    """Prints a line every ten seconds, at every change of state, and for every event that is not in QUIET_KINDS."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed: RunStatus | None = None

    def on_status(self, status: RunStatus) -> None:
        last = self._printed
        changed = last is None or last.state != status.state
        if last is None or changed or status.elapsed_s - last.elapsed_s >= PLAIN_INTERVAL_S:
            self._printed = status
            self._console.print(plain_line(status), soft_wrap=True)

    def on_event(self, line: JournalLine) -> None:
        if line.kind not in QUIET_KINDS:
            self._console.print(event_line(line), soft_wrap=True)


def picture(status: RunStatus) -> RenderableType:
    """The whole screen of a run: progress, processes, plan."""
    parts: list[RenderableType] = [_headline(status), _progress(status)]
    if status.state in FINISHED_STATES:
        return Group(*parts)  # its processes have ended
    if status.processes:
        parts.append(_process_table(status.processes))
    parts += [_gpu_line(gpu) for gpu in status.gpus]
    parts.append(_plan_line(status))
    return Group(*parts)


def plain_line(status: RunStatus) -> Text:
    """The run in one line of about 120 characters or less."""
    words = [f"[{duration_words(status.elapsed_s)}]", status.state]
    if status.samples_planned:
        share = 100 * status.samples_trained / status.samples_planned
        words.append(f"{count_words(status.samples_trained)}/{count_words(status.samples_planned)} ({share:.0f}%)")
    words.extend(_figures(status))
    return Text("  ".join(words))


def event_line(line: JournalLine) -> Text:
    """The time, the process, and the sentence of an event."""
    from elastichost.runs.events.text import text_of

    shown = Text(line.time_utc[11:19], style="dim")
    if line.event.subject:
        shown.append(f"  {line.event.subject}", style="cyan")
    return shown.append(f"  {text_of(line.event)}", style=CATEGORY_STYLES.get(line.event.category, ""))


def _figures(status: RunStatus) -> Iterator[str]:
    if status.samples_per_s:
        yield f"{count_words(round(status.samples_per_s))} samples/s"
    if status.eta_s is not None:
        yield f"eta {duration_words(status.eta_s)}"
    if status.loss is not None:
        yield f"loss {status.loss:.4f}"
    if status.test_auc is not None:
        yield f"AUC {status.test_auc:.4f}"
    yield from (f"{name} {value:.4f}" for name, value in status.test_metrics.items() if value is not None)


def _headline(status: RunStatus) -> Text:
    line = Text(status.job, style="bold")
    line.append(f"  {status.state}", style=STATE_STYLES.get(status.state, "cyan"))
    if status.epochs > 1:
        line.append(f"  epoch {min(status.epoch + 1, status.epochs)}/{status.epochs}")
    return line.append(f"  {duration_words(status.elapsed_s)}", style="dim")


def _progress(status: RunStatus) -> RenderableType:
    total = max(status.samples_planned, 1)
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True)
    grid.add_row(
        ProgressBar(total=total, completed=min(status.samples_trained, total), style="grey30"),
        "  ".join([f"{100 * status.samples_trained / total:5.1f}%", *_figures(status)]),
    )
    return grid


def _process_table(processes: tuple[ProcessStatus, ...]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")  # fits 80 columns
    for name in ("process", "state", "cores"):
        table.add_column(name, no_wrap=True)
    for name in ("cpu", "memory", "samples/s", "batch", "wait"):
        table.add_column(name, justify="right", no_wrap=True)
    with_gpu = any(process.gpu_memory_bytes for process in processes)
    if with_gpu:
        table.add_column("gpu", justify="right", no_wrap=True)
    for process in sorted(processes, key=lambda one: (one.role != "worker", one.role, one.index)):
        row: list[str | Text] = [
            _name(process),
            Text(process.state, style=STATE_STYLES.get(process.state, "")),
            core_list(process.cores) or "all",
            f"{process.cpu_percent:.0f}%" if process.cpu_percent is not None else "",
            bytes_words(process.memory_bytes),
            count_words(round(process.samples_per_s)) if process.samples_per_s else "",
            f"{process.compute_ms:.1f} ms" if process.compute_ms else "",
            f"{100 * process.wait_fraction:.0f}%",
        ]
        table.add_row(*row, *([bytes_words(process.gpu_memory_bytes)] if with_gpu else []))
    return table


def _gpu_line(gpu: GpuStatus) -> Text:
    line = Text(f"GPU {gpu.index}", style="cyan")
    if gpu.problem:
        return line.append(f"  not measured: {gpu.problem}", style="yellow")
    if gpu.busy is not None:
        line.append(f"  busy {100 * gpu.busy:.0f}%")
    if gpu.own_busy is not None and gpu.busy and gpu.own_busy < 0.9 * gpu.busy:
        line.append(f" (this run {100 * gpu.own_busy:.0f}%)")
    line.append(f"  memory {bytes_words(gpu.used_bytes)} of {bytes_words(gpu.total_bytes)}")
    if gpu.received_bytes_per_s is not None and gpu.sent_bytes_per_s is not None:
        received, sent = (bytes_words(round(rate)) for rate in (gpu.received_bytes_per_s, gpu.sent_bytes_per_s))
        line.append(f"  bus in {received}/s, out {sent}/s")
    if gpu.slowed_by:
        line.append(f"  slowed by {', '.join(gpu.slowed_by)}", style="yellow")
    return line


def _name(process: ProcessStatus) -> Text:
    name = Text(process.name, style="cyan")
    return name.append(f".{process.incarnation}", style="dim") if process.incarnation > 1 else name


def _plan_line(status: RunStatus) -> Text:
    plan = status.plan
    line = Text(f"plan {plan.workers} worker{'s' * (plan.workers != 1)}, {plan.servers} PS", style="dim")
    if status.arena_bytes:
        line.append(f"  rows {bytes_words(status.arena_bytes)}")
    return line.append(f"  {status.last_decision}") if status.last_decision else line
