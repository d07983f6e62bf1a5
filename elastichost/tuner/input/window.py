"""Sums measurements of the input over a stretch of undisturbed training with the same knobs and workers. Pure."""

from __future__ import annotations

import msgspec

from elastichost.tuner.input.facts import InputLook, InputTotals
from elastichost.wire.facts import InputKnobs

__all__ = ["InputWindow", "folded"]

WARM_UP_S = 0.6  # what was read with the knobs before still waits in queues
LEAST_BATCHES = 8  # of a window, over all workers


class InputWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measurement under way. warm_s: when the warm-up ends. began_s: time of the first look that counts."""

    knobs: InputKnobs | None = None
    workers: int = 0
    warm_s: float = 0.0
    began_s: float | None = None
    until_s: float = 0.0
    totals: InputTotals = InputTotals()

    @property
    def lasted_s(self) -> float:
        return self.until_s - self.began_s if self.began_s is not None else 0.0

    @property
    def samples_per_s(self) -> float:
        """Of all workers together."""
        return self.totals.samples / self.lasted_s if self.lasted_s > 0 else 0.0

    def is_complete(self, window_s: float, batch_size: int) -> bool:
        """Whether it is long enough. A window in which nothing arrives is complete after four times its length."""
        has_samples = self.totals.samples >= LEAST_BATCHES * batch_size
        return self.lasted_s >= (window_s if has_samples else 4 * window_s)


def folded(window: InputWindow, look: InputLook) -> InputWindow:
    """The window after one look. Other knobs, another number of workers and any disturbance begin it anew."""
    is_same = look.knobs is not None and look.knobs == window.knobs and look.workers == window.workers
    if not is_same or not look.is_steady:
        return InputWindow(look.knobs, look.workers, look.at_s + WARM_UP_S)
    if look.at_s < window.warm_s:
        return window
    if window.began_s is None:  # the totals of this look began in the warm-up
        return msgspec.structs.replace(window, began_s=look.at_s, until_s=look.at_s)
    return msgspec.structs.replace(window, until_s=look.at_s, totals=window.totals.then(look.totals))
