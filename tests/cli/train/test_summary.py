"""The last screen of a run."""

from __future__ import annotations

import msgspec

from elastichost.cli.runs import program
from elastichost.cli.train.summary import summary
from elastichost.runs.result import Lookups, ProcessCounts, RunResult, SampleCounts

RESULT = RunResult(
    status="done",
    exit_code=0,
    run_dir="/runs/one",
    samples=SampleCounts(1000, 1000, 0, 0),
    test=None,
    samples_per_s=100.0,
    wall_s=10.0,
    processes=ProcessCounts(1, 1, 0),
    arena_bytes=4096,
    epochs=1,
    torn_batches=0,
)


def test_ids_without_a_row_are_shown_and_the_model_can_be_used() -> None:
    assert "lookups" not in summary(RESULT).plain
    incomplete = msgspec.structs.replace(RESULT, status="incomplete", lookups=Lookups(4000, 1000), message="why")
    text = summary(incomplete).plain
    assert text.startswith("incomplete  in 10s  why\n")
    assert "1000 of 4000 ids (25.0%) had no row because memory was full" in text
    assert "export /runs/one DIR" in text


def test_a_run_that_was_killed_is_resumed_from_its_checkpoint_or_run_again() -> None:
    killed = msgspec.structs.replace(RESULT, status="killed", checkpoint="/runs/one/checkpoints/3")
    assert f"next: {program()} resume /runs/one" in summary(killed).plain
    text = summary(msgspec.structs.replace(killed, checkpoint="")).plain
    assert "nothing of the run was saved: run the job again" in text and "next:" not in text


def test_a_run_that_failed_is_resumed_and_its_logs_are_named() -> None:
    failed = msgspec.structs.replace(RESULT, status="failed", checkpoint="/runs/one/checkpoints/3")
    text = summary(failed).plain
    assert f"next: {program()} resume /runs/one\n      {program()} logs /runs/one" in text
