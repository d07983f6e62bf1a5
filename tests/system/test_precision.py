"""Whole runs whose dense part computes in bfloat16: kills lose nothing, and sync mode keeps its bits."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from elastichost.wire.crash import VARIABLE
from tests.bfloat16 import needs_bfloat16
from tests.system.test_crash_points import assert_each_position_once
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder
from tests.system.test_sync import TEMPLATE as SYNC
from tests.system.test_sync import trained

pytestmark = [
    pytest.mark.system,
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    needs_bfloat16,
]

__all__ = ["folder"]

SAMPLES = 300_000


def in_bfloat16(template: str) -> str:
    """The template with layers and rows that are large enough for bfloat16."""
    large = template.replace("bottom = [16, 8], top = [16, 1]", "bottom = [128, 32], top = [128, 96, 1]")
    large = large.replace("\ndim = 8\n", "\ndim = 32\n")
    assert large.count("128") > template.count("128") and "dim = 32" in large
    return large.replace("[train]\n", '[train]\nprecision = "bfloat16"\n')


@pytest.mark.parametrize("access", ["direct", "served"])
def test_kills_and_a_resume_lose_nothing(folder: Path, access: str) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL)
    template = in_bfloat16(JOB).replace("[train]\n", f'[train]\naccess = "{access}"\n')
    settings = {"template": template, "build": f"{folder}/slow.py:build", "rows": SAMPLES, "every_s": 1.0}
    run = Supervised(folder, **settings)
    run.wait_trained(1)
    os.kill(run.pid("worker-0"), signal.SIGKILL)
    run.wait_ready("worker-0.2")
    os.kill(run.pid("server-0"), signal.SIGKILL)
    run.wait_ready("server-0.2")
    run.process.send_signal(signal.SIGINT)
    assert run.finish()[0] == 75
    again = Supervised(folder, resume=True, **settings)
    code, errors = again.finish()
    assert code == 0, errors
    result = again.result()
    assert result["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert result["test"]["auc"] > 0.6


POINTS = ["worker.batch.before_push", "worker.batch.before_commit", "worker.batch.posted"]


@pytest.mark.parametrize("point", POINTS)
def test_a_death_while_gradients_lie_in_the_mailbox_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The backward pass writes into the mailbox, before the push is posted there."""
    monkeypatch.setenv(VARIABLE, f"{point}:20")
    template = in_bfloat16(JOB).replace("[train]\n", '[train]\naccess = "direct"\n')
    run = Supervised(folder, template=template, rows=60_000)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == 60_000
    lost = run.lost()
    assert lost and {event.process.role for event in lost} == {"worker"}
    assert run.result()["torn_batches"] <= (0 if point == "worker.batch.posted" else len(lost))
    assert_each_position_once(run.run_dir, 60_000)


def test_sync_mode_has_the_same_bits_for_any_number_of_processes(folder: Path) -> None:
    template = in_bfloat16(SYNC)
    one = trained(folder, "one", template)
    assert trained(folder, "several", template, workers=3, servers=2) == one
