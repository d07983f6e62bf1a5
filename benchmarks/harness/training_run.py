"""One run of a job file as a user would start it, and the figures of its result."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from elastichost.chaos.tails import AppliedTail

__all__ = ["EXAMPLES", "Quality", "TrainingResult", "train"]

LOOK_EVERY_S = 0.02
EXAMPLES = Path(__file__).parents[2] / "examples"


class Quality(msgspec.Struct, frozen=True):
    auc: float
    logloss: float


class TrainingResult(msgspec.Struct, frozen=True):
    """The part of a run's JSON result that is compared."""

    status: str
    samples_per_s: float
    wall_s: float
    arena_bytes: int
    test: Quality


def train(
    job: Path, settings: Mapping[str, object], run_dir: Path, sizes: Sequence[tuple[int, str]] = ()
) -> TrainingResult:
    """Runs the job to its end. sizes: after so many samples `elastichost scale` with this word, as "workers=3". Raises
    CalledProcessError when the run fails, or a change of its size; messages are on stderr then."""
    fixed = {"tuner.mode": "off", **settings}  # a figure is of the plan that it is told to be of
    overrides = [part for key, value in fixed.items() for part in ("--set", f"{key}={value}")]
    program = [sys.executable, "-m", "elastichost"]
    command = [*program, "run", str(job), "--json", "--run-dir", str(run_dir), *overrides]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        applied = AppliedTail(run_dir / "applied.bin")
        for samples, size in sizes:
            while applied.samples < samples and run.poll() is None:
                time.sleep(LOOK_EVERY_S)
                applied.poll()
            subprocess.run([*program, "scale", str(run_dir), size], stdout=subprocess.DEVNULL, check=True)
        output, _ = run.communicate()
        if run.returncode != 0:
            raise subprocess.CalledProcessError(run.returncode, command)
    return msgspec.json.decode(output.splitlines()[-1], type=TrainingResult)
