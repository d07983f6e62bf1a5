"""No code parses a fact from an event sentence: a run with replaced sentences can be resumed, reported, replayed and
used by chaos like any other run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elastichost.runs.events import ArenaReused, ProcessLost
from elastichost.runs.events.text import text_of
from tests.system.journals import events_of, lines_of
from tests.system.test_run import ROOT, TRAINED, Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system

JOB = f"""
[job]
name = "reworded"
seed = 7
{TRAINED.replace('mode = "off"', 'mode = "watch"')}
[evaluate]
every_samples = 60_000
[resources]
workers = 2
[checkpoint]
every_s = 60
[supervision]
hang_timeout_s = 3
"""
ROWS = 400_000


class RewordedRun(Supervised):
    """A run with a supervisor that replaces all event sentences."""

    module = "tests.system.supervise_reworded"


def told(module: str, *arguments: str) -> dict[str, Any]:
    """The JSON object in the last line of a command's output."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return facts


def without_texts(facts: Any) -> Any:
    """The facts without sentences and without the time of the report."""
    if isinstance(facts, dict):
        return {key: without_texts(value) for key, value in facts.items() if key not in ("text", "made_utc")}
    return [without_texts(one) for one in facts] if isinstance(facts, list) else facts


def test_a_run_with_other_sentences_is_resumed_reported_and_replayed(folder: Path) -> None:
    first = RewordedRun(folder, template=JOB, rows=ROWS, restarts=3)
    first.wait_trained(30_000)
    worker = first.pid("worker-1")
    subprocess.run(["kill", "-9", str(worker)], check=True)
    first.wait_until(lambda: first.lost())
    first.wait_trained(60_000)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()

    again = RewordedRun(folder, resume=True, template=JOB, rows=ROWS, restarts=3)
    code, errors = again.finish()
    assert code == 0, errors
    journal = again.run_dir / "journal.jsonl"
    assert len(events_of(journal, ArenaReused)) == 1, "the resume must use the arena"
    assert again.result()["samples"]["trained"] == ROWS
    assert [event.process.name for event in events_of(journal, ProcessLost)][:1] == ["worker-1"]
    sentences = [text_of(line.event) for line in lines_of(journal)]
    assert not any(sentence in journal.read_text() for sentence in sentences if len(sentence) > 30), (
        "no sentence is stored"
    )

    plain = told("elastichost", "report", str(again.run_dir), "--json")
    other = told("tests.system.reworded", "report", str(again.run_dir), "--json")
    assert without_texts(plain) == without_texts(other) and plain != other, "only the sentences may differ"
    assert told("tests.system.reworded", "replay", str(again.run_dir), "--json") == told(
        "elastichost", "replay", str(again.run_dir), "--json"
    )


@pytest.mark.thorough
def test_chaos_keeps_its_promises_with_other_sentences(folder: Path) -> None:
    job = folder / "job.toml"
    job.write_text(JOB.format(build="elastichost.models:dlrm", rows=400_000, epochs=50))
    run_dir = folder / "chaos"
    facts = told(
        "tests.system.reworded", "chaos", str(job), "--for", "8s", "--seed", "11", "--no-twins", "--json",
        "--run-dir", str(run_dir),
    )  # fmt: skip
    assert facts["kills"] > 0
    assert facts["violations"] == [] and False not in facts["invariants"].values()
