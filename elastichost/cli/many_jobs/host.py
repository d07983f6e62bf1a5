"""Verbs of a host that trains jobs from a queue: host, submit, queue, cancel, top."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from elastichost.cli.completion import job_files
from elastichost.cli.many_jobs.batch import (
    MEMORY,
    POLICY,
    MemoryOption,
    PolicyOption,
    PolicySettings,
    SizesOption,
    environment_directory,
    host_parts,
    train_jobs,
)
from elastichost.cli.options import Overrides
from elastichost.cli.output import AsJson, data_console, print_json, progress_console
from elastichost.cli.runs import find_run, is_host_at_work, program, run_names, runs_under, started_s
from elastichost.errors import ConfigError, PreflightError
from elastichost.runs.liveness import is_running

if TYPE_CHECKING:
    from rich.console import RenderableType

    from elastichost.dispatcher.facts import HostStatus
    from elastichost.wire.commands import CancelMsg, ReachedMsg, SubmitMsg

__all__ = ["register"]

ANSWER_S = 10.0
LOOK_S = 0.5  # while it waits for a reply, a verb checks this often that the host still runs
REDRAW_S = 1.0
PAGE_NICE = 19  # the page is made while training needs the cores

HostDirOption = Annotated[
    Path | None,
    typer.Option(
        "--host-dir",
        metavar="DIR",
        help="Directory of the host; default: ELASTICHOST_HOST_DIR, else one in the user's state directory.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("host")(host)
    app.command("submit")(submit)
    app.command("queue")(queue)
    app.command("cancel")(cancel)
    app.command("top")(top)


def host(
    host_dir: HostDirOption = None,
    policy: PolicyOption = "",
    policy_settings: PolicySettings = [],  # noqa: B006 typer copies it
    memory: MemoryOption = "",
    own_sizes: SizesOption = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines instead of a live screen.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train the jobs that `submit` sends together on this host. Ctrl-C saves all; the next `host` continues them."""
    directory = host_dir or environment_directory()
    options, found = host_parts(
        directory,
        Path.cwd(),
        policy or POLICY,
        policy_settings,
        memory or MEMORY,
        own_sizes=own_sizes,
        ends_when_empty=False,
    )
    progress_console().print(f"host in {directory}; submit jobs with: {program()} submit JOB...", style="dim")
    train_jobs(options, found, (), live=not plain, as_json=as_json)


def submit(
    jobs: Annotated[list[Path], typer.Argument(metavar="JOB", help="Job files (TOML).", autocompletion=job_files)],
    overrides: Overrides = [],  # noqa: B006 typer copies it
    weight: Annotated[
        float, typer.Option("--weight", help="Weight of the jobs: one job of weight 2 counts as two jobs.", min=0.01)
    ] = 1.0,
    host_dir: HostDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Put jobs into the queue of a running host."""
    from elastichost.config.job import load_job, to_toml
    from elastichost.wire.commands import SubmitMsg

    specs = [load_job(job, overrides) for job in jobs]  # every job is checked before the first one is sent
    directory, status = _running_host(host_dir)
    names: list[str] = []
    for spec in specs:
        reply = _ask(directory, status, SubmitMsg(spec.job.name, to_toml(spec), str(Path.cwd()), weight))
        names.append(str(reply.data.get("job", spec.job.name)))
        if not as_json:
            data_console().print(reply.text)
    if as_json:
        print_json({"host": status.directory, "jobs": names})


def cancel(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The name of the job in the queue.")],
    host_dir: HostDirOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove a waiting job from the queue, or save and stop a running one."""
    from elastichost.wire.commands import CancelMsg

    reply = _ask(*_running_host(host_dir), CancelMsg(job))
    if as_json:
        print_json({"job": job, "text": reply.text})
    else:
        data_console().print(reply.text)


def queue(host_dir: HostDirOption = None, as_json: AsJson = False) -> None:
    """List the jobs of a host with their state and the reason for it."""
    from elastichost.cli.many_jobs.host_view import host_line, job_table

    directory, status = _known_host(host_dir)
    running = is_host_at_work(directory, status)
    if as_json:
        print_json({**msgspec.to_builtins(status), "running": running})
        return
    out = data_console()
    out.print(host_line(status) if running else f"not running; continue the unfinished jobs with: {program()} host")
    out.print(job_table(status))


def top(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|HOST",
            help="A run, or the directory of a host or batch; default: the newest.",
            autocompletion=run_names,
        ),
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Print one screen and exit.")] = False,
    web: Annotated[bool, typer.Option("--web", help="Show a run in the browser: serve its page on 127.0.0.1.")] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="Port of the page; 0: a free one.")
    ] = 0,
    once_ready: Annotated[
        bool, typer.Option("--once-ready", help="With --web: print the address as one JSON object on stdout.")
    ] = False,
) -> None:
    """Watch a run or all jobs of a host, here or in the browser (--web).

    Columns of the jobs: size (workers+PS), samples/s, speed (predicted, as a share of the speed alone), CPU cores in
    use, memory in use, memory charged.
    """
    from rich.live import Live

    if web:
        _serve_page(run, port, as_json=once_ready)
        return
    if once:
        data_console().print(_picture(run)[0])
        return
    with (
        Live(console=data_console(), transient=False, auto_refresh=False) as live,
        contextlib.suppress(KeyboardInterrupt),  # Ctrl-C ends `top`; the run or the host is not affected
    ):
        while True:
            picture, is_running = _picture(run)
            live.update(picture, refresh=True)
            if not is_running:
                return
            time.sleep(REDRAW_S)


def _serve_page(name: str, port: int, *, as_json: bool) -> None:
    """Serves the page of a run until Ctrl-C. The page stays when the run has ended."""
    from elastichost.web.server import PageServer

    directory = _host_directory(name)
    if directory is not None:
        raise ConfigError(
            f"{directory} is the directory of many jobs, and the page shows one run",
            hint=f"name one of its runs, or write one page about all: {program()} report {directory}",
        )
    os.nice(PAGE_NICE)
    server = PageServer(find_run(name or "latest"), port)
    if as_json:
        print_json({"url": server.address, "port": server.port, "run_dir": str(server.run_dir)})
    else:
        data_console().print(f"{server.address}\n(Ctrl-C ends the page; the run goes on)", soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve()


def _picture(name: str) -> tuple[RenderableType, bool]:
    """The screen of a run or a host, and whether that run or host is still running."""
    from elastichost.cli.many_jobs.host_view import host_picture
    from elastichost.cli.watch.run_view import picture
    from elastichost.dispatcher.facts import read_host
    from elastichost.metrics import read_status

    directory = _host_directory(name)
    if directory is not None:
        status = read_host(directory)
        return host_picture(status), is_host_at_work(directory, status)
    run = find_run(name or "latest")
    return picture(read_status(run)), is_running(run)


def _host_directory(name: str) -> Path | None:
    """The directory of the host or batch `name`, or of the newest for "". None: `name` is a run, or a run is newer."""
    from elastichost.dispatcher.facts import HOST_FILE

    if name:
        found = [path for path in (Path(name), Path("runs") / name) if os.path.isfile(path / HOST_FILE)]
        return found[0] if found else None
    made = (path for kind in ("batch", "search") for path in Path("runs").glob(f"{kind}-*"))
    batches = [path for path in made if os.path.isfile(path / HOST_FILE)]
    hosts = [path for path in (*batches, environment_directory()) if os.path.isfile(path / HOST_FILE)]
    newest = max(hosts, key=lambda path: (path / HOST_FILE).stat().st_mtime, default=None)
    runs = runs_under()
    if newest is None or not runs:
        return newest
    return newest if (newest / HOST_FILE).stat().st_mtime + 5.0 >= started_s(runs[0]) else None


def _running_host(host_dir: Path | None) -> tuple[Path, HostStatus]:
    """The directory and the status of a running host. Raises PreflightError if the host is not running."""
    directory, status = _known_host(host_dir)
    if not is_host_at_work(directory, status):
        raise PreflightError(f"the host in {status.directory} is not running", hint=_start_hint(host_dir))
    return directory, status


def _known_host(host_dir: Path | None) -> tuple[Path, HostStatus]:
    """The directory and the last status of a host. Raises PreflightError if no host was ever started there."""
    from elastichost.dispatcher.facts import read_host

    directory = host_dir or environment_directory()
    try:
        return directory, read_host(directory)
    except PreflightError as error:
        raise PreflightError(error.message, hint=_start_hint(host_dir)) from None


def _start_hint(host_dir: Path | None) -> str:
    return f"start one with `{program()} host`" + (f" --host-dir {host_dir}" if host_dir else "")


def _ask(directory: Path, status: HostStatus, command: SubmitMsg | CancelMsg) -> ReachedMsg:
    """Sends a command and returns the reply. Raises PreflightError if the host ends, does not answer or refuses the
    command, and ConfigError if it refuses the arguments."""
    from elastichost.wire.commands import CommandClient, ReachedMsg, RefusedMsg

    client = CommandClient(status.commands)
    until_s = time.monotonic() + ANSWER_S
    try:
        client.send(command)
        while (reply := client.receive(LOOK_S)) is None and time.monotonic() < until_s:
            _require_same(directory, status)
    finally:
        client.close()
    if isinstance(reply, ReachedMsg):
        return reply
    if isinstance(reply, RefusedMsg):
        raise (ConfigError if reply.is_usage else PreflightError)(reply.message, hint=reply.hint)
    raise PreflightError(
        f"the host in {status.directory} did not answer within {ANSWER_S:.0f} s",
        hint=f"the host is busy or hangs: check process {status.pid}, then try again",
    )


def _require_same(directory: Path, asked: HostStatus) -> None:
    """Raises PreflightError when the dispatcher that got the command has ended. The lock of its directory may be held
    by the next one, which has another socket and does not know of the command."""
    from elastichost.dispatcher.facts import read_host

    now = read_host(directory)
    if is_host_at_work(directory, now) and now.commands == asked.commands:
        return
    raise PreflightError(
        f"the dispatcher ({asked.pid}) in {asked.directory} has ended, and has not answered",
        hint=f"see `{program()} queue` whether it took the command; if not, give it again to a running host",
    )
