"""A job and the settings of a search."""

from __future__ import annotations

from pathlib import Path

from elastichost.config.job import JobSpec, make_job
from elastichost.search.objective import Objective
from elastichost.search.settings import SearchSettings
from elastichost.search.space import parse_parameters

__all__ = ["job", "settings_of"]


def job(name: str = "ads", **evaluate: object) -> JobSpec:
    """A small valid job."""
    facts = {
        "job": {"name": name},
        "model": {"build": "elastichost.models:dlrm"},
        "data": {"format": "synthetic"},
        "evaluate": evaluate,
    }
    return make_job(facts, Path("/"), "the job", environ={})


def settings_of(*texts: str, trials: int = 4) -> SearchSettings:
    return SearchSettings(
        parse_parameters(list(texts)), trials, Objective("auc", "maximize"), 0, "/home/user", "/home/user/jobs"
    )
