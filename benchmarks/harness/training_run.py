"""Runs a job file with the command line, as a user does, and reads the result."""

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
    """The part of a run's JSON result that benchmarks compare."""

    status: str
    samples_per_s: float
    wall_s: float
    arena_bytes: int
    test: Quality


def train(
    job: Path, settings: Mapping[str, object], run_dir: Path, sizes: Sequence[tuple[int, str]] = ()
) -> TrainingResult:
    """Runs the job to its end. sizes: (samples, argument) pairs; when that many samples are trained, `elastichost
    scale` is called with the argument, such as "workers=3". Raises CalledProcessError if the run or a scale command
    fails; its messages are on stderr."""
    fixed = {"tuner.mode": "off", **settings}  # the tuner would change the plan that is measured
    overrides = [part for key, value in fixed.items() for part in ("--set", f"{key}={value}")]
    program = [sys.executable, "-m", "elastichost"]
    command = [*program, "run", str(job), "--json", "--run-dir", str(run_dir), *overrides]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        applied = AppliedTail(run_dir)
        for samples, size in sizes:
            while applied.samples < samples and run.poll() is None:
                time.sleep(LOOK_EVERY_S)
                applied.poll()
            subprocess.run([*program, "scale", str(run_dir), size], stdout=subprocess.DEVNULL, check=True)
        output, _ = run.communicate()
        if run.returncode != 0:
            raise subprocess.CalledProcessError(run.returncode, command)
    return msgspec.json.decode(output.splitlines()[-1], type=TrainingResult)
