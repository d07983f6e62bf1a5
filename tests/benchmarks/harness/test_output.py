"""The JSON output of a benchmark is one line."""

from __future__ import annotations

import json

import pytest

from benchmarks.harness.aggregates import Spread
from benchmarks.harness.aims import Aim
from benchmarks.harness.output import SCHEMA, write_json


def test_figures_machine_and_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    write_json("lap", {"rate": Spread(2.0, 1.0, 3.0)}, [Aim("rate", 1.5, "at least").judge(2.0)])
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["schema"], found["benchmark"]) == (SCHEMA, "lap")
    assert found["figures"] == {"rate": {"median": 2.0, "least": 1.0, "most": 3.0}}
    assert found["machine"]["cores"] >= 1 and "python" in found["machine"]["versions"]
    assert [one["reached"] for one in found["verdicts"]] == [True]


def test_without_aims_there_are_no_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    write_json("lap", {})
    assert "verdicts" not in json.loads(capsys.readouterr().out)
