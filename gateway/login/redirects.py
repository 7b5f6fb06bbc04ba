"""Redirect URIs: which a client may register, and which it may ask for.

They are compared as they are (OAuth 2.1, 2.3.1). Of a native app on loopback the port may differ
(RFC 8252, 7.3), for `localhost` too: clients that people use register one and listen at another.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, urlsplit

LOOPBACK = frozenset({"127.0.0.1", "[::1]", "localhost"})
# Schemes that a browser, or the system, acts on by itself.
FORBIDDEN = frozenset(
    {"javascript", "data", "vbscript", "file", "blob", "about", "filesystem", "view-source"}
    | {"ws", "wss", "ftp", "mailto", "tel", "sms", "intent", "android-app", "ms-settings"}
    | {"chrome", "chrome-extension", "moz-extension", "resource", "jar"}
)
LENGTH = 2000


def redirect_problem(uri: str, patterns: Sequence[str] = ()) -> str | None:
    """The reason why no client may register `uri`; None: it may. `patterns`: login.redirects."""
    parts = split(uri)
    if parts is None or not parts.scheme or len(uri) > LENGTH:
        return "expected an absolute URI of visible ASCII characters"
    if "#" in uri:
        return "expected no fragment"
    if parts.scheme in FORBIDDEN:
        return f"expected another scheme than {parts.scheme}"
    if parts.scheme in ("http", "https"):
        if not parts.hostname or "@" in parts.netloc:
            return "expected a host, and no credentials"
        if parts.scheme == "http" and host_of(parts) not in LOOPBACK:
            return "expected https, or http at 127.0.0.1, [::1] or localhost"
    if patterns and not any(fnmatchcase(uri, pattern) for pattern in patterns):
        return "expected one that login.redirects of this gateway allows"
    return None


def matches(asked: str, registered: str) -> bool:
    """Whether a client that registered one URI may ask for another."""
    if asked == registered:
        return True
    own, wanted = split(registered), split(asked)
    if own is None or wanted is None or not is_loopback(registered) or not is_loopback(asked):
        return False
    return (host_of(own), own.path, own.query) == (host_of(wanted), wanted.path, wanted.query)


def is_loopback(uri: str) -> bool:
    """Whether a program on the visitor's computer listens there."""
    parts = split(uri)
    if parts is None or parts.scheme != "http" or "@" in parts.netloc:
        return False
    return host_of(parts) in LOOPBACK


def target_of(uri: str) -> str:
    """Where a URI leads, for people and for remembered consents: its host, or its scheme."""
    parts = split(uri)
    if parts is None:
        return uri
    return host_of(parts) if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def host_of(parts: SplitResult) -> str:
    """The host without port, in lower case; IPv6 in brackets."""
    host = (parts.hostname or "").lower()
    return f"[{host}]" if ":" in host else host


def split(uri: str) -> SplitResult | None:
    """The parts of a URI; None for none."""
    if not uri.isascii() or not uri.isprintable() or " " in uri or "\\" in uri:
        return None
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts
