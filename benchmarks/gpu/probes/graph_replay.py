"""P5 decides how many GPU processes a GPU gets: replays per second and latencies of 1, 2, 4 and 8 processes that each
replay a CUDA graph of 21 small kernels, time-sliced, and with MPS where its daemon exists."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.gpu.probes.child import Child, attempt, children, hear, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["replay_graph", "run"]

COUNTS = (1, 2, 4, 8)
ROUND_S = 2.0
LAYERS, ROWS, WIDTH = 7, 4096, 1024
DAEMON = "nvidia-cuda-mps-control"


def prepared_step() -> Callable[[], None]:
    """Returns a function that replays a captured chain of products and elementwise kernels and waits for it."""
    torch: Any = importlib.import_module("torch")
    inputs = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    weights = [torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) * 0.03 for _ in range(LAYERS)]

    def chain() -> Any:
        values = inputs
        for weight in weights:
            values = torch.relu(values @ weight) + inputs
        return values

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            chain()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = chain()

    def step() -> None:
        assert kept is not None  # the graph writes into its memory
        graph.replay()
        torch.cuda.synchronize()

    for _ in range(10):
        step()
    return step


def replay_graph(setting: Setting, **_others: Any) -> None:
    """Replays for the seconds it is told, as often as it is told, and says the latencies."""
    step: Callable[[], None] = (lambda: time.sleep(0.0002)) if setting.dry_run else prepared_step()
    say(ready=True)
    while (order := hear()).get("begin_s"):
        while time.monotonic() < order["begin_s"]:
            pass
        spent_us, now = [], time.monotonic()
        while now < order["end_s"]:
            step()
            before, now = now, time.monotonic()
            spent_us.append((now - before) * 1e6)
        p50, p99 = np.quantile(spent_us, (0.5, 0.99))
        say(replays=len(spent_us), p50_us=float(p50), p99_us=float(p99), max_us=max(spent_us))


def measure_counts(setting: Setting, sharing: str, environment: dict[str, str]) -> None:
    """Says the figures by the number of processes; all are started first, and those that do not replay are idle."""
    with children() as started:
        begin = time.monotonic()
        for _ in range(COUNTS[-1]):
            started.append(Child("benchmarks.gpu.probes.graph_replay:replay_graph", setting, environment=environment))
        for child in started:
            child.hear(min(40.0, max(1.0, setting.left_s() - 6)))
        say(experiment="replay", sharing=sharing, started=len(started), start_s=time.monotonic() - begin)
        for count in COUNTS:
            begin = time.monotonic() + 0.1
            for child in started[:count]:
                child.tell(begin_s=begin, end_s=begin + ROUND_S)
            each = [child.hear() for child in started[:count]]
            total = sum(facts["replays"] for facts in each)
            rate = total / ROUND_S
            say(experiment="replay", sharing=sharing, processes=count, replays_per_s=rate, each=each)


@contextmanager
def mps_daemon() -> Iterator[dict[str, str]]:
    """Runs the daemon of MPS with folders of its own and yields the environment of its clients. Raises
    CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        settings = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **settings}
        silent = subprocess.DEVNULL  # the daemon would keep the pipe of the results open
        subprocess.run([DAEMON, "-d"], env=environment, check=True, timeout=10, stdout=silent, stderr=silent)
        try:
            yield settings
        finally:
            subprocess.run([DAEMON], input=b"quit\n", env=environment, check=False, timeout=15)


def run(setting: Setting, **_others: Any) -> None:
    """Says the figures of time slicing, then of MPS if there is time."""
    with attempt("time-sliced"):
        measure_counts(setting, "time-sliced", {})
    if shutil.which(DAEMON) is None:
        say(experiment="MPS", absent=DAEMON)
    elif setting.left_s() < 20:
        say(experiment="MPS", skipped=f"{setting.left_s()} s left")
    else:
        with attempt("MPS"), mps_daemon() as environment:
            measure_counts(setting, "MPS", environment)
