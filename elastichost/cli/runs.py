"""Finds runs by directory, by name under `runs/`, or as "latest"."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.runs.liveness import is_worked_in

if TYPE_CHECKING:
    from elastichost.dispatcher.facts import HostStatus

__all__ = [
    "NEWEST",
    "NOTHING_SAVED",
    "RUNS",
    "RunArgument",
    "find_run",
    "is_host",
    "is_host_at_work",
    "is_run",
    "program",
    "run_names",
    "runs_under",
    "short_path",
    "started_s",
]

NOTHING_SAVED = "nothing of the run was saved: run the job again"

RUNS = Path("runs")
NEWEST = "latest"  # the link to the newest run
LISTED = 20
SHOWN = 5


def run_names(incomplete: str) -> list[str]:
    """What a shell proposes for a run: the runs under `runs/`, newest first; by path once a path is begun."""
    names = [NEWEST, *(run.name for run in runs_under())]
    known = [f"{RUNS}/{name}" for name in names] if incomplete.startswith(f"{RUNS}/") else names
    return [name for name in known if name.startswith(incomplete)]


RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help='A run directory, a name under runs/, or "latest".', autocompletion=run_names),
]


def find_run(name: str, runs: Path = RUNS) -> Path:
    """The directory of a run. Raises ConfigError that lists the known runs, or the jobs if `name` is a batch."""
    for candidate in (Path(name), runs / name):
        if is_run(candidate):
            return candidate.resolve()
        if is_host(candidate):
            raise _many_runs(name, candidate.resolve())
    known = [run.name for run in runs_under(runs)]
    if not known:
        hint = f"there are no runs under {runs.resolve()}: name the directory of a run, or go to where it was started"
        raise ConfigError(f"no run {name!r}", hint=hint)
    more = f" and {len(known) - SHOWN} more in {runs}/" if len(known) > SHOWN else ""
    listed = f"known runs, newest first: {', '.join(known[:SHOWN])}{more}"
    near = _dangling(runs) if name == NEWEST else did_you_mean(name, [*known, NEWEST])
    raise ConfigError(f"no run {name!r}{near}", hint=listed)


def _dangling(runs: Path) -> str:
    """What became of the link to the newest run."""
    link = runs / NEWEST
    return f": it was {os.readlink(link)}, which is gone" if link.is_symlink() and not link.exists() else ""


def runs_under(runs: Path = RUNS) -> list[Path]:
    """Run directories, the one that was started or resumed last first, without the link `latest`."""
    if not runs.is_dir():
        return []
    found = [path for path in runs.iterdir() if not path.is_symlink() and is_run(path)]
    return sorted(found, key=started_s, reverse=True)


def started_s(run: Path) -> float:
    """When a run was started or resumed last, in seconds since 1970: a report that is written later changes nothing."""
    return os.stat(run / RESOLVED_JOB_FILE).st_mtime


def is_run(path: Path) -> bool:
    """Whether it is a run that this user may read."""
    return os.path.isfile(path / RESOLVED_JOB_FILE)


def is_host(path: Path) -> bool:
    """Whether this is the directory of a batch or a host, which trains many jobs."""
    return os.path.isfile(path / "host.json") and not is_run(path)


def is_host_at_work(directory: Path, status: HostStatus) -> bool:
    """Whether a dispatcher works in this directory and has not ended. status: what was read from this directory."""
    from elastichost.dispatcher.facts import HOST_FILE

    return status.state != "ended" and is_worked_in(directory, HOST_FILE, status.pid)


def _many_runs(name: str, directory: Path) -> ConfigError:
    from elastichost.dispatcher.facts import read_host

    jobs = [job for job in read_host(directory).jobs if job.run_dir]
    listed = tuple(f"{job.job}: {short_path(Path(job.run_dir))} ({job.state})" for job in jobs[:LISTED])
    more = (f"and {len(jobs) - LISTED} more",) if len(jobs) > LISTED else ()
    return ConfigError(
        f"{name} is the directory of many jobs ({short_path(directory)}), and this verb takes one run",
        problems=(*listed, *more),
        hint=f"name one of these runs; `top`, `report` and `resume` accept {name}",
    )


def short_path(path: Path) -> str:
    """The path as a user types it: relative when it is below the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def program() -> str:
    """The command that runs this program: `elastichost` if the shell finds this installation under that name."""
    script = Path(sys.executable).with_name("elastichost")
    found = shutil.which("elastichost")
    if found is not None and Path(found) == script:
        return "elastichost"
    return short_path(script) if script.exists() else f"{short_path(Path(sys.executable))} -m elastichost"
