"""Cards of agents."""

import json
from pathlib import Path

import pytest
from jwt.utils import base64url_decode
from msgspec.structs import replace

from config.settings import DatabaseSettings
from registry.sources.agent_cards import check_signature
from schemas.a2a.model import AgentCard
from schemas.a2a.versions import Version, decode
from schemas.errors import ImportRejected
from schemas.source import A2aOptions
from tests.fixtures_gateway import Recorder, running
from tests.fixtures_servers import serving
from tests.servers.provider import Provider
from tests.wings.a2a.rig import AGENTS, Rig, a2a_settings, open_rig

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


async def test_cards_name_the_ways_to_send_a_credential(rig: Rig) -> None:
    card = json.loads((await fetch(rig, PLACE))[1])
    assert card["securitySchemes"]["key"]["apiKeySecurityScheme"]["name"] == "X-API-Key"
    scopes = {"list": ["a2a:read", "a2a:write"]}
    assert card["securityRequirements"] == [
        {"schemes": {"bearer": scopes}}, {"schemes": {"key": scopes}}
    ]  # fmt: skip


async def test_signed_cards_are_verified_by_the_keys_of_the_login(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """AS-8: no members of 0.3, no empty ones, and text in ASCII."""
    async with serving(Recorder()) as url:
        made = a2a_settings(database_settings, Recorder(url), tmp_path, url, sign=True)
        agents = {"desk": replace(AGENTS["desk"], description="Räumt auf.", examples=("",))}
        login = replace(made.login, enabled=True, users=True)
        server = replace(made.server, public_url="http://127.0.0.1:1")
        auth, a2a = replace(made.auth, mode="jwt"), replace(made.a2a, agents=agents)
        made = replace(made, auth=auth, login=login, server=server, a2a=a2a)
        async with running(made) as client:
            await client.gateway.wait_for_wings()
            rig = Rig(client, Recorder(url), Provider([]))
            _, body, headers = await fetch(rig, PLACE)
            _, again, same = await fetch(rig, PLACE)
            _, keys, _ = await fetch(rig, "/.well-known/jwks.json")
    assert (again, same["etag"]) == (body, headers["etag"])
    card = json.loads(body)
    assert "protocolVersion" not in card
    assert "examples" not in card["skills"][0]
    assert card["description"] == "Raumt auf."
    flows = card["securitySchemes"]["login"]["oauth2SecurityScheme"]["flows"]
    assert flows["authorizationCode"]["tokenUrl"] == "http://127.0.0.1:1/token"
    signature = card["signatures"][0]
    header = json.loads(base64url_decode(signature["protected"]))
    assert header["jku"] == "http://127.0.0.1:1/.well-known/jwks.json"
    file = tmp_path / "keys.json"
    file.write_bytes(keys)
    options = A2aOptions(signed=str(file))
    assert header["kid"] in check_signature(body, "card", options)
    with pytest.raises(ImportRejected):
        check_signature(body.replace(b"Raumt", b"Reist"), "card", options)
