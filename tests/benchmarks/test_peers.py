"""What the table of peers says of programs that are not there, and how Envoy is set up."""

import pytest

from benchmarks.envoy import _settings
from benchmarks.peer import Peer, _run
from benchmarks.peers import _agentgateway
from benchmarks.request import Unavailable


def test_a_peer_without_an_environment_is_not_installed() -> None:
    assert Peer("no-such-program", ("no-such-program",), "nothing").installed() is None


def test_a_failed_installation_says_how_to_install() -> None:
    with pytest.raises(Unavailable, match="absent: pip install x; that failed: "):
        _run(["false"], "absent: pip install x")


def test_peers_missing_from_registries_are_absent() -> None:
    with pytest.raises(Unavailable, match="absent"):
        _agentgateway()


def test_envoy_makes_the_call_of_the_tool_a_request_of_the_service() -> None:
    settings = _settings(1, 2)["static_resources"]
    (chain,) = settings["listeners"][0]["filter_chains"]
    filters = chain["filters"][0]["typed_config"]["http_filters"]
    assert [one["name"].rpartition(".")[2] for one in filters] == [
        "mcp",
        "mcp_json_rest_bridge",
        "router",
    ]
    (tool,) = filters[1]["typed_config"]["tool_config"]["tools"]
    assert tool == {"name": "getItem", "http_rule": {"get": "/items/{id}"}}
