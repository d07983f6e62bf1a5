"""One simulated job from the queue to its end: its phase, what it holds, and its outcome. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from benchmarks.simulator.cluster.random_streams import generator
from benchmarks.simulator.colocation import calibration
from benchmarks.simulator.colocation.beliefs import DispatcherBeliefs
from benchmarks.simulator.colocation.interference import ComputingJob, InterferenceModel
from benchmarks.simulator.colocation.jobs import JobMode, QueuedJob
from elastichost.tuner.colocation.facts import JobDemand, Mode, PlacedJob

__all__ = ["ColocatedJobOutcome", "ColocatedJobRun", "JobPhase"]

# saving: the job is evicted and writes its checkpoint
JobPhase = Literal["waiting", "starting", "running", "paused", "saving", "done", "failed"]
DONE = 1e-9  # share of the work that may be missing at the end, because of rounding
NOISES = 512  # number of windows with their own noise; then the values repeat


class ColocatedJobOutcome(msgspec.Struct, frozen=True):
    """The outcome of one job. alone_s: its time alone in its fastest mode, without its start. samples: of one training.
    work: samples trained and evaluated, including those trained again. lost: samples that kills lost. first_started_s:
    None: it was never started."""

    job: str
    kind: str
    outcome: Literal["done", "failed"]
    alone_s: float
    first_started_s: float | None
    ended_s: float
    samples: float
    work: float
    lost: float
    starts: int
    oom_kills: int
    evictions: int
    pauses: int

    @property
    def slowdown(self) -> float:
        """Time from its first start to its end, over its time alone; 0 if it was never started."""
        return (self.ended_s - self.first_started_s) / self.alone_s if self.first_started_s is not None else 0.0


@dataclass(slots=True)
class ColocatedJobRun:
    """The state of one job. Progress is counted in samples, from 0 to `work`, which includes the evaluation.

    noise: measured / true speed of each window. trained: progress; saved: progress in its checkpoint; seen: progress at
    the last window; done: all samples, including those trained again. rate: present samples/s. busy_until_s: end of its
    start or of its saving. steady_s: time from which it computes without interruption. first_mode: mode of its last
    start. raised, raised_gpu: factors on its memory estimates. exclusive: it must run alone from now on.
    """

    spec: QueuedJob
    work: float
    noise: list[float]
    phase: JobPhase = "waiting"
    placed: PlacedJob | None = None
    trained: float = 0.0
    saved: float = 0.0
    rate: float = 0.0
    seen: float = 0.0
    checkpoint_s: float = 0.0
    busy_until_s: float = 0.0
    steady_s: float = 0.0
    is_lowered: bool = False
    first_mode: int = 0
    peak_bytes: float = 0.0
    peak_gpu_bytes: float = 0.0
    raised: float = 1.0
    raised_gpu: float = 1.0
    exclusive: bool = False
    not_before_s: float = 0.0
    first_started_s: float | None = None
    ended_s: float = 0.0
    done: float = 0.0
    lost: float = 0.0
    starts: int = 0
    oom_kills: int = 0
    evictions: int = 0
    pauses: int = 0

    @classmethod
    def of(cls, spec: QueuedJob, truth: InterferenceModel, seed: int) -> ColocatedJobRun:
        fastest = max(truth.alone(spec.family, size).samples_per_s for size in spec.family.sizes)
        draws = generator(seed, "noise", spec.index).standard_normal(NOISES)
        return cls(spec, spec.lasts_s * fastest, np.exp(calibration.NOISE_LOG_SD * draws).tolist())

    @property
    def job(self) -> str:
        return self.spec.job

    @property
    def samples(self) -> float:
        """Number of samples to train. The rest of the work is the evaluation."""
        return self.work / (1 + calibration.EVALUATION)

    @property
    def size(self) -> JobMode:
        assert self.placed is not None
        return self.spec.family.sizes[self.placed.placement.mode]

    @property
    def device(self) -> int:
        assert self.placed is not None
        return self.placed.placement.device

    @property
    def is_over(self) -> bool:
        return self.phase in ("done", "failed")

    def memory_after(self, seconds: float) -> tuple[float, float]:
        """Bytes on the host and on its GPU after `seconds` more seconds at its rate; 0 without a process."""
        if self.placed is None:
            return 0.0, 0.0
        share = self.spec.family.share_of_peak((self.trained + self.rate * seconds) / self.samples)
        return share * self.size.host_bytes, share * self.size.gpu_bytes

    def truly(self) -> ComputingJob:
        return ComputingJob(self.spec.family, self.size, self.device, self.is_lowered)

    def ends_after_s(self) -> float:
        """Seconds until its work is done at its rate; infinite if it does not compute."""
        return (self.work - self.trained) / self.rate if self.rate > 0 else float("inf")

    def advance(self, seconds: float) -> None:
        if self.rate > 0:
            self.trained = min(self.work, self.trained + self.rate * seconds)
            self.done += self.rate * seconds
            if self.work - self.trained <= DONE * self.work:
                self.trained = self.work

    def load_s(self) -> float:
        """Seconds to write or to load its checkpoint."""
        return calibration.CHECKPOINT_LEAST_S + self.saved_bytes / calibration.CHECKPOINT_BYTES_PER_S

    @property
    def saved_bytes(self) -> float:
        return self.spec.family.costs.table_bytes * self.spec.family.share_of_peak(self.trained / self.samples)

    def demand(self, beliefs: DispatcherBeliefs) -> JobDemand:
        """The job as the dispatcher knows it now."""
        known = beliefs.of(self.spec.family)
        modes = known.modes
        if (self.raised, self.raised_gpu) != (1.0, 1.0):
            modes = tuple(map(self._as_raised, modes))
        is_gpu = modes[self.placed.placement.mode].is_gpu if self.placed is not None else modes[-1].is_gpu
        return JobDemand(
            job=self.job,
            kind=known.kind,
            modes=modes,
            samples_left=max(1e-6 * self.samples, self.samples - self.trained),
            is_measured=beliefs.is_measured(self.spec.family, is_gpu),
            exclusive=self.exclusive,
            not_before_s=self.not_before_s,
        )

    def _as_raised(self, mode: Mode) -> Mode:
        return msgspec.structs.replace(
            mode,
            memory_bytes=round(mode.memory_bytes * self.raised),
            gpu_memory_bytes=round(mode.gpu_memory_bytes * self.raised_gpu),
        )

    def raise_to(self, before: Mode, after: Mode) -> None:
        """Records that the dispatcher raised the job's memory estimates."""
        self.raised *= after.memory_bytes / max(1, before.memory_bytes)
        self.raised_gpu *= after.gpu_memory_bytes / max(1, before.gpu_memory_bytes) if before.is_gpu else 1.0

    def outcome(self) -> ColocatedJobOutcome:
        return ColocatedJobOutcome(
            job=self.job,
            kind=self.spec.family.kind,
            outcome="done" if self.phase == "done" else "failed",
            alone_s=self.spec.lasts_s,
            first_started_s=self.first_started_s,
            ended_s=self.ended_s,
            samples=self.samples,
            work=self.done,
            lost=self.lost,
            starts=self.starts,
            oom_kills=self.oom_kills,
            evictions=self.evictions,
            pauses=self.pauses,
        )
