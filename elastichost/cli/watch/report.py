"""`report RUN...`: writes one HTML file about a run, about many jobs on one host, or one that compares runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from elastichost.cli.output import AsJson, data_console, print_json
from elastichost.cli.runs import RUNS, find_run, is_host, is_host_at_work, is_run, program, run_names, short_path
from elastichost.errors import ConfigError, PreflightError
from elastichost.run_files import JOURNAL_FILE, METRICS_FILE, REPORT_FILE, RESULT_FILE, STATUS_FILE
from elastichost.runs.liveness import is_running

if TYPE_CHECKING:
    from elastichost.reporting.compare.facts import Comparison
    from elastichost.reporting.host.facts import HostReport
    from elastichost.reporting.run.facts import Report

__all__ = ["register"]

COMPARISON_FILE = "comparison.html"
REMAINS = (JOURNAL_FILE, METRICS_FILE, STATUS_FILE, RESULT_FILE)
ReportArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN",
        help='The directory of a run, a batch or a host, a name under runs/, or "latest" (default). Several runs are '
        "compared.",
        autocompletion=run_names,
    ),
]


def register(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    runs: ReportArgument = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The HTML file; default: report.html in that directory, or comparison.html here for several runs.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an HTML page about a run or a host, or compare several runs.

    For a run: learning, what was trained, speed, plans, processes, memory, the tuner and its decisions, faults. For a
    batch or a host: its jobs over time, cores, memory, speeds of jobs that run together, decisions. For several runs:
    their learning curves, results, and the settings that differ. With --json the figures of the page are printed, and
    the file is written only if --output names one.
    """
    named = runs or ["latest"]
    if len(named) > 1:
        _write_comparison(named, output, as_json=as_json)
        return
    host = _find_host(named[0])
    directory = host if host is not None else _find(named[0])
    found, page_of = _read_host(directory) if host is not None else _read_run(directory)
    default = directory / REPORT_FILE
    _give(found, page_of, output, default, {"run_dir": str(directory)}, as_json=as_json)


def _write_comparison(named: Sequence[str], output: Path | None, *, as_json: bool) -> None:
    """Reads the runs and writes their comparison. Raises ConfigError that names the run that cannot be read."""
    from elastichost.reporting.compare.assemble import comparison_of
    from elastichost.reporting.compare.page import comparison_page_of
    from elastichost.runs.journal import utc_now

    for name in named:
        if (host := _find_host(name)) is not None:
            raise ConfigError(
                f"{name} is the directory of many jobs ({short_path(host)}), and a comparison takes runs",
                hint=f"name its runs, or write one page about all its jobs: {program()} report {name}",
            )
    directories = [_find(name) for name in named]
    comparison = comparison_of([_read_run(directory)[0] for directory in directories], utc_now())
    names: dict[str, object] = {"run_dirs": [str(directory) for directory in directories]}
    _give(comparison, lambda: comparison_page_of(comparison), output, Path(COMPARISON_FILE), names, as_json=as_json)


def _give(
    found: Report | HostReport | Comparison,
    page_of: Callable[[], str],
    output: Path | None,
    default: Path,
    names: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    """Writes the page, and prints its facts or its path."""
    if output is None and not as_json:
        output = default
    if output is not None:
        _write(output, page_of().encode("utf-8", "replace"))
    if as_json:
        written = str(output) if output is not None else None
        print_json({**names, "output": written, **msgspec.to_builtins(found)})
        return
    assert output is not None
    out = data_console()
    out.print(short_path(output.absolute()), soft_wrap=True)
    for gap in found.gaps:
        out.print(f"problem with {gap.source}: {gap.text}", style="dim", soft_wrap=True)


def _read_run(directory: Path) -> tuple[Report, Callable[[], str]]:
    """The facts of a run's report, and a function that renders them as HTML."""
    from elastichost.reporting.run.assemble import read_report
    from elastichost.reporting.run.view.page import page_of
    from elastichost.runs.journal import utc_now

    report = read_report(directory, is_running=is_running(directory), now_utc=utc_now())
    return report, lambda: page_of(report)


def _read_host(directory: Path) -> tuple[HostReport, Callable[[], str]]:
    from elastichost.reporting.host.assemble import read_host_report
    from elastichost.reporting.host.page import host_page_of
    from elastichost.runs.journal import utc_now

    report = read_host_report(directory, is_running=_is_host_running(directory), now_utc=utc_now())
    return report, lambda: host_page_of(report)


def _find_host(name: str) -> Path | None:
    """The directory of a batch or a host, or None. A host has a status file that a run does not have."""
    found = (path for path in (Path(name), RUNS / name) if is_host(path))
    return next((path.resolve() for path in found), None)


def _find(run: str) -> Path:
    """The directory of a run. A directory that has lost its job file is accepted if it still has one of REMAINS."""
    remains = Path(run)
    if not is_run(remains) and any((remains / name).is_file() for name in REMAINS):
        return remains.resolve()
    return find_run(run)


def _is_host_running(directory: Path) -> bool:
    from elastichost.dispatcher.facts import read_host

    try:
        return is_host_at_work(directory, read_host(directory))
    except PreflightError:
        return False


def _write(path: Path, page: bytes) -> None:
    """Writes the page atomically. Raises PreflightError if that fails."""
    from elastichost.atomic_write import write_atomically

    try:
        write_atomically(path, page)
    except OSError as error:
        raise PreflightError(
            f"cannot write {path}: {error.strerror or error}", hint="name another file with --output"
        ) from error
