"""How often the live page is made, and of what."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.web.live_page import MOST_OF_A_CORE, REFRESH_S, LivePage, pause_s
from tests.reporting.remains import write_run
from tests.reporting.render.seen import Seen


@pytest.mark.parametrize(("cpu_s", "expected_s"), [(0.0, REFRESH_S), (0.02, REFRESH_S), (1.0, 20.0)])
def test_a_page_that_takes_long_is_made_more_rarely(cpu_s: float, expected_s: float) -> None:
    assert pause_s(cpu_s) == pytest.approx(expected_s)
    assert cpu_s / pause_s(cpu_s) <= MOST_OF_A_CORE


def test_the_page_of_a_run_that_has_ended_is_made_once(tmp_path: Path) -> None:
    page = LivePage(write_run(tmp_path / "run"))
    parts = page.parts()
    assert page.has_ended
    assert {"top", "learning", "trained", "speed", "tuner", "faults", "end"} <= set(parts)
    (tmp_path / "run" / "journal.jsonl").unlink()
    assert page.parts() == parts


def test_a_part_has_its_place_in_the_page(tmp_path: Path) -> None:
    page = LivePage(write_run(tmp_path / "run"))
    ids = Seen(page.page()).values_of("id")
    assert {f"{part}-part" for part in page.parts()} <= set(ids)
