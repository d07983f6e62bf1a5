"""`scale`: changes the number of workers and PS of a run while it trains, and adds machines to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elastichost.cli.output import AsJson, data_console, print_json, progress_console
from elastichost.cli.runs import find_run, program, run_names, short_path
from elastichost.cli.train.hosts_option import AddressOption, HostsOption, OnOption, RayAddressOption, hosts_asked
from elastichost.errors import ConfigError, PreflightError
from elastichost.human_readable import did_you_mean
from elastichost.metrics import FINISHED_STATES, RunStatus, read_status
from elastichost.run_files import HOSTS_FILE
from elastichost.runs.liveness import is_at_work

if TYPE_CHECKING:
    from elastichost.wire.commands import AcceptedMsg, JoinMsg, ReachedMsg, ScaleMsg

__all__ = ["register", "scale"]

NAMES = ("workers", "servers", "worker_cores")
LOOK_S = 0.5  # while it waits for a reply, the verb checks this often that the run is still alive


def _runs_and_sizes(incomplete: str) -> list[str]:
    """What a shell proposes: runs, and the names of the numbers as `workers=`."""
    return [*run_names(incomplete), *(f"{name}=" for name in NAMES if name.startswith(incomplete))]


Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN] NAME=COUNT",
        help=f'The run ("latest" if left out), then {", ".join(NAMES)}.',
        autocompletion=_runs_and_sizes,
    ),
]


def register(app: typer.Typer) -> None:
    app.command("scale")(scale)


def scale(
    arguments: Settings = None,
    hosts: HostsOption = None,
    addresses: AddressOption = [],  # noqa: B006 - typer's own way
    on: OnOption = None,
    ray_address: RayAddressOption = "",
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait until the run has the new size, or only until it accepts it."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Change the number of workers and parameter servers as a run trains.

    For example: scale RUN workers=3 servers=2 worker_cores=2.

    With --host, --hosts or --on ray, machines join the run (of a Ray cluster, the nodes that the run does not use yet).
    Without numbers, each machine gets one PS, and as many workers as its cores hold.
    """
    from elastichost.config.hosts import read_hosts
    from elastichost.supervisor.remote.ray.cluster import newcomers
    from elastichost.wire.commands import JoinMsg, ScaleMsg

    named = arguments or []
    has_run = bool(named) and "=" not in named[0]
    directory = find_run(named[0] if has_run else "latest")
    guests = hosts_asked(hosts, addresses, on, ray_address)
    if guests is not None and on is not None and (kept := directory / HOSTS_FILE).exists():
        guests = newcomers(guests, read_hosts(kept))
    counts = _counts(named[1:] if has_run else named, may_be_none=guests is not None)
    command = ScaleMsg(**counts) if guests is None else JoinMsg(guests.model_dump_json(), **counts)
    reply = _ask(directory, read_status(directory), command, wait)
    if as_json:
        print_json(_facts(directory, reply))
    else:
        data_console().print(reply.text, soft_wrap=True)


def _counts(settings: Sequence[str], *, may_be_none: bool) -> dict[str, int]:
    """Parses NAME=COUNT settings. Raises ConfigError that lists every problem."""
    counts: dict[str, int] = {}
    problems: list[str] = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in NAMES:
            problems.append(
                f"{setting!r} is not one of {', '.join(f'{known}=COUNT' for known in NAMES)}{did_you_mean(name, NAMES)}"
            )
        elif name in counts:
            problems.append(f"{name} is given twice")
        elif not value.isdecimal():
            problems.append(f"{setting}: {value!r} is not a whole number")
        elif int(value) < 1:
            problems.append(f"{setting}: the least is 1")
        else:
            counts[name] = int(value)
    if problems:
        raise ConfigError(
            "the new size of the run is not valid",
            problems=tuple(problems),
            hint="for example: scale RUN workers=3 servers=2",
        )
    if not counts and not may_be_none:
        raise ConfigError(
            "nothing to scale: no count is given", hint=f"set one of {', '.join(NAMES)}: scale RUN workers=3"
        )
    return counts


def _ask(directory: Path, facts: RunStatus, command: ScaleMsg | JoinMsg, wait: bool) -> AcceptedMsg | ReachedMsg:
    """Sends the command and returns the run's last reply. Raises PreflightError if the run has ended or refuses the
    command, and ConfigError if it refuses the numbers."""
    from elastichost.wire.commands import AcceptedMsg, CommandClient, ReachedMsg

    _require_running(directory, facts)
    client = CommandClient(facts.commands)
    try:
        client.send(command)
        while True:
            reply = client.receive(LOOK_S)
            if reply is None:
                _require_same(directory, facts)
            elif isinstance(reply, ReachedMsg) or (isinstance(reply, AcceptedMsg) and not wait):
                return reply
            elif isinstance(reply, AcceptedMsg):
                progress_console().print(reply.text, style="dim")
            else:
                raise (ConfigError if reply.is_usage else PreflightError)(reply.message, hint=reply.hint)
    finally:
        client.close()


def _require_running(directory: Path, facts: RunStatus) -> None:
    run = short_path(directory)
    if is_at_work(directory, facts):
        if not facts.commands:
            raise PreflightError(f"{run} accepts no commands", hint="another elastichost version started this run")
        return
    why = facts.state if facts.state in FINISHED_STATES else f"its supervisor ({facts.supervisor_pid}) is gone"
    raise PreflightError(f"{run} is not running: {why}", hint=f"see `{program()} status {run}`")


def _require_same(directory: Path, asked: RunStatus) -> None:
    """Raises PreflightError when the supervisor that got the command has ended: the next one does not know of it."""
    now = read_status(directory)
    _require_running(directory, now)
    if now.commands != asked.commands:
        run = short_path(directory)
        raise PreflightError(
            f"the supervisor of {run} that got the command ({asked.supervisor_pid}) is gone, and another one works now",
            hint=f"see `{program()} status {run}`, and scale again",
        )


def _facts(directory: Path, reply: AcceptedMsg | ReachedMsg) -> dict[str, object]:
    from elastichost.wire.commands import ReachedMsg

    data: dict[str, object] = dict(reply.data) if isinstance(reply, ReachedMsg) else {}
    status = "reached" if isinstance(reply, ReachedMsg) else "accepted"
    return {"run_dir": str(directory), "status": status, "text": reply.text, **data}
