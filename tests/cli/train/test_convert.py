"""`convert` as a user calls it, with the characters of CSV files."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from elastichost.errors import ExitCode
from tests.cli.conftest import Elastichost


def test_decimal_commas(elastichost: Elastichost, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("price;word\n1541,87;a,b\n12;c\n")
    outcome = elastichost("convert", "a.csv", "a.parquet", "--delimiter", ";", "--decimal", ",")
    assert outcome.code == 0, outcome.stderr
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"price": [1541.87, 12], "word": ["a,b", "c"]}


def test_a_declared_number_with_a_decimal_comma_is_refused_with_the_option(
    elastichost: Elastichost, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("price;word\n1541,87;a\n")
    outcome = elastichost("convert", "a.csv", "a.parquet", "--delimiter", ";", "--type", "price=float")
    assert outcome.code == ExitCode.PREFLIGHT
    assert "line 2, column 'price': '1541,87' is not a number" in outcome.stderr
    assert "convert with --decimal ," in outcome.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--decimal", ";"], "--decimal ';' is neither a point nor a comma"),
        (["--delimiter", "\u00a7"], "--delimiter '\u00a7' is not one ASCII character"),
        (["--delimiter", '"'], "without quote and line end"),
        (["--decimal", ","], "--decimal and --delimiter are both ','"),
    ],
)
def test_a_refused_decimal_character(elastichost: Elastichost, tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "a.csv").write_text("price;word\n1541,87;a\n")
    outcome = elastichost("convert", "a.csv", "a.parquet", *options)
    assert outcome.code == ExitCode.USAGE
    assert said in outcome.stderr
    assert not (tmp_path / "a.parquet").exists()


def test_any_character_may_separate_the_items_of_a_list(elastichost: Elastichost, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("tags\na\u00a7b\n")
    outcome = elastichost("convert", "a.csv", "a.parquet", "--list-delimiter", "\u00a7", "--type", "tags=list[string]")
    assert outcome.code == 0, outcome.stderr
