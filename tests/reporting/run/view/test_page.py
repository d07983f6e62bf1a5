"""The page as a browser reads it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from elastichost.plan import ProcessId
from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.facts import Gap, Report
from elastichost.reporting.run.view.page import page_of
from elastichost.runs.events import CheckpointStarted, CheckpointWritten, ProcessLost, ReportNotKept, RunFailed, Warned
from tests.reporting.remains import NOW, STARTED, line, plan, write_journal, write_run
from tests.reporting.render.test_markup import Seen

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> ]]> --> $\\frac{$ \x00\u202e"


@pytest.fixture(scope="module")
def page(full: Report) -> str:
    return page_of(full)


def test_a_page_is_one_file_with_everything(page: str) -> None:
    seen = Seen(page)
    assert page.startswith("<!doctype html>")
    assert not {"script", "link", "img", "iframe", "object", "image"} & set(seen.tags)
    assert seen.tags.count("svg") == 8
    targets = {value for key, value in seen.attributes if key == "id"}
    references = [value for key, value in seen.attributes if key == "href"]
    assert references
    assert all(value is not None and value.startswith("#") and value[1:] in targets for value in references)
    assert not [key for key, _ in seen.attributes if key.startswith("on") or key == "src"]
    for told in (
        "Tuner model and measurements",
        "try 3 workers",
        "worker-0.1 exited in state",
        "0.20 s",
        "1 bucket handed over",
    ):
        assert told in seen.text, told


def test_light_and_dark_mode_are_defined(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    used = {part.partition(")")[0] for part in page.split("var(--")[1:]}
    assert {"ink", "paper", "blue"} <= used
    for name in used:
        assert page.count(f"--{name}:") in (1, 2), name  # fonts are the same in dark mode


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
    assert not {"script", "img"} & set(seen.tags)
    assert seen.text.count("alert(2)") >= 30
    assert "\x00" not in page
    assert "\u202e" not in page


def test_an_empty_run_directory_has_a_page(tmp_path: Path) -> None:
    seen = Seen(page_of(read_report(tmp_path, is_running=False, now_utc=NOW)))
    assert "svg" not in seen.tags
    assert "This report is incomplete" in seen.text
    for told in ("its end was not recorded", "No speed was recorded", "No process was measured", "decisions.jsonl"):
        assert told in seen.text, told
