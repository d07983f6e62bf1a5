"""The choice of a model by name, and the observations that every model refuses."""

from __future__ import annotations

import math

import msgspec
import pytest

from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.registry import MODELS, fit

WORKLOAD = Workload(100)
SEEN = [Observation(Configuration(w, p), 1000.0 * w, 0.02) for w, p in ((1, 1), (2, 1), (4, 2), (8, 4))]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_fits_predicts_and_describes_its_fit(name: str) -> None:
    fitted = fit(name, WORKLOAD, SEEN)
    assert (fitted.name, fitted.workload, fitted.observations, fitted.configurations) == (name, WORKLOAD, 4, 4)
    assert 0 < fitted.rank <= fitted.parameters_total == len(fitted.parameters)
    assert 0.0 < fitted.confidence <= 1.0
    found = fitted.predict(as_array([Configuration(6, 3)]), hot_share=0.5)
    assert found.low[0] < found.samples_per_s[0] < found.high[0]
    assert bool(fitted.posterior().mean) == (name == "elastichost")
    again = fit(name, WORKLOAD, [*SEEN, SEEN[0]])
    assert (again.observations, again.configurations) == (5, 4)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ValueError, match="the models are elastichost, dlrover_rm"):
        fit("linear", WORKLOAD, SEEN)


@pytest.mark.parametrize("name", MODELS)
def test_invalid_observations_are_refused(name: str) -> None:
    for changes in (
        {"samples_per_s": 0.0},
        {"samples_per_s": math.nan},
        {"samples_per_s": math.inf},
        {"log_error": -0.1},
        {"log_error": math.nan},
        {"configuration": Configuration(0, 1)},
        {"configuration": Configuration(1, 1, 0)},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - the messages differ
            fit(name, WORKLOAD, [*SEEN, msgspec.structs.replace(SEEN[0], **changes)])
    with pytest.raises(ValueError, match="batch_size"):
        fit(name, Workload(0), SEEN)
