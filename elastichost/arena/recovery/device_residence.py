"""The record of an arena whose model resides in memory of a GPU at present, so that the one in the arena is older.

    no record   the model in the arena is the job's model
    a record    rows, dense vector and their optimizer state reside in the GPU's memory; those in the arena are a copy
                as of `written_version`

A worker writes the record after the model is in the GPU's memory and before it trains there, and removes it when it is
written back and the worker trains no more. While there is a record, no process may use the model in the arena, but for
a checkpoint of `written_version`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.errors import ArenaError

__all__ = ["NEVER", "DeviceResidence", "forget_residence", "read_residence", "write_residence"]

FILE = "DEVICE_RESIDENCE.json"
NEVER = -1


class DeviceResidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """token: names the memory for its holder. device: CUDA_VISIBLE_DEVICES of the process that made it, which selects
    its GPU. written_version: version of the dense vector with which the model in the arena agrees; NEVER: with none."""

    token: str
    device: str
    written_version: int = NEVER


def read_residence(arena: Path) -> DeviceResidence | None:
    """The record of this arena; None: its model is in it. Raises ArenaError for a damaged record."""
    try:
        return msgspec.json.decode((arena / FILE).read_bytes(), type=DeviceResidence)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ArenaError(f"{arena / FILE} cannot be read: {error}", hint="begin from a checkpoint") from error


def write_residence(arena: Path, record: DeviceResidence) -> None:
    """Raises OSError."""
    write_atomically(arena / FILE, msgspec.json.encode(record))


def forget_residence(arena: Path) -> None:
    """The model in the arena is the job's model again."""
    (arena / FILE).unlink(missing_ok=True)
