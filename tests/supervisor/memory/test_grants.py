"""Grants to several PS of one host that request memory at once, wait, die and return. The host's files are real; the
test acts as the PS."""

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
    """A model with one dynamic table."""
    embedding = EmbeddingSpec("e", 0, 0, "m", "bag", ("f",), 32, "sum", RowOptimizerSpec("adagrad"), -1.0, 1.0)
    return ModelSpec((TableSpec("grows", 0, ("f",), "int", 0),), (embedding,), DenseSpec((), 8, 8), 0, 1)


class Host:
    """A host with two PS. file: the file with the rows, in which PS allocate."""

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
        """A PS allocates bytes for rows. Raises MemoryBudgetError."""
        self.allowance(server).allocate(self.file, self.offset, size, "rows", patience_s=patience_s)
        self.offset += size

    @property
    def factor(self) -> float:
        """Bytes that are reserved for each byte of rows."""
        return self.granter._factor


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host with a budget of 200 MB."""
    made = Host(tmp_path, 200 * MB)
    yield made
    made.arena.close()


def test_grants_fit_into_the_file_system_and_nothing_is_reserved_there_for_copies(tmp_path: Path) -> None:
    """The copies of a checkpoint are not in the file system."""
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
        assert facts.left_bytes >= 0, "room is left for the index of the rows and for staged pushes"
        assert in_files * host.offset > 0.8 * (64 * MB - SPARE_BYTES * len(SERVERS))
        host.arena.close()


def test_a_ps_is_refused_memory_when_another_process_fills_the_file_system(tmp_path: Path) -> None:
    """Its grant is not available any more. The PS gets an error and is not killed."""
    with small_tmpfs(tmp_path / "shm", "64m") as root:
        host = Host(root, 100_000 * MB)
        others = host.arena.files.index
        others.allocate(0, host.granter.gauge.free_bytes - MB // 2, "another process")
        with pytest.raises(MemoryBudgetError, match="are free"):
            host.take(0, MB)
        facts = host.granter.turn(SERVERS, 0)
        assert facts.shares.is_full and facts.is_files
        host.arena.close()


def test_a_ps_that_waits_gets_the_unused_open_grant_of_another(host: Host) -> None:
    """It requests more than is free and less than is left. The other PS gives back its grant over several looks."""
    wanted = int(host.granter.turn(SERVERS, 0).left_bytes / host.factor) - 2 * MB
    waiting = threading.Thread(target=host.take, args=(1, wanted, 300.0), daemon=True)
    waiting.start()
    words, looks, seen = host.arena.board.server(1), 0, 0
    while waiting.is_alive():
        if words.refused != seen:  # the PS asks more often than the supervisor looks
            seen, looks = words.refused, looks + 1
            assert not host.granter.turn(SERVERS, 0).shares.is_full
        waiting.join(0.002)
    assert words.taken >= wanted
    assert looks > 2


def test_two_ps_that_request_more_than_half_each_are_granted_one_after_the_other(host: Host) -> None:
    """This goes on until too little is left for one request."""
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


def test_the_next_incarnation_of_a_dead_ps_has_its_grant(host: Host) -> None:
    """The PS died before its allocation, or between its allocation and the count of it."""
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


def test_the_grant_of_a_ps_that_has_ended_goes_to_the_others(host: Host) -> None:
    before = host.open_bytes(0) + host.open_bytes(1)
    host.granter.take_back({1})
    assert host.open_bytes(1) == 0
    with pytest.raises(MemoryBudgetError):
        host.take(1, 4096)
    with pytest.raises(MemoryBudgetError):
        host.take(0, before)
    host.granter.turn((0,), 0)
    host.allowance(0).require(before, "the grants of both")
    host.granter.turn(SERVERS, 0)
    assert host.open_bytes(0) + host.open_bytes(1) <= host.granter.turn(SERVERS, 0).left_bytes / host.factor


def test_a_grant_is_taken_back_while_a_ps_grows(host: Host) -> None:
    """Other processes use the rest of the budget: no grant is open until they free it."""
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


def test_a_budget_below_the_used_memory_allows_nothing_and_the_used_memory_is_reported(tmp_path: Path) -> None:
    host = Host(tmp_path, MB)
    facts = host.granter.turn(SERVERS, 5 * MB)
    assert facts.left_bytes < 0
    look = host.granter.look(facts, 1.0, may_take=False)
    assert look.used_bytes > look.budget_bytes
    with pytest.raises(MemoryBudgetError):
        host.take(1, 4096)
    host.arena.close()


def test_memory_that_a_ps_keeps_for_copies_counts_as_used(host: Host) -> None:
    """It keeps more than the copies of its present rows need."""
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
