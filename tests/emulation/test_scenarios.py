"""Each named scenario has the bottleneck that its name says."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.simulator.queueing.fork_join import simulate
from elastichost.emulation.scenarios import SCENARIOS, scenario
from elastichost.tuner.facts import Configuration


def faster(name: str, configuration: Configuration, **cheaper: object) -> float:
    """The factor by which a configuration becomes faster when some costs are lower."""
    full = scenario(name)
    less = msgspec.structs.replace(full, **cheaper)
    return simulate(less, configuration, 60, 0).samples_per_s / simulate(full, configuration, 60, 0).samples_per_s


def test_names_differ_and_are_found() -> None:
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS) >= 7
    for one in SCENARIOS:
        assert scenario(one.name) is one
    with pytest.raises(ValueError, match="choose from compute_bound"):
        scenario("no_such")


def test_each_bottleneck_is_where_its_name_says() -> None:
    many = Configuration(16, 4, 4, 1)
    assert faster("compute_bound", Configuration(16, 4, 2, 1), sample_s=1e-9) > 2
    assert faster("server_bound", many, pull_sample_s=1e-9, push_sample_s=1e-9) > 2
    wire = scenario("network_bound").workload
    assert faster("network_bound", many, workload=msgspec.structs.replace(wire, bandwidth_bytes_per_s=1e12)) > 1.5
    assert faster("reader_bound", Configuration(16, 8, 8, 4), reader_sample_s=0.0) > 1.5
    assert faster("hot_server", Configuration(16, 16, 4, 1), skew=0.0) > 2
    assert faster("sync_stragglers", Configuration(32, 8, 2, 2), straggle_probability=0.0) > 1.3
    assert faster("unpipelined", Configuration(4, 4, 4, 4), overlap="both") > 1.3
    assert faster("bounded_noisy", Configuration(32, 16, 1, 4), staleness=10**6) > 1.03
    assert faster("direct_small_host", Configuration(8, 1), memory_threads=0.0) > 1.2
    assert faster("direct_small_host", Configuration(16, 1), oversubscription=0.0) > 1.2


def test_shares_sum_to_one_and_the_first_is_hot() -> None:
    for one in SCENARIOS:
        for servers in (1, 3, 16):
            shares = one.shares(servers)
            assert shares.sum() == pytest.approx(1.0)
            assert shares[0] == pytest.approx(one.skew + (1 - one.skew) / servers)


def test_a_worker_of_a_synchronous_job_has_its_part_of_the_batch() -> None:
    assert scenario("sync_stragglers").worker_batch(8) == 32768 / 8
    assert scenario("server_bound").worker_batch(8) == 2048
