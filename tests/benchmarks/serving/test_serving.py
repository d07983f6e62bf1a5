"""The clients of the benchmark count what a server answers, and its requests fit the model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.harness.runner import run
from benchmarks.serving.benchmark import ARMS, PLAIN, PROGRAM, benchmark_of, write_bodies
from benchmarks.serving.load import Load, measure


class Answering(BaseHTTPRequestHandler):
    """Answers every other request with 200, the others with 503."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).count += 1
        self.send_response(200 if self.count % 2 else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_clients_count_good_and_failed_answers(port: int, tmp_path: Path) -> None:
    body = tmp_path / "request.json"
    body.write_text('{"rows": []}')
    load = measure(port, 2, 1.0, [body])
    assert load.clients == 2
    assert load.requests > 0
    assert abs(load.requests - load.failed) <= 2
    assert 0 < load.p50_ms <= load.p99_ms


def test_requests_have_the_same_rows_as_json_and_arrow(tmp_path: Path) -> None:
    bodies = write_bodies(tmp_path, rows=3, count=2)
    for as_json, as_arrow in zip(bodies["json"], bodies["arrow"], strict=True):
        rows = json.loads(as_json.read_text())["rows"]
        assert rows == pa.ipc.open_stream(as_arrow.read_bytes()).read_all().to_pylist()
        assert len(rows) == 3
        assert len(rows[0]) == 39


def test_the_server_is_compared_with_the_plain_one() -> None:
    speeds = {PROGRAM: 300.0, PLAIN: 100.0}

    def measured(arm: str, clients: int) -> object:
        return lambda number: Load(clients, int(speeds.get(arm, 50.0) * 10), 0, 10.0, 1.0, 2.0)

    outcome = run(benchmark_of(measured, 16, rounds=2), told=lambda _: None)  # type: ignore[arg-type]
    assert outcome.benchmark.case == "16 clients"
    assert set(outcome.benchmark.arms) == set(ARMS)
    assert outcome.pair(outcome.benchmark.pairs[0]).median == 3.0  # type: ignore[union-attr]
    assert [verdict.is_met for verdict in outcome.verdicts()] == [True] * 5
