"""The display of many jobs on one host, as lines and as a live table."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from elastichost.cli.many_jobs.host_view import (
    KIND_STYLES,
    QUIET_KINDS,
    host_line,
    host_picture,
    job_table,
    open_host_display,
)
from elastichost.dispatcher.facts import HostStatus, JobStatus
from elastichost.runs.events import (
    EVENT_CLASSES,
    AnyEvent,
    HostPrepared,
    JobExamined,
    JobFailed,
    JobStarted,
    JobSubmitted,
    JournalLine,
)

RUNNING = JobStatus(
    job="ads",
    state="running",
    run_dir="/r",
    kind="dense",
    workers=2,
    servers=1,
    samples_planned=200,
    samples_trained=50,
    samples_per_s=1234.0,
    predicted_speed=0.5,
    cpu_cores=1.25,
    memory_bytes=50 << 20,
    charged_bytes=60 << 20,
    why="there was room",
    submitted_s=1.0,
)


def status(*jobs: JobStatus, elapsed_s: float = 3.0, decision: str = "") -> HostStatus:
    return HostStatus(
        directory="/h",
        pid=1,
        commands="",
        policy="fifo",
        cores=2,
        cpu_cores=1.25,
        used_bytes=50 << 20,
        charged_bytes=60 << 20,
        elapsed_s=elapsed_s,
        jobs=jobs,
        last_decision=decision,
    )


def line(event: AnyEvent) -> JournalLine:
    return JournalLine("2026-01-02T03:04:05.678Z", 1.0, event)


def shown(what: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(what)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_a_line_counts_jobs_and_adds_up_their_speed() -> None:
    waiting = msgspec.structs.replace(RUNNING, job="b", state="waiting", samples_per_s=0.0)
    line = host_line(status(RUNNING, waiting, msgspec.structs.replace(waiting, job="c"))).plain
    for word in ("1 running", "2 waiting", "cores 1.2/2", "50.0 MiB used", "60.0 MiB charged", "samples/s"):
        assert word in line
    assert "samples/s" not in host_line(status(waiting)).plain


def test_a_row_shows_what_a_job_does_or_how_it_ended() -> None:
    row = shown(job_table(status(RUNNING))).splitlines()[1]
    for word in ("ads", "running", "2+1", "25%", "0.50", "1.2", "there was room"):
        assert word in row
    done = msgspec.structs.replace(RUNNING, state="done", started_s=0.0, ended_s=65.0, test_auc=0.81234)
    assert "1m05s" in shown(job_table(status(done))) and "AUC 0.8123" in shown(job_table(status(done)))
    failed = msgspec.structs.replace(RUNNING, state="failed", why="ModelError: too few towers")
    assert "ModelError: too few towers" in shown(job_table(status(failed)))
    proposes = msgspec.structs.replace(RUNNING, own_tuner="its tuner proposes 2 workers, 3 PS: it is faster")
    assert "its tuner proposes 2 workers, 3 PS" in shown(job_table(status(proposes)))
    paused = msgspec.structs.replace(proposes, state="paused")
    assert "proposes" not in shown(job_table(status(paused))) and "there was room" in shown(job_table(status(paused)))
    gpu = msgspec.structs.replace(RUNNING, gpu=1)
    assert "GPU 1" in shown(job_table(status(gpu)))


def test_running_jobs_come_first_and_a_live_table_has_a_row_limit() -> None:
    waiting = [JobStatus(job=f"w{at:02}", state="waiting", run_dir="", submitted_s=float(at)) for at in range(40)]
    lines = shown(job_table(status(*waiting, RUNNING))).splitlines()
    assert lines[1].split()[0] == "ads" and len(lines) == 42
    picture = shown(host_picture(status(*waiting, RUNNING, decision="ads: there was room")))
    assert "and 11 more" in picture and picture.splitlines()[-1].startswith("ads: there was room")


def test_ended_jobs_that_the_status_leaves_out_are_counted() -> None:
    ended = msgspec.structs.replace(RUNNING, job="b", state="done")
    host = msgspec.structs.replace(status(RUNNING, ended), left_out={"done": 40, "failed": 2})
    line = host_line(host).plain
    for word in ("1 running", "2 failed", "41 done"):
        assert word in line
    assert shown(job_table(host)).splitlines()[-1].strip() == "and 42 that ended earlier"
    assert "ended earlier" not in shown(job_table(status(RUNNING, ended)))


def test_plain_lines_are_rare_and_events_immediate() -> None:
    console = Console(file=io.StringIO(), width=200)
    with open_host_display(console, live=True) as display:  # not a terminal: lines
        for elapsed_s in (0.0, 1.0, 9.9, 10.0, 10.5, 20.1):
            display.on_status(status(RUNNING, elapsed_s=elapsed_s))
        display.on_event(line(JobFailed("ads", "ModelError: too few towers")))
        display.on_event(line(HostPrepared(1.5)))
        display.on_event(line(JobSubmitted("ads")))
        display.on_event(line(JobExamined("ads", "dense", 1 << 20, 100, {})))
    written = console.file
    assert isinstance(written, io.StringIO)
    lines = written.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[3] == "ads  ModelError: too few towers"
    assert lines[4] == "libraries imported in 1.5 s; jobs can start"


def test_kinds_that_are_quiet_or_have_a_colour_exist() -> None:
    assert {one.__struct_config__.tag for one in EVENT_CLASSES} >= QUIET_KINDS | set(KIND_STYLES)


@pytest.mark.parametrize("live", [True, False])
def test_a_terminal_gets_a_live_table_if_requested(live: bool) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with open_host_display(console, live=live) as display:
        display.on_status(status(RUNNING))
        display.on_event(line(JobStarted("ads", "there was room", 2, 60 << 20, {"ads": 1.0})))
    written = console.file
    assert isinstance(written, io.StringIO)
    assert ("\x1b[?25l" in written.getvalue()) == live, "only a live display hides the cursor"
    assert "there was room" in written.getvalue()
