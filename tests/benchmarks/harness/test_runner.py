"""Running, printing and judging a benchmark."""

from __future__ import annotations

import pytest

from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import ArmFailedError, Rounds
from benchmarks.harness.runner import exit_code, print_outcomes, print_verdicts, run, silent


def benchmark_of(bound: float = 1.5, case: str = "", *, fails: bool = False) -> Benchmark[float]:
    def slow(number: int) -> float:
        if fails:
            raise ArmFailedError("no more of this")
        return 10.0 + number

    return Benchmark(
        title="two arms",
        case=case,
        arms={"slow": slow, "fast": lambda number: 20.0 + 2 * number},
        rounds=Rounds(2),
        figures=(Figure("rate", "samples/s", lambda found: found, form=".1f"),),
        pairs=(PairedFigure("fast over slow", "", "fast", "slow", lambda fast, slow: fast / slow, form=".2f"),),
        aims=(Aim("fast over slow", bound, "at least", form=".2f"), Aim("rate", 20.0, "at least", "fast")),
    )


def lines_of(captured: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in captured.splitlines() if line]


def test_figures_comparisons_and_aims_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(benchmark_of())
    print_outcomes([outcome])
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == "slow, round 1 of 2: rate, samples/s 10.0"
    assert lines_of(captured.out) == [
        ["two", "arms"],
        ["rate,", "samples/s"],
        ["slow", "10.5", "(10.0-11.0)"],
        ["fast", "21.0", "(20.0-22.0)"],
        ["measured", "aim"],
        ["fast", "over", "slow", "2.00", ">=", "1.5", "reached"],
        ["fast:", "rate", "21", ">=", "20", "reached"],
    ]
    assert exit_code([outcome]) == 0


def test_an_aim_that_was_missed_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(benchmark_of(bound=2.5), silent)
    assert capsys.readouterr().err == ""
    print_outcomes([outcome])
    print_verdicts(outcome.verdicts())
    assert capsys.readouterr().out.count("not reached") == 2
    assert exit_code([run(benchmark_of(), silent), outcome]) == 1


def test_an_arm_that_failed_ends_with_1_and_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(benchmark_of(fails=True))
    print_outcomes([outcome])
    captured = capsys.readouterr()
    assert "slow, round 1 of 2: FAILED: no more of this" in captured.err
    assert captured.out.splitlines()[-1] == "FAILED slow: no more of this"
    assert ["slow", "-"] in lines_of(captured.out) and lines_of(captured.out)[5][:4] == ["fast", "over", "slow", "-"]
    assert exit_code([outcome]) == 1


def test_the_same_figures_in_several_cases_are_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcomes([run(benchmark_of(case=case), silent) for case in ("small", "large")])
    printed = capsys.readouterr().out
    assert printed.count("two arms") == 1
    assert [line.partition("  ")[0] for line in printed.splitlines()[3:7]] == [
        "small: slow",
        "small: fast",
        "large: slow",
        "large: fast",
    ]
    assert "large: fast over slow" in printed


def test_the_longer_dimension_becomes_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    one = Benchmark[float](
        title="one arm",
        arms={"only": lambda number: float(number)},
        rounds=Rounds(1),
        figures=tuple(Figure[float](name, "", lambda found: found, max, ".0f") for name in ("a", "b")),
    )
    print_outcomes([run(one, silent)])
    assert lines_of(capsys.readouterr().out) == [["one", "arm"], ["only"], ["a", "0"], ["b", "0"]]
