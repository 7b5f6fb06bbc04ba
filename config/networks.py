"""URL checks: unencrypted traffic beyond loopback, removal of queries from logged URLs."""

import re
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


_URL_QUERY = re.compile(r"(https?://[^\s?#\"'<>]*)\?[^\s\"'<>,;:]*")


def without_queries(text: str) -> str:
    """`text` without the queries of the URLs in it, as some contain tokens."""
    return _URL_QUERY.sub(r"\1?***", text)
