"""URL checks: unencrypted traffic beyond loopback."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_unencrypted(url: str) -> bool:
    """Whether traffic to a URL is unencrypted: http:// to another machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
