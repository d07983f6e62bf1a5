"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elastichost.cli.completion import job_files, setting_paths

__all__ = ["JobArgument", "Overrides"]

JobArgument = Annotated[Path, typer.Argument(metavar="JOB", help="The job file (TOML).", autocompletion=job_files)]
Overrides = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, e.g. train.batch_size=1024; repeatable.",
        autocompletion=setting_paths,
    ),
]
