"""Peak memory of all jobs on a host: what each is charged, what is free, what is refused. Pure: a ledger in, one out.

    charge = estimate * margin,   margin = max(1.2, q95 of observed / predicted of jobs of its kind)

A job is charged its peak from the start, not its use: tables fill, the first checkpoint comes, and what was given away
meanwhile cannot be taken back. While it runs the charge follows what is observed:

    before its peak   max(charge at admission, 1.1 * observed peak)
    past its peak     1.1 * observed peak

so it never falls below an observed peak, and what an estimate had too much is given to others only once the job has
been through all that makes it grow: `is_past_peak`, which the caller says (its tables at their horizon, a checkpoint
and an evaluation done). A charge that grows beyond the room is not refused, it is a fact: `over_bytes`, which is
pressure for `feedback`.

A job alone on the host needs no margin: it is let in if its estimate fits, and charged no more than there is.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from elastichost.errors import ElastichostError
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
    "grown",
    "learnt",
    "margin",
    "mb_words",
    "observe",
    "refusal",
    "release",
]

LEAST_MARGIN = 1.2
MOST_MARGIN = 3.0  # one job that lied must not shut out all others of its kind
QUANTILE = 0.95
LEAST_OBSERVED = 5  # ratios that a quantile is taken of
MOST_OBSERVED = 400
HEADROOM = 1.1  # over an observed peak: allocators keep what they had, and peaks of a second pass are not the same
OOM_ESTIMATE = 1.5
OOM_PEAK = 1.2


class Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Observed peak over estimate of one job that ended."""

    kind: str
    ratio: float
    is_gpu: bool = False


class Margins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What earlier jobs teach of estimates; the newest last."""

    ratios: tuple[Ratio, ...] = ()


class Charge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one job holds. admitted: charge at the start; peak: largest use that was observed; the same of its GPU."""

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
        """By which observed peaks exceed what there is; 0 as long as estimates hold."""
        return max(0, self.charged_bytes - self.host.memory_bytes)

    def charged_gpu_bytes(self, device: int) -> int:
        return sum(charge.charged_gpu_bytes for charge in self.charges if charge.device == device)

    def free_gpu_bytes(self, device: int) -> int:
        return max(0, self.host.gpus[device].memory_bytes - self.charged_gpu_bytes(device))

    def charge(self, job: str) -> Charge | None:
        return next((charge for charge in self.charges if charge.job == job), None)


class AdmissionRefusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a job is not let in. total_bytes: what an empty host has of it."""

    job: str
    resource: Literal["memory", "gpu_memory", "alone"]
    needed_bytes: int
    free_bytes: int
    total_bytes: int
    reason: str


class OvercommitError(ElastichostError):
    """More memory would be promised than there is; `refusal` says which and how much."""

    def __init__(self, refusal: AdmissionRefusal) -> None:
        super().__init__(refusal.reason, hint="wait until a job ends, or give the host more memory")
        self.refusal = refusal


# --- margins ----------------------------------------------------------------------------------------------------------


def margin(margins: Margins, kind: str, is_gpu: bool = False) -> float:
    """By which an estimate is raised: q95 of observed / predicted of the kind, of all kinds where it has fewer than 5,
    1.2 where those are fewer than 5 too; within 1.2 and 3."""
    known = [one for one in margins.ratios if one.is_gpu == is_gpu]
    for ratios in ([one.ratio for one in known if one.kind == kind], [one.ratio for one in known]):
        if len(ratios) >= LEAST_OBSERVED:
            return float(np.clip(np.quantile(ratios, QUANTILE), LEAST_MARGIN, MOST_MARGIN))
    return LEAST_MARGIN


def learnt(margins: Margins, kind: str, estimate_bytes: int, peak_bytes: int, is_gpu: bool = False) -> Margins:
    """With one more job whose peak is known; the oldest of more than 400 is forgotten."""
    if estimate_bytes <= 0 or peak_bytes <= 0:
        return margins
    ratios = (*margins.ratios, Ratio(kind, peak_bytes / estimate_bytes, is_gpu))
    return Margins(ratios[-MOST_OBSERVED:])


def charge_of(margins: Margins, kind: str, mode: Mode) -> tuple[int, int]:
    """(bytes of the host, bytes of a GPU) that a job of this kind is charged for a mode."""
    host = round(mode.memory_bytes * margin(margins, kind))
    return host, round(mode.gpu_memory_bytes * margin(margins, kind, is_gpu=True)) if mode.is_gpu else 0


# --- a job comes, is watched, goes ------------------------------------------------------------------------------------


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
    """Why a job with these charges does not fit; None: it fits."""
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
    reason = f"{job} needs {mb_words(needed)} MB of {what}; {mb_words(free)} of {mb_words(total)} MB are free"
    return AdmissionRefusal(job, resource, needed, free, total, reason)


def admit(ledger: HostLedger, placed: PlacedJob, may_overcommit: bool = False) -> HostLedger:
    """With one more job, by what it is charged. Raises OvercommitError where that does not fit, unless the policy
    counts jobs and not bytes (may_overcommit); ValueError for a job that is in already."""
    charge = _charge(placed)
    if ledger.charge(charge.job) is not None:
        raise ValueError(f"{charge.job} is in the ledger already")
    refused = refusal(ledger, charge.job, charge.device, charge.charged_bytes, charge.charged_gpu_bytes)
    if refused is not None and not may_overcommit:
        raise OvercommitError(refused)
    return msgspec.structs.replace(ledger, charges=(*ledger.charges, charge))


def observe(
    ledger: HostLedger, job: str, peak_bytes: int, peak_gpu_bytes: int = 0, is_past_peak: bool = False
) -> HostLedger:
    """With what a job that runs was seen to use at most. It stays past its peak once it was said to be; a peak never
    falls. Raises KeyError for a job that is not in."""
    charge = _known(ledger, job)
    past = charge.is_past_peak or is_past_peak
    peak, peak_gpu = max(charge.peak_bytes, peak_bytes), max(charge.peak_gpu_bytes, peak_gpu_bytes)
    seen = msgspec.structs.replace(
        charge,
        peak_bytes=peak,
        peak_gpu_bytes=peak_gpu,
        is_past_peak=past,
        charged_bytes=_following(charge.admitted_bytes, peak, past),
        charged_gpu_bytes=_following(charge.admitted_gpu_bytes, peak_gpu, past),
    )
    charges = tuple(seen if one.job == job else one for one in ledger.charges)
    return msgspec.structs.replace(ledger, charges=charges)


def grown(ledger: HostLedger, job: str, charged_bytes: int) -> HostLedger:
    """A job that runs got more workers: it is charged what it would have been with them at its start, if that is more.
    Raises KeyError for a job that is not in."""
    charge = _known(ledger, job)
    more = msgspec.structs.replace(
        charge,
        admitted_bytes=max(charge.admitted_bytes, charged_bytes),
        charged_bytes=max(charge.charged_bytes, charged_bytes),
    )
    charges = tuple(more if one.job == job else one for one in ledger.charges)
    return msgspec.structs.replace(ledger, charges=charges)


def _following(admitted: int, peak: int, is_past_peak: bool) -> int:
    """What nothing was observed of stays as it was admitted."""
    if not peak:
        return admitted
    followed = int(np.ceil(peak * HEADROOM))
    return followed if is_past_peak else max(admitted, followed)


def release(ledger: HostLedger, job: str, is_complete: bool = False) -> HostLedger:
    """Without a job. is_complete: it ended by itself, so its peak is known and teaches the margins. Raises KeyError for
    a job that is not in."""
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


# --- out of memory, or sent back --------------------------------------------------------------------------------------


def after_oom(
    demand: JobDemand, mode: int, peak_bytes: int, host: HostCapacity, where: Literal["host", "gpu"] = "host"
) -> JobDemand | AdmissionRefusal:
    """The job as it waits again: it runs alone, and its estimates are raised, that of the mode it ran in to 1.5 times
    itself or 1.2 times the peak that was observed, whichever is larger, those of its other modes in proportion.

    Refused when it was alone already: then there is nothing to give it. An estimate is raised to no more than the host
    has, for alone it may have all of that."""
    ran = demand.modes[mode]
    estimate = ran.memory_bytes if where == "host" else ran.gpu_memory_bytes
    total = host.memory_bytes if where == "host" else max((gpu.memory_bytes for gpu in host.gpus), default=0)
    if demand.exclusive:
        what = "memory" if where == "host" else "GPU memory"
        seen = f"{demand.job} ran out of {what} at {mb_words(peak_bytes)} MB"
        reason = f"{seen} though it ran alone; {mb_words(total)} MB are all"
        return AdmissionRefusal(demand.job, "alone", peak_bytes, total, total, reason)
    factor = max(OOM_ESTIMATE, OOM_PEAK * peak_bytes / max(1, estimate))
    modes = tuple(_raised(one, factor, total, where) for one in demand.modes)
    return msgspec.structs.replace(demand, modes=modes, exclusive=True)


def after_eviction(
    demand: JobDemand, mode: int, peak_bytes: int, peak_gpu_bytes: int, host: HostCapacity, not_before_s: float
) -> JobDemand:
    """The job as it waits again after it was evicted: it rests until then, and estimates that its observed peaks
    exceeded are raised to 1.2 times these, in proportion for its other modes. Not alone: it did no more than grow."""
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


def mb_words(size_bytes: float) -> str:
    """1 234 567 890 -> "1,235": megabytes, as reasons have them."""
    return f"{size_bytes / 1e6:,.0f}"
