"""The page about a batch, its figures, and the verb `report` for a batch."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elastichost.cli import run_command_line
from elastichost.reporting.host.assemble import read_host_report
from elastichost.reporting.host.facts import HostReport
from elastichost.reporting.host.figures import core_figure, gantt_figure, host_memory_figure, speed_figure
from elastichost.reporting.host.page import host_page_of
from elastichost.reporting.render.svg import Drawing, drawing_style, svg_of
from elastichost.runs.events import JobSubmitted
from tests.reporting.host_remains import began, host, host_line, job, write_batch, write_host
from tests.reporting.remains import NOW, write_journal, write_run
from tests.reporting.render.test_markup import Seen

ALL = (gantt_figure, core_figure, host_memory_figure, speed_figure)
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script> ]]> $\\frac{$ \x00\u202e"
Make = Callable[[HostReport], Drawing | None]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> HostReport:
    return read(write_batch(tmp_path_factory.mktemp("host") / "batch-1"))


@pytest.fixture
def style() -> Iterator[None]:
    with drawing_style():
        yield


def read(directory: Path) -> HostReport:
    return read_host_report(directory, is_running=False, now_utc=NOW)


def drawn(make: Make, report: HostReport) -> Drawing:
    """The figure of a report that has content for it."""
    drawing = make(report)
    assert drawing is not None
    return drawing


def part(drawing: Drawing, gid: str) -> Any:
    """The artist with this gid."""
    return next(one for one in drawing.figure.findobj() if one.get_gid() == gid)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.usefixtures("style")
def test_a_figure_has_the_pages_colours_only_and_is_the_same_each_time(make: Make, report: HostReport) -> None:
    svg = svg_of(drawn(make, report))
    assert svg == svg_of(drawn(make, report))
    assert not re.findall(r"#[0-9a-fA-F]{3,6}\b(?=[;\"])", re.sub(r'(href="|url\()#[^")]*', "", svg))
    assert "var(--blue)" in svg
    assert "var(--green)" in svg


@pytest.mark.usefixtures("style")
def test_bars_match_the_times_of_their_jobs(report: HostReport) -> None:
    drawing = drawn(gantt_figure, report)
    bars = {text: part(drawing, gid).get_paths()[0].get_extents() for gid, text in drawing.tips.items()}
    runs = next(bar for text, bar in bars.items() if text.startswith("ads (dense): running"))
    waits = next(bar for text, bar in bars.items() if text.startswith("ads (dense): waiting"))
    other = next(bar for text, bar in bars.items() if text.startswith("news (input): running, 0:16.0 to 0:19.0"))
    assert (runs.x0, runs.x1) == (pytest.approx(3.0), pytest.approx(11.0))
    assert (waits.x0, waits.x1) == (pytest.approx(1.0), pytest.approx(2.0))
    assert waits.height < runs.height / 4
    assert runs.y0 < 0 < runs.y1
    assert other.y0 < 1 < other.y1
    assert len(bars) == sum(len(one.spans) for one in report.jobs)
    (axes,) = drawing.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ads", "news", "lies", "toys"]
    assert axes.yaxis_inverted()


@pytest.mark.usefixtures("style")
def test_bands_are_stacked_upon_one_another(report: HostReport) -> None:
    drawing = drawn(core_figure, report)
    below, above = (part(drawing, gid).get_paths()[0].vertices for gid in ("core-0", "core-1"))
    assert below[:, 1].max() == pytest.approx(2.0)
    assert above[:, 1].max() == pytest.approx(2.5)
    beside = above[(above[:, 0] > 4.5) & (above[:, 0] < 7.5)]
    assert beside[:, 1].min() == pytest.approx(2.0)
    assert drawing.tips == {"core-0": "ads: at most 2.00 cores", "core-1": "news: at most 0.50 cores"}
    assert drawing.figure.axes[0].get_ylim()[1] > 4.0  # the cores of the host


@pytest.mark.usefixtures("style")
def test_charges_and_limit_are_drawn_above_memory_in_use(report: HostReport) -> None:
    (axes,) = drawn(host_memory_figure, report).figure.axes
    lines = {line.get_label(): max(line.get_ydata()) for line in axes.lines}
    assert lines["charged"] == 500 << 20
    assert lines["limit of all jobs"] == 1000 << 20
    much = msgspec.structs.replace(report.summary, memory_bytes=10**12)
    (axes,) = drawn(host_memory_figure, msgspec.structs.replace(report, summary=much)).figure.axes
    assert "limit of all jobs" not in {line.get_label() for line in axes.lines}


@pytest.mark.usefixtures("style")
def test_points_are_at_predicted_and_measured_speeds(report: HostReport) -> None:
    drawing = drawn(speed_figure, report)
    gid = next(gid for gid, text in drawing.tips.items() if text.startswith("ads beside news"))
    assert part(drawing, gid).get_xydata().tolist() == [[pytest.approx(0.8), pytest.approx(0.75)]]


def test_the_page_of_a_host_is_one_file_with_everything(report: HostReport) -> None:
    page = host_page_of(report)
    seen = Seen(page)
    assert not {"script", "link", "img", "iframe"} & set(seen.tags)
    assert seen.tags.count("svg") == 4
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


def test_titles_of_marks_are_in_the_page(report: HostReport) -> None:
    svg = re.search(r"<svg.*?</svg>", host_page_of(report), flags=re.DOTALL)
    assert svg is not None
    titles = [one.text for one in ET.fromstring(svg[0]).iter(f"{SVG}title")]
    assert "ads (dense): running, 0:03.0 to 0:11.0, 8.0s" in titles


def test_texts_of_a_host_are_escaped(tmp_path: Path) -> None:
    told = job(HOSTILE, "failed", kind=HOSTILE, why=HOSTILE, started_s=2.0, ended_s=3.0)
    write_host(tmp_path, host(tmp_path, told, policy=HOSTILE, isolation=(HOSTILE,), elapsed_s=4.0))
    write_journal(tmp_path, host_line(1.0, JobSubmitted(HOSTILE)), host_line(2.0, began(HOSTILE, HOSTILE)))
    page = host_page_of(read(tmp_path))
    assert "script" not in Seen(page).tags
    assert Seen(page).text.count("alert(1)") >= 5
    assert "\u202e" not in page


def test_a_host_without_a_job_has_a_page(tmp_path: Path) -> None:
    write_host(tmp_path, host(tmp_path, elapsed_s=4.0))
    seen = Seen(host_page_of(read(tmp_path)))
    assert "svg" not in seen.tags
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
