"""What a job's own tuner proposes: open until it is granted, or until another configuration runs."""

from __future__ import annotations

from elastichost.tuner.cluster.proposals import Proposal, next_proposal, option_of
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.decision import Decision

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


def test_ps_need_cores_only_where_nothing_shares_them() -> None:
    wide = Proposal(HERE, Configuration(2, 3, 2), "move", "")
    found = [option_of(wide, cores) for cores in (0, 8, 3)]
    assert [one.cores for one in found if one is not None] == [7, 4, 3]
    assert option_of(None) is None
