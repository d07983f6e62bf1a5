"""The page about a batch, its figures, and the verb `report` for a batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastichost.cli import run_command_line
from elastichost.reporting.host.assemble import read_host_report
from elastichost.reporting.host.facts import HostReport
from elastichost.reporting.host.page import host_page_of
from elastichost.runs.events import JobSubmitted
from tests.reporting.host_remains import began, host, host_line, job, write_batch, write_host
from tests.reporting.remains import NOW, write_journal, write_run
from tests.reporting.render.seen import Seen

HOSTILE = "<script>alert(1)</script> ]]> $\\frac{$ \x00\u202e"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> HostReport:
    return read(write_batch(tmp_path_factory.mktemp("host") / "batch-1"))


def read(directory: Path) -> HostReport:
    return read_host_report(directory, is_running=False, now_utc=NOW)


def test_the_page_of_a_host_is_one_file_with_everything(report: HostReport) -> None:
    page = host_page_of(report)
    seen = Seen(page)
    assert not {"link", "img", "iframe"} & set(seen.tags)
    assert set(seen.charts) == {"cores", "memory", "together"}
    targets = {value for key, value in seen.attributes if key == "id"}
    assert all(value and value[1:] in targets for key, value in seen.attributes if key == "href")
    for told in (
        "4 jobs: 2 done, 1 failed, 1 cancelled",
        "At most 2 jobs ran at once",
        "jobs that need different resources run together",
        "ran out of memory; it starts once more, alone",
        "out of memory 1\N{MULTIPLICATION SIGN}",
        "0.7500",
        "1.60",
        "at most 150% (news)",
        "cgroup v2: it is not mounted.",
    ):
        assert told in seen.text, told


def test_bars_have_names_and_tips(report: HostReport) -> None:
    page = host_page_of(report)
    assert "<title>ads (dense): running, 0:03.0 to 0:11.0, 8.0s</title>" in page
    names = [value or "" for value in Seen(page).values_of("aria-label")]
    assert any(name.startswith("ads (dense): waiting, 0:01.0 to 0:02.0") for name in names)


def test_texts_of_a_host_are_escaped(tmp_path: Path) -> None:
    told = job(HOSTILE, "failed", kind=HOSTILE, why=HOSTILE, started_s=2.0, ended_s=3.0)
    write_host(tmp_path, host(tmp_path, told, policy=HOSTILE, isolation=(HOSTILE,), elapsed_s=4.0))
    write_journal(tmp_path, host_line(1.0, JobSubmitted(HOSTILE)), host_line(2.0, began(HOSTILE, HOSTILE)))
    page = host_page_of(read(tmp_path))
    assert not any("alert" in script for script in Seen(page).scripts)
    assert Seen(page).text.count("alert(1)") >= 5
    assert "\u202e" not in page


def test_the_page_tells_what_the_tuner_of_a_running_job_proposes(tmp_path: Path) -> None:
    own = "its tuner proposes 2 workers, 3 PS: it is faster"
    jobs = [job(state, state, why="there was room", own_tuner=own, started_s=2.0) for state in ("running", "paused")]
    write_host(tmp_path, host(tmp_path, *jobs, elapsed_s=4.0))
    assert Seen(host_page_of(read(tmp_path))).text.count(f"there was room; {own}") == 1


def test_the_page_tells_how_many_jobs_it_does_not_list(tmp_path: Path) -> None:
    shown = job("ads", started_s=1.0, ended_s=3.0, samples_trained=10)
    write_host(tmp_path, host(tmp_path, shown, left_out={"done": 40, "failed": 2}, elapsed_s=4.0))
    text = Seen(host_page_of(read(tmp_path))).text
    for told in (
        "43 jobs: 41 done, 2 failed",
        "The listed jobs trained 10 samples",
        "42 jobs that ended earlier are not",
    ):
        assert told in text, told


def test_a_host_without_a_job_has_a_page(tmp_path: Path) -> None:
    write_host(tmp_path, host(tmp_path, elapsed_s=4.0))
    seen = Seen(host_page_of(read(tmp_path)))
    assert not seen.charts and "figure" not in seen.tags
    for told in ("without a job", "No job was submitted.", "Nothing was measured.", "jobs was not recorded."):
        assert told in seen.text, told


# --- the verb ---------------------------------------------------------------------------------------------------------


def test_the_verb_distinguishes_hosts_from_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    batch, run = write_batch(tmp_path / "runs" / "batch-1"), write_run(tmp_path / "runs" / "shop")
    assert run_command_line(["report", "batch-1"]) == 0
    assert run_command_line(["report", str(run)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "runs/batch-1/report.html"
    assert "report of many jobs" in (batch / "report.html").read_text()
    assert "report of a run" in (run / "report.html").read_text()


def test_json_prints_the_figures_of_a_host_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = write_batch(tmp_path / "batch-1")
    assert run_command_line(["report", str(batch), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["run_dir"], facts["output"]) == (str(batch), None)
    assert [one["job"] for one in facts["jobs"]] == ["ads", "news", "lies", "toys"]
    assert facts["summary"]["most_together"] == 2
    assert not (batch / "report.html").exists()
