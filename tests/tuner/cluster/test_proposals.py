"""What a job's own tuner proposes: open until it is granted, or until another configuration runs."""

from __future__ import annotations

from functools import partial

import pytest

from elastichost.tuner.cluster.proposals import Proposal, next_proposal, option_of
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import Option
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.decision import Decision
from elastichost.tuner.policy.job_frontier import cores_of

HERE, THERE, ELSEWHERE = Configuration(2, 1), Configuration(1, 2), Configuration(2, 2)
OPEN = Proposal(HERE, THERE, "try", "it may be faster")


def decided(configuration: Configuration) -> Decision:
    return Decision("try", configuration, "it may be faster")


def test_a_decision_for_another_configuration_is_proposed() -> None:
    assert next_proposal(None, decided(THERE), HERE) == OPEN
    assert next_proposal(OPEN, decided(ELSEWHERE), HERE) == Proposal(HERE, ELSEWHERE, "try", "it may be faster")


def test_a_decision_to_stay_closes_the_proposal() -> None:
    assert next_proposal(OPEN, decided(HERE), HERE) is None


def test_a_proposal_stays_open_until_another_configuration_runs() -> None:
    assert next_proposal(OPEN, None, HERE) is OPEN
    assert next_proposal(OPEN, None, None) is OPEN, "a process has just been restarted"
    assert next_proposal(OPEN, None, THERE) is None, "it was granted"
    assert next_proposal(OPEN, None, ELSEWHERE) is None, "something else was granted"


@pytest.mark.parametrize(("share_cores", "cores"), [(False, 7), (True, 4)])
def test_the_cores_of_a_proposal_are_counted_as_those_of_the_other_options(share_cores: bool, cores: int) -> None:
    bounds = Bounds(HERE, Configuration(9, 9, 9), share_cores=share_cores)
    wide = Configuration(2, 3, 2)
    found = option_of(Proposal(HERE, wide, "move", ""), partial(cores_of, bounds=bounds))
    assert found == Option(wide, 0.0, cores)
    assert option_of(None, partial(cores_of, bounds=bounds)) is None
