"""`toolgate import a2a`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.cli.conftest import Toolgate, answering
from tests.servers.agent import ScriptedAgent

CARD = "/.well-known/agent-card.json"


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of an agent."""
    files: dict[str, bytes] = {}
    with answering(files) as port:
        base = f"http://127.0.0.1:{port}"
        files[CARD] = json.dumps(ScriptedAgent(base).card).encode()
        files["/elsewhere.json"] = json.dumps(ScriptedAgent("http://localhost:1").card).encode()
        yield base


def test_an_import_shows_interface_and_signer(toolgate: Toolgate, url: str) -> None:
    ran = toolgate("import", "a2a", url, "--name", "trips")
    assert (ran.code, ran.err) == (0, "")
    assert f"calls go to {url}/rpc (JSONRPC, A2A 1.0)" in ran.out
    assert "its card is unsigned" in ran.out
    assert "Tools of trips: 1 added" in ran.out
    assert "trips" in toolgate("tools", "list").out


def test_another_host_is_named_by_an_option(toolgate: Toolgate, url: str) -> None:
    command = ("import", "a2a", f"{url}/elsewhere.json", "--name", "trips")
    ran = toolgate(*command)
    assert ran.code == 1
    assert "at another host, localhost:1: expected that in --allow-host" in ran.err
    assert toolgate(*command, "--allow-host", "localhost:1").code == 0


def test_a_card_without_a_wanted_signature_is_refused(
    toolgate: Toolgate, url: str, folder: Path
) -> None:
    (folder / "keys.json").write_text('{"keys": []}')
    ran = toolgate("import", "a2a", url, "--name", "trips", "--signed", "keys.json")
    assert ran.code == 1
    assert "keys.json" in ran.err


def test_settings_name_an_agent(toolgate: Toolgate, url: str, folder: Path) -> None:
    (folder / "toolgate.yaml").write_text(f"sources: {{trips: {{a2a: '{url}'}}}}\n")
    ran = toolgate("sources", "refresh", "trips")
    assert (ran.code, ran.err) == (0, "")
    (folder / "toolgate.yaml").write_text(f"sources: {{trips: {{a2a: '{url}', depth: 2}}}}\n")
    assert "sources.trips.depth" in toolgate("config", "check").err


def test_an_agent_of_the_gateway_itself_is_not_imported(
    toolgate: Toolgate, url: str, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(f"server: {{public_url: '{url}'}}\n")
    ran = toolgate("import", "a2a", f"{url}/a2a/desk", "--name", "trips")
    assert "found one of this gateway" in ran.err
    (folder / "toolgate.yaml").write_text(
        f"server: {{public_url: '{url}'}}\nsources: {{trips: {{a2a: '{url}/a2a/desk'}}}}\n"
    )
    assert "sources.trips.a2a: expected an agent elsewhere" in toolgate("config", "check").err
