"""Keep-alive connections to the origins of one source, in a limited number."""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from functools import cache, partial

import aiohappyeyeballs
import aiohttp
from aiohappyeyeballs import AddrInfoType
from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver

from config.networks import is_ip_address
from gateway.http_client.http1 import (
    HEAD_BYTES,
    HEADERS,
    ConnectFailed,
    Http1Connection,
    Http1Request,
    Http1Response,
    Origin,
    Site,
    State,
    Stream,
)

IDLE_S = (
    4.0  # a connection is kept for its next use; uvicorn, Node and Apache close theirs after 5 s
)
LOOK_AFTER_S = 1.0  # idle for longer, the server may have closed it unnoticed
DNS_TTL_S = 10.0  # resolved addresses are used for this long, as by aiohttp
NAMES_CACHED = 100  # names whose addresses are held
EYEBALLS_S = 0.25  # RFC 8305, 5: before the next address of a host is tried beside the first


class Pool:
    """Connections; at most `limit` are in use at once (0: any number), and calls for which there is
    none wait in their order."""

    def __init__(
        self,
        tls: ssl.SSLContext | bool,
        resolver: AbstractResolver | None,
        *,
        limit: int,
        connect_timeout_s: float,
        idle_s: float = IDLE_S,
        dns_ttl_s: float = DNS_TTL_S,
        head_limit_bytes: int = HEAD_BYTES,
        headers_limit: int = HEADERS,
    ) -> None:
        """`tls`: True for the default context. `resolver` decides which addresses may be connected
        to; literal addresses in URLs do not pass through it."""
        self.closed = False
        self._tls = tls
        self._resolver = resolver or ThreadedResolver()
        self._slots = asyncio.Semaphore(limit) if limit else None
        self._connect_timeout_s = connect_timeout_s
        self._idle_s = idle_s
        self._dns_ttl_s = dns_ttl_s
        self._head_limits = head_limit_bytes, headers_limit
        self._idle: dict[Origin, deque[Http1Connection]] = {}
        self._open: set[Http1Connection] = set()
        self._expiry: asyncio.TimerHandle | None = None
        self._resolved: dict[Origin, tuple[float, list[AddrInfoType]]] = {}
        self._lookups: dict[Origin, asyncio.Task[list[AddrInfoType]]] = {}

    @property
    def open(self) -> int:
        """Number of connections, idle ones included."""
        return len(self._open)

    @property
    def in_use(self) -> int:
        """Number of connections that carry a request, or a response that was not closed."""
        return sum(connection.state not in (State.IDLE, State.CLOSED) for connection in self._open)

    async def request(
        self,
        site: Site,
        method: str,
        target: str,
        headers: Mapping[str, str],
        *,
        body: bytes | Stream | None = None,
        repeatable: bool = False,
    ) -> Http1Response:
        """The response of the service, once its head has arrived; it must be closed. A
        `repeatable` request is sent again if it met a connection that was just closed for being
        idle. Raises aiohttp.ClientError."""
        request = Http1Request(method, target, headers, body)
        head = site.head(request)
        if self._slots is not None:
            await self._slots.acquire()
        try:
            idle = self._idle.get(site.origin)
            now = asyncio.get_running_loop().time() if idle else 0.0
            while idle:
                connection = idle.pop()  # used last, so the one least likely to be closed
                if connection.state is not State.IDLE or connection.transport.is_closing():
                    continue
                if connection.idle_until <= now or (
                    connection.idle_since + LOOK_AFTER_S < now and connection.is_readable()
                ):
                    connection.abort()
                    continue
                try:
                    return await connection.exchange(request, head)
                except aiohttp.ServerDisconnectedError:
                    if not repeatable or not connection.silent:
                        raise
                break
            connection = await self._connect(site.origin)
            return await connection.exchange(request, head)
        except BaseException:
            if self._slots is not None:
                self._slots.release()
            raise

    async def close(self) -> None:
        """Close all connections, also of calls that still run."""
        self.closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        self._idle.clear()
        for lookup in self._lookups.values():
            lookup.cancel()
        ended = [connection.closed for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        await asyncio.gather(*ended)
        self._open.clear()  # Python 3.12 and newer do not wait for the callbacks of ended futures
        await self._resolver.close()

    def _release(self, connection: Http1Connection) -> None:
        """Take a connection back from its response."""
        if self._slots is not None:
            self._slots.release()
        if connection.state is not State.IDLE and not connection.reuse():
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        connection.idle_until = connection.idle_since + min(self._idle_s, connection.keep_alive_s)
        idle = self._idle.get(connection.origin)
        if idle is None:
            idle = self._idle[connection.origin] = deque()
        idle.append(connection)
        if self._expiry is None:
            self._expiry = loop.call_at(connection.idle_until, self._expire)

    def _expire(self) -> None:
        """Close the connections that have been idle for too long."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for origin, idle in list(self._idle.items()):
            fresh = deque[Http1Connection]()
            for connection in idle:
                if connection.idle and connection.idle_until > now:
                    fresh.append(connection)
                else:
                    connection.abort()
            if fresh:
                self._idle[origin] = fresh
            else:
                del self._idle[origin]
        ends = (connection.idle_until for idle in self._idle.values() for connection in idle)
        first = min(ends, default=None)
        self._expiry = None
        if first is not None:
            self._expiry = loop.call_at(first, self._expire)

    async def _connect(self, origin: Origin) -> Http1Connection:
        """Raises ConnectFailed, also where the address may not be connected to."""
        if self.closed:
            raise ConnectFailed("the pool is closed")
        try:
            addresses = await self._addresses(origin)
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await self._open_connection(origin, addresses)
        except (OSError, UnicodeError) as error:  # TimeoutError too; UnicodeError of a name
            self._resolved.pop(origin, None)
            raise ConnectFailed(type(error).__name__) from error
        return connection

    async def _open_connection(
        self, origin: Origin, addresses: list[AddrInfoType]
    ) -> Http1Connection:
        loop = asyncio.get_running_loop()
        delay_s = EYEBALLS_S if len(addresses) > 1 else None
        sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=delay_s)
        try:
            _, connection = await loop.create_connection(
                lambda: Http1Connection(origin, self._release, *self._head_limits),
                sock=sock,
                ssl=self._context() if origin.tls else None,
                server_hostname=origin.host if origin.tls else None,
            )
        except BaseException:
            sock.close()
            raise
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _closed: self._open.discard(connection))
        if self.closed:  # meanwhile
            connection.abort()
            raise ConnectFailed("the pool is closed")
        return connection

    def _context(self) -> ssl.SSLContext:
        return self._tls if isinstance(self._tls, ssl.SSLContext) else default_context()

    async def _addresses(self, origin: Origin) -> list[AddrInfoType]:
        if is_ip_address(origin.host):
            return [_address(origin.host, origin.port)]
        now = asyncio.get_running_loop().time()
        until, addresses = self._resolved.get(origin, (now, []))
        if until > now:
            return addresses
        return await self._looked_up(origin)

    async def _looked_up(self, origin: Origin) -> list[AddrInfoType]:
        """Single-flight: concurrent callers share one lookup, since each occupies a thread."""
        lookup = self._lookups.get(origin)
        if lookup is None:
            lookup = self._lookups[origin] = asyncio.create_task(self._resolve(origin))
            lookup.add_done_callback(partial(self._lookup_ended, origin))
        await asyncio.wait((lookup,))
        if lookup.cancelled():
            raise ConnectFailed("the pool is closed")
        return lookup.result()

    async def _resolve(self, origin: Origin) -> list[AddrInfoType]:
        entries = await self._resolver.resolve(origin.host, origin.port, socket.AF_UNSPEC)
        if len(self._resolved) >= NAMES_CACHED:
            self._resolved.clear()
        addresses = [_address(entry["host"], entry["port"]) for entry in entries]
        until = asyncio.get_running_loop().time() + self._dns_ttl_s
        self._resolved[origin] = until, addresses
        return addresses

    def _lookup_ended(self, origin: Origin, lookup: "asyncio.Task[list[AddrInfoType]]") -> None:
        del self._lookups[origin]
        if not lookup.cancelled():
            lookup.exception()  # retrieved, also when no caller waits any more


@cache
def default_context() -> ssl.SSLContext:
    """The TLS context of sources without TLS settings."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


def _address(host: str, port: int) -> AddrInfoType:
    if ":" in host:
        return (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0))
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
