"""The page as a browser reads it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from elastichost.plan import ProcessId
from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.facts import Gap, Report
from elastichost.reporting.run.view.page import page_of
from elastichost.runs.events import CheckpointStarted, CheckpointWritten, ProcessLost, ReportNotKept, RunFailed, Warned
from tests.reporting.remains import NOW, STARTED, line, plan, write_journal, write_run
from tests.reporting.render.seen import Seen

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> ]]> --> $\\frac{$ \x00\u202e"


@pytest.fixture(scope="module")
def page(full: Report) -> str:
    return page_of(full)


def test_a_page_is_one_file_with_everything(page: str) -> None:
    seen = Seen(page)
    assert page.startswith("<!doctype html>")
    assert not {"link", "img", "iframe", "object", "image"} & set(seen.tags)
    assert set(seen.charts) == {
        *("auc", "candidates", "cpu", "load", "loss", "memory", "plan", "process-memory", "speed"),
    }
    assert len(seen.scripts) == 3
    targets = {value for key, value in seen.attributes if key == "id"}
    references = [value for key, value in seen.attributes if key == "href"]
    assert references
    assert all(value is not None and value.startswith("#") and value[1:] in targets for value in references)
    assert not [key for key, _ in seen.attributes if key.startswith("on") or key == "src"]
    for told in (
        "Measured configurations",
        "try 3 workers",
        "worker-0.1 exited in state",
        "0.20 s",
        "1 bucket handed over",
    ):
        assert told in seen.text, told


def test_learning_comes_first(page: str) -> None:
    links = [value for value in Seen(page).values_of("href") if value and value != "#main"]
    assert links[:3] == ["#learning", "#trained", "#speed"]


def test_headings_are_in_order(page: str) -> None:
    levels = [int(tag[1]) for tag in Seen(page).tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_every_figure_and_strip_has_a_name(page: str) -> None:
    seen = Seen(page)
    ids = set(seen.values_of("id"))
    assert seen.tags.count("figure") == len(seen.charts) + 1  # the measured configurations are rows of bars
    assert {f"chart-{name}-title" for name in seen.charts} <= ids & set(seen.values_of("aria-labelledby"))
    assert any("fitted model" in (value or "") for value in seen.values_of("aria-label"))


def test_texts_of_a_run_are_escaped_everywhere(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    process = ProcessId(HOSTILE, 0, 1)
    write_journal(
        run,
        line(0, STARTED),
        line(1, plan(1, 1, HOSTILE)),
        line(2, Warned(HOSTILE)),
        line(3, CheckpointStarted(1, HOSTILE)),
        line(4, CheckpointWritten(HOSTILE, 300, 500, 1 << 20, 0.5, 0.1, 0)),
        line(5, ProcessLost(process, 4000, -9, HOSTILE, HOSTILE)),
        line(5, ProcessLost(process, 4000, -9, HOSTILE, HOSTILE, reported=HOSTILE)),
        line(6, ReportNotKept(process, HOSTILE)),
        line(7, RunFailed(HOSTILE, HOSTILE, is_bug=True)),
    )
    (run / "job.resolved.toml").write_text(f"[job]\nname = {msgspec.json.encode(HOSTILE[:-2]).decode()}")
    (run / "versions.json").write_bytes(msgspec.json.encode({"platform": HOSTILE, HOSTILE: HOSTILE}))
    (run / "result.json").write_bytes(msgspec.json.encode({"status": HOSTILE, "message": f"{HOSTILE}\n{HOSTILE}"}))
    report = read_report(run, is_running=False, now_utc=NOW)
    report = msgspec.structs.replace(report, gaps=(Gap(HOSTILE, HOSTILE),))
    page = page_of(report)
    seen = Seen(page)
    assert "img" not in seen.tags
    assert len(seen.scripts) == 3 and not any("alert" in script for script in seen.scripts)
    assert seen.tags.count("script") == len(seen.charts) + len(seen.scripts)
    assert seen.text.count("alert(2)") >= 30
    assert "alert(2)" in str(seen.charts["speed"]["points"])
    assert "\x00" not in page
    assert "\u202e" not in page


def test_an_empty_run_directory_has_a_page(tmp_path: Path) -> None:
    seen = Seen(page_of(read_report(tmp_path, is_running=False, now_utc=NOW)))
    assert not seen.charts and "figure" not in seen.tags
    assert "This report is incomplete" in seen.text
    for told in ("its end was not recorded", "No speed was recorded", "No process was measured", "decisions.jsonl"):
        assert told in seen.text, told


def test_a_decision_that_was_not_carried_out_is_marked(full: Report) -> None:
    for was_followed, count in ((True, 0), (False, len(full.tuner))):
        decisions = tuple(msgspec.structs.replace(one, was_followed=was_followed) for one in full.tuner)
        assert decisions
        told = Seen(page_of(msgspec.structs.replace(full, tuner=decisions))).text
        assert told.count("not carried out") == count
