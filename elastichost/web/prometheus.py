"""The status of a run in the text format of Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from elastichost.metrics import ProcessStatus, RunStatus

__all__ = ["CONTENT_TYPE", "metrics_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_of(status: RunStatus) -> str:
    """All metrics of a run. Values that are not known yet are left out."""
    lines: list[str] = []
    for name, kind, text, values in _metrics(status):
        known = [(labels, value) for labels, value in values if value is not None]
        if known:
            lines += [f"# HELP elastichost_{name} {text}", f"# TYPE elastichost_{name} {kind}"]
            lines += [f"elastichost_{name}{_written(labels)} {value!r}" for labels, value in known]
    return "\n".join(lines) + "\n"


Labels = dict[str, str]
Values = list[tuple[Labels, float | int | None]]


def _metrics(status: RunStatus) -> Iterator[tuple[str, str, str, Values]]:
    of_run = {"job": status.job}

    def one(value: float | int | None) -> Values:
        return [(of_run, value)]

    def each(value_of: str) -> Values:
        return [(_labels(status, process), getattr(process, value_of)) for process in status.processes]

    yield "up", "gauge", "1: the run has this state.", [({**of_run, "state": status.state}, 1)]
    yield "samples_planned", "gauge", "Samples over all epochs.", one(status.samples_planned)
    yield "samples_trained_total", "counter", "Samples trained.", one(status.samples_trained)
    yield "samples_per_second", "gauge", "Samples trained per second.", one(status.samples_per_s)
    yield "loss", "gauge", "Mean loss of the last seconds.", one(status.loss)
    yield "test_auc", "gauge", "AUC of the last evaluation.", one(status.test_auc)
    further = [({**of_run, "metric": name}, value) for name, value in status.test_metrics.items()]
    yield "test_metric", "gauge", "A further figure of the last evaluation.", further
    yield "epoch", "gauge", "Number of the epoch; the first is 0.", one(status.epoch)
    yield "workers", "gauge", "Workers of the plan.", one(status.plan.workers)
    yield "servers", "gauge", "Parameter servers of the plan.", one(status.plan.servers)
    yield "arena_bytes", "gauge", "Memory of rows and their optimizer state.", one(status.arena_bytes)
    yield "private_bytes", "gauge", "Private memory of all processes.", one(status.private_bytes)
    yield from _of_input(status, of_run)
    yield "process_samples_per_second", "gauge", "Samples per second of a worker.", each("samples_per_s")
    yield "process_cpu_percent", "gauge", "CPU use; 100 is one core.", each("cpu_percent")
    yield "process_memory_bytes", "gauge", "Memory (PSS) of a process.", each("memory_bytes")
    yield "process_wait_fraction", "gauge", "Share of the time in which it waited.", each("wait_fraction")
    yield from _of_gpus(status, of_run)


def _of_gpus(status: RunStatus, of_run: Labels) -> Iterator[tuple[str, str, str, Values]]:
    def each(value_of: str) -> Values:
        readable = (gpu for gpu in status.gpus if not gpu.problem)
        return [({**of_run, "gpu": str(gpu.index)}, getattr(gpu, value_of)) for gpu in readable]

    yield "gpu_busy", "gauge", "Share of the time in which the GPU computed, for all processes.", each("busy")
    yield "gpu_own_busy", "gauge", "The part of it for this run.", each("own_busy")
    yield "gpu_memory_busy", "gauge", "Share of the time in which its memory was used.", each("memory_busy")
    yield "gpu_used_bytes", "gauge", "Memory of the GPU in use, by all processes.", each("used_bytes")
    yield "gpu_own_bytes", "gauge", "The part of it of this run.", each("own_bytes")
    yield "gpu_received_bytes_per_second", "gauge", "Traffic over the bus to the GPU.", each("received_bytes_per_s")
    yield "gpu_sent_bytes_per_second", "gauge", "Traffic over the bus from the GPU.", each("sent_bytes_per_s")
    yield "gpu_clock_mhz", "gauge", "Clock of its multiprocessors.", each("clock_mhz")
    yield "gpu_power_watts", "gauge", "Power.", each("power_w")
    yield "gpu_temperature_celsius", "gauge", "Temperature.", each("temperature_c")


def _of_input(status: RunStatus, of_run: Labels) -> Iterator[tuple[str, str, str, Values]]:
    found = status.input
    if found is None:
        return

    def each(value_of: str) -> Values:
        return [({**of_run, "stage": stage.stage}, getattr(stage, value_of)) for stage in found.stages]

    yield "input_connections", "gauge", "Connections of a worker to the source.", [(of_run, found.connections)]
    yield "input_ahead_bytes", "gauge", "Most bytes that a worker holds ahead.", [(of_run, found.prefetch_bytes)]
    yield "input_cpu", "gauge", "CPU seconds per second of a stage of the input.", each("cpu")
    yield "input_waits_source", "gauge", "Seconds per second of waiting for the source.", each("waits_source")
    yield "input_waits_room", "gauge", "Seconds per second of waiting for a full queue.", each("waits_room")
    yield "input_waits_input", "gauge", "Seconds per second of waiting for an empty queue.", each("waits_input")
    yield "input_bytes_per_second", "gauge", "Bytes per second of a stage of the input.", each("bytes_per_s")
    yield "input_occupancy", "gauge", "Share of the threads, connections or places in use.", each("occupancy")


def _labels(status: RunStatus, process: ProcessStatus) -> Labels:
    return {"job": status.job, "process": process.name, "incarnation": str(process.incarnation)}


def _written(labels: Labels) -> str:
    written = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(written) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
