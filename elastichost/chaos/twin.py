"""The checks of the promises D and B with twins: a small part of the job is trained twice in sync mode, once
undisturbed and once while processes are killed and the run is scaled.

The losses and the models of both runs must be equal bit by bit, and so must every bucket before and after a hand-over.
The twins are in sync mode for every job: in the other modes two runs with several workers always differ, and with
direct access rows change during a hand-over.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from elastichost.chaos.faults.processes import MARK
from elastichost.chaos.hand_overs import check_hand_overs, read_audit
from elastichost.chaos.schedule import unit_draw
from elastichost.chaos.target import RunUnderChaos
from elastichost.chaos.verdicts import Verdict
from elastichost.config.job import load_job
from elastichost.errors import JobFailedError
from elastichost.ps.audit import AUDIT_VARIABLE
from elastichost.wire.applied import read_applied
from elastichost.wire.commands import ScaleMsg

__all__ = ["Outcome", "check_twins", "run_twins"]

SAMPLES = 120_000
SETTINGS = {
    "train.mode": "sync",
    "train.access": "auto",
    "train.epochs": "1",
    "data.limit_rows": str(SAMPLES),
    "evaluate.every_samples": "0",
    "resources.restarts": "1000000",
    "checkpoint.every_s": "1",
}
MOST_FAULTS = 12
SIZES = {1: (2, 2), 4: (1, 1), 7: (2, 1), 10: (1, 2)}  # number of a fault -> it scales the run to (workers, PS)
BATCHES_BETWEEN = 3  # between two faults the run trains more steps than this, so that it makes progress
LIMIT_S = 300.0
EXPORT_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a twin. losses: for each step in order, the sum of the losses of its samples; model: hash of the
    exported model; kills: number of processes killed; hand_overs: the verdict on promise B."""

    losses: tuple[float, ...]
    model: str
    kills: int
    scaled: int = 0  # how often it reached a requested size
    hand_overs: Verdict | None = None


def check_twins(plain: Outcome, killed: Outcome) -> Verdict:
    """The verdict on promise D: both twins have the same losses and the same model. plain: the undisturbed one."""
    if not killed.kills:
        return Verdict.none("D", "the twin ended before a process could be killed")
    problems = []
    if len(plain.losses) != len(killed.losses):
        problems.append(f"{len(killed.losses)} steps under kills, {len(plain.losses)} undisturbed")
    pairs = enumerate(zip(plain.losses, killed.losses, strict=False), start=1)
    different = next(((step, one, other) for step, (one, other) in pairs if one != other), None)
    if different is not None:
        step, one, other = different
        problems.append(f"step {step} has the loss {other!r} under kills, {one!r} undisturbed")
    if plain.model != killed.model:
        problems.append("the exported models differ")
    faults = f"after {killed.kills} kills, scaled {killed.scaled} times"
    figures = f"{len(plain.losses)} losses and the model: the same bits {faults}"
    return Verdict.of("D", figures if not problems else faults, problems)


def run_twins(job: Path, settings: Sequence[str], seed: int, say: Callable[[str], None]) -> tuple[Verdict, Verdict]:
    """Trains the twins, and returns the verdicts on promise D and promise B. settings: the `--set` options of the job;
    say: called with a line of text for the user. Raises JobFailedError when a twin fails, ConfigError when the job
    cannot be trained in sync mode."""
    own = [*settings, *(f"{key}={value}" for key, value in SETTINGS.items())]
    load_job(job, own)
    say("training two small runs of the job in sync mode, one of them under kills and scaling")
    with tempfile.TemporaryDirectory(prefix="chaos-elastichost-") as name, ThreadPoolExecutor(2) as both:
        # The kernel kills a run when the thread that started it ends, so each thread waits for its run.
        is_over = threading.Event()
        one = both.submit(_trained, job, own, Path(name) / "plain", None, is_over)
        other = both.submit(_trained, job, own, Path(name) / "killed", seed, is_over)
        try:
            plain, killed = one.result(), other.result()
        finally:
            is_over.set()
    assert killed.hand_overs is not None
    return check_twins(plain, killed), killed.hand_overs


def _trained(job: Path, settings: Sequence[str], run_dir: Path, seed: int | None, is_over: threading.Event) -> Outcome:
    """Trains a twin. seed: of its faults; None: it is not disturbed. is_over: set when the result is not needed any
    more."""
    with RunUnderChaos(job, settings, run_dir, LIMIT_S, {AUDIT_VARIABLE: "1"}) as run:
        faults = _Faults(run, seed) if seed is not None else None
        until_s = run.now_s() + LIMIT_S
        while run.exit_code is None and run.now_s() < until_s and not is_over.is_set():
            run.look()
            run.wait_a_little()
            if faults is not None:
                faults.turn()
        if run.exit_code != 0:
            raise JobFailedError(f"the twin ended with exit code {run.exit_code}:\n{run.log}")
        kills, scaled = (faults.kills, faults.scaled) if faults is not None else (0, 0)
        hand_overs = check_hand_overs(read_audit(run_dir), "served")
        return Outcome(_losses(run_dir), _exported(run_dir, run.mark), kills, scaled, hand_overs)


class _Faults:
    """Injects the faults of a twin one after the other, each when all processes of the plan work again and the run has
    trained more than BATCHES_BETWEEN steps."""

    def __init__(self, run: RunUnderChaos, seed: int) -> None:
        self._run, self._seed = run, seed
        self._number, self._batches = 0, 0
        self._scaling: Callable[[], bool | None] | None = None
        self.kills, self.scaled = 0, 0

    def turn(self) -> None:
        run, number = self._run, self._number
        if self._scaling is not None:
            reached = self._scaling()
            if reached is None:
                return
            self.scaled += reached
            self._scaling = None
        if number >= MOST_FAULTS or not run.scene.is_whole or run.applied.records - self._batches <= BATCHES_BETWEEN:
            return
        self._number, self._batches = number + 1, run.applied.records
        if number in SIZES:
            self._scaling = run.command(ScaleMsg(*SIZES[number]))
            return
        role = "worker" if unit_draw(self._seed, number, 0) < 0.5 else "server"
        incarnations = run.scene.working(role)
        self.kills += run.hit(
            incarnations[int(unit_draw(self._seed, number, 1) * len(incarnations))].pid, signal.SIGKILL
        )


def _losses(run_dir: Path) -> tuple[float, ...]:
    applied = read_applied(run_dir)
    return tuple(applied[applied["samples"] > 0]["loss_sum"].tolist())


def _exported(run_dir: Path, mark: str) -> str:
    exported = run_dir.with_name(f"{run_dir.name}-exported")
    command = [sys.executable, "-m", "elastichost", "export", str(run_dir), str(exported)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, MARK: mark},
        timeout=EXPORT_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise JobFailedError(f"the model of the twin could not be exported:\n{done.stderr[-2000:]}")
    digest = hashlib.sha256()
    for path in sorted(exported.glob("*.safetensors")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
