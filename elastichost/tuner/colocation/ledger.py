"""The ledger of peak memory of all jobs on a host: charges, free memory, refusals. Pure: each function takes a ledger
and returns a new one.

Rules:
- The sum of the charges of admitted jobs does not exceed the memory of the host, nor of any GPU, when a job is admitted
  (`admit`; except for policies that count jobs instead of bytes).
- A job is charged its estimated peak from its start, and not its present use: its tables fill and its first checkpoint
  comes later, and memory that other jobs got meanwhile cannot be taken back.

      charge = estimate * margin,   margin = max(1.2, 95 % quantile of observed / estimated peak of jobs of its kind)

- While a job runs, its charge follows the observed peak, and is never below it:

      before its peak   max(charge at admission, 1.1 * observed peak)
      past its peak     1.1 * observed peak

  So the surplus of an estimate is given to others only after the job has passed everything that makes it grow. The
  caller decides that (`is_past_peak`: its tables have reached their horizon, a checkpoint and an evaluation are done).
- A charge that grows beyond the memory is not refused, because the memory is already in use. It shows as `over_bytes`,
  which is pressure for `feedback`.
- A job alone on the host needs no margin: it is admitted if its estimate fits, and its charge is at most all memory.

Theory of operation. `admit` adds a job, `observe` records its observed peak, `grown` raises the charge after a job got
more workers, and `release` removes it. A job that ended by itself adds the ratio of its observed to its estimated peak
to `Margins`, from which later margins follow. `after_oom` and `after_eviction` return the job with raised estimates for
its next start. The ledger is an immutable value and is not stored; the caller starts with an empty one.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec
import numpy as np

from elastichost.errors import ElastichostError
from elastichost.human_readable import mib
from elastichost.tuner.colocation.facts import CPU, HostCapacity, JobDemand, Mode, PlacedJob

__all__ = [
    "LEAST_MARGIN",
    "AdmissionRefusal",
    "Charge",
    "HostLedger",
    "Margins",
    "OvercommitError",
    "admit",
    "after_eviction",
    "after_oom",
    "charge_of",
    "followed",
    "grown",
    "learnt",
    "margin",
    "observe",
    "oom_factor",
    "refusal",
    "release",
]

LEAST_MARGIN = 1.2
MOST_MARGIN = 3.0  # one job with a very wrong estimate must not exclude all other jobs of its kind
QUANTILE = 0.95
LEAST_OBSERVED = 5  # least number of ratios for a quantile
MOST_OBSERVED = 400  # number of newest ratios that are kept
HEADROOM = 1.1  # over an observed peak, because allocators keep freed memory and the peaks of two epochs differ
OOM_ESTIMATE = 1.5  # factor on an estimate after a job ran out of memory
OOM_PEAK = 1.2  # factor on the observed peak, for estimates after a job ran out of memory or was evicted


class Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Observed peak / estimate of one job that ended."""

    kind: str
    ratio: float
    is_gpu: bool = False


class Margins(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """The ratios of earlier jobs, newest last; margins are their quantiles."""

    ratios: tuple[Ratio, ...] = ()

    @cached_property
    def known(self) -> dict[tuple[str | None, bool], float]:
        """(kind, is_gpu) -> margin, where there are enough ratios; kind None: of all kinds. They are asked for every
        mode of every job in every turn of a dispatcher, so they are computed once."""
        ratios: dict[tuple[str | None, bool], list[float]] = {}
        for one in self.ratios:
            for kind in (one.kind, None):
                ratios.setdefault((kind, one.is_gpu), []).append(one.ratio)
        return {key: _quantile(found) for key, found in ratios.items() if len(found) >= LEAST_OBSERVED}


class Charge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The charge of one job. estimate_bytes: without the margin. admitted_bytes: charge at its start. charged_bytes:
    present charge. peak_bytes: largest observed use. The `gpu` fields: the same on its GPU."""

    job: str
    kind: str
    device: int
    estimate_bytes: int
    admitted_bytes: int
    charged_bytes: int
    estimate_gpu_bytes: int = 0
    admitted_gpu_bytes: int = 0
    charged_gpu_bytes: int = 0
    peak_bytes: int = 0
    peak_gpu_bytes: int = 0
    is_past_peak: bool = False


class HostLedger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The charges of all jobs on a host, and the margins of estimates."""

    host: HostCapacity
    charges: tuple[Charge, ...] = ()
    margins: Margins = Margins()

    @property
    def charged_bytes(self) -> int:
        return sum(charge.charged_bytes for charge in self.charges)

    @property
    def free_bytes(self) -> int:
        return max(0, self.host.memory_bytes - self.charged_bytes)

    @property
    def over_bytes(self) -> int:
        """Bytes by which the charges exceed the memory of the host; 0 as long as estimates are right."""
        return max(0, self.charged_bytes - self.host.memory_bytes)

    def charged_gpu_bytes(self, device: int) -> int:
        return sum(charge.charged_gpu_bytes for charge in self.charges if charge.device == device)

    def free_gpu_bytes(self, device: int) -> int:
        return max(0, self.host.gpus[device].memory_bytes - self.charged_gpu_bytes(device))

    def charge(self, job: str) -> Charge | None:
        return next((charge for charge in self.charges if charge.job == job), None)


class AdmissionRefusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a job is not admitted. total_bytes: bytes of this resource on an empty host."""

    job: str
    resource: Literal["memory", "gpu_memory", "alone"]
    needed_bytes: int
    free_bytes: int
    total_bytes: int
    reason: str


class OvercommitError(ElastichostError):
    """A start would promise more memory than exists. refusal: which memory, and how much."""

    def __init__(self, refusal: AdmissionRefusal) -> None:
        super().__init__(refusal.reason, hint="wait until a job ends, or raise the memory of the host")
        self.refusal = refusal


# --- margins ----------------------------------------------------------------------------------------------------------


def margin(margins: Margins, kind: str, is_gpu: bool = False) -> float:
    """The factor on an estimate: the 95 % quantile of observed / estimated peaks of the kind, within 1.2 and 3. With
    fewer than 5 ratios of the kind it is that of all kinds; with fewer than 5 ratios of all kinds it is 1.2."""
    known = margins.known
    return known.get((kind, is_gpu), known.get((None, is_gpu), LEAST_MARGIN))


def _quantile(ratios: list[float]) -> float:
    return float(np.clip(np.quantile(ratios, QUANTILE), LEAST_MARGIN, MOST_MARGIN))


def learnt(margins: Margins, kind: str, estimate_bytes: int, peak_bytes: int, is_gpu: bool = False) -> Margins:
    """Adds the ratio of a job with a known peak; keeps the newest 400. Ratios without an estimate or peak are
    ignored."""
    if estimate_bytes <= 0 or peak_bytes <= 0:
        return margins
    ratios = (*margins.ratios, Ratio(kind, peak_bytes / estimate_bytes, is_gpu))
    return Margins(ratios[-MOST_OBSERVED:])


def charge_of(margins: Margins, kind: str, mode: Mode) -> tuple[int, int]:
    """The charge of a job of this kind for a mode: (bytes on the host, bytes on a GPU)."""
    host = round(mode.memory_bytes * margin(margins, kind))
    return host, round(mode.gpu_memory_bytes * margin(margins, kind, is_gpu=True)) if mode.is_gpu else 0


# --- admission, observation, release ----------------------------------------------------------------------------------


def _charge(placed: PlacedJob) -> Charge:
    mode = placed.mode
    return Charge(
        job=placed.demand.job,
        kind=placed.demand.kind,
        device=placed.placement.device,
        estimate_bytes=mode.memory_bytes,
        admitted_bytes=placed.charged_bytes,
        charged_bytes=placed.charged_bytes,
        estimate_gpu_bytes=mode.gpu_memory_bytes,
        admitted_gpu_bytes=placed.charged_gpu_bytes,
        charged_gpu_bytes=placed.charged_gpu_bytes,
    )


def refusal(
    ledger: HostLedger, job: str, device: int, charged_bytes: int, charged_gpu_bytes: int = 0
) -> AdmissionRefusal | None:
    """The refusal of a job with these charges; None: it fits."""
    if charged_bytes > ledger.free_bytes:
        total = ledger.host.memory_bytes
        return _refused(job, "memory", charged_bytes, ledger.free_bytes, total, "memory")
    if device != CPU and charged_gpu_bytes > ledger.free_gpu_bytes(device):
        gpu = ledger.host.gpus[device]
        what = f"memory of GPU {gpu.index}"
        return _refused(job, "gpu_memory", charged_gpu_bytes, ledger.free_gpu_bytes(device), gpu.memory_bytes, what)
    return None


def _refused(
    job: str, resource: Literal["memory", "gpu_memory"], needed: int, free: int, total: int, what: str
) -> AdmissionRefusal:
    reason = f"{job} needs {mib(needed)} of {what}; {mib(free)} of {mib(total)} are free"
    return AdmissionRefusal(job, resource, needed, free, total, reason)


def admit(ledger: HostLedger, placed: PlacedJob, may_overcommit: bool = False) -> HostLedger:
    """Adds a job with its charge. Raises OvercommitError if it does not fit, unless the policy counts jobs instead of
    bytes (may_overcommit). Raises ValueError for a job that is already in the ledger."""
    charge = _charge(placed)
    if ledger.charge(charge.job) is not None:
        raise ValueError(f"job {charge.job} is already in the ledger")
    refused = refusal(ledger, charge.job, charge.device, charge.charged_bytes, charge.charged_gpu_bytes)
    if refused is not None and not may_overcommit:
        raise OvercommitError(refused)
    return msgspec.structs.replace(ledger, charges=(*ledger.charges, charge))


def observe(
    ledger: HostLedger, job: str, peak_bytes: int, peak_gpu_bytes: int = 0, is_past_peak: bool = False
) -> HostLedger:
    """Records the observed peak of a running job. A peak never falls, and a job that is past its peak stays so. Raises
    KeyError for a job that is not in the ledger."""
    seen = followed(_known(ledger, job), peak_bytes, peak_gpu_bytes, is_past_peak=is_past_peak)
    charges = tuple(seen if one.job == job else one for one in ledger.charges)
    return msgspec.structs.replace(ledger, charges=charges)


def followed(charge: Charge, peak_bytes: int, peak_gpu_bytes: int = 0, *, is_past_peak: bool = False) -> Charge:
    """The charge after an observation of the peak."""
    past = charge.is_past_peak or is_past_peak
    peak, peak_gpu = max(charge.peak_bytes, peak_bytes), max(charge.peak_gpu_bytes, peak_gpu_bytes)
    return msgspec.structs.replace(
        charge,
        peak_bytes=peak,
        peak_gpu_bytes=peak_gpu,
        is_past_peak=past,
        charged_bytes=_following(charge.admitted_bytes, peak, past),
        charged_gpu_bytes=_following(charge.admitted_gpu_bytes, peak_gpu, past),
    )


def grown(ledger: HostLedger, job: str, charged_bytes: int, estimate_bytes: int) -> HostLedger:
    """Raises the charge and the estimate of a running job that got more workers, to those that it would have had with
    them at its start: margins compare its peak with this estimate. Raises KeyError for a job that is not in the
    ledger."""
    charge = _known(ledger, job)
    more = msgspec.structs.replace(
        charge,
        estimate_bytes=max(charge.estimate_bytes, estimate_bytes),
        admitted_bytes=max(charge.admitted_bytes, charged_bytes),
        charged_bytes=max(charge.charged_bytes, charged_bytes),
    )
    charges = tuple(more if one.job == job else one for one in ledger.charges)
    return msgspec.structs.replace(ledger, charges=charges)


def _following(admitted: int, peak: int, is_past_peak: bool) -> int:
    """The charge from an observed peak; without an observation it is the charge at admission."""
    if not peak:
        return admitted
    followed = int(np.ceil(peak * HEADROOM))
    return followed if is_past_peak else max(admitted, followed)


def release(ledger: HostLedger, job: str, is_complete: bool = False) -> HostLedger:
    """Removes a job. is_complete: it ended by itself, so its whole peak is known and is added to the margins. Raises
    KeyError for a job that is not in the ledger."""
    charge = _known(ledger, job)
    margins = ledger.margins
    if is_complete:
        margins = learnt(margins, charge.kind, charge.estimate_bytes, charge.peak_bytes)
        margins = learnt(margins, charge.kind, charge.estimate_gpu_bytes, charge.peak_gpu_bytes, is_gpu=True)
    return msgspec.structs.replace(
        ledger, charges=tuple(one for one in ledger.charges if one.job != job), margins=margins
    )


def _known(ledger: HostLedger, job: str) -> Charge:
    charge = ledger.charge(job)
    if charge is None:
        raise KeyError(job)
    return charge


# --- after running out of memory, after an eviction -------------------------------------------------------------------


def after_oom(
    demand: JobDemand, mode: int, peak_bytes: int, host: HostCapacity, where: Literal["host", "gpu"] = "host"
) -> JobDemand | AdmissionRefusal:
    """Returns the job for its next start after it ran out of memory: it must run alone, and its estimates are raised.

    The estimate of its mode becomes 1.5 times the old one or 1.2 times the observed peak, whichever is larger; those of
    its other modes are raised in proportion, to at most the memory of the host (or of the largest GPU). Returns a
    refusal if it ran alone already, because it cannot get more memory."""
    ran = demand.modes[mode]
    estimate = ran.memory_bytes if where == "host" else ran.gpu_memory_bytes
    total = host.memory_bytes if where == "host" else max((gpu.memory_bytes for gpu in host.gpus), default=0)
    if demand.exclusive:
        what = "memory" if where == "host" else "GPU memory"
        seen = f"{demand.job} ran out of {what} at {mib(peak_bytes)}"
        reason = f"{seen} although it ran alone; the host has {mib(total)} in total"
        return AdmissionRefusal(demand.job, "alone", peak_bytes, total, total, reason)
    factor = oom_factor(estimate, peak_bytes)
    modes = tuple(_raised(one, factor, total, where) for one in demand.modes)
    return msgspec.structs.replace(demand, modes=modes, exclusive=True)


def oom_factor(estimate_bytes: int, peak_bytes: int) -> float:
    """The factor on the estimate of a job that ran out of memory with this peak."""
    return max(OOM_ESTIMATE, OOM_PEAK * peak_bytes / max(1, estimate_bytes))


def after_eviction(
    demand: JobDemand, mode: int, peak_bytes: int, peak_gpu_bytes: int, host: HostCapacity, not_before_s: float
) -> JobDemand:
    """Returns the job for its next start after an eviction: it rests until not_before_s. Estimates below its observed
    peaks are raised to 1.2 times the peaks, those of its other modes in proportion. It need not run alone."""
    ran, modes = demand.modes[mode], demand.modes
    gpu_total = max((gpu.memory_bytes for gpu in host.gpus), default=0)
    if peak_bytes > ran.memory_bytes > 0:
        factor = OOM_PEAK * peak_bytes / ran.memory_bytes
        modes = tuple(_raised(one, factor, host.memory_bytes, "host") for one in modes)
    if peak_gpu_bytes > ran.gpu_memory_bytes > 0:
        factor = OOM_PEAK * peak_gpu_bytes / ran.gpu_memory_bytes
        modes = tuple(_raised(one, factor, gpu_total, "gpu") for one in modes)
    return msgspec.structs.replace(demand, modes=modes, not_before_s=not_before_s)


def _raised(mode: Mode, factor: float, total: int, where: Literal["host", "gpu"]) -> Mode:
    if where == "gpu":
        raised = min(round(mode.gpu_memory_bytes * factor), max(total, mode.gpu_memory_bytes))
        return msgspec.structs.replace(mode, gpu_memory_bytes=raised)
    raised = min(round(mode.memory_bytes * factor), max(total, mode.memory_bytes))
    return msgspec.structs.replace(mode, memory_bytes=raised)
