"""Scripts of `plan --for slurm` on a real Slurm cluster: they are accepted, and exit code 75 leads to another start."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.train.clusters.slow_job import SlowJob, search_path
from tests.cli.train.clusters.slurm_cluster import SlurmCluster, missing_programs

MISSING = missing_programs()
pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"not installed: {', '.join(MISSING)}; apt-get install slurmctld slurmd slurm-client munge",
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    folder = Path(tempfile.mkdtemp(prefix="ehs-"))  # short, because the path of a socket has at most 108 bytes
    try:
        with SlurmCluster(folder) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: SlurmCluster) -> SlowJob:
    made = SlowJob(tmp_path)
    cluster.environment |= {"PYTHONPATH": search_path(), "ELASTICHOST_HISTORY": "off"}
    return made


def logs_of(job: SlowJob) -> str:
    return "\n".join(path.read_text() for path in job.folder.glob("slurm-*.log"))


def submitted(cluster: SlurmCluster, job: SlowJob) -> int:
    """Submits the job, and returns its number once it trains."""
    number = cluster.submit(job.plan("slurm", "slow.sbatch", "--run-dir", str(job.run_dir), "--time", "10"))
    cluster.wait(lambda: job.trained() > 0, f"to train; {logs_of(job)}")
    return number


def test_slurm_accepts_the_script(cluster: SlurmCluster, job: SlowJob) -> None:
    script = job.plan("slurm", "slow.sbatch", "--partition", "short", "--time", "0-01:00:00")
    assert " to start at " in cluster.call("sbatch", "--test-only", str(script))


def test_slurm_accepts_a_script_with_gpus(cluster: SlurmCluster, tmp_path: Path) -> None:
    job = SlowJob(tmp_path, resources="gpus = 2")
    script = job.plan("slurm", "gpus.sbatch")
    assert " to start at " in cluster.call("sbatch", "--test-only", str(script))
    more = job.plan("slurm", "more.sbatch", "--gpus", "3")
    assert "not available" in cluster.call("sbatch", "--test-only", str(more), check=False)


@pytest.mark.thorough
@pytest.mark.long
def test_a_job_that_is_told_to_stop_is_queued_again_and_goes_on(cluster: SlurmCluster, job: SlowJob) -> None:
    """The signal is the one that Slurm sends before the time limit: SIGTERM to the shell of the script."""
    number = submitted(cluster, job)
    cluster.call("scancel", "--signal=TERM", "--batch", str(number))
    cluster.wait(lambda: cluster.state(number) == "RUNNING 1", "to start the job again")
    assert 0 < job.samples()["trained"] < job.rows
    cluster.wait(lambda: cluster.state(number) == "COMPLETED 1", f"to complete the job; {logs_of(job)}")
    job.assert_done()
    assert "exit code 75: the job is queued again" in logs_of(job)
    assert cluster.facts(number)["ExitCode"] == "0:0"


@pytest.mark.thorough
@pytest.mark.long
def test_a_job_that_is_preempted_goes_on_later(cluster: SlurmCluster, job: SlowJob) -> None:
    number = submitted(cluster, job)
    urgent = job.folder / "urgent.sbatch"
    urgent.write_text("#!/bin/bash\n#SBATCH --partition=urgent --nodes=2 --exclusive --time=5\nsleep 1\n")
    cluster.submit(urgent)
    cluster.wait(lambda: cluster.state(number) == "RUNNING 1", f"to start the job again; {logs_of(job)}")
    assert 0 < job.samples().get("trained", 0) < job.rows, logs_of(job)
    cluster.wait(lambda: cluster.state(number) == "COMPLETED 1", f"to complete the job; {logs_of(job)}")
    job.assert_done()


@pytest.mark.thorough
@pytest.mark.long
def test_a_job_that_a_user_cancels_is_not_queued_again(cluster: SlurmCluster, job: SlowJob) -> None:
    number = submitted(cluster, job)
    cluster.call("scancel", str(number))
    cluster.wait(lambda: not is_queued(cluster, number), "to end the job")
    assert cluster.state(number) == "CANCELLED 0"
    assert 0 < job.samples().get("trained", 0) < job.rows, logs_of(job)
    assert list((job.run_dir / "checkpoints").glob("step-*")), logs_of(job)
    journal = (job.run_dir / "journal.jsonl").read_text()
    assert '"process_lost"' not in journal, "Slurm's SIGTERM to every process of the job ended one"


@pytest.mark.thorough
@pytest.mark.long
def test_a_job_of_two_nodes_trains_on_both(cluster: SlurmCluster, job: SlowJob) -> None:
    pytest.importorskip("ray", reason="ray, of the test extra, is not installed")
    words = ["--nodes", "2", "--cores", "1", "--run-dir", str(job.run_dir), "--time", "10"]
    number = cluster.submit(job.plan("slurm", "two.sbatch", *words))
    cluster.wait(lambda: job.trained() > 0, f"to train; {logs_of(job)}")
    assert cluster.facts(number)["NodeList"] == "one,two"
    cluster.wait(lambda: cluster.state(number).startswith("COMPLETED"), f"to complete the job; {logs_of(job)}")
    job.assert_done()
    events = (job.run_dir / "journal.jsonl").read_text()
    assert json.loads((job.run_dir / "hosts.json").read_text())["hosts"][0]["transport"] == "ray", events


def is_queued(cluster: SlurmCluster, number: int) -> bool:
    return str(number) in cluster.call("squeue", "--noheader", "--format=%i").split()
