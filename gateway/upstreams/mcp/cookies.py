"""Cookies of one session at an MCP server: balancers recognise by them which node has the session.

Kept no longer than the session, and sent to its origin alone, so that none is another caller's.
"""

import logging
from collections.abc import Mapping, Sequence
from http.cookies import Morsel

import aiohttp
from yarl import URL

log = logging.getLogger("toolgate.upstream")

COOKIE = "cookie"


class SessionCookies:
    def __init__(self, source: str, limit_bytes: int) -> None:
        """Without cookies. Over `limit_bytes` of names, values and paths, all are dropped."""
        self._source = source
        self._limit_bytes = limit_bytes
        # unsafe: servers whose address is an IP have cookies, too
        self._jar = aiohttp.CookieJar(unsafe=True, quote_cookie=False)

    def receive(self, lines: Sequence[str], url: URL) -> None:
        """Take the `Set-Cookie` lines of an answer from `url`."""
        self._jar.update_cookies_from_headers(lines, url)
        if sum(map(_size, self._jar)) > self._limit_bytes:
            self._jar.clear()
            log.warning("mcp_cookies_dropped", extra={"source": self._source})

    def with_cookies(self, headers: Mapping[str, str], url: URL) -> Mapping[str, str]:
        """The headers of a request to `url` with its cookies, behind configured ones."""
        fitting = self._jar.filter_cookies(url).values()
        if not fitting:
            return headers
        # with the quotes that they came with, and no others: balancers compare bytes
        as_sent = {(cookie.key, cookie.value): cookie.coded_value for cookie in self._jar}
        own = [
            f"{cookie.key}={as_sent.get((cookie.key, cookie.value), cookie.value)}"
            for cookie in fitting
        ]
        configured = [value for name, value in headers.items() if name.lower() == COOKIE]
        others = {name: value for name, value in headers.items() if name.lower() != COOKIE}
        return {**others, "Cookie": "; ".join([*configured, *own])}


def _size(cookie: Morsel[str]) -> int:
    """With the path: of one name there is a cookie for each."""
    return len(cookie.key) + len(cookie.value) + len(cookie["path"])
