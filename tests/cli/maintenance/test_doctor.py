"""`doctor`: findings and the repairs that it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastichost.cli.maintenance.doctor import (
    Check,
    _shared_memory,
    check_triple,
    diagnose,
    gpu_check,
    gpu_without_driver,
)
from elastichost.resources import GpuDevice
from tests.cli.conftest import Elastichost
from tests.system.beds import small_tmpfs


def test_packages_that_do_not_belong_together_fail() -> None:
    good = {"torch": "2.13.0+cpu", "torchrec": "1.8.0", "fbgemm-gpu": "1.8.0+cpu.shim", "fbgemm-gpu-cpu": "1.8.0"}
    assert check_triple(good.get) == Check("torch triple", "ok", "torch 2.13.0+cpu, torchrec 1.8.0, fbgemm 1.8.0")
    bad = check_triple({**good, "torch": None}.get)
    assert (bad.verdict, "needed: torch 2.13" in bad.found, "pip install" in bad.repair) == ("failed", True, True)


def test_failed_checks_end_with_3(elastichost: Elastichost, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [Check("one", "ok", "fine"), Check("two", "failed", "broken [x]", "repair [y]")]
    monkeypatch.setattr("elastichost.cli.maintenance.doctor.diagnose", lambda: iter(checks))
    outcome = elastichost("doctor")
    assert outcome.code == 3
    assert outcome.stdout.splitlines() == [
        "ok       one            fine",
        "failed   two            broken [x]",
        "         -> repair [y]",
    ]
    facts = json.loads(elastichost("doctor", "--json").last_line)
    assert (facts["ok"], [check["verdict"] for check in facts["checks"]]) == (False, ["ok", "failed"])


def test_a_missing_arena_directory_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", "/nowhere/at/all")
    monkeypatch.setattr("elastichost.cli.maintenance.doctor.IMPORT_SCRIPT", "print('2.13.0', False)")
    checks = {check.name: check for check in diagnose()}
    assert checks["shared memory"].verdict == "failed"
    assert "/nowhere/at/all" in checks["shared memory"].found
    assert checks["torch import"].found == "torch 2.13.0, CUDA not available"
    assert set(checks) == {
        "python", "torch triple", "torch import", "kernels", "shared memory", "logout", "cores", "bfloat16", "memory",
        "cgroup", "gpu", "ssh",
    }  # fmt: skip


@pytest.mark.parametrize(("size", "verdict"), [("3m", "failed"), ("64m", "warning")])
def test_a_small_arena_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, verdict: str
) -> None:
    with small_tmpfs(tmp_path / "shm", size) as root:
        monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(root))
        check = _shared_memory()
    assert check.verdict == verdict
    assert "new ids get no row" in check.found and "--shm-size=8g" in check.repair


def test_a_torch_that_cannot_be_imported_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastichost.cli.maintenance.doctor.IMPORT_SCRIPT", "import nowhere_torch")
    broken = next(check for check in diagnose() if check.name == "torch import")
    assert broken.verdict == "failed"
    assert broken.found == "ModuleNotFoundError: No module named 'nowhere_torch'"


@pytest.mark.parametrize(
    ("vendor", "kind", "verdict"),
    [("0x10de", "0x030200", "warning"), ("0x8086", "0x030000", "ok"), ("0x10de", "0x040300", "ok")],
)
def test_a_gpu_without_a_driver_is_found(tmp_path: Path, vendor: str, kind: str, verdict: str) -> None:
    """The last one is the sound device of a graphics card."""
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    check = gpu_without_driver(tmp_path, "Driver Not Loaded")
    assert check.verdict == verdict
    assert ("0000:01:00.0" in check.found) == (verdict == "warning") == bool(check.repair)


def test_gpus_are_named_with_memory_driver_and_what_the_variable_leaves() -> None:
    both = (GpuDevice(0, "A100", 80 << 30, uuid="GPU-aa"), GpuDevice(1, "H200", 140 << 30, uuid="GPU-bb"))
    found = gpu_check(both, 2, "580.1", None, is_cpu_build=False)
    assert found == Check("gpu", "ok", "GPU 0 A100 80.0 GiB, GPU 1 H200 140.0 GiB; driver 580.1")
    limited = gpu_check(both, 2, "580.1", "GPU-bb", is_cpu_build=False)
    assert limited.found.endswith("; CUDA_VISIBLE_DEVICES = 'GPU-bb' leaves GPU 1") and limited.verdict == "ok"
    assert gpu_check(both, 2, "580.1", "", is_cpu_build=False).found.endswith("leaves none")
    lost = gpu_check(both[1:], 2, "", None, is_cpu_build=False)
    assert lost.verdict == "warning" and "GPU 0 does not answer" in lost.found and lost.repair
    built = gpu_check(both, 2, "580.1", None, is_cpu_build=True)
    assert built.verdict == "warning" and "the CPU build is installed" in built.found
    assert gpu_check((), 0, "580.1", None, is_cpu_build=True) == Check("gpu", "ok", "none (not needed)")
