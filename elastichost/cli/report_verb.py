"""`report RUN`: one HTML file that tells what a run did and what the tuner knew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from elastichost.cli.output import AsJson, data_console, print_json
from elastichost.cli.runs import RunArgument, find_run, is_alive, is_run, short_path
from elastichost.errors import PreflightError
from elastichost.metrics import FINISHED_STATES, read_status

__all__ = ["register"]

REPORT_FILE = "report.html"
REMAINS = ("journal.jsonl", "metrics.db", "status.json", "result.json")


def register(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    run: RunArgument = "latest",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: report.html in the run directory.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write what a run did and what the tuner knew as one HTML file: speed, loss, plans, decisions, model, faults.

    With --json the figures behind it are printed; the file is written then only where --output names it.
    """
    from elastichost.reporting.assemble import read_report
    from elastichost.supervisor.journal import utc_now

    directory = _find(run)
    found = read_report(directory, is_running=_is_running(directory), now_utc=utc_now())
    if output is None and not as_json:
        output = directory / REPORT_FILE
    if output is not None:
        from elastichost.reporting.page import page_of

        _write(output, page_of(found).encode("utf-8", "replace"))
    if as_json:
        written = str(output) if output is not None else None
        print_json({"run_dir": str(directory), "output": written, **msgspec.to_builtins(found)})
        return
    assert output is not None
    out = data_console()
    out.print(short_path(output.absolute()), soft_wrap=True)
    for gap in found.gaps:
        out.print(f"lacks {gap.source}: {gap.text}", style="dim", soft_wrap=True, markup=False)


def _find(run: str) -> Path:
    """A run, or what is left of one: a directory without its job file tells something still."""
    remains = Path(run)
    if not is_run(remains) and any((remains / name).is_file() for name in REMAINS):
        return remains.resolve()
    return find_run(run)


def _is_running(directory: Path) -> bool:
    try:
        facts = read_status(directory)
    except PreflightError:
        return False
    return is_alive(facts.supervisor_pid) and facts.state not in FINISHED_STATES


def _write(path: Path, page: bytes) -> None:
    """As a whole or not at all. Raises PreflightError when it cannot be written."""
    from elastichost.supervisor.rundir import write_atomically

    try:
        write_atomically(path, page)
    except OSError as error:
        raise PreflightError(
            f"{path}: cannot be written: {error.strerror or error}", hint="name another place with --output FILE"
        ) from error
