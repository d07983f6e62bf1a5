"""The run directory, the process meter and the metrics store, with real files."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest

from elastichost.config.job import JobSpec, load_job
from elastichost.dispatcher.directory import HostDirectory
from elastichost.errors import ConfigError, PreflightError
from elastichost.host import process_meter as meter
from elastichost.host.process_meter import MetricsStore, ProcessMeter
from elastichost.metrics import ProcessStatus, RunStatus
from elastichost.plan import ProcessId
from elastichost.runs.directory import RunDirectory, new_run_path
from elastichost.runs.journal import Journal
from elastichost.wire.control import FailureReportMsg
from tests.full_disk import file_limit


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    """A job."""
    path = tmp_path / "job.toml"
    path.write_text('[model]\nbuild = "elastichost.models:dlrm"\n[data]\nformat = "synthetic"\n')
    return load_job(path, environ={})


def test_runs_that_begin_at_the_same_time_do_not_disturb_each_other(tmp_path: Path, job: JobSpec) -> None:
    """The link `latest` leads to one of them."""
    paths = [new_run_path(tmp_path, job.job.name, f"{number:06}0000") for number in range(64)]
    directories = [RunDirectory.open(path, job, resume=False) for path in paths]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda directory: directory.write_facts(job), directories))
    assert (tmp_path / "runs" / "latest").resolve() in paths
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"latest", *(path.name for path in paths)}


def test_a_run_that_is_one_of_many_does_not_become_the_latest(tmp_path: Path, job: JobSpec) -> None:
    """With a batch of jobs, `latest` leads to the batch, not to the job that began last."""
    runs = tmp_path / "runs"
    host = HostDirectory.open(runs / "batch-1")
    one = RunDirectory.open(runs / "job-1", job, resume=False)
    one.write_facts(job, is_one_of_many=True)
    assert (runs / "latest").resolve() == runs / "batch-1"
    one.write_facts(job)
    assert (runs / "latest").resolve() == runs / "job-1"
    host.close()
    one.close()


def test_a_host_directory_outside_of_runs_gets_no_link(tmp_path: Path) -> None:
    HostDirectory.open(tmp_path / "state" / "host").close()
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["host"]


def test_a_run_directory_has_its_files_and_one_supervisor(tmp_path: Path, job: JobSpec) -> None:
    path = new_run_path(tmp_path, job.job.name, "0123456789")
    directory = RunDirectory.open(path, job, resume=False)
    with pytest.raises(PreflightError, match="another supervisor"):
        RunDirectory.open(path, job, resume=True)
    assert not (path / "job.resolved.toml").exists()
    directory.write_facts(job)
    assert load_job(path / "job.resolved.toml", environ={}) == job
    assert "python" in msgspec.json.decode((path / "versions.json").read_bytes())
    assert (tmp_path / "runs" / "latest").resolve() == path
    directory.write_error(ProcessId("worker", 1, 2), FailureReportMsg("DataError", "m", "h", "t"))
    assert (path / "errors" / "worker-1.2.json").exists()
    (path / "logs" / "worker-1.2.log").write_text("\n".join(str(n) for n in range(50)))
    assert directory.last_log_lines(ProcessId("worker", 1, 2), 2) == "48\n49"
    assert directory.last_log_lines(ProcessId("worker", 9, 2)) == ""
    directory.close()
    RunDirectory.open(path, job, resume=True).close()


def test_a_new_run_cannot_use_the_directory_of_another_run(tmp_path: Path, job: JobSpec) -> None:
    directory = RunDirectory.open(tmp_path / "run", job, resume=False)
    Journal(directory.journal).close()
    directory.close()
    with pytest.raises(ConfigError, match="already holds a run"):
        RunDirectory.open(tmp_path / "run", job, resume=False)


def test_the_meter_measures_this_process_and_reports_zero_for_a_dead_one() -> None:
    measuring = ProcessMeter()
    assert measuring.measure([os.getpid()], 10.0)[os.getpid()].cpu_percent is None, "one measurement gives no speed"
    sum(range(200_000))
    usage = measuring.measure([os.getpid(), 2**22 - 3], 11.0)
    own = usage[os.getpid()]
    assert own.cpu_percent is not None
    assert own.cpu_percent >= 0
    assert own.rss_bytes >= own.pss_bytes > own.private_bytes > 1_000_000
    assert usage[2**22 - 3].rss_bytes == 0


def test_pages_of_a_shared_file_are_not_private_memory(tmp_path: Path) -> None:
    size_bytes = 32 << 20
    path = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="elastichost-test-"))
    try:
        with open(path / "rows", "wb+") as file:
            file.truncate(size_bytes)
            with mmap.mmap(file.fileno(), size_bytes) as shared:
                before = ProcessMeter().measure([os.getpid()], 10.0)[os.getpid()]
                shared[:] = bytes(size_bytes)
                after = ProcessMeter().measure([os.getpid()], 10.0)[os.getpid()]
    finally:
        shutil.rmtree(path)
    assert after.pss_bytes - before.pss_bytes > size_bytes // 2
    assert after.private_bytes - before.private_bytes < size_bytes // 4


def test_memory_that_is_given_back_is_no_longer_private_memory() -> None:
    """Page tables are read seldom. A worker makes and frees large tensors with each batch in between."""
    measuring, pid = ProcessMeter(), os.getpid()
    before = measuring.measure([pid], 10.0)[pid]
    taken = np.ones(64 << 20, np.uint8)
    with_it = measuring.measure([pid], 10.0)[pid]
    assert with_it.private_bytes - before.private_bytes == pytest.approx(len(taken), rel=0.1)
    assert measuring.private_bytes() == pytest.approx(with_it.private_bytes, rel=0.1)
    thorough = measuring.measure([pid], 10.0, thoroughly=True)[pid]
    assert thorough.private_bytes == pytest.approx(with_it.private_bytes, rel=0.1)
    del taken
    assert measuring.measure([pid], 10.0)[pid].private_bytes == pytest.approx(before.private_bytes, rel=0.1)
    assert measuring.private_bytes() == pytest.approx(before.private_bytes, rel=0.1)


def test_many_processes_are_measured_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes in turn, page tables one at a time. Values measured ahead are returned and not measured again."""
    read, tables = list[int](), list[int]()
    one = meter._read(os.getpid())

    def of(pid: int) -> object:
        read.append(pid)
        return one

    def pss_bytes(pid: int) -> meter.Pss:
        tables.append(pid)
        return meter.Pss(1000 + pid, pid, pid)

    monkeypatch.setattr(meter, "_read", of)
    monkeypatch.setattr(meter, "_pss_bytes", pss_bytes)
    pids, measuring = list(range(1, 3 * meter.FEW + 1)), ProcessMeter()
    for turn in range(3):
        measuring.ahead(pids, 10.0 + 0.1 * turn)
        assert len(read) == meter.FEW * (turn + 1)
    assert sorted(read) == pids
    assert len(tables) == len(set(tables)) <= 3
    usage = measuring.measure(pids, 10.5)
    assert len(read) == len(pids) and len(tables) <= 3
    assert [usage[pid].pss_bytes for pid in tables] == [1000 + pid for pid in tables]
    assert all(usage[pid].rss_bytes > 0 for pid in pids)
    measuring.measure(pids, 12.0)
    assert sorted(read) == sorted(2 * pids)
    assert measuring.measure(pids[:3], 12.1).keys() == {1, 2, 3}
    measuring.ahead(pids[:3], 20.0)
    assert sorted(read) == sorted(2 * pids), "a few processes are measured only when requested"


def test_metrics_are_in_the_database(tmp_path: Path) -> None:
    store = MetricsStore(tmp_path / "metrics.db")
    process = ProcessStatus("worker", 0, 1, 77, "training", cpu_percent=50.0)
    store.add(RunStatus(run_dir="r", job="j", state="training", supervisor_pid=1, processes=(process,), elapsed_s=2.5))
    store.close()
    with sqlite3.connect(tmp_path / "metrics.db") as database:
        assert database.execute("SELECT elapsed_s, pid, cpu_percent FROM process").fetchall() == [(2.5, 77, 50.0)]
        assert database.execute("SELECT state FROM run").fetchall() == [("training",)]
    database.close()


def test_an_unused_directory_is_discarded_with_the_link_to_it(tmp_path: Path, job: JobSpec) -> None:
    directory = RunDirectory.open(tmp_path / "runs" / "new", job, resume=False)
    directory.write_facts(job)
    assert not directory.was_used
    directory.discard()
    directory.close()
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_directory_that_existed_or_has_results_counts_as_used(tmp_path: Path, job: JobSpec) -> None:
    there = tmp_path / "there"
    there.mkdir()
    directory = RunDirectory.open(there, job, resume=False)
    assert directory.was_used
    directory.close()
    directory = RunDirectory.open(tmp_path / "new", job, resume=False)
    (directory.path / "applied.bin").touch()
    assert directory.was_used
    directory.close()


KILLED = """
import os, signal, sys
from elastichost.metrics import ProcessStatus, RunStatus
from elastichost.host.process_meter import MetricsStore
from pathlib import Path

store = MetricsStore(Path(sys.argv[1]))
process = ProcessStatus("worker", 0, 1, 77, "training", cpu_percent=50.0)
for second in range(100):
    store.add(RunStatus(run_dir="", job="j", state="training", supervisor_pid=1, elapsed_s=float(second),
                        processes=(process,)))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_seconds_of_metrics_even_in_a_copy_without_the_log(tmp_path: Path) -> None:
    path = tmp_path / "metrics.db"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    shutil.copy(path, tmp_path / "copy.db")
    with sqlite3.connect(tmp_path / "copy.db") as database:
        assert database.execute("SELECT max(elapsed_s) FROM run").fetchone()[0] >= 99 - 2 * meter.FLUSH_S
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM process").fetchone() == (100,), (
            "the file with its log has all rows"
        )


def test_a_week_of_metrics_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "FINE_S", 100.0)
    monkeypatch.setattr(meter, "THIN_EVERY_S", 50.0)
    store = MetricsStore(tmp_path / "metrics.db")
    for second in range(3000):
        store.add(RunStatus(run_dir="", job="j", state="training", supervisor_pid=1, elapsed_s=float(second)))
    store.close()
    with sqlite3.connect(tmp_path / "metrics.db") as database:
        seconds = [row[0] for row in database.execute("SELECT elapsed_s FROM run ORDER BY rowid")]
    assert len(seconds) < 150 + 3000 / meter.COARSE_S + 1
    assert seconds[-100:] == [float(second) for second in range(2900, 3000)], "new rows are not thinned out"
    assert seconds[:10] == [float(meter.COARSE_S * minute) for minute in range(10)]


def test_metrics_wait_for_space(tmp_path: Path) -> None:
    store = MetricsStore(tmp_path / "metrics.db")
    one = RunStatus(run_dir="", job="j", state="training", supervisor_pid=1)
    store.add(one)
    with file_limit(100):
        for second in range(1, 4):
            store.add(msgspec.structs.replace(one, elapsed_s=float(second)))
        assert store.problem
    store.add(msgspec.structs.replace(one, elapsed_s=4.0))
    assert not store.problem
    store.close()
    with sqlite3.connect(tmp_path / "metrics.db") as database:
        assert [row[0] for row in database.execute("SELECT elapsed_s FROM run")] == [0.0, 1.0, 2.0, 3.0, 4.0]
