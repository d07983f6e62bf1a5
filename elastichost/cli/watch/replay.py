"""`replay RUN`: recomputes the decisions of a run from their recorded inputs, and compares."""

from __future__ import annotations

import typer
from rich.text import Text

from elastichost.cli.output import AsJson, data_console, print_json
from elastichost.cli.runs import RunArgument, find_run
from elastichost.errors import ExitCode

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("replay")(replay)


def replay(run: RunArgument = "latest", as_json: AsJson = False) -> None:
    """Recompute a run's decisions from their recorded inputs, and compare. Exit code 1 if a decision differs."""
    from elastichost.runs.decisions import DECISIONS_FILE, read_records
    from elastichost.tuner.replay import replay as again

    path = find_run(run) / DECISIONS_FILE
    records = list(read_records(path))
    out = data_console()
    decisions, others = 0, 0
    for one in again(records):
        decisions += 1
        others += not one.is_same
        if as_json:
            continue
        mark = "same   " if one.is_same else "DIFFERS"
        out.print(
            Text.assemble((mark, "" if one.is_same else "bold red"), f"  {one.part}: {one.recorded or 'nothing'}")
        )
        if not one.is_same:
            out.print(Text(f"         now: {one.again or 'nothing'}"))
    if as_json:
        print_json({"run_dir": str(path.parent), "records": len(records), "decisions": decisions, "different": others})
    else:
        out.print(f"{len(records)} records, {decisions} decisions, {others} of them differ")
    raise typer.Exit(int(ExitCode.JOB_FAILED if others else ExitCode.DONE))
