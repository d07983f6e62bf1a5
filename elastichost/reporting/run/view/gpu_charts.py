"""Charts of the GPUs of a run: how busy they were, their memory, and the traffic over the bus. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elastichost.reporting.render.chart import Chart, ChartAxis, ChartSeries, Values, line_of
from elastichost.reporting.render.palette import CYCLE
from elastichost.reporting.run.facts import GpuCourse, Report
from elastichost.reporting.run.view.time_axis import has_values, resume_marks, time_axis

__all__ = ["gpu_charts"]


def gpu_charts(report: Report) -> tuple[Chart, ...]:
    """The charts; none if the run used no GPU, and without those of which the driver told nothing."""
    share = ChartAxis("share of the time", "share", least=0.0, most=1.0)
    size, rate = ChartAxis("memory", "bytes", least=0.0), ChartAxis("bytes a second", "bytes", least=0.0)
    made = (
        _chart(report, "gpu-busy", "Share of the time in which each GPU computes", share, _busy),
        _chart(report, "gpu-memory", "Memory of each GPU", size, _memory),
        _chart(report, "gpu-bus", "Traffic over the bus, bytes a second", rate, _bus),
    )
    return tuple(chart for chart in made if chart.series)


Lines = Iterator[tuple[str, Values]]


def _busy(gpu: GpuCourse) -> Lines:
    yield f"GPU {gpu.index}", gpu.busy
    yield f"GPU {gpu.index}, this run", gpu.own_busy


def _memory(gpu: GpuCourse) -> Lines:
    yield f"GPU {gpu.index}", gpu.used_bytes
    yield f"GPU {gpu.index}, this run", gpu.own_bytes


def _bus(gpu: GpuCourse) -> Lines:
    yield f"to GPU {gpu.index}", gpu.received_bytes_per_s
    yield f"from GPU {gpu.index}", gpu.sent_bytes_per_s


def _chart(report: Report, name: str, title: str, y: ChartAxis, lines_of: Callable[[GpuCourse], Lines]) -> Chart:
    told = [(line, gpu.at_s, values) for gpu in report.gpus for line, values in lines_of(gpu) if has_values(values)]
    series: tuple[ChartSeries, ...] = tuple(
        line_of(line, CYCLE[number % len(CYCLE)], at_s, values) for number, (line, at_s, values) in enumerate(told)
    )
    return Chart(name=name, title=title, x=time_axis(report), y=y, series=series, marks=resume_marks(report))
