"""`log`: sends what a run has measured to an experiment logger, also long after the run."""

from __future__ import annotations

from typing import Annotated

import typer

from elastichost.cli.output import AsJson, data_console, print_json
from elastichost.cli.runs import RunArgument, find_run
from elastichost.errors import ConfigError
from elastichost.metrics import FINISHED_STATES, read_status
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.runs.liveness import is_running

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("log")(log)


def log(
    run: RunArgument = "latest",
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="NAME", help="csv, mlflow, tensorboard or wandb; default: those of the job."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send what experiment loggers still miss of a run that has ended.

    That is: its losses, evaluations and settings.
    """
    from elastichost.config.job import load_job
    from elastichost.config.sections.loggers import LOGGERS
    from elastichost.loggers.process import deliver

    directory = find_run(run)
    names = tuple(to or load_job(directory / RESOLVED_JOB_FILE, environ={}).logging.to)
    unknown = [name for name in names if name not in LOGGERS]
    if unknown or not names:
        problem = f"there is no logger {unknown[0]!r}" if unknown else "the job of this run names no logger"
        raise ConfigError(problem, hint=f"name one with --to: {', '.join(LOGGERS)}")
    status = read_status(directory)
    if is_running(directory):
        raise ConfigError("the run still trains, and its own loggers send its values", hint="wait until it has ended")
    ended = status.state if status.state in FINISHED_STATES else "killed"
    for name in names:
        deliver(directory, name, lambda: ended)
    if as_json:
        print_json({"run_dir": str(directory), "sent_to": list(names)})
    else:
        data_console().print(f"sent to {', '.join(names)}")
