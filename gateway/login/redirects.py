"""Redirect URIs: which a client may register, and which it may ask for.

They are compared as they are (OAuth 2.1, 2.3.1). Of a native app on loopback the port may differ
(RFC 8252, 7.3), for `localhost` too: clients that people use register one and listen at another.
"""

import re
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

LOOPBACK = frozenset({"127.0.0.1", "[::1]", "localhost"})
# Schemes that a browser, or the system, acts on by itself.
FORBIDDEN = frozenset(
    {"javascript", "data", "vbscript", "file", "blob", "about", "filesystem", "view-source"}
    | {"ws", "wss", "ftp", "mailto", "tel", "sms", "intent", "android-app", "ms-settings"}
    | {"chrome", "chrome-extension", "moz-extension", "resource", "jar", "wyciwyg", "feed"}
    | {"mhtml", "mk", "res", "hcp", "shell", "search", "search-ms", "microsoft-edge", "ldap", "nfs"}
    | {"smb", "ssh", "telnet", "itms-services", "livescript", "mocha", "facetime", "callto"}
)
FORBIDDEN_BEGINNINGS = ("ms-", "x-apple", "web+")
ADDRESS = re.compile(r"\[[0-9A-Fa-f:.]+\](:[0-9]*)?")  # IPv6, and a port
LENGTH = 2000


def redirect_problem(uri: str, patterns: Sequence[str] = ()) -> str | None:
    """The reason why no client may register `uri`; None: it may. `patterns`: login.redirects."""
    parts = split(uri)
    if parts is None or not parts.scheme or len(uri) > LENGTH:
        return "expected an absolute URI of visible ASCII characters"
    if "#" in uri:
        return "expected no fragment"
    if parts.scheme in FORBIDDEN or parts.scheme.startswith(FORBIDDEN_BEGINNINGS):
        return f"expected another scheme than {parts.scheme}"
    if parts.scheme in ("http", "https"):
        if not parts.hostname or "@" in parts.netloc:
            return "expected a host, and no credentials"
        if parts.scheme == "http" and host_of(parts) not in LOOPBACK:
            return "expected https, or http at 127.0.0.1, [::1] or localhost"
    if patterns and not any(_fits(uri, pattern) for pattern in patterns):
        return "expected one that login.redirects of this gateway allows"
    return None


def _fits(uri: str, pattern: str) -> bool:
    """Whether a URI is as a pattern says. "*" stands for any characters, but in front of the path
    for none that ends the host: "https://*.corp.example/*" is no other company's address. A pattern
    without a path is one of all paths."""
    scheme, mark, below = pattern.partition("://")
    authority, slash, path = below.partition("/")
    if not mark:
        return re.fullmatch(_expression(pattern, "."), uri) is not None
    front = f"{_expression(scheme, '[^:/?#]')}://{_expression(authority, '[^/?#]')}"
    path_pattern = f"/{_expression(path, '.')}" if slash else "([/?].*)?"
    return re.fullmatch(front + path_pattern, uri) is not None


def _expression(pattern: str, character: str) -> str:
    return f"{character}*".join(re.escape(text) for text in pattern.split("*"))


def matches(uri: str, registered: str) -> bool:
    """Whether a client that registered one URI may ask for another."""
    if uri == registered:
        return True
    registered_uri, requested_uri = split(registered), split(uri)
    if (
        registered_uri is None
        or requested_uri is None
        or not is_loopback(registered)
        or not is_loopback(uri)
    ):
        return False
    if "#" in uri:
        return False
    return (host_of(registered_uri), registered_uri.path, registered_uri.query) == (
        host_of(requested_uri),
        requested_uri.path,
        requested_uri.query,
    )


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
    if "[" in parts.netloc and not ADDRESS.fullmatch(parts.netloc):
        return None  # of "[::1].evil.example" urlsplit, before Python 3.11.9, says that it is ::1
    return parts
