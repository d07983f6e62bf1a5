"""The hosts file `hosts.toml`: the other machines of a run. The machine that `run` is called on is host 0 and is not
listed.

Nodes of a Ray cluster become hosts without a file (`supervisor.remote.ray`).

[supervisor]
address = "10.0.0.1"        # at which the other machines reach this one; default: the address that ssh comes from

[[hosts]]
address = "user@10.0.0.2"   # an address that ssh accepts
python = "/home/user/venv/bin/python"
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field, ValidationError, field_validator, model_validator

from elastichost.config.base import Section
from elastichost.config.job import JobSpec
from elastichost.errors import ConfigError

__all__ = [
    "MOST_HOSTS",
    "HostSection",
    "HostsFile",
    "checked_hosts",
    "hosts_of_addresses",
    "hosts_of_text",
    "load_hosts",
    "read_hosts",
    "with_hosts",
]

MOST_HOSTS = 15  # host 0 not counted


class HostSection(Section):
    """One machine of the run, other than the one that `run` is called on."""

    address: str = Field(
        default="",
        description="The address for ssh: user@name, or a Host of ~/.ssh/config. For a node of Ray: its address.",
    )
    name: str = Field(
        default="", description="The name of the machine in messages. Default: the address without its user."
    )
    transport: Literal["ssh", "ray", "local"] = Field(
        default="ssh",
        description='How the agent of the machine is started: "ssh", or "ray" (by an actor of a Ray cluster). "local" '
        "is for tests: one more host on this machine.",
    )
    cluster: str = Field(
        default="", description="For a node of Ray: the address of its cluster, in the form that `ray.init` accepts."
    )
    node: str = Field(default="", description="For a node of Ray: its id.")
    python: str = Field(
        default="",
        description="Path of the Python interpreter on the machine that has elastichost. Default: the path of this "
        "machine's interpreter.",
    )
    interface: str = Field(
        default="",
        description="Address at which the parameter servers of the machine listen. Default: the address at which ssh "
        "reaches it.",
    )
    options: tuple[str, ...] = Field(
        default=(), strict=False, description='Further arguments of ssh, for example ["-p", "2222"].'
    )
    arena_directory: str = Field(
        default="", description="Directory on the machine in which the rows are kept. Default: /dev/shm."
    )
    cores: Annotated[int, Ge(0)] = Field(
        default=0, description="Number of cores of the machine that the run may use. 0: all."
    )

    @field_validator("address")
    @classmethod
    def _is_no_option(cls, value: str) -> str:
        if value.startswith("-") or any(character.isspace() for character in value):
            raise ValueError(f"{value!r} is not the address of a host: it begins with '-' or contains a space")
        return value

    @model_validator(mode="after")
    def _can_be_reached(self) -> HostSection:
        if not self.address and self.transport == "ssh":
            raise ValueError("address is missing")
        if self.transport == "ray" and not (self.cluster and self.node and self.cores):
            raise ValueError('transport = "ray" needs cluster, node and cores; `run --on ray` finds them')
        return self

    @property
    def shown(self) -> str:
        """The name of the machine in messages."""
        return self.name or self.address.rpartition("@")[2] or "local"


class SupervisorSection(Section):
    """The machine that `run` is called on."""

    address: str = Field(
        default="",
        description="Address at which the other machines reach this one. Default: the address that ssh comes from.",
    )


class HostsFile(Section):
    """The whole hosts file. Host 0 is the machine that `run` is called on; the hosts of the file are 1, 2, ..."""

    supervisor: SupervisorSection = SupervisorSection()
    hosts: tuple[HostSection, ...] = Field(
        strict=False,
        max_length=MOST_HOSTS,
        description="The other machines. With an empty list, machines may join later: `scale RUN --host user@name`.",
    )
    timeout_s: Annotated[float, Ge(1), Le(3600)] = Field(
        default=10.0,
        description="A host that sends nothing for this time, in seconds, is lost. The rows that it held are then "
        "restored from the newest checkpoint.",
    )

    @model_validator(mode="after")
    def _names_differ(self) -> HostsFile:
        names = [host.shown for host in self.hosts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the names of hosts must differ; several hosts have the name {', '.join(twice)}")
        return self


def load_hosts(path: Path) -> HostsFile:
    """Reads a hosts file. Raises ConfigError with every problem, each with its key."""
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return checked_hosts(facts, str(path))


def hosts_of_addresses(addresses: tuple[str, ...]) -> HostsFile:
    """The hosts of `--host ADDRESS --host ADDRESS`. Raises ConfigError."""
    return checked_hosts({"hosts": [{"address": address} for address in addresses]}, "--host")


def read_hosts(path: Path) -> HostsFile:
    """The hosts that a run keeps as JSON in its directory. Raises ConfigError."""
    try:
        return HostsFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="name the hosts again with --hosts") from error


def hosts_of_text(text: str) -> HostsFile:
    """The hosts in the JSON text of a command. Raises ConfigError."""
    try:
        return HostsFile.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(
            f"the list of hosts cannot be read: {error}",
            hint="call the command with the version of elastichost that started the run",
        ) from error


def with_hosts(job: JobSpec, hosts: HostsFile) -> JobSpec:
    """The job on this machine and the given ones: each machine has rows, and with `resources.servers = "auto"` each has
    a PS. Raises ConfigError for an emulated job."""
    if job.emulate.enabled:
        raise ConfigError("an emulated job runs on one machine", hint="set emulate.enabled = false, or name no hosts")
    count = 1 + len(hosts.hosts)
    servers = count if job.resources.servers == "auto" else job.resources.servers
    return job.model_copy(update={"resources": job.resources.model_copy(update={"hosts": count, "servers": servers})})


def checked_hosts(facts: dict[str, object], where: str) -> HostsFile:
    """Validates the content of a hosts file. `where`: the source, for the message. Raises ConfigError with every
    problem."""
    try:
        return HostsFile.model_validate(facts)
    except ValidationError as error:
        problems = tuple(
            f"{'.'.join(str(part) for part in one['loc']) or 'the file'}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors()
        )
        raise ConfigError(f"{where}: the description of the hosts is not valid", problems=problems) from error
