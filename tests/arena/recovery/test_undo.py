"""The undo record alone; tests/ps/test_applier.py tests recovery after kills."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.recovery.undo import UndoRecord
from elastichost.errors import ArenaError

ROWS, BOUNDS = np.array([3, 50], np.int64), np.array([0, 2])


def test_old_lines_are_not_written_over_while_they_may_be_needed(tmp_path: Path) -> None:
    record = UndoRecord(tmp_path, 0, tables=1)
    record.begin([(5, 9)], ROWS, BOUNDS, 8, 2).lines[:] = 7.0
    record.activate()
    with pytest.raises(ArenaError, match="not finished or taken back"):
        record.begin([(6, 1)], ROWS + 1, BOUNDS, 8, 2)
    record.close()
    successor = UndoRecord(tmp_path, 0, tables=1)
    old = successor.unfinished()
    assert old is not None
    assert (old.rows.tolist(), old.lines.tolist()) == (ROWS.tolist(), [7.0] * 8)
    successor.taken_back()
    successor.begin([(6, 1)], ROWS + 1, BOUNDS, 8, 2)
    successor.activate()
    successor.finish()
    assert (successor.applied(5), successor.applied(6)) == (0, 1)
    successor.close()
