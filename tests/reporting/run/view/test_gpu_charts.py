"""The charts of GPUs show what the driver told, and nothing else."""

from __future__ import annotations

import msgspec

from elastichost.reporting.run.facts import GpuCourse, Report
from elastichost.reporting.run.view.gpu_charts import gpu_charts

TOLD = GpuCourse(0, (1.0, 2.0), (0.5, 0.7), (0.4, 0.6), (10, 20), (5, 15), (1e9, 2e9), (3e9, 4e9))
NOTHING = (None, None)


def test_a_run_without_gpus_has_no_charts(full: Report) -> None:
    assert gpu_charts(msgspec.structs.replace(full, gpus=())) == ()


def test_each_gpu_has_its_line_and_that_of_this_run(full: Report) -> None:
    busy, memory, bus = gpu_charts(msgspec.structs.replace(full, gpus=(TOLD,)))
    assert [one.name for one in busy.series] == ["GPU 0", "GPU 0, this run"]
    assert [list(one.y) for one in memory.series] == [[10, 20], [5, 15]]
    assert [one.name for one in bus.series] == ["to GPU 0", "from GPU 0"]


def test_what_the_driver_does_not_tell_has_no_line_and_no_chart(full: Report) -> None:
    older = msgspec.structs.replace(
        TOLD, own_busy=NOTHING, own_bytes=NOTHING, received_bytes_per_s=NOTHING, sent_bytes_per_s=NOTHING
    )
    charts = gpu_charts(msgspec.structs.replace(full, gpus=(older,)))
    assert [chart.name for chart in charts] == ["gpu-busy", "gpu-memory"]
    assert [one.name for one in charts[0].series] == ["GPU 0"]
