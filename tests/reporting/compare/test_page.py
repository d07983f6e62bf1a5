"""The page that compares runs."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.reporting.compare.assemble import comparison_of
from elastichost.reporting.compare.facts import Comparison
from elastichost.reporting.compare.page import comparison_page_of
from elastichost.reporting.run.facts import Curve, Report
from tests.reporting.compare.test_assemble import reports
from tests.reporting.remains import NOW
from tests.reporting.render.seen import Seen

__all__ = ["reports"]

HOSTILE = "</script><script>alert(1)</script><!-- \u202e"


@pytest.fixture
def comparison(reports: list[Report]) -> Comparison:
    return comparison_of(reports, NOW)


def test_curves_of_all_runs_are_in_each_chart(comparison: Comparison) -> None:
    seen = Seen(comparison_page_of(comparison))
    assert set(seen.charts) == {"loss-samples", "loss-time"}
    for chart in seen.charts.values():
        assert [one["name"] for one in chart["series"]] == ["first", "second"]
        assert len({one["colour"] for one in chart["series"]}) == 2
    for told in ("Comparison of 2 runs", "train.batch_size", "not set", "1 worker, 1 PS", "has no exact curve"):
        assert told in seen.text, told
    assert "None" not in seen.text


def test_a_run_without_a_curve_is_in_the_table_only(comparison: Comparison) -> None:
    without = msgspec.structs.replace(comparison.runs[1], curve=Curve(), auc=None, workers=None)
    seen = Seen(comparison_page_of(msgspec.structs.replace(comparison, runs=(comparison.runs[0], without))))
    assert [one["name"] for one in seen.charts["loss-samples"]["series"]] == ["first"]
    assert "second" in seen.text


def test_names_and_settings_are_escaped(comparison: Comparison) -> None:
    run = msgspec.structs.replace(comparison.runs[0], name=HOSTILE, job=HOSTILE, state=HOSTILE)
    odd = msgspec.structs.replace(comparison.differences[0], name=HOSTILE, values=(HOSTILE, None))
    seen = Seen(comparison_page_of(msgspec.structs.replace(comparison, runs=(run, run), differences=(odd,))))
    assert len(seen.scripts) == 3 and not any("alert" in script for script in seen.scripts)
    assert seen.text.count("alert(1)") >= 6
    assert "\u202e" not in seen.text
