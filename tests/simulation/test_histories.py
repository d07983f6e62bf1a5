"""Whole runs in simulated time. The seed of each gives its kills, pauses, lost messages and plan changes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.effort import IS_THOROUGH
from tests.simulation.histories import histories
from tests.simulation.scenario import Mode

PART, PARTS = 50, 10 if IS_THOROUGH else 2
# Events that must happen in this number of histories; without them the test would show too little.
HAPPENED = (
    "process_lost",
    "process_ended",
    "leases_settled",
    "checkpoint_written",
    "checkpoint_abandoned",
    "process_repinned",
    "plan_reached",
)


@pytest.mark.parametrize("first", range(0, PART * PARTS, PART))
def test_whatever_happens_every_sample_counts_once_and_every_row_is_right(first: int) -> None:
    """A failure names its seed: `python -m tests.simulation.histories --seed N --log` shows its events."""
    failed, counts = [], Counter[str]()
    for history in histories(range(first, first + PART)):
        counts.update(history.counts)
        counts[history.scenario.mode] += 1
        if history.violations:
            failed.append(str(history))
    assert not failed, "\n".join(failed)
    assert all(counts[kind] for kind in (*HAPPENED, "async", "bounded", "direct", "sync")), counts
    assert counts["shard_map_published"] > PART, "buckets must have changed their owner"


@pytest.mark.parametrize(("seed", "mode"), [(50103, "sync")])
def test_a_history_that_once_failed(seed: int, mode: Mode) -> None:
    """A seed that failed once: a worker that joined while a checkpoint was taken went on to the next step."""
    (history,) = histories([seed], mode)
    assert not history.violations, str(history)


def test_a_seed_always_gives_the_same_history() -> None:
    """Its log is the same each time, so that a failure can be reproduced."""
    first, second = (list(histories(range(7, 12))) for _ in range(2))
    assert [history.log for history in first] == [history.log for history in second]
    assert len({tuple(history.log) for history in first}) == len(first)
