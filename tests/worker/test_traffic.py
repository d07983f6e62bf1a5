"""Bytes that count as traffic: those between hosts, or all bytes when there is only one host."""

from __future__ import annotations

import numpy as np

from elastichost.wire.facts import ServerAddress
from elastichost.worker.channels.routing import Directory


def directory(*hosts: int) -> Directory:
    servers = {index: ServerAddress(index, 1, "", host) for index, host in enumerate(hosts)}
    return Directory(1, servers, 0, (np.zeros(4, np.uint16),))


def test_with_several_hosts_only_bytes_between_hosts_count() -> None:
    assert [directory(0, 1, 0).is_traffic(server, 0) for server in range(3)] == [False, True, False]
    assert [directory(0, 1, 0).is_traffic(server, 1) for server in range(3)] == [True, False, True]
    assert directory(0).is_traffic(0, 1), "all PS are on another host"


def test_on_one_host_all_bytes_count() -> None:
    assert directory(0, 0).is_traffic(1, 0)
