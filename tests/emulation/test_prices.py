"""The times of an emulated job: noise with the right mean and correlation, computing by cores, requests by share."""

from __future__ import annotations

import numpy as np
import pytest

from elastichost.emulation.prices import Price, Pricing, Varying
from elastichost.emulation.scenarios import Scenario, scenario
from elastichost.errors import ProtocolError
from elastichost.tuner.facts import Workload


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def plain(**changes: object) -> Scenario:
    """A scenario without noise, with some fields changed."""
    facts = {"name": "plain", "workload": Workload(batch_size=100), "sample_s": 1e-3, "compute_cov": 0.0}
    return Scenario(**{**facts, "server_cov": 0.0, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("cov", "kept"), [(0.1, 0.0), (0.4, 0.7), (1.0, 0.0)])
def test_noise_has_mean_one_its_variation_and_its_correlation(cov: float, kept: float) -> None:
    varying = Varying(cov, kept, generator())
    drawn = np.array([varying.next() for _ in range(60_000)])
    assert drawn.mean() == pytest.approx(1.0, abs=0.02)
    assert drawn.std() == pytest.approx(cov, rel=0.05)
    logs = np.log(drawn) - np.log(drawn).mean()
    assert (logs[1:] * logs[:-1]).mean() / (logs**2).mean() == pytest.approx(kept, abs=0.02)


def test_without_noise_nothing_varies() -> None:
    assert Varying(0.0, 0.7, generator()).next() == 1.0


def test_computing_shares_all_but_the_serial_part_among_the_cores() -> None:
    pricing = Pricing(plain(serial_s=0.02, parallel_cores=4, thread_loss=0.1), generator())
    one, two, many = (pricing.computing(100, cores) for cores in (1, 2, 16))
    assert one == pytest.approx((0.02 + 0.1, 0.02 + 0.1))
    assert two == pytest.approx((0.02 + 0.1 * 1.1 / 2, 0.02 + 0.1 * 1.1))
    assert many == pytest.approx((0.02 + 0.1 * 1.3 / 4, 0.02 + 0.1 * 1.3)), (
        "cores beyond parallel_cores have nothing to do"
    )
    assert pricing.computing(50, 1) == pytest.approx((0.02 + 0.05, 0.02 + 0.05))


def test_stragglers_take_straggle_factor_times_as_long() -> None:
    pricing = Pricing(plain(straggle_probability=0.25, straggle_factor=3.0), generator())
    drawn = np.array([pricing.computing(100, 1).wall_s for _ in range(4000)])
    assert set(np.round(drawn, 9)) == {0.1, 0.3}
    assert (drawn > 0.2).mean() == pytest.approx(0.25, abs=0.03)


def test_a_request_costs_by_its_share_and_moves_bytes_in_its_direction() -> None:
    workload = Workload(batch_size=100, dense_bytes=1000, bandwidth_bytes_per_s=1e4)
    of = plain(workload=workload, pull_sample_s=1e-3, push_sample_s=2e-3, request_s=0.01, dense_s=0.5, latency_s=0.1)
    pricing = Pricing(of, generator())
    pull = pricing.request("pull", 100, 0.25, 7.0, is_dense_owner=True)
    assert pull == pytest.approx((7.0, 0.1, 0.01 + 0.025, 0.0, 0.025))
    push = pricing.request("push", 100, 0.25, 7.0, is_dense_owner=False)
    assert push == pytest.approx((7.0, 0.1, 0.01 + 0.05, 0.025, 0.0))
    owner = pricing.request("push", 100, 0.25, 7.0, is_dense_owner=True)
    assert owner.service_s - push.service_s == pytest.approx(0.5)


def test_the_same_seed_gives_the_same_prices() -> None:
    def drawn(seed: int) -> list[object]:
        pricing = Pricing(scenario("unpipelined"), generator(seed))
        return [pricing.computing(9, 1), pricing.request("pull", 9, 1.0, 0.0, is_dense_owner=False)]

    assert drawn(5) == drawn(5) != drawn(6)


def test_a_price_travels_as_a_frame() -> None:
    price = Price(123456.789, 1e-3, 2e-3, 3e-3, 4e-3)
    assert Price.decode(memoryview(price.encode())) == price
    with pytest.raises(ProtocolError, match="39 bytes"):
        Price.decode(memoryview(price.encode()[:-1]))
