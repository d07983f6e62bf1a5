"""Run directories with files that are missing, empty, cut short, or of another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.errors import PreflightError
from elastichost.reporting.run.sources import SKIPPED_KINDS, JobFacts, Sources, open_sources
from elastichost.runs.events import EVENT_CLASSES, ProcessReady, TunerDecided
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.decision import Decision
from tests.reporting.remains import evaluated, line, plan, worker, write_journal, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def gaps(sources: Sources) -> list[tuple[str, str]]:
    return [(gap.source, gap.text) for gap in sources.gaps]


def test_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no such directory"):
        open_sources(tmp_path / "nothing")


def test_existing_files_are_read(run: Path) -> None:
    sources = open_sources(run)
    job = sources.job()
    assert job == JobFacts("shop", "async", 64, 2, "1GiB", "", job.content)
    assert job.content["train"]["batch_size"] == 64
    assert sources.versions()["elastichost"] == "0.1.0"
    assert sources.status() is not None
    assert sources.result(is_expected=False) is None
    kinds = [one.kind for one in sources.journal()]
    assert kinds[0] == "run_started"
    assert not {"lease_granted", "leases_settled", "process_connected"} & set(kinds)
    assert sources.gaps == []


def test_kinds_that_are_left_out_exist() -> None:
    assert {one.__struct_config__.tag for one in EVENT_CLASSES} >= SKIPPED_KINDS


def test_missing_files_are_gaps(tmp_path: Path) -> None:
    sources = open_sources(tmp_path)
    assert sources.job() == JobFacts()
    assert (sources.versions(), sources.status(), sources.result(is_expected=True)) == ({}, None, None)
    assert (list(sources.journal()), list(sources.records())) == ([], [])
    assert [name for name, _ in gaps(sources)] == [
        "job.resolved.toml",
        "versions.json",
        "status.json",
        "result.json",
        "journal.jsonl",
        "decisions.jsonl",
    ]


def test_a_line_that_was_cut_short_is_no_gap(run: Path) -> None:
    whole = (run / "journal.jsonl").read_bytes()
    count = len(list(open_sources(run).journal()))
    (run / "journal.jsonl").write_bytes(whole + b'{"time_utc": "2026')
    sources = open_sources(run)
    assert len(list(sources.journal())) == count
    assert sources.gaps == []


def test_lines_of_another_version_are_left_out_and_counted(run: Path) -> None:
    write_journal(run, line(1, ProcessReady(worker())), line(2, ProcessReady(worker(1))))
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (run / "journal.jsonl").write_bytes(lines[0] + b'{"kind": 7}\n\xff\xfe\n[]\n' + lines[1])
    sources = open_sources(run)
    assert len(list(sources.journal())) == 2
    ((name, text),) = gaps(sources)
    assert name == "journal.jsonl"
    assert text.startswith("3 lines left out, because this version cannot read them; first error:")


@pytest.mark.parametrize(
    ("known", "other"),
    [
        (b'"workers":2', b'"workers":"two"'),
        (b'"access":"direct"', b'"access":"by post"'),
        (b'"samples":10', b'"samples":"many"'),
        (b'"kind":"move"', b'"kind":"odd"'),
        (b'"kind":"tuner_decided"', b'"kind":"tuner_wondered"'),
        (b'"reason":"cold start"', b'"reason":"cold start","colour":"red"'),
    ],
)
def test_events_of_another_shape_are_left_out_and_counted(run: Path, known: bytes, other: bytes) -> None:
    decided = TunerDecided(Decision("move", Configuration(1, 1), "it is faster"))
    write_journal(run, line(1, plan(2, 1, "cold start")), line(2, evaluated(10, 0.7)), line(3, decided))
    whole = (run / "journal.jsonl").read_bytes()
    assert whole.count(known) == 1
    (run / "journal.jsonl").write_bytes(whole.replace(known, other))
    sources = open_sources(run)
    assert len(list(sources.journal())) == 2
    ((name, text),) = gaps(sources)
    assert name == "journal.jsonl"
    assert text.startswith("1 line left out, because this version cannot read them")


def test_an_empty_journal_is_a_gap(run: Path) -> None:
    (run / "journal.jsonl").write_bytes(b"")
    sources = open_sources(run)
    assert list(sources.journal()) == []
    assert gaps(sources) == [("journal.jsonl", "empty, so the report lacks the history of the run")]


@pytest.mark.parametrize("content", ["[job", "[train]\nepochs = 'two'", "job = 1\n[train]\nepochs = []"])
def test_an_invalid_job_file_is_a_gap(run: Path, content: str) -> None:
    (run / "job.resolved.toml").write_text(content)
    sources = open_sources(run)
    assert sources.job() == JobFacts()
    assert gaps(sources)[0][0] == "job.resolved.toml"


def test_a_job_file_of_another_shape_is_read_partly(run: Path) -> None:
    (run / "job.resolved.toml").write_text("train = 7\n[job]\nname = 'old'\n[unknown]\nx = 1")
    sources = open_sources(run)
    job = sources.job()
    assert (job.name, job.mode, job.content["train"]) == ("old", "", 7)
    assert sources.gaps == []


def test_a_result_of_an_older_version_is_read(run: Path) -> None:
    (run / "result.json").write_text('{"status": "done", "wall_s": 3, "something": "else"}')
    result = open_sources(run).result(is_expected=True)
    assert result is not None
    assert (result.status, result.wall_s, result.samples) == ("done", 3.0, None)


@pytest.mark.parametrize("name", ["status.json", "result.json", "versions.json"])
def test_small_files_that_are_no_json_are_gaps(run: Path, name: str) -> None:
    (run / name).write_bytes(b"\xff{")
    sources = open_sources(run)
    sources.versions(), sources.status(), sources.result(is_expected=True)
    assert name in [source for source, _ in gaps(sources)]
