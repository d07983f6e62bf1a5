"""The display of a run on a terminal and in a log."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from elastichost.cli.output import data_console, progress_console
from elastichost.cli.watch.run_view import (
    QUIET_KINDS,
    LiveDisplay,
    PlainDisplay,
    event_line,
    open_display,
    picture,
    plain_line,
)
from elastichost.metrics import GpuStatus, PlanStatus, ProcessStatus, RunStatus
from elastichost.plan import ProcessId
from elastichost.runs.events import (
    EVENT_CLASSES,
    AnyEvent,
    JournalLine,
    LeaseGranted,
    ProcessLost,
    ProcessReady,
    RunFailed,
    Warned,
)

STATUS = RunStatus(
    run_dir="/runs/shop",
    job="shop",
    state="training",
    supervisor_pid=1,
    epochs=2,
    samples_planned=2_000_000,
    samples_trained=500_000,
    samples_per_s=61_234.0,
    eta_s=24.5,
    loss=0.45678,
    test_auc=0.79123,
    elapsed_s=75.0,
    arena_bytes=3 << 30,
    plan=PlanStatus(workers=3, servers=1),
    last_decision="stay: a fourth worker would gain 1 %",
    processes=(
        ProcessStatus("server", 0, 1, 12, "running", cpu_percent=3.0, memory_bytes=1 << 20, wait_fraction=0.97),
        ProcessStatus("worker", 1, 2, 11, "draining", cores=(0, 1, 2, 5), samples_per_s=30_000.0, compute_ms=7.25),
        ProcessStatus("worker", 0, 1, 10, "running", cores=(3,), cpu_percent=99.0, memory_bytes=1 << 29),
    ),
)
WORKER = ProcessId("worker", 1, 2)


def line(event: AnyEvent) -> JournalLine:
    return JournalLine("2026-01-02T03:04:05.678Z", 1.0, event)


LOST = line(ProcessLost(WORKER, 11, -9, "running", "killed by SIGKILL"))


def drawn(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=140, color_system=None, legacy_windows=False)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_picture_of_a_finished_run_has_no_processes() -> None:
    console = drawn(terminal=True)
    console.print(picture(msgspec.structs.replace(STATUS, state="done")))
    assert "worker" not in written(console)


def test_figures_of_labels_keep_the_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `[clicked]` was taken for a style, so that the figures of several labels had one name."""
    monkeypatch.setenv("COLUMNS", "160")
    figures = {"auc[clicked]": 0.73, "auc[bought]": 0.69}
    for console in (progress_console(), data_console()):
        with console.capture() as captured:
            console.print(picture(msgspec.structs.replace(STATUS, test_metrics=figures)))
        assert "auc[clicked] 0.73" in captured.get() and "auc[bought] 0.69" in captured.get()


def test_the_picture_fits_eighty_columns() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(picture(STATUS))
    assert "…" not in written(console)


def test_the_picture_shows_progress_processes_and_plan() -> None:
    console = drawn(terminal=True)
    console.print(picture(STATUS))
    lines = written(console).splitlines()
    assert lines[0].split() == ["shop", "training", "epoch", "1/2", "1m15s"]
    assert all(part in lines[1] for part in ("25.0%", "61.2k samples/s", "eta 24s", "loss 0.4568", "AUC 0.7912"))
    names = [line.split()[0] for line in lines[3:6]]
    assert names == ["worker-0", "worker-1.2", "server-0"]
    assert "0-2,5" in lines[4]
    assert "7.2 ms" in lines[4]
    assert "97%" in lines[5]
    assert lines[6].startswith("plan 3 workers, 1 PS  rows 3.0 GiB  stay: a fourth worker")


def test_the_picture_of_a_run_that_begins() -> None:
    console = drawn(terminal=True)
    console.print(picture(RunStatus(run_dir="/r", job="shop", state="starting", supervisor_pid=1)))
    assert "0.0%" in written(console)


def test_gpu_memory_has_a_column_only_when_there_is_some() -> None:
    with_gpu = msgspec.structs.replace(STATUS.processes[0], gpu_memory_bytes=2 << 30)
    console = drawn(terminal=True)
    console.print(picture(msgspec.structs.replace(STATUS, processes=(with_gpu,))))
    assert "2.0 GiB" in written(console)


def test_plain_lines_are_whole_and_short() -> None:
    plain = plain_line(STATUS).plain
    assert plain == "[1m15s]  training  500.0k/2.0M (25%)  61.2k samples/s  eta 24s  loss 0.4568  AUC 0.7912"
    assert event_line(LOST).plain == "03:04:05  worker-1  worker-1.2 exited in state running: killed by SIGKILL"


@pytest.mark.parametrize(
    ("event", "colour"), [(LOST.event, "red"), (Warned("the disk is slow"), "yellow"), (ProcessReady(WORKER), "")]
)
def test_the_category_of_an_event_gives_its_colour(event: AnyEvent, colour: str) -> None:
    style = event_line(line(event)).get_style_at_offset(Console(), -1)
    assert (style.color.name if style.color else "") == colour


def test_plain_display_prints_at_changes_and_every_ten_seconds() -> None:
    console = drawn(terminal=False)
    display = PlainDisplay(console)
    for elapsed_s in (0.0, 1.0, 9.9, 10.0, 11.0, 21.0):
        display.on_status(msgspec.structs.replace(STATUS, elapsed_s=elapsed_s))
    display.on_status(msgspec.structs.replace(STATUS, elapsed_s=22.0, state="evaluating"))
    assert [line.split()[0] for line in written(console).splitlines()] == ["[0.0s]", "[10s]", "[21s]", "[22s]"]


def test_routine_events_are_not_displayed() -> None:
    console = drawn(terminal=False)
    display = PlainDisplay(console)
    for event in (LeaseGranted(WORKER, 1, 0, 0, 0, 64), RunFailed("DataError", "no such file"), ProcessReady(WORKER)):
        display.on_event(line(event))
    assert written(console) == ""
    display.on_event(LOST)
    assert "killed by SIGKILL" in written(console)


def test_kinds_that_stay_in_the_journal_exist() -> None:
    assert {one.__struct_config__.tag for one in EVENT_CLASSES} >= QUIET_KINDS


def test_markup_in_texts_is_text() -> None:
    console = drawn(terminal=False)
    PlainDisplay(console).on_event(line(Warned("table [red]x[/red] of [bold]")))
    assert "table [red]x[/red] of [bold]" in written(console)


def test_terminals_get_the_live_picture_and_others_lines() -> None:
    with open_display(drawn(terminal=False)) as display:
        assert isinstance(display, PlainDisplay)
    with open_display(drawn(terminal=True), live=False) as display:
        assert isinstance(display, PlainDisplay)
    console = drawn(terminal=True)
    with open_display(console) as display:
        assert isinstance(display, LiveDisplay)
        display.on_status(STATUS)
        display.on_event(LOST)
    assert "killed by SIGKILL" in written(console)


def gpu_lines(**facts: object) -> str:
    gpu = GpuStatus(index=0, name="a GPU", total_bytes=140 << 30, used_bytes=14 << 30, **facts)  # type: ignore[arg-type]
    console = drawn(terminal=False)
    console.print(picture(msgspec.structs.replace(STATUS, gpus=(gpu,))))
    return written(console)


def test_a_gpu_is_one_line() -> None:
    told = gpu_lines(busy=0.83, own_busy=0.82, received_bytes_per_s=2.0 * 2**30, sent_bytes_per_s=2.0**30)
    assert "GPU 0  busy 83%  memory 14.0 GiB of 140.0 GiB  bus in 2.0 GiB/s, out 1.0 GiB/s" in told


def test_a_gpu_that_others_use_too_and_one_that_is_slowed_say_so() -> None:
    assert "busy 80% (this run 30%)" in gpu_lines(busy=0.8, own_busy=0.3)
    assert "slowed by temperature, power limit" in gpu_lines(busy=0.8, slowed_by=("temperature", "power limit"))


def test_a_gpu_that_does_not_answer_says_why() -> None:
    assert "GPU 0  not measured: GPU is lost" in gpu_lines(problem="GPU is lost")
