"""Goodput: samples a second under faults, divided by those of calm stretches of the same run. Pure.

Calm time counts while nothing is being done to the run and nothing of what was done is still open; a settling time
after each change is left out of it, since a process that has just come is not at full speed yet. All other time is
faulty, the time in which no supervisor lives too. Samples are those that survive in the model: a resumed run that has
forgotten some has them taken off.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Goodput"]

SETTLE_S = 1.0


@dataclass(slots=True)
class Goodput:
    """Fed with the time and the samples so far, again and again."""

    calm_s: float = 0.0
    calm_samples: int = 0
    faulty_s: float = 0.0
    faulty_samples: int = 0
    _last_s: float | None = None
    _last_samples: int = 0
    _quiet_since_s: float | None = None

    def take(self, now_s: float, samples: int, *, is_quiet: bool) -> None:
        """is_quiet: a calm stretch, and nothing is open."""
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
        """Samples a second, undisturbed; None: no time was."""
        return self.calm_samples / self.calm_s if self.calm_s > 0 else None

    @property
    def faulty_rate(self) -> float | None:
        return self.faulty_samples / self.faulty_s if self.faulty_s > 0 else None

    @property
    def share(self) -> float | None:
        """The goodput, 1 where faults cost nothing; None when one of the two rates is not known."""
        calm, faulty = self.calm_rate, self.faulty_rate
        return faulty / calm if calm and faulty is not None else None

    def lost_s_per_fault(self, faults: int) -> float | None:
        """Seconds of undisturbed training that one fault costs."""
        share = self.share
        return None if share is None or not faults else (1.0 - share) * self.faulty_s / faults

    def at_one_fault_in(self, gap_s: float, faults: int) -> float | None:
        """The goodput extrapolated to one fault every `gap_s` seconds: faults that far apart do not meet."""
        lost_s = self.lost_s_per_fault(faults)
        return None if lost_s is None else 1.0 - lost_s / gap_s
