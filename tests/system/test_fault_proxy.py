"""Real runs with dropped, duplicated, delayed, reordered and corrupted messages: every sample counts exactly once.

The cases state which conversations survive which faults: the data conversation repeats unanswered requests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.arena.host import socket_directory
from elastichost.chaos.faults.message_faults import parse_rates
from elastichost.chaos.faults.proxy import FaultProxy
from elastichost.runs.events import RunStarted
from elastichost.wire.sockets import VIA_VARIABLE
from tests.system.test_crash_points import assert_each_position_once
from tests.system.test_run import JOB, Supervised, folder

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.timeout(300)]

__all__ = ["folder"]

SAMPLES = 60_000
DATA = (
    "PullMsg+PulledMsg+PushMsg+PushedMsg+RowsCommittedMsg+RowsAppliedMsg+"
    "DensePushMsg+DensePushedMsg+DenseFetchMsg+ClockAdvancedMsg+ClockReachedMsg"
)
CASES = {
    "drop": (f"drop=0.003,only={DATA}", "served"),
    "duplicate": (f"duplicate=0.1,only={DATA}", "served"),
    "reorder": (f"reorder=0.05,only={DATA}", "served"),
    "delay everything": ("delay=0.02", "served"),
    "corrupt requests": ("corrupt=0.003,only=PullMsg+RowsCommittedMsg+DenseFetchMsg+ClockAdvancedMsg", "served"),
    "truncate requests": ("truncate=0.003,only=PullMsg+RowsCommittedMsg+DenseFetchMsg+ClockAdvancedMsg", "served"),
}


def run_id(run: Supervised) -> str:
    run.wait_until((run.run_dir / "journal.jsonl").exists)
    run.wait_until(lambda: run.events(RunStarted))
    return run.events(RunStarted)[0].run_id


@pytest.mark.parametrize("case", CASES)
def test_a_run_survives_its_messages(folder: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    setting, access = CASES[case]
    monkeypatch.setenv(VIA_VARIABLE, "1")
    template = JOB.replace("[train]\n", f'[train]\naccess = "{access}"\nmode = "bounded"\n')
    run = Supervised(folder, template=template, rows=SAMPLES, every_s=0.5)
    rates = parse_rates(setting)
    with FaultProxy(socket_directory(run_id(run)), 5, rates) as proxy:
        code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert_each_position_once(run.run_dir, SAMPLES)
    done = {action for (_, action), count in proxy.counts.items() if count}
    assert done > {"pass"}, proxy.counts
