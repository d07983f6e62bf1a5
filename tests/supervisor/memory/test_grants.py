"""Several PS of one host ask at once, wait, die and come again; the host's files are real, the PS are this test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.arena.least_room import SPARE_BYTES
from elastichost.arena.memory_board import Allowance
from elastichost.errors import MemoryBudgetError
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.supervisor.memory.gauge import MemoryGauge, row_costs
from elastichost.supervisor.memory.grants import Granter
from tests.system.beds import small_tmpfs

MB = 1 << 20
SERVERS = (0, 1)


def model() -> ModelSpec:
    embedding = EmbeddingSpec("e", 0, 0, "m", "bag", ("f",), 32, "sum", RowOptimizerSpec("adagrad"), -1.0, 1.0)
    return ModelSpec((TableSpec("grows", 0, ("f",), "int", 0),), (embedding,), DenseSpec((), 8, 8), 0, 1)


class Host:
    """`file` is what rows lie in: what a PS takes is allocated there."""

    def __init__(self, directory: Path, budget: int) -> None:
        self.arena = Arena.create(directory, plan_layout(model(), 7, 1 << 30))
        self.arena.board.begin_anew(is_limited=True)
        self.granter = Granter(MemoryGauge(0, self.arena), row_costs(model()), budget)
        self.file, self.offset = self.arena.files.rows, 0
        self.granter.turn(SERVERS, 0)

    def allowance(self, server: int) -> Allowance:
        return self.arena.board.allowance(server)

    def open_bytes(self, server: int) -> int:
        words = self.arena.board.server(server)
        return words.granted - words.taken

    def take(self, server: int, size: int, patience_s: float = 0.0) -> None:
        self.allowance(server).allocate(self.file, self.offset, size, "rows", patience_s=patience_s)
        self.offset += size

    @property
    def factor(self) -> float:
        """Bytes that are reserved for each byte of rows."""
        return self.granter._factor


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, 200 * MB)
    yield made
    made.arena.close()


def test_what_is_granted_fits_into_the_file_system_and_is_not_halved_for_copies(tmp_path: Path) -> None:
    """Copies for checkpoints are no part of it."""
    with small_tmpfs(tmp_path / "shm", "64m") as root:
        host = Host(root, 100_000 * MB)
        facts = host.granter.turn(SERVERS, 0)
        assert facts.is_files and facts.files_free_bytes < 64 * MB
        for _ in range(200):
            for server in SERVERS:
                with contextlib.suppress(MemoryBudgetError):
                    host.take(server, MB // 4)
            facts = host.granter.turn(SERVERS, 0)
        costs = row_costs(model())
        in_files = float((costs.place + costs.index)[0] / costs.place[0])
        assert facts.left_bytes >= 0, "room for the index that follows from the rows, and for pushes that wait"
        assert in_files * host.offset > 0.8 * (64 * MB - SPARE_BYTES * len(SERVERS))
        host.arena.close()


def test_a_file_system_that_somebody_else_fills_is_a_want_like_any_other(tmp_path: Path) -> None:
    """What was granted cannot be had: the PS is refused, and does not die of it."""
    with small_tmpfs(tmp_path / "shm", "64m") as root:
        host = Host(root, 100_000 * MB)
        others = host.arena.files.index
        others.allocate(0, host.granter.gauge.free_bytes - MB // 2, "somebody else")
        with pytest.raises(MemoryBudgetError, match="are free"):
            host.take(0, MB)
        facts = host.granter.turn(SERVERS, 0)
        assert facts.shares.is_full and facts.is_files
        host.arena.close()


def test_a_ps_that_waits_gets_what_another_has_open_and_does_not_use(host: Host) -> None:
    """More than is free, less than there is: the other gives back over several looks, the want lasts as long."""
    wanted = int(host.granter.turn(SERVERS, 0).left_bytes / host.factor) - 2 * MB
    waiting = threading.Thread(target=host.take, args=(1, wanted, 300.0), daemon=True)
    waiting.start()
    words, looks, seen = host.arena.board.server(1), 0, 0
    while waiting.is_alive():
        if words.refused != seen:  # it asks more often than anybody looks
            seen, looks = words.refused, looks + 1
            assert not host.granter.turn(SERVERS, 0).shares.is_full
        waiting.join(0.002)
    assert words.taken >= wanted
    assert looks > 2


def test_two_ask_at_once_for_more_than_half_each(host: Host) -> None:
    """They are served one after the other until what is left is not enough for one."""
    left = host.granter.turn(SERVERS, 0).left_bytes
    wanted = int(0.6 * left / host.factor) // 4096 * 4096
    served = 0
    for _ in range(60):
        for server in SERVERS:
            try:
                host.take(server, wanted)
                served += 1
            except MemoryBudgetError:
                continue
        facts = host.granter.turn(SERVERS, 0)
        assert facts.left_bytes >= -SPARE_BYTES
    assert served >= 1
    assert facts.left_bytes / host.factor < wanted
    assert facts.shares.is_full and facts.shares.short == SERVERS


def test_what_was_granted_to_a_ps_that_died_is_its_successors(host: Host) -> None:
    """Between its look and its allocation, and between its allocation and its count."""
    allowed = host.open_bytes(0)
    host.allowance(0).require(allowed, "rows")
    host.granter.turn(SERVERS, 0)
    assert host.open_bytes(0) >= allowed
    host.file.allocate(host.offset, 40 * MB, "rows")  # it was killed before it could count
    host.offset += 40 * MB
    facts = host.granter.turn(SERVERS, 0)
    assert facts.left_bytes + facts.reading.used_bytes + facts.copies_bytes <= 200 * MB
    assert host.factor * sum(map(host.open_bytes, SERVERS)) <= facts.left_bytes
    host.take(0, host.open_bytes(0) // 4096 * 4096)


def test_what_was_granted_to_a_ps_that_is_no_more_goes_to_the_others(host: Host) -> None:
    before = host.open_bytes(0) + host.open_bytes(1)
    host.granter.take_back({1})
    assert host.open_bytes(1) == 0
    with pytest.raises(MemoryBudgetError):
        host.take(1, 4096)
    with pytest.raises(MemoryBudgetError):
        host.take(0, before)
    host.granter.turn((0,), 0)
    host.allowance(0).require(before, "what both had")
    host.granter.turn(SERVERS, 0)
    assert host.open_bytes(0) + host.open_bytes(1) <= host.granter.turn(SERVERS, 0).left_bytes / host.factor


def test_a_grant_is_taken_back_while_a_ps_grows(host: Host) -> None:
    """Other processes take the rest of the budget just now: nothing stays open until they give it back."""
    host.take(0, 8 * MB)
    facts = host.granter.turn(SERVERS, 190 * MB)
    assert facts.left_bytes < 0
    assert [host.open_bytes(server) for server in SERVERS] == [0, 0]
    with pytest.raises(MemoryBudgetError):
        host.take(0, 4096)
    assert host.granter.turn(SERVERS, 190 * MB).shares.is_full
    facts = host.granter.turn(SERVERS, 0)
    assert facts.left_bytes > 0
    host.take(0, 4096)


def test_a_budget_below_what_is_there_allows_nothing_and_says_how_much_is_used(tmp_path: Path) -> None:
    host = Host(tmp_path, MB)
    facts = host.granter.turn(SERVERS, 5 * MB)
    assert facts.left_bytes < 0
    look = host.granter.look(facts, 1.0, may_take=False)
    assert look.used_bytes > look.budget_bytes
    with pytest.raises(MemoryBudgetError):
        host.take(1, 4096)
    host.arena.close()


def test_copies_that_are_kept_count_before_they_are_needed(host: Host) -> None:
    """A PS that keeps more for its copies than its rows need now: that is taken."""
    before = host.granter.turn(SERVERS, 0)
    host.arena.board.server(1).note_copies(50 * MB)
    after = host.granter.turn(SERVERS, 0)
    assert after.copies_bytes == 50 * MB
    assert before.left_bytes - after.left_bytes == 50 * MB - before.copies_bytes


def test_a_host_without_ps_is_measured_and_grants_nothing(host: Host) -> None:
    facts = host.granter.turn((), 0)
    assert facts.shares.granted == {} and not facts.shares.is_full
    assert facts.left_bytes > 0
    assert np.isfinite(host.granter.look(facts, 0.0, may_take=True).place_bytes)
