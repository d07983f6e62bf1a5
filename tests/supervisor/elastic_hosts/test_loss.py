"""Which checkpoint the buckets of a lost host are rebuilt from, and how many samples they lose."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.checkpoint.places import CheckpointSource
from elastichost.runs.events import RowsRolledBack
from elastichost.supervisor.elastic_hosts import loss
from elastichost.supervisor.elastic_hosts.loss import HostLosses
from elastichost.supervisor.launch.events import AgentLost
from tests.checkpoint.test_checkpoint_format import flip, write_checkpoint
from tests.supervisor.noted import Noted

LOST = AgentLost(1, "b", "it is cut off")
SAMPLES = 1000  # that the run has trained when the host is lost
OF_CHECKPOINT = 300  # samples in the record of any checkpoint here


class Losing:
    """The losses of a run whose own checkpoints are in `own`, and what they told others."""

    def __init__(
        self, own: Path, monkeypatch: pytest.MonkeyPatch, started_from: Path | None, *, trains_anew: bool = False
    ) -> None:
        monkeypatch.setattr(loss, "read_record", lambda manifest: SimpleNamespace(samples_applied=OF_CHECKPOINT))
        monkeypatch.setattr(loss, "_rows_of", lambda arena, buckets: 5)
        self.noted, self.rebuilt_from = Noted(), list[Path | None]()
        run: Any = SimpleNamespace(
            fleet=(),
            lost_hosts=[],
            directory=SimpleNamespace(checkpoint_source=CheckpointSource((own,), "r1")),
            **self.noted.attributes,
        )
        sharding: Any = SimpleNamespace(
            hosts={0: 0, 1: 1},
            shard_map=SimpleNamespace(buckets_of=lambda server: ((0, server),)),
            lose=lambda servers, checkpoint, reason: self.rebuilt_from.append(checkpoint),
        )
        memory: Any = SimpleNamespace(gauge_of=lambda host: None, lose=lambda host: None)
        nothing: Any = None
        losses = HostLosses(run, nothing, sharding, nothing, memory, started_from, trains_anew=trains_anew)
        losses.lose(LOST)
        losses.made_anew(SAMPLES)

    @property
    def samples(self) -> int:
        """The samples whose updates the rows have lost."""
        (told,) = self.noted.of(RowsRolledBack)
        return told.loss.samples


def test_the_newest_own_checkpoint_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = write_checkpoint(tmp_path / "own", 300)
    other = write_checkpoint(tmp_path / "other", 900, run_id="r2")
    losing = Losing(tmp_path / "own", monkeypatch, other, trains_anew=True)
    assert losing.rebuilt_from == [own]
    assert losing.samples == SAMPLES - OF_CHECKPOINT


@pytest.mark.parametrize(("trains_anew", "samples"), [(True, SAMPLES), (False, SAMPLES - OF_CHECKPOINT)])
def test_before_its_own_first_checkpoint_a_run_uses_the_one_that_it_started_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trains_anew: bool, samples: int
) -> None:
    """A run that trains all of its data has no samples of that checkpoint."""
    other = write_checkpoint(tmp_path / "other", 900, run_id="r2")
    losing = Losing(tmp_path / "own", monkeypatch, other, trains_anew=trains_anew)
    assert losing.rebuilt_from == [other]
    assert losing.samples == samples
    assert "from checkpoint step-900" in losing.noted.texts[0]


def test_without_an_intact_checkpoint_rows_get_initial_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_checkpoint(tmp_path / "other", 900, run_id="r2")
    flip(next(other.glob("*.bin")), 0)
    for started_from in (None, other, tmp_path / "gone"):
        losing = Losing(tmp_path / "own", monkeypatch, started_from)
        assert losing.rebuilt_from == [None]
        assert losing.samples == SAMPLES
