"""Checks the sizes that a `scale` command names, and measures what a plan change costs. Pure.

A plan change is watched from the moment the new plan takes effect (`PlanChangeWatch`). It is over when every new worker
has trained and AFTER_S has passed, or FIRST_SAMPLES_S after the processes match the plan: a new worker may get no
lease, because no samples may be left. Measured are the time until the processes match the plan, the time until each new
worker's first sample, the hand-overs, and how far and how long the throughput falls (`Dip`), compared with the rate
before (`Pace`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from elastichost.runs.events import Counts, PlanReached
from elastichost.runs.events.text import RECOVERED
from elastichost.wire.commands import Figure, RefusedMsg, ScaleMsg

__all__ = ["Dip", "Pace", "PlanChangeWatch", "figures_of", "gpu_refusal", "refusal"]

WINDOW_S = 0.2
BEFORE_S = 2.0
FIRST_SAMPLES_S = 5.0  # how long a new worker's first sample is waited for: there may be no samples left to train
AFTER_S = 1.0  # how long the throughput is watched after all new workers train


def refusal(command: ScaleMsg, max_workers: int, max_servers: int, cores: int) -> RefusedMsg | None:
    """Why a `scale` command is refused; None when its numbers are in range. cores: of the job."""
    bounds = {"workers": max_workers, "servers": max_servers, "worker_cores": cores}
    asked: dict[str, int | None] = {name: getattr(command, name) for name in bounds}
    for name, most in bounds.items():
        value = asked[name]
        if value is not None and not 1 <= value <= most:
            return RefusedMsg(f"{name}={value} is out of range (1 to {most})", "", True)
    if not any(value is not None for value in asked.values()):
        return RefusedMsg("nothing to scale", f"name one of {', '.join(bounds)}", True)
    return None


def gpu_refusal(command: ScaleMsg, gpus: int, why_no_cpu_workers: str) -> RefusedMsg | None:
    """Why a run on GPUs cannot have the workers of this command; None when it can. gpus: of the run; each has one
    worker. why_no_cpu_workers: why no further worker may train on the CPU; "": it may."""
    if not gpus or not why_no_cpu_workers or command.workers is None or command.workers <= gpus:
        return None
    hint = f"a GPU has one worker, and no other may train on the CPU: {why_no_cpu_workers}"
    return RefusedMsg(f"workers={command.workers} is out of range (1 to {gpus})", hint, True)


# --- throughput -------------------------------------------------------------------------------------------------------


class Pace:
    """Number of applied samples at moments of the last seconds, from which a rate is computed."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, samples: int) -> None:
        """samples: applied so far."""
        self._points.append((now_s, samples))
        while now_s - self._points[0][0] > BEFORE_S + WINDOW_S:
            self._points.popleft()

    def before(self) -> float:
        """Samples per second: the median over windows of WINDOW_S in the last BEFORE_S; 0 when there are none."""
        windows = int((self._points[-1][0] - self._points[0][0]) / WINDOW_S) if self._points else 0
        if windows == 0:
            return 0.0
        times_s, samples = zip(*self._points, strict=True)
        edges_s = times_s[-1] - WINDOW_S * np.arange(windows, -1, -1)
        return float(np.median(np.diff(np.interp(edges_s, times_s, samples)))) / WINDOW_S


@dataclass(slots=True)
class Dip:
    """The lowest rate, over windows of WINDOW_S, since `began_s`, compared with the rate before. samples: applied at
    `began_s`."""

    began_s: float
    samples: int
    rate_before: float
    lowest: float | None = None
    _low_until_s: float | None = None
    _edge: tuple[float, float] = (0.0, 0.0)
    _last: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        self._edge = self._last = (self.began_s, float(self.samples))

    def add(self, now_s: float, samples: int) -> None:
        """samples: applied so far. More frequent calls give a more exact result."""
        point = (now_s, float(samples))
        while self._edge[0] + WINDOW_S <= now_s and now_s > self._last[0]:
            at_s = self._edge[0] + WINDOW_S
            share = (at_s - self._last[0]) / (now_s - self._last[0])
            edge = (at_s, self._last[1] + share * (samples - self._last[1]))
            rate = (edge[1] - self._edge[1]) / WINDOW_S
            self.lowest = rate if self.lowest is None else min(self.lowest, rate)
            if rate < RECOVERED * self.rate_before:
                self._low_until_s = at_s
            self._edge = edge
        self._last = point

    @property
    def dip(self) -> float | None:
        """Lowest rate divided by the rate before; None: no rate was measured."""
        return self.lowest / self.rate_before if self.lowest is not None and self.rate_before > 0 else None

    @property
    def recovered_s(self) -> float | None:
        """Seconds from `began_s` until the rate stayed at nine tenths of the rate before or more. 0.0: it was never
        below; None: it still is, or no rate was measured before."""
        if self.rate_before <= 0 or self._low_until_s == self._edge[0]:
            return None
        return 0.0 if self._low_until_s is None else self._low_until_s - self.began_s


# --- one change -------------------------------------------------------------------------------------------------------


def figures_of(reached: PlanReached) -> dict[str, Figure]:
    """The figures in the answer to `scale --json`."""
    first = {f"worker-{index}": at_s for index, at_s in reached.first_sample_s.items()}
    return {
        **{f"{name}_before": getattr(reached.before, name) for name in Counts.__struct_fields__},
        **{f"{name}_after": getattr(reached.after, name) for name in Counts.__struct_fields__},
        "reached_s": reached.reached_s,
        "request_to_first_sample_s": first,
        "handover_s": reached.handover_s,
        "buckets_moved": reached.buckets_moved,
        "samples_per_s_before": reached.rate_before,
        "dip": reached.dip,
        "recovered_s": reached.recovered_s,
    }


@dataclass(slots=True)
class PlanChangeWatch:
    """A plan change under way. newcomers: index of each new worker -> the last incarnation of this name before."""

    before: Counts
    after: Counts
    newcomers: Mapping[int, int]
    dip: Dip
    cause: str = ""  # of the plan
    first_sample_s: dict[int, float] = field(default_factory=dict)
    hand_overs: list[tuple[int, float]] = field(default_factory=list)  # (buckets moved, seconds)
    _reached_s: float | None = None
    _all_train_s: float | None = None

    @property
    def awaited(self) -> Sequence[int]:
        """New workers that have not trained yet."""
        return [index for index in self.newcomers if index not in self.first_sample_s]

    def observe(self, now_s: float, samples: int, trained: Collection[int], *, is_reached: bool) -> None:
        """samples: applied so far. trained: awaited workers that have a batch applied now. is_reached: the processes
        match the plan."""
        since_s = now_s - self.dip.began_s
        self.first_sample_s.update({index: since_s for index in self.awaited if index in trained})
        self.dip.add(now_s, samples)
        if is_reached and self._reached_s is None:
            self._reached_s = since_s
        if self._reached_s is not None and not self.awaited and self._all_train_s is None:
            self._all_train_s = since_s

    def is_over(self, now_s: float) -> bool:
        """Whether nothing is left to measure."""
        since_s = now_s - self.dip.began_s
        if self._all_train_s is not None:
            return since_s >= self._all_train_s + AFTER_S
        return self._reached_s is not None and since_s >= self._reached_s + FIRST_SAMPLES_S

    def figures(self) -> PlanReached:
        """The measured costs. Call it when the change is over."""
        assert self._reached_s is not None
        return PlanReached(
            before=self.before,
            after=self.after,
            reached_s=self._reached_s,
            first_sample_s={index: self.first_sample_s.get(index) for index in self.newcomers},
            handover_s=sum(took_s for _, took_s in self.hand_overs) if self.hand_overs else None,
            buckets_moved=sum(moved for moved, _ in self.hand_overs),
            rate_before=self.dip.rate_before,
            dip=self.dip.dip,
            recovered_s=self.dip.recovered_s,
        )
