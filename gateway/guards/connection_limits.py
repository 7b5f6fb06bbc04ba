"""Limits of client connections: bytes and timeout of headers, timeout of a body, timeout of reading
a response, number of connections.

uvicorn's protocol has no such limits, and its parser none for headers: a header that never ends
would be buffered. A connection beyond the limit is answered with 503, except for health probes.
Bytes of incomplete requests have the same budget as large bodies, in total and by client address:
thousands of slow clients fill the memory, too. Clients behind a trusted proxy share only the total,
because a request's client is named in a header, which is not complete yet.

Offers of other protocols (`Upgrade`) are ignored, as RFC 9110 allows (section 7.8). A tunnel
(`CONNECT`) is refused: the parser reads nothing after its head.

uvicorn continues to read after each response, whatever it has parsed already: without backpressure,
one client that pipelines requests and reads no responses would fill the memory.
"""

import resource
from asyncio import TimerHandle, Transport
from collections.abc import Callable, Sequence, Sized
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from config.access import LimitsSettings
from gateway.guards.body_budget import BodyBudget
from gateway.guards.error_responses import refuse
from gateway.guards.host_and_origin import OPEN_PATHS
from gateway.state.rate_windows import network_of
from schemas.errors import Fault, InvalidRequest, Overloaded, TooManyRequests
from schemas.jsonrpc import encode, error_reply

SHARE = 0.75  # of the open-file limit: calls to services need some, too
SPARE = 32  # connections beyond the limit that are accepted, because they may be probes
PIECE_BYTES = 16384  # least progress within send_timeout_s; a client that reads less is dropped
CHUNK_FRAMING_BYTES = 64  # size line and CRLF; more of a chunk counts as part of a head
PART_BYTES = 131072  # counted of an incomplete request: a larger body has a budget of its own
FULL = "Too many connections; try again later"
NO_TUNNEL = "CONNECT is refused: the gateway opens no tunnels"
UNREADABLE = "Invalid HTTP request received."
REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
}
Network = IPv4Network | IPv6Network
HEAD, BODY, DONE = "header", "body", ""  # the part of a request that is incomplete


class TooSlow(Fault):
    """A part of a request did not arrive in time."""

    code = -32600
    status = 408


class HeadersTooLarge(Fault):
    code = -32600
    status = 431


class TooManyPipelined(Fault):
    code = -32600
    status = 429


class _InTurn(FlowControl):
    """Flow control: reading stays paused while requests wait for an earlier response."""

    def __init__(self, transport: Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class _JoinedHead:
    """Transport of a response until its head is sent: it goes out with the first bytes of the
    body, in one system call and one packet instead of two."""

    __slots__ = ("_cycle", "_head", "_transport", "is_closing")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._head = b""
        self.is_closing = cycle.transport.is_closing

    def write(self, data: bytes) -> None:
        cycle = self._cycle
        if self._head:
            cycle.transport = self._transport
            self._transport.writelines((self._head, data))
        elif not cycle.response_started:  # 100 Continue
            self._transport.write(data)
        elif cycle.expected_content_length:
            self._head = data  # a body follows, whose length the head says
        else:
            cycle.transport = self._transport
            self._transport.write(data)

    def close(self) -> None:
        if self._head:  # of a response that ends without a body, as far as it came
            self._transport.write(self._head)
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """HTTP protocol with limits; `bounded` makes a subclass for given limits."""

    limits: LimitsSettings
    connections_limit: int  # 0: unlimited
    on_refused: Callable[[str], None]  # called with the name of the exceeded limit
    parts: BodyBudget  # budget of incomplete requests
    proxies: Sequence[Network]  # trusted

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._part = HEAD
        self._timer: TimerHandle | None = None  # timeout of the incomplete part
        self._timed = DONE  # the part that the timer is for
        self._framing_bytes = 0  # of a head, trailers or chunk sizes that arrive in pieces
        self._head_bytes = 0  # bytes, of the parsed headers
        self._head_fields = 0
        self._refusal: Fault | None = None
        self._extra = False  # beyond the connection limit
        self._send_timer: TimerHandle | None = None
        self._unsent = 0  # bytes
        self._held = 0  # bytes of `parts`

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _InTurn(transport, self.pipeline)
        most = self.connections_limit
        self._extra = 0 < most < len(self.connections)
        if self._extra and len(self.connections) > most + SPARE:
            self.on_refused("connections")
            self._give_up(Overloaded(FULL))
        else:
            self._time(HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._untime()
        self._stop_send_timer()
        self._let_go()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._framing_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as offer:
            self._ignore_upgrade(data[offer.args[0] :])
        except HttpParserError:
            self.send_400_response(UNREADABLE)
        if self.transport.is_closing():
            self._untime()
        elif self._part is DONE:
            self._let_go()
            idle = self.cycle is None or self.cycle.response_complete
            # line breaks between requests have ended uvicorn's own timer
            self._time(HEAD) if idle else self._untime()
        else:
            if self._framing_bytes > self.limits.header_bytes:  # one header may be several reads
                self._give_up(self._too_large("header_bytes"))
                return
            self._framing_bytes = max(0, self._framing_bytes)  # many chunks allow no long one
            self._time(self._part)
            if self._held < PART_BYTES:
                self._hold(min(len(data), PART_BYTES - self._held))

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read a request that offers another protocol, and `rest` after its head, as HTTP/1.1.

        The parser gives such a request no body: what follows would be the next request, even one
        that a proxy saw as its body.
        """
        while True:
            head = self._head_without_upgrade()
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn
            try:
                self.parser.feed_data(head)
                self.parser.feed_data(rest)
            except HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            except HttpParserError:
                self.send_400_response(UNREADABLE)
                return
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        self._part = HEAD
        self._framing_bytes = self._head_bytes = self._head_fields = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a parsed header. Raises HeadersTooLarge, which ends the parsing."""
        self._head_fields += 1
        if self._head_fields > self.limits.headers:
            raise self._too_large("headers")
        if self._part is HEAD:  # not a trailer: those come after the request is routed
            self._add(len(name) + len(value) + 4)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin a request. Raises HeadersTooLarge, TooManyPipelined and InvalidRequest, which end
        the parsing."""
        self._add(len(self.url))
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                self._refusal = InvalidRequest(NO_TUNNEL)
                raise self._refusal
            return  # its head is read again
        self._part = BODY
        self._framing_bytes = 0
        if len(self.pipeline) >= self.limits.pipelined:
            self.on_refused("pipelined")
            self._refusal = TooManyPipelined("Too many pipelined requests (limits.pipelined)")
            raise self._refusal
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= 2 * len(body)  # extensions, such as signatures, as long as the data
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._framing_bytes -= CHUNK_FRAMING_BYTES

    def on_message_complete(self) -> None:
        if self._part is HEAD:
            return  # its head is read again
        self._part = DONE
        self._untime()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._give_up(self._refusal or InvalidRequest(msg))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.loop.call_later(self.limits.send_timeout_s, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self._abort()
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_send_timer()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._extra and cycle.scope["path"] not in OPEN_PATHS:
            self.on_refused("connections")
            cycle.keep_alive = False
            app = _full
        if cycle.scope["method"] != "HEAD":  # whose responses have a length, and no body
            cycle.transport = cast("Transport", _JoinedHead(cycle))
        super()._start_asgi_task(cycle, app)

    def _hold(self, size: int) -> None:
        """Count received bytes of a request; close the connection when the budget is exceeded."""
        if self._part is BODY and self.cycle is not None and self.cycle.response_complete:
            return  # data after a refusal is discarded
        try:
            self.parts.take(self._sender(), size, self._held)
        except (TooManyRequests, Overloaded) as fault:
            self._give_up(fault)
        else:
            self._held += size

    def _let_go(self) -> None:
        if self._held:
            self.parts.give_back(self._sender(), self._held)
            self._held = 0

    def _sender(self) -> str | None:
        """Budget key of the client: its network; None behind a trusted proxy."""
        address = self.client[0] if self.client else ""
        return None if self.proxies and _is_in(address, self.proxies) else network_of(address)

    def _add(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.limits.header_bytes:
            raise self._too_large("header_bytes")

    def _too_large(self, limit: str) -> HeadersTooLarge:
        self.on_refused(limit)
        most = getattr(self.limits, limit)
        unit = "bytes of headers" if limit == "header_bytes" else "headers"
        fault = HeadersTooLarge(f"A request has at most {most} {unit} (limits.{limit})")
        self._refusal = fault
        return fault

    def _time(self, part: str) -> None:
        """Start the timeout of `part` unless it runs already."""
        if self._timed is part and self._timer is not None:
            return
        self._untime()
        limit_s = self.limits.header_timeout_s if part is HEAD else self.limits.body_timeout_s
        self._timed = part
        self._timer = self.loop.call_later(limit_s, self._late)

    def _untime(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer, part = None, self._timed
        if self.transport.is_closing():
            return
        if self.flow.read_paused:  # reading is paused by us, so the client is not late
            self._time(part)
            return
        self.on_refused(f"{part}_timeout_s")
        name = "headers" if part is HEAD else "body"
        limit_s = getattr(self.limits, f"{part}_timeout_s")
        text = f"The {name} did not arrive within {limit_s:g} s (limits.{part}_timeout_s)"
        self._give_up(TooSlow(text))

    def _give_up(self, fault: Fault) -> None:
        """Send `fault` unless a response has started, and close the connection."""
        self._untime()
        cycle = self.cycle
        running = cycle is not None and not cycle.response_complete
        if cycle is not None and not running and self._part is BODY:
            self.transport.close()  # the request was answered before the end of its body
            return
        if running and (cycle.response_started or self.pipeline or self._part is not BODY):
            self._abort()
            return
        if running:
            cycle.disconnected = True  # wakes the reader of the body: no more comes
            cycle.message_event.set()
        self.transport.write(_raw(fault))
        self.transport.close()

    def _watch_sending(self) -> None:
        self._stop_send_timer()
        self._unsent = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(self.limits.send_timeout_s, self._check_sending)

    def _check_sending(self) -> None:
        if self.transport.get_write_buffer_size() <= self._unsent - PIECE_BYTES:
            self._watch_sending()
            return
        self.on_refused("send_timeout_s")
        self._abort()

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _abort(self) -> None:
        """Close the connection without flushing."""
        self.transport.abort()


def bounded_protocol(
    limits: LimitsSettings,
    on_refused: Callable[[str], None],
    parts: BodyBudget | None = None,
    proxies: Sequence[str] = (),
) -> type[BoundedProtocol]:
    """A protocol class with `limits`; `on_refused` is called with the name of an exceeded one.
    `parts`: the shared budget of incomplete requests; `proxies`: trusted addresses and networks."""
    return type(
        "Bounded",
        (BoundedProtocol,),
        {
            "limits": limits,
            "connections_limit": limits.connections or _by_files(),
            "on_refused": staticmethod(on_refused),
            "parts": parts or BodyBudget(limits, on_refused),
            "proxies": [ip_network(proxy) for proxy in proxies],
        },
    )


_full = partial(refuse, fault=Overloaded(FULL))


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:  # of a socket in the file system
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
        return any(parsed.ipv4_mapped in network for network in networks)
    return any(parsed in network for network in networks)


def _by_files() -> int:
    """Connection limit from the hard limit of open files, which the gateway uses (`toolgate
    serve`)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if hard == resource.RLIM_INFINITY else int(hard * SHARE)


def _raw(fault: Fault) -> bytes:
    """A raw HTTP response, for input that never became a request."""
    body = encode(error_reply(None, fault))
    reason = REASONS.get(fault.status, b"Service Unavailable")
    waits = isinstance(fault, TooManyRequests | Overloaded)
    again = b"retry-after: 1\r\n" if waits else b""
    head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n%s" % (fault.status, reason, again)
    return b"%scontent-length: %d\r\nconnection: close\r\n\r\n%s" % (head, len(body), body)
