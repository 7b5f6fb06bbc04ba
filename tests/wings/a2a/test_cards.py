"""Cards of agents."""

import json
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from schemas.a2a.model import AgentCard
from schemas.a2a.versions import Version, decode
from tests.wings.a2a.rig import Rig, open_rig

pytestmark = pytest.mark.anyio

PLACE = "/a2a/desk/.well-known/agent-card.json"


async def fetch(rig: Rig, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    async with rig.client.http.get(rig.client.url + path, headers=headers) as response:
        headers_of = {name.lower(): value for name, value in response.headers.items()}
        return response.status, await response.read(), headers_of


async def test_a_card_is_read_by_clients_of_both_versions(rig: Rig) -> None:
    status, body, headers = await fetch(rig, PLACE)
    assert (status, headers["cache-control"]) == (200, "public, max-age=300")
    card = json.loads(body)
    new, old = (decode(version, AgentCard, card) for version in Version)
    place = f"{rig.client.url}/a2a/desk"
    assert [
        (interface.protocol_binding, interface.protocol_version)
        for interface in new.supported_interfaces
    ] == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")]
    assert {interface.url for interface in new.supported_interfaces} == {place}
    assert (card["url"], card["preferredTransport"]) == (place, "JSONRPC")
    assert old.security_requirements == new.security_requirements != ()
    assert new.skills[0].examples == ("list the pets",)


async def test_an_unchanged_card_is_not_sent_again(rig: Rig) -> None:
    _, _, headers = await fetch(rig, PLACE)
    status, body, _ = await fetch(rig, PLACE, **{"If-None-Match": headers["etag"]})
    assert (status, body) == (304, b"")


async def test_the_default_agent_has_its_card_at_the_root_of_the_host(rig: Rig) -> None:
    assert (await fetch(rig, "/.well-known/agent-card.json"))[1] == (await fetch(rig, PLACE))[1]


async def test_a_card_names_no_tool_and_that_of_a_caller_its_own(rig: Rig) -> None:
    _, body, _ = await fetch(rig, PLACE)
    assert b"deletePet" not in body
    status, card = await rig.rest("GET", "extendedAgentCard")
    assert status == 200
    assert "deletePet" in [skill["name"] for skill in card["skills"]]
    _, others = await rig.rest("GET", "extendedAgentCard", by="bob")
    assert "createPet" not in [skill["name"] for skill in others["skills"]]


async def test_unknown_agents_have_no_card_and_no_endpoint(rig: Rig) -> None:
    assert (await fetch(rig, "/a2a/none/.well-known/agent-card.json"))[0] == 404
    assert (await rig.client.post("/a2a/none", {}, rig.headers("ann")))[0] == 404


async def test_cards_may_be_for_callers_alone(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_rig(database_settings, tmp_path, card="authenticated") as rig:
        assert (await fetch(rig, PLACE))[0] == 401
        status, _, headers = await fetch(rig, PLACE, **rig.headers("ann"))
        assert (status, headers["cache-control"]) == (200, "private, max-age=300")


async def test_cards_have_the_public_address_of_the_gateway(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Not the one of the Host header, where the settings know better."""
    public_url = "https://tools.example.com"
    async with open_rig(database_settings, tmp_path, public_url=public_url) as rig:
        card = json.loads((await fetch(rig, PLACE))[1])
        assert card["url"] == f"{public_url}/a2a/desk"
