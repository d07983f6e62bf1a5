"""Verbs that look at a run: status, events, logs. They only read files of the run directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from elastichost.cli.output import AsJson, data_console, print_json
from elastichost.cli.runs import RunArgument, find_run, is_alive, program, short_path
from elastichost.cli.tail import Tail
from elastichost.display import event_line, picture, plain_line
from elastichost.errors import ConfigError, PreflightError
from elastichost.metrics import FINISHED_STATES, JournalEvent, RunStatus, read_status
from elastichost.spelling import did_you_mean

__all__ = ["register"]

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until the run ends.")]


def register(app: typer.Typer) -> None:
    app.command("status")(status)
    app.command("events")(events)
    app.command("logs")(logs)


def status(run: RunArgument = "latest", as_json: AsJson = False) -> None:
    """What a run is doing now, process by process."""
    directory = find_run(run)
    facts = read_status(directory)
    running = is_alive(facts.supervisor_pid) and facts.state not in FINISHED_STATES
    if as_json:
        print_json({**msgspec.to_builtins(facts), "running": running})
        return
    out = data_console()
    out.print(picture(facts) if running else plain_line(facts))
    out.print(_standing(directory, facts, running), style="dim", soft_wrap=True)


def _standing(directory: Path, facts: RunStatus, running: bool) -> str:
    run = short_path(directory)
    if running:
        return f"running: supervisor {facts.supervisor_pid}, {run}"
    if facts.state in ("done", "quarantined", "incomplete"):
        return f"not running: {facts.state}, {run}"
    why = facts.state if facts.state in FINISHED_STATES else f"its supervisor ({facts.supervisor_pid}) is gone"
    return f"not running: {why}; go on with: {program()} resume {run}"


def events(run: RunArgument = "latest", as_json: AsJson = False, follow: Follow = False) -> None:
    """The journal of a run: what happened, when, and why."""
    directory = find_run(run)
    path = directory / "journal.jsonl"
    if not path.is_file():
        raise PreflightError(f"{path}: this run has no journal yet")
    out = data_console()
    count = 0
    for line in _lines(Tail(path), directory, follow):
        event = _event(line, path, count + 1)
        count += 1
        if as_json:
            sys.stdout.write(line + "\n")
        else:
            out.print(event_line(event))
    if as_json:
        print_json({"run_dir": str(directory), "events": count})


def _event(line: str, path: Path, number: int) -> JournalEvent:
    try:
        return msgspec.json.decode(line, type=JournalEvent)
    except msgspec.DecodeError as error:
        raise PreflightError(f"{path}, line {number}: not a journal event: {error}") from error


def _lines(tail: Tail, directory: Path, follow: bool) -> Iterator[str]:
    """All lines there are; with `follow` also those to come, until the run has ended."""
    while True:
        ended = not follow or _has_ended(directory)  # asked before reading: what came in between is read below
        yield from tail.new_lines()
        if ended:
            return
        tail.wait()


def _has_ended(directory: Path) -> bool:
    try:
        facts = read_status(directory)
    except PreflightError:
        return False
    return facts.state in FINISHED_STATES or not is_alive(facts.supervisor_pid)


def logs(
    run: RunArgument = "latest",
    follow: Follow = False,
    process: Annotated[str, typer.Option("--process", "-p", help="Only this process, e.g. worker-0.")] = "",
) -> None:
    """What the processes of a run printed."""
    directory = find_run(run)
    tails: dict[Path, Tail] = {}
    while True:
        ended = not follow or _has_ended(directory)
        for path in _log_files(directory, process):
            tail = tails.setdefault(path, Tail(path))
            for line in tail.new_lines():
                typer.echo(line if process else f"{path.stem:<12} {line}")
        if not tails and ended:
            raise _no_logs(directory, process)
        if ended:
            return
        Tail.wait()


def _log_files(directory: Path, process: str) -> list[Path]:
    """`<process>.<life>.log`, in the order in which the processes began."""
    found = [path for path in (directory / "logs").glob("*.log") if not process or _process_of(path) == process]
    return sorted(found, key=lambda path: (path.stat().st_ctime if process else 0.0, path.name))


def _process_of(path: Path) -> str:
    return path.stem.partition(".")[0]


def _no_logs(directory: Path, process: str) -> ConfigError:
    known = sorted({_process_of(path) for path in (directory / "logs").glob("*.log")})
    if not process:
        return ConfigError(f"{directory / 'logs'}: there are no logs yet")
    listed = f"processes with logs: {', '.join(known)}" if known else "no process has a log yet"
    return ConfigError(f"no log of {process!r}{did_you_mean(process, known)}", hint=listed)
