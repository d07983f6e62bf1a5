"""Each host must have room for the rows of its parameter servers (PS), and the error says how many PS would do."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.config.job import JobSpec
from elastichost.errors import ArenaFullError, PreflightError
from elastichost.plan import Plan, ProcessSpec
from elastichost.resources import OtherHost
from elastichost.specs import TableSpec
from elastichost.supervisor.startup import room
from elastichost.supervisor.startup.room import check_room, shares_of_rows

MIB = 1 << 20
JOB = JobSpec.model_validate(
    {
        "model": {"build": "elastichost.models:dlrm"},
        "data": {"train": ["t.parquet"], "label": "label", "categorical": ["item"]},
        "tables": {"default": {"dim": 32, "optimizer": {"name": "sgd"}}},
    }
)


def table(mib: int) -> TableSpec:
    """A fixed table of this size: a row has 128 bytes."""
    return TableSpec(name="item", index=0, features=("item",), key_kind="int", rows=mib * MIB // 128)


DYNAMIC = TableSpec(name="item", index=0, features=("item",), key_kind="int", rows=0)


def plan(*hosts: int) -> Plan:
    """A plan with a PS on each of these hosts."""
    servers = tuple(ProcessSpec("server", index, (), 1, host=host) for index, host in enumerate(hosts))
    return Plan((ProcessSpec("worker", 0, (), 1), *servers), "mixed", "a test")


def other(name: str, mib: int, budget_mib: int = 10**6) -> OtherHost:
    return OtherHost(name, (0, 1), "/dev/shm", mib * MIB, budget_mib * MIB)


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """The free bytes of this host's file system."""
    facts = {"bytes": 100 * MIB}
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    monkeypatch.setattr(room, "free_bytes", lambda path: facts["bytes"])
    return facts


def problem(*arguments: Any, **more: Any) -> ArenaFullError:
    with pytest.raises(ArenaFullError) as caught:
        check_room(JOB, *arguments, **more)
    return caught.value


def test_one_host_has_all_rows() -> None:
    assert check_room(JOB, (table(100),), plan(0), 100 * MIB) == ()
    assert "need 101.0 MiB in" in problem((table(101),), plan(0), 200 * MIB).message
    assert "only 100.0 MiB are free" in problem((table(101),), plan(0), 200 * MIB).message
    assert "resources.memory allows 50.0 MiB" in problem((table(60),), plan(0), 50 * MIB).message
    assert check_room(JOB, (table(120),), plan(0), 200 * MIB, spare_bytes=20 * MIB) == ()


def test_emulated_hosts_share_the_memory_of_this_one() -> None:
    assert "need 101.0 MiB" in problem((table(101),), plan(0, 1), 200 * MIB).message


def test_each_of_several_hosts_has_the_rows_of_its_ps() -> None:
    others = {1: other("second", 100), 2: other("third", 60)}
    assert check_room(JOB, (table(180),), plan(0, 1, 2), 10**9, others=others) == ()
    error = problem((table(200),), plan(0, 1, 2), 10**9, others=others)
    assert (
        error.message
        == "1/3 of the rows of the fixed tables needs 66.7 MiB in /dev/shm of third, but only 60.0 MiB are free"
    )
    assert check_room(JOB, (table(200),), plan(0, 1), 10**9, others=others) == (), "no PS is on the third"


def test_too_few_ps_are_an_error_that_names_enough() -> None:
    others = {1: other("second", 100), 2: other("third", 100)}
    assert "[3, 12]" in problem((table(290),), plan(0), 10**9, others=others).hint
    assert "[2, 12]" in problem((table(190),), plan(0), 10**9, others=others).hint
    assert "resources.servers" not in problem((table(310),), plan(0, 1, 2), 10**9, others=others).hint
    budget = {1: other("second", 100, budget_mib=40)}
    assert "resources.memory allows 40.0 MiB" in problem((table(100),), plan(0, 1), 10**9, others=budget).message


def test_first_rows_of_dynamic_tables_count_too(free: dict[str, int]) -> None:
    (warning,) = check_room(JOB, (DYNAMIC,), plan(0), 10**12)
    assert "100.0 MiB free" in warning
    free["bytes"] = 3 * MIB
    assert "to start" in problem((DYNAMIC,), plan(0), 10**12).message


def test_a_directory_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path / "missing"))
    with pytest.raises(PreflightError, match="not a directory that you may write to"):
        check_room(JOB, (table(1),), plan(0), MIB)


def test_rows_of_dynamic_tables_may_fill_every_host() -> None:
    assert room.memory_for_rows(80 * MIB, 100 * MIB, {}) == 80 * MIB
    others = {1: other("second", 60, budget_mib=90), 2: other("third", 70, budget_mib=20)}
    assert room.memory_for_rows(80 * MIB, 50 * MIB, others) == (50 + 60 + 20) * MIB


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_shares_are_those_of_the_ps(hosts: list[int]) -> None:
    others = {number: other(str(number), 1) for number in (1, 2, 3)}
    shares = shares_of_rows(plan(*hosts), others)
    assert sum(shares.values()) == 1 and set(shares) == set(hosts)
    assert all(share == Fraction(hosts.count(host), len(hosts)) for host, share in shares.items())
    assert shares_of_rows(plan(*hosts), {}) == {0: 1}
