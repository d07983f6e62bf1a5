"""The throughput function of Pollux: it is recovered; PS and cores have no effect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.published.pollux import fit
from tests.effort import examples

WORKERS = (1, 2, 3, 4, 6, 8, 12, 16)


def step_s(workers: int, batch: float) -> float:
    gradient = 0.01 + 2e-5 * batch
    synchronising = 0.02 + 0.004 * (workers - 2) if workers > 1 else 0.0
    return float((gradient**2 + synchronising**2) ** 0.5)


def test_the_function_is_recovered_in_both_modes() -> None:
    for mode in ("async", "sync"):
        workload = Workload(4096, mode)  # type: ignore[arg-type]

        def speed(workers: int, mode: str = mode) -> float:
            if mode == "sync":
                return 4096 / step_s(workers, 4096 / workers)
            return workers * 4096 / step_s(workers, 4096)

        fitted = fit(workload, [Observation(Configuration(w, 2), speed(w), 0.01) for w in WORKERS])
        found = fitted.predict(as_array([Configuration(10, 2), Configuration(10, 9, 4, 4)]))
        assert found.samples_per_s[0] == pytest.approx(speed(10), rel=0.02)
        # neither the number of PS nor cores have an effect
        assert found.samples_per_s[1] == found.samples_per_s[0]
        assert fitted.name == "pollux" and 1 <= fitted.rank <= fitted.parameters_total == 5


def test_more_than_twice_the_observed_workers_are_extrapolated() -> None:
    seen = [Observation(Configuration(w, 1), 1000.0 * w, 0.01) for w in (1, 2, 4)]
    found = fit(Workload(100), seen).predict(as_array([Configuration(8, 1), Configuration(9, 1)]))
    assert list(found.is_extrapolated) == [False, True]
    assert found.log_error[1] > 10 * found.log_error[0]


def test_without_observations_predictions_are_guesses() -> None:
    fitted = fit(Workload(100), [])
    found = fitted.predict(as_array([Configuration(1, 1), Configuration(4, 1)]))
    assert found.is_extrapolated.all() and np.isfinite(found.samples_per_s).all()
    assert fitted.confidence == 0.0 and fitted.posterior().mean == {}


@settings(deadline=None, max_examples=examples(30))
@given(
    seen=st.lists(st.tuples(st.integers(1, 40), st.floats(1e-2, 1e8)), min_size=1, max_size=6),
    mode=st.sampled_from(["async", "sync", "bounded"]),
)
def test_every_valid_observation_can_be_fitted(seen: list[tuple[int, float]], mode: str) -> None:
    workload = Workload(512, mode)  # type: ignore[arg-type]
    fitted = fit(workload, [Observation(Configuration(w, 1), speed, 0.1) for w, speed in seen])
    found = fitted.predict(as_array([Configuration(w, 1) for w in (1, 2, 40)]))
    for column in (found.samples_per_s, found.low, found.high, found.log_error):
        assert np.isfinite(column).all() and (column >= 0).all()
