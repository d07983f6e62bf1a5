"""The reference pages of the repository are those of today's code."""

from __future__ import annotations

import re

import typer.main
from click import Command, Group

from docs.reference_pages import ROOT, made_pages
from elastichost.cli import app

FOLDER = ROOT / "docs" / "reference"


def test_the_page_of_the_job_file_is_made_anew() -> None:
    page = FOLDER / "job-file.md"
    assert page.read_text(encoding="utf-8") == made_pages()[page], "run `python -m docs.reference_pages`"


def test_the_page_of_the_command_line_has_every_verb_and_option() -> None:
    """Its layout is Typer's, and may differ between versions of Typer."""
    text = (FOLDER / "cli.md").read_text(encoding="utf-8")
    for verb, command in commands("elastichost", typer.main.get_command(app)):
        assert f"## `{verb}`" in text or verb == "elastichost", f"{verb}: run `python -m docs.reference_pages`"
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    told = re.search(rf"[`\s]{option}[`\s/]", text)
                    assert told, f"{verb} {option}: run `python -m docs.reference_pages`"


def commands(path: str, command: Command) -> list[tuple[str, Command]]:
    found = [(path, command)]
    if isinstance(command, Group):
        for name, inner in command.commands.items():
            if not inner.hidden:
                found += commands(f"{path} {name}", inner)
    return found
