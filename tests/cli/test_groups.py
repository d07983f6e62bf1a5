"""`elastichost --help` lists every verb once, in its group."""

from __future__ import annotations

import typer

from elastichost.cli import app
from elastichost.cli.groups import GROUPS
from tests.cli.conftest import Elastichost


def test_every_verb_is_in_one_group() -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(known)


def test_help_shows_the_groups(elastichost: Elastichost) -> None:
    shown = elastichost("--help").stdout
    places = [shown.index(f"{title}:") for title in GROUPS]
    assert places == sorted(places)
    assert shown.count("\n  resume ") == 1


def test_a_mistyped_verb_gets_a_suggestion(elastichost: Elastichost) -> None:
    outcome = elastichost("resme")
    assert outcome.code == 2
    assert "resume" in outcome.stderr
