"""Cards of agents: fetched within limits, signed by the operator's keys, and pinned."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace as replaced
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from config.load import load
from gateway.admin.resources.import_requests import A2aImport
from registry.database.postgres import Database
from registry.sources.agent_cards import card_url, check_signature
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.pins import Pins
from registry.sources.tool_store import ToolStore
from schemas.canonical_json import canonical_json
from schemas.errors import ImportRejected
from schemas.source import A2aOptions
from tests.fixtures_database import HOST
from tests.fixtures_servers import Serve, serving
from tests.servers.agent import ScriptedAgent

pytestmark = pytest.mark.anyio


@pytest.fixture
async def agent() -> AsyncIterator[ScriptedAgent]:
    agent = ScriptedAgent()
    async with serving(agent.app) as agent.base:
        yield agent


@pytest.fixture
def sources(store: ToolStore) -> Sources:
    return Sources(store, HOST, load(None, {}).imports)


def spec_of(agent: ScriptedAgent, **options: Any) -> ImportSpec:
    return ImportSpec("trips", agent.base, kind="a2a", options=A2aOptions(**options))


async def names(store: ToolStore, *, held: bool = False) -> list[str]:
    return [tool.name for tool in await store.tools(HOST, held=held)]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("https://a.example", "https://a.example/.well-known/agent-card.json"),
        ("https://a.example/x/", "https://a.example/x/.well-known/agent-card.json"),
        ("https://a.example/x/card.json", "https://a.example/x/card.json"),
    ],
)
def test_a_card_is_below_the_url_of_its_agent(named: str, expected: str) -> None:
    assert card_url(named) == expected


async def test_a_changed_card_holds_the_tool_back_until_accepted(
    agent: ScriptedAgent, sources: Sources, store: ToolStore, database: Database
) -> None:
    await sources.import_(spec_of(agent))
    assert await names(store) == ["trips"]
    agent.card_changes = {"version": "1.3.0"}
    report = await sources.refresh("trips")
    assert report.saved is not None
    assert report.saved.held == {"trips": "card changed"}
    assert (await names(store), await names(store, held=True)) == ([], ["trips"])
    pins = Pins(database.pool)
    assert await pins.accept(HOST, await pins.list_held(HOST)) == ["trips"]
    assert await names(store) == ["trips"]


async def test_another_interface_is_a_change_to_accept(
    agent: ScriptedAgent, sources: Sources, store: ToolStore
) -> None:
    await sources.import_(spec_of(agent))
    agent.interfaces = ("old",)
    report = await sources.refresh("trips")
    assert report.saved is not None
    assert report.saved.held == {"trips": "card and interface changed"}
    agent.interfaces = ("rpc",)
    await sources.refresh("trips")
    assert await names(store) == ["trips"]


async def test_skills_that_vanish_change_no_name(
    agent: ScriptedAgent, sources: Sources, store: ToolStore
) -> None:
    await sources.import_(spec_of(agent))
    agent.card_changes = {"skills": []}
    await sources.refresh("trips")
    assert await names(store, held=True) == ["trips"]


async def test_an_unchanged_card_is_not_imported_again(
    agent: ScriptedAgent, sources: Sources
) -> None:
    spec = spec_of(agent)
    assert await sources.import_changed(spec) is not None
    assert await sources.import_changed(spec) is None


async def test_a_large_card_is_refused(agent: ScriptedAgent, sources: Sources) -> None:
    agent.card_changes = {"description": "x" * 300_000}
    with pytest.raises(ImportRejected, match=r"262,144 bytes \(setting imports.card_limit_bytes"):
        await sources.import_(spec_of(agent))


async def test_a_card_that_does_not_come_is_given_up(
    agent: ScriptedAgent, store: ToolStore, serve: Serve
) -> None:
    async def drip(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        await agent.release.wait()

    limits = replaced(load(None, {}).imports, card_timeout_s=0.2)
    spec = replace(spec_of(agent), location=await serve(drip))
    with pytest.raises(ImportRejected, match=r"within 0.2 s \(setting imports.card_timeout_s"):
        await Sources(store, HOST, limits).import_(spec)


async def test_the_card_of_1_0_is_asked_for(
    agent: ScriptedAgent, sources: Sources, store: ToolStore, serve: Serve
) -> None:
    """Agents of both versions show the card of 0.3, which is unsigned, unless they are told."""

    def card(request: Request) -> JSONResponse:
        is_new = request.headers.get("A2A-Version") == "1.0"
        return JSONResponse(agent.card if is_new else {"name": "old"})

    spec = spec_of(agent, allowed_hosts=(agent.base.removeprefix("http://"),))
    location = await serve(Starlette(routes=[Route("/{path:path}", card)]))
    await sources.import_(replace(spec, location=location))
    assert await names(store) == ["trips"]


async def test_a_redirected_card_does_not_choose_the_host(
    agent: ScriptedAgent, sources: Sources, serve: Serve
) -> None:
    target = f"{agent.base}/.well-known/agent-card.json"
    route = Route("/{path:path}", lambda _request: RedirectResponse(target))
    spec = replace(spec_of(agent), location=await serve(Starlette(routes=[route])))
    with pytest.raises(ImportRejected, match="at another host"):
        await sources.import_(spec)
    host = agent.base.removeprefix("http://")
    await sources.import_(replace(spec, options=A2aOptions(allowed_hosts=(host,))))


async def test_a_guarded_import_reads_public_addresses_alone(
    agent: ScriptedAgent, sources: Sources
) -> None:
    with pytest.raises(ImportRejected, match="not a public address"):
        await sources.import_(spec_of(agent, guarded=True))


KEY = ec.generate_private_key(ec.SECP256R1())


def write_keys(folder: Path, key: ec.EllipticCurvePrivateKey, kid: str) -> str:
    jwk = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": [{**jwk, "kid": kid}]}))
    return str(path)


def sign_card(
    card: dict[str, Any], kid: str = "k1", algorithm: str = "ES256", key: Any = KEY
) -> bytes:
    """The card with a detached JWS over its canonical form."""
    token = jwt.api_jws.PyJWS().encode(canonical_json(card), key, algorithm, {"kid": kid})
    protected, _, signature = token.split(".")
    return json.dumps(
        {**card, "signatures": [{"protected": protected, "signature": signature}]}
    ).encode()


def test_a_card_signed_by_a_key_of_the_operator_is_imported(tmp_path: Path) -> None:
    options = A2aOptions(signed=write_keys(tmp_path, KEY, "k1"))
    document = sign_card(ScriptedAgent().card)
    assert "signed by k1" in check_signature(document, "x", options)


def test_members_at_their_defaults_do_not_spoil_a_signature(tmp_path: Path) -> None:
    options = A2aOptions(signed=write_keys(tmp_path, KEY, "k1"))
    sent = {**json.loads(sign_card(ScriptedAgent().card)), "iconUrl": "", "securitySchemes": {}}
    assert "signed by k1" in check_signature(json.dumps(sent).encode(), "x", options)


def test_members_of_0_3_are_outside_of_a_signature(tmp_path: Path) -> None:
    options = A2aOptions(signed=write_keys(tmp_path, KEY, "k1"))
    old = {"url": "https://a.example", "protocolVersion": "0.3"}
    sent = {**json.loads(sign_card(ScriptedAgent().card)), **old}
    assert "signed by k1" in check_signature(json.dumps(sent).encode(), "x", options)
    del sent["supportedInterfaces"]  # the card would be read by them
    with pytest.raises(ImportRejected, match="signed by no key of"):
        check_signature(json.dumps(sent).encode(), "x", options)


@pytest.mark.parametrize(
    "forgery", ["changed", "other key", "other kid", "none", "hmac", "unsigned"]
)
def test_a_forged_card_is_refused(tmp_path: Path, forgery: str) -> None:
    path = write_keys(tmp_path, KEY, "k1")
    card = ScriptedAgent().card
    document = {
        "changed": json.dumps({**json.loads(sign_card(card)), "description": "evil"}).encode(),
        "other key": sign_card(card, key=ec.generate_private_key(ec.SECP256R1())),
        "other kid": sign_card(card, kid="k2"),
        "none": sign_card(card, algorithm="none", key=None),
        "hmac": sign_card(card, algorithm="HS256", key=b"x" * 32),
        "unsigned": json.dumps(card).encode(),
    }[forgery]
    with pytest.raises(ImportRejected, match="signed by no key of"):
        check_signature(document, "x", A2aOptions(signed=path))


def test_without_keys_the_signer_is_named_and_not_believed() -> None:
    note = check_signature(sign_card(ScriptedAgent().card), "x", A2aOptions())
    assert note == "its card is signed by 'k1', not verified"


@pytest.mark.parametrize("signatures", [5, [5], [{"protected": "###"}], [{}] * 1000, "x"])
def test_malformed_signatures_are_none(tmp_path: Path, signatures: Any) -> None:
    document = json.dumps({**ScriptedAgent().card, "signatures": signatures}).encode()
    with pytest.raises(ImportRejected, match="signed by no key of"):
        check_signature(document, "x", A2aOptions(signed=write_keys(tmp_path, KEY, "k1")))


async def test_an_import_by_the_api_gives_the_keys_themselves(
    agent: ScriptedAgent, sources: Sources, tmp_path: Path
) -> None:
    keys = Path(write_keys(tmp_path, KEY, "k1")).read_text()
    asked = {"kind": "a2a", "name": "trips", "url": agent.base, "keys": keys}
    spec = replace(spec_of(agent), options=msgspec.convert(asked, A2aImport).options)
    with pytest.raises(ImportRejected, match="signed by no key of the given keys"):
        await sources.import_(spec)
    agent.card_changes = json.loads(sign_card(agent.card))
    await sources.import_(spec)
    agent.card_changes = {"description": "evil"}
    with pytest.raises(ImportRejected, match="signed by no key of the given keys"):
        await sources.refresh("trips")  # they are stored


SECRET = jwt.algorithms.ECAlgorithm.to_jwk(KEY)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", "expected a JWK set"),
        ("[]", "expected a JWK set"),
        ("[" * 100_000, "expected a JWK set"),
        ('{"keys": [7]}', "expected a JWK set"),
        (f'{{"keys": [{SECRET}]}}', "expected public keys"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "expected public keys"),
    ],
)
def test_malformed_and_secret_keys_are_refused(keys: str, expected: str) -> None:
    with pytest.raises(ImportRejected, match=expected):
        check_signature(b"{}", "x", A2aOptions(keys=keys))


async def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    options = A2aOptions(signed=str(tmp_path / "keys.json"))
    with pytest.raises(ImportRejected, match="expected a JWK set"):
        check_signature(b"{}", "x", options)
