"""Records of runs on real machines: the present code makes the same decisions.

After an intended change of the tuner's decisions, record the runs again: `run examples/retail.toml --set
'tuner.first_plan={ workers = 1 }'`, and copy the run's decisions.jsonl.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.runs.decisions import read_records
from elastichost.tuner.records import TunerLooked
from elastichost.tuner.replay import replay

TRACES = sorted((Path(__file__).parents[1] / "traces").glob("*.jsonl"))


def test_there_are_traces() -> None:
    assert TRACES


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_recorded_run_is_replayed_without_difference(path: Path) -> None:
    records = list(read_records(path))
    decided = [record.decision for record in records if isinstance(record, TunerLooked) and record.decision]
    assert {"move", "try"} & {decision.kind for decision in decided}
    found = list(replay(records))
    assert len([one for one in found if one.part == "tuner"]) == len(decided)
    assert [one for one in found if not one.is_same] == []
