"""`elastichost chaos` on real runs: promises hold under kills, stops, scaling and resumes, and violations are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.chaos.facts import read_facts
from elastichost.chaos.invariants import check_samples
from elastichost.config.job import load_job
from elastichost.wire.applied import APPLIED_RECORD
from elastichost.wire.facts import HEARTBEAT_S
from tests.datasets.sources.s3_server import S3Server, s3_environment, store
from tests.system.test_run import JOB, ROOT, folder

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(300)]

__all__ = ["folder", "s3_environment", "store"]

LIMIT_S = 280.0


def chaos(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    job = folder / "job.toml"
    job.write_text(
        JOB.format(build="elastichost.models:dlrm", rows=200_000, epochs=1, restarts=3, every_s=2).replace(
            "hang_timeout_s = 3", f"hang_timeout_s = {4 * HEARTBEAT_S}"
        )
    )
    command = [sys.executable, "-m", "elastichost", "chaos", str(job), "--run-dir", str(folder / "run"), "--json"]
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def facts_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(done.stdout.splitlines()) == 1, "stdout must be exactly one object"
    return facts


@pytest.mark.parametrize(("access", "twins", "promises"), [("direct", True, "LBDAOTE"), ("served", False, "LAOTE")])
def test_every_promise_holds_under_deaths_and_scaling(folder: Path, access: str, twins: bool, promises: str) -> None:
    names = ("kill-worker", "kill-server", "kill-pair", "scale", "stop-worker-0.5x")
    chosen = [word for name in names for word in ("--fault", name)] + ["--twins" if twins else "--no-twins"]
    done = chaos(folder, "--for", "10s", "--every", "0.8s", "--seed", "11", "--set", f"train.access={access}", *chosen)
    assert done.returncode == 0, done.stderr
    facts = facts_of(done)
    assert facts["violations"] == []
    assert facts["kills"] >= 3
    assert {promise for promise, holds in facts["invariants"].items() if holds} >= set(promises)
    assert "goodput" in facts
    assert set(facts["notes"]) == set("LBDAOTE")
    assert_a_changed_record_would_be_found(folder)


def test_every_promise_holds_on_several_machines_of_which_some_are_lost(folder: Path) -> None:
    hosts = folder / "hosts.toml"
    hosts.write_text(
        '[[hosts]]\ntransport = "local"\nname = "second"\n[[hosts]]\ntransport = "local"\nname = "third"\n'
    )
    names = ("kill-worker", "kill-server", "kill-machine", "scale", "kill-supervisor")
    chosen = [word for name in names for word in ("--fault", name)] + ["--no-twins", "--hosts", str(hosts)]
    done = chaos(folder, "--for", "30s", "--every", "1.5s", "--seed", "6", *chosen)
    assert done.returncode == 0, done.stderr
    facts = facts_of(done)
    assert facts["violations"] == []
    assert facts["faults"]["kill-machine"] >= 1 and facts["recovery_s"]["machine_p50"] is not None
    assert {promise for promise, holds in facts["invariants"].items() if holds} >= set("LAOTE")


def test_hosts_that_are_elsewhere_are_refused(folder: Path) -> None:
    hosts = folder / "hosts.toml"
    hosts.write_text('[[hosts]]\naddress = "user@far"\n')
    done = chaos(folder, "--hosts", str(hosts))
    assert done.returncode == 2
    assert "far: faults can only hit processes of this machine" in done.stderr + done.stdout


def assert_a_changed_record_would_be_found(folder: Path) -> None:
    """Checks that the same record with one committed batch missing, and with one twice, is a violation."""
    run_dir = folder / "run"
    job = load_job(run_dir / "job.resolved.toml", environ={})
    whole = (run_dir / "applied.bin").read_bytes()
    assert check_samples(read_facts(run_dir, job)).holds
    middle = len(whole) // APPLIED_RECORD.itemsize // 2
    for changed, words in ((middle - 1, "were both committed"), (0, "never committed")):  # record 0 is blank
        records = np.frombuffer(whole, dtype=APPLIED_RECORD).copy()
        records[middle] = records[changed]
        (run_dir / "applied.bin").write_bytes(records.tobytes())
        verdict = check_samples(read_facts(run_dir, job))
        assert verdict.holds is False
        assert any(words in line for line in verdict.violations), verdict.violations


def test_sync_hands_over_the_same_rows(folder: Path) -> None:
    chosen = ("--fault", "kill-worker", "--fault", "kill-server", "--fault", "scale", "--no-twins")
    done = chaos(folder, "--for", "10s", "--every", "1s", "--seed", "4", "--set", "train.mode=sync", *chosen)
    assert done.returncode == 0, done.stderr
    facts = facts_of(done)
    assert facts["violations"] == []
    assert {promise for promise, holds in facts["invariants"].items() if holds} == set("LBAOTE")


def test_supervisors_may_be_killed_and_asked_to_stop(folder: Path) -> None:
    chosen = ("--fault", "kill-supervisor", "--fault", "interrupt-resume", "--fault", "kill-worker", "--no-twins")
    done = chaos(folder, "--for", "12s", "--every", "3s", "--seed", "3", *chosen)
    assert done.returncode == 0, done.stderr
    facts = facts_of(done)
    assert facts["violations"] == []
    assert {"kill-supervisor", "interrupt-resume"} & set(facts["faults"])
    assert facts["recovery_s"]["supervisor_p50"] is not None


def test_a_job_that_cannot_run_is_the_users_error(folder: Path) -> None:
    done = chaos(folder, "--set", "train.bacth_size=3")
    assert done.returncode == 2
    assert "batch_size" in done.stdout
    done = chaos(folder, "--fault", "kill-wroker")
    assert done.returncode == 2
    assert "kill-worker" in json.loads(done.stdout.splitlines()[-1])["error"]["message"]
    done = chaos(folder, "--for", "1s")
    assert done.returncode == 2
    assert "too short" in done.stdout
    done = chaos(folder, "--messages", "drop=3")
    assert done.returncode == 2
    assert not (folder / "run").exists()


@pytest.mark.parametrize("is_store", [False, True])
def test_every_promise_holds_while_the_source_of_the_data_has_faults(
    folder: Path, store: S3Server, is_store: bool
) -> None:
    numbers = np.random.default_rng(5).integers(0, 1000, (3, 60_000))
    columns = {"y": (numbers[0] % 2).astype(np.float32), "x": numbers[1].astype(np.float32), "c": numbers[2]}
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=4096)
    store.put_file(folder / "rows.parquet", "chaos/rows.parquet")
    files = store.url("chaos/*.parquet") if is_store else f"{folder}/rows.parquet"
    job = folder / "source.toml"
    job.write_text(
        '[model]\nbuild = "elastichost.models:dlrm"\nargs = { bottom = [16, 8], top = [16, 1] }\n'
        f'[data]\ntrain = "{files}"\nlabel = "y"\ndense = ["x"]\ncategorical = ["c"]\n'
        "[data.input]\nstall_s = 0.5\n[tables.default]\ndim = 8\nrows = 1000\n[resources]\nworkers = 2\n"
    )
    names = ("stall-source", "reset-source", "refuse-source", "slow-source", "gone-source", "kill-worker")
    chosen = [word for name in names for word in ("--fault", name)]
    command = [sys.executable, "-m", "elastichost", "chaos", str(job), "--run-dir", str(folder / "run"), "--json"]
    more = ["--for", "25s", "--every", "1.5s", "--seed", "3", "--no-twins", *chosen]
    done = subprocess.run(
        [*command, *more], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    facts = facts_of(done)
    assert facts["violations"] == []
    assert sum(facts["faults"].get(name, 0) for name in names[:5]) >= 4
    assert facts["recovery_s"]["source_p50"] is not None
    held = {promise for promise, holds in facts["invariants"].items() if holds}
    assert held >= set("LAOE"), "T: a worker that starts while the source stalls is not timed"
