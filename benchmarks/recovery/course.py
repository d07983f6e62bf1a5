"""Computes the cost of a fault from the number of trained samples over time. Pure."""

from __future__ import annotations

from bisect import bisect_left

__all__ = ["Course", "full_rate_s", "goodput_at", "lost_s", "rate_between"]

WINDOW_S = 0.3  # a rate is measured over this time
FULL = 0.95  # this share of the rate before the fault counts as the full rate


class Course:
    """The number of trained samples at increasing moments."""

    def __init__(self) -> None:
        self.moments_s: list[float] = []
        self.samples: list[int] = []

    def note(self, moment_s: float, samples: int) -> None:
        self.moments_s.append(moment_s)
        self.samples.append(samples)

    def at(self, moment_s: float) -> float:
        """The samples at a moment, interpolated linearly. Raises ValueError outside of the recorded time."""
        place = bisect_left(self.moments_s, moment_s)
        if not self.moments_s or place == len(self.moments_s) or (place == 0 and moment_s < self.moments_s[0]):
            raise ValueError(f"{moment_s} s is outside of the recorded time")
        if place == 0:
            return float(self.samples[0])
        before_s, after_s = self.moments_s[place - 1], self.moments_s[place]
        share = (moment_s - before_s) / (after_s - before_s)
        return self.samples[place - 1] + share * (self.samples[place] - self.samples[place - 1])


def rate_between(course: Course, start_s: float, stop_s: float) -> float:
    """The mean rate in samples/s between two moments."""
    return (course.at(stop_s) - course.at(start_s)) / (stop_s - start_s)


def full_rate_s(course: Course, struck_s: float, rate: float, until_s: float) -> float | None:
    """Seconds from the fault until the first window in which training is at `rate` again; None if not by `until_s`.

    Only windows after the first slower one count, because messages in flight keep the rate up right after the fault."""
    dipped = False
    for moment_s in course.moments_s:
        if moment_s < struck_s or moment_s + WINDOW_S > until_s:
            continue
        is_full = rate_between(course, moment_s, moment_s + WINDOW_S) >= FULL * rate
        if is_full and dipped:
            return moment_s - struck_s
        dipped = dipped or not is_full
    return None if dipped else 0.0


def lost_s(course: Course, struck_s: float, until_s: float, rate: float) -> float:
    """Seconds of undisturbed training that are missing between the fault and `until_s`."""
    return (until_s - struck_s) - (course.at(until_s) - course.at(struck_s)) / rate


def goodput_at(lost_per_fault_s: float, every_s: float) -> float:
    """The goodput extrapolated to one fault every `every_s` seconds, which assumes that faults do not overlap."""
    return 1.0 - lost_per_fault_s / every_s
