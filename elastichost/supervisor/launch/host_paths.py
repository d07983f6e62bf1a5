"""The directories and addresses that the processes of one host use."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """The directories and addresses of one host. Paths are those on that host.

    control_address: of the supervisor, as this host reaches it. gate: the address at which PS listen for other
    machines, "" when there are none. is_elsewhere: the host is another machine. cores: that the run may use there.
    """

    arena: str
    sockets: str
    run_dir: str
    control_address: str
    gate: str = ""
    is_elsewhere: bool = False
    cores: tuple[int, ...] = ()
