"""Traces are read from the project's own format and from public layouts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.simulator.cluster.traces.trace import TraceJob, read_trace
from elastichost.errors import ConfigError


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_own_format(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,samples,cores,memory_bytes\nb,130,60,,8,4000000000\na,100,,5000,,\nc,110,,,,\n"
    found = read_trace(written(tmp_path, text))
    assert found.jobs == (
        TraceJob("a", 0.0, 0.0, 5000),
        TraceJob("b", 30.0, 60.0, 0, 8.0, 4_000_000_000),
    ), "in order of submission, from the first job on"
    assert (found.layout, found.left_out) == ("elastichost", 1)


def test_parquet_and_compressed_files(tmp_path: Path) -> None:
    table = pa.table({"job_id": ["x"], "submit_s": [5.0], "duration_s": [7.0]})
    pq.write_table(table, tmp_path / "trace.parquet")
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(b"job_id,submit_s,duration_s\nx,5,7\n"))
    assert read_trace(tmp_path / "trace.parquet").jobs == read_trace(packed).jobs == (TraceJob("x", 0.0, 7.0),)


def test_elasticflow(tmp_path: Path) -> None:
    text = "job_id,submission_time,duration,num_gpu\n965d,1932025,2429,64\nfb10,1932000,1532,1\n"
    found = read_trace(written(tmp_path, text))
    assert found.layout == "ElasticFlow"
    assert found.jobs == (TraceJob("fb10", 0.0, 1532.0, gpus=1.0), TraceJob("965d", 25.0, 2429.0, gpus=64.0))


def test_helios(tmp_path: Path) -> None:
    text = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "11,u1,v1,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n"
        "12,u2,v2,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
    )
    found = read_trace(written(tmp_path, text))
    assert found.jobs == (
        TraceJob("11", 0.0, 36848.0, cores=4.0, gpus=1.0),
        TraceJob("12", 26.0, 249.0, cores=16.0, gpus=4.0),
    )


def test_openb(tmp_path: Path) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p1,88000,1024,8,1000,,Burstable,Succeeded,100,500,150\n"
        "p2,4000,512,0,0,,BE,Pending,120,900,\n"
    )
    found = read_trace(written(tmp_path, text))
    assert found.jobs == (TraceJob("p1", 0.0, 350.0, cores=88.0, memory_bytes=2**30, gpus=8.0),)
    assert found.left_out == 1, "a pod that was never scheduled has no length"


def test_tasks_of_a_pai_job_are_added_up(tmp_path: Path) -> None:
    text = (
        "j1,ps,1.0,Terminated,1000.0,1300.0,600.0,29.0,0.0,\n"
        "j1,worker,2.0,Terminated,1010.0,1400.0,400.0,1.0,50.0,MISC\n"
        "j2,worker,1.0,Running,1100.0,,400.0,1.0,50.0,MISC\n"
    )
    found = read_trace(written(tmp_path, text))
    assert (found.layout, found.left_out) == ("PAI", 1)
    assert found.jobs == (TraceJob("j1", 0.0, 400.0, cores=14.0, memory_bytes=31 * 10**9, gpus=1.0),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,length\n1,2\n", "which are those of no trace"),
        ("job_id,submit_s,duration_s\na,1,\n", "no job with a len"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_trace(written(tmp_path, text))


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
