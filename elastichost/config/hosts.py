"""`hosts.toml`: the other machines of a run. The one that `run` is called on is host 0 and is not in it.

Nodes of a Ray cluster become hosts without a file (`supervisor.ray_cluster`).

[supervisor]
address = "10.0.0.1"        # where the others reach this machine; default: where ssh says it comes from

[[hosts]]
address = "user@10.0.0.2"   # as ssh takes it
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
    "KEPT_HOSTS_FILE",
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

MOST_HOSTS = 15  # beside this one
KEPT_HOSTS_FILE = "hosts.json"  # of a run directory: the machines that the run uses (`read_hosts`)


class HostSection(Section):
    """One machine."""

    address: str = Field(
        default="", description="as ssh takes it: user@name, or a Host of ~/.ssh/config; of a node of Ray: its address"
    )
    name: str = Field(default="", description="how it is called in messages; default: the address without its user")
    transport: Literal["ssh", "ray", "local"] = Field(
        default="ssh",
        description='how its agent is reached; "ray": by an actor of a Ray cluster; "local": a further host on this '
        "very machine, its agent started without either: for tests",
    )
    cluster: str = Field(default="", description="of a node of Ray: its cluster, as `ray.init` takes it")
    node: str = Field(default="", description="of a node of Ray: its id")
    python: str = Field(
        default="", description="the interpreter there that has elastichost; default: the path of this one"
    )
    interface: str = Field(default="", description="address its PS listen at; default: where ssh comes in")
    options: tuple[str, ...] = Field(
        default=(), strict=False, description='further arguments of ssh, such as ["-p", "2222"]'
    )
    arena_directory: str = Field(default="", description="where rows are kept there; default: /dev/shm")
    cores: Annotated[int, Ge(0)] = Field(default=0, description="that may be used there; 0: all")

    @field_validator("address")
    @classmethod
    def _is_no_option(cls, value: str) -> str:
        if value.startswith("-") or any(character.isspace() for character in value):
            raise ValueError(f"{value!r} is no address of a host")
        return value

    @model_validator(mode="after")
    def _can_be_reached(self) -> HostSection:
        if not self.address and self.transport == "ssh":
            raise ValueError("address is missing")
        if self.transport == "ray" and not (self.cluster and self.node and self.cores):
            raise ValueError("a node of Ray needs cluster, node and cores; `--on ray` finds them")
        return self

    @property
    def shown(self) -> str:
        """Its name."""
        return self.name or self.address.rpartition("@")[2] or "local"


class SupervisorSection(Section):
    """The machine that `run` is called on."""

    address: str = Field(default="", description="where the others reach it; default: where ssh says it comes from")


class HostsFile(Section):
    """All of it. Host 0 is the machine that `run` is called on."""

    supervisor: SupervisorSection = SupervisorSection()
    hosts: tuple[HostSection, ...] = Field(
        strict=False, max_length=MOST_HOSTS, description="none: they may join later, with `scale RUN --host user@name`"
    )
    timeout_s: Annotated[float, Ge(1), Le(3600)] = Field(
        default=10.0,
        description="a host that is silent for so long is lost: what it held comes back from the checkpoint",
    )

    @model_validator(mode="after")
    def _names_differ(self) -> HostsFile:
        names = [host.shown for host in self.hosts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"hosts need names of their own; more than one is called {', '.join(twice)}")
        return self


def load_hosts(path: Path) -> HostsFile:
    """Raises ConfigError with every problem, each naming its key."""
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    return checked_hosts(facts, str(path))


def hosts_of_addresses(addresses: tuple[str, ...]) -> HostsFile:
    """Of `--host ADDRESS --host ADDRESS`. Raises ConfigError."""
    return checked_hosts({"hosts": [{"address": address} for address in addresses]}, "--host")


def read_hosts(path: Path) -> HostsFile:
    """As a run keeps them in its directory (JSON). Raises ConfigError."""
    try:
        return HostsFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="name the hosts again with --hosts") from error


def hosts_of_text(text: str) -> HostsFile:
    """Of JSON, as a command carries it. Raises ConfigError."""
    try:
        return HostsFile.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"these are no hosts: {error}", hint="is the command line of another version?") from error


def with_hosts(job: JobSpec, hosts: HostsFile) -> JobSpec:
    """The job on this machine and those: each has rows, and so many PS that each has one if the job leaves it open.
    Raises ConfigError for one that only emulates processes."""
    if job.emulate.enabled:
        raise ConfigError("an emulated job runs on one machine", hint="leave out [emulate], or the hosts")
    count = 1 + len(hosts.hosts)
    servers = count if job.resources.servers == "auto" else job.resources.servers
    return job.model_copy(update={"resources": job.resources.model_copy(update={"hosts": count, "servers": servers})})


def checked_hosts(facts: dict[str, object], where: str) -> HostsFile:
    """Raises ConfigError with every problem; where: what they come from."""
    try:
        return HostsFile.model_validate(facts)
    except ValidationError as error:
        problems = tuple(
            f"{'.'.join(str(part) for part in one['loc']) or 'the file'}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors()
        )
        raise ConfigError(f"{where}: the hosts are not described as they should be", problems=problems) from error
