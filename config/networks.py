"""Checks of URLs and hosts: unencrypted traffic beyond loopback, and URLs of several hosts."""

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

_AUTHORITY = re.compile(r"(?<=://)[^/?#]*")


def is_unencrypted(url: str) -> bool:
    """Whether traffic to a URL is unencrypted: http:// to another machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def split_hosts(url: str) -> tuple[SplitResult, list[SplitResult]]:
    """The parts of `scheme://user@host:port,host:port/path` with `localhost` for its hosts, and a
    netloc for each host. Raises ValueError as `urlsplit` does, which refuses `b,[::1]:7001` itself
    (RFC 3986, 3.2.2: a host has brackets around all of it)."""
    authority = _AUTHORITY.search(url)
    user, at, hosts = (authority[0] if authority else "").rpartition("@")
    parts = urlsplit(_AUTHORITY.sub(lambda _: f"{user}{at}localhost", url, count=1))
    return parts, [urlsplit(f"//{host}") for host in hosts.split(",")]
