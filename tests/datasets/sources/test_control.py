"""What the reader, its connections and the pipeline of a worker share."""

from __future__ import annotations

from elastichost.datasets.sources.control import InputControl
from elastichost.wire.control_work import SourceTroubleMsg
from elastichost.wire.facts import InputKnobs


def test_new_knobs_bound_the_memory_and_wake_who_waits() -> None:
    control, woken = InputControl(), []
    control.when_tuned(lambda: woken.append(control.knobs))
    assert not control.budget.take(1)
    control.tune(InputKnobs(connections=4, prefetch_bytes=10))
    assert woken == [InputKnobs(connections=4, prefetch_bytes=10)]
    assert control.budget.take(10) and not control.budget.take(1)


def test_a_sample_has_every_stage_once_and_is_taken_once() -> None:
    control = InputControl(InputKnobs(prefetch_batches=4))
    control.source.add(source_s=1e9, size_bytes=7)
    control.train.add(empty_s=0.25)
    source, decode, prepare, train = control.take_stages(queued=3)
    assert [one.stage for one in (source, decode, prepare, train)] == ["source", "decode", "prepare", "train"]
    assert (source.bytes, source.occupancy, prepare.occupancy, train.empty_s) == (7, 1.0, 0.75, 0.25)
    assert control.take_stages(queued=0)[0].bytes == 0


def test_troubles_are_told_once() -> None:
    control, trouble = InputControl(), SourceTroubleMsg("stalled", "http://store/a", waited_s=5.0)
    control.tell(trouble)
    assert list(control.take_troubles()) == [trouble]
    assert list(control.take_troubles()) == []


def test_knobs_out_of_range_are_taken_as_the_nearest_possible_ones() -> None:
    control = InputControl()
    control.tune(InputKnobs(0, -1, -1, -1, 0))
    assert control.knobs == InputKnobs(1, 1, 0, 0, 4096)
    control.tune(InputKnobs(connections=1000, decode_threads=1000))
    assert (control.knobs.connections, control.knobs.decode_threads) == (32, 16)
