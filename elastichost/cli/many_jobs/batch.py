"""A batch of jobs: `run a.toml b.toml ...`, and the options that `run`, `resume` and `host` share."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, get_args

import msgspec
import typer

from elastichost.cli.output import data_console, print_json, progress_console
from elastichost.errors import ConfigError, ExitCode
from elastichost.human_readable import did_you_mean
from elastichost.tuner.colocation.facts import PolicyName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elastichost.config.job import JobSpec
    from elastichost.dispatcher import Submission
    from elastichost.dispatcher.facts import HostStatus
    from elastichost.dispatcher.options import AskedOptions, HostOptions
    from elastichost.resources import HostInventory
    from elastichost.tuner.colocation.settings import ColocationSettings

__all__ = [
    "MEMORY",
    "POLICY",
    "MemoryOption",
    "PolicyOption",
    "PolicySettings",
    "SizesAgain",
    "SizesOption",
    "environment_directory",
    "find_batch",
    "host_parts",
    "resume_batch",
    "run_batch",
    "train_jobs",
]

QUEUE_FILE = "queue.json"  # in the directory of a host or batch
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
POLICY: PolicyName = "complementary"  # of a batch, a search or a host that names none
MEMORY = "80%"
PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME",
        help=f"The policy that picks jobs to run together: {', '.join(POLICIES)}. Default: {POLICY}; what is "
        "resumed keeps its own.",
    ),
]
PolicySettings = Annotated[
    list[str],
    typer.Option(
        "--policy-set", metavar="KEY=VALUE", help="Set a constant of the policy, e.g. most_jobs=8; repeatable."
    ),
]
MemoryOption = Annotated[
    str,
    typer.Option(
        "--memory",
        metavar="AMOUNT",
        help=f'Memory of all jobs of a batch or host together: "80%", "12GiB". Default: {MEMORY}; what is resumed '
        "keeps its own.",
    ),
]
SizesOption = Annotated[
    bool,
    typer.Option("--own-sizes", help="Each job chooses its number of workers and PS itself, as it does alone."),
]
SizesAgain = Annotated[
    bool | None,
    typer.Option(
        "--own-sizes/--no-own-sizes", help="As for `run`; default: the choice with which a batch began, else no."
    ),
]


def host_parts(
    directory: Path,
    runs_under: Path,
    policy: str,
    policy_settings: Sequence[str],
    memory: str,
    *,
    own_sizes: bool,
    ends_when_empty: bool,
) -> tuple[HostOptions, HostInventory]:
    """The options of a host and the inventory of this machine. Raises ConfigError for an unknown policy or setting, and
    for a memory amount that cannot be parsed."""
    from elastichost.dispatcher.options import AskedOptions, HostOptions
    from elastichost.host.inventory import inventory
    from elastichost.resources import memory_budget_bytes

    if policy not in POLICIES:
        raise ConfigError(
            f"unknown policy {policy!r}{did_you_mean(policy, POLICIES)}", hint=f"policies: {', '.join(POLICIES)}"
        )
    found = inventory()
    try:
        memory_bytes = memory_budget_bytes(memory, found.memory_bytes)
    except ValueError as error:
        raise ConfigError(f"--memory: {error}", hint='use a share like "80%", or a size like "12GiB"') from None
    options = HostOptions(
        directory=directory,
        runs_under=runs_under,
        memory_bytes=memory_bytes,
        settings=_settings(policy, policy_settings),
        ends_when_empty=ends_when_empty,
        keeps_queue=True,
        keeps_sizes=own_sizes or policy == "exclusive",
        asked=AskedOptions(policy, tuple(policy_settings), memory, own_sizes),
    )
    return options, found


def _settings(policy: str, changes: Sequence[str]) -> ColocationSettings:
    from elastichost.tuner.colocation.settings import ColocationSettings

    facts: dict[str, str] = {"policy": policy}
    known = [field for field in ColocationSettings.__struct_fields__ if field != "policy"]
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or name not in known:
            raise ConfigError(
                f"--policy-set {change!r} is not KEY=VALUE with a known key{did_you_mean(name, known)}",
                hint=f"keys: {', '.join(known)}",
            )
        facts[name] = value
    try:
        return msgspec.convert(facts, type=ColocationSettings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--policy-set: {error}") from None


def run_batch(
    specs: Sequence[JobSpec],
    directory: Path | None,
    policy: str,
    policy_settings: Sequence[str],
    memory: str,
    *,
    own_sizes: bool,
    live: bool,
    as_json: bool,
) -> NoReturn:
    """Trains all jobs together on this host; exits with the exit code of the batch."""
    from elastichost.dispatcher import Submission
    from elastichost.runs.directory import new_run_path

    here = Path.cwd()
    directory = directory or new_run_path(here, "batch", secrets.token_hex(3))
    options, found = host_parts(
        directory, here, policy, policy_settings, memory, own_sizes=own_sizes, ends_when_empty=True
    )
    train_jobs(options, found, [Submission(spec, here) for spec in specs], live=live, as_json=as_json)


def find_batch(name: str) -> Path | None:
    """The directory of a batch that was stopped or has died; None if `name` is not a batch."""
    candidates = (Path(name), Path("runs") / name)
    return next((path.resolve() for path in candidates if (path / QUEUE_FILE).is_file()), None)


def resume_batch(
    directory: Path,
    policy: str,
    policy_settings: Sequence[str],
    memory: str,
    *,
    own_sizes: bool | None,
    live: bool,
    as_json: bool,
) -> NoReturn:
    """Continues all unfinished jobs of a batch; finished jobs keep their result. An option that is not given has the
    value that the batch started with; `policy_settings` are added to the earlier ones and override them."""
    options, found = resumed_parts(directory, policy, policy_settings, memory, own_sizes=own_sizes)
    train_jobs(options, found, (), live=live, as_json=as_json)


def resumed_parts(
    directory: Path, policy: str, policy_settings: Sequence[str], memory: str, *, own_sizes: bool | None
) -> tuple[HostOptions, HostInventory]:
    """The options of a resumed batch. Raises ConfigError as `host_parts` does, and PreflightError if the options that
    the batch saved cannot be read."""
    asked = _asked_before(directory)
    options, found = host_parts(
        directory,
        Path.cwd(),
        policy or asked.policy,
        (*asked.policy_settings, *policy_settings),
        memory or asked.memory,
        own_sizes=asked.own_sizes if own_sizes is None else own_sizes,
        ends_when_empty=True,
    )
    return replace(options, goes_on=True), found


def _asked_before(directory: Path) -> AskedOptions:
    """The options that the batch started with. If it saved none, they are taken from its status."""
    from elastichost.dispatcher.directory import read_asked
    from elastichost.dispatcher.facts import read_host
    from elastichost.dispatcher.options import AskedOptions

    if (asked := read_asked(directory)) is not None:
        return asked
    before = read_host(directory)
    return AskedOptions(before.policy, memory=str(before.memory_bytes))


def train_jobs(
    options: HostOptions, found: HostInventory, submissions: Sequence[Submission], *, live: bool, as_json: bool
) -> NoReturn:
    """Trains the jobs, shows their progress and the result, and exits with the exit code of the batch."""
    from elastichost.cli.many_jobs.host_view import open_host_display
    from elastichost.dispatcher import run_host

    with open_host_display(progress_console(), live=live) as display:
        status = run_host(options, found, submissions, display.on_status, display.on_event)
    show_result(status, as_json=as_json)
    raise typer.Exit(exit_code_of(status))


def exit_code_of(status: HostStatus) -> int:
    """1 if a job failed; else 75 if a job was stopped and can be resumed; else 0."""
    states = {job.state for job in status.jobs} | status.left_out.keys()
    if "failed" in states:
        return int(ExitCode.JOB_FAILED)
    return int(ExitCode.STOPPED_RESUMABLE if "stopped" in states else ExitCode.DONE)


def show_result(status: HostStatus, *, as_json: bool) -> None:
    """Prints the last screen of a batch or a host."""
    from elastichost.cli.many_jobs.host_view import host_line, job_table
    from elastichost.cli.runs import program, short_path

    if as_json:
        print_json(msgspec.to_builtins(status))
        return
    out = data_console()
    out.print(job_table(status))
    out.print(host_line(status))
    directory = short_path(Path(status.directory))
    if any(job.state == "stopped" for job in status.jobs):
        out.print(f"next: {program()} resume {directory}", style="cyan", soft_wrap=True)
    else:
        out.print(f"next: {program()} report {directory}", style="cyan", soft_wrap=True)


def environment_directory() -> Path:
    """The directory of the host that `submit`, `queue` and `cancel` use by default."""
    from elastichost.dispatcher.directory import default_directory

    return default_directory(os.environ)
