"""Checks that the rows of a job fit into the memory of the hosts on which its first plan puts them.

With several machines the rows are divided evenly among the parameter servers (PS), and those of a PS are on its host.
So a job may need more memory than any of its hosts has, if it has enough PS.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from elastichost.arena.files import MORE_ROOM
from elastichost.arena.host import SMALL_BYTES, arena_root, free_bytes
from elastichost.arena.least_room import SPARE_BYTES, first_rows_bytes
from elastichost.config.job import JobSpec
from elastichost.config.tables import table_settings
from elastichost.errors import ArenaFullError, PreflightError
from elastichost.human_readable import mib
from elastichost.plan import Plan
from elastichost.resources import OtherHost
from elastichost.specs import TableSpec
from elastichost.tuner.placement.process_placement import hosts_of_servers

__all__ = ["NO_HOSTS", "check_room", "memory_for_rows", "shares_of_rows"]

NO_HOSTS: Mapping[int, OtherHost] = {}
MOST_TRIED = 4  # PS for each host; with more the rows are not divided more evenly


class _HostRoom(NamedTuple):
    """place: where its rows are kept. free_bytes: there. budget_bytes: memory that the job may use."""

    place: str
    free_bytes: int
    budget_bytes: int


def shares_of_rows(plan: Plan, others: Mapping[int, OtherHost]) -> dict[int, Fraction]:
    """Host -> its share of all rows; only hosts with a PS. others: the other machines; without them all rows are in the
    memory of this one, whatever hosts the plan names."""
    if not others:
        return {0: Fraction(1)}
    return {
        host: Fraction(servers, len(plan.servers))
        for host, servers in sorted(Counter(spec.host for spec in plan.servers).items())
    }


def memory_for_rows(budget_bytes: int, free_bytes_here: int, others: Mapping[int, OtherHost]) -> int:
    """Bytes that all rows together may take: the rows of dynamic tables may fill the memory of every host, and each
    host limits those that it has. budget_bytes, free_bytes_here: of this host."""
    there = sum(min(one.budget_bytes, one.free_bytes) for one in others.values())
    return min(budget_bytes, free_bytes_here) + there


def check_room(
    job: JobSpec,
    tables: tuple[TableSpec, ...],
    plan: Plan,
    budget_bytes: int,
    spare_bytes: int = 0,
    others: Mapping[int, OtherHost] = NO_HOSTS,
) -> tuple[str, ...]:
    """Checks that each host has room for the least bytes of its share of the tables, and returns warnings. The model
    may need more bytes, which are checked when it is known.

    budget_bytes: memory of this host that the job may use. spare_bytes: of the arena that a resumed run takes over;
    they count as free. others: host number -> the other machine. Raises ArenaFullError, which says how many PS would
    do, and PreflightError for an unusable directory."""
    root = arena_root()
    if not root.is_dir() or not os.access(root, os.W_OK | os.X_OK):
        raise PreflightError(
            f"{root} is not a directory that you may write to; the rows of a run are kept there",
            hint="set ELASTICHOST_ARENA_DIR to a directory you may write to, or unset it to use /dev/shm",
        )
    fixed = sum(_table_bytes(job, table) for table in tables if not table.is_dynamic)
    dynamic = sum(_first_rows_bytes(job, table) for table in tables if table.is_dynamic)
    hosts = {0: _HostRoom(str(root), free_bytes(root) + spare_bytes, budget_bytes)}
    for number, one in others.items():
        hosts[number] = _HostRoom(f"{one.arena_root} of {one.name}", one.free_bytes, one.budget_bytes)
    for number, share in shares_of_rows(plan, others).items():
        error = _lack(hosts[number], share, fixed, dynamic)
        if error is None:
            continue
        servers = _least_servers(hosts, fixed, dynamic) if others else None
        raise error if servers is None else ArenaFullError(error.message, hint=_more_servers(servers, len(hosts)))
    return tuple(_warnings(root, hosts[0], dynamic))


def _lack(host: _HostRoom, share: Fraction, fixed: int, dynamic: int) -> ArenaFullError | None:
    """Why this share of the tables does not fit on a host; None: it fits."""
    needed, first = int(fixed * share), int(dynamic * share)
    of_rows = "the fixed tables need" if share == 1 else f"{share} of the rows of the fixed tables needs"
    if needed > host.free_bytes:
        return ArenaFullError(
            f"{of_rows} {mib(needed)} in {host.place}, but only {mib(host.free_bytes)} are free", hint=MORE_ROOM
        )
    if first and needed + first + SPARE_BYTES > host.free_bytes:
        return ArenaFullError(
            f"the job needs at least {mib(needed + first + SPARE_BYTES)} in {host.place} to start (for fixed "
            f"tables, first rows of dynamic tables, and staged pushes), but only {mib(host.free_bytes)} are free",
            hint=MORE_ROOM,
        )
    if needed > host.budget_bytes:
        return ArenaFullError(
            f"{of_rows} {mib(needed)} in {host.place}, but resources.memory allows {mib(host.budget_bytes)}",
            hint="raise resources.memory, or give the largest tables fewer rows",
        )
    return None


def _least_servers(hosts: Mapping[int, _HostRoom], fixed: int, dynamic: int) -> int | None:
    """The least number of PS with which the rows fit; None: they do not fit with any number."""
    for many in range(1, MOST_TRIED * len(hosts) + 1):
        placed = Counter(hosts_of_servers({}, range(many), sorted(hosts)).values())
        if all(_lack(hosts[one], Fraction(count, many), fixed, dynamic) is None for one, count in placed.items()):
            return many
    return None


def _more_servers(servers: int, hosts: int) -> str:
    most = max(servers, MOST_TRIED * hosts)
    return f"write resources.servers = [{servers}, {most}]: with so many parameter servers {hosts} hosts share the rows"


def _warnings(root: Path, here: _HostRoom, dynamic: int) -> Iterator[str]:
    if dynamic and here.free_bytes < min(here.budget_bytes, SMALL_BYTES):
        yield (
            f"{root} has {mib(here.free_bytes)} free. The rows of dynamic tables are kept there: when it is full, new "
            f"ids get no row ({MORE_ROOM})"
        )


def _first_rows_bytes(job: JobSpec, table: TableSpec) -> int:
    """Bytes of the first rows of a dynamic table with one embedding. The model may have more embeddings of it."""
    return first_rows_bytes(1, int(table_settings(job, table.name).optimizer.name != "sgd"))


def _table_bytes(job: JobSpec, table: TableSpec) -> int:
    settings = table_settings(job, table.name)
    padded = (settings.dim + 3) // 4 * 4
    state = {"sgd": 0, "adagrad": padded, "rowwise_adagrad": 1, "adam": 2 * padded + 1}[settings.optimizer.name]
    return table.rows * ((2 if settings.precision == "bfloat16" else 4) * padded + 4 * state)
