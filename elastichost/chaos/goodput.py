"""Goodput: the throughput under faults, divided by the throughput in calm stretches of the same run. Pure.

Time counts as calm in a calm stretch while no fault is open. The first SETTLE_S seconds of each such time count
as neither, because new processes are not at full speed yet. All other time counts as faulty, also the time
without a supervisor. Samples are those that remain in the model: samples that a resumed run has lost are subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Goodput"]

SETTLE_S = 1.0


@dataclass(slots=True)
class Goodput:
    """The goodput so far. Call `take` repeatedly."""

    calm_s: float = 0.0
    calm_samples: int = 0
    faulty_s: float = 0.0
    faulty_samples: int = 0
    _last_s: float | None = None
    _last_samples: int = 0
    _quiet_since_s: float | None = None

    def take(self, now_s: float, samples: int, *, is_quiet: bool) -> None:
        """Takes the time and the number of samples trained so far. is_quiet: the stretch is calm and no fault is
        open."""
        last_s, self._last_s = self._last_s, now_s
        grown, self._last_samples = samples - self._last_samples, samples
        if not is_quiet:
            self._quiet_since_s = None
        elif self._quiet_since_s is None:
            self._quiet_since_s = now_s
        if last_s is None:
            return
        if self._quiet_since_s is None:
            self.faulty_s += now_s - last_s
            self.faulty_samples += grown
        elif last_s - self._quiet_since_s >= SETTLE_S:
            self.calm_s += now_s - last_s
            self.calm_samples += grown

    @property
    def calm_rate(self) -> float | None:
        """Samples per second in calm time; None: there was no calm time."""
        return self.calm_samples / self.calm_s if self.calm_s > 0 else None

    @property
    def faulty_rate(self) -> float | None:
        """Samples per second in faulty time; None: there was no faulty time."""
        return self.faulty_samples / self.faulty_s if self.faulty_s > 0 else None

    @property
    def share(self) -> float | None:
        """The goodput: 1 when faults cost nothing. None when one of the rates is not known, or the calm rate is 0."""
        calm, faulty = self.calm_rate, self.faulty_rate
        return faulty / calm if calm and faulty is not None else None

    def lost_s_per_fault(self, faults: int) -> float | None:
        """Seconds of undisturbed training that one fault costs on average; None when this is not known."""
        share = self.share
        return None if share is None or not faults else (1.0 - share) * self.faulty_s / faults

    def at_one_fault_in(self, gap_s: float, faults: int) -> float | None:
        """The goodput extrapolated to one fault every `gap_s` seconds. It assumes that the run recovers from a fault
        before the next one comes."""
        lost_s = self.lost_s_per_fault(faults)
        return None if lost_s is None else 1.0 - lost_s / gap_s
