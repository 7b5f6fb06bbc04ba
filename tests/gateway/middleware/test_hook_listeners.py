"""Hooks for credentials, identities, lists and records."""

from dataclasses import replace as replace_principal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from config.sources import SourceSettings
from gateway.audit.records import AuditEntry
from gateway.context import Identity, Principal
from gateway.middleware.hooks.configured_hook import Hook
from gateway.middleware.hooks.identity_and_list_hooks import AuditHooks, IdentityHooks
from gateway.upstreams.http.client import Client as HttpClient
from gateway.upstreams.http.client import HttpRequest
from gateway.upstreams.http.source_pools import UpstreamFailed
from schemas.errors import ToolgateError
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, Recorder, running
from tests.fixtures_servers import serving
from tests.gateway.guards.signing import FOREVER, by_jwks, signer
from tests.gateway.middleware.test_hooks import create, discover, hook, list_tools, with_hooks
from tests.gateway.upstreams.conftest import source
from tests.polling import until
from tests.servers.hooks import EVENTS, GATE
from tests.servers.mcp_wire import Scripted, Turn

pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")


@pytest.fixture(autouse=True)
def _no_events() -> None:
    EVENTS.clear()


def bearer(name: str, **claims: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY.token(sub=name, exp=FOREVER, **claims)}"}


async def get_pet(client: Client, **headers: str) -> Any:
    _, answer = await client.modern(
        "tools/call", {"name": "getPet", "arguments": {"id": 1}}, **headers
    )
    return answer


async def test_a_credential_of_a_hook_reaches_the_service(
    settings: Settings, service: Recorder
) -> None:
    vault = hook("credential", "credential", changes=True)
    async with running(with_hooks(settings, vault=vault)) as client:
        await create(client)
        await get_pet(client)
        sent = [request["headers"]["authorization"] for request in service.requests]
    assert sent == ["Bearer of-anonymous"] * 2


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_credential_of_a_hook_reaches_an_mcp_server(settings: Settings, era: Any) -> None:
    async def book(turn: Turn) -> None:
        await turn.result(resultType="complete", content=[{"type": "text", "text": "done"}])

    plays = {"server/discover": discover, "tools/list": list_tools, "tools/call": book}
    travel = Scripted(plays, capabilities={"tools": {}}, session=None)
    async with serving(travel) as url:
        configured = {"authorization": "Bearer of-the-settings", "X-Team": "red"}
        sources = {"travel": SourceSettings(mcp=url, era=era, headers=configured)}
        vault = hook("credential", "credential", changes=True)
        async with running(with_hooks(replace(settings, sources=sources), vault=vault)) as client:
            await client.modern("tools/call", {"name": "book", "arguments": {}})
        [call] = travel.all("tools/call")
    assert call.header("authorization") == "Bearer of-anonymous"
    assert call.header("x-team") == "red"


@pytest.mark.parametrize("at", ["before", "credential"])
async def test_headers_that_may_not_be_are_a_failure(
    settings: Settings, service: Recorder, at: str
) -> None:
    async with running(with_hooks(settings, bad=hook("smuggle", at, changes=True))) as client:
        assert (await create(client))["isError"]
    assert service.requests == []


async def test_headers_of_hooks_go_to_no_address_of_a_description(settings: Settings) -> None:
    client = HttpClient(settings.upstream, {})
    described = source("https://api.example.com", trusted=False)
    request = HttpRequest("GET", "/pets", {}, hooked={"Authorization": "Bearer secret"})
    with pytest.raises(UpstreamFailed, match="headers of hooks, but only its description says"):
        await client.send(described, request)
    await client.close()


async def test_a_hook_gives_roles_that_rules_read(settings: Settings, tmp_path: Path) -> None:
    red = Rule(effect="allow", roles=("keeper",), when="principal.claims.attributes.team == 'red'")
    policy = replace(settings.policy, default="deny", rules={"red-keepers": red})
    guarded = replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]), policy=policy)
    directory = hook("promote", "identity", changes=True)
    async with running(with_hooks(guarded, directory=directory)) as client:
        ann = bearer("ann")
        for _ in range(3):
            assert "result" in await get_pet(client, **ann)
        assert len(EVENTS) == 1  # its answer holds for the credential
        forged = bearer("ben", roles=["keeper"], attributes={"team": "red"})
        assert (await get_pet(client, **forged))["error"]["code"] == -32602
        status, _ = await client.modern("tools/list", **bearer("eve"))
        assert status == 403


async def test_roles_that_a_hook_gives_no_more_go(settings: Settings) -> None:
    directory = Hook("directory", hook("promote", "identity", changes=True), settings.breaker, 100)
    asking = IdentityHooks(lambda: [directory])
    ben = Principal(
        "ben", HOST, roles=frozenset({"own", "keeper"}), hook_roles=frozenset({"keeper"})
    )
    extended = await asking.extend(Identity(ben, verified=True))
    assert (extended.principal.roles, extended.principal.hook_roles) == ({"own"}, set())
    ann = await asking.extend(Identity(replace_principal(ben, id="ann"), verified=True))
    assert (ann.principal.roles, ann.principal.hook_roles) == ({"own", "keeper"}, {"keeper"})
    await directory.retire()


async def test_a_hook_hides_tools_from_lists(settings: Settings) -> None:
    async with running(with_hooks(settings, tidy=hook("hide", "list", changes=True))) as client:
        _, answer = await client.modern("tools/list")
        session = await client.session()
        listed = await session.call("tools/list")
    for result in (answer["result"], listed["result"]):
        names = [tool["name"] for tool in result["tools"]]
        assert "getPet" in names
        assert "deletePet" not in names


async def test_a_hook_gets_a_copy_of_each_record(settings: Settings, tmp_path: Path) -> None:
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    recording = replace(settings, audit=audit)
    async with running(with_hooks(recording, siem=hook("remember", "audit"))) as client:
        await create(client)

        async def is_told() -> bool:
            return bool(EVENTS)

        await until(is_told)
    assert [event["record"]["subject"] for event in EVENTS] == ["createPet"]


async def test_a_slow_hook_delays_and_drops_records_of_no_second_hook(settings: Settings) -> None:
    """Records wait for each hook apart."""
    GATE.clear()
    slow, quick = (
        Hook(name, hook(name, "audit", timeout_s=10.0, queue=1), settings.breaker, 100)
        for name in ("wait_for_anybody", "remember")
    )
    listeners = AuditHooks(lambda: [slow, quick])

    async def number_of_events(count: int) -> None:
        with anyio.fail_after(5):
            while len(EVENTS) < count:
                await anyio.lowlevel.checkpoint()

    try:
        for number in range(4):
            listeners.add(AuditEntry(HOST, datetime.now(UTC), subject=f"tool-{number}"))
            await number_of_events(number + 1)
        assert (slow.outcomes["dropped"], quick.outcomes["dropped"]) == (2, 0)
    finally:
        GATE.set()
    await listeners.settle()
    assert slow.outcomes["ok"] == 2
    for closing in (slow, quick):
        await closing.retire()


@pytest.mark.parametrize("at", ["identity", "audit"])
async def test_the_first_hook_of_an_identity_needs_a_restart(settings: Settings, at: str) -> None:
    async with running(settings) as client:
        late = with_hooks(settings, late=hook("remember", at))
        with pytest.raises(ToolgateError, match=f"hooks.late.at: {at} needs a restart"):
            await client.gateway.reconfigure(late)
