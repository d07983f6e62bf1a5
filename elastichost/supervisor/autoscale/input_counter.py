"""Sums up what the input of all workers did since the last call, from their heartbeats."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastichost.metrics import StageStatus
from elastichost.plan import ProcessId
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.tuner.input.facts import InputTotals
from elastichost.wire.facts import StageSample, StepSample

__all__ = ["InputCounter", "stages_of", "totals_of"]


@dataclass(slots=True)
class InputCounter:
    """Counts each heartbeat of each worker once."""

    fleet: Fleet
    _newest_s: dict[ProcessId, float] = field(default_factory=dict)

    def take(self) -> InputTotals:
        """The sums since the last call. Call it at least every 5 s, as `counters.Counter`."""
        workers = self.fleet.live("worker")
        self._newest_s = {record.process: self._newest_s.get(record.process, 0.0) for record in workers}
        totals = InputTotals()
        for record in workers:
            for at_s, sample in record.window:
                if at_s > self._newest_s[record.process]:
                    self._newest_s[record.process] = at_s
                    totals = totals + totals_of(sample)
        return totals


def totals_of(sample: StepSample) -> InputTotals:
    """What one heartbeat of one worker adds to the sums."""
    stages = {stage.stage: stage for stage in sample.stages}
    source, decode = stages.get("source", StageSample("source")), stages.get("decode", StageSample("decode"))
    prepare, train = stages.get("prepare", StageSample("prepare")), stages.get("train", StageSample("train"))
    return InputTotals(
        samples=sample.samples,
        seconds=sample.seconds,
        training_cpu_s=sample.training_cpu_s or 0.0,
        source_cpu_s=source.cpu_s,
        source_s=source.source_s,
        first_byte_s=source.first_byte_s,
        source_bytes=source.bytes,
        requests=source.items,
        decode_cpu_s=decode.cpu_s,
        decode_other_s=decode.other_s,
        unit_bytes=decode.unit_bytes,
        prepare_cpu_s=prepare.cpu_s,
        prepare_other_s=prepare.other_s,
        empty_s=train.empty_s,
        request_p50_s=source.p50_s,
        request_p90_s=source.p90_s,
        request_p99_s=source.p99_s,
    )


def stages_of(workers: tuple[ProcessRecord, ...]) -> tuple[StageStatus, ...]:
    """What each stage did over the last seconds, as shares and rates of all workers together; (): nothing is known."""
    samples = [sample for record in workers for _, sample in record.window if sample.stages]
    seconds = sum(sample.seconds for sample in samples)
    if not seconds:
        return ()
    by_stage: dict[str, list[tuple[float, StageSample]]] = {}
    for sample in samples:
        for stage in sample.stages:
            by_stage.setdefault(stage.stage, []).append((sample.seconds, stage))
    return tuple(_status(name, found, seconds / max(1, len(workers))) for name, found in by_stage.items())


def _status(name: str, found: list[tuple[float, StageSample]], wall_s: float) -> StageStatus:
    def rate(field_name: str) -> float:
        return float(sum(getattr(stage, field_name) for _, stage in found)) / wall_s

    covered_s = sum(seconds for seconds, _ in found)
    return StageStatus(
        stage=name,
        cpu=rate("cpu_s"),
        waits_source=rate("source_s"),
        waits_room=rate("full_s"),
        waits_input=rate("empty_s"),
        waits_other=rate("other_s"),
        bytes_per_s=rate("bytes"),
        items_per_s=rate("items"),
        p50_s=max(stage.p50_s for _, stage in found),
        p99_s=max(stage.p99_s for _, stage in found),
        occupancy=sum(seconds * stage.occupancy for seconds, stage in found) / max(covered_s, 1e-9),
    )
