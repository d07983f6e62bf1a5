"""Counts of a server, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["CONTENT_TYPE", "Telemetry"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(slots=True)
class Telemetry:
    """The counts of one process, since it began. in_flight: requests that wait for the model or are scored."""

    answers: Counter[int] = field(default_factory=Counter)
    rows: int = 0
    batches: int = 0
    in_flight: int = 0
    buffered_bytes: int = 0
    reloads: int = 0
    failed_reloads: int = 0
    _slower: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    _seconds: float = 0.0

    def count_answer(self, status: int, rows: int, took_s: float) -> None:
        """Counts one answer to `/predict`."""
        self.answers[status] += 1
        self.rows += rows
        self._seconds += took_s
        self._slower[bisect_left(BOUNDS_S, took_s)] += 1

    def text(self, export_id: str, samples_trained: int) -> str:
        """All metrics. export_id: of the export that answers now."""
        lines: list[str] = []
        for name, kind, help_text, values in self._metrics(export_id, samples_trained):
            lines += [f"# HELP elastichost_serve_{name} {help_text}", f"# TYPE elastichost_serve_{name} {kind}"]
            lines += [f"elastichost_serve_{name}{suffix} {value!r}" for suffix, value in values]
        return "\n".join(lines) + "\n"

    def _metrics(
        self, export_id: str, samples_trained: int
    ) -> Iterator[tuple[str, str, str, list[tuple[str, int | float]]]]:
        answers = [(f'{{status="{status}"}}', count) for status, count in sorted(self.answers.items())]
        yield "requests_total", "counter", "Answers to /predict by status.", list(answers)
        yield "rows_total", "counter", "Rows that were scored.", [("", self.rows)]
        yield "batches_total", "counter", "Calls of the model.", [("", self.batches)]
        yield "in_flight", "gauge", "Requests that wait for the model or are scored.", [("", self.in_flight)]
        yield "buffered_bytes", "gauge", "Bodies of requests in memory.", [("", self.buffered_bytes)]
        yield "reloads_total", "counter", "Newer exports that were loaded.", [("", self.reloads)]
        yield "failed_reloads_total", "counter", "Newer exports that were refused.", [("", self.failed_reloads)]
        yield "export_samples_trained", "gauge", "Samples of training.", [(f'{{id="{export_id}"}}', samples_trained)]
        below, buckets = 0, []
        for bound, count in zip((*BOUNDS_S, "+Inf"), self._slower, strict=True):
            below += count
            buckets.append((f'_bucket{{le="{bound}"}}', below))
        latency = [*buckets, ("_sum", self._seconds), ("_count", below)]
        yield "request_seconds", "histogram", "Time from the head of a request to its answer.", list(latency)
