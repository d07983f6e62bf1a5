"""Limits, locales and directories that a shell may have set; each test starts a real process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from elastichost.arena import host
from elastichost.arena.owner import owner_of
from elastichost.host.environment import LEAST_ADDRESS_BYTES, address_bytes
from elastichost.human_readable import bytes_words

JOB = """
[job]
name = "names"
[model]
build = "model😀.py:build"
[data]
format = "csv"
train = ["data😀/train.csv"]
label = "label"
dense = ["x"]
categorical = ["a"]
"""
NOBODY = 65534


def elastichost(*arguments: str, cwd: Path, limit: int | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line. limit: of the addresses of the process, in bytes; more: environment variables."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, **more}
    command = [sys.executable, "-m", "elastichost", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", timeout=100.0, preexec_fn=limited
    )


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs😀"
    (folder / "data😀").mkdir(parents=True)
    (folder / "data😀" / "train.csv").write_text("label,x,a\n" + "0,0.5,1\n1,0.25,2\n" * 50)
    (folder / "model😀.py").write_text("from elastichost.models import dlrm as build\n")
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    return folder / "job.toml"


@pytest.mark.parametrize("limit", [300_000 << 10, 20_000_000 << 10])
@pytest.mark.parametrize("arguments", [("run", "job.toml"), ("run", "--dry-run", "job.toml"), ("resume", "latest")])
def test_a_limit_of_addresses_is_reported_before_the_start_with_the_command(
    job: Path, arguments: tuple[str, ...], limit: int
) -> None:
    done = elastichost(*arguments, cwd=job.parent, limit=limit)
    assert done.returncode == 3, done.stderr
    assert f"`ulimit -v` allows a process {bytes_words(limit)}" in done.stderr
    assert "`ulimit -v unlimited`" in done.stderr
    assert sorted(os.listdir(job.parent)) == ["data😀", "job.toml", "model😀.py"], "nothing was started"


@pytest.mark.thorough
def test_a_large_limit_is_no_problem(job: Path) -> None:
    done = elastichost("run", "--dry-run", "job.toml", cwd=job.parent, limit=LEAST_ADDRESS_BYTES)
    assert "ulimit" not in done.stderr


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        pytest.param({"LC_ALL": "C"}, marks=pytest.mark.thorough),
        pytest.param({"LC_ALL": "C.UTF-8"}, marks=pytest.mark.thorough),
    ],
)
def test_file_names_of_any_characters_work_in_any_locale(job: Path, locale: dict[str, str]) -> None:
    done = elastichost("run", "--dry-run", "job.toml", cwd=job.parent, **locale)
    assert done.returncode == 0, done.stderr
    shown = elastichost("run", "--dry-run", f"../{job.parent.name}/no😀.toml", cwd=job.parent, **locale)
    assert shown.returncode == 2, shown.stderr
    assert "no😀.toml" in shown.stderr


def as_nobody(act: Callable[[], None]) -> int:
    """The exit code of a real process of another user that calls the function."""
    owner_of(os.getpid(), Path())  # imports in advance, because the other user may not be able to read this Python
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
            code = 0
        except BaseException:  # noqa: BLE001 - the child must not go on as a second pytest
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_runtime_directory_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """The case after `su`: sockets are in the directory for temporary files, and `clean` looks there."""
    with tempfile.TemporaryDirectory(prefix="ehx-") as name:
        roots = {kind: Path(name) / kind for kind in ("runtime", "temporary", "arenas")}
        for kind, root in roots.items():
            root.mkdir()
            if kind != "runtime":
                os.chown(root, NOBODY, NOBODY)
        Path(name).chmod(0o755)
        roots["runtime"].chmod(mode)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(roots["runtime"]))
        monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(roots["arenas"]))
        monkeypatch.setattr("tempfile.tempdir", str(roots["temporary"]))

        def act() -> None:
            path = host.socket_directory("one")
            assert path.parent == roots["temporary"], path
            host.create_directory(path, owner_of(os.getpid(), Path("/run/one")))
            assert host.stale_arenas() == []

        assert as_nobody(act) == 0
        assert host.socket_directory("one").parent == roots["runtime"], "its owner uses it"
        assert [path.name for path in roots["temporary"].iterdir()] == ["elastichost-one"]


@pytest.mark.parametrize(
    ("last", "bits"),
    [
        ("7ffd1c5e9000-7ffd1c60a000 rw-p 00000000 00:00 0 [stack]", 47),  # x86-64
        ("ffffc5e90000-ffffc60a0000 rw-p 00000000 00:00 0 [stack]", 48),  # ARM, as most are built
        ("3ffc5e90000-3ffc60a0000 rw-p 00000000 00:00 0 [stack]", 42),  # ARM with pages of 64 KiB and two levels
        ("7ff1c5e000-7ff1c7f000 rw-p 00000000 00:00 0 [stack]", 39),  # ARM with three levels of tables
        ("3ff1c5e000-3ff1c7f000 rw-p 00000000 00:00 0 [stack]", 38),  # RISC-V with three
    ],
)
def test_the_size_of_the_address_space_follows_from_the_mappings(tmp_path: Path, last: str, bits: int) -> None:
    (tmp_path / "maps").write_text(
        f"400000-401000 r-xp 00000000 00:00 0 /bin/python\n{last}\n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"
    )
    assert address_bytes(tmp_path / "maps") == 1 << bits


def test_without_a_list_of_mappings_the_smallest_size_is_assumed(tmp_path: Path) -> None:
    assert address_bytes(tmp_path / "nothing") == 1 << 38
