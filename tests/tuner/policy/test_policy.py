"""The policy in small simulated worlds: it finds the best configuration at little cost, it always comes to rest, and it
changes nothing where there is no gain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, Workload, as_array
from elastichost.tuner.policy.candidates import Bounds, contains, count, enumerate_candidates
from elastichost.tuner.policy.policy import (
    MOST_RETURNS,
    Decision,
    TunerSettings,
    TunerState,
    absorb,
    advance,
)
from elastichost.tuner.policy.profile import ProfileSample, Totals
from elastichost.tuner.policy.trials import MOST_MOVES
from tests.effort import examples

LOOK_S, CHANGE_S = 0.5, 0.3
BATCH = 1000
ONE = Configuration(1, 1)
HOST = TunerSettings(
    Workload(batch_size=BATCH, host_cores=8),
    Bounds(ONE, Configuration(16, 4, 8), cores=8, oversubscription=2.0),
)
SMALL = TunerSettings(
    Workload(batch_size=BATCH, host_cores=4),
    Bounds(ONE, Configuration(8, 2, 2), cores=4, oversubscription=2.0),
)
Speed = Callable[[Configuration], float]


def on_host(configuration: Configuration, cores: int = 8) -> float:
    """A second thread of a worker adds half the speed of a worker, PS add nothing; with more threads than cores all
    processes are slower."""
    threads = configuration.workers * configuration.worker_cores
    return 50_000.0 * configuration.workers * configuration.worker_cores**0.5 / max(1.0, threads / cores) ** 1.4


@dataclass(slots=True)
class Run:
    """The history of a simulated run. looks: (sample, samples left, decision) for each call of the policy."""

    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    looks: list[tuple[ProfileSample, int, Decision | None]] = field(default_factory=list)
    state: TunerState = field(default_factory=TunerState)
    at_s: float = 0.0
    samples: float = 0.0

    def kinds(self) -> list[str]:
        return [decision.kind for _, decision in self.decisions]

    def tried(self) -> set[Configuration]:
        return {look.configuration for look, _, _ in self.looks if look.configuration is not None}

    @property
    def running(self) -> Configuration | None:
        return self.looks[-1][0].configuration


def play(
    of: TunerSettings,
    speed: Speed,
    start: Configuration,
    for_s: float,
    *,
    run: Run | None = None,
    samples_left: float = math.inf,
    cov: float = 0.0,
    seed: int = 0,
    follows: bool = True,
    most_workers: int | None = None,
) -> Run:
    """Simulates a run with two samples per second; the noise is log-AR(1) with rho 0.7. samples_left: at the start;
    inf: the samples that the first configuration trains in two hours."""
    run = run or Run()
    random, sd = np.random.default_rng(seed), math.sqrt(math.log1p(cov * cov))
    noise, present, changing_s = 0.0, start, 0.0
    if math.isinf(samples_left):
        samples_left = 7200 * speed(start)
    ends_s, total = run.at_s + for_s, run.samples + samples_left
    while run.at_s < ends_s and run.samples < total:
        batches = run.samples / BATCH
        look = ProfileSample(
            at_s=run.at_s,
            configuration=present if changing_s <= 0 else None,
            is_steady=True,
            samples=int(run.samples),
            totals=Totals(batches=batches, compute_s=batches * BATCH * present.workers / speed(present)),
            moving_s=0.1 if changing_s > 0 else None,
            most_workers=most_workers,
        )
        left = int(total - run.samples)
        run.state, decision = advance(run.state, look, left, of)
        run.looks.append((look, left, decision))
        changing_s -= LOOK_S
        if decision is not None:
            run.decisions.append((run.at_s, decision))
            if decision.configuration != present and follows:
                present, changing_s = decision.configuration, CHANGE_S
        noise = 0.7 * noise + math.sqrt(1 - 0.49) * sd * float(random.standard_normal())
        run.samples += speed(present) * math.exp(noise - sd * sd / 2) * LOOK_S
        run.at_s += LOOK_S
    return run


def best_of(of: TunerSettings, speed: Speed) -> float:
    return max(speed(Configuration(*row)) for row in enumerate_candidates(of.bounds).astype(int).tolist())


# --- the policy finds the best configuration --------------------------------------------------------------------------


@pytest.mark.parametrize("start", [ONE, Configuration(16, 4), Configuration(2, 1, 8), Configuration(8, 1)])
def test_a_run_ends_near_the_best_configuration_from_any_start(start: Configuration) -> None:
    run = play(HOST, on_host, start, 200.0)
    assert run.kinds()[-1] == "settle"
    assert run.running is not None and on_host(run.running) >= 0.95 * best_of(HOST, on_host)
    assert len(run.tried()) <= 8


def test_the_best_plan_is_kept() -> None:
    run = play(HOST, on_host, Configuration(8, 1), 300.0)
    assert run.running == Configuration(8, 1)
    assert len(run.decisions) <= 8


def test_a_clearly_bad_configuration_is_left_before_its_block_is_complete() -> None:
    run = play(HOST, on_host, ONE, 30.0, cov=0.3)
    at_s, first = run.decisions[0]
    assert first.kind == "move" and on_host(first.configuration) > 3 * on_host(ONE)
    assert at_s < HOST.block.most_s / 2


def test_numbers_of_ps_without_effect_are_hardly_tried() -> None:
    run = play(HOST, on_host, Configuration(8, 2), 300.0)
    others = {one.servers for one in run.tried()} - {2}
    assert len(others) <= 2


def test_windows_before_a_change_of_the_plan_count() -> None:
    """The plan is changed from outside while a noisy block is being measured."""
    noisy = play(HOST, on_host, Configuration(4, 1), 8.0, cov=0.4, follows=False)
    assert not noisy.state.observations
    state, block, _ = absorb(noisy.state, msgspec.structs.replace(noisy.looks[-1][0], configuration=None), HOST)
    assert block is not None and block.configuration == Configuration(4, 1)
    assert state.observations == (block,)


def test_workers_above_most_workers_are_neither_tried_nor_returned_to() -> None:
    run = play(HOST, on_host, ONE, 60.0, most_workers=4)
    assert max(one.workers for one in run.tried()) == 4
    free = play(HOST, on_host, Configuration(8, 1), 60.0)
    before = len(free.decisions)
    play(HOST, on_host, Configuration(3, 1), 120.0, run=free, most_workers=3)
    later = [decision.configuration.workers for _, decision in free.decisions[before:]]
    assert later and max(later) <= 3


def test_a_tuner_that_keeps_its_cores_exchanges_them() -> None:
    """It starts with one worker of 4 threads; more workers are faster with the same threads."""
    kept = msgspec.structs.replace(HOST, keeps_cores=True)
    run = play(kept, on_host, Configuration(1, 1, 4), 200.0)
    assert run.running is not None and on_host(run.running) > 1.5 * on_host(Configuration(1, 1, 4))
    assert max(one.workers * one.worker_cores for one in run.tried()) == 4
    free = play(HOST, on_host, Configuration(1, 1, 4), 200.0)
    assert max(one.workers * one.worker_cores for one in free.tried()) > 4


# --- the policy comes to rest -----------------------------------------------------------------------------------------


def assert_bounded(run: Run, of: TunerSettings) -> None:
    kinds = run.kinds()
    assert kinds.count("try") <= of.most_trials
    assert kinds.count("move") <= MOST_MOVES
    assert kinds.count("return") <= MOST_RETURNS
    wanted = as_array([decision.configuration for _, decision in run.decisions])
    assert contains(of.bounds, wanted).all()


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 10_000), rough=st.floats(0.0, 1.0))
def test_the_policy_comes_to_rest_where_no_model_fits(seed: int, rough: float) -> None:
    """The speed of every configuration is independent of the speeds of its neighbours."""

    def speed(configuration: Configuration) -> float:
        c = msgspec.structs.astuple(configuration)
        return 1e5 * math.exp(rough * float(np.random.default_rng((seed, *c)).standard_normal()))

    run = play(SMALL, speed, ONE, 400.0)
    assert_bounded(run, SMALL)
    assert run.kinds()[-1] == "settle"
    assert run.running == run.decisions[-1][1].configuration
    slowest_moves = [at_s for at_s, decision in run.decisions if decision.kind != "settle"]
    assert not slowest_moves or slowest_moves[-1] < 330.0


@settings(max_examples=examples(6), deadline=None)
@given(seed=st.integers(0, 10_000), cov=st.sampled_from([0.1, 0.5, 0.9]))
def test_noise_does_not_cause_many_changes(seed: int, cov: float) -> None:
    run = play(SMALL, lambda one: on_host(one, 4), Configuration(4, 1), 900.0, cov=cov, seed=seed)
    assert_bounded(run, SMALL)
    changes = [at_s for at_s, decision in run.decisions if decision.kind != "settle"]
    assert sum(at_s > 450.0 for at_s in changes) <= 4
    assert on_host(run.running or ONE, 4) >= 0.8 * best_of(SMALL, lambda one: on_host(one, 4))


def test_a_configuration_that_never_runs_is_not_decided_for_again_and_again() -> None:
    """The decisions are not carried out: in watch mode, or because the plans are not possible."""
    run = play(SMALL, lambda one: on_host(one, 4), ONE, 600.0, follows=False)
    asked = [decision.configuration for _, decision in run.decisions if decision.kind in ("try", "move")]
    assert max(asked.count(one) for one in asked) <= 2
    assert_bounded(run, SMALL)


# --- the policy depends only on its input -----------------------------------------------------------------------------


def test_the_same_samples_give_the_same_decisions() -> None:
    first = play(SMALL, lambda one: on_host(one, 4), ONE, 60.0, cov=0.2)
    state = TunerState()
    for look, left, decided in first.looks:
        before = msgspec.msgpack.encode(state.observations)
        later, again = advance(state, look, left, SMALL)
        assert again == decided
        assert msgspec.msgpack.encode(state.observations) == before
        state = later
    assert state == first.state


def test_a_run_that_ends_soon_makes_no_trials() -> None:
    """Twenty seconds are left, and the first configuration is the best one; a longer run would not know that either."""
    run = play(HOST, on_host, Configuration(8, 1), 100.0, samples_left=20 * on_host(Configuration(8, 1)))
    assert "try" not in run.kinds()
    assert len(run.tried()) <= 2


@pytest.mark.parametrize("explore", ["safe", "free", "off"])
def test_explore_limits_the_trials(explore: str) -> None:
    of = msgspec.structs.replace(HOST, explore=explore)
    run = play(of, on_host, ONE, 150.0, cov=0.05)
    if explore == "off":
        assert "try" not in run.kinds()
    fastest = 0.0
    for _, decision in run.decisions:
        assert decision.present is not None
        fastest = max(fastest, decision.present.samples_per_s)
        if decision.kind == "try" and explore == "safe":
            assert decision.expected is not None
            assert decision.expected.samples_per_s > 0.9 * 0.95 * fastest


def test_every_decision_has_a_reason() -> None:
    run = play(HOST, on_host, ONE, 150.0)
    for _, decision in run.decisions:
        assert decision.reason and decision.present is not None and decision.expected is not None
        assert str(decision.configuration) in decision.reason
        assert 0 <= decision.rank <= decision.parameters and decision.observed >= 1


def test_one_candidate_only() -> None:
    alone = msgspec.structs.replace(SMALL, bounds=Bounds(ONE, ONE, cores=4))
    assert count(alone.bounds) == 1
    run = play(alone, on_host, ONE, 60.0)
    assert run.kinds() == ["settle"]
    assert "all other allowed configurations were measured too" in run.decisions[0][1].reason


# --- changes of speed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.7, 1.4])
@pytest.mark.parametrize("cov", [0.0, 0.2])
def test_a_change_of_speed_is_detected_and_followed(factor: float, cov: float) -> None:
    run = play(SMALL, lambda one: on_host(one, 4), Configuration(4, 1), 240.0, cov=cov)
    before = len(run.decisions)
    assert run.running is not None
    play(SMALL, lambda one: factor * on_host(one, 4), run.running, 240.0, run=run, cov=cov, seed=1)
    later = run.decisions[before:]
    told = [at_s for at_s, decision in later if decision.has_drifted]
    assert told and told[0] < 240.0 + 90.0
    assert sum(decision.kind != "settle" for _, decision in later) <= 10
    assert run.state.is_settled
    assert run.running is not None and on_host(run.running, 4) >= 0.9 * best_of(SMALL, lambda one: on_host(one, 4))


def test_after_a_change_another_configuration_may_be_best() -> None:
    """Other processes take half the cores of the host."""
    run = play(HOST, on_host, Configuration(8, 1), 120.0)
    assert run.running is not None
    play(HOST, lambda one: on_host(one, 4), run.running, 240.0, run=run)
    assert run.running is not None and on_host(run.running, 4) >= 0.93 * best_of(HOST, lambda one: on_host(one, 4))


def test_a_common_slowdown_keeps_the_known_ratios_of_speeds() -> None:
    run = play(SMALL, lambda one: on_host(one, 4), ONE, 200.0)
    assert len(run.state.observations) > 1 and not run.state.faded
    before, known = run.running, {one.configuration for one in run.state.observations}
    looks = len(run.looks)
    play(SMALL, lambda one: 0.6 * on_host(one, 4), before or ONE, 200.0, run=run)
    now = {look.configuration for look, _, _ in run.looks[looks:]} - {None}
    assert run.running == before and len(now) <= 3
    faded = {one.configuration: one for one in run.state.faded}
    assert set(faded) == known - {before}
    for configuration, one in faded.items():
        assert one.samples_per_s == pytest.approx(0.6 * on_host(configuration, 4), rel=0.05)
        assert one.log_error > 0.1 and one.compute_s is None


def test_one_outlying_block_is_no_change() -> None:
    """Other processes used the machine for some seconds."""
    run = play(SMALL, lambda one: on_host(one, 4), Configuration(4, 1), 100.0)
    assert run.running is not None
    decisions, known = len(run.decisions), run.state.observations
    play(SMALL, lambda one: 0.83 * on_host(one, 4), run.running, 3.0, run=run)
    play(SMALL, lambda one: on_host(one, 4), run.running, 60.0, run=run)
    assert not any("changed" in one.reason for _, one in run.decisions[decisions:])
    speeds = {one.configuration: one.samples_per_s for one in run.state.observations}
    for one in known:
        assert speeds[one.configuration] == pytest.approx(one.samples_per_s, rel=0.05)


def test_a_settled_run_is_reconsidered_more_and_more_rarely() -> None:
    run = play(SMALL, lambda one: on_host(one, 4), Configuration(4, 1), 1000.0)
    assert run.state.is_settled and run.state.patience_s >= 240.0
    assert all(at_s < 200.0 for at_s, _ in run.decisions)
    play(SMALL, lambda one: 0.5 * on_host(one, 4), run.running or ONE, 60.0, run=run)
    assert run.state.patience_s < 240.0
