"""What stands before the training data of a job under chaos."""

from __future__ import annotations

import contextlib
import http.client
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from elastichost.chaos.faults.source_of_job import FaultySource
from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_proxy import SourceProxy
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.config.job import JobSpec
from elastichost.errors import ConfigError
from tests.datasets.conftest import load, write_parquet

COLUMNS = 'label = "y"\ncategorical = ["c"]'


def job(folder: Path, train: str, more: str = "") -> JobSpec:
    return load(folder, f'train = "{train}"\n{COLUMNS}\n{more}')


def test_files_are_served_and_a_store_is_read_through_a_proxy(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", {"y": np.zeros(3, np.float32), "c": np.arange(3)})
    here = FaultySource(job(tmp_path, f"{tmp_path}/*.parquet"), {})
    assert isinstance(here.process, SourceServer)
    environ = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}
    with FaultySource(
        job(tmp_path, "s3://b/x/*.parquet?region=r", 'test = "http://elsewhere/t.parquet"'), environ
    ).process:
        pass
    there = FaultySource(job(tmp_path, "s3://b/x/*.parquet?region=r", 'test = "s3://b/t.parquet"'), environ)
    with there.process as proxy:
        through = f"endpoint_override=http://127.0.0.1:{proxy.port}"
        assert there.settings() == (
            f'data.train=["s3://b/x/*.parquet?region=r&{through}"]',
            f'data.test=["s3://b/t.parquet?{through}"]',
        )


def test_data_of_another_server_is_left_alone(tmp_path: Path) -> None:
    source = FaultySource(job(tmp_path, "http://127.0.0.1:80/a.parquet", 'test = "https://h/t.parquet"'), {})
    with source.process as proxy:
        assert source.settings() == (
            f'data.train=["http://127.0.0.1:{proxy.port}/a.parquet"]',
            'data.test=["https://h/t.parquet"]',
        )


@pytest.mark.parametrize(
    "train", ["s3://b/x", "https://h/a.parquet", "gs://b/x", "s3://b/x?endpoint_override=https://h"]
)
def test_a_server_that_a_proxy_cannot_stand_before_is_refused(tmp_path: Path, train: str) -> None:
    with pytest.raises(ConfigError, match="http, not https"):
        FaultySource(job(tmp_path, train), {})


def test_bytes_pass_a_proxy_and_nothing_listens_while_the_source_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789" * 20_000)

    def read(url: str) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Range": "bytes=0-199999"})) as answer:
            try:
                found: bytes = answer.read()
            except http.client.IncompleteRead as error:  # the source went while it answered
                raise ConnectionResetError("closed within an answer") from error
            return found

    def read_on(url: str) -> None:
        while True:
            read(url)

    def is_back(url: str) -> bool:
        with contextlib.suppress(OSError):
            return len(read(url)) == 200_000
        return False

    with SourceServer(tmp_path) as server, SourceProxy("127.0.0.1", server.port) as proxy:
        for source, url in ((server, server.url("a")), (proxy, f"{proxy.endpoint}/a")):
            assert read(url) == (tmp_path / "a").read_bytes()
            source.order(Order("gone", 0.5))
            with pytest.raises(OSError, match="refused|reset|closed"):
                read_on(url)
            while not is_back(url):
                pass
