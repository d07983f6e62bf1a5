"""A real job with tables that outgrow its memory. It runs four times: with enough memory (this run fills the history),
with too little memory and the memory tuner off, with the memory tuner, and with the memory tuner and the history."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from elastichost.human_readable import mib
from elastichost.run_files import JOURNAL_FILE, RESULT_FILE, STATUS_FILE
from elastichost.runs.decisions import DECISIONS_FILE, read_records
from elastichost.runs.events import MemoryBudgetSet
from elastichost.runs.journal import read_journal
from elastichost.tuner.records import MemoryLooked

__all__ = ["OFF", "RealRun", "read_run", "real_runs", "real_words", "with_leads"]

LIMIT_S = 300.0
ENOUGH, TOO_LITTLE = "4GB", "1000MB"
JOB = """
[job]
name = "memory"
seed = 7
[model]
build = "elastichost.models:dlrm"
args = { bottom = [256, 256, 32], top = [256, 256, 1] }
[data]
format = "synthetic"
[data.synthetic]
rows = 1_000_000
test_rows = 2000
tables = 4
table_rows = 1_000_000
dense = 3
zipf = 0.2
unit_rows = 8192
[tables.default]
dim = 32
rows = "dynamic"
optimizer = { name = "adagrad" }
[train]
batch_size = 128
[resources]
workers = [1, 2]
servers = 1
[tuner]
mode = "watch"
first_plan = { workers = 1 }
"""
ARMS = {
    "enough memory": (ENOUGH, "watch", True),
    "too little, tuner.memory off": (TOO_LITTLE, "off", False),
    "too little, tuner.memory act": (TOO_LITTLE, "act", False),
    "the same, and it has run before": (TOO_LITTLE, "act", True),
}
OFF = "too little, tuner.memory off"


class _Ended(msgspec.Struct, frozen=True):
    status: str


class RealRun(msgspec.Struct, frozen=True):
    """One run. samples: trained. alarm_s: seconds from the first look to the first action. dropped_s: seconds to the
    first look after rows were dropped. action_s: estimated time of the action. None: never. foreseen: the run's first
    forecast of its total memory. course: (seconds, samples) of the looks."""

    arm: str
    status: str
    samples: int
    alarm_s: float | None = None
    dropped_s: float | None = None
    action_s: float | None = None
    foreseen: str = ""
    course: tuple[tuple[float, int], ...] = ()
    lead_s: float | None = None  # from the alarm to the sample at which the run without the tuner died


def real_runs() -> list[RealRun]:
    """Runs the job in all four ways. Raises subprocess.TimeoutExpired."""
    found: list[RealRun] = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "job.toml").write_text(JOB)
        for number, (arm, (memory, mode, has_history)) in enumerate(ARMS.items()):
            run_dir = folder / str(number)
            history = str(folder / "history.sqlite") if has_history else "off"
            _run(folder / "job.toml", {"resources.memory": memory, "tuner.memory": mode}, run_dir, history)
            found.append(read_run(arm, run_dir))
            print(real_words(found[-1]), file=sys.stderr, flush=True)
    return with_leads(found)


def _run(job: Path, settings: Mapping[str, str], run_dir: Path, history: str) -> None:
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "elastichost", "run", str(job), "--dashboard", "no", "--run-dir", str(run_dir)]
    environ = {**os.environ, "ELASTICHOST_HISTORY": history}
    with run_dir.with_suffix(".log").open("w") as said:
        subprocess.run([*command, *overrides], stdout=said, stderr=said, env=environ, timeout=LIMIT_S, check=False)


def read_run(arm: str, run_dir: Path) -> RealRun:
    """The figures of a run, read from its directory."""
    ended = msgspec.json.decode((run_dir / RESULT_FILE).read_bytes(), type=_Ended)
    looks = [one for one in read_records(run_dir / DECISIONS_FILE) if isinstance(one, MemoryLooked)]
    began_s = looks[0].now_s if looks else 0.0
    acted = next((one for one in looks if one.decision.kind not in ("stay", "warn")), None)
    dropped = next((one for one in looks if one.look.live_bytes < one.look.made_bytes), None)
    return RealRun(
        arm,
        ended.status,
        _trained(run_dir),
        acted.now_s - began_s if acted is not None else None,
        dropped.now_s - began_s if dropped is not None else None,
        acted.look.action_s if acted is not None else None,
        _foreseen(run_dir),
        tuple((one.now_s - began_s, one.look.samples) for one in looks),
    )


def _trained(run_dir: Path) -> int:
    class Status(msgspec.Struct):
        samples_trained: int = 0

    return msgspec.json.decode((run_dir / STATUS_FILE).read_bytes(), type=Status).samples_trained


def _foreseen(run_dir: Path) -> str:
    lines = read_journal(run_dir / JOURNAL_FILE)
    first = next((line.event for line in lines if isinstance(line.event, MemoryBudgetSet)), None)
    if first is None or first.forecast_bytes is None:
        return ""
    median, high = first.forecast_bytes
    return f"the run needs {mib(median)}, at most {mib(high)}, until its end"


def with_leads(runs: Sequence[RealRun]) -> list[RealRun]:
    """Sets the lead of each run that acted: the time until it would have reached the sample at which the run without
    the tuner died, at its own speed."""
    died = next((one.samples for one in runs if one.arm == OFF and one.status != "done"), None)
    if died is None:
        return list(runs)
    found = []
    for one in runs:
        lead_s = None
        if one.alarm_s is not None:
            seconds, samples = zip(*one.course, strict=True)
            lead_s = float(np.interp(died, samples, seconds)) - one.alarm_s
        found.append(msgspec.structs.replace(one, lead_s=lead_s))
    return found


def real_words(run: RealRun) -> str:
    """One line of text about a run."""
    words = [f"real, {run.arm}: {run.status} after {run.samples:,} samples"]
    if run.foreseen:
        words.append(f"forecast at its beginning: {run.foreseen}")
    if run.alarm_s is not None:
        words.append(f"acted {run.alarm_s:.1f} s after the first look")
    if run.lead_s is not None and run.action_s is not None:
        words.append(f"{run.lead_s:.1f} s before memory would have run out; an action takes {run.action_s:.1f} s")
    if run.alarm_s is not None and run.dropped_s is not None:
        words.append(f"rows were dropped {run.dropped_s - run.alarm_s:.1f} s later")
    return "; ".join(words)
