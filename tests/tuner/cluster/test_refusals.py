"""Configurations that did not fit on the hosts are not granted again for a while."""

from __future__ import annotations

import pytest

from elastichost.tuner.cluster.refusals import REFUSED_S, RefusedGrants, is_refused, noted, open_options
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import Option, OptionArray

HERE, THERE = Configuration(1, 1), Configuration(9, 9)
BOTH = OptionArray.of([Option(one, 1.0, one.cores) for one in (HERE, THERE)])


def test_what_runs_is_not_refused() -> None:
    assert not is_refused(noted(RefusedGrants(), {0: HERE}, {0: HERE}, 100.0), 0, HERE)


def test_a_refused_configuration_is_left_out_for_a_while() -> None:
    known = noted(RefusedGrants(), {0: THERE}, {0: HERE, 1: HERE}, 100.0)
    assert is_refused(known, 0, THERE) and not is_refused(known, 1, THERE)
    assert [open_options(known, 0, BOTH)[0].configuration] == [HERE] and len(open_options(known, 0, BOTH)) == 1
    assert len(open_options(known, 1, BOTH)) == 2
    later = noted(known, {}, {0: HERE}, 100.0 + REFUSED_S)
    assert not later.until_s


@pytest.mark.parametrize("configuration", [HERE, THERE])
def test_the_only_option_stays(configuration: Configuration) -> None:
    known = noted(RefusedGrants(), {0: configuration}, {0: None}, 0.0)
    only = OptionArray.of([Option(configuration, 1.0, 1)])
    assert len(open_options(known, 0, only)) == 1


def test_a_configuration_that_runs_is_not_refused_any_more() -> None:
    known = noted(RefusedGrants(), {0: THERE}, {0: HERE}, 100.0)
    assert not noted(known, {}, {0: THERE}, 101.0).until_s


def test_jobs_that_ended_are_forgotten() -> None:
    known = noted(RefusedGrants(), {0: THERE}, {0: HERE}, 100.0)
    assert not noted(known, {}, {1: HERE}, 101.0).until_s
