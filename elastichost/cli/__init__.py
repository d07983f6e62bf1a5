"""The command line: parses verbs, runs them, returns exit codes. Each group of verbs has a folder.

Modules:
    train/         init, run, resume, scale, plan, config, convert
    watch/         status, events, logs, log, report, replay
    many_jobs/     search, host, submit, queue, cancel, top, and `run` with several jobs
    maintenance/   doctor, clean, bench, chaos
    results        export, predict and serve
    groups         the groups of verbs in `--help`
    runs           finds the run directory that a verb names
    options        options that several verbs share
    sources        waits for files at addresses
    gpu_words      which worker of a plan has which GPU
    output         data, progress and the JSON object of `--json`
    report         prints the facts that a verb returns
    usage          errors of the arguments of a verb
    completion     what a shell proposes for job files, settings and kinds of events
    failure        prints an error

Data goes to stdout; progress and errors go to stderr. Each verb imports its libraries when it runs, so that
`--help` loads no torch, numpy, pyarrow, numba or scipy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from elastichost import __version__
from elastichost.cli import results
from elastichost.cli.failure import report_failure
from elastichost.cli.groups import GroupedVerbs
from elastichost.cli.maintenance import bench, chaos, clean, doctor
from elastichost.cli.many_jobs import host, search
from elastichost.cli.output import wants_json
from elastichost.cli.train import config, convert, init, plan, run, scale
from elastichost.cli.usage import usage_error
from elastichost.cli.watch import log, read, replay, report
from elastichost.errors import ElastichostError, ExitCode, PreflightError

__all__ = ["app", "run_command_line"]

app = typer.Typer(
    name="elastichost",
    cls=GroupedVerbs,
    help="Trains deep-learning recommendation models on one workstation, with elastic workers and parameter servers "
    "(PS).",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    init,
    run,
    read,
    results,
    doctor,
    config,
    convert,
    clean,
    bench,
    chaos,
    scale,
    replay,
    plan,
    search,
    host,
    report,
    log,
)
for verbs in VERBS:
    verbs.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself; each takes effect in its own callback."""


def run_command_line(arguments: Sequence[str]) -> int:
    """Runs one verb and returns the exit code. An error is printed once: as a block on stderr, or with `--json` as the
    JSON object on stdout. It has no traceback of elastichost, unless ELASTICHOST_DEBUG=1."""
    try:
        # not standalone: an error of the arguments is raised, and printed like any other
        return int(app(args=list(arguments), prog_name="elastichost", standalone_mode=False) or ExitCode.DONE)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except (KeyboardInterrupt, typer.Abort):
        return int(ExitCode.INTERRUPTED)
    except Exception as raised:
        error = usage_error(raised)
        if error is None:  # a verb without arguments that it needs: its help was printed
            return int(ExitCode.USAGE)
        if isinstance(error, PermissionError):
            error = PreflightError(
                f"{error.filename}: {error.strerror}", hint="check that you may read and write this path"
            )
        if os.environ.get("ELASTICHOST_DEBUG") == "1":
            raise
        report_failure(error, as_json=wants_json(arguments))
        return int(error.exit_code if isinstance(error, ElastichostError) else ExitCode.JOB_FAILED)
