"""The verb `search`: looks for the best values of settings, with many trials on this host at a time."""

from __future__ import annotations

import secrets
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from elastichost.cli.completion import job_files
from elastichost.cli.many_jobs.batch import (
    MEMORY,
    POLICY,
    MemoryOption,
    PolicyOption,
    PolicySettings,
    SizesAgain,
    host_parts,
    resumed_parts,
)
from elastichost.cli.options import Overrides
from elastichost.cli.output import AsJson, data_console, print_json, progress_console
from elastichost.cli.runs import program, short_path
from elastichost.errors import ConfigError, ExitCode, PreflightError
from elastichost.host.environment import check_address_space

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec
    from elastichost.dispatcher.options import HostOptions
    from elastichost.resources import HostInventory
    from elastichost.search.outcome import SearchOutcome, TrialOutcome
    from elastichost.search.settings import SearchSettings

__all__ = ["register"]

TRIALS, METRIC, SEED = 24, "auc", 0


def register(app: typer.Typer) -> None:
    app.command("search")(search)


def search(
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB", help="The job file (TOML).", autocompletion=job_files)
    ] = None,
    parameters: Annotated[
        list[str],
        typer.Option(
            "--param",
            metavar="KEY=VALUES",
            help="A setting and the values to try: KEY=log(0.01, 1), uniform(0, 0.5), int(1, 4) or choice(sgd, adam); "
            "repeatable.",
        ),
    ] = [],  # noqa: B006 typer copies it
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", min=1, help=f"Number of trials; default: {TRIALS}.")
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", help=f"A figure of the test data, as in evaluate.metrics; default: {METRIC}.")
    ] = "",
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help=f"Seed of the values; default: {SEED}.")
    ] = None,
    overrides: Overrides = [],  # noqa: B006 typer copies it
    run_dir: Annotated[
        Path | None,
        typer.Option("--run-dir", metavar="DIR", help="The directory of the search; default: runs/search-<UTC>-<id>."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="Continue the search in this directory; --trials sets the total."),
    ] = None,
    policy: PolicyOption = "",
    policy_settings: PolicySettings = [],  # noqa: B006 typer copies it
    memory: MemoryOption = "",
    own_sizes: SizesAgain = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines instead of a live screen.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look for the best values of settings: many trials at a time.

    Optuna suggests the values of each trial from the metrics of the trials before it; the dispatcher of `run A B ...`
    trains as many trials together as fit on this host. `best.toml` in the directory of the search is the job with the
    best values. Ctrl-C saves all trials; --resume continues them.
    """
    check_address_space()  # before imports that need a lot of address space
    if find_spec("optuna") is None:
        raise PreflightError("optuna is not installed", hint="pip install 'elastichost[search]'")
    if resume is not None:
        _refuse_on_resume(job, parameters, overrides, metric, seed, run_dir)
        settings, spec = _resumed(resume.resolve(), trials)
        options, found = resumed_parts(resume.resolve(), policy, policy_settings, memory, own_sizes=own_sizes)
    else:
        if job is None:
            raise ConfigError("search needs a job file", hint=f"{program()} search JOB --param KEY=VALUES ...")
        settings, spec = _settings(job, overrides, parameters, trials or TRIALS, metric or METRIC, seed or SEED)
        options, found = _new_parts(run_dir, policy or POLICY, policy_settings, memory or MEMORY, bool(own_sizes))
        _begin(options, settings, spec)
    _search(settings, spec, options, found, live=not plain, as_json=as_json)


def _new_parts(
    run_dir: Path | None, policy: str, policy_settings: list[str], memory: str, own_sizes: bool
) -> tuple[HostOptions, HostInventory]:
    """The options of the dispatcher of a new search, in a directory that is made, and the host."""
    directory = _new_directory(run_dir)
    return host_parts(directory, directory, policy, policy_settings, memory, own_sizes=own_sizes, ends_when_empty=True)


def _refuse_on_resume(
    job: object, parameters: object, overrides: object, metric: object, seed: object, run_dir: object
) -> None:
    given = {"JOB": job, "--param": parameters, "--set": overrides, "--metric": metric, "--seed": seed}
    names = [name for name, value in {**given, "--run-dir": run_dir}.items() if value not in (None, [], "")]
    if names:
        raise ConfigError(
            f"--resume continues a search as it began, without {', '.join(names)}",
            hint="leave them out, or begin a new search",
        )


def _settings(
    path: Path, overrides: list[str], texts: list[str], trials: int, metric: str, seed: int
) -> tuple[SearchSettings, JobSpec]:
    """Everything that a search needs to know. Raises ConfigError for a parameter that is not allowed."""
    from elastichost.config.job import load_job
    from elastichost.search.objective import objective_of
    from elastichost.search.settings import SearchSettings, check_values
    from elastichost.search.space import parse_parameters

    spec = load_job(path, overrides)
    found = parse_parameters(texts)
    folder = path.resolve().parent
    check_values(spec, found, str(path), folder)
    return SearchSettings(found, trials, objective_of(spec, metric), seed, str(Path.cwd()), str(folder)), spec


def _new_directory(run_dir: Path | None) -> Path:
    from elastichost.dispatcher.facts import HOST_FILE
    from elastichost.runs.directory import new_run_path
    from elastichost.search.settings import is_search

    if run_dir is None:
        return new_run_path(Path.cwd(), "search", secrets.token_hex(3))
    directory = run_dir.resolve()
    if is_search(directory):
        hint = f"continue it with `{program()} search --resume {short_path(directory)}`, or choose another --run-dir"
        raise ConfigError(f"{short_path(directory)} already holds a search", hint=hint)
    if (directory / HOST_FILE).exists():
        raise ConfigError(f"{short_path(directory)} already holds jobs", hint="choose another --run-dir")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(
            f"{short_path(directory)} is not empty: a search needs a directory of its own",
            hint="choose another --run-dir; it is made if it is missing",
        )
    return directory


def _begin(options: HostOptions, settings: SearchSettings, spec: JobSpec) -> None:
    from elastichost.search.settings import begin_directory

    assert options.asked is not None
    begin_directory(options.directory, settings, spec, options.asked)
    shown = short_path(options.directory)
    text = f"search in {shown}; after a stop or a kill: {program()} search --resume {shown}"
    progress_console().print(text, style="dim", soft_wrap=True)


def _resumed(directory: Path, trials: int | None) -> tuple[SearchSettings, JobSpec]:
    """The settings of a search to continue. trials: its new number of trials; None: unchanged."""
    from elastichost.search.settings import read_settings, write_settings

    settings, spec = read_settings(directory)
    if trials is not None and trials != settings.trials:
        settings = msgspec.structs.replace(settings, trials=trials)
        write_settings(directory, settings)
    return settings, spec


def _search(
    settings: SearchSettings, spec: JobSpec, options: HostOptions, found: HostInventory, *, live: bool, as_json: bool
) -> None:
    """Runs the search, shows it, and exits: 0 if all trials have ended and one is done; 1 if none is done; 75 if some
    can be continued."""
    from elastichost.cli.many_jobs.host_view import open_host_display
    from elastichost.search.run_search import SearchObserver, run_search

    options = replace(options, runs_under=options.directory, goes_on=True)
    with open_host_display(progress_console(), live=live) as display:
        observer = SearchObserver(
            display.on_status,
            display.on_event,
            on_trial=lambda one, all_: display.show(trial_line(one, all_)),
            on_problem=lambda problem: display.show(Text(problem, style="yellow")),
        )
        outcome = run_search(settings, spec, options, found, observer)
    if as_json:
        print_json({**msgspec.to_builtins(outcome), "exit_code": exit_code_of(outcome)})
    else:
        show_outcome(outcome)
    raise typer.Exit(exit_code_of(outcome))


def exit_code_of(outcome: SearchOutcome) -> int:
    if not outcome.is_finished:
        return int(ExitCode.STOPPED_RESUMABLE)
    return int(ExitCode.DONE if outcome.best is not None else ExitCode.JOB_FAILED)


def trial_line(trial: TrialOutcome, outcome: SearchOutcome) -> Text:
    """How a trial ended, in one line."""
    values = "  ".join(f"{path}={_short(text)}" for path, text in trial.settings.items())
    line = Text(trial.job, style="cyan").append("  ")
    if trial.value is None:
        return line.append(f"failed: {trial.why}", style="red").append(f"  {values}", style="")
    line.append(f"{outcome.metric} {trial.value:.4f}", style="bold" if trial.trial == outcome.best else "")
    line.append(" (the best so far)" if trial.trial == outcome.best else "")
    return line.append(f"  {values}")


def trial_table(outcome: SearchOutcome) -> Table:
    """All trials, the best first, then those that failed or have not ended."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    paths = list(dict.fromkeys(path for one in outcome.trials for path in one.settings))
    for name in ("trial", "state"):
        table.add_column(name, no_wrap=True)
    for name in (outcome.metric, *paths):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("why", overflow="ellipsis", no_wrap=True)
    sign = -1.0 if outcome.direction == "maximize" else 1.0
    for one in sorted(outcome.trials, key=lambda one: (one.value is None, sign * (one.value or 0.0), one.trial)):
        value = "" if one.value is None else f"{one.value:.4f}"
        style = "bold" if one.trial == outcome.best else "red" if one.state == "failed" else ""
        table.add_row(
            one.job, one.state, value, *(_short(one.settings.get(path, "")) for path in paths), one.why, style=style
        )
    return table


def _short(text: str) -> str:
    """A number with four digits; any other text unchanged."""
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def show_outcome(outcome: SearchOutcome) -> None:
    """Prints the last screen of a search."""
    from elastichost.search.outcome import BEST_FILE

    out, directory = data_console(), Path(outcome.directory)
    if outcome.trials:
        out.print(trial_table(outcome))
    if outcome.has_given_up:
        out.print("the search ended early: its first trials all failed", style="red")
    if (best := outcome.best_trial) is not None:
        line = f"best: {best.job}, {outcome.metric} {best.value:.4f}; its job file: {short_path(directory / BEST_FILE)}"
        out.print(line, soft_wrap=True)
    if not outcome.is_finished:
        following = f"search --resume {short_path(directory)}"
    elif outcome.best is not None:
        following = f"run {short_path(directory / BEST_FILE)}"
    else:
        following = f"report {short_path(directory)}"
    out.print(f"next: {program()} {following}", style="cyan", soft_wrap=True)
