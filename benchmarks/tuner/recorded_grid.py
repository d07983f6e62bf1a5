"""The recorded grid of real runs: the measurements of every configuration, and the machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.tuner.facts import Observation, Workload
from elastichost.tuner.policy.candidates import Bounds

__all__ = ["DATA", "Grid", "GridCase", "read_grid", "read_grids", "write_grid"]

DATA = Path(__file__).parent / "data"


class GridCase(msgspec.Struct, frozen=True):
    """One job in all its configurations. blocks: in the order of measurement, `rounds` for each configuration."""

    name: str
    job: str  # file in examples/
    settings: dict[str, str]
    workload: Workload
    bounds: Bounds
    rounds: int
    blocks: tuple[Observation, ...]


class Grid(msgspec.Struct, frozen=True):
    """All cases of one recording on one machine."""

    recorded_utc: str
    cpu: str
    cores: int
    memory_bytes: int
    system: str
    versions: dict[str, str]
    cases: tuple[GridCase, ...]


def read_grid(path: Path) -> Grid:
    """Reads a grid. Raises OSError or msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Grid)


def read_grids() -> tuple[tuple[str, Grid], ...]:
    """(name, grid) of every grid in the repository, sorted by name."""
    return tuple((path.stem, read_grid(path)) for path in sorted(DATA.glob("grid-*.json")))


def write_grid(path: Path, grid: Grid) -> None:
    """Writes a grid as indented JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(grid), indent=1) + b"\n")
