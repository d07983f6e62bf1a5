"""Where compiled kernels are kept when the package cannot be written, with real read-only mounts and processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from elastichost.host.kernel_cache import NAME, PACKAGE, PARTS_WITH_KERNELS
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
    """What a new process says that may write below `tmp` only: result, cache hits, place, problem."""
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


def test_an_unwritable_package_and_home_leave_a_private_directory(tmp_path: Path) -> None:
    place = tmp_path / f"{NAME}-{os.geteuid()}"
    assert compiled(tmp_path) == [MIXED, "0", str(place), "", ""]
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert compiled(tmp_path) == [MIXED, "1", str(place), "", ""], "kept"


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "XDG_RUNTIME_DIR"])
def test_the_first_place_that_can_be_written_is_taken(tmp_path: Path, variable: str) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    below = {"NUMBA_CACHE_DIR": "", "HOME": f".cache/{NAME}"}.get(variable, NAME)
    assert compiled(tmp_path, **{variable: str(chosen)})[2] == str(chosen / below)
    assert list((chosen / below).glob("index_*/*.nbi")), "numba's own files"


def test_what_is_not_ones_own_is_never_used_and_without_a_place_kernels_are_compiled_all_the_same(
    tmp_path: Path,
) -> None:
    """Machine code is run from there: another user's directory, or one that all may write to, will not do."""
    place = tmp_path / f"{NAME}-{os.geteuid()}"
    place.mkdir(mode=0o700)
    os.chown(place, 65534, 65534)
    value, hits, directory, problem, _ = compiled(tmp_path)
    assert (value, hits, directory) == (MIXED, "0", "None")
    assert "compiles them anew, which takes a core about 30 s" in problem and "set NUMBA_CACHE_DIR" in problem
    assert f"{place}: it is not this user's own" in problem and str(PACKAGE) in problem
    os.chown(place, os.geteuid(), os.getegid())
    place.chmod(0o777)
    assert compiled(tmp_path)[2] == "None"
    place.rmdir()
    place.symlink_to(tmp_path)
    assert compiled(tmp_path)[2] == "None"


def test_a_package_that_can_be_written_keeps_its_own_kernels() -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split("\n")[2:] == [str(PACKAGE), "", ""]


def test_doctor_compiles_a_kernel_and_says_what_will_happen(tmp_path: Path) -> None:
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
