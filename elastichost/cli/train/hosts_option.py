"""Options that name other machines: `--hosts FILE`, or `--host ADDRESS` for each, or `--on ray`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elastichost.errors import ConfigError

if TYPE_CHECKING:
    from elastichost.config.hosts import HostsFile

__all__ = ["AddressOption", "Cluster", "HostsOption", "OnOption", "RayAddressOption", "hosts_asked"]


class Cluster(StrEnum):
    """Who knows the other machines."""

    RAY = "ray"


HostsOption = Annotated[
    Path | None,
    typer.Option("--hosts", metavar="FILE", help="Other machines (TOML), over ssh; `doctor --hosts` checks them."),
]
AddressOption = Annotated[
    list[str],
    typer.Option("--host", metavar="USER@HOST", help="One other machine, as ssh takes it; repeatable."),
]
OnOption = Annotated[
    Cluster | None,
    typer.Option("--on", help="All nodes of the Ray cluster that this machine is a node of."),
]
RayAddressOption = Annotated[
    str,
    typer.Option("--ray-address", metavar="ADDRESS", help="Of that cluster, as ray.init takes it; default: auto."),
]


def hosts_asked(path: Path | None, addresses: list[str], cluster: Cluster | None, ray_address: str) -> HostsFile | None:
    """None: none were named. Raises ConfigError, and PreflightError for a cluster that cannot be used."""
    from elastichost.config.hosts import hosts_of_addresses, load_hosts

    if sum((path is not None, bool(addresses), cluster is not None)) > 1:
        raise ConfigError("hosts are named in one way", hint="leave out all but one of --hosts, --host and --on")
    if ray_address and cluster is None:
        raise ConfigError("--ray-address is of a Ray cluster", hint="add --on ray")
    if path is not None:
        return load_hosts(path)
    if cluster is not None:
        from elastichost.supervisor.remote.ray.cluster import DEFAULT_ADDRESS, hosts_on_ray

        return hosts_on_ray(ray_address or DEFAULT_ADDRESS)
    return hosts_of_addresses(tuple(addresses)) if addresses else None
