"""Which requests the page's server answers. Pure.

The server listens on 127.0.0.1, where every process and every web page of this machine can reach it. So a request must
prove that it comes from whoever has the address that `top --web` printed:

1. It has the token: in the query, as the printed address has it, in a bearer header, or in the cookie that the first
   answer sets.
2. It names this machine as its host. A stranger's page that makes its own name point to 127.0.0.1 fails here.
3. It is not made by the page of another origin. A browser says so in the headers Origin and Sec-Fetch-Site.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

__all__ = ["cookie_of", "refusal"]

COOKIE = "elastichost-token"
HOSTS = ("127.0.0.1", "localhost", "[::1]")


def refusal(target: str, headers: Mapping[str, str], port: int, token: str) -> str:
    """Why a request is refused; "": it is answered. target: path and query. headers: names in lower case."""
    hosts = {f"{host}:{port}" for host in HOSTS}
    if headers.get("host", "").lower() not in hosts:
        return "the request does not name this machine"
    origin = headers.get("origin", "").lower()
    if origin and origin not in {f"http://{host}" for host in hosts}:
        return "the request comes from another site"
    if headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin"):
        return "the request comes from another site"
    given = _tokens(target, headers, port)
    if not any(hmac.compare_digest(one.encode(), token.encode()) for one in given):
        return "the request has no valid token: open the address that `elastichost top --web` printed"
    return ""


def cookie_of(port: int) -> str:
    """The name of the cookie. A browser sends cookies to every port of a machine, so each server has its own."""
    return f"{COOKIE}-{port}"


def _tokens(target: str, headers: Mapping[str, str], port: int) -> list[str]:
    """Every token that the request has."""
    found = parse_qs(urlsplit(target).query).get("token", [])
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        found.append(bearer.strip())
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return found
    own = cookie_of(port)
    return [*found, cookies[own].value] if own in cookies else found
