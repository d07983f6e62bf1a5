"""The arms of the benchmark of observers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.training import observers


def test_each_arm_is_compared_with_a_run_that_nothing_watches() -> None:
    made = observers.benchmark_of(observers.ARMS, 1000, 2, Path("runs"))
    assert set(made.arms) == {"alone", *observers.ARMS}
    assert [(pair.arm, pair.against) for pair in made.pairs] == [(arm, "alone") for arm in observers.ARMS]
    assert observers.settings_of("alone", Path("f")) == {} == observers.settings_of("page", Path("f"))
    assert observers.settings_of("blocked", Path("f"))["logging.csv.file"] == "f/pipe"
