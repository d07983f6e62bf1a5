"""Verbs about the job file: prints a job with its defaults, and the JSON Schema of job files."""

from __future__ import annotations

import json

import typer

from elastichost.cli.groups import Verbs
from elastichost.cli.options import JobArgument, Overrides
from elastichost.cli.output import AsJson, print_json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    text = "Print a job with its defaults, or the JSON Schema of job files."
    group = typer.Typer(help=text, no_args_is_help=True, cls=Verbs)
    group.command("show")(show)
    group.command("schema")(schema)
    app.add_typer(group, name="config")


def show(job: JobArgument, overrides: Overrides = [], as_json: AsJson = False) -> None:  # noqa: B006 typer copies it
    """Print a job with every default written out."""
    from elastichost.config.job import load_job, to_toml

    spec = load_job(job, overrides)
    if as_json:
        print_json({"job": spec.model_dump(mode="json", exclude_none=True)})
    else:
        typer.echo(to_toml(spec), nl=False)


def schema() -> None:
    """Print the JSON Schema of job files, for editors."""
    from elastichost.config.job import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))
