"""Only requests with the token, for this machine, and not from a stranger's page are answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.web.access import cookie_of, refusal

PORT, TOKEN = 8800, "a-token-that-nobody-knows"
GOOD = {"host": f"127.0.0.1:{PORT}"}


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (f"/?token={TOKEN}", GOOD),
        ("/events", {**GOOD, "cookie": f"other=1; {cookie_of(PORT)}={TOKEN}"}),
        ("/metrics", {**GOOD, "authorization": f"Bearer {TOKEN}"}),
        (f"/?token={TOKEN}", {"host": f"localhost:{PORT}", "origin": f"http://localhost:{PORT}"}),
        (f"/?token={TOKEN}", {**GOOD, "sec-fetch-site": "none"}),
        ("/static/live.js", {**GOOD, "cookie": f"{cookie_of(PORT)}={TOKEN}", "sec-fetch-site": "same-origin"}),
    ],
)
def test_whoever_has_the_address_is_answered(target: str, headers: dict[str, str]) -> None:
    assert refusal(target, headers, PORT, TOKEN) == ""


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "this machine"),
        ({"host": f"evil.example:{PORT}"}, "this machine"),
        ({"host": f"127.0.0.1:{PORT + 1}"}, "this machine"),
        ({**GOOD, "origin": "http://evil.example"}, "another site"),
        ({**GOOD, "origin": "null"}, "another site"),
        ({**GOOD, "origin": f"https://127.0.0.1:{PORT}"}, "another site"),
        ({**GOOD, "sec-fetch-site": "cross-site"}, "another site"),
        ({**GOOD, "sec-fetch-site": "same-site"}, "another site"),
    ],
)
def test_the_page_of_a_stranger_is_refused_even_with_the_token(headers: dict[str, str], said: str) -> None:
    """A browser sends the cookie along with the request of another page on this machine."""
    known = {**headers, "cookie": f"{cookie_of(PORT)}={TOKEN}"}
    assert said in refusal(f"/?token={TOKEN}", known, PORT, TOKEN)


def test_two_servers_of_a_machine_have_cookies_of_their_own() -> None:
    """A browser sends the cookies of a machine to all of its ports."""
    both = {**GOOD, "cookie": f"{cookie_of(PORT + 1)}=another; {cookie_of(PORT)}={TOKEN}"}
    assert refusal("/events", both, PORT, TOKEN) == ""
    assert "no valid token" in refusal("/", {**GOOD, "cookie": f"{cookie_of(PORT + 1)}={TOKEN}"}, PORT, TOKEN)


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_nothing_but_the_token_is_a_token(query: str, bearer: str, cookie: str) -> None:
    headers = {**GOOD, "authorization": f"Bearer {bearer}", "cookie": f"{cookie_of(PORT)}={cookie}"}
    assert "no valid token" in refusal(f"/?token={query}", headers, PORT, TOKEN)
    assert "no valid token" in refusal("/", GOOD, PORT, TOKEN)
