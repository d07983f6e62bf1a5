"""`tests.system.supervise`, but one PS owns nearly all buckets at first, and a PS counts as busy earlier.
`python -m tests.system.supervise_lopsided JOB RUN_DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from elastichost.sharding import ShardMap, even_shard_map
from elastichost.specs import TableSpec
from elastichost.supervisor.controllers import shard_map as sharding
from elastichost.tuner.placement import rebalance
from tests.system.supervise import main


def lopsided(tables: tuple[TableSpec, ...], servers: tuple[int, ...], epoch: int) -> ShardMap:
    """A shard map in which the second PS owns one bucket."""
    even = even_shard_map(tables, servers, epoch)
    rows = [[servers[0]] * len(row) for row in even.owners]
    rows[-1][-1] = servers[-1]
    return msgspec.structs.replace(even, owners=tuple(map(tuple, rows)))


if __name__ == "__main__":
    sharding.even_shard_map = lopsided  # type: ignore[attr-defined]
    rebalance.BUSY = 0.02
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), None))
