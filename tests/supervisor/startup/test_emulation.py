"""An emulated run: its programs exist and do not import torch, and preflight plans for its virtual hosts."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec
import pytest

from elastichost.config.job import load_job
from elastichost.plan import ProcessId, ProcessSpec, Role
from elastichost.supervisor.autoscale.counters import Counter
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import State
from elastichost.supervisor.launch.launcher import EMULATED
from elastichost.supervisor.startup.preflight import preflight, virtual_inventory
from elastichost.wire.control import HeartbeatMsg
from elastichost.wire.facts import StepSample

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "emulated.toml"


def test_the_programs_of_an_emulated_run_exist() -> None:
    for name in (EMULATED.worker, EMULATED.server, EMULATED.probe, *EMULATED.calls):
        module, _, function = name.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_the_programs_of_an_emulated_run_do_not_import_torch() -> None:
    script = f"import sys, importlib; [importlib.import_module(m) for m in {EMULATED.imports}]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "torchrec", "fbgemm_gpu"} & set(done.stdout.split())


def test_the_virtual_hosts_are_summed_in_one_inventory() -> None:
    job = load_job(EXAMPLE, ("emulate.hosts=3", "emulate.cores_per_host=4", "emulate.memory_per_host=2GiB"), environ={})
    found = virtual_inventory(job.emulate)
    assert found.cores == tuple(range(12))
    assert (found.memory_bytes, found.gpus) == (6 * 2**30, ())


def test_preflight_plans_for_virtual_cores_served_rows_and_no_test() -> None:
    settings = (
        "resources.workers=auto",
        "resources.cores=100",
        "resources.memory=50%",
        "tables.default.rows=2000000000",
    )
    prepared = preflight(load_job(EXAMPLE, settings, environ={}))
    assert len(prepared.cores) == len(prepared.plan.workers) == 100
    assert prepared.memory_bytes == 8 * 64 * 2**30 // 2
    assert prepared.plan.access == "served"
    assert prepared.test is None


@pytest.mark.parametrize(("cpu_s", "percent"), [(None, None), (0.0, 0.0), (0.4, 80.0)])
def test_the_cpu_use_of_an_emulated_process_comes_from_its_heartbeats(
    cpu_s: float | None, percent: float | None
) -> None:
    fleet, process = Fleet(), ProcessId("worker", 0, 1)
    record = fleet.request(process, ProcessSpec("worker", 0, (), 1), 0.0)
    assert record.virtual_cpu_percent is None
    for number in range(3):
        sample = StepSample(seconds=0.5)
        fleet.heartbeat(record, HeartbeatMsg(number, msgspec.structs.replace(sample, cpu_s=cpu_s)), 0.5 * number)
    assert record.virtual_cpu_percent == (None if percent is None else pytest.approx(percent))


def test_the_tuner_counts_virtual_cpu_time_of_both_roles_and_each_heartbeat_once() -> None:
    fleet = Fleet()
    counter = Counter(fleet, 0, True)
    for role, cpu_s in (("worker", 0.3), ("server", 0.1)):
        process = ProcessId(role, 0, 1)
        record = fleet.request(process, ProcessSpec(cast(Role, role), 0, (), 1), 0.0)
        record.pid, record.state = 1, State.RUNNING
        for number in range(1, 4):
            fleet.heartbeat(record, HeartbeatMsg(number, StepSample(seconds=0.5, cpu_s=cpu_s)), 0.5 * number)
            totals = counter.totals()
    assert (totals.worker_cpu_s, totals.server_cpu_s) == pytest.approx((0.9, 0.3))
