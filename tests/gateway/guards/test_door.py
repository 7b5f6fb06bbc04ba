import pytest

from gateway.guards.front_door import FrontDoor
from tests.gateway.asgi import Wire, http

pytestmark = pytest.mark.anyio


class Reached:
    def __init__(self):
        self.paths = []

    async def __call__(self, scope, receive, send):
        self.paths.append(scope.get("path"))


@pytest.fixture
def mcp():
    return Reached()


@pytest.fixture
def rest():
    return Reached()


async def ask(door, scope):
    wire = Wire()
    await door(scope, wire.receive, wire.send)
    return wire


async def test_a_front_is_reached_by_its_path_with_or_without_a_slash_at_the_end(mcp, rest):
    door = FrontDoor(rest, {"/mcp": mcp, "/mcp/sse": mcp}, lambda: True)
    for path in ("/mcp", "/mcp/sse", "/mcp/", "/MCP", "/health", "/mcp/other"):
        await ask(door, http(path=path))
    assert mcp.paths == ["/mcp", "/mcp/sse", "/mcp/"]
    assert rest.paths == ["/MCP", "/health", "/mcp/other"]


async def test_a_front_serves_while_the_gateway_is_ready(mcp, rest):
    state = {"ready": False}
    door = FrontDoor(rest, {"/mcp": mcp}, lambda: state["ready"])
    for ready in (False, True, False):
        state["ready"] = ready
        wire = await ask(door, http(path="/mcp"))
        await ask(door, http(path="/ready"))
    assert mcp.paths == ["/mcp"]
    assert rest.paths == ["/ready"] * 3
    assert wire.status == 503
    assert wire.headers["retry-after"] == "1"
    assert int(wire.headers["content-length"]) == len(wire.body)
    assert wire.json["error"]["code"] == 1503


async def test_the_life_of_the_server_is_no_request(mcp, rest):
    await ask(FrontDoor(rest, {"/mcp": mcp}, lambda: False), {"type": "lifespan"})
    assert rest.paths == [None]
