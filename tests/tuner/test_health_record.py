"""A record of worker speeds may leave out samples: its replay gives the same remarks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.plan import ProcessId
from elastichost.tuner.health import HealthSettings, HealthState, Remark, WorkerSpeed, observe
from elastichost.tuner.health_record import WorkerSpeeds, is_telling, packed, rounded, unpacked
from elastichost.tuner.records import HealthOpened, Record, SpeedsLooked
from elastichost.tuner.replay import replay
from tests.effort import examples

SETTINGS = HealthSettings(after_s=4.0, replace_every_s=20.0)


def one(
    index: int, incarnation: int, rate: float | None, *, has_work: bool = True, is_gpu: bool = False
) -> WorkerSpeed:
    return WorkerSpeed(ProcessId("worker", index, incarnation), rate, rate, has_work=has_work, is_gpu=is_gpu)


def recorded(looks: list[tuple[WorkerSpeed, ...]]) -> tuple[list[Record], list[tuple[Remark, ...]], HealthState]:
    """Returns the records of samples one second apart, the remarks of each sample, and the last state."""
    state = last = HealthState()
    workers: tuple[tuple[int, int], ...] | None = None
    records, said = list[Record]([HealthOpened(SETTINGS)]), list[tuple[Remark, ...]]()
    for second, speeds in enumerate(looks):
        state, remarks = observe(state, speeds, SETTINGS, float(second))
        said.append(remarks)
        if is_telling(last, state, remarks):
            records.append(SpeedsLooked(float(second), packed(speeds, state, workers), remarks))
            last, workers = state, tuple((speed.process.index, speed.process.incarnation) for speed in speeds)
    return records, said, state


# for each worker and second: the worker does not exist, has no work, trained nothing, or its samples per second
SECOND = st.sampled_from(["away", "idle", "nothing", 5.0, 20.0, 60.0, 90.0, 100.0, 110.0])


@settings(max_examples=examples(200))
@given(
    st.integers(2, 5).flatmap(
        lambda workers: st.lists(st.lists(SECOND, min_size=workers, max_size=workers), min_size=1, max_size=40)
    )
)
def test_a_replay_gives_the_same_remarks(script: list[list[str | float]]) -> None:
    incarnations = [1] * 5
    looks = list[tuple[WorkerSpeed, ...]]()
    for second in script:
        here = list[WorkerSpeed]()
        for index, what in enumerate(second):
            if what == "away":
                incarnations[index] += 1
            elif isinstance(what, float):
                here.append(one(index, incarnations[index], what, is_gpu=index > 3))
            else:
                here.append(one(index, incarnations[index], None, has_work=what == "nothing"))
        looks.append(tuple(here))
    records, said, state = recorded(looks)
    found = list(replay(msgspec.json.decode(msgspec.json.encode(records), type=list[Record])))
    assert all(each.is_same for each in found)
    assert len(found) == sum(bool(remarks) for remarks in said)
    # a state fed with all samples and a state fed with the recorded ones give the same remarks for later samples
    known = HealthState()
    before: tuple[tuple[int, int], ...] = ()
    for record in records[1:]:
        assert isinstance(record, SpeedsLooked)
        speeds = unpacked(record.speeds, before)
        before = tuple((speed.process.index, speed.process.incarnation) for speed in speeds)
        known, _ = observe(known, speeds, SETTINGS, record.now_s)
    assert not is_telling(known, state, ())


def test_a_slow_worker_is_recorded_when_it_becomes_slow_and_when_it_is_reported() -> None:
    looks = [tuple(one(index, 1, rate) for index, rate in enumerate((100.0, 101.0, 60.0)))] * 30
    records, said, _ = recorded(looks)
    assert [record.now_s for record in records if isinstance(record, SpeedsLooked)] == [0.0, 4.0]
    assert [second for second, remarks in enumerate(said) if remarks] == [4]
    assert isinstance(records[2], SpeedsLooked) and records[2].speeds.workers is None, "the same workers as before"


def test_the_recorded_speed_is_the_compared_speed() -> None:
    assert rounded(198074.7522919236) == 198070.0
    assert rounded(0.0123456789) == 0.012346
    assert rounded(rounded(1 / 3)) == rounded(1 / 3)


def test_a_record_that_does_not_fit_the_one_before() -> None:
    with pytest.raises(ValueError, match="the record has 2 speeds for 1 workers"):
        unpacked(WorkerSpeeds(None, (1.0, 2.0)), ((0, 1),))
