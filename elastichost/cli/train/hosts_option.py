"""Options that name other machines: `--hosts FILE`, one `--host ADDRESS` for each machine, or `--on ray`."""

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
    """A cluster system that lists the other machines."""

    RAY = "ray"


HostsOption = Annotated[
    Path | None,
    typer.Option("--hosts", metavar="FILE", help="Use the machines in this file (TOML); `doctor --hosts` checks them."),
]
AddressOption = Annotated[
    list[str],
    typer.Option("--host", metavar="USER@HOST", help="Use this machine too, by its ssh address; repeatable."),
]
OnOption = Annotated[
    Cluster | None,
    typer.Option("--on", help="Use all nodes of the Ray cluster to which this machine belongs."),
]
RayAddressOption = Annotated[
    str,
    typer.Option("--ray-address", metavar="ADDRESS", help="With --on ray: the address for ray.init; default: auto."),
]


def hosts_asked(path: Path | None, addresses: list[str], cluster: Cluster | None, ray_address: str) -> HostsFile | None:
    """The machines that the options name, or None without such an option. Raises ConfigError for options that exclude
    each other, and PreflightError if the Ray cluster cannot be used."""
    from elastichost.config.hosts import hosts_of_addresses, load_hosts

    if sum((path is not None, bool(addresses), cluster is not None)) > 1:
        raise ConfigError("--hosts, --host and --on exclude each other", hint="use only one of these options")
    if ray_address and cluster is None:
        raise ConfigError("--ray-address needs --on ray", hint="add --on ray")
    if path is not None:
        return load_hosts(path)
    if cluster is not None:
        from elastichost.supervisor.remote.ray.cluster import DEFAULT_ADDRESS, hosts_on_ray

        return hosts_on_ray(ray_address or DEFAULT_ADDRESS)
    return hosts_of_addresses(tuple(addresses)) if addresses else None
