"""What a shell proposes for arguments that are not about a run: job files, settings, kinds of events.

typer calls these functions when the user presses the tab key; `elastichost --install-completion` sets that up. What
takes long to import is imported when it is asked for. Names of runs: `runs.run_names`.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

__all__ = ["event_kinds", "job_files", "setting_paths"]


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
    from elastichost.config.sections.schema import DEFAULT_TABLE, TableOverrides

    of_tables = explain.setting_paths(TableOverrides, f"tables.{DEFAULT_TABLE}.")
    paths = sorted({*explain.setting_paths(JobSpec), *of_tables})
    sections = {path.rpartition(".")[0] for path in paths}
    return [f"{path}=" for path in paths if path.startswith(incomplete) and path not in sections]


def event_kinds(incomplete: str) -> list[str]:
    """Categories and kinds of events."""
    from elastichost.runs.events import EVENT_CLASSES, Category, kind_of

    known = [*get_args(Category), *(kind_of(one.__name__) for one in EVENT_CLASSES)]
    return [kind for kind in known if kind.startswith(incomplete)]
