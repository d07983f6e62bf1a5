"""Globs in addresses of a store, against a real server."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elastichost.datasets.files import expand_patterns
from elastichost.datasets.sources.transports.glob_matches import folder_of, matcher
from tests.datasets.sources.s3_server import BUCKET, S3Server, s3_environment, store

__all__ = ["s3_environment", "store"]

KEYS = (
    "glob/a.parquet",
    "glob/b.parquet",
    "glob/c.csv",
    "glob/deep/a.parquet",
    "glob/deep/er/a.parquet",
    "glob2.parquet",
)


@pytest.fixture(scope="module")
def listed(store: S3Server) -> S3Server:
    for key in KEYS:
        store.put(key, b"x")
    return store


@pytest.mark.parametrize(
    ("glob", "keys"),
    [
        ("glob/*.parquet", KEYS[:2]),
        ("glob/[bc].*", KEYS[1:3]),
        ("glob/[!a].*", KEYS[1:3]),
        ("glob/*/a.parquet", KEYS[3:4]),
        ("glob/**/a.parquet", (KEYS[0], *KEYS[3:5])),
        ("glob/deep/**", KEYS[3:5]),
        ("glob*", KEYS[5:]),
        ("glob/none*", ()),
    ],
)
def test_the_files_that_match_are_found_in_name_order(listed: S3Server, glob: str, keys: tuple[str, ...]) -> None:
    files, problems = expand_patterns([listed.url(glob)])
    assert files == tuple(listed.url(key) for key in keys)
    assert len(problems) == (not keys)


def test_a_bucket_that_is_not_there_is_a_problem_with_what_to_do(store: S3Server) -> None:
    files, (problem,) = expand_patterns([store.url("x*").replace(BUCKET, "nobody")])
    assert files == () and "no such bucket" in problem and "check its name" in problem


NAMES = st.text("ab.*[]!-^\\", min_size=1, max_size=6)


@given(
    st.lists(NAMES, min_size=1, max_size=3), st.lists(st.text("ab.", min_size=1, max_size=3), min_size=1, max_size=3)
)
def test_a_glob_means_what_it_means_for_paths(parts: list[str], names: list[str]) -> None:
    glob = "/".join(part.replace("**", "*") for part in parts)
    key = "/".join(names)
    if "[" in glob or "." in (*parts, *names) or ".." in (*parts, *names):
        return  # pathlib drops dots, and reads brackets over a slash
    assert (matcher(glob).fullmatch(key) is not None) == (len(parts) == len(names) and PurePosixPath(key).match(glob))


@given(st.lists(NAMES, min_size=1, max_size=3))
@example(["[\\-[]"])
def test_any_text_is_a_glob(parts: list[str]) -> None:
    key = "/".join(parts)
    matcher(key)
    if "*" in key or "[" in key:
        assert key.startswith(folder_of(key))


@pytest.mark.parametrize(
    "bracket", ["[a-c]", "[!a-c]", "[c-a]", "[!c-a]", "[-a]", "[a-]", "[a-cx]", "[^a]", "[b-a-c]", "[]]", "[!]]"]
)
def test_a_bracket_means_what_it_means_for_names(bracket: str) -> None:
    for character in "abcdx-^]!":
        assert (matcher(bracket).fullmatch(character) is not None) == fnmatchcase(character, bracket), character
