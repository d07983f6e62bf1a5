"""A machine joins a run: it passes through its states in order, and any problem refuses it and leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.arena import Arena
from elastichost.arena.host import replica_directory
from elastichost.arena.layout import plan_layout
from elastichost.config.hosts import HostSection, hosts_of_text
from elastichost.errors import ArenaError, PreflightError
from elastichost.runs.events import HostJoined
from elastichost.supervisor.elastic_hosts.join import (
    JOIN_TIMEOUT_S,
    TRANSITIONS,
    HostJoin,
    HostObservation,
    JoinState,
    next_state,
)
from elastichost.supervisor.memory.gauge import MemoryGauge
from elastichost.wire.commands import ScaleMsg
from tests.supervisor.memory.test_gauge import model
from tests.supervisor.noted import Noted

ORDER = [JoinState.CALLED, JoinState.GREETED, JoinState.OPENED, JoinState.JOINED]
seen = st.builds(
    HostObservation,
    has_answered=st.booleans(),
    is_prepared=st.booleans(),
    has_arena=st.booleans(),
    trouble=st.sampled_from(["", "", "", "the other end has closed the connection"]),
    waited_s=st.floats(0, 2 * JOIN_TIMEOUT_S),
)


def test_a_machine_is_called_greeted_opened_and_joined() -> None:
    state = JoinState.CALLED
    for facts, then in zip(
        [
            HostObservation(has_answered=True),
            HostObservation(has_answered=True, is_prepared=True),
            HostObservation(True, True, True),
        ],
        ORDER[1:],
        strict=True,
    ):
        assert next_state(state, HostObservation()) == (state, "")
        state, reason = next_state(state, facts)
        assert (state, reason) == (then, "")


def test_a_machine_that_takes_too_long_is_refused_with_its_last_state() -> None:
    state, reason = next_state(JoinState.GREETED, HostObservation(has_answered=True, waited_s=JOIN_TIMEOUT_S + 1))
    assert state == JoinState.REFUSED
    assert reason == f"the machine has not joined within {JOIN_TIMEOUT_S:g} s; it is only greeted"


def test_a_machine_that_is_lost_before_the_others_have_joined_is_refused() -> None:
    """The run must not begin to use it when the last of the others has joined."""
    lost = HostObservation(True, True, True, trouble="the other end has closed the connection")
    assert next_state(JoinState.JOINED, lost) == (JoinState.REFUSED, lost.trouble)
    late = HostObservation(True, True, True, waited_s=JOIN_TIMEOUT_S + 1)
    assert next_state(JoinState.JOINED, late) == (JoinState.JOINED, "")


@settings(deadline=None)
@given(looks=st.lists(seen, max_size=12))
def test_states_are_passed_in_order_and_none_is_entered_again(looks: list[HostObservation]) -> None:
    state = JoinState.CALLED
    for look in looks:
        before = state
        state, reason = next_state(before, look)
        assert bool(reason) == (state == JoinState.REFUSED and before != JoinState.REFUSED)
        if before == JoinState.REFUSED:
            assert state == before
        elif look.trouble:
            assert (state, reason) == (JoinState.REFUSED, look.trouble)
        elif state not in (before, JoinState.REFUSED):
            assert ORDER.index(state) == ORDER.index(before) + 1
            assert any(to == state for (of, _), to in TRANSITIONS.items() if of == before)


# --- all have joined --------------------------------------------------------------------------------------------------

TWO = hosts_of_text('{"hosts": [{"address": "b", "transport": "local"}, {"address": "c", "transport": "local"}]}')
LAYOUT = plan_layout(model(), 7, 1 << 28)


class Guests:
    """Two machines whose agents have made all: they are to be made hosts 1 and 2. gained: (host, budget in bytes)."""

    def __init__(self, folder: Path) -> None:
        self.noted, self.gained = Noted(), list[tuple[int, int]]()
        self.launchers: dict[int, Any] = {}
        self.lost = 0  # the host that has no place
        machines: Any = SimpleNamespace(
            hosts=TWO,
            launchers=self.launchers,
            call=self._call,
            place_of=self._place_of,
            memory_bytes=lambda: dict.fromkeys(self.launchers, 1 << 30),
            measure_link=lambda number: None,
        )
        self.run: Any = SimpleNamespace(
            job=SimpleNamespace(resources=SimpleNamespace(memory="50%")),
            run_id="0123abcd",
            supervisor_pid=os.getpid(),
            directory=SimpleNamespace(path=folder, hosts=folder / "hosts.json"),
            control=SimpleNamespace(outer_address="tcp://127.0.0.1:1"),
            machines=machines,
            hear=lambda number, launcher: None,
            now_s=lambda: 0.0,
            other_arenas={},
            elsewhere={},
            **self.noted.attributes,
        )
        self.join = HostJoin(self.run, machines, LAYOUT, TWO, ScaleMsg(), self._gain)

    def _call(self, host: HostSection) -> tuple[int, Any]:
        number = 1 + len(self.launchers)
        self.launchers[number] = SimpleNamespace(host=host, on_words=None, set_words=lambda *packed: None)
        return number, self.launchers[number]

    def _place_of(self, number: int, control_address: str) -> str:
        if number == self.lost:
            raise PreflightError("host c: its agent has not answered")
        return f"place {number}"

    def _gain(self, gauge: MemoryGauge, budget_bytes: int) -> None:
        self.gained.append((gauge.host, budget_bytes))
        gauge.arena.close()


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Guests:
    (tmp_path / "arenas").mkdir()
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path / "arenas"))
    return Guests(tmp_path)


def test_machines_that_have_joined_become_hosts_although_their_rows_find_no_room_here(
    monkeypatch: pytest.MonkeyPatch, guests: Guests
) -> None:
    """Their rows are in their own memory: the replicas here have none."""
    monkeypatch.setattr("elastichost.arena.arena.free_bytes", lambda path: LAYOUT.fixed_bytes - 1)
    guests.join.admit()
    replicas = {number: replica_directory(guests.run.run_id, number) for number in (1, 2)}
    assert guests.run.other_arenas == replicas and guests.run.elsewhere == {1: "place 1", 2: "place 2"}
    assert guests.gained == [(1, 1 << 29), (2, 1 << 29)] and len(guests.noted.of(HostJoined)) == 2
    for directory in replicas.values():
        Arena.attach(directory).close()


@pytest.mark.parametrize("problem", ["no room", "directory exists", "lost"])
def test_machines_of_which_one_cannot_be_admitted_change_nothing_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, guests: Guests, problem: str
) -> None:
    second, left = replica_directory(guests.run.run_id, 2), list[Path]()
    match problem:
        case "no room":
            monkeypatch.setattr("elastichost.arena.arena.free_bytes", lambda path: 0 if path == second else 1 << 40)
        case "directory exists":  # it belongs to another process, so it stays
            second.mkdir()
            left = [second]
        case _:
            guests.lost = 2
    with pytest.raises(PreflightError if problem == "lost" else ArenaError):
        guests.join.admit()
    assert list(second.parent.iterdir()) == left
    assert guests.run.other_arenas == guests.run.elsewhere == {}
    assert guests.gained == [] and guests.noted.events == []
