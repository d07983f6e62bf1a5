"""The equations: derivatives, limiting cases, and monotonicity in cores and servers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, Workload, as_array
from elastichost.tuner.models.posynomial import Tape
from elastichost.tuner.models.queueing_equations import Columns, Predicted, natural, parameter_beliefs, predicted
from tests.effort import examples

SERVED = Workload(2048, "async", "served", row_bytes=1664, dense_bytes=10**6, bandwidth_bytes_per_s=1e9)
WORKLOADS = (
    SERVED,
    Workload(2048, "bounded", "served"),
    Workload(32768, "sync", "served", row_bytes=1664, dense_bytes=10**6, bandwidth_bytes_per_s=1e9),
    Workload(2048, "async", "direct", host_cores=8),
    Workload(2048, "sync", "served", host_cores=8, bandwidth_bytes_per_s=1e9),
)
# parameters that all have an effect in some configuration
TIMES = {
    "serial_s": 3e-3,
    "sample_s": 2e-5,
    "useful_cores": 6.0,
    "server_sample_s": 5e-6,
    "request_s": 5e-5,
    "latency_s": 1e-3,
    "burst": 0.6,
    "step_s": 2e-3,
    "stragglers": 0.1,
    "reader_sample_s": 5e-6,
    "moved_share": 0.7,
    "link_speed": 1.0,
    "memory_contention": 0.03,
    "oversubscription": 0.5,
    "cpu_ratio": 1.0,
    "thread_loss": 0.1,
}
SOME = as_array(
    [Configuration(1, 1), Configuration(3, 2, 4, 1), Configuration(32, 16, 8, 8), Configuration(12, 1, 2, 3)]
)


def held(workload: Workload, **changes: float) -> dict[str, float]:
    """The logarithms and logits of the parameters by name."""
    names = [one.name for one in parameter_beliefs(workload, 1e-2, reads=True, is_guess=False)]
    return {name: changes.get(name, math.log(TIMES[name]) if name in TIMES else 0.0) for name in names}


def evaluate(
    workload: Workload, parameters: dict[str, float], configurations: np.ndarray = SOME, skew: float = 0.0
) -> tuple[Tape, Predicted]:
    tape = Tape()
    leaves = {name: tape.leaf(value) for name, value in parameters.items()}
    shares = skew + (1.0 - skew) / configurations[:, 1]
    return tape, predicted(tape, leaves, Columns(configurations, shares, workload))


def speeds(workload: Workload, configurations: list[Configuration], skew: float = 0.0, **changes: float) -> np.ndarray:
    found = evaluate(workload, held(workload, **changes), as_array(configurations), skew)[1]
    return np.asarray(np.exp(found.samples_per_s.log))


@settings(deadline=None, max_examples=examples(60))
@given(workload=st.sampled_from(WORKLOADS), shifts=st.lists(st.floats(-1.5, 1.5), min_size=20, max_size=20))
def test_derivatives_agree_with_finite_differences(workload: Workload, shifts: list[float]) -> None:
    parameters = {name: value + shift for (name, value), shift in zip(held(workload).items(), shifts, strict=False)}
    tape, found = evaluate(workload, parameters, skew=0.2)
    for kind, quantity in enumerate(found):
        if quantity is None:
            continue
        exact = tape.gradients(quantity, len(parameters), len(SOME))
        for place, name in enumerate(parameters):
            logs = []
            for step in (1e-5, -1e-5):
                moved = evaluate(workload, {**parameters, name: parameters[name] + step}, skew=0.2)[1][kind]
                assert moved is not None
                logs.append(moved.log)
            np.testing.assert_allclose(exact[place], (logs[0] - logs[1]) / 2e-5, atol=1e-6, err_msg=f"{kind} {name}")


def test_parts_exist_where_the_job_has_them() -> None:
    names = {workload: set(held(workload)) for workload in WORKLOADS}
    assert "overlap" in names[SERVED] and "burst" not in names[SERVED]
    assert "burst" in names[WORKLOADS[2]] and "overlap" not in names[WORKLOADS[2]]
    assert "moved_share" not in names[WORKLOADS[1]] and "stragglers" in names[WORKLOADS[1]]
    assert "memory_contention" in names[WORKLOADS[3]] and "memory_contention" not in names[SERVED]
    reads = {one.name for one in parameter_beliefs(SERVED, 1e-2, reads=False, is_guess=False)}
    assert reads == names[SERVED] - {"reader_sample_s"}
    found = evaluate(SERVED, {name: value for name, value in held(SERVED).items() if name != "reader_sample_s"})[1]
    assert found.reader_s is None and found.cpu_s is None and found.bytes_moved is not None


def test_the_iteration_of_one_worker_is_computing_plus_a_round_trip() -> None:
    sharp = {"overlap": -30.0, "sharpness": 30.0, "reader_sample_s": math.log(1e-12)}
    seconds = 2048 / speeds(SERVED, [Configuration(1, 1)], **sharp)[0]
    # computing with one of six useful cores; bytes in both directions
    bytes_moved = 0.7 * 2 * (2048 * 1664 + 10**6)
    assert seconds == pytest.approx(3e-3 + 2048 * 2e-5 + 5e-5 + 2048 * 5e-6 + 1e-3 + bytes_moved / 1e9, rel=1e-4)


def test_the_busiest_server_limits_many_workers() -> None:
    found = speeds(SERVED, [Configuration(1000, 4, 8, 2)], skew=0.1, link_speed=10.0, sharpness=30.0)[0]
    share = 0.1 + 0.9 / 4
    assert found == pytest.approx(2048 * 2 / (5e-5 + 2048 * 5e-6 * share), rel=0.01)


def test_one_direction_of_a_link_limits_many_workers() -> None:
    found = speeds(SERVED, [Configuration(1000, 4, 8, 8)], link_speed=math.log(0.01), sharpness=30.0)[0]
    assert found == pytest.approx(2048 * 0.01 * 1e9 / (0.7 * (2048 * 1664 + 10**6) / 4), rel=0.01)


def test_a_slow_reader_limits_the_speed() -> None:
    found = speeds(SERVED, [Configuration(3, 16, 8, 8)], reader_sample_s=math.log(1e-3), sharpness=30.0)[0]
    assert found == pytest.approx(3 / 1e-3, rel=0.01)


def test_one_thread_loses_nothing_and_two_may_be_slower_than_one() -> None:
    tried = as_array([Configuration(1, 1, 1), Configuration(1, 1, 2), Configuration(1, 1, 4)])
    found = {
        loss: evaluate(WORKLOADS[3], held(WORKLOADS[3], thread_loss=math.log(loss)), tried)[1] for loss in (0.1, 3.0)
    }
    few, many = (np.exp(found[loss].compute_s.log) for loss in (0.1, 3.0))
    assert many[0] == pytest.approx(few[0])
    assert few[0] > few[1] > few[2] and many[2] > many[1] > many[0]
    used = found[3.0].cpu_s
    assert used is not None and (np.diff(used.log) > 0).all()


def test_the_cores_of_a_host_limit_the_speed() -> None:
    host = WORKLOADS[3]
    rest = {"memory_contention": math.log(1e-9), "oversubscription": math.log(1e-9), "thread_loss": math.log(1e-9)}
    found = speeds(host, [Configuration(8, 1, 1, 4), Configuration(64, 1, 1, 4), Configuration(16, 1, 4, 4)], **rest)
    cpu_s = 3e-3 + 2048 * (2e-5 + 5e-6 + 5e-6) + 5e-5
    assert (found <= 1.001 * 8 * 2048 / cpu_s).all()
    assert found[1] == pytest.approx(8 * 2048 / cpu_s, rel=0.02)
    slower = speeds(host, [Configuration(64, 1, 1, 4)], **rest | {"oversubscription": 0.0})
    assert slower[0] < 0.5 * found[1]


def test_servers_on_few_cores_of_a_host_work_sequentially() -> None:
    host = WORKLOADS[4]
    four = [Configuration(2, 1), Configuration(2, 4)]
    apart, in_turn = (speeds(host, four, packed=packed, step_s=math.log(0.02)) for packed in (-30.0, 30.0))
    assert apart[1] >= apart[0] and in_turn[1] < 0.8 * in_turn[0]
    assert in_turn[0] == pytest.approx(apart[0])


def test_servers_finish_a_step_once_for_all_workers() -> None:
    found = evaluate(WORKLOADS[2], held(WORKLOADS[2], request_s=math.log(1e-9)))[1]
    assert np.exp(found.server_cpu_s.log) == pytest.approx(32768 * 5e-6 + 2e-3 * SOME[:, 1], rel=1e-3)


@settings(deadline=None, max_examples=examples(60))
@given(
    workload=st.sampled_from(WORKLOADS[:3]),
    shifts=st.lists(st.floats(-2.0, 2.0), min_size=20, max_size=20),
    workers=st.integers(1, 40),
    servers=st.integers(1, 20),
)
def test_cores_and_servers_never_make_a_job_slower(
    workload: Workload, shifts: list[float], workers: int, servers: int
) -> None:
    """If processes have their own cores. One more PS costs one more request, but the busiest PS gets none of it."""
    names = held(workload)
    changes = {name: value + shift for (name, value), shift in zip(names.items(), shifts, strict=False)}
    base = Configuration(workers, servers, 2, 2)
    better = [base, Configuration(workers, servers, 3, 2), Configuration(workers, servers, 2, 3)]
    found = speeds(workload, [*better, Configuration(workers, servers + 1, 2, 2)], **changes)
    assert (found[1:] >= 0.999999 * found[0]).all()


def test_stragglers_slow_many_workers_more_than_few() -> None:
    sync = WORKLOADS[2]
    alone = [Configuration(w, 16, 4, 8) for w in (1, 4, 32)]
    none = speeds(sync, alone, stragglers=math.log(1e-9))
    short_tail, long_tail = speeds(sync, alone, straggler_tail=-5.0), speeds(sync, alone, straggler_tail=5.0)
    assert short_tail[0] == pytest.approx(none[0], rel=1e-6)
    assert (short_tail[1:] < none[1:]).all() and (long_tail[1:] < short_tail[1:]).all()
    assert long_tail[2] / short_tail[2] < long_tail[1] / short_tail[1] < 1.0
    middle = speeds(sync, alone, straggler_tail=math.log(0.5))  # x = 0: the logarithm
    near = speeds(sync, alone, straggler_tail=math.log(0.5) + 1e-4)
    np.testing.assert_allclose(middle, near, rtol=1e-4)


def test_natural_values_are_within_their_bounds() -> None:
    assert natural("serial_s", math.log(0.25)) == pytest.approx(0.25)
    assert natural("overlap", 0.0) == 0.5 and natural("sharpness", 800.0) == 10.0 and natural("chain", -800.0) == 0.3
