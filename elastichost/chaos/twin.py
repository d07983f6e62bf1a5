"""Promise D: a small sync run twice, once undisturbed and once under kills; the bits of both are compared."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastichost.chaos.processes import MARK
from elastichost.chaos.schedule import unit_draw
from elastichost.chaos.target import RunUnderChaos
from elastichost.chaos.verdicts import Verdict
from elastichost.errors import JobFailedError
from elastichost.wire.applied import read_applied

__all__ = ["Outcome", "check_twins", "run_twins"]

SAMPLES = 24_000
SETTINGS = {
    "train.epochs": "1",
    "data.limit_rows": str(SAMPLES),
    "evaluate.every_samples": "0",
    "resources.restarts": "1000000",
    "checkpoint.every_s": "1",
}
MOST_KILLS = 12
BATCHES_BETWEEN = 3  # steps at the least between two kills: a run that is killed faster than it starts goes nowhere
LIMIT_S = 300.0
EXPORT_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. losses: sum over the samples of each step, in order; model: hash of the export."""

    losses: tuple[float, ...]
    model: str
    kills: int


def check_twins(plain: Outcome, killed: Outcome) -> Verdict:
    """Losses of every step, and the model."""
    if not killed.kills:
        return Verdict.none("D", "the twin was over before anything could be killed")
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
    figures = f"{len(plain.losses)} losses and the model: the same bits after {killed.kills} kills"
    return Verdict.of("D", figures if not problems else f"after {killed.kills} kills", problems)


def run_twins(job: Path, settings: Sequence[str], seed: int, say: Callable[[str], None]) -> Verdict:
    """settings: `--set` of the job, of a sync run. Raises JobFailedError when one of the two does not end well."""
    own = [*settings, *(f"{key}={value}" for key, value in SETTINGS.items())]
    with tempfile.TemporaryDirectory(prefix="chaos-elastichost-") as name:
        say("twin undisturbed")
        plain = _trained(job, own, Path(name) / "plain", None)
        say("twin under kills")
        killed = _trained(job, own, Path(name) / "killed", seed)
    return check_twins(plain, killed)


def _trained(job: Path, settings: Sequence[str], run_dir: Path, seed: int | None) -> Outcome:
    """seed None: nothing is done to it."""
    kills = 0
    with RunUnderChaos(job, settings, run_dir, LIMIT_S, {}) as run:
        until_s, batches = run.now_s() + LIMIT_S, 0
        while run.exit_code is None and run.now_s() < until_s:
            run.look()
            run.wait_a_little()
            grown = run.applied.records - batches
            if seed is not None and kills < MOST_KILLS and run.scene.is_whole and grown > BATCHES_BETWEEN:
                role = "worker" if unit_draw(seed, kills, 0) < 0.5 else "server"
                lives = run.scene.working(role)
                kills += run.hit(lives[int(unit_draw(seed, kills, 1) * len(lives))].pid, signal.SIGKILL)
                batches = run.applied.records
        if run.exit_code != 0:
            raise JobFailedError(f"the twin ended with {run.exit_code}:\n{run.log}")
        return Outcome(_losses(run_dir), _exported(run_dir, run.mark), kills)


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
        raise JobFailedError(f"the twin cannot be exported:\n{done.stderr[-2000:]}")
    digest = hashlib.sha256()
    for path in sorted(exported.glob("*.safetensors")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
