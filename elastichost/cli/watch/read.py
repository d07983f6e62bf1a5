"""Verbs that look at a run: status, events, logs. They only read files of the run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from elastichost.cli.completion import event_kinds
from elastichost.cli.output import AsJson, data_console, print_json
from elastichost.cli.runs import NEWEST, NOTHING_SAVED, RunArgument, find_run, program, short_path
from elastichost.cli.watch.run_view import picture, plain_line
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean
from elastichost.metrics import FINISHED_STATES, RunStatus, read_status
from elastichost.runs.liveness import has_ended, is_at_work
from elastichost.runs.result import read_result
from elastichost.runs.tail import Tail

__all__ = ["register"]

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they come, until the run ends.")]


def _process_names(ctx: Any, incomplete: str) -> list[str]:
    """What a shell proposes for a process: the processes of the run on the command line that have logs."""
    try:
        logs = find_run(ctx.params.get("run") or NEWEST) / "logs"
    except ConfigError:
        return []
    known = sorted({path.name.partition(".")[0] for path in logs.glob("*.log")})
    return [name for name in known if name.startswith(incomplete)]


def register(app: typer.Typer) -> None:
    app.command("status")(status)
    app.command("events")(events)
    app.command("logs")(logs)


def status(run: RunArgument = "latest", as_json: AsJson = False) -> None:
    """Show what a run does now: progress, speed, plan and processes."""
    directory = find_run(run)
    facts = read_status(directory)
    running = is_at_work(directory, facts)
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
    if facts.state not in FINISHED_STATES:
        return f"not running: its supervisor ({facts.supervisor_pid}) is gone; continue with: {program()} resume {run}"
    result = read_result(directory)
    reason = result.message.partition("\n")[0] if result is not None else ""
    told = f"not running: {facts.state}{f': {reason}' if reason else ''}"
    if result is not None and not result.is_resumable:
        return f"{told}\n{NOTHING_SAVED}; its files are in {run}"
    return f"{told}; continue with: {program()} resume {run}"


def events(
    run: RunArgument = "latest",
    as_json: AsJson = False,
    follow: Follow = False,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            "-k",
            help="Only events of this kind or category, e.g. process_lost, decision; repeatable.",
            autocompletion=event_kinds,
        ),
    ] = None,
    cause: Annotated[str, typer.Option("--cause", "-c", help="Only events with this cause, e.g. scale-1.2.")] = "",
    leases: Annotated[bool, typer.Option("--leases", help="Also print every lease of samples to a worker.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a line of journal.jsonl and exit.")
    ] = False,
) -> None:
    """Print the journal of a run: what happened, when, and why."""
    from elastichost.cli.watch.event_list import Selection, show_events, show_schema  # loads numpy: `--help` need not

    if schema:
        show_schema()
        return
    selection = Selection.of(kinds or (), cause, leases=leases, follow=follow)
    directory = find_run(run)
    show_events(directory, selection, lambda: not follow or has_ended(directory), as_json=as_json)


def logs(
    run: RunArgument = "latest",
    follow: Follow = False,
    process: Annotated[
        str, typer.Option("--process", "-p", help="Only this process, e.g. worker-0.", autocompletion=_process_names)
    ] = "",
) -> None:
    """Print what the processes of a run wrote to stdout and stderr."""
    directory = find_run(run)
    tails: dict[Path, Tail] = {}
    while True:
        ended = not follow or has_ended(directory)
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
    """The files `<process>.<incarnation>.log`: of one process oldest first, of all processes by name."""
    found = [path for path in (directory / "logs").glob("*.log") if not process or _process_of(path) == process]
    return sorted(found, key=lambda path: (path.stat().st_ctime if process else 0.0, path.name))


def _process_of(path: Path) -> str:
    return path.stem.partition(".")[0]


def _no_logs(directory: Path, process: str) -> ConfigError:
    known = sorted({_process_of(path) for path in (directory / "logs").glob("*.log")})
    if not process:
        return ConfigError(f"{directory / 'logs'}: no process has a log yet")
    listed = f"processes with logs: {', '.join(known)}" if known else "no process has a log yet"
    return ConfigError(f"no process {process!r} has a log{did_you_mean(process, known)}", hint=listed)
