"""What a shell proposes for the arguments of a verb: runs, job files, settings, kinds of events, processes.

typer calls these functions when the user presses the tab key; `elastichost --install-completion` sets that up. What
takes long to import is imported when it is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

__all__ = ["event_kinds", "job_files", "process_names", "run_names", "runs_and_sizes", "setting_paths"]


def run_names(incomplete: str) -> list[str]:
    """The runs under `runs/`, newest first: by name, or by path once a path is begun."""
    from elastichost.cli.runs import NEWEST, RUNS, runs_under

    names = [NEWEST, *(run.name for run in runs_under())]
    known = [f"{RUNS}/{name}" for name in names] if incomplete.startswith(f"{RUNS}/") else names
    return [name for name in known if name.startswith(incomplete)]


def job_files(incomplete: str) -> list[str]:
    """TOML files in the directory that is begun, and its directories."""
    begun, slash, name = incomplete.rpartition("/")
    directory = Path(begun + slash or ".")
    if not directory.is_dir():
        return []
    found = sorted(path for path in directory.iterdir() if path.name.startswith(name) and path.name[0] != ".")
    files = [f"{begun}{slash}{path.name}" for path in found if path.suffix == ".toml" and path.is_file()]
    return files + [f"{begun}{slash}{path.name}/" for path in found if path.is_dir()]


def setting_paths(incomplete: str) -> list[str]:
    """The settings of a job file as `section.key=`; those of every table are under `tables.default`."""
    from elastichost.config import explain
    from elastichost.config.job import JobSpec
    from elastichost.config.schema import DEFAULT_TABLE, TableOverrides

    of_tables = explain.setting_paths(TableOverrides, f"tables.{DEFAULT_TABLE}.")
    paths = sorted({*explain.setting_paths(JobSpec), *of_tables})
    sections = {path.rpartition(".")[0] for path in paths}
    return [f"{path}=" for path in paths if path.startswith(incomplete) and path not in sections]


def event_kinds(incomplete: str) -> list[str]:
    """Categories and kinds of events."""
    from elastichost.runs.events import EVENT_CLASSES, Category, kind_of

    known = [*get_args(Category), *(kind_of(one.__name__) for one in EVENT_CLASSES)]
    return [kind for kind in known if kind.startswith(incomplete)]


def process_names(ctx: Any, incomplete: str) -> list[str]:
    """The processes of the run on the command line that have logs."""
    from elastichost.cli.runs import NEWEST, find_run
    from elastichost.errors import ConfigError

    try:
        logs = find_run(ctx.params.get("run") or NEWEST) / "logs"
    except ConfigError:
        return []
    known = sorted({path.name.partition(".")[0] for path in logs.glob("*.log")})
    return [name for name in known if name.startswith(incomplete)]


def runs_and_sizes(incomplete: str) -> list[str]:
    """The arguments of `scale`: runs, and the names of the numbers as `workers=`."""
    from elastichost.cli.train.scale import NAMES

    return [*run_names(incomplete), *(f"{name}=" for name in NAMES if name.startswith(incomplete))]
