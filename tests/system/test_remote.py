"""Runs with training data at the rate of a remote store: they wait for input and do not exceed that rate."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from elastichost.datasets.remote import BURST_S
from elastichost.runs.decisions import DECISIONS_FILE, read_records
from elastichost.runs.events import CheckpointWritten, LeaseGranted
from elastichost.tuner.records import TunerLooked
from tests.system.test_run import JOB, Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system

READERS = 2
SAMPLE_BYTES = 3 * 4 + 4 * (8 + 4) + 4
SAMPLES_PER_S = 500  # of each reader
REMOTE = (
    JOB.replace("unit_rows = 8192 }}\n", "unit_rows = 8192 }}\nremote = {{ bytes_per_s = {bytes_per_s} }}\n")
    .replace('mode = "off"', 'mode = "watch"')
    .replace("[train]\n", '[train]\nmode = "{mode}"\naccess = "{access}"\n')
)


def workers_wait(run: Supervised) -> bool:
    """Whether all workers wait most of the time."""
    workers = [one for one in run.status().get("processes", []) if one["role"] == "worker"]
    return len(workers) == READERS and all(one["wait_fraction"] > 0.6 for one in workers)


@pytest.mark.parametrize(
    ("mode", "access"),
    [
        ("async", "direct"),
        pytest.param("bounded", "served", marks=pytest.mark.thorough),
        pytest.param("sync", "served", marks=pytest.mark.thorough),
    ],
)
def test_a_run_waits_for_its_input_and_stops_when_asked(folder: Path, mode: str, access: str) -> None:
    rate = SAMPLES_PER_S * SAMPLE_BYTES
    run = Supervised(folder, template=REMOTE, bytes_per_s=rate, mode=mode, access=access)
    run.wait_trained(2 * READERS * SAMPLES_PER_S)
    run.wait_until(lambda: workers_wait(run))
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 75, errors

    # The measured time begins before the first byte is requested and ends after the last batch is settled.
    seconds = run.lines(CheckpointWritten)[-1].monotonic_s - run.lines(LeaseGranted)[0].monotonic_s
    trained = run.result()["samples"]["trained"]
    assert trained <= READERS * SAMPLES_PER_S * (seconds + BURST_S)

    looks = [record for record in read_records(run.run_dir / DECISIONS_FILE) if isinstance(record, TunerLooked)]
    totals: Any = looks[-1].look.totals
    # A worker computes while it waits for bytes, so that slow cores reduce the time that it waits.
    spent_s = totals.reader_s + totals.compute_s + totals.exchange_s
    # Of the samples in the same heartbeats: a commit is known before the heartbeat with its times.
    assert spent_s >= totals.cpu_samples / SAMPLES_PER_S - READERS * BURST_S
    assert totals.reader_s > 0
