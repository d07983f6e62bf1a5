"""Metrics of a run: those of its input, each stage with its name."""

from __future__ import annotations

from elastichost.metrics import InputStatus, RunStatus, StageStatus
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
