"""The authorization server of the OAuth example gives nobody what they should not have."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx2
import jwt
import pytest

from examples.oauth.accounts import TOKEN_EXCHANGE, Grantee
from examples.oauth.authorization_server import GATEWAY, REPORTS, build_app, with_programs
from examples.oauth.server import Server
from tests.fixtures_servers import Serve
from tests.servers.authorization import VERIFIER, Late, challenge, query

pytestmark = pytest.mark.anyio

GATE, ORDERS = "http://gate.example", "http://orders.example"
CALLBACK = "http://127.0.0.1:1/callback"
ADA = {"username": "ada", "password": "lovelace", "answer": "allow"}
BOB = {"username": "bob", "password": "the-builder", "answer": "allow"}
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


@dataclass
class Visitor:
    """A registered client, and whoever sits in front of it."""

    http: httpx2.AsyncClient
    server: Server
    client_id: str = ""

    def asked(self, **changes: Any) -> dict[str, str]:
        """A request for a login; what is None is left out."""
        said = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": CALLBACK,
            "scope": "orders:read orders:write",
            "state": "s",
            "code_challenge": challenge(),
            "code_challenge_method": "S256",
            "resource": f"{GATE}/mcp",
            **changes,
        }
        return {name: value for name, value in said.items() if value is not None}

    async def login(self, form: dict[str, str] = ADA, **changes: Any) -> httpx2.Response:
        return await self.http.post(f"/authorize?{urlencode(self.asked(**changes))}", data=form)

    async def code(self, form: dict[str, str] = ADA, **changes: Any) -> str:
        sent = await self.login(form, **changes)
        return query(sent.headers["location"])["code"]

    async def redeem(self, code: str, **changes: Any) -> tuple[int, Any]:
        form = {
            "grant_type": "authorization_code",
            "client_id": self.client_id,
            "code": code,
            "redirect_uri": CALLBACK,
            "code_verifier": VERIFIER,
            **changes,
        }
        return await self.token(form)

    async def token(
        self, form: dict[str, str], login: tuple[str, str] | None = None
    ) -> tuple[int, Any]:
        auth = httpx2.BasicAuth(*login) if login else None
        sent = await self.http.post("/token", data=form, auth=auth)
        return sent.status_code, sent.json()

    def issued(self, audience: str = f"{GATE}/mcp", scope: str = "orders:read") -> str:
        client, grantee = self.server.accounts.clients[GATEWAY[0]], Grantee("ada", audience)
        return str(self.server.generate_token("test", client, grantee, scope)["access_token"])

    async def exchange(self, **changes: Any) -> tuple[int, Any]:
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "subject_token": self.issued(),
            "subject_token_type": ACCESS_TOKEN,
            "resource": ORDERS,
            "scope": "orders:read",
            **changes,
        }
        return await self.token(form, GATEWAY)


@pytest.fixture
async def visitor(serve: Serve) -> AsyncIterator[Visitor]:
    late = Late()
    url = await serve(late)
    server = with_programs(Server(url, [GATE, ORDERS]))
    late.app = build_app(server)
    async with httpx2.AsyncClient(base_url=url) as http:
        metadata = {
            "redirect_uris": [CALLBACK],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
        }
        made = await http.post("/register", json={"client_name": "<i>x</i>", **metadata})
        assert made.status_code == 201
        assert "client_secret" not in made.json()
        yield Visitor(http, server, made.json()["client_id"])


def claims(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(jwt.decode(answer["access_token"], options={"verify_signature": False}))


async def test_a_login_gives_a_token_for_the_requested_scope(visitor: Visitor) -> None:
    page = await visitor.http.get(f"/authorize?{urlencode(visitor.asked())}")
    assert "&lt;i&gt;x&lt;/i&gt;" in page.text
    assert "<i>" not in page.text
    sent = await visitor.login()
    told = query(sent.headers["location"])
    assert (sent.status_code, told["state"], told["iss"]) == (302, "s", visitor.server.issuer)
    status, answer = await visitor.redeem(told["code"])
    assert (status, answer["scope"]) == (200, "orders:read orders:write")
    said = claims(answer)
    assert (said["sub"], said["aud"], said["client_id"]) == (
        "ada",
        f"{GATE}/mcp",
        visitor.client_id,
    )
    assert jwt.get_unverified_header(answer["access_token"])["typ"] == "at+jwt"


async def test_users_grant_only_their_own_scopes(visitor: Visitor) -> None:
    _, answer = await visitor.redeem(await visitor.code(BOB))
    assert answer["scope"] == claims(answer)["scope"] == "orders:read"


async def test_a_wrong_password_and_a_no_give_nothing(visitor: Visitor) -> None:
    page = await visitor.login({**ADA, "password": "x"})
    assert (page.status_code, "That is not right." in page.text) == (200, True)
    denied = query((await visitor.login({"answer": "deny"})).headers["location"])
    assert (denied["error"], denied["state"]) == ("access_denied", "s")
    assert "code" not in denied


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"scope": "everything"}, "invalid_scope"),
        ({"resource": "http://evil.example"}, "invalid_target"),
        ({"resource": f"{GATE}.evil"}, "invalid_target"),
        ({"response_type": "token"}, "unsupported_response_type"),
    ],
)
async def test_invalid_authorization_requests_name_their_error(
    visitor: Visitor, changes: dict[str, Any], error: str
) -> None:
    sent = await visitor.login(**changes)
    told = query(sent.headers["location"])
    assert (sent.status_code, told["error"], told["state"]) == (302, error, "s")
    assert told["iss"] == visitor.server.issuer


@pytest.mark.parametrize("changes", [{"redirect_uri": "http://evil"}, {"client_id": "x"}])
async def test_nothing_is_sent_to_an_address_that_is_not_the_client_s(
    visitor: Visitor, changes: dict[str, Any]
) -> None:
    sent = await visitor.login(**changes)
    assert sent.status_code == 400
    assert "location" not in sent.headers


async def test_a_code_is_good_once_and_only_for_its_client(visitor: Visitor) -> None:
    code = await visitor.code()
    assert (await visitor.redeem(code))[0] == 200
    assert (await visitor.redeem(code))[1]["error"] == "invalid_grant"
    for wrong, error in (
        ({"code_verifier": "b" * 43}, "invalid_grant"),
        ({"redirect_uri": f"{CALLBACK}/x"}, "invalid_grant"),
        ({"resource": f"{GATE}/rpc"}, "invalid_target"),
        ({"client_id": "x"}, "invalid_client"),
    ):
        status, answer = await visitor.redeem(await visitor.code(), **wrong)
        assert (status in (400, 401), answer["error"]) == (True, error)


async def test_a_refresh_token_is_good_once(visitor: Visitor) -> None:
    _, first = await visitor.redeem(await visitor.code())
    form = {"grant_type": "refresh_token", "client_id": visitor.client_id}
    status, second = await visitor.token({**form, "refresh_token": first["refresh_token"]})
    assert (status, claims(second)["aud"]) == (200, f"{GATE}/mcp")
    status, again = await visitor.token({**form, "refresh_token": first["refresh_token"]})
    assert (status, again["error"]) == (400, "invalid_grant")
    taken_back = {"token": second["refresh_token"], "client_id": visitor.client_id}
    assert (await visitor.http.post("/revoke", data=taken_back)).status_code == 200
    status, _ = await visitor.token({**form, "refresh_token": second["refresh_token"]})
    assert status == 400


async def test_a_token_is_exchanged_for_another_audience(visitor: Visitor) -> None:
    own = {"grant_type": "client_credentials", "resource": ORDERS}
    _, actor = await visitor.token(own, GATEWAY)
    acting = {"actor_token": actor["access_token"], "actor_token_type": ACCESS_TOKEN}
    status, answer = await visitor.exchange(**acting)
    assert (status, answer["issued_token_type"]) == (200, ACCESS_TOKEN)
    said = claims(answer)
    assert (said["sub"], said["aud"], said["act"]) == ("ada", ORDERS, {"sub": GATEWAY[0]})
    assert "refresh_token" not in answer
    assert "act" not in claims((await visitor.exchange())[1])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scope": "orders:write"}, "invalid_scope"),
        ({"resource": "http://evil.example"}, "invalid_target"),
        ({"subject_token": "x"}, "invalid_request"),
        ({"subject_token_type": "urn:x"}, "invalid_request"),
        ({"requested_token_type": "urn:x"}, "invalid_request"),
        ({"actor_token": "x", "actor_token_type": ACCESS_TOKEN}, "invalid_request"),
    ],
)
async def test_an_exchange_gives_no_more_than_the_token_had(
    visitor: Visitor, changes: dict[str, str], error: str
) -> None:
    status, answer = await visitor.exchange(**changes)
    assert (status, answer["error"]) == (400, error)


async def test_foreign_tokens_are_not_exchanged(visitor: Visitor) -> None:
    foreign = visitor.issued(audience=ORDERS)
    assert (await visitor.exchange(subject_token=foreign))[1]["error"] == "invalid_request"
    ada = {"actor_token": visitor.issued(), "actor_token_type": ACCESS_TOKEN}
    assert (await visitor.exchange(**ada))[1]["error"] == "invalid_request"
    form = {"grant_type": TOKEN_EXCHANGE, "subject_token": visitor.issued()}
    status, answer = await visitor.token({**form, "subject_token_type": ACCESS_TOKEN}, REPORTS)
    assert (status, answer["error"]) == (400, "unauthorized_client")


async def test_a_program_gets_no_more_than_its_own_scopes(visitor: Visitor) -> None:
    form = {"grant_type": "client_credentials", "scope": "orders:read orders:refund"}
    _, answer = await visitor.token(form, REPORTS)
    assert (claims(answer)["sub"], answer["scope"]) == (REPORTS[0], "orders:read")
    assert (await visitor.token(form, (REPORTS[0], "x")))[0] == 401


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"redirect_uris": ["no address"]},
        {"redirect_uris": [CALLBACK], "grant_types": ["password"]},
        {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "magic"},
        {"redirect_uris": [CALLBACK], "scope": "everything"},
        [],
    ],
)
async def test_not_everything_can_be_registered(visitor: Visitor, metadata: Any) -> None:
    sent = await visitor.http.post("/register", json=metadata)
    assert sent.status_code == 400
    assert sent.json()["error"] in ("invalid_client_metadata", "invalid_request")


async def test_clients_cannot_register_for_token_exchange(visitor: Visitor) -> None:
    grants = ["authorization_code", TOKEN_EXCHANGE]
    sent = await visitor.http.post(
        "/register", json={"redirect_uris": [CALLBACK], "grant_types": grants}
    )
    made = sent.json()
    form = {"grant_type": TOKEN_EXCHANGE, "subject_token": visitor.issued()}
    login = (made["client_id"], made["client_secret"])
    status, answer = await visitor.token({**form, "subject_token_type": ACCESS_TOKEN}, login)
    assert (status, answer["error"]) == (400, "unauthorized_client")
