"""Clients that are slow, large or many, on real sockets."""

import ast
import asyncio
import gc
from contextlib import asynccontextmanager, suppress
from inspect import getsource, signature
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from config.load import load
from gateway.guards import connection_limits
from gateway.guards.connection_limits import PIECE_BYTES, SPARE, BoundedProtocol, bounded_protocol
from tests.fixtures_servers import serving

pytestmark = pytest.mark.anyio

LIMITS = replace(
    load(None, {}).limits,
    header_timeout_s=60, body_timeout_s=60, send_timeout_s=60, header_bytes=4096, headers=20,
)  # fmt: skip
DEADLINE_S = 60
SHORT_S = 0.3
PIECE = b"x" * 65536
FLOOD = 1000  # pieces: more than the system takes for a client


@pytest.fixture
def anyio_backend():
    return "asyncio", {"use_uvloop": True}  # what `toolgate serve` runs on


class App:
    """Says how long the body was, or more than anybody reads."""

    def __init__(self):
        self.seen = []
        self.headers = []
        self.left = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()

    async def __call__(self, scope, receive, send):
        self.seen.append(scope["path"])
        self.headers.append(scope["headers"])
        size, more = 0, scope["path"] != "/early"
        await self.release.wait()
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            size += len(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/flood":
            for _ in range(FLOOD):
                await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            self.left.set()
        await send({"type": "http.response.body", "body": str(size).encode()})


class Client:
    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    async def send(self, data):
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self):
        """Status, headers and body of the next answer; None when the connection ends."""
        with anyio.fail_after(DEADLINE_S):
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return None
            lines = head.decode().lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:] if line)
            if "content-length" in headers:
                body = await self._reader.readexactly(int(headers["content-length"]))
            else:  # chunked, in one piece
                size = int(await self._reader.readline(), 16)
                body = (await self._reader.readexactly(size + 7))[:size]
            return int(lines[0].split()[1]), headers, body

    async def wait_for_end(self):
        with anyio.fail_after(DEADLINE_S):
            try:
                return await self._reader.read() == b""
            except ConnectionResetError:
                return True


class Served:
    def __init__(self, url, app, refused):
        self._address = urlsplit(url)
        self.app = app
        self.refused = refused
        self._writers = []

    async def connect(self):
        address = self._address
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        self._writers.append(writer)
        return Client(reader, writer)

    def close(self):
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def server(proxies=(), **limits):
    app, refused = App(), []
    protocol = bounded_protocol(replace(LIMITS, **limits), refused.append, proxies=proxies)
    async with serving(app, protocol) as url:
        served = Served(url, app, refused)
        try:
            yield served
        finally:
            served.close()


def request(path="/", headers=(), body=b"", method="POST"):
    fields = {"Host": "x", "Content-Length": len(body), **dict(headers)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def test_pipelined_and_split_requests_are_served_in_order():
    async with server() as served:
        client = await served.connect()
        whole = request(body=b"12345") + request(body=b"12")
        await client.send(whole)
        assert [(await client.answer())[2] for _ in range(2)] == [b"5", b"2"]
        for start in range(0, len(whole), 7):
            await client.send(whole[start : start + 7])
            await asyncio.sleep(0)
        assert [(await client.answer())[2] for _ in range(2)] == [b"5", b"2"]
        assert served.refused == []


@pytest.mark.parametrize(
    "sent",
    [b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nX-A: ", b"\r\n"],
    ids=["line", "header", "blank"],
)
async def test_headers_have_to_arrive_in_time(sent):
    async with server(header_timeout_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(sent)
        status, headers, body = await client.answer()
        assert (status, headers["connection"]) == (408, "close")
        error = msgspec.json.decode(body)["error"]
        assert error["message"].endswith("within 0.3 s (limits.header_timeout_s)")
        assert await client.wait_for_end()
        assert (served.refused, served.app.seen) == (["header_timeout_s"], [])


async def test_a_byte_now_and_then_does_not_help():
    async with server(header_timeout_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(b"POST /")
        answered = asyncio.create_task(client.answer())
        while not answered.done():
            with anyio.move_on_after(SHORT_S / 5):
                await asyncio.shield(answered)
            with suppress(ConnectionError):
                await client.send(b"x")
        assert (await answered)[0] == 408


async def test_nor_do_line_breaks_between_requests():
    async with server(header_timeout_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(request())
        assert (await client.answer())[0] == 200
        await client.send(b"\r\n")
        assert (await client.answer())[0] == 408


async def test_a_body_has_to_arrive_in_time():
    async with server(body_timeout_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(request(body=b"12345")[:-1])
        status, _, body = await client.answer()
        assert status == 408
        assert b"limits.body_timeout_s" in body
        with anyio.fail_after(DEADLINE_S):
            await served.app.left.wait()
        assert served.refused == ["body_timeout_s"]


@pytest.mark.parametrize(
    "rest",
    [b"", b"zz\r\n", b"2;" + b"1" * 5000],
    ids=["late", "malformed", "long"],
)
async def test_a_request_that_was_answered_early_gets_no_second_answer(rest):
    async with server(body_timeout_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(CHUNKED.replace(b"POST /", b"POST /early"))
        assert (await client.answer())[0] == 200
        await client.send(rest)
        assert await client.wait_for_end()


async def test_the_body_timeout_pauses_while_the_app_does_not_read():
    async with server(body_timeout_s=SHORT_S) as served:
        served.app.release.clear()
        client = await served.connect()
        sending = asyncio.create_task(client.send(request(body=b"1" * 10_000_000)))
        await asyncio.sleep(3 * SHORT_S)
        assert (served.refused, served.app.seen) == ([], ["/"])
        sending.cancel()


async def test_a_client_that_takes_nothing_is_hung_up_on():
    async with server(send_timeout_s=SHORT_S) as served:
        client = await served.connect()
        await client.send(request("/flood"))
        with anyio.fail_after(DEADLINE_S):
            await served.app.left.wait()
        assert served.refused == ["send_timeout_s"]


class Unread:
    """A transport that holds what its client has not taken."""

    def __init__(self):
        self.size = 1_000_000
        self.aborted = False

    def get_write_buffer_size(self):
        return self.size

    def get_extra_info(self, _name):
        return None

    def abort(self):
        self.aborted = True


async def test_a_client_that_takes_its_time_is_not():
    refused, transport = [], Unread()
    config = Config(App(), log_config=None)
    config.load()
    protocol = bounded_protocol(LIMITS, refused.append)(config, ServerState(), {})
    protocol.connection_made(transport)
    protocol.pause_writing()
    for _ in range(5):
        transport.size -= PIECE_BYTES
        protocol._check_sending()  # what the timer does
    assert (transport.aborted, refused) == (False, [])
    transport.size -= PIECE_BYTES - 1
    protocol._check_sending()
    assert (transport.aborted, refused) == (True, ["send_timeout_s"])
    protocol.connection_lost(ConnectionResetError())


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        (request(headers=[(f"X-{n}", "1") for n in range(19)]), "headers"),
        (request(headers=[("X-A", "1" * 4096)]), "header_bytes"),
        (request("/" + "p" * 4096), "header_bytes"),
        (b"GET / HTTP/1.1\r\nX-A: " + b"1" * 400_000, "header_bytes"),  # which never ends
        (b"GET /" + b"p" * 400_000, "header_bytes"),
    ],
    ids=["many", "long", "address", "endless", "endless address"],
)
async def test_headers_are_few_and_short(sent, limit):
    async with server() as served:
        client = await served.connect()
        for start in range(0, len(sent), 1000):
            try:
                await client.send(sent[start : start + 1000])
            except ConnectionError:
                break
            await asyncio.sleep(0)
        answer = await client.answer()
        assert answer is None or answer[0] == 431  # a reset may overtake it
        assert answer is None or f"limits.{limit}".encode() in answer[2]
        assert (served.refused, served.app.seen) == ([limit], [])


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"


@pytest.mark.parametrize(
    "endless",
    [
        b"0\r\nX-A: " + b"1" * 400_000,
        b"0\r\n" + b"X: 1\r\n" * 60_000,
        b"2;" + b"1" * 400_000,
        b"1\r\nx\r\n" * 10_000 + b"2;" + b"1" * 400_000,
        (b"1;" + b"1" * 2000 + b"\r\nx\r\n") * 200,
    ],
    ids=["trailer", "trailers", "extension", "extension after many chunks", "extensions"],
)
async def test_framing_of_a_body_is_bounded(endless):
    sent = CHUNKED + endless
    async with server() as served:
        client = await served.connect()
        for start in range(0, len(sent), 1000):
            try:
                await client.send(sent[start : start + 1000])
            except ConnectionError:
                break
            await asyncio.sleep(0)
        answer = await client.answer()
        assert answer is None or answer[0] == 431  # a reset may overtake it
        assert answer is None or b"limits.header" in answer[2]
        assert len(served.refused) == 1
        with anyio.fail_after(DEADLINE_S):
            await served.app.left.wait()


SIGNED = b";chunk-signature=" + b"0" * 64


@pytest.mark.parametrize(
    ("chunk", "size"),
    [(b"1;ext=1\r\nx\r\n", b"10002"), (b"40%b\r\n%b\r\n" % (SIGNED, b"x" * 64), b"640002")],
    ids=["small", "signed"],
)
async def test_a_body_of_many_chunks_passes(chunk, size):
    async with server() as served:
        client = await served.connect()
        sent = CHUNKED + chunk * 10_000 + b"0\r\n\r\n"
        for start in range(0, len(sent), 1000):
            await client.send(sent[start : start + 1000])
        assert (await client.answer())[2] == size
        assert served.refused == []


async def test_allowed_numbers_of_headers_pass_in_any_pieces():
    sent = request(headers=[*((f"X-{n}", "1") for n in range(17)), ("X-A", "1" * 3700)])
    async with server() as served:
        client = await served.connect()
        for piece in (sent, sent[:2000], sent[2000:3000], sent[3000:]):
            await client.send(piece)
            await asyncio.sleep(0.01)
        assert [(await client.answer())[0] for _ in range(2)] == [200, 200]


def cycles():
    return [one for one in gc.get_objects() if isinstance(one, RequestResponseCycle)]


async def test_pipelined_requests_beyond_the_limit_end_the_connection():
    before = len(cycles())
    async with server(pipelined=10) as served:
        served.app.release.clear()
        client = await served.connect()
        with suppress(ConnectionError):
            await client.send(request() * 1000)
        assert await client.wait_for_end()
        assert len(cycles()) - before <= 11
        assert (served.refused, len(served.app.seen)) == (["pipelined"], 1)


async def test_nothing_is_read_while_requests_wait_for_their_turn():
    async with server(pipelined=100_000) as served:
        client = await served.connect()
        sent = request(body=b"x" * 1000) * 10_000
        sending = asyncio.create_task(client.send(sent))
        while len(served.app.seen) < 10:
            assert sum(len(cycle.body) for cycle in cycles()) < len(sent) / 10
            await client.answer()
        sending.cancel()


async def test_as_many_pipelined_requests_as_are_allowed_are_answered_in_turn():
    async with server(pipelined=10) as served:
        client = await served.connect()
        for _ in range(3):
            await client.send(b"".join(request(body=b"x" * size) for size in range(11)))
            sizes = [(await client.answer())[2] for _ in range(11)]
            assert sizes == [str(size).encode() for size in range(11)]
        large = request(body=b"x" * 500_000)
        sending = asyncio.create_task(client.send(large * 5))
        assert [(await client.answer())[2] for _ in range(5)] == [b"500000"] * 5
        await sending
        assert served.refused == []


async def test_headers_after_a_body_are_no_headers_of_the_request():
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with server() as served:
        client = await served.connect()
        await client.send(head + b"2\r\nab\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
        assert (await client.answer())[2] == b"2"
        assert b"authorization" not in dict(served.app.headers[0])


async def test_there_are_so_many_connections_but_for_probes():
    async with server(connections=2) as served:
        clients = [await served.connect() for _ in range(2)]
        for client in clients:
            await client.send(request())
            assert (await client.answer())[0] == 200
        late = await served.connect()
        await late.send(request("/health"))
        assert (await late.answer())[0] == 200
        await late.send(request("/mcp"))
        status, headers, body = await late.answer()
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert b"Too many connections" in body
        assert await late.wait_for_end()
        assert served.refused == ["connections"]


async def test_spare_connections_for_refusals_are_limited():
    async with server(connections=1) as served:
        for _ in range(1 + SPARE):
            await served.connect()
        late = await served.connect()
        status, headers, _ = await late.answer()
        assert (status, headers["retry-after"]) == (503, "1")
        assert await late.wait_for_end()


@pytest.mark.parametrize(
    ("sent", "rest"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3100, b"\r\n\r\n"),
        (request(body=b"x" * 9000)[:3100], request(body=b"x" * 9000)[3100:]),
    ],
    ids=["header", "body"],
)
async def test_buffered_bytes_per_address_are_bounded(sent, rest):
    async with server(buffered_body_bytes=60_000, client_buffered_body_bytes=12_000) as served:
        clients = [await served.connect() for _ in range(4)]
        answers = {asyncio.create_task(client.answer()): client for client in clients}
        for client in clients:
            await client.send(sent)
        [first], _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        status, headers, body = first.result()
        assert (status, headers["retry-after"]) == (429, "1")
        assert b"limits.client_buffered_body_bytes" in body
        assert served.refused == ["client_buffered_body_bytes"]
        small = await served.connect()
        await small.send(request(body=b"12345"))
        assert (await small.answer())[0] == 200
        del answers[first]
        for task, client in answers.items():
            await client.send(rest)
            assert (await task)[0] == 200
        more = await served.connect()  # all of it is free again
        await more.send(sent + rest)
        assert (await more.answer())[0] == 200


async def test_clients_of_a_trusted_proxy_are_bounded_separately():
    sent = request(body=b"x" * 9000)
    budget = {"buffered_body_bytes": 11_000, "client_buffered_body_bytes": 4000}
    async with server(proxies=["10.0.0.0/8", "127.0.0.1"], **budget) as served:
        clients = [await served.connect() for _ in range(3)]
        for client in clients:
            await client.send(sent[:3100])
        for client in clients:
            await client.send(sent[3100:])
            assert (await client.answer())[0] == 200
        assert served.refused == []
        clients = [await served.connect() for _ in range(4)]
        answers = [asyncio.create_task(client.answer()) for client in clients]
        for client in clients:
            await client.send(sent[:3100])
        [first], rest = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert first.result()[0] == 503  # they have the bound of all
        assert served.refused == ["buffered_body_bytes"]
        for task in rest:
            task.cancel()


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.1.2.3", None),
        ("::ffff:10.1.2.3", None),
        ("2001:db8::5", None),
        ("2001:db8::6", "2001:db8::"),
        ("192.0.2.1", "192.0.2.1"),
        ("", ""),
    ],
)
async def test_a_proxy_is_known_by_its_address(address, counted):
    config = Config(App(), log_config=None)
    config.load()
    kind = bounded_protocol(LIMITS, [].append, proxies=["10.0.0.0/8", "2001:db8::5"])
    protocol = kind(config, ServerState(), {})
    protocol.client = (address, 1) if address else None
    assert protocol._sender() == counted


async def test_a_client_that_ends_its_side_after_its_request_has_left():
    async with server() as served:
        served.app.release.clear()
        client = await served.connect()
        await client.send(request(body=b"12345"))
        client._writer.write_eof()
        assert await client.wait_for_end()
        served.app.release.set()
        again = await served.connect()
        await again.send(request(body=b"12345"))
        assert (await again.answer())[0] == 200


async def test_a_client_hanging_up_midway_leaves_no_bytes_behind():
    async with server(buffered_body_bytes=60_000, client_buffered_body_bytes=4000) as served:
        for _ in range(5):
            client = await served.connect()
            await client.send(request(body=b"x" * 9000)[:3000])
            client._writer.write_eof()
            assert await client.wait_for_end()
        assert served.refused == []


OVERRIDDEN = {
    "connection_made": "transport",
    "connection_lost": "exc",
    "data_received": "data",
    "on_message_begin": "",
    "on_header": "name value",
    "on_headers_complete": "",
    "on_body": "body",
    "on_message_complete": "",
    "on_response_complete": "",
    "send_400_response": "msg",
    "timeout_keep_alive_handler": "",
    "pause_writing": "",
    "resume_writing": "",
    "_start_asgi_task": "cycle app",
}
CALLED = {"_unset_keepalive_if_required": ""}
READ = {
    "client", "connections", "cycle", "flow", "headers", "loop", "parser", "pipeline",
    "transport", "url",
}  # fmt: skip
OF_CYCLES = {
    "body", "disconnected", "expected_content_length", "keep_alive", "message_event",
    "response_complete", "response_started", "scope", "transport",
}  # fmt: skip


def protocol_of(kind):
    config = Config(App(), log_config=None)
    config.load()
    protocol = kind(config, ServerState(), {})
    protocol.connection_made(Unread())
    return protocol


async def test_uvicorn_has_the_names_that_its_subclasses_use():
    """None of them is public; a release that lacks one needs changes before it is allowed."""
    for name, parameters in (OVERRIDDEN | CALLED).items():
        function = getattr(HttpToolsProtocol, name)
        assert " ".join(signature(function).parameters).removeprefix("self").strip() == parameters
    protocol = protocol_of(HttpToolsProtocol)
    assert list(signature(FlowControl).parameters) == ["transport"]
    assert vars(protocol.flow).keys() >= {"read_paused", "write_paused"}
    protocol._start_asgi_task = lambda cycle, _app: None
    protocol.data_received(request())
    assert vars(protocol).keys() >= READ
    assert vars(protocol.cycle).keys() >= OF_CYCLES


async def test_the_subclasses_use_no_other_names_of_uvicorn():
    tree = ast.parse(getsource(connection_limits))
    inherited = {*dir(HttpToolsProtocol), *vars(protocol_of(HttpToolsProtocol)), "url"}
    own = vars(protocol_of(bounded_protocol(LIMITS, [].append))).keys() - inherited
    named = {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    of_protocol = {name for owner, name in named if owner == "self"}
    assert (of_protocol & inherited) - own <= OVERRIDDEN.keys() | CALLED.keys() | READ
    of_cycles = {name for owner, name in named if owner == "cycle"}
    assert of_cycles <= OF_CYCLES
    overrides = vars(BoundedProtocol).keys() & set(vars(HttpToolsProtocol))

    class Empty:
        """Has what every class has, which differs between versions of Python."""

    assert overrides - {"__init__", *vars(Empty)} == OVERRIDDEN.keys()
