"""The promises, and the result of the check of one of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROMISES", "Verdict"]

PROMISES = {
    "L": "every sample counts exactly once per epoch",
    "B": "rows are bitwise equal before and after a hand-over",
    "D": "sync: the same bits as an undisturbed run",
    "A": "acknowledged updates are in the model, torn batches are counted",
    "O": "5 s after the end nothing is left",
    "T": "recovery within its bound",
    "E": "bad input is refused with a typed error",
}
MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a promise held. promise: its letter; holds: None: not applicable, and `figures` is the reason; figures:
    what was checked; violations: one line each."""

    promise: str
    holds: bool | None
    figures: str
    violations: tuple[str, ...] = ()

    @classmethod
    def of(cls, promise: str, figures: str, violations: list[str]) -> Verdict:
        """A verdict that holds when there are no violations. Only the first MOST_SHOWN violations are kept."""
        shown = violations[:MOST_SHOWN]
        if len(violations) > MOST_SHOWN:
            shown.append(f"... and {len(violations) - MOST_SHOWN} more")
        return cls(promise, not violations, figures, tuple(shown))

    @classmethod
    def none(cls, promise: str, why: str) -> Verdict:
        """A verdict that is not applicable. why: the reason."""
        return cls(promise, None, why)
