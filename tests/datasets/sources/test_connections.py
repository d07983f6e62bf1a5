"""Ranges over several connections of a real server: every byte, whatever the source does meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.remote_file import remote_file
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.errors import DataError
from elastichost.wire.facts import InputKnobs
from tests.datasets.sources.s3_server import S3Server, s3_environment, store
from tests.datasets.sources.served import CONTENT, file, folder, server

__all__ = ["file", "folder", "s3_environment", "server", "store"]

RANGES = ((0, 1_000_000), (1_200_000, 1_200_001), (2_000_000, 3_000_000))


def whole(parts: tuple[bytearray, ...]) -> bool:
    return all(bytes(part) == CONTENT[start:stop] for (start, stop), part in zip(RANGES, parts, strict=True))


@pytest.mark.parametrize("connections", [1, 4])
def test_every_byte_arrives_over_any_number_of_connections(file: AddressedFile, connections: int) -> None:
    control = InputControl(InputKnobs(connections=connections, range_bytes=100_000))
    source = SourceConnections(control, stall_s=5.0, patience_s=20.0)
    with control.decode.span():
        assert whole(source.fetch(file, RANGES))
    sample, decode, _, _ = control.take_stages(queued=0)
    assert sample.bytes == sum(stop - start for start, stop in RANGES)
    assert sample.items == 21
    assert decode.source_s > 0.05 and decode.cpu_s < decode.source_s
    assert len(source._threads) == connections
    source.close()


def test_more_connections_work_as_soon_as_they_are_given(file: AddressedFile) -> None:
    control = InputControl(InputKnobs(range_bytes=50_000))
    source = SourceConnections(control, stall_s=5.0, patience_s=20.0)
    found: list[tuple[bytearray, ...]] = []
    thread = threading.Thread(target=lambda: found.append(source.fetch(file, RANGES)))
    thread.start()
    control.tune(InputKnobs(connections=6, range_bytes=50_000))
    thread.join()
    assert whole(found[0])
    assert len(source._threads) == 6
    source.close()


def test_quantiles_are_of_requests_of_the_present_size(file: AddressedFile) -> None:
    control = InputControl(InputKnobs(range_bytes=1_000_000))
    source = SourceConnections(control, stall_s=5.0, patience_s=20.0)
    thread = threading.Thread(target=lambda: source.fetch(file, [(0, 3_000_000)]))
    thread.start()
    while not source._threads:
        pass
    control.tune(InputKnobs(range_bytes=100_000))  # three requests of the old size are still to be answered
    thread.join()
    sample = control.take_stages(queued=0)[0]
    assert (sample.items, sample.bytes, sample.p99_s) == (3, 3_000_000, 0.0)
    source.fetch(file, [(0, 1_000_000)])
    sample = control.take_stages(queued=0)[0]
    assert (sample.items, sample.bytes) == (10, 1_000_000)
    assert 0.0 < sample.p50_s < sample.p99_s < 0.3
    source.close()


@pytest.mark.parametrize("order", [Order("stall", 1.0), Order("refuse", 0.7), Order("slow", 1.0, 0.5)])
def test_a_source_with_a_trouble_is_waited_for_and_that_is_told(
    file: AddressedFile, server: SourceServer, order: Order
) -> None:
    control = InputControl(InputKnobs(connections=3, range_bytes=100_000))
    source = SourceConnections(control, stall_s=0.3, patience_s=30.0)
    server.order(order)
    for _ in range(3):
        assert whole(source.fetch(file, RANGES))
    told = [one.trouble for one in control.take_troubles()]
    if order.fault == "slow":
        assert told == []
    else:
        wanted = {"stall": "stalled", "refuse": "refused"}[order.fault]
        assert told[0] == wanted and told[-1] == "recovered"
    source.close()


def test_a_source_that_ends_connections_in_an_answer_is_waited_for_and_that_is_told(
    file: AddressedFile, server: SourceServer
) -> None:
    control = InputControl(InputKnobs(connections=3, range_bytes=100_000))
    source, found, told = SourceConnections(control, stall_s=5.0, patience_s=30.0), [], []
    while not told:  # an order that arrives between two answers ends no request
        thread = threading.Thread(target=lambda: found.append(source.fetch(file, RANGES)))
        thread.start()
        while not told and thread.is_alive():
            server.order(Order("reset"))
            thread.join(0.01)
            told += [one.trouble for one in control.take_troubles()]
        thread.join()
    assert all(map(whole, found))
    told += [one.trouble for one in control.take_troubles()]
    assert told[0] == "reset" and told[-1] == "recovered"
    source.close()


def test_a_source_that_stays_away_is_told_to_be_gone_once_and_waited_for(
    file: AddressedFile, server: SourceServer
) -> None:
    control = InputControl()
    source, found, told = SourceConnections(control, stall_s=0.2, patience_s=0.2), [], []
    server.order(Order("refuse", 600.0))
    thread = threading.Thread(target=lambda: found.append(source.fetch(file, RANGES)))
    thread.start()
    while "gone" not in told:
        told += [one.trouble for one in control.take_troubles()]
    server.order(Order("refuse", 0.0))
    thread.join()
    assert whole(found[0])
    told += [one.trouble for one in control.take_troubles()]
    assert told == ["refused", "gone", "recovered"]
    source.close()


def test_a_file_of_a_store_that_changed_ends_the_fetch(store: S3Server) -> None:
    store.put("changing.bin", CONTENT)
    file = remote_file(store.url("changing.bin"))
    control = InputControl(InputKnobs(connections=2, range_bytes=100_000))
    source = SourceConnections(control, stall_s=5.0, patience_s=20.0)
    with control.decode.span():
        assert whole(source.fetch(file, RANGES))
    assert control.take_stages(queued=0)[0].items == 21
    store.put("changing.bin", CONTENT[::-1])
    with pytest.raises(DataError, match="changed while it was being read"):
        source.fetch(file, RANGES)
    source.close()


def test_a_file_that_changed_ends_the_fetch(file: AddressedFile, folder: Path) -> None:
    source = SourceConnections(InputControl(), stall_s=5.0, patience_s=20.0)
    (folder / "data.bin").write_bytes(CONTENT + b"x")
    with pytest.raises(DataError, match="changed while it was being read"):
        source.fetch(file, RANGES)
    source.close()


def test_a_fetch_ends_when_the_worker_ends(folder: Path) -> None:
    with SourceServer(folder, bytes_per_s=1e4) as slow:
        source = SourceConnections(InputControl(), stall_s=5.0, patience_s=600.0)
        file, errors = remote_file(slow.url("data.bin")), []

        def fetch() -> None:
            try:
                source.fetch(file, RANGES)
            except DataError as error:
                errors.append(error.message)

        thread = threading.Thread(target=fetch)
        thread.start()
        while not source._threads:
            pass
        source.close()
        thread.join(20.0)
        assert "the worker ends" in errors[0]
