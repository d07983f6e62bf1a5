"""Errors of the arguments of a verb: printed like any other error, with a suggestion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Elastichost


def test_a_mistyped_option_gets_a_suggestion(elastichost: Elastichost) -> None:
    outcome = elastichost("run", "job.toml", "--dashbord", "no")
    assert outcome.code == 2
    assert outcome.stderr.startswith('error  elastichost run: no option --dashbord; did you mean "--dashboard"?\n')
    assert "usage: elastichost run [OPTIONS]" in outcome.stderr


def test_an_option_like_no_other_gets_no_suggestion(elastichost: Elastichost) -> None:
    assert "did you mean" not in elastichost("doctor", "--bogus").stderr, "the dashes are not compared"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "a", "--dashboard", "x"), "invalid value for '--dashboard': 'x' is not one of 'auto', 'no'"),
        (("clean", "--keep", "x"), "invalid value for '--keep'"),
        (("config", "show"), "missing argument 'JOB'"),
        (("top", "--web", "--port", "65536"), "invalid value for '--port'"),
    ],
)
def test_a_wrong_value_is_named(elastichost: Elastichost, arguments: tuple[str, ...], said: str) -> None:
    outcome = elastichost(*arguments)
    assert outcome.code == 2
    assert said in outcome.stderr
    assert "Value error" not in outcome.stderr
    assert "Input should" not in outcome.stderr


def test_wrong_usage_with_json_is_one_json_object(elastichost: Elastichost) -> None:
    outcome = elastichost("status", "a", "b", "--json")
    facts = json.loads(outcome.stdout)
    assert (outcome.code, outcome.stderr) == (2, "")
    assert (facts["status"], facts["exit_code"], facts["error"]["type"]) == ("failed", 2, "ConfigError")


def test_a_verb_group_without_a_verb_shows_its_help(elastichost: Elastichost) -> None:
    outcome = elastichost("config")
    assert outcome.code == 2
    assert "show" in outcome.stdout + outcome.stderr
    assert "error" not in outcome.stderr


@pytest.mark.parametrize("option", [("--policy", "fifo"), ("--memory", "4GiB"), ("--own-sizes",)])
def test_an_option_for_several_jobs_is_refused_for_one(
    elastichost: Elastichost, job_file: Path, option: tuple[str, ...]
) -> None:
    outcome = elastichost("run", str(job_file), *option)
    assert outcome.code == 2
    assert "need several jobs, and this is one" in outcome.stderr


def test_a_command_without_an_end_of_its_quotes_is_refused(elastichost: Elastichost, job_file: Path) -> None:
    outcome = elastichost("plan", str(job_file), "--for", "slurm", "--program", "srun 'elastichost")
    assert outcome.code == 2
    assert "is no command (No closing quotation)" in outcome.stderr
