"""SSRF protection: which network addresses a URL from an untrusted document may lead to.

A description names servers, a server answers redirects: neither may direct requests to the
company's own network. The address that is checked must be the one that is connected to, so the
check sits in the resolver of the connection ("DNS pinning"); literal addresses never reach a
resolver and are checked by `check_url_host`.
"""

import errno
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from config.networks import is_ip_address
from schemas.errors import ToolgateError
from schemas.urls import without_queries

_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052: the last 32 bits are the IPv4 address behind it
_COMPATIBLE = ip_network("::/96")  # RFC 4291, section 2.5.5.1, deprecated
_IETF = ip_network("192.0.0.0/24")  # RFC 6890; Oracle's cloud serves credentials at 192.0.0.192
_AZURE_WIRE_SERVER = IPv4Address("168.63.129.16")  # inside every Azure VM; looks public


def read_url(text: str, *, encoded: bool = False) -> URL:
    """A URL of somebody else's. Raises ValueError, also where yarl 1.25 raises IndexError: for
    brackets before an `@`."""
    try:
        return URL(text, encoded=encoded)
    except IndexError as error:
        raise ValueError("the host cannot be read") from error


class PrivateAddress(ToolgateError, OSError):
    """A host that is not public. An OSError, which aiohttp reports as `ClientConnectorError`."""

    def __init__(self, host: str, address: str) -> None:
        place = host if host == address else f"{host} ({address})"
        message = f"{place} is not a public address"
        OSError.__init__(self, errno.EACCES, message)

    def __str__(self) -> str:
        return str(self.strerror)


def is_public(address: str) -> bool:
    """Whether `address`, or the IPv4 address written into it, belongs to the public Internet.

    Raises `ValueError` if it is no IP address.
    """
    return _public(_inside(ip_address(address)))


def is_private(error: BaseException) -> bool:
    """Whether a request failed because its host is not public."""
    return isinstance(error, PrivateAddress) or isinstance(error.__cause__, PrivateAddress)


def check_host(url: str) -> None:
    """Raises ValueError for a URL whose host is neither a resolvable name nor an address."""
    try:
        host, _ = URL(url).host or "", URL(url).port
        if not is_ip_address(host):
            host.encode("idna")  # as the resolver does
    except ValueError as error:
        address = without_queries(url)[:200]
        text = f"expected a URL with the name or the address of a host, found {address!r}"
        raise ValueError(text) from error


def check_url_host(url: str) -> None:
    """Raise `PrivateAddress` if the host of `url` is a literal address that is not public, and
    ValueError if the URL has no valid host."""
    check_host(url)
    host = URL(url).host or ""
    try:
        public = is_public(host)
    except ValueError:
        # names are left to the resolver; `127.1` and `2130706433` never reach it
        public = not host.replace(".", "").isdigit()
    if not public:
        raise PrivateAddress(host, host)


class PublicResolver(AbstractResolver):
    """Resolves names, and refuses those that have any non-public address."""

    def __init__(self) -> None:
        self._inner = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            answers = await self._inner.resolve(host, port, family)
        except UnicodeError as error:
            raise socket.gaierror(socket.EAI_NONAME, "no name of a host") from error
        for answer in answers:
            if not is_public(answer["host"]):
                raise PrivateAddress(host, answer["host"])
        return answers

    async def close(self) -> None:
        await self._inner.close()


def _inside(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address embedded in `ip`, to which the kernel or a router would send; else `ip`."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64 or ip in _COMPATIBLE:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip


def _public(ip: IPv4Address | IPv6Address) -> bool:
    site_local = isinstance(ip, IPv6Address) and ip.is_site_local
    return (
        ip.is_global
        and not ip.is_multicast
        and not ip.is_reserved
        and not site_local
        and ip not in _IETF
        and ip != _AZURE_WIRE_SERVER
    )


def has_private_host(url: str) -> bool:
    """Whether the URL's host is private by its name, without DNS look-up."""
    host = URL(url).host or ""
    try:
        check_url_host(url)
    except PrivateAddress:
        return True
    return host == "localhost" or host.endswith(".localhost")
