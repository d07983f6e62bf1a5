"""Verbs that train: run and resume."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elastichost.cli.many_jobs.batch import (
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

if TYPE_CHECKING:
    from elastichost.arena.host import Hold
    from elastichost.config.hosts import HostsFile
    from elastichost.config.job import JobSpec

__all__ = ["register"]


FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="PATH", help="Begin from the checkpoint of another run: its directory, or one."),
]
CHANGEABLE_SECTIONS = ("resources", "checkpoint", "supervision", "evaluate", "tuner")


class Dashboard(StrEnum):
    """auto: a live picture on a terminal, lines elsewhere."""

    AUTO = "auto"
    NO = "no"


DashboardOption = Annotated[Dashboard, typer.Option("--dashboard", help="The live picture; no: plain lines.")]


def register(app: typer.Typer) -> None:
    app.command("run")(run)
    app.command("resume")(resume)


def run(
    jobs: Annotated[list[Path], typer.Argument(metavar="JOB...", help="The job file (TOML); several: together.")],
    overrides: Overrides = [],  # noqa: B006 typer copies it
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", metavar="DIR", help="Default: runs/<name>-<UTC>-<id>.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check job, data and host, build the model, run one batch; train nothing.")
    ] = False,
    hosts: HostsOption = None,
    addresses: AddressOption = [],  # noqa: B006 typer copies it
    on: OnOption = None,
    ray_address: RayAddressOption = "",
    policy: PolicyOption = "complementary",
    policy_settings: PolicySettings = [],  # noqa: B006 typer copies it
    memory: MemoryOption = "80%",
    own_sizes: SizesOption = False,
    start_from: FromOption = None,
    dashboard: DashboardOption = Dashboard.AUTO,
    as_json: AsJson = False,
) -> None:
    """Train a job: check, start, watch, evaluate, keep. Several jobs share the host (--policy, --memory)."""
    check_address_space()  # before what needs more than little of it is imported
    from elastichost.config.hosts import with_hosts
    from elastichost.config.job import load_job

    specs = [load_job(job, overrides) for job in jobs]
    others = hosts_asked(hosts, addresses, on, ray_address)
    if others is not None and len(specs) > 1:
        raise ConfigError("several jobs share one host", hint="run them one after the other on several")
    if others is not None:
        specs = [with_hosts(spec, others) for spec in specs]
    if dry_run:
        from elastichost.cli.train.dry_run import rehearse

        for spec in specs:
            rehearse(spec, as_json=as_json)
        return
    if start_from is not None and len(specs) > 1:
        raise ConfigError("--from is for one job", hint="run the jobs one by one")
    if len(specs) > 1:
        directory = run_dir.resolve() if run_dir is not None else None
        live = dashboard is Dashboard.AUTO
        run_batch(specs, directory, policy, policy_settings, memory, own_sizes=own_sizes, live=live, as_json=as_json)
    spec, directory = specs[0], run_dir.resolve() if run_dir is not None else None
    source = _named_source(start_from) if start_from is not None else None
    _train(spec, directory, None, dashboard, as_json, hosts=others, start_from=source)


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
    """Go on with a run that was stopped or broke off: from its arena where that still is, else its newest checkpoint.

    When a supervisor was killed, its rows stay in memory for supervision.keep_arena_s: resumed within that time,
    nothing is lost. Of a batch (`run A B ...`) all jobs go on that are not over,
    with the policy and the memory that it began with unless they are named here. A run that is done stays as it is.
    """
    check_address_space()
    from elastichost.arena.host import hold_left

    if (batch := find_batch(run)) is not None:
        if overrides:
            raise ConfigError(
                "jobs of a batch go on as they are", hint="resume one of them alone by its run directory, with --set"
            )
        live = dashboard is Dashboard.AUTO
        resume_batch(batch, policy, policy_settings, memory, own_sizes=own_sizes, live=live, as_json=as_json)
    if policy or policy_settings or memory or own_sizes is not None:
        raise ConfigError(
            "--policy, --policy-set, --memory and --own-sizes are for a batch", hint="leave them out: this is one run"
        )
    directory = find_run(run)
    held = hold_left(directory)  # first of all: a guardian waits a few seconds only
    from elastichost.config.hosts import KEPT_HOSTS_FILE, read_hosts, with_hosts
    from elastichost.config.job import load_job
    from elastichost.supervisor.remote.ray.cluster import listed_anew

    resolved = directory / "job.resolved.toml"
    spec = load_job(resolved, overrides, environ={})
    _check_same_job(load_job(resolved, environ={}), spec)
    others = hosts_asked(hosts, addresses, on, ray_address)
    if others is None and (directory / KEPT_HOSTS_FILE).exists():
        others = listed_anew(read_hosts(directory / KEPT_HOSTS_FILE))
    if others is not None:
        spec = with_hosts(spec, others)
    _tell_done(directory)
    source = _named_source(start_from) if start_from is not None else None
    _train(spec, directory, directory, dashboard, as_json, held, others, source)


def _tell_done(directory: Path) -> None:
    """Where nothing is left to resume."""
    from elastichost.supervisor.job import finished_result

    if finished_result(directory) is not None:
        shown = short_path(directory)
        ended = datetime.fromtimestamp((directory / "result.json").stat().st_mtime, UTC)
        since = f"since {ended:%Y-%m-%d %H:%M:%S} UTC"
        text = f"{shown} has been done {since}: there is nothing to resume, and nothing was changed"
        progress_console().print(text, style="yellow", soft_wrap=True, markup=False)
        hint = f"to train further, begin a new run from it: {program()} run JOB --from {shown}"
        progress_console().print(hint, style="cyan", soft_wrap=True, markup=False)


def _named_source(name: str) -> Path:
    """A run, a directory of checkpoints, or one checkpoint. Raises ConfigError for what is none of them."""
    path = Path(name)
    return path.resolve() if path.is_dir() else find_run(name)


def _check_same_job(before: JobSpec, after: JobSpec) -> None:
    """What a checkpoint holds belongs to one model and one order of samples. Raises ConfigError naming what differs."""
    same = after.model_copy(
        update={
            **{section: getattr(before, section) for section in CHANGEABLE_SECTIONS},
            "train": after.train.model_copy(update={"access": before.train.access, "any_cpu": before.train.any_cpu}),
        }
    )
    changed = [section for section in type(before).model_fields if getattr(same, section) != getattr(before, section)]
    if changed:
        raise ConfigError(
            "a resumed run is the same job",
            problems=tuple(f"--set changes [{section}]" for section in changed),
            hint=f"change only {', '.join(CHANGEABLE_SECTIONS)} train.access and train.any_cpu, or start a new run",
        )


def _train(
    spec: JobSpec,
    run_dir: Path | None,
    resume_from: Path | None,
    dashboard: Dashboard,
    as_json: bool,
    held: tuple[Hold, ...] = (),
    hosts: HostsFile | None = None,
    start_from: Path | None = None,
) -> None:
    from elastichost.supervisor import run_job

    with open_display(progress_console(), live=dashboard is Dashboard.AUTO) as observer:
        result = run_job(spec, run_dir, observer, resume_from, start_from=start_from, held=held, hosts=hosts)
    if as_json:
        print_json(result.to_json())
    else:
        shown = summary(result, is_emulated=spec.emulate.enabled)
        data_console().print(shown, soft_wrap=True)  # commands must stay whole to be copied
    raise typer.Exit(int(result.exit_code))
