"""How an MPS daemon is found, by the files that it leaves. No GPU is needed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from elastichost.dispatcher.isolation.mps import find_mps


def nothing(name: str) -> str | None:
    """Stands for shutil.which on a host without the program."""
    return None


def in_bin(name: str) -> str | None:
    """Stands for shutil.which on a host with the program."""
    return f"/usr/bin/{name}"


@pytest.fixture
def pipes(tmp_path: Path) -> Path:
    """The directory of a daemon, as it leaves it."""
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(tmp_path / "control"))
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text("4321\n")
    return tmp_path


def test_a_daemon_is_found_by_its_socket_and_its_pid(pipes: Path) -> None:
    asked: list[int] = []

    def is_alive(pid: int) -> bool:
        asked.append(pid)
        return True

    words = find_mps({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}, nothing, is_alive)
    assert asked == [4321]
    assert "at the same time" in words


def test_the_socket_of_a_daemon_that_has_ended_is_no_daemon(pipes: Path) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    assert "has ended" in find_mps(environ, in_bin, lambda pid: False)
    (pipes / "nvidia-cuda-mps-control.pid").write_text("")
    words = find_mps(environ, in_bin, lambda pid: True)
    assert "has ended" in words


def test_a_plain_file_in_place_of_the_socket_is_no_daemon(tmp_path: Path) -> None:
    (tmp_path / "control").write_text("")
    words = find_mps({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}, in_bin, lambda pid: True)
    assert "neither a socket nor a pipe" in words


def test_without_a_daemon_the_sentence_says_how_to_start_one(tmp_path: Path) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    words = find_mps(environ, in_bin)
    assert "nvidia-cuda-mps-control -d" in words
    assert "is not installed" in find_mps(environ, nothing)
