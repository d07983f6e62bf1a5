"""When a run may go back, and what a resumed one knows of it."""

from __future__ import annotations

import msgspec

from elastichost.errors import SampleRange
from elastichost.metrics import JournalEvent
from elastichost.supervisor.outcome import RollBack
from elastichost.supervisor.recollection import recollect
from elastichost.supervisor.rolling_back import MAX_ROLL_BACKS, barred, refusal


def back(start: int, epoch: int = 0, unit: int = 0) -> RollBack:
    return RollBack(epoch, unit, start, start + 10, "step-100", 5, "the loss is nan")


def test_never_twice_to_the_same_positions_nor_too_often() -> None:
    failed = SampleRange(0, 0, 5, 15)
    assert refusal(failed, ()) == ""
    assert refusal(failed, [back(15), back(0, epoch=1), back(0, unit=1)][:2]) == ""
    assert "left out already" in refusal(failed, [back(14)])
    assert "rolled back 3 times already" in refusal(failed, [back(100 * number) for number in range(1, 4)])
    assert "not known" in refusal(None, ())
    assert MAX_ROLL_BACKS == 3


def test_the_journal_tells_of_roll_backs_through_every_arena() -> None:
    def event(kind: str, **data: object) -> JournalEvent:
        return JournalEvent("", 0.0, kind, "", data=data)  # type: ignore[arg-type]

    known = recollect(
        [
            event("arena", path="/a", origin="new"),
            event("shard_map"),
            event("roll_back", **msgspec.to_builtins(back(7))),
            event("arena", path="/a", origin="checkpoint"),
        ]
    )
    assert known.roll_backs == (back(7),)
    assert barred(known.roll_backs) == (SampleRange(0, 0, 7, 17),)
    assert not known.is_whole
