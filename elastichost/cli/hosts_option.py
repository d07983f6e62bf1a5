"""Options that name other machines: `--hosts FILE`, or `--host ADDRESS` for each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elastichost.errors import ConfigError

if TYPE_CHECKING:
    from elastichost.config_hosts import HostsFile

__all__ = ["AddressOption", "HostsOption", "hosts_asked"]

HostsOption = Annotated[
    Path | None,
    typer.Option("--hosts", metavar="FILE", help="Other machines (TOML), over ssh; `doctor --hosts` checks them."),
]
AddressOption = Annotated[
    list[str],
    typer.Option("--host", metavar="USER@HOST", help="One other machine, as ssh takes it; repeatable."),
]


def hosts_asked(path: Path | None, addresses: list[str]) -> HostsFile | None:
    """None: none were named. Raises ConfigError."""
    from elastichost.config_hosts import hosts_of_addresses, load_hosts

    if path is not None and addresses:
        raise ConfigError("hosts are named by a file or one by one", hint="leave out --hosts or --host")
    if path is not None:
        return load_hosts(path)
    return hosts_of_addresses(tuple(addresses)) if addresses else None
