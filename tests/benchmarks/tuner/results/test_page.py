"""The page of the tuner's measurements: made from the output of the parts, and equal to the page in the repository."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.harness.machine import read_machine
from benchmarks.tuner import live, real
from benchmarks.tuner.live import Course, PlanBlocks
from benchmarks.tuner.recorded_grid import GridCase
from benchmarks.tuner.results import page as results
from benchmarks.tuner.results.plots import save_plots
from benchmarks.tuner.results.rows import rows_of
from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.policy.candidates import Bounds, as_configurations, enumerate_candidates

BOUNDS = Bounds(Configuration(1, 1), Configuration(6, 3), cores=4, oversubscription=2.0)
WORKLOAD = Workload(batch_size=512, host_cores=4)


def case_of(name: str = "a-job") -> GridCase:
    """Speeds that saturate at four workers, two blocks of each configuration, 2 % apart."""
    random, blocks = np.random.default_rng(0), []
    for _ in range(2):
        for one in as_configurations(enumerate_candidates(BOUNDS)):
            speed = 50_000.0 * min(one.workers, 4) * float(np.exp(0.02 * random.standard_normal()))
            blocks.append(Observation(one, speed, 0.02, compute_s=512 * one.workers / speed))
    return GridCase(name, "synthetic.toml", {}, WORKLOAD, BOUNDS, 2, tuple(blocks))


def live_figures() -> live.Figures:
    """Figures of two rounds. The machine is twice as fast in the second round, and each run is slow at first. 3 workers
    are best; the default is 2; from the bad plan it takes 10 s to reach the best."""
    courses = []
    for machine in (1.0, 2.0):
        of_age = machine * np.array([0.8] + [1.0] * 11)
        arms = {"default": [200, 190, *[218] * 10], "bad": [100, 150, *[216] * 10], "alone": [200] * 12}
        for name, rates in arms.items():
            plan = "2x1" if name == "alone" else "3x1"
            courses.append(Course(name, plan, tuple((of_age * np.array(rates)).tolist())))
    blocks = [("2x1", (200.0, 100.0)), ("3x1", (220.0, 110.0)), ("1x1", (100.0, 50.0))]
    return live.figures_of(courses, [PlanBlocks(*one) for one in blocks])


def test_live_figures_are_over_the_best_static_plan_and_the_default() -> None:
    found = live_figures()
    assert found.best == "3x1" and found.plans["2x1"].median == pytest.approx(200 / 220)
    assert found.ended["default"] == ("3x1", "3x1") and found.plan_over_best["default"].median == 1.0
    assert found.end_over_best["default"].median == pytest.approx(218 / 220)
    assert found.least_over_default["default"] == pytest.approx(0.95)
    assert found.soon_s["bad"] == 2 * live.WINDOW_S
    # the default plan alone varies between rounds as the machine does
    assert found.alone_by_chance is not None and found.alone_by_chance.median == pytest.approx(2.0)


def test_a_model_is_judged_by_speeds_that_it_was_not_fitted_to() -> None:
    found = real.measure([case_of()], 4, ("grid-test",))
    ours = found.models["elastichost"]
    assert ours.median < 0.1 and 0 <= ours.coverage <= 1 and ours.low <= ours.median <= ours.high
    assert found.by_case["a-job"]["elastichost"] == ours
    assert 0.005 < found.repeatability["a-job"] < 0.03
    with pytest.raises(ValueError, match="more than 10"):
        real.measure([msgspec.structs.replace(case_of(), blocks=case_of().blocks[:10])], 1)


def kept_of(part: str, figures: object, tables: str = "a table") -> results.Kept:
    return results.Kept(part, "2026-01-01T00:00:00", read_machine(), tables, msgspec.Raw(msgspec.json.encode(figures)))


@pytest.mark.thorough
def test_the_page_has_every_part_with_its_table_and_plot(tmp_path: Path) -> None:
    parts = {
        "real": kept_of("real", real.measure([case_of()], 4), "held-out error"),
        "live": kept_of("live", live_figures(), "from the default"),
    }
    figures = {name: one.figures for name, one in parts.items()}
    plots = save_plots(figures, tmp_path)
    assert set(plots) == {"real", "live"} and all((tmp_path / name).stat().st_size > 5000 for name in plots.values())
    page = results.page_of(parts, plots)
    assert "held-out error" in page and "from the default" in page and f"]({plots['live']})" in page
    rows = rows_of(figures)
    assert [row.reached for row in rows if "slowest" in row.what] == ["yes"]
    assert sum("final speed over that of the best static plan" in row.what for row in rows) == 2
    text = results.with_table(f"before\n{results.BEGIN}\nold\n{results.END}\nafter", results.table_of(rows))
    assert text.startswith("before") and text.endswith("after") and "old" not in text
    assert text.count("\n|") == 2 + len(rows)
    with pytest.raises(ValueError, match="begin"):
        results.with_table("nothing", "")


def test_the_pages_in_the_repository_are_those_of_the_figures_in_it() -> None:
    """If this fails, run `python -m benchmarks.tuner.results`."""
    kept = results.read_kept()
    plots = {name: f"tuner_{name}.png" for name in ("real", "live", "simulated") if name in kept}
    assert results.PAGE.read_text() == results.page_of(kept, plots)
    table = results.table_of(rows_of({name: one.figures for name, one in kept.items()}))
    assert table in results.RESULTS.read_text()
    for name in plots.values():
        assert (results.PAGE.parent / name).exists()


def test_the_output_of_a_part_in_a_file_is_kept(tmp_path: Path) -> None:
    figures = msgspec.json.encode({"machine": read_machine(), "figures": live_figures()}).decode()
    said, into = tmp_path / "said.txt", tmp_path / "into"
    said.write_text(f"from the default\n{figures}\n")
    assert results.main(["--take", f"live={said}", "--into", str(into)]) == 0
    kept = results.read_kept(results.places_in(into).kept)
    assert list(kept) == ["live"] and kept["live"].tables == "from the default"
    assert "from the default" in results.places_in(into).page.read_text()
    assert results.main(["--take", f"nothing={said}", "--into", str(into)]) == 2
    said.write_text("it failed\n")
    with pytest.raises(RuntimeError, match="live printed no figures"):
        results.main(["--take", f"live={said}", "--into", str(into)])
