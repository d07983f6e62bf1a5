"""Stopped processes: a process that stays stopped is replaced; one that is resumed continues. Work counts once."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from tests.system.test_orphan import assert_all_once, finish_well
from tests.system.test_run import JOB, Supervised, folder

pytestmark = [pytest.mark.system, pytest.mark.thorough]

__all__ = ["folder"]

ROWS = 500_000
QUICK = JOB.replace("hang_timeout_s = 3\n", "hang_timeout_s = 1.5\n")
SERVED = QUICK.replace("[train]\n", '[train]\naccess = "served"\n')


@pytest.mark.parametrize("name", ["worker-1", "server-0"])
@pytest.mark.parametrize("template", [QUICK, SERVED], ids=["direct", "served"])
def test_a_process_that_stays_stopped_is_replaced_and_counts_once(folder: Path, template: str, name: str) -> None:
    run = Supervised(folder, template=template, rows=ROWS)
    run.wait_trained(10_000)
    os.kill(run.pid(name), signal.SIGSTOP)
    finish_well(run)
    (lost,) = run.lost()
    assert lost.process.name == name
    assert "it is stopped by a signal" in lost.reason
    assert_all_once(run, ROWS)


@pytest.mark.parametrize("name", ["worker-1", "server-0"])
@pytest.mark.parametrize("template", [QUICK, SERVED], ids=["direct", "served"])
def test_a_process_stopped_for_a_moment_continues_and_counts_once(folder: Path, template: str, name: str) -> None:
    run = Supervised(folder, template=template, rows=ROWS)
    run.wait_trained(10_000)
    pid = run.pid(name)
    for _ in range(3):
        os.kill(pid, signal.SIGSTOP)
        select.select([], [], [], 0.5)  # well within the 1.5 s
        os.kill(pid, signal.SIGCONT)
        select.select([], [], [], 0.3)
    finish_well(run)
    assert run.lost() == []
    assert_all_once(run, ROWS)


BUSY = """
import torch
from elastichost.models import dlrm

def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)
    batches = [0]

    def hook(*_):
        batches[0] += model.training
        while batches[0] == 1000:
            {doing}

    model.register_forward_pre_hook(hook)
    return model
"""


@pytest.mark.parametrize(("doing", "said"), [("pass", "no progress for"), ("__import__('time').sleep(9)", "it sleeps")])
def test_a_model_that_hangs_is_found_whether_it_computes_or_sleeps(folder: Path, doing: str, said: str) -> None:
    """Every incarnation of a worker hangs in its thousandth batch: the job ends after the last allowed incarnation,
    with the reason."""
    (folder / "busy.py").write_text(BUSY.format(doing=doing))
    run = Supervised(folder, template=JOB, build=f"{folder}/busy.py:build", rows=900_000, restarts=0)
    code, errors = run.finish()
    assert code == 5, errors
    assert said in errors
    assert run.lost()[0].code == -signal.SIGKILL
