"""The values of a comparison of runs, which is rendered as a page or printed as JSON. Pure."""

from __future__ import annotations

import msgspec

from elastichost.reporting.run.facts import Curve, Gap

__all__ = ["ComparedRun", "Comparison", "SettingDifference"]


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run among others; None and "" mean not known. name: of its directory, unique in the comparison. faults:
    number of faults and warnings."""

    name: str
    job: str
    run_dir: str
    state: str
    began_utc: str
    samples_trained: int | None
    running_s: float
    samples_per_s: float | None
    auc: float | None
    logloss: float | None
    peak_bytes: int | None
    workers: int | None
    servers: int | None
    restarts: int | None
    faults: int
    curve: Curve


class SettingDifference(msgspec.Struct, frozen=True):
    """A setting that is not the same in all runs. values: in the order of the runs, as JSON; None: the run lacks it."""

    name: str
    values: tuple[str | None, ...]


class Comparison(msgspec.Struct, frozen=True):
    made_utc: str
    runs: tuple[ComparedRun, ...]
    differences: tuple[SettingDifference, ...]
    gaps: tuple[Gap, ...]
