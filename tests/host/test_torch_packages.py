"""Release lines and builds of torch, torchrec and fbgemm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastichost.host.torch_packages import INSTALL, TAKE_CPU_BUILD, check_packages

ROOT = Path(__file__).parent.parent.parent
CPU = {"torch": "2.13.0+cpu", "torchrec": "1.8.0", "fbgemm-gpu": "1.8.0+cpu.shim", "fbgemm-gpu-cpu": "1.8.0"}
CUDA = {"torch": "2.13.0", "torchrec": "1.8.0", "fbgemm-gpu": "1.8.0"}


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        (CPU, "torch 2.13.0+cpu, torchrec 1.8.0, fbgemm 1.8.0"),
        ({**CPU, "fbgemm-gpu": None}, "torch 2.13.0+cpu, torchrec 1.8.0, fbgemm 1.8.0"),
        ({**CPU, "fbgemm-gpu": "1.8.0+cpu", "fbgemm-gpu-cpu": None}, "fbgemm 1.8.0+cpu"),
        (CUDA, "torch 2.13.0, torchrec 1.8.0, fbgemm 1.8.0"),
        ({**CUDA, "torch": "2.13.1+cu130"}, "torch 2.13.1+cu130"),
    ],
)
def test_packages_that_belong_together(installed: dict[str, str], found: str) -> None:
    packages = check_packages(installed.get)
    assert found in packages.found
    assert (packages.problem, packages.repair) == ("", "")


@pytest.mark.parametrize(
    ("installed", "problem", "repair"),
    [
        ({**CUDA, "torch": None}, "needed: torch 2.13, torchrec 1.8, fbgemm 1.8", INSTALL),
        ({**CPU, "torch": "2.1.30"}, "needed: torch 2.13", INSTALL),
        ({**CPU, "fbgemm-gpu-cpu": "1.9.0"}, "fbgemm 1.8", INSTALL),
        ({**CPU, "fbgemm-gpu": "1.8.0"}, "overwrite each other", TAKE_CPU_BUILD),
        ({**CUDA, "fbgemm-gpu-cpu": "1.8.0"}, "overwrite each other", INSTALL),
        ({**CUDA, "torch": "2.13.0+cpu"}, "fbgemm-gpu 1.8.0 is a CUDA build", TAKE_CPU_BUILD),
    ],
)
def test_packages_that_do_not(installed: dict[str, str], problem: str, repair: str) -> None:
    packages = check_packages(installed.get)
    assert problem in packages.problem
    assert packages.repair == repair


def test_a_run_says_so_before_it_starts_anything(tmp_path: Path) -> None:
    """Without the check, a worker ends with the traceback of a library that cannot be loaded."""
    (tmp_path / "fbgemm_gpu-1.7.0.dist-info").mkdir()
    (tmp_path / "fbgemm_gpu-1.7.0.dist-info" / "METADATA").write_text("Name: fbgemm-gpu\nVersion: 1.7.0\n")
    done = subprocess.run(
        [sys.executable, "-m", "elastichost", "run", str(ROOT / "examples/synthetic.toml")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "fbgemm-gpu 1.7.0 and fbgemm-gpu-cpu" in done.stderr or "needed: torch" in done.stderr
    assert "pip" in done.stderr
    assert not (tmp_path / "runs").exists()
