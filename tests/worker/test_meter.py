"""The rate that a worker tells with its requests for leases."""

from __future__ import annotations

from elastichost.worker.meter import StepMeter


def test_waiting_for_a_lease_says_nothing_about_the_rate() -> None:
    _, after = StepMeter(0.0, steps=1, samples=100, wait_input_s=3.0).beat(5.0, 0, 0, 0.0)
    assert after.rate == 50.0


def test_waiting_for_the_reader_is_part_of_the_rate() -> None:
    """Or a worker that is short of input would be given leases for minutes."""
    sample, after = StepMeter(0.0, steps=1, samples=100, wait_input_s=4.5, wait_reader_s=4.0).beat(5.0, 0, 0, 4.0)
    assert after.rate == 100 / 4.5
    assert (sample.wait_input_s, sample.read_s) == (4.5, 4.0)
