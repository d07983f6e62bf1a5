"""The live page in a real browser, for a run directory that changes and for a run that trains."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest
from playwright.sync_api import expect

from elastichost.arena.host import arena_root
from elastichost.errors import PreflightError
from elastichost.runs.directory import lock_directory
from elastichost.web.server import PageServer
from tests.reporting.conftest import JOB, LIMIT_S, MODEL
from tests.reporting.remains import status, write_metrics, write_run
from tests.web.browser import Open, browser, needs_browser, open_page, wait_for
from tests.web.test_server import ask

__all__ = ["browser", "open_page"]

pytestmark = needs_browser


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[IO[bytes]]:
    """The lock that the supervisor of `run` holds until it ends."""
    path = write_run(tmp_path / "shop", state="training")
    with os.fdopen(lock_directory(path, "the run directory", PreflightError("taken")), "rb") as held:
        yield held


@pytest.fixture
def run(tmp_path: Path, lock: IO[bytes]) -> Path:
    """A run that trains since ten seconds; this process counts as its supervisor."""
    return at(tmp_path / "shop", 10.0)


def at(run: Path, elapsed_s: float, state: str = "training") -> Path:
    """Writes the state of the run at a time."""
    present = status(elapsed_s, int(100 * elapsed_s), state=state, supervisor_pid=os.getpid(), run_dir=str(run))
    write_metrics(run / "metrics.db", [present])
    (run / "status.json").write_bytes(msgspec.json.encode(present))
    return run


@pytest.fixture
def server(run: Path) -> Iterator[PageServer]:
    made = PageServer(run)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    if not made.is_closing.is_set():
        made.close()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_text_and_charts_change_while_zoom_focus_and_folds_stay(server: PageServer, run: Path, open_page: Open) -> None:
    opened = open_page(server.address)
    page = opened.page
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#top-part")).to_contain_text("It trained 1000 of 2000 samples")
    chart = page.locator("#chart-speed")
    expect(chart.locator("canvas")).to_be_visible()
    page.evaluate("window.isTheSame = document.querySelector('#chart-speed canvas').isTheSame = true")
    page.locator("#chart-loss summary").click()
    chart.locator(".plot").focus()
    page.keyboard.press("+")
    expect(chart.get_by_role("button", name="Reset zoom")).to_be_visible()
    zoomed = opened.ink("memory")
    at(run, 40.0)
    expect(page.locator("#top-part")).to_contain_text("It trained 4000 of 2000 samples")
    end = "JSON.parse(document.querySelector('#chart-speed script').textContent).x.most"
    assert page.evaluate(end) == 40.0
    assert page.evaluate("window.isTheSame && document.querySelector('#chart-speed canvas').isTheSame")
    expect(chart.get_by_role("button", name="Reset zoom")).to_be_visible()
    expect(chart.locator(".plot")).to_be_focused()
    expect(page.locator("#chart-loss details")).to_have_attribute("open", "")
    page.keyboard.press("0")
    page.keyboard.press("End")
    expect(chart.locator("[aria-live]")).to_contain_text("0:40")
    assert opened.ink("memory") != zoomed
    assert opened.complaints == []
    port = f"http://127.0.0.1:{server.port}/"
    assert all(request.startswith(port) for request in opened.requests)


def test_the_end_of_the_run_is_told_and_the_page_stays(
    server: PageServer, run: Path, lock: IO[bytes], open_page: Open
) -> None:
    page = open_page(server.address).page
    expect(page.locator("#live")).to_have_text("live")
    at(run, 20.0, "done")
    lock.close()
    expect(page.locator("#live")).to_have_text("the run has ended")
    expect(page.locator("#top-part")).to_contain_text("Done after 20s")


def test_a_server_that_is_gone_is_told(server: PageServer, open_page: Open) -> None:
    page = open_page(server.address).page
    expect(page.locator("#live")).to_have_text("live")
    server.close()
    expect(page.locator("#live")).to_contain_text("no answer from elastichost top")
    expect(page.locator("#chart-speed canvas")).to_be_visible()


def test_a_page_that_nobody_sees_asks_nothing(server: PageServer, run: Path, open_page: Open) -> None:
    opened = open_page(server.address)
    page = opened.page
    expect(page.locator("#live")).to_have_text("live")
    seen = """(isHidden) => {
        Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/events")):
        page.evaluate(seen, True)
    at(run, 30.0)
    with page.expect_request(lambda request: request.url.endswith("/events")):
        page.evaluate(seen, False)
    expect(page.locator(".lead")).to_contain_text("It trained 3000 of 2000 samples")


@pytest.mark.parametrize("width", [400, 1600])
def test_the_live_page_is_not_wider_than_its_window(server: PageServer, width: int, open_page: Open) -> None:
    opened = open_page(server.address, width)
    expect(opened.page.locator("#live")).to_have_text("live")
    assert opened.overflow_px() == 0
    assert opened.complaints == []


def test_no_script_in_the_page_runs(server: PageServer, open_page: Open) -> None:
    opened = open_page(server.address)
    opened.page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.isBroken = 1' }))"
    )
    assert opened.page.evaluate("window.isBroken") is None
    assert any("Content Security Policy" in text for text in opened.complaints)


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[str]:
    """The address of a page on another port of this machine."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>stranger</title>")
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_address[1]}/"
        made.shutdown()
        thread.join(LIMIT_S)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_the_page_of_a_stranger_can_neither_read_nor_embed_it(
    server: PageServer, stranger: str, open_page: Open
) -> None:
    """Even with the address, and in a browser that has the cookie."""
    page = open_page(server.address).page
    expect(page.locator("#top-part")).to_contain_text("shop")
    page.goto(stranger)
    read = (
        """(address) => fetch(address, { credentials: "include" }).then((answer) => answer.text(), () => "refused")"""
    )
    for target in ("", "events", "metrics", "static/charts.js"):
        assert page.evaluate(read, f"http://127.0.0.1:{server.port}/{target}?token={server.token}") == "refused"
    page.evaluate(
        """(address) => new Promise((resolve) => {
            const frame = document.createElement("iframe");
            frame.addEventListener("load", resolve);
            frame.src = address;
            document.body.append(frame);
        })""",
        server.address,
    )
    (frame,) = page.main_frame.child_frames
    assert "samples" not in frame.content()


def test_without_the_token_the_browser_gets_nothing(server: PageServer, open_page: Open) -> None:
    page = open_page(f"http://127.0.0.1:{server.port}/").page
    expect(page.locator("body")).to_contain_text("no valid token")
    response, _ = ask(server, "/static/charts.js")
    assert response.status == 403


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of the page of a run that trains, and the process of the run."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "model.py").write_text(MODEL)
    (folder / "job.toml").write_text(JOB)
    arenas, sockets = arena_root() / f"test-page-{os.getpid()}", Path(tempfile.mkdtemp(prefix="ehp-"))
    arenas.mkdir()
    environment = {**os.environ, "ELASTICHOST_ARENA_DIR": str(arenas), "XDG_RUNTIME_DIR": str(sockets)}
    program = [sys.executable, "-m", "elastichost"]
    command = [*program, "run", str(folder / "job.toml"), "--run-dir", str(folder / "run"), "--dashboard", "no"]
    run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    processes = [run]
    try:
        assert run.stderr is not None
        next(line for line in run.stderr if "evaluation finished" in line)
        shown = [*program, "top", str(folder / "run"), "--web", "--port", "0", "--once-ready"]
        top = subprocess.Popen(shown, env=environment, stdout=subprocess.PIPE, text=True)
        processes.append(top)
        assert top.stdout is not None
        yield json.loads(top.stdout.readline())["url"], run
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        shutil.rmtree(arenas)
        shutil.rmtree(sockets)


@pytest.mark.thorough
@pytest.mark.system
def test_the_page_of_a_run_that_trains(trained: tuple[str, subprocess.Popen[str]], open_page: Open) -> None:
    address, run = trained
    opened = open_page(address)
    page = opened.page
    expect(page.locator("#live")).to_have_text("live")
    for chart in ("loss", "auc", "speed", "plan", "memory"):
        expect(page.locator(f"#chart-{chart} canvas")).to_be_visible()
    lead, end = page.locator(".lead").text_content(), page.locator("#chart-speed script").text_content()
    page.evaluate("window.isTheSame = true")
    expect(page.locator(".lead")).not_to_have_text(lead or "")
    wait_for(page, "(before) => document.querySelector('#chart-speed script').textContent !== before", arg=end)
    assert page.evaluate("window.isTheSame")
    run.send_signal(signal.SIGINT)
    assert run.stderr is not None
    run.stderr.read()
    assert run.wait(LIMIT_S) == 75
    expect(page.locator("#live")).to_have_text("the run has ended")
    expect(page.locator(".lead")).to_contain_text("Stopped after")
    assert opened.complaints == []
