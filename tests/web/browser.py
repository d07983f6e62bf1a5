"""Fixtures: a real headless browser, and a page that records what it asks for and complains about."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

__all__ = ["CHROMIUM", "Opened", "browser", "needs_browser", "open_page", "wait_for"]

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: install the package `chromium` of Debian")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
LIMIT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Opened:
    """A page. requests: addresses that it asked for. complaints: errors, and messages of the console, among them
    violations of the content security policy."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def overflow_px(self) -> int:
        """By how much the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def ink(self, chart: str) -> int:
        """The number of pixels that are drawn in a chart."""
        script = """(canvas) => {
            const { width, height } = canvas;
            const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, width, height);
            return data.filter((value, at) => at % 4 === 3 && value > 0).length;
        }"""
        return int(self.page.locator(f"#chart-{chart} canvas").evaluate(script))


def wait_for(page: Page, script: str, arg: object = None) -> None:
    """Waits until a script gives true. Playwright's own `wait_for_function` calls eval in the page when the first
    answer is not true, and the page's policy forbids that."""
    deadline_s = time.monotonic() + LIMIT_MS / 1000
    while not page.evaluate(script, arg):
        assert time.monotonic() < deadline_s, f"not within {LIMIT_MS} ms: {script}"
        page.wait_for_timeout(20)


Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of one module. Playwright runs an event loop in this thread, which tests of other modules
    must not find there."""
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield made
        made.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """A function that opens an address in a new window. settings: of the browser's context, such as color_scheme."""
    contexts = []

    def opened(address: str, width: int = 1600, **settings: object) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(LIMIT_MS)
        found = Opened(context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda message: found.complaints.append(message.text))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.goto(address)
        return found

    yield opened
    for context in contexts:
        context.close()
