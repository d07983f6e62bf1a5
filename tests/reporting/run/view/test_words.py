"""The sentences of a report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.facts import Report
from elastichost.reporting.run.view.words import accuracy_words, facts_of, lead_of, without_course_words
from tests.reporting.remains import NOW, write_run


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return read_report(write_run(tmp_path / "run"), is_running=False, now_utc=NOW)


def changed(report: Report, **facts: object) -> Report:
    """The report with other facts in its overview."""
    return msgspec.structs.replace(report, overview=msgspec.structs.replace(report.overview, **facts))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "Done after 10s."),
        ({"state": "training"}, "The run died in state training, after 10s."),
        ({"state": "training", "is_running": True}, "The run is in state training, 10s after it began."),
        ({"state": "quarantined"}, "Done after 10s, but some samples were quarantined."),
        ({"state": "incomplete"}, "Done after 10s, but many ids had no row because memory was full."),
        ({"state": "stopped"}, "Stopped after 10s."),
        ({"state": "unknown"}, "The run lasted 10s; its end was not recorded."),
    ],
)
def test_the_lead_says_how_the_run_ended(report: Report, facts: dict[str, object], words: str) -> None:
    assert lead_of(changed(report, **facts)).startswith(f"{words} It trained 1000 of 2000 samples, 100 samples/s.")


def test_quality_is_shown_with_the_best_possible_auc(report: Report) -> None:
    assert lead_of(changed(report, auc=0.75, truth_auc=0.8)).endswith(
        "On the test set it reaches an AUC of 0.7500; the true probabilities reach 0.8000."
    )


def test_a_short_run_shows_its_known_figures(report: Report) -> None:
    short = changed(report, auc=0.75, logloss=0.5)
    assert " ".join(without_course_words(short.overview)) == (
        "The run trained 1000 samples in 10s without a recorded loss, so there is no loss curve. "
        "At its end: AUC 0.7500, log loss 0.5000."
    )
    unknown = changed(report, samples_trained=None)
    assert "Neither a loss nor an evaluation" in " ".join(without_course_words(unknown.overview))
    assert " ".join(without_course_words(changed(report, samples_trained=0).overview)) == "Nothing was trained."


def test_only_known_facts_are_shown(report: Report) -> None:
    names = [name for name, _ in facts_of(report)]
    assert "AUC" not in names
    assert names[:2] == ["state", "began"]
    assert ("samples left out", "3 skipped") in list(facts_of(changed(report, samples_skipped=3)))


def test_forecasts_are_compared_with_measurements(full: Report) -> None:
    foretold = [one for one in full.tuner if one.kind in ("try", "move") and one.measured is not None]
    first, second = accuracy_words(full)
    assert first.startswith(f"Of {len(foretold)} forecast")
    assert "median error" in second
