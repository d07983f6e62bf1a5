"""A host that is full: the job ends after a while, or new ids get no row until memory is free."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.memory_board import MemoryBoard
from elastichost.errors import JobFailedError
from elastichost.runs.events import MemoryFreed
from elastichost.supervisor.memory.exhaustion import BUSY_S, FREE_S, FULL_S, MEASURED_S, MOST_FREE_S, Shortage
from elastichost.supervisor.memory.memory_shares import Shares
from tests.effort import examples
from tests.supervisor.noted import Noted

EVERY_S = 0.05


class Scene:
    """Hosts with real memory boards. noted: events."""

    def __init__(self, directory: Path, *, may_leave_out: bool, hosts: int = 2) -> None:
        self.boards = []
        for host in range(hosts):
            (directory / str(host)).mkdir(exist_ok=True)
            if not (directory / str(host) / "memory").exists():
                MemoryBoard.create(directory / str(host), 1)
            self.boards.append(MemoryBoard(directory / str(host), 1))
        self.noted = Noted()
        run: Any = SimpleNamespace(**self.noted.attributes)
        self.shortage = Shortage(
            run, self.boards, lambda fact: JobFailedError(f"host {fact.host}"), may_leave_out=may_leave_out
        )
        self.now_s = 50.0

    def look(self, *full: int, is_measured: bool = True, is_busy: bool = False) -> None:
        """full: the hosts on which nothing can be granted."""
        self.now_s += EVERY_S
        facts: Any = [
            SimpleNamespace(
                host=host,
                budget_bytes=10**9,
                private_bytes=0,
                reading=SimpleNamespace(used_bytes=1),
                shares=Shares({}, (0,), host in full),
                files_free_bytes=0,
                is_files=False,
            )
            for host in range(len(self.boards))
        ]
        self.shortage.look(facts, self.now_s, is_measured=is_measured, is_busy=is_busy)

    def lasts(self, *full: int, **facts: bool) -> float:
        """Returns the seconds until the job ends."""
        began_s = self.now_s
        with pytest.raises(JobFailedError, match=f"host {full[0]}"):
            self._look_on(*full, **facts)
        return self.now_s - began_s

    def _look_on(self, *full: int, **facts: bool) -> None:
        for _ in range(round(1000 / EVERY_S)):
            self.look(*full, **facts)

    def host_joins(self, directory: Path) -> None:
        directory.mkdir()
        MemoryBoard.create(directory, 1)
        self.boards.append(MemoryBoard(directory, 1))

    def close(self) -> None:
        for board in self.boards:
            board.close()

    @property
    def leaves_out(self) -> set[bool]:
        return {board.leaves_out for board in self.boards}


@pytest.mark.parametrize(
    ("facts", "after_s"),
    [
        ({}, FULL_S),
        ({"is_busy": True}, BUSY_S),
        ({"is_measured": False}, MEASURED_S),
        ({"is_measured": False, "is_busy": True}, BUSY_S),
    ],
)
def test_a_job_that_may_not_leave_ids_out_ends_after_a_while(
    tmp_path: Path, facts: dict[str, bool], after_s: float
) -> None:
    scene = Scene(tmp_path, may_leave_out=False)
    assert scene.lasts(1, **facts) == pytest.approx(after_s, abs=3 * EVERY_S)
    assert scene.leaves_out == {False} and scene.noted.events == []


def test_short_refusals_do_not_add_up_and_do_not_end_the_job(tmp_path: Path) -> None:
    scene = Scene(tmp_path, may_leave_out=False)
    for _ in range(20):
        scene.look(0)
        for _ in range(round(1.5 * FREE_S / EVERY_S)):
            scene.look()
    assert scene.noted.events == []


def test_ids_are_left_out_on_all_hosts_and_get_rows_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, may_leave_out=True)
    scene.look(1)
    assert scene.leaves_out == {True}
    scene.boards[1].server(0).note_left_out(30)
    scene.boards[0].server(63).note_left_out(4)
    for _ in range(50):
        scene.look(1)
    for _ in range(round(1.5 * FREE_S / EVERY_S)):
        scene.look()
    assert scene.leaves_out == {False}
    assert scene.noted.kinds == ["memory_full", "memory_freed"]
    assert scene.noted.events[1] == MemoryFreed(34)


def test_no_ids_are_left_out_before_all_processes_are_measured(tmp_path: Path) -> None:
    scene = Scene(tmp_path, may_leave_out=True)
    for _ in range(20):
        scene.look(0, is_measured=False)
    assert scene.leaves_out == {False}
    scene.look(0)
    assert scene.leaves_out == {True}


def test_a_new_supervisor_leaves_no_ids_out(tmp_path: Path) -> None:
    scene = Scene(tmp_path, may_leave_out=True)
    scene.look(0)
    assert scene.leaves_out == {True}
    assert Scene(tmp_path, may_leave_out=False).leaves_out == {False}


def test_a_host_that_is_full_again_and_again_is_reported_a_few_times_only(tmp_path: Path) -> None:
    """A request is refused every two seconds, for ten minutes."""
    scene = Scene(tmp_path, may_leave_out=True)
    for turn in range(round(600 / EVERY_S)):
        scene.look(*((0,) if turn % round(2 / EVERY_S) == 0 else ()))
    assert len(scene.noted.events) <= 4
    for _ in range(round(2 * MOST_FREE_S / EVERY_S)):
        scene.look()
    assert scene.leaves_out == {False}


@given(
    turns=st.lists(st.tuples(st.sampled_from([(), (0,), (1,), (0, 1)]), st.booleans(), st.integers(1, 40)), max_size=40)
)
@settings(max_examples=examples(60), deadline=None)
def test_memory_full_and_memory_freed_are_reported_in_turn(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[tuple[int, ...], bool, int]]
) -> None:
    with contextlib.closing(Scene(tmp_path_factory.mktemp("boards"), may_leave_out=True)) as scene:
        for full, is_measured, times in turns:
            for _ in range(times):
                scene.look(*full, is_measured=is_measured)
        kinds = scene.noted.kinds
        assert kinds == ["memory_full", "memory_freed"] * (len(kinds) // 2) + ["memory_full"] * (len(kinds) % 2)
        assert scene.leaves_out == {len(kinds) % 2 == 1}


def test_a_host_that_joins_meanwhile_leaves_ids_out_too(tmp_path: Path) -> None:
    """Otherwise a PS there would wait for a grant that never comes."""
    scene = Scene(tmp_path, may_leave_out=True)
    scene.look(0)
    assert scene.leaves_out == {True}
    scene.host_joins(tmp_path / "joined")
    scene.look(2)
    assert scene.leaves_out == {True}
    assert len(scene.noted.events) == 1, "it is reported once"
    scene.close()
