"""Access control of metrics and status: a client on the same machine, or one with the operator's
token.

A request on loopback that a proxy passed on comes from elsewhere.
"""

from hmac import compare_digest

from starlette.types import Scope

from config.networks import is_loopback
from config.settings import MetricsSettings

# Headers that proxies add; some only X-Forwarded-Proto or -Host (Envoy without use_remote_address).
PASSED_ON = frozenset({b"forwarded", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"via"})
X_FORWARDED = b"x-forwarded-"
MAPPED_PREFIX = "::ffff:"  # IPv4 on an IPv6 socket
BEARER = b"bearer "


class MetricsAccess:
    def __init__(self, settings: MetricsSettings) -> None:
        self._open = settings.public
        self._token = settings.token.encode()
        self.takes_token = bool(settings.token)

    def allows(self, scope: Scope) -> bool:
        return self._open or self._has_token(scope) or is_local(scope)

    def _has_token(self, scope: Scope) -> bool:
        fields = [value for name, value in scope["headers"] if name == b"authorization"]
        if not self._token or len(fields) != 1 or fields[0][: len(BEARER)].lower() != BEARER:
            return False
        return compare_digest(fields[0][len(BEARER) :].strip(), self._token)


def is_local(scope: Scope) -> bool:
    """Whether a client on this machine sent the request directly, not through a proxy."""
    address = (scope.get("client") or ("",))[0].removeprefix(MAPPED_PREFIX)
    # nginx forwards by HTTP/1.0, without any such header, unless it is told otherwise
    is_direct = scope.get("http_version") != "1.0"
    return (
        is_loopback(address)
        and is_direct
        and not any(_of_proxy(name) for name, _ in scope["headers"])
    )


def _of_proxy(header: bytes) -> bool:
    return header in PASSED_ON or header.startswith(X_FORWARDED)
