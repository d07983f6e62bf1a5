"""Runs whose training data comes from a source that is slow or has troubles: it is read over several connections, and
waited for; no sample is lost, and no process ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.runs.events import InputTuned, ProcessLost, ProcessStarted, SourceRecovered, SourceTroubled
from elastichost.wire.applied import read_applied
from tests.system.test_run import Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system

ROWS = 60_000
SOURCE = """
[job]
name = "system-test"
[model]
build = "{build}"
args = {{ bottom = [16, 8], top = [16, 1] }}
[data]
train = "{url}"
label = "y"
dense = ["x"]
categorical = ["c", "d"]
input = {{ connections = {connections}, stall_s = 0.3, range_bytes = "16KiB" }}
[tables.default]
dim = 8
rows = "dynamic"
[train]
batch_size = 128
mode = "{mode}"
epochs = {epochs}
[tuner]
mode = "{tuner}"
warm_start = false
[resources]
workers = 2
servers = 1
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    numbers = np.random.default_rng(5).integers(0, 1 << 40, (3, ROWS))
    columns = {"y": (numbers[0] % 2).astype(np.float32), "x": numbers[1].astype(np.float32), "c": numbers[2] % 1000}
    pq.write_table(pa.table(columns | {"d": numbers[1] % 1000}), tmp_path / "rows.parquet", row_group_size=4096)
    return tmp_path


@pytest.mark.parametrize("mode", ["async", pytest.param("sync", marks=pytest.mark.thorough)])
def test_a_source_that_stalls_resets_and_refuses_costs_no_sample_and_no_process(
    folder: Path, data: Path, mode: str
) -> None:
    with SourceServer(data, bytes_per_s=100e3) as source:
        url = source.url("rows.parquet")
        run = Supervised(folder, template=SOURCE, url=url, connections=2, tuner="off", mode=mode, epochs=2)
        for order in (Order("stall", 1.0), Order("reset"), Order("refuse", 0.5), Order("slow", 1.0, 0.5)):
            run.wait_trained(run.status().get("samples_trained", 0) + 4000)
            source.order(order)
        code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == 2 * ROWS
    assert run.lines(ProcessLost) == []
    assert {line.event.trouble for line in run.lines(SourceTroubled)} >= {"stalled"}
    assert run.lines(SourceRecovered)


def test_a_slow_source_is_read_over_more_connections_and_not_by_more_workers(folder: Path, data: Path) -> None:
    with SourceServer(data, bytes_per_s=40e3) as source:  # less than a busy host can train
        url = source.url("rows.parquet")
        template = SOURCE.replace("workers = 2\n", "workers = [1, 4]\n").replace("16KiB", "4KiB")  # within stall_s
        run = Supervised(folder, template=template, url=url, connections='"auto"', tuner="act", mode="async", epochs=50)
        run.wait_trained(1)
        tuned = run.wait_until(lambda: [line.event.decision for line in run.lines(InputTuned)])
        assert tuned[0].kind == "tune" and tuned[0].knobs.connections > 1
        assert tuned[0].wait_share > 0.3
        status = run.wait_until(lambda: (run.status().get("input") or {}).get("connections", 1) > 1 and run.status())
        stages = {stage["stage"]: stage for stage in status["input"]["stages"]}
        assert stages["source"]["waits_source"] > stages["source"]["cpu"]
        assert status["plan"]["workers"] <= 2
        run.process.send_signal(signal.SIGINT)
        code, errors = run.finish()
    assert code == 75, errors


@pytest.mark.parametrize("cache", ["disk", "memory"])
def test_later_epochs_read_from_the_cache_and_need_no_source(folder: Path, data: Path, cache: str) -> None:
    epochs = 40  # later ones are trained in tenths of a second, and the test has to see one of them
    rows, template = 6 * 4096, SOURCE.replace('label = "y"', 'label = "y"\nlimit_rows = 24576')
    with SourceServer(data, bytes_per_s=200e3) as source:
        url = source.url("rows.parquet")
        knobs = f'4, cache = "{cache}", cache_directory = "{folder}/ranges"'
        run = Supervised(
            folder, template=template, url=url, connections=knobs, tuner="off", mode="async", epochs=epochs
        )
        run.wait_trained(1)
        if cache == "memory":  # workers are told their bound after they have begun
            run.wait_until(lambda: (run.status().get("input") or {}).get("cached_bytes", 0) > 0)
        run.wait_trained(run.status().get("samples_trained", 0) + 2 * rows)
        source.order(Order("refuse", 600.0))
        code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == epochs * rows
    assert "refused" not in [line.event.trouble for line in run.lines(SourceTroubled)]
    assert (folder / "ranges").exists() == (cache == "disk")


def test_the_tuner_keeps_what_it_reads_where_the_source_binds(folder: Path, data: Path) -> None:
    with SourceServer(data, bytes_per_s=20e3, link_bytes_per_s=60e3) as source:  # less than a busy host can train
        url, template = source.url("rows.parquet"), SOURCE.replace("stall_s = 0.3", "stall_s = 10")
        run = Supervised(folder, template=template, url=url, connections='"auto"', tuner="act", mode="async", epochs=50)
        run.wait_trained(1)
        kept = run.wait_until(
            lambda: [line.event.decision for line in run.lines(InputTuned) if line.event.decision.kind == "cache"]
        )
        assert kept[0].knobs.cache == "memory", "all of it fits"
        status = run.wait_until(lambda: (run.status().get("input") or {}).get("cached_bytes", 0) > 0 and run.status())
        assert status["input"]["cache"] == "memory"
        run.process.send_signal(signal.SIGINT)
        code, errors = run.finish()
    assert code == 75, errors


@pytest.mark.thorough
def test_sync_mode_has_the_same_bits_with_any_knobs_and_through_any_trouble(folder: Path, data: Path) -> None:
    found = []
    with SourceServer(data, bytes_per_s=200e3) as source:
        for name, knobs in (
            ("one", "1"),
            ("many", '4, decode_threads = 2, prefetch_batches = 8, prefetch_bytes = "4MiB"'),
        ):
            place = folder / name
            place.mkdir()
            url = source.url("rows.parquet")
            run = Supervised(place, template=SOURCE, url=url, connections=knobs, tuner="off", mode="sync", epochs=1)
            run.wait_trained(4000)
            source.order(Order("stall", 0.8) if name == "one" else Order("reset"))
            code, errors = run.finish()
            assert code == 0, errors
            applied = read_applied(run.run_dir)
            found.append(applied["loss_sum"][applied["samples"] > 0].tolist())
    assert len(found[0]) > 400
    assert found[0] == found[1]


def waits(run: Supervised) -> list[float]:
    """What readers that start told of their source, in seconds without a byte."""
    told = [line.event for line in run.lines(SourceTroubled)]
    return [event.waited_s for event in told if event.process.role == "reader"]


@pytest.mark.thorough
def test_a_reader_that_starts_while_the_source_refuses_waits_for_it(folder: Path, data: Path) -> None:
    """The first line of a text file is asked for each time, and is waited for as long as the job has patience."""
    pa_csv.write_csv(pq.read_table(data / "rows.parquet"), data / "rows.csv")
    template = SOURCE.replace("input = {{", "input = {{ readers = 1,").replace("workers = 2", "workers = 1")
    template = template.replace('label = "y"', 'format = "csv"\nlabel = "y"')
    template += "[supervision]\nstart_timeout_s = 10.0\n"
    with SourceServer(data, bytes_per_s=500e3) as source:
        url = source.url("rows.csv")
        run = Supervised(folder, template=template, url=url, connections=2, tuner="off", mode="async", epochs=1)
        run.wait_trained(1)
        run.wait_ready("reader-0.1")
        source.order(Order("refuse", 600.0))
        first = [one for one in run.events(ProcessStarted) if one.process.name == "reader-0"]
        os.kill(first[-1].pid, signal.SIGKILL)
        run.wait_until(lambda: max(waits(run), default=0.0) >= 10.0)  # no start may take as long, and no other wait
        source.order(Order("refuse", 0.0))
        code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == ROWS
    assert [one.process.name for one in run.lost()] == ["reader-0"]
