"""The report of a run, of a host and the comparison, opened from a file in a real browser."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import expect

from elastichost.reporting.compare.assemble import comparison_of
from elastichost.reporting.compare.page import comparison_page_of
from elastichost.reporting.host.assemble import read_host_report
from elastichost.reporting.host.page import host_page_of
from elastichost.reporting.run.facts import Report
from elastichost.reporting.run.view.page import page_of
from tests.reporting.host_remains import write_batch
from tests.reporting.remains import NOW
from tests.web.browser import Open, browser, needs_browser, open_page, wait_for

__all__ = ["browser", "open_page"]

pytestmark = needs_browser
PAGES = ("run", "host", "comparison")
CHARTS = {
    "run": ("auc", "cpu", "load", "loss", "memory", "plan", "process-memory", "speed"),
    "host": ("cores", "memory", "together"),
    "comparison": ("loss-samples", "loss-time"),
}


@pytest.fixture(scope="module")
def addresses(full: Report, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address of a file of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    host = read_host_report(write_batch(folder / "batch-1"), is_running=False, now_utc=NOW)
    texts = {
        "run": page_of(full),
        "host": host_page_of(host),
        "comparison": comparison_page_of(comparison_of([full, full], NOW)),
    }
    for name, text in texts.items():
        Path(folder / f"{name}.html").write_text(text)
    return {name: (folder / f"{name}.html").as_uri() for name in texts}


@pytest.mark.parametrize("kind", PAGES)
def test_a_file_asks_for_nothing_and_draws_its_charts(kind: str, addresses: dict[str, str], open_page: Open) -> None:
    opened = open_page(addresses[kind])
    for chart in CHARTS[kind]:
        expect(opened.page.locator(f"#chart-{chart} canvas")).to_be_visible()
        assert opened.ink(chart) > 1000, chart
    assert opened.requests == [addresses[kind]]
    assert opened.complaints == []


def test_no_script_of_a_stranger_runs_and_nothing_is_fetched(addresses: dict[str, str], open_page: Open) -> None:
    opened = open_page(addresses["run"])
    opened.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.isBroken = true";
            document.body.append(script);
            document.body.append(Object.assign(new Image(), { src: "http://127.0.0.1:9/" }));
        }"""
    )
    assert opened.page.evaluate("window.isBroken") is None
    wait_for(opened.page, "document.images[0].complete")
    assert sum("Content Security Policy" in text for text in opened.complaints) == 2


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("kind", PAGES)
def test_no_page_is_wider_than_its_window(kind: str, width: int, addresses: dict[str, str], open_page: Open) -> None:
    opened = open_page(addresses[kind], width)
    expect(opened.page.locator("canvas").first).to_be_visible()
    assert opened.overflow_px() == 0
    for summary in opened.page.locator("summary").all():
        summary.click()
    assert opened.overflow_px() == 0


def test_a_chart_has_the_size_of_its_window(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["run"]).page
    plot = page.locator("#chart-memory .uplot")
    before = plot.bounding_box()
    page.set_viewport_size({"width": 500, "height": 900})
    wait_for(page, "document.querySelector('#chart-memory canvas').getBoundingClientRect().width < 480")
    after = plot.bounding_box()
    assert before is not None and after is not None and before["width"] > 800 and after["width"] < 480


def test_the_mouse_gives_values_and_tips(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["run"]).page
    chart = page.locator("#chart-speed")
    chart.locator(".u-over").scroll_into_view_if_needed()
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 30 / 120, box["y"] + box["height"] / 2)  # 0:30 of 2:00
    expect(chart.locator(".legend .at")).to_have_text(re.compile(r"^at 0:(29|30)"))
    expect(chart.locator(".legend .value").first).to_have_text(re.compile(r"^\d+ samples/s$"))
    expect(chart.locator(".tip")).to_contain_text("2: 3 workers, 2 PS: try 3 workers")
    page.mouse.move(box["x"] + box["width"] * 51 / 120, box["y"] + box["height"] / 2)
    expect(chart.locator(".tip")).to_contain_text("evaluation, 2.0 s")
    page.mouse.move(1, 1)
    expect(chart.locator(".tip")).to_be_hidden()
    expect(chart.locator(".legend .at")).to_have_text("last values")


def test_the_keyboard_gives_values_and_tips(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["run"]).page
    plot, said = page.locator("#chart-speed .plot"), page.locator("#chart-speed [aria-live]")
    page.locator("#speed-title").click()
    while page.evaluate("document.activeElement.className") != "plot":
        page.keyboard.press("Tab")
    expect(plot).to_be_focused()
    page.keyboard.press("Home")
    expect(said).to_contain_text("0:00")
    for _ in range(60):
        page.keyboard.press("ArrowRight")
        if "try 3 workers" in (said.text_content() or ""):
            break
    expect(said).to_contain_text("0:30, each second 100 samples/s")
    expect(said).to_contain_text("2: 3 workers, 2 PS: try 3 workers")
    page.keyboard.press("End")
    expect(said).to_contain_text("2:00")


def test_zoom_by_mouse_and_keyboard_and_back(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["run"]).page
    chart = page.locator("#chart-speed")
    reset, over = chart.get_by_role("button", name="Reset zoom"), chart.locator(".u-over")
    chart.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None

    def end_of_axis() -> str:
        """The place at the right edge."""
        page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 5)
        return chart.locator(".legend .at").text_content() or ""

    def drag() -> None:
        page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50, steps=5)
        page.mouse.up()

    expect(reset).to_be_hidden()
    drag()
    expect(reset).to_be_visible()
    assert end_of_axis().startswith(("at 0:59", "at 1:00"))
    reset.click()
    expect(reset).to_be_hidden()
    expect(chart.locator(".plot")).to_be_focused()
    assert end_of_axis().startswith(("at 1:59", "at 2:00"))
    drag()
    expect(reset).to_be_visible()
    over.dblclick()
    expect(reset).to_be_hidden()
    page.keyboard.press("+")
    expect(reset).to_be_visible()
    page.keyboard.press("0")
    expect(reset).to_be_hidden()


def test_colours_follow_the_mode_without_a_reload(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["run"], color_scheme="light").page
    line = """() => {
        const canvas = document.querySelector("#chart-memory canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const seen = {};
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] === 255) seen[data.slice(at, at + 3)] = (seen[data.slice(at, at + 3)] ?? 0) + 1;
        return Object.keys(seen).sort((one, other) => seen[other] - seen[one]).slice(0, 6);
    }"""
    day, paper = page.evaluate(line), page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    wait_for(page, "getComputedStyle(document.body).backgroundColor === 'rgb(24, 23, 21)'")
    assert paper == "rgb(253, 252, 248)"
    wait_for(page, "(before) => JSON.stringify((" + line + ")()) !== JSON.stringify(before)", arg=day)
    assert not set(day) & set(page.evaluate(line))


@pytest.mark.parametrize("kind", PAGES)
def test_every_chart_and_image_has_a_name(kind: str, addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses[kind]).page
    for role in ("figure", "img", "application"):
        found, named = page.get_by_role(role), page.get_by_role(role, name=re.compile(r"\w{2,}"))
        assert found.count() == named.count(), role
    assert page.get_by_role("application").count() >= len(CHARTS[kind])


@pytest.mark.parametrize("kind", PAGES)
def test_headings_are_in_order(kind: str, addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses[kind]).page
    levels = [
        int(name[1]) for name in page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(one => one.tagName)")
    ]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_a_chart_in_folded_text_is_drawn_when_it_is_unfolded(addresses: dict[str, str], open_page: Open) -> None:
    opened = open_page(addresses["run"])
    assert opened.page.locator("#chart-candidates canvas").count() == 0
    opened.page.get_by_text("Tuner model: ranking").click()
    expect(opened.page.locator("#chart-candidates canvas")).to_be_visible()
    assert opened.ink("candidates") > 1000


def test_without_scripts_the_data_are_in_tables(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["run"], java_script_enabled=False).page
    expect(page.locator("noscript p")).to_contain_text("The charts need JavaScript.")
    expect(page.locator("#chart-help")).to_be_hidden()
    page.locator("#chart-auc summary").click()
    expect(page.locator("#chart-auc table")).to_contain_text("0.7500 at 11.9k")
