"""Computes figures from windows. In a window, one arm trains and all other arms are stopped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks.harness.aggregates import typical
from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import PairedFigure
from benchmarks.harness.outcome import Outcome

__all__ = [
    "MOST_FOREIGN_SHARE",
    "PEERS",
    "RATIOS",
    "ArmFigures",
    "MeasuredWindow",
    "Ratio",
    "Window",
    "arm_figures",
    "best_peer",
    "judged",
    "least_disturbed",
    "ratios_of",
    "speed_quotient",
]

MOST_FOREIGN_SHARE = 0.05
PEERS = ("tbe1", "tbe2", "dmp", "rpc", "tensorflow")
BEST_PEER = "best_peer"


@dataclass(frozen=True, slots=True)
class Window:
    """A window. `seconds`: between two changes of the arm's counter. `cpu_s`: by role. `foreign_share`: the share (0 to
    1) of the machine's cores that other processes used in that time."""

    arm: str
    round: int
    samples: int
    seconds: float
    cpu_s: Mapping[str, float]
    foreign_share: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    @property
    def is_disturbed(self) -> bool:
        return self.foreign_share > MOST_FOREIGN_SHARE


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """The window that counts, and the number of disturbed windows that were measured again. If all attempts were
    disturbed, the least disturbed one counts."""

    window: Window
    rejected: int


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """The figures of one arm: samples/s over its windows, CPU microseconds per sample by role, and memory."""

    arm: str
    windows: int
    median: float
    least: float
    most: float
    cpu_us_by_role: Mapping[str, float]
    memory_bytes_by_role: Mapping[str, int] = field(default_factory=dict)

    @property
    def cpu_us(self) -> float:
        return sum(self.cpu_us_by_role.values())


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two arms, and its lower bound for each batch size (0: for all other batch sizes)."""

    name: str
    above: str
    below: str
    aims: Mapping[int, float]

    def paired(self, peer: str | None) -> PairedFigure[MeasuredWindow]:
        """The paired figure of this ratio. peer: the arm that "the best peer" stands for."""
        below = (peer or "") if self.below == BEST_PEER else self.below
        return PairedFigure(self.name, "", self.above, below, speed_quotient, form=".2f")

    def aim(self, batch_size: int) -> Aim | None:
        bound = self.aims.get(batch_size, self.aims.get(0))
        return None if bound is None else Aim(self.name, bound, "at least", form=".2f")


def speed_quotient(above: MeasuredWindow, below: MeasuredWindow) -> float:
    """The speed of one arm over that of another, of two windows of the same round."""
    return above.window.samples_per_s / below.window.samples_per_s


RATIOS = (
    Ratio("direct2_over_tbe1", "direct2", "tbe1", {0: 1.8}),
    Ratio("direct2_over_best_peer", "direct2", BEST_PEER, {512: 1.6, 2048: 1.5, 8192: 1.3}),
    Ratio("direct2_fused_over_tbe1", "direct2_fused", "tbe1", {0: 2.3}),
    Ratio("direct2_fused_over_best_peer", "direct2_fused", BEST_PEER, {512: 2.0, 2048: 1.9, 8192: 1.6}),
    Ratio("direct1_over_bare_loop", "direct1", "bare_loop", {0: 0.97}),
    Ratio("served_over_tf", "served1", "tensorflow", {0: 2.5}),
    Ratio("served_over_rpc", "served1", "rpc", {0: 1.3}),
)


def least_disturbed(windows: Sequence[Window]) -> Window:
    """The least disturbed of several attempts at one window. Raises ValueError for no attempts."""
    return min(windows, key=lambda window: window.foreign_share)


def arm_figures(arm: str, windows: Iterable[Window], memory_bytes_by_role: Mapping[str, int]) -> ArmFigures | None:
    """The figures of an arm; None if it has no window."""
    own = [window for window in windows if window.arm == arm]
    if not own:
        return None
    rates = [window.samples_per_s for window in own]
    samples = sum(window.samples for window in own)
    roles = sorted({role for window in own for role in window.cpu_s})
    cpu_us = {role: 1e6 * sum(window.cpu_s.get(role, 0.0) for window in own) / samples for role in roles}
    return ArmFigures(arm, len(own), median(rates), min(rates), max(rates), cpu_us, memory_bytes_by_role)


def best_peer(figures: Mapping[str, ArmFigures]) -> str | None:
    """The peer with the highest median speed; None if there is no peer."""
    measured = [peer for peer in PEERS if peer in figures]
    return max(measured, key=lambda peer: figures[peer].median, default=None)


def judged(outcome: Outcome[MeasuredWindow], peer: str | None, batch_size: int) -> Outcome[MeasuredWindow]:
    """The outcome with the ratios and aims of a batch size, which need the best peer."""
    aims = tuple(aim for ratio in RATIOS if (aim := ratio.aim(batch_size)) is not None)
    pairs = tuple(ratio.paired(peer) for ratio in RATIOS)
    return Outcome(replace(outcome.benchmark, pairs=pairs, aims=aims), outcome.measured)


def ratios_of(outcome: Outcome[MeasuredWindow]) -> dict[str, float | None]:
    """Each ratio: the median over the rounds in which both arms have a window; None without such a round."""
    spreads = {figure.name: outcome.pair(figure) for figure in outcome.benchmark.pairs}
    return {name: None if spread is None else typical(spread) for name, spread in spreads.items()}
