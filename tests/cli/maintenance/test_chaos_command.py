"""The command that repeats a chaos run."""

from __future__ import annotations

import sys

import pytest

from elastichost.cli.maintenance import chaos


@pytest.mark.parametrize("place", [("--run-dir", "here"), ("--run-dir=here",)])
def test_a_repeated_run_gets_a_new_directory_and_keeps_every_other_word(
    place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["elastichost", "chaos", "my job.toml", *place, "--for", "60s"])
    monkeypatch.setattr(chaos, "program", lambda: "elastichost")
    assert chaos._command() == "elastichost chaos 'my job.toml' --for 60s"
