"""The speed functions of Optimus: their coefficients are recovered; cores have no effect."""

from __future__ import annotations

import numpy as np
import pytest

from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.published.optimus import fit

TRIED = [Configuration(*one) for one in ((1, 1), (4, 1), (8, 2), (16, 8), (2, 4), (32, 16), (6, 3))]


def test_the_asynchronous_function_is_recovered() -> None:
    def speed(w: int, p: int) -> float:
        return 100 * w / (0.02 + 0.003 * w / p + 0.001 * w + 0.0005 * p)

    seen = [Observation(one, speed(one.workers, one.servers), 0.01) for one in TRIED]
    fitted = fit(Workload(100), seen)
    names = ("constant", "workers_per_server", "workers", "servers")
    assert fitted.parameters == pytest.approx(dict(zip(names, (0.02, 0.003, 0.001, 0.0005), strict=True)), rel=1e-6)
    assert (fitted.name, fitted.rank) == ("optimus", 4)
    assert fitted.predict(as_array([Configuration(12, 5)])).samples_per_s[0] == pytest.approx(speed(12, 5))


def test_the_synchronous_function_is_recovered() -> None:
    def steps_per_s(w: int, p: int) -> float:
        return 1 / (1e-4 * 4096 / w + 0.02 + 0.003 * w / p + 0.001 * w + 0.0005 * p)

    seen = [Observation(one, 4096 * steps_per_s(one.workers, one.servers), 0.01) for one in TRIED]
    fitted = fit(Workload(4096, "sync"), seen)
    assert fitted.parameters["batch"] == pytest.approx(1e-4, rel=1e-5)
    assert fitted.rank == fitted.parameters_total == 5
    found = fitted.predict(as_array([Configuration(12, 5)])).samples_per_s[0]
    assert found == pytest.approx(4096 * steps_per_s(12, 5), rel=1e-5)


def test_cores_have_no_effect() -> None:
    fitted = fit(Workload(100), [Observation(one, 1000.0 * one.workers, 0.01) for one in TRIED])
    found = fitted.predict(as_array([Configuration(8, 2, 1, 1), Configuration(8, 2, 8, 8)])).samples_per_s
    assert found[0] == found[1]
    np.testing.assert_allclose(fitted.predict(as_array([Configuration(8, 2)]), hot_share=0.9).samples_per_s, found[0])
