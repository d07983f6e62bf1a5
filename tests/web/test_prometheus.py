"""Metrics of a run: those of its input, each stage with its name."""

from __future__ import annotations

import msgspec

from elastichost.metrics import GpuStatus, InputStatus, RunStatus, StageStatus
from elastichost.web.prometheus import metrics_of

STATUS = RunStatus(run_dir="r", job="j", state="training", supervisor_pid=1)


def test_the_input_has_one_value_for_each_stage() -> None:
    stages = (StageStatus("source", waits_source=3.5, bytes_per_s=7.4e6), StageStatus("train", waits_input=0.25))
    status = RunStatus(
        run_dir="r", job="j", state="training", supervisor_pid=1, input=InputStatus(connections=4, stages=stages)
    )
    lines = metrics_of(status).splitlines()
    assert 'elastichost_input_connections{job="j"} 4' in lines
    assert 'elastichost_input_waits_source{job="j",stage="source"} 3.5' in lines
    assert 'elastichost_input_waits_input{job="j",stage="train"} 0.25' in lines


def test_a_run_without_workers_has_no_metrics_of_its_input() -> None:
    assert "input" not in metrics_of(STATUS)


def test_a_gpu_has_its_figures_and_one_that_does_not_answer_has_none() -> None:
    told = GpuStatus(index=1, name="a GPU", total_bytes=100, busy=0.5, used_bytes=40, temperature_c=61)
    lost = GpuStatus(index=2, name="a GPU", total_bytes=100, problem="GPU is lost")
    lines = metrics_of(msgspec.structs.replace(STATUS, gpus=(told, lost))).splitlines()
    assert 'elastichost_gpu_busy{job="j",gpu="1"} 0.5' in lines
    assert 'elastichost_gpu_temperature_celsius{job="j",gpu="1"} 61' in lines
    assert not any("received" in line or 'gpu="2"' in line for line in lines)
