"""Which URLs lead nowhere but to this machine."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def in_the_clear(url: str) -> bool:
    """Whether others could read, and change, what travels there: http:// to another machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
