"""The directory of compiled kernels when the package cannot be written, with real read-only mounts and processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from elastichost.host.kernel_cache import NAME, PACKAGE, PARTS_WITH_KERNELS, KernelCache
from elastichost.sharding import mix64
from tests.system.beds import with_read_only

NOWHERE = "/proc/nowhere"
COMPILE = """
from elastichost.arena.index.hashing import mix64
from elastichost.host.kernel_cache import kernel_cache
print(hex(mix64(7)))
print(len(mix64.stats.cache_hits))
print(kernel_cache().directory)
print(kernel_cache().problem)
"""
MIXED = hex(mix64(7))


def compiled(tmp: Path, **more: str) -> list[str]:
    """The output of a new process that may write only below `tmp`: result, cache hits, directory, problem."""
    environment = {
        "HOME": NOWHERE,
        "XDG_CACHE_HOME": "",
        "XDG_RUNTIME_DIR": "",
        "TMPDIR": str(tmp),
        "NUMBA_CACHE_DIR": "",
    }
    done = with_read_only(PACKAGE, sys.executable, "-c", COMPILE, **{**environment, **more})
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


@pytest.mark.thorough
def test_an_unwritable_package_and_home_leave_a_private_directory(tmp_path: Path) -> None:
    place = tmp_path / f"{NAME}-{os.geteuid()}"
    assert compiled(tmp_path) == [MIXED, "0", str(place), "", ""]
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert compiled(tmp_path) == [MIXED, "1", str(place), "", ""], "the compiled kernel must be kept"


@pytest.mark.thorough
@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "XDG_RUNTIME_DIR"])
def test_the_first_directory_that_can_be_written_is_used(tmp_path: Path, variable: str) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    below = {"NUMBA_CACHE_DIR": "", "HOME": f".cache/{NAME}"}.get(variable, NAME)
    assert compiled(tmp_path, **{variable: str(chosen)})[2] == str(chosen / below)
    assert list((chosen / below).glob("index_*/*.nbi")), "numba's own files"


@pytest.mark.thorough
def test_directories_of_others_are_never_used_and_without_any_directory_kernels_are_still_compiled(
    tmp_path: Path,
) -> None:
    """Machine code from the directory is executed, so it must not belong to another user or be writable by all."""
    place = tmp_path / f"{NAME}-{os.geteuid()}"
    place.mkdir(mode=0o700)
    os.chown(place, 65534, 65534)
    value, hits, directory, problem, _ = compiled(tmp_path)
    assert (value, hits, directory) == (MIXED, "0", "None")
    assert "compiles them again, which takes about 30 s of one core" in problem and "set NUMBA_CACHE_DIR" in problem
    assert f"{place}: it does not belong to this user" in problem and str(PACKAGE) in problem
    os.chown(place, os.geteuid(), os.getegid())
    place.chmod(0o777)
    assert compiled(tmp_path)[2] == "None"
    place.rmdir()
    place.symlink_to(tmp_path)
    assert compiled(tmp_path)[2] == "None"


def test_kernels_are_found_compiled_while_their_sources_stay_as_they_were(tmp_path: Path) -> None:
    assert not KernelCache(None).is_filled
    assert not KernelCache(tmp_path).is_filled
    call = "add_bias(np.zeros(4, np.float32), np.zeros(2, np.float32), 2, 2, False)"
    script = f"import numpy as np; from elastichost.worker.model.dense_kernels import add_bias; {call}"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    assert KernelCache(tmp_path).is_filled
    for index in tmp_path.rglob("*.nbi"):
        os.utime(index, (0, 0))
    assert not KernelCache(tmp_path).is_filled, "as after a change of a source"


def test_a_package_that_can_be_written_holds_its_kernels() -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split("\n")[2:] == [str(PACKAGE), "", ""]


def test_doctor_compiles_a_kernel_and_reports_the_directory(tmp_path: Path) -> None:
    check = "from elastichost.cli.maintenance.doctor import _kernels; print(_kernels())"
    environment = {"HOME": NOWHERE, "XDG_CACHE_HOME": "", "XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)}
    done = with_read_only(PACKAGE, sys.executable, "-c", check, **environment)
    assert "verdict='ok'" in done.stdout and f"kept in {tmp_path}/{NAME}-" in done.stdout, done
    (tmp_path / f"{NAME}-{os.geteuid()}").chmod(0o777)
    done = with_read_only(PACKAGE, sys.executable, "-c", check, **environment)
    assert "verdict='warning'" in done.stdout and "export NUMBA_CACHE_DIR=" in done.stdout, done


def test_every_folder_with_kernels_is_tried() -> None:
    """numba keeps the machine code of a kernel beside its source."""
    marks = ("\n@compiled", "\n@inlined", "njit(")
    found = {path.parent for path in PACKAGE.rglob("*.py") if any(mark in path.read_text() for mark in marks)}
    assert {PACKAGE / part for part in PARTS_WITH_KERNELS} >= found
