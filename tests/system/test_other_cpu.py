"""A sync-mode run is not resumed on a CPU that would change its bits, unless the user allows that."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from elastichost.checkpoint.format import latest
from elastichost.host.cpu_features import present_cpu
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder

pytestmark = pytest.mark.system

__all__ = ["folder"]

SYNC = JOB.replace("[train]\n", '[train]\nmode = "sync"\nany_cpu = {any_cpu}\n')


@pytest.mark.thorough
def test_a_resume_on_another_cpu_is_refused_until_it_is_wanted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.01"))
    facts = {"template": SYNC, "build": f"{folder}/slow.py:build", "rows": 20_000}
    run = Supervised(folder, **facts, any_cpu="false")
    run.wait_trained(1)
    run.process.send_signal(signal.SIGTERM)
    run.finish()
    record = run.run_dir / "cpu.json"
    kept = latest(run.run_dir / "checkpoints")
    assert kept is not None and kept.manifest.cpu.name == present_cpu().name and record.is_file()
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    for missing in (False, True):  # with the record of the run, then with the record of its checkpoint
        if missing:
            record.unlink()
        before = (run.run_dir / "status.json").read_bytes()
        _, errors = Supervised(folder, resume=True, **facts, any_cpu="false").finish()
        if not missing:  # the record of the run is read before the run begins again
            assert (run.run_dir / "status.json").read_bytes() == before
            assert run.result()["status"] == "stopped"
        assert "CpuDiffersError" in errors and "with the settings ATEN_CPU_CAPABILITY=default" in errors
    code, errors = Supervised(folder, resume=True, **facts, any_cpu="true").finish()
    assert code == 0, errors
