"""One column of the comparison: all policies under one condition, and the best of all rivals. A condition is the kind
of requests that users make, and how far the truth departs from every model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.harness.aggregates import Interval, ratio
from benchmarks.tuner.simulated.conditions.requests import RequestKind
from benchmarks.tuner.simulated.figures import Figures, figures_of_seed, spreads
from benchmarks.tuner.simulated.plan import RIVALS
from benchmarks.tuner.simulated.runs import Seeds

__all__ = ["Column", "best_of", "column_of"]

Floats = npt.NDArray[np.float64]


class Column(msgspec.Struct, frozen=True):
    """The figures by policy, one for each seed. misfit: standard deviation of the smooth departure of the true speeds.
    ratios, tail_ratios: of mean and P95 completion times, by pair of policies, geometric means over seeds. best_rival:
    of all rivals that were simulated, by the mean completion time."""

    requests: RequestKind
    misfit: float
    figures: dict[str, tuple[Figures, ...]]
    spreads: dict[str, dict[str, Interval]]
    ratios: dict[str, dict[str, Interval]]
    tail_ratios: dict[str, dict[str, Interval]]
    best_rival: str


def column_of(requests: RequestKind, misfit: float, played: Seeds) -> Column:
    """The figures of the simulations of one condition. played: by seed and policy."""
    by_seed = [figures_of_seed(seed) for seed in played]
    figures = {name: tuple(seed[name] for seed in by_seed) for name in by_seed[0]}
    return Column(
        requests=requests,
        misfit=misfit,
        figures=figures,
        spreads={name: spreads(rows) for name, rows in figures.items()},
        ratios=_ratios(figures, "completion_mean_s"),
        tail_ratios=_ratios(figures, "completion_p95_s"),
        best_rival=best_of(figures),
    )


def best_of(figures: Mapping[str, Sequence[Figures]], rivals: Collection[str] = RIVALS) -> str:
    """The rival with the least mean completion time among those that were simulated; of all policies if none was."""
    means = _values(figures, "completion_mean_s")
    names = [name for name in means if name in rivals] or list(means)
    # with tuned requests `static` runs what `tuned` runs
    return min(names, key=lambda name: (float(means[name].mean()), name != "tuned"))


def _ratios(figures: Mapping[str, Sequence[Figures]], field: str) -> dict[str, dict[str, Interval]]:
    values = _values(figures, field)
    return {one: {other: ratio(values[one], values[other]) for other in values} for one in values}


def _values(figures: Mapping[str, Sequence[Figures]], field: str) -> dict[str, Floats]:
    return {name: np.array([getattr(one, field) for one in rows]) for name, rows in figures.items()}
