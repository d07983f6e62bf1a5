"""Where the processes of one host find what is theirs, as they see it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """control_address: of the supervisor; gate: where PS listen for other machines, "" when there are none.
    is_elsewhere: on another machine, whose cores these are."""

    arena: str
    sockets: str
    run_dir: str
    control_address: str
    gate: str = ""
    is_elsewhere: bool = False
    cores: tuple[int, ...] = ()
