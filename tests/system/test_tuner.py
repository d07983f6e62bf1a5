"""The tuner in a live run: it finds that more workers are faster, gives reasons, and its decisions can be replayed.

The model sleeps, so that workers do not compete for cores, and more workers are faster on any machine.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elastichost.history.store import History
from elastichost.runs.decisions import DECISIONS_FILE, read_records
from elastichost.runs.events import Event, PlanChanged, PlanReached, TunerDecided, TunerOff, TunerOnlyWatches
from elastichost.runs.events.text import text_of
from elastichost.tuner.records import FirstPlanMade, TunerLooked
from elastichost.tuner.replay import replay
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system

TUNED = JOB.replace(
    '[tuner]\nmode = "off"\n',
    '[tuner]\nmode = "{mode}"\nblock_s = 1.0\nfirst_plan = {{ workers = {first} }}\n',
).replace("workers = 2\n", "workers = [1, 3]\nservers = 1\n")


@pytest.fixture
def build(folder: Path) -> str:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.01"))
    return f"{folder}/slow.py:build"


def tuner_says(run: Supervised) -> list[Event]:
    """The events of the tuner, in order."""
    return run.events(TunerDecided, TunerOff, TunerOnlyWatches)


def test_a_run_grows_by_itself_and_the_next_begins_there(
    folder: Path, build: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", str(folder / "history.sqlite"))
    run = Supervised(folder, template=TUNED, build=build, rows=400_000, mode="act", first=1)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == 400_000
    assert run.result()["processes"]["workers"] > 1
    first = tuner_says(run)[0]
    assert isinstance(first, TunerDecided)
    assert "against the best known" in text_of(first)
    assert first.decision.configuration.workers > 1
    assert first.decision.present is not None
    assert first.decision.present.configuration.workers == 1
    assert run.events(PlanReached)

    records = list(read_records(run.run_dir / DECISIONS_FILE))
    again = list(replay(records))
    assert len([one for one in again if one.part == "tuner"]) == len(tuner_says(run))
    assert all(one.is_same for one in again)

    with History(folder / "history.sqlite") as history:
        [record] = history.records()
    assert record.ended_well
    assert record.best.workers > 1, record.observations
    assert record.parameters.mean

    after = folder / "after"
    after.mkdir()
    next_run = Supervised(after, template=TUNED, build=build, rows=50_000, mode="act", first=0)
    code, errors = next_run.finish()
    assert code == 0, errors
    assert any("warm start with" in event.reason for event in next_run.events(PlanChanged))
    [made] = [one for one in read_records(next_run.run_dir / DECISIONS_FILE) if isinstance(one, FirstPlanMade)]
    assert len(made.plan.workers) == record.best.workers
    assert all(one.is_same for one in replay(read_records(next_run.run_dir / DECISIONS_FILE)))


@pytest.mark.thorough
def test_a_run_that_is_watched_stays_as_it_is(folder: Path, build: str) -> None:
    run = Supervised(folder, template=TUNED, build=build, rows=150_000, mode="watch", first=1)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["processes"]["workers"] == 1
    assert any(event.only_watches for event in run.events(TunerDecided))
    looks = [one for one in read_records(run.run_dir / DECISIONS_FILE) if isinstance(one, TunerLooked)]
    assert any(look.decision is not None for look in looks)


@pytest.mark.thorough
def test_a_size_that_was_asked_for_stays(folder: Path, build: str) -> None:
    from elastichost.wire.commands import CommandClient, ReachedMsg, ScaleMsg

    run = Supervised(folder, template=TUNED, build=build, rows=150_000, mode="act", first=2)
    run.wait_trained(1)
    client = CommandClient(run.status()["commands"])
    client.send(ScaleMsg(workers=1))
    run.wait_until(lambda: isinstance(client.receive(0.1), ReachedMsg))
    client.close()
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["processes"]["workers"] == 1
    assert run.events(TunerOnlyWatches)


# Code at the beginning of `build`: from the third build on, the process ends.
DIES = """
    import os, pathlib
    builds = pathlib.Path(__file__).with_name("builds")
    with builds.open("a") as file:
        file.write("x")
    if builds.stat().st_size > 2:  # after the probe and the first worker
        os._exit(9)
"""


@pytest.mark.thorough
def test_a_plan_that_cannot_be_had_is_taken_back(folder: Path, build: str) -> None:
    """Every additional worker dies while it starts."""
    model = folder / "slow.py"
    model.write_text(re.sub(r"(def build\(.*\n)", lambda found: found.group(1) + DIES, model.read_text(), count=1))
    run = Supervised(folder, template=TUNED, build=build, rows=150_000, mode="act", first=1)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == 150_000
    assert run.result()["processes"]["workers"] == 1
    lost = run.lost()
    assert lost and all(event.process.name != "worker-0" for event in lost)
    back = [event for event in run.events(PlanChanged) if "the previous plan comes back" in event.reason]
    assert 1 <= len(lost) <= 8 and back
