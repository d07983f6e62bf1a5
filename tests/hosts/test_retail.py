"""The retail example on hosts that are network namespaces: one joins, one dies, one is cut off; the quality stays.

Needs root and the retail data.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elastichost.runs.events import HostJoined, HostLost, RowsRolledBack
from tests.hosts.keys import ROOT
from tests.system.test_retail import GOOD_AUC, RETAIL, SAMPLES, check_every_sample_once, command
from tests.system.test_retail import pytestmark as of_retail
from tests.system.test_run import Supervised, folder

pytest.importorskip("asyncssh", reason="asyncssh, of the test extra, is the sshd of these tests")
from tests.hosts.bed import Bed
from tests.hosts.test_namespaces import section, trains_nothing

pytestmark = [*of_retail, pytest.mark.timeout(400)]

__all__ = ["folder"]


READER_SAMPLES_PER_S = 18_000  # slow enough that all faults happen within the run, on any machine


class OverHosts(Supervised):
    """A run of examples/retail.toml, started on host 0, with host 1 as its other host."""

    def __init__(self, bed: Bed, folder: Path, *settings: str) -> None:
        self.run_dir = folder / "run"
        hosts = folder / "hosts.toml"
        hosts.write_text("timeout_s = 8\n" + section(bed, 1))
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        rate = int((RETAIL / "train.parquet").stat().st_size / SAMPLES * READER_SAMPLES_PER_S)
        asked = command(
            self.run_dir,
            "checkpoint.every_s=3",
            "resources.servers=2",
            f"data.remote.bytes_per_s={rate}",
            "data.input.connections=1",
            *settings,
        )
        self.process = bed.run(0, [*asked, "--hosts", str(hosts)], cwd=ROOT, **pipes)  # type: ignore[assignment]

    def pids_there(self, bed: Bed, host: int) -> list[int]:
        """Pids of elastichost's processes on a host: the agent, its fork server, PS and workers."""
        output = subprocess.run(
            ["ip", "netns", "pids", bed.namespace(host)], check=True, capture_output=True, text=True
        ).stdout
        pids = [int(pid) for pid in output.split()]
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids if Path(f"/proc/{pid}").exists()}
        return [pid for pid, command in commands.items() if b"-m\0elastichost" in command]


def test_a_join_a_cut_link_and_a_lost_host_leave_the_quality_of_one_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with Bed(3, folder) as bed:
        run = OverHosts(bed, folder)
        run.wait_trained(50_000)
        (folder / "third.toml").write_text(section(bed, 2))
        scale = [sys.executable, "-m", "elastichost", "scale", str(run.run_dir), "workers=3", "--hosts"]
        joined = bed.run(0, [*scale, str(folder / "third.toml")], cwd=ROOT, stdout=subprocess.PIPE)
        assert joined.wait(100) == 0
        bed.cut(2)
        run.wait_until(lambda: trains_nothing(run))
        bed.heal(2)
        trained = run.status()["samples_trained"]
        run.wait_trained(trained + 50_000)
        for pid in run.pids_there(bed, 1):
            os.kill(pid, signal.SIGKILL)
        run.wait_until(lambda: run.events(RowsRolledBack))
        code, errors = run.finish()
        assert code == 0, errors
        for host in bed.hosts:
            assert run.pids_there(bed, host) == [] and bed.listens(host) == [], (
                f"host {host} still has processes or sockets"
            )
    result = run.result()
    print(json.dumps({key: result[key] for key in ("samples", "test", "lost_hosts", "torn_batches", "wall_s")}))
    lost_s, went_on_s = (run.lines(kind)[0].monotonic_s for kind in (HostLost, RowsRolledBack))
    print(f"{went_on_s - lost_s:.2f} s from the loss of a host until its rows were there again")
    assert result["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    check_every_sample_once(run.run_dir)
    (lost,) = result["lost_hosts"]
    assert lost["name"] == "host1" and lost["rows"] >= lost["rows_restored"] > 0
    assert len(run.events(HostJoined)) == len(run.events(HostLost)) == 1, "a host that was only cut off is not lost"
    assert result["test"]["auc"] >= GOOD_AUC
    # The kill also ended the processes that clean up on host 1, so `clean` must do it.
    cleaned = subprocess.run([sys.executable, "-m", "elastichost", "clean"], cwd=ROOT, capture_output=True, text=True)
    assert cleaned.returncode == 0, cleaned.stderr
