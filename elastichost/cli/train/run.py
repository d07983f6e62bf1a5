"""Verbs that train: run and resume."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from elastichost.cli.completion import job_files
from elastichost.cli.many_jobs.batch import (
    MEMORY,
    POLICY,
    MemoryOption,
    PolicyOption,
    PolicySettings,
    SizesAgain,
    SizesOption,
    find_batch,
    resume_batch,
    run_batch,
)
from elastichost.cli.options import Overrides
from elastichost.cli.output import AsJson, data_console, print_json, progress_console
from elastichost.cli.runs import RunArgument, find_run, program, short_path
from elastichost.cli.train.hosts_option import AddressOption, HostsOption, OnOption, RayAddressOption, hosts_asked
from elastichost.cli.train.summary import summary
from elastichost.cli.watch.run_view import open_display
from elastichost.errors import ConfigError
from elastichost.host.environment import check_address_space
from elastichost.run_files import HOSTS_FILE, RESOLVED_JOB_FILE, RESULT_FILE

if TYPE_CHECKING:
    from elastichost.arena.host import Hold
    from elastichost.config.hosts import HostsFile
    from elastichost.config.job import JobSpec

__all__ = ["register"]


FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PATH",
        help="Begin from a checkpoint: its path, or a run directory, of which the newest is taken.",
    ),
]


ContinueOption = Annotated[
    bool,
    typer.Option(
        "--continue",
        help="Resume the run in --run-dir if there is one, else begin it: for clusters, which start a job again with "
        "the same command.",
    ),
]


class Dashboard(StrEnum):
    """How a run is shown. auto: a live screen on a terminal, plain lines elsewhere. no: plain lines."""

    AUTO = "auto"
    NO = "no"


DashboardOption = Annotated[
    Dashboard, typer.Option("--dashboard", help="auto: a live screen on a terminal; no: plain lines.")
]


def register(app: typer.Typer) -> None:
    app.command("run")(run)
    app.command("resume")(resume)


def run(
    jobs: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOB", help="The job file (TOML); several job files form a batch.", autocompletion=job_files
        ),
    ],
    overrides: Overrides = [],  # noqa: B006 typer copies it
    run_dir: Annotated[
        Path | None,
        typer.Option("--run-dir", metavar="DIR", help="The run directory; default: runs/<name>-<UTC>-<id>."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check job, data and host, build the model, run one batch, but do not train."),
    ] = False,
    hosts: HostsOption = None,
    addresses: AddressOption = [],  # noqa: B006 typer copies it
    on: OnOption = None,
    ray_address: RayAddressOption = "",
    policy: PolicyOption = "",
    policy_settings: PolicySettings = [],  # noqa: B006 typer copies it
    memory: MemoryOption = "",
    own_sizes: SizesOption = False,
    start_from: FromOption = None,
    continues: ContinueOption = False,
    dashboard: DashboardOption = Dashboard.AUTO,
    as_json: AsJson = False,
) -> None:
    """Train a job. With several job files, train them together on this host as a batch (--policy, --memory)."""
    check_address_space()  # before imports that need a lot of address space
    from elastichost.config.hosts import with_hosts
    from elastichost.config.job import load_job

    specs = [load_job(job, overrides) for job in jobs]
    others = hosts_asked(hosts, addresses, on, ray_address)
    _check_number(len(specs), has_hosts=others is not None, has_source=start_from is not None, continues=continues)
    if continues and run_dir is None:
        raise ConfigError("--continue needs --run-dir", hint="name the directory with --run-dir DIR")
    if others is not None:
        specs = [with_hosts(spec, others) for spec in specs]
    if dry_run:
        from elastichost.cli.train.dry_run import rehearse

        for spec in specs:
            rehearse(spec, as_json=as_json)
        return
    directory = run_dir.resolve() if run_dir is not None else None
    if len(specs) > 1:
        live = dashboard is Dashboard.AUTO
        policy, memory = policy or POLICY, memory or MEMORY
        run_batch(specs, directory, policy, policy_settings, memory, own_sizes=own_sizes, live=live, as_json=as_json)
    if policy or policy_settings or memory or own_sizes:
        limit = "; resources.memory limits one job: --set resources.memory=4GiB"
        raise _needs_many("several jobs, and this is one", limit)
    if continues and directory is not None and (held := _left_of(directory, specs[0])) is not None:
        _train(specs[0], directory, directory, dashboard, as_json, held, others)
    source = _named_source(start_from) if start_from is not None else None
    _train(specs[0], directory, None, dashboard, as_json, hosts=others, start_from=source)


def _check_number(jobs: int, *, has_hosts: bool, has_source: bool, continues: bool) -> None:
    """Raises ConfigError for several jobs with an option of one job."""
    if jobs == 1:
        return
    if has_hosts:
        raise ConfigError("a batch runs on one host", hint="leave out the other hosts, or run the jobs one by one")
    if has_source or continues:
        raise ConfigError(f"{'--from' if has_source else '--continue'} takes one job", hint="run the jobs one by one")


def _needs_many(needed: str, more: str = "") -> ConfigError:
    return ConfigError(
        f"--policy, --policy-set, --memory and --own-sizes need {needed}", hint=f"leave out these options{more}"
    )


def _refuse_for_batch(overrides: list[str], *others: object) -> None:
    """others: the options that place a run on other hosts or begin it from another checkpoint. Raises ConfigError."""
    if overrides:
        raise ConfigError(
            "--set is not allowed for a batch", hint="resume one of its jobs by its run directory, with --set"
        )
    if any(others):
        raise ConfigError(
            "--hosts, --host, --on, --ray-address and --from are not allowed for a batch",
            hint="resume one of its jobs by its run directory, with these options",
        )


def _left_of(directory: Path, spec: JobSpec) -> tuple[Hold, ...] | None:
    """What the run in this directory left, to resume it; None: there is nothing to resume. Raises ConfigError for a
    run of another job."""
    from elastichost.arena.host import hold_left
    from elastichost.cli.train.continuation import check_continues, is_resumable

    held = hold_left(directory)  # before all else: the process that guards the arena waits only a few seconds
    if not is_resumable(directory, held):
        return None
    check_continues(directory, spec)
    return held


def resume(
    run: RunArgument = "latest",
    overrides: Overrides = [],  # noqa: B006 typer copies it
    hosts: HostsOption = None,
    addresses: AddressOption = [],  # noqa: B006 typer copies it
    on: OnOption = None,
    ray_address: RayAddressOption = "",
    policy: PolicyOption = "",
    policy_settings: PolicySettings = [],  # noqa: B006 typer copies it
    memory: MemoryOption = "",
    own_sizes: SizesAgain = None,
    start_from: FromOption = None,
    dashboard: DashboardOption = Dashboard.AUTO,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was stopped or has died.

    It continues from its arena if that still exists, else from its last checkpoint. After a supervisor is killed, the
    arena stays in memory for supervision.keep_arena_s; a resume within that time loses nothing. Of a batch
    (`run A B ...`), all unfinished jobs continue, with the policy and the memory of the batch unless these options
    change them. A run that is done is not changed.
    """
    check_address_space()
    from elastichost.arena.host import hold_left
    from elastichost.search.settings import is_search

    if (batch := find_batch(run)) is not None:
        _refuse_for_batch(overrides, hosts, addresses, on, ray_address, start_from)
        if is_search(batch):
            raise ConfigError(
                f"{run} is a search", hint=f"continue it with `{program()} search --resume {short_path(batch)}`"
            )
        live = dashboard is Dashboard.AUTO
        resume_batch(batch, policy, policy_settings, memory, own_sizes=own_sizes, live=live, as_json=as_json)
    if policy or policy_settings or memory or own_sizes is not None:
        raise _needs_many("a batch, and this is a single run")
    directory = find_run(run)
    held = hold_left(directory)  # before all else: the process that guards the arena waits only a few seconds
    from elastichost.config.hosts import read_hosts, with_hosts
    from elastichost.config.job import load_job
    from elastichost.config.resume import check_same_job
    from elastichost.supervisor.remote.ray.cluster import listed_anew

    resolved = directory / RESOLVED_JOB_FILE
    spec = load_job(resolved, overrides, environ={})
    check_same_job(load_job(resolved, environ={}), spec)
    others = hosts_asked(hosts, addresses, on, ray_address)
    if others is None and (directory / HOSTS_FILE).exists():
        others = listed_anew(read_hosts(directory / HOSTS_FILE))
    if others is not None:
        spec = with_hosts(spec, others)
    _tell_done(directory)
    source = _named_source(start_from) if start_from is not None else None
    _train(spec, directory, directory, dashboard, as_json, held, others, source)


def _tell_done(directory: Path) -> None:
    """Tells the user if the run is already done."""
    from elastichost.supervisor.job import finished_result

    if finished_result(directory) is not None:
        shown = short_path(directory)
        ended = datetime.fromtimestamp((directory / RESULT_FILE).stat().st_mtime, UTC)
        since = f"since {ended:%Y-%m-%d %H:%M:%S} UTC"
        text = f"{shown} has been done {since}: there is nothing to resume, and nothing was changed"
        progress_console().print(text, style="yellow", soft_wrap=True)
        hint = f"to train further, start a new run from its checkpoint: {program()} run JOB --from {shown}"
        progress_console().print(hint, style="cyan", soft_wrap=True)


def _named_source(name: str) -> Path:
    """The path of a run, of a directory of checkpoints, or of one checkpoint. Raises ConfigError for another name."""
    path = Path(name)
    return path.resolve() if path.is_dir() else find_run(name)


def _train(
    spec: JobSpec,
    run_dir: Path | None,
    resume_from: Path | None,
    dashboard: Dashboard,
    as_json: bool,
    held: tuple[Hold, ...] = (),
    hosts: HostsFile | None = None,
    start_from: Path | None = None,
) -> NoReturn:
    from elastichost.supervisor import run_job

    with open_display(progress_console(), live=dashboard is Dashboard.AUTO) as observer:
        result = run_job(spec, run_dir, observer, resume_from, start_from=start_from, held=held, hosts=hosts)
    if as_json:
        print_json(result.to_json())
    else:
        shown = summary(result, is_emulated=spec.emulate.enabled)
        data_console().print(shown, soft_wrap=True)  # a command that is wrapped is hard to copy
    raise typer.Exit(int(result.exit_code))
