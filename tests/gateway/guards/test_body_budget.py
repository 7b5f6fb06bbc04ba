"""Large bodies, many at a time: what is read, and what is refused before it is read."""

from collections.abc import Iterator

import anyio
import pytest
from msgspec.structs import replace

from config.load import load
from gateway.guards.body_budget import SMALL_BYTES, BodyBudget, BodyGuard
from schemas.errors import Fault
from tests.gateway.asgi import DISCONNECT, Wire, http, part

pytestmark = pytest.mark.anyio

LARGE = 100_000
LIMITS = replace(
    load(None, {}).limits, buffered_body_bytes=4 * LARGE, client_buffered_body_bytes=2 * LARGE
)


class App:
    """Reads the body, and answers when it is released."""

    def __init__(self):
        self.read = []
        self.release = anyio.Event()
        self.fault = None

    async def __call__(self, scope, receive, send):
        size, more = 0, True
        try:
            while more:
                message = await receive()
                more = message.get("more_body", False)
                size += len(message.get("body", b""))
        except Fault as fault:
            self.fault = fault
            return
        self.read.append(size)
        await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Gate:
    """A guarded app, and requests to it that run until it is released."""

    def __init__(self, tasks):
        self.refused = []
        self.app = App()
        self.budget = BodyBudget(LIMITS, self.refused.append)
        self._guard = BodyGuard(self.app, self.budget, 10 * LARGE)
        self._tasks = tasks

    def sends(self, client, *body, method="POST", size=None):
        """A request with the body in such parts; without `size` it does not say how large."""
        headers = [("transfer-encoding", "chunked")]
        if size is not None:
            headers = [("content-length", str(size))]
        scope = {**http(method, "/rpc", headers), "client": (client, 1)}
        wire = Wire().arrive(*(part(piece, more=True) for piece in body), part(b""))
        self._tasks.start_soon(self._guard, scope, wire.receive, wire.send)
        return wire


@pytest.fixture
async def gate() -> Iterator[Gate]:
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(30):
            gate = Gate(tasks)
            yield gate
            gate.app.release.set()
    assert gate.budget.held_bytes == 0
    assert not gate.budget._clients


async def settle():
    await anyio.wait_all_tasks_blocked()


async def test_each_address_has_its_own_share(gate):
    body = b"x" * LARGE
    for _ in range(2):
        gate.sends("192.0.2.1", body, size=LARGE)
    await settle()
    third = gate.sends("192.0.2.1", body, size=LARGE)
    other = gate.sends("192.0.2.2", body, size=LARGE)
    await settle()
    assert (third.status, third.headers["retry-after"]) == (429, "1")
    assert third.json["error"]["data"]["limit"] == "limits.client_buffered_body_bytes"
    assert third.arriving.qsize() == 2  # nothing of it was read
    assert other.sent == []
    assert gate.app.read == [LARGE] * 3
    assert gate.refused == ["client_buffered_body_bytes"]


async def test_all_together_have_no_more_than_there_is(gate):
    for number in range(4):
        gate.sends(f"192.0.2.{number}", b"x" * LARGE, size=LARGE)
    await settle()
    more = gate.sends("192.0.2.9", b"x" * LARGE, size=LARGE)
    await settle()
    assert (more.status, more.headers["retry-after"]) == (503, "1")
    assert more.json["error"]["code"] == 1503
    assert gate.refused == ["buffered_body_bytes"]


async def test_small_bodies_are_accepted_by_a_full_budget(gate):
    for number in range(4):
        gate.sends(f"192.0.2.{number}", b"x" * LARGE, size=LARGE)
    small = gate.sends("192.0.2.1", b"x" * SMALL_BYTES, size=SMALL_BYTES)
    chunked = gate.sends("192.0.2.1", b"x" * SMALL_BYTES)
    none = gate.sends("192.0.2.1", method="GET")
    await settle()
    assert gate.app.read == [*[LARGE] * 4, SMALL_BYTES, SMALL_BYTES, 0]
    assert small.sent == chunked.sent == none.sent == []


async def test_there_is_room_again_when_a_request_was_answered(gate):
    gate.sends("192.0.2.1", b"x" * 2 * LARGE, size=2 * LARGE)
    await settle()
    assert gate.budget.held_bytes == 2 * LARGE
    gate.app.release.set()
    await settle()
    assert gate.budget.held_bytes == 0
    answered = gate.sends("192.0.2.1", b"x" * 2 * LARGE, size=2 * LARGE)
    await settle()
    assert answered.status == 200


async def test_a_single_body_may_exceed_the_budget(gate):
    gate.sends("192.0.2.1", b"x" * 8 * LARGE, size=8 * LARGE)
    await settle()
    gate.app.release.set()
    await settle()
    gate.sends("192.0.2.1", *[b"x" * LARGE] * 8)
    await settle()
    assert gate.app.read == [8 * LARGE] * 2


async def test_a_body_of_unknown_size_counts_as_received(gate):
    gate.sends("192.0.2.1", b"x" * LARGE, size=LARGE)
    await settle()
    growing = gate.sends("192.0.2.1", *[b"x" * (LARGE // 2)] * 4)
    await settle()
    assert gate.app.fault.status == 429
    assert growing.arriving.qsize() == 2  # the third part was too much
    assert gate.budget.held_bytes == LARGE


async def test_a_client_that_leaves_is_noticed_when_the_budget_has_shrunk():
    budget, seen = BodyBudget(LIMITS), []

    async def app(_scope, receive, _send):
        await receive()
        budget.take("192.0.2.1", SMALL_BYTES)
        budget.reconfigure(replace(LIMITS, client_buffered_body_bytes=1))
        seen.append((await receive())["type"])

    scope = {**http("POST", "/rpc", [("transfer-encoding", "chunked")]), "client": ("192.0.2.1", 1)}
    wire = Wire().arrive(part(b"x" * LARGE), DISCONNECT)
    await BodyGuard(app, budget, 10 * LARGE)(scope, wire.receive, wire.send)
    assert seen == ["http.disconnect"]


async def test_a_client_of_ipv6_has_one_share_for_all_its_addresses(gate):
    gate.sends("2001:db8:0:1::1", b"x" * 2 * LARGE, size=2 * LARGE)
    await settle()
    same = gate.sends("2001:db8:0:1:ffff::2", b"x" * LARGE, size=LARGE)
    other = gate.sends("2001:db8:0:2::1", b"x" * LARGE, size=LARGE)
    await settle()
    assert same.status == 429
    assert other.sent == []


async def test_bodies_beyond_the_body_limit_take_no_budget(gate):
    gate.sends("192.0.2.1", size=1 << 40)
    await settle()
    assert gate.budget.held_bytes == 0


async def test_a_client_leaving_midway_frees_its_budget(gate):
    scope = {**http("POST", "/rpc", [("content-length", str(LARGE))]), "client": ("192.0.2.1", 1)}
    wire = Wire().arrive(part(b"x", more=True), DISCONNECT)
    gate.app.release.set()
    await gate._guard(scope, wire.receive, wire.send)
    assert gate.budget.held_bytes == 0


@pytest.mark.parametrize(
    ("limits", "of_all", "of_client"),
    [
        (
            {"buffered_body_bytes": 0, "client_buffered_body_bytes": 0, "memory_bytes": 512 << 20},
            64,
            16,
        ),
        ({"buffered_body_bytes": 100 << 20, "client_buffered_body_bytes": 0}, 100, 25),
        ({"buffered_body_bytes": 100 << 20, "client_buffered_body_bytes": 50 << 20}, 100, 50),
    ],
)
def test_default_budgets_are_shares_of_the_memory(limits, of_all, of_client):
    budget = BodyBudget(replace(LIMITS, **limits))
    assert (budget._most, budget._of_client) == (of_all << 20, of_client << 20)
