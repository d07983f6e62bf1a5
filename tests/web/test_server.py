"""The server of the page, asked over HTTP, for a run directory that changes."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastichost.errors import PreflightError
from elastichost.reporting.render.pages import LIVE_FILES, static_text
from elastichost.runs.directory import lock_directory
from elastichost.web.server import PageServer
from tests.cli.conftest import run_directory, write_status

__all__ = ["run_directory"]

LIMIT_S = 30.0


@pytest.fixture
def server(run_directory: Path) -> Iterator[PageServer]:
    made = PageServer(run_directory)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.close()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def ask(server: PageServer, target: str, **headers: str) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    connection.request("GET", target, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    return response, response.read().decode()


def test_the_page_needs_nothing_from_elsewhere(server: PageServer) -> None:
    response, page = ask(server, f"/?token={server.token}")
    assert response.status == 200
    assert 'id="speed-part"' in page and 'role="status"' in page
    assert "https://" not in page and "//cdn" not in page
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert "unsafe" not in policy
    assert "<script>" not in page and "<style>" not in page
    for name in LIVE_FILES:
        assert f"/static/{name}" in page
        file, text = ask(server, f"/static/{name}", Cookie=cookie.partition(";")[0])
        assert file.status == 200 and text == static_text(name)
        assert file.headers["Content-Type"].startswith("text/javascript" if name.endswith(".js") else "text/css")


def test_no_other_file_is_served(server: PageServer) -> None:
    for target in ("/static/uPlot.LICENSE", "/static/../server.py", "/static/", "/live.js"):
        response, _ = ask(server, target, Authorization=f"Bearer {server.token}")
        assert response.status == 404


@pytest.mark.parametrize(
    "target", ["/", "/events", "/metrics", "/nothing", *(f"/static/{name}" for name in sorted(LIVE_FILES))]
)
def test_no_request_without_the_token_is_answered(server: PageServer, target: str) -> None:
    response, text = ask(server, target)
    assert response.status == 403 and "token" in text
    assert server.token not in text
    other, _ = ask(server, f"{target}?token={server.token}", Origin="http://evil.example")
    assert other.status == 403


def test_metrics_are_those_of_the_status(server: PageServer) -> None:
    response, text = ask(server, "/metrics", Authorization=f"Bearer {server.token}")
    assert response.status == 200
    assert 'elastichost_up{job="shop",state="training"} 1' in text
    assert "# TYPE elastichost_samples_trained_total counter" in text


def test_parts_are_sent_when_they_change_and_the_end_is_told(server: PageServer, run_directory: Path) -> None:
    lock = lock_directory(run_directory, "the run directory", PreflightError("taken"))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    connection.request("GET", f"/events?token={server.token}")
    stream = connection.getresponse()
    assert stream.headers["Content-Type"] == "text/event-stream"
    name, parts = event_of(stream)
    assert name == "parts" and {"top", "speed", "learning", "faults"} <= set(parts)
    write_status(run_directory, "done", 0)
    name, parts = event_of(stream)
    assert name == "parts" and "top" in parts and "faults" not in parts
    os.close(lock)
    while (event := event_of(stream))[0] == "parts":  # the page names the time at which it was made
        assert set(event[1]) == {"end"}
    assert event == ("ended", {})
    assert stream.read() == b""
    connection.close()


def event_of(stream: http.client.HTTPResponse) -> tuple[str, dict[str, str]]:
    """The next event; comments are left out."""
    name = data = ""
    while line := stream.readline().decode().rstrip("\n") or not name:
        if str(line).startswith("event: "):
            name = str(line).removeprefix("event: ")
        elif str(line).startswith("data: "):
            data = str(line).removeprefix("data: ")
    parts: dict[str, str] = json.loads(data)
    return name, parts


def test_a_port_that_is_taken_is_refused(server: PageServer, run_directory: Path) -> None:
    with pytest.raises(PreflightError, match=f"port {server.port}"):
        PageServer(run_directory, server.port)
