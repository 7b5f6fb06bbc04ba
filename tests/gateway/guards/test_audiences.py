"""Which audience opens which path, with `auth.bind_audience: endpoint`."""

import pytest

from config.load import load
from gateway.app.protected_resources import bound_audiences

BASE = "https://gw.example/api"
SETTINGS = {
    "TOOLGATE_SERVER__PUBLIC_URL": f"{BASE}/",
    "TOOLGATE_TOOLSETS": '{"pets": {}}',
    "TOOLGATE_AUTH__MODE": "keys",
}


@pytest.mark.parametrize(
    ("path", "audiences"),
    [
        ("/mcp", {"/mcp"}),
        ("/mcp/", {"/mcp"}),
        ("/mcp/sse", {"/mcp"}),
        ("/mcp/message", {"/mcp"}),
        ("/mcp/pets", {"/mcp/pets"}),
        ("/mcp/pets/message", {"/mcp/pets"}),
        ("/mcp/petshop", {"/mcp"}),
        ("/rpc", {"/rpc", ""}),
        ("/portal/query", {"/portal/query", ""}),
        ("/admin/v1/keys/5", {"/admin/v1", ""}),
        ("/elsewhere", {""}),
    ],
)
def test_a_path_is_opened_by_its_endpoint(path: str, audiences: set[str]) -> None:
    bound = bound_audiences(load(None, SETTINGS))
    assert bound(path) == {BASE + audience for audience in audiences}
