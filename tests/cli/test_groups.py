"""`elastichost --help` lists every verb once, in its group."""

from __future__ import annotations

import pytest
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


def test_no_description_is_cut_at_80_columns(elastichost: Elastichost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = elastichost("--help").stdout
    listed = shown[shown.index("Train:") :].splitlines()
    assert max(map(len, listed)) <= 80
    # a line each: a verb with a longer first sentence would go on in a line without a name
    assert [line for line in listed if "..." in line or line.startswith("   ")] == []


def test_a_mistyped_verb_gets_a_suggestion(elastichost: Elastichost) -> None:
    outcome = elastichost("resme")
    assert outcome.code == 2
    assert "there is no verb 'resme'; did you mean \"resume\"?" in outcome.stderr
    assert 'did you mean "show"?' in elastichost("config", "shwo").stderr
