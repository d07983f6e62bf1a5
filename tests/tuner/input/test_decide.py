"""The tuner of the input in worlds that are known exactly."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastichost.tuner.input.decide import InputState, decide, holds_workers, is_tuning
from elastichost.tuner.input.facts import InputLook, InputTunerSettings
from elastichost.wire.facts import Cache, InputKnobs
from tests.tuner.input.world import LocalFile, Run, Source, UnevenSource

SOURCES = st.builds(
    Source,
    bandwidth=st.floats(1e6, 1e8),
    latency_s=st.sampled_from([0.0, 0.005, 0.05, 0.2]),
    sample_bytes=st.floats(50.0, 2000.0),
    compute_s=st.floats(2e-6, 1e-4),
    decode_s=st.floats(1e-7, 5e-6),
    workers=st.integers(1, 4),
)


def test_a_source_of_7_megabytes_per_s_is_read_over_as_many_connections_as_two_workers_can_take() -> None:
    run = Run(Source())
    run.pass_time(10.0)
    assert run.share_of_best >= 0.95
    assert 3 <= run.knobs.connections <= 6
    assert [one.kind for one in run.decisions] == ["tune", "settle"]
    assert not holds_workers(run.state) and not is_tuning(run.state)


@settings(max_examples=150, deadline=None)
@given(source=SOURCES)
def test_every_source_is_used_as_well_as_by_the_best_knobs_within_30_seconds(source: Source) -> None:
    run = Run(source)
    run.pass_time(30.0)
    assert run.share_of_best >= 0.95
    assert not is_tuning(run.state)


@settings(max_examples=60, deadline=None)
@given(source=SOURCES, bandwidth=st.floats(0.3, 0.6))
def test_after_its_bandwidth_has_fallen_the_source_is_used_as_well_again_after_15_seconds(
    source: Source, bandwidth: float
) -> None:
    run = Run(source)
    run.pass_time(30.0)
    run.change(bandwidth=bandwidth * source.bandwidth)
    run.pass_time(15.0)
    assert run.share_of_best >= 0.95


@settings(max_examples=60, deadline=None)
@given(source=SOURCES, share=st.floats(0.1, 0.9))
def test_a_link_that_is_full_is_used_and_no_connections_are_added_for_nothing(source: Source, share: float) -> None:
    """The link has a share of what the workers could take."""
    full = source.workers / (source.compute_s + source.decode_s) * source.sample_bytes
    run = Run(with_link(source, link=share * full))
    run.pass_time(40.0)
    assert run.share_of_best >= 0.9
    assert len(run.decisions) <= 16


def with_link(source: Source, link: float) -> Source:
    run = Run(source)
    run.change(link=link)
    return run.source


def test_a_settled_input_is_left_alone() -> None:
    run = Run(Source())
    run.pass_time(10.0)
    made = len(run.decisions)
    run.pass_time(120.0)
    assert len(run.decisions) == made


def test_while_the_source_bounds_the_speed_no_worker_is_added() -> None:
    run = Run(Source(link=2e6))
    assert holds_workers(run.state)
    run.pass_time(40.0)
    assert holds_workers(run.state)


def test_workers_that_never_wait_get_no_other_knobs() -> None:
    run = Run(Source(bandwidth=1e9))
    run.pass_time(20.0)
    assert [one.kind for one in run.decisions] == ["settle"]
    assert run.knobs == InputKnobs()


def test_an_unsteady_run_is_not_measured() -> None:
    run = Run(Source())
    run.pass_time(20.0, is_steady=False)
    assert run.decisions == []


def test_knobs_that_the_job_file_fixes_stay() -> None:
    fixed = InputTunerSettings(cores=2, batch_size=512, sample_bytes=368.0, fixed={"connections": 2})
    run = Run(Source(), fixed, InputKnobs(connections=2))
    run.pass_time(30.0)
    assert run.knobs.connections == 2


def test_memory_that_is_gone_is_given_back_at_once() -> None:
    run = Run(Source(), knobs=InputKnobs(prefetch_bytes=1 << 20))
    run.memory_bytes = 1000
    run.pass_time(0.5)
    assert run.decisions[0].kind == "shrink"
    assert run.knobs.prefetch_bytes == 900
    for memory_bytes in range(999, 900, -1):  # a table grows
        run.memory_bytes = memory_bytes
        run.pass_time(0.5)
    assert [one.kind for one in run.decisions].count("shrink") == 1, "each shrink would begin a new measurement"


@settings(max_examples=60, deadline=None)
@given(source=SOURCES, memory_bytes=st.integers(0, 1 << 28), unit_samples=st.sampled_from([0, 4096, 65_536]))
def test_no_decision_takes_more_memory_than_a_worker_may_hold(
    source: Source, memory_bytes: int, unit_samples: int
) -> None:
    job = InputTunerSettings(cores=2, batch_size=512, sample_bytes=368.0, unit_samples=unit_samples, is_fetched=True)
    run = Run(source, job, memory_bytes=memory_bytes)
    run.pass_time(20.0)
    assert all(one.knobs.prefetch_bytes <= memory_bytes for one in run.decisions)


def test_a_change_that_makes_training_slower_is_taken_back_and_not_made_again() -> None:
    run = Run(Source())
    while not run.decisions:
        run.pass_time(0.5)
    assert run.decisions[0].kind == "tune"
    run.change(bandwidth=5e5)  # with the new knobs the source gives less than before
    run.pass_time(3.0)
    assert run.decisions[1].kind == "return"
    assert run.decisions[1].knobs == InputKnobs()
    refused = run.decisions[0].knobs
    run.pass_time(30.0)
    assert refused in run.state.refused or refused not in [one.knobs for one in run.decisions[1:]]


def test_connections_are_not_taken_back_because_the_host_became_busier() -> None:
    run = Run(Source())
    while not run.decisions:
        run.pass_time(0.5)
    run.change(compute_s=6e-5)  # workers are slower than before, and do not wait
    run.pass_time(20.0)
    assert "return" not in [one.kind for one in run.decisions]
    assert run.knobs.connections > 1


def test_nothing_is_decided_while_workers_have_different_knobs() -> None:
    look = InputLook(1.0, None, True, 2, Source().totals(InputKnobs()), 0)
    state, decision = decide(InputState(), look, InputTunerSettings(2, 512, 368.0))
    assert decision is None and state.window.knobs is None


@pytest.mark.parametrize("workers", [1, 2])
def test_another_number_of_workers_begins_the_measurement_anew(workers: int) -> None:
    run = Run(Source(workers=workers))
    run.pass_time(1.5)
    run.change(workers=3)
    run.pass_time(0.5)
    assert run.state.window.workers == 3 and run.state.window.began_s is None
    assert msgspec.structs.asdict(run.state)["is_settled"] is False


def test_a_source_that_becomes_slower_is_told_and_then_tuned() -> None:
    run = Run(Source())
    run.pass_time(10.0)
    made = len(run.decisions)
    run.change(bandwidth=3.7e6)
    run.pass_time(15.0)
    assert [one.kind for one in run.decisions[made:]] == ["measure", "tune", "settle"]
    assert run.share_of_best >= 0.95


def test_workers_that_become_faster_get_more_at_once() -> None:
    """On a busy host workers were slow when it was measured."""
    run = Run(Source(compute_s=1e-4))
    run.pass_time(10.0)
    made = len(run.decisions)
    run.change(compute_s=1.2e-5)
    run.pass_time(8.0)
    assert run.decisions[made].kind in ("tune", "probe")
    assert run.share_of_best >= 0.95


def file_job(source: LocalFile) -> InputTunerSettings:
    """Its arrays have fewer bytes than a unit is charged with: a decoded unit has offsets and an encoded copy too."""
    cores = 8 * source.workers
    return InputTunerSettings(cores, 2048, 0.4 * source.unit_bytes / source.unit_samples, source.unit_samples)


@settings(max_examples=60, deadline=None)
@given(
    compute_s=st.floats(4e-6, 4e-5),
    decode_s=st.floats(2e-6, 4e-5),
    unit_bytes=st.integers(1_000_000, 30_000_000),
    workers=st.integers(1, 2),
)
def test_units_of_a_file_are_decoded_ahead_within_10_seconds_whatever_bytes_they_take(
    compute_s: float, decode_s: float, unit_bytes: int, workers: int
) -> None:
    source = LocalFile(compute_s=compute_s, decode_s=decode_s, unit_bytes=unit_bytes, workers=workers)
    run = Run(source, file_job(source))
    run.pass_time(10.0)
    assert run.share_of_best >= 0.95


def test_the_present_unit_and_a_decoded_one_fit_and_fewer_where_memory_is_short() -> None:
    source = LocalFile(compute_s=1e-5, decode_s=5e-6, workers=1)
    run = Run(source, file_job(source))
    run.pass_time(10.0)
    assert run.knobs.decode_threads == 1 and run.knobs.prefetch_batches > 0
    assert run.knobs.prefetch_bytes >= 2 * source.unit_bytes
    short = Run(source, file_job(source), memory_bytes=int(1.1 * source.unit_bytes))
    short.pass_time(10.0)
    assert source.unit_bytes <= short.knobs.prefetch_bytes <= short.memory_bytes


@settings(max_examples=40, deadline=None)
@given(
    bandwidth=st.floats(1e6, 2e7),
    jitter_s=st.floats(0.0, 0.3),
    compute_s=st.floats(4e-6, 4e-5),
    decode_s=st.floats(1e-7, 2e-6),
    unit_samples=st.sampled_from([4096, 16_384]),
)
@example(bandwidth=7.6e6, jitter_s=0.0625, compute_s=2.26e-5, decode_s=7.5e-7, unit_samples=4096)  # in turn: slower
def test_units_are_as_late_as_the_latest_of_their_requests(
    bandwidth: float, jitter_s: float, compute_s: float, decode_s: float, unit_samples: int
) -> None:
    facts = {"bandwidth": bandwidth, "jitter_s": jitter_s, "compute_s": compute_s, "decode_s": decode_s}
    source = UnevenSource(**facts, latency_s=0.01, sample_bytes=110.0, workers=1, unit_samples=unit_samples)
    job = InputTunerSettings(8, 2048, 160.0, unit_samples, is_fetched=True)
    run = Run(source, job, memory_bytes=1 << 30)
    run.pass_time(20.0)
    assert run.share_of_best >= 0.95, [(one.kind, one.knobs) for one in run.decisions]
    assert len(run.decisions) <= 6


def test_knobs_are_not_changed_to_get_what_the_link_already_gives() -> None:
    """The model thinks that requests are later than they are, so it underestimates the knobs that are set."""
    source = UnevenSource(link=5.5e6, told_late_s=0.6, latency_s=0.01, sample_bytes=110.0, compute_s=4e-6, workers=1)
    run = Run(source, InputTunerSettings(8, 2048, 160.0, 16_384, is_fetched=True))
    run.pass_time(20.0)
    assert run.share_of_best >= 0.95
    for one in run.decisions:
        assert one.kind != "tune" or one.expected >= 1.04 * one.samples_per_s, run.decisions


def test_threads_that_give_less_than_half_of_what_was_expected_are_taken_back() -> None:
    """The model expects more of each thread, and memory gives no more."""
    source = LocalFile(compute_s=1e-6, decode_s=4e-6, most=4.8e5, workers=1)
    run = Run(source, file_job(source), InputKnobs(decode_threads=2, prefetch_bytes=40_000_000))
    run.pass_time(30.0)
    assert [one.kind for one in run.decisions] == ["tune", "return", "settle"]
    assert run.knobs.decode_threads == 2


def cached(source: Source, job: InputTunerSettings, cache_bytes: int) -> Run:
    run = Run(source, job, memory_bytes=1 << 28)
    run.cache_bytes = cache_bytes
    run.pass_time(40.0)
    return run


@pytest.mark.parametrize(
    ("caches", "fits", "chosen"),
    [
        (("disk", "memory"), 1.1, "memory"),
        (("disk", "memory"), 0.6, "disk"),
        (("memory",), 0.6, "memory"),
        (("memory",), 0.4, "none"),
        (("disk",), 0.0, "disk"),
        ((), 1.1, "none"),
    ],
)
def test_what_is_read_is_kept_where_the_source_binds_and_there_is_room(
    caches: tuple[Cache, ...], fits: float, chosen: Cache
) -> None:
    units, unit_samples = 100, 4096
    job = InputTunerSettings(2, 512, 368.0, unit_samples, is_fetched=True, caches=caches, samples=units * unit_samples)
    slow = with_link(Source(bandwidth=1e6, latency_s=0.005), link=3e6)
    found = cached(slow, job, int(fits * units * 1.15 * unit_samples * (368.0 + slow.sample_bytes)))
    assert found.knobs.cache == chosen
    assert [one.knobs.cache for one in found.decisions if one.kind == "cache"] == [chosen] * (chosen != "none")
    assert not is_tuning(found.state)


@settings(max_examples=40, deadline=None)
@given(source=SOURCES, share=st.floats(0.1, 0.8), noise=st.floats(0.0, 0.2))
def test_what_a_full_link_gives_is_kept_within_30_seconds(source: Source, share: float, noise: float) -> None:
    """What is not kept before the first epoch ends is fetched again in the second."""
    full = source.workers / (source.compute_s + source.decode_s) * source.sample_bytes
    job = InputTunerSettings(4, 512, 368.0, 4096, is_fetched=True, caches=("disk",), samples=4_000_000)
    run = Run(with_link(source, link=share * full), job, memory_bytes=1 << 28, noise=noise)
    run.pass_time(30.0)
    assert run.knobs.cache == "disk", [(one.kind, one.knobs) for one in run.decisions]


def test_an_epoch_from_the_cache_is_tuned_anew() -> None:
    """The source had bound the speed, and workers still wait: now for decoding."""
    slow = with_link(Source(bandwidth=1e6, latency_s=0.005, workers=1), link=1e6)
    job = InputTunerSettings(8, 2048, 368.0, 16_384, is_fetched=True, caches=("disk",), samples=1_000_000)
    run = cached(slow, job, 0)
    while not run.state.is_input_bound:  # it doubts from time to time that the link is full
        run.pass_time(0.5)
    assert run.knobs.cache == "disk"
    run.source = LocalFile(compute_s=4e-6, decode_s=1.5e-5, workers=1)
    run.pass_time(20.0)
    assert run.share_of_best >= 0.95
    assert run.knobs.cache == "disk"


def test_a_source_that_gives_nothing_is_no_reason_to_keep_or_to_decode_more() -> None:
    job = InputTunerSettings(8, 512, 368.0, 4096, is_fetched=True, caches=("disk", "memory"), samples=40_960)
    run = cached(Source(bandwidth=1e-3), job, 1 << 40)
    assert run.knobs.cache == "none" and run.knobs.decode_threads == 1


def test_nothing_is_kept_where_workers_do_not_wait() -> None:
    job = InputTunerSettings(2, 512, 368.0, 4096, is_fetched=True, caches=("disk", "memory"), samples=40_960)
    assert cached(Source(), job, 1 << 40).knobs.cache == "none"


def test_other_knobs_are_tuned_with_the_cache_that_the_job_file_fixes() -> None:
    run = Run(Source(), knobs=InputKnobs(cache="disk"))
    run.pass_time(20.0)
    assert run.knobs.cache == "disk" and run.knobs.connections > 1


def test_decode_threads_are_added_where_the_model_finds_nothing_and_workers_wait() -> None:
    source = LocalFile(compute_s=4e-6, decode_s=4e-6, unseen_s=8e-6, workers=1)
    run = Run(source, file_job(source))
    run.pass_time(30.0)
    assert "probe" in [one.kind for one in run.decisions]
    assert run.share_of_best >= 0.95
