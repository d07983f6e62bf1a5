"""A daemon for a GPU that there is none of: what is found, and what a job's processes are told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from elastichost.dispatcher.mps import GpuPart, Mps, client_environment, find_mps

MIB = 1 << 20


def nothing(name: str) -> str | None:
    return None


def in_bin(name: str) -> str | None:
    return f"/usr/bin/{name}"


@pytest.fixture
def pipes(tmp_path: Path) -> Path:
    """As the daemon leaves it."""
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(tmp_path / "control"))
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text("4321\n")
    return tmp_path


def test_a_daemon_is_found_by_its_socket_and_its_number(pipes: Path) -> None:
    asked: list[int] = []

    def is_alive(pid: int) -> bool:
        asked.append(pid)
        return True

    found, words = find_mps({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}, nothing, is_alive)
    assert found == Mps(pipes)
    assert asked == [4321]
    assert "at the same time" in words


def test_the_socket_of_a_daemon_that_has_ended_is_no_daemon(pipes: Path) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    assert find_mps(environ, in_bin, lambda pid: False)[0] is None
    (pipes / "nvidia-cuda-mps-control.pid").write_text("")
    found, words = find_mps(environ, in_bin, lambda pid: True)
    assert found is None
    assert "has ended" in words


def test_a_file_of_that_name_is_no_daemon(tmp_path: Path) -> None:
    (tmp_path / "control").write_text("")
    found, words = find_mps({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}, in_bin, lambda pid: True)
    assert found is None
    assert "neither a socket nor a pipe" in words


def test_without_a_daemon_it_is_said_how_to_start_one(tmp_path: Path) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    found, words = find_mps(environ, in_bin)
    assert found is None
    assert "nvidia-cuda-mps-control -d" in words
    assert "is not installed" in find_mps(environ, nothing)[1]


def test_limits_of_all_processes_of_a_job_are_its_part() -> None:
    mps = Mps(Path("/run/mps"))
    assert client_environment(mps, GpuPart(busy=0.3, memory_bytes=2048 * MIB, processes=2)) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M",
    }


@pytest.mark.parametrize(("busy", "percent"), [(0.0, "1"), (0.2, "40"), (0.5, "100"), (1.0, "100")])
def test_a_share_of_threads_is_one_that_cuda_takes(busy: float, percent: str) -> None:
    environment = client_environment(Mps(Path("/run/mps")), GpuPart(busy))
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percent
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in environment
