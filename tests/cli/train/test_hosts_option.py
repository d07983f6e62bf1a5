"""The options that name other machines exclude each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.cli.train.hosts_option import Cluster, hosts_asked
from elastichost.errors import ConfigError


def test_without_options_there_are_no_other_hosts() -> None:
    assert hosts_asked(None, [], None, "") is None


@pytest.mark.parametrize(
    ("path", "addresses", "cluster"),
    [(Path("hosts.toml"), ["a"], None), (None, ["a"], Cluster.RAY), (Path("hosts.toml"), [], Cluster.RAY)],
)
def test_host_options_exclude_each_other(path: Path | None, addresses: list[str], cluster: Cluster | None) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        hosts_asked(path, addresses, cluster, "")


def test_an_address_of_ray_needs_ray() -> None:
    with pytest.raises(ConfigError, match="add --on ray"):
        hosts_asked(None, ["a"], None, "auto")
