"""The script of `plan --for ray` submits a job to a real Ray cluster, and submits it again after exit code 75."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.train.clusters.slow_job import SlowJob, search_path

pytest.importorskip(
    "ray.dashboard.optional_deps",
    reason='the job server of Ray is not installed: pip install "ray[default]"',
    exc_type=ImportError,
)

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(300)]

LIMIT_S = 120.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_until(is_so: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < ends, f"waited for {what}"
        time.sleep(0.2)


def is_open(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def server() -> Iterator[str]:
    """The address of the job server of a Ray cluster with one node. Only its own processes are ended."""
    folder = tempfile.mkdtemp(prefix="ehr-")  # short, because the path of a socket has at most 108 bytes
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": search_path(),
        "RAY_USAGE_STATS_ENABLED": "0",
        "ELASTICHOST_HISTORY": "off",
    }
    words = ["start", "--head", "--block", "--num-cpus=2", f"--port={free_port()}", f"--temp-dir={folder}"]
    dashboard = ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={port}"]
    agent = [f"--dashboard-agent-listen-port={free_port()}", "--object-store-memory=100000000"]
    head = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *words, *dashboard, *agent],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: head.poll() is not None or is_open(port), "the job server")
        assert head.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        processes = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
        head.terminate()
        _, left = psutil.wait_procs(processes, timeout=20)
        for process in left:
            process.kill()
        head.wait()
        shutil.rmtree(folder, ignore_errors=True)


def supervisors(job: SlowJob) -> list[psutil.Process]:
    """The processes that run `elastichost run ... --run-dir` of this job themselves, without shells around them."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(job.run_dir) in (words := process.info["cmdline"] or []) and "elastichost" in words
    ]


def test_a_submitted_job_that_is_told_to_stop_is_submitted_again(server: str, tmp_path: Path) -> None:
    job = SlowJob(tmp_path)
    script = job.plan("ray", "submit.py", "--run-dir", str(job.run_dir), "--ray-address", server)
    submitting = subprocess.Popen(
        [sys.executable, str(script)], env=job.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: submitting.poll() is not None or job.trained() > 0, "the job to train")
    [supervisor] = supervisors(job)
    supervisor.send_signal(signal.SIGTERM)
    _, said = submitting.communicate(timeout=LIMIT_S)
    assert submitting.returncode == 0, said
    assert said.count("submitted slow-") == 2 and "FAILED, exit code 75" in said and "SUCCEEDED, exit code 0" in said
    job.assert_done()
