"""Grants at an authorization server of authlib's, with the habits of real ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from msgspec.structs import replace

from gateway.connections.oauth.discovery import Discovery
from gateway.connections.oauth.gateway_as_client import AssertionKey, OAuthClient
from gateway.connections.oauth.grants import (
    UNSAID_S,
    AuthorizationRefused,
    GrantFailed,
    Grants,
    PendingAuthorization,
    Tokens,
    choose_scopes,
)
from gateway.connections.oauth.guarded_requests import Reach
from gateway.connections.oauth.server_metadata import AuthorizationServer
from schemas.pkce import challenge_of
from tests.fixtures_servers import serving
from tests.gateway.connections.oauth.limits import limits
from tests.servers.authorization import Late
from tests.servers.habits import Habits
from tests.servers.issuer.accounts import Client
from tests.servers.issuer.app import build_app
from tests.servers.issuer.server import Server

pytestmark = pytest.mark.anyio

SERVICE = "http://service.example"
CALLBACK = "https://gateway.example/connect/service/callback"
SCOPES = ("orders:read", "orders:write")
ADA = {"username": "ada", "password": "lovelace", "answer": "allow"}
SECRET = "a secret: of the gateway"


@dataclass
class Service:
    """A service with its own login, and the gateway as its client."""

    url: str
    habits: Habits
    accounts: Server
    server: AuthorizationServer
    reach: Reach

    def grants(self, method: Any = "basic", **more: Any) -> Grants:
        client = OAuthClient(id="gateway", secret=SECRET, method=method)
        more = {"server": self.server, "client": client, "reach": self.reach, **more}
        return Grants(**more)

    async def answer(self, url: str) -> dict[str, str]:
        """The query with which a browser comes back after a login."""
        async with (
            aiohttp.ClientSession() as http,
            http.post(url, data=ADA, allow_redirects=False) as sent,
        ):
            assert sent.status == 302, await sent.text()
            location = sent.headers["Location"]
        assert location.startswith(f"{CALLBACK}?")
        return dict(parse_qsl(urlsplit(location).query))

    async def connect(self, grants: Grants, scopes: tuple[str, ...] = SCOPES) -> Tokens:
        url, attempt = grants.begin(CALLBACK, "the state", scopes)
        kept = msgspec.json.decode(msgspec.json.encode(attempt), type=PendingAuthorization)
        return await grants.redeem(kept, await self.answer(url))


@asynccontextmanager
async def service(**habits: Any) -> AsyncIterator[Service]:
    late = Late()
    async with serving(late) as url:
        accounts = Server(url, [SERVICE])
        accounts.accounts.add(
            Client("gateway", SECRET, "Gateway", (CALLBACK,),
                   ("authorization_code", "refresh_token"))
        )  # fmt: skip
        late.app = made = Habits(build_app(accounts), **habits)
        reach = Reach(limits(private_networks=True))
        found = await Discovery(reach.limits).of_issuer(url, reach)
        server = replace(found.server, resource=f"{SERVICE}/api")
        made.asked.clear()
        yield Service(url, made, accounts, server, reach)


@pytest.mark.parametrize("hides_rfc8414", [False, True])
@pytest.mark.parametrize("method", ["basic", "post"])
async def test_a_person_connects_renews_and_disconnects(method: str, hides_rfc8414: bool) -> None:
    async with service(hides_rfc8414=hides_rfc8414) as place:
        grants = place.grants(method)
        tokens = await place.connect(grants)
        assert tokens.refresh is not None
        assert tokens.scopes == SCOPES
        assert tokens.lasts_s == 300
        claims = jwt.decode(tokens.access, options={"verify_signature": False})
        assert claims["aud"] == f"{SERVICE}/api"
        later = await grants.renew(tokens.refresh, tokens.scopes)
        assert later.access != tokens.access
        assert later.refresh is not None
        assert await grants.revoke(later.refresh, "refresh_token")
        with pytest.raises(GrantFailed) as over:
            await grants.renew(later.refresh, later.scopes)
        assert over.value.reason == "over"
        asked, *forms = place.habits.forms("/authorize") + place.habits.forms("/token")
        assert asked["state"] == "the state"
        assert asked["code_challenge"] == challenge_of(forms[0]["code_verifier"])
        assert {form["resource"] for form in (asked, *forms)} == {f"{SERVICE}/api"}


@pytest.mark.parametrize(
    ("iss", "announces", "good"),
    [
        (None, True, True),
        ("", True, False),
        ("", False, True),
        ("https://evil.example", True, False),
        ("https://evil.example", False, False),
        ("{url}/", True, False),
    ],
)
async def test_an_answer_of_another_server_is_not_redeemed(
    iss: str | None, announces: bool, good: bool
) -> None:
    """A6, CT3: `iss` is compared as it is, before the code goes anywhere."""
    async with service() as place:
        place.habits.iss = iss and iss.format(url=place.url)
        grants = place.grants(server=replace(place.server, announces_iss=announces))
        if good:
            assert (await place.connect(grants)).access
        else:
            with pytest.raises(AuthorizationRefused):
                await place.connect(grants)
            assert place.habits.forms("/token") == []


async def test_an_answer_for_another_server_is_not_redeemed() -> None:
    """CT3: the attempt was made for one server and one client."""
    async with service() as place:
        url, attempt = place.grants().begin(CALLBACK, "s", SCOPES)
        answer = await place.answer(url)
        for others in (
            place.grants(server=replace(place.server, issuer="https://evil.example")),
            place.grants(client=OAuthClient(id="another", secret=SECRET, method="basic")),
        ):
            with pytest.raises(AuthorizationRefused):
                await others.redeem(attempt, answer)
        assert place.habits.forms("/token") == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"error": "access_denied", "iss": "{url}"}, "access_denied"),
        ({"error": "access_denied", "iss": "https://evil.example"}, "another server"),
        ({"error": "access_denied"}, "does not name its issuer"),
        ({"iss": "{url}"}, "no code"),
        ({"code": "", "iss": "{url}"}, "no code"),
        ({"code": "x", "error": "access_denied", "iss": "{url}"}, "access_denied"),
        ({"error": "e\n" * 500, "error_description": "d\r" * 900, "iss": "{url}"}, "e e"),
    ],
)
async def test_refusals_of_a_server_are_shown_in_short(answer: dict[str, str], text: str) -> None:
    async with service() as place:
        _, attempt = place.grants().begin(CALLBACK, "s", SCOPES)
        query = {name: value.format(url=place.url) for name, value in answer.items()}
        with pytest.raises(AuthorizationRefused) as refused:
            await place.grants().redeem(attempt, query)
        assert text in str(refused.value)
        assert len(str(refused.value)) < 400
        assert str(refused.value).isprintable()


async def test_a_code_is_bound_to_its_verifier() -> None:
    async with service() as place:
        grants = place.grants()
        url, attempt = grants.begin(CALLBACK, "s", SCOPES)
        with pytest.raises(GrantFailed) as failed:
            await grants.redeem(replace(attempt, verifier="v" * 43), await place.answer(url))
        assert failed.value.reason == "over"


async def test_entra_gets_no_resource() -> None:
    """`resource` beside scopes is refused there (AADSTS9010010); a setting leaves it out."""
    async with service(refuses_resource=True) as place:
        grants = place.grants(server=replace(place.server, announces_iss=False))
        with pytest.raises(AuthorizationRefused, match="AADSTS9010010"):
            await place.connect(grants)
        assert await place.connect(place.grants(server=replace(place.server, resource="")))


@pytest.mark.parametrize("status", [500, 502, 429])
async def test_an_outage_ends_no_grant(status: int) -> None:
    """CON-12: whatever fails for now is tried again."""
    async with service() as place:
        grants = place.grants()
        tokens = await place.connect(grants)
        place.habits.status = status
        with pytest.raises(GrantFailed) as failed:
            await grants.renew(tokens.refresh or "", SCOPES)
        assert failed.value.reason == "later"
        place.habits.status = 0
        assert await grants.renew(tokens.refresh or "", SCOPES)


async def test_an_unknown_client_ends_no_grant() -> None:
    async with service() as place:
        grants = place.grants(client=OAuthClient(id="gateway", secret="x", method="basic"))
        with pytest.raises(GrantFailed) as failed:
            await grants.renew("any", SCOPES)
        assert failed.value.reason == "client"
        assert "any" not in str(failed.value)


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": None},
        {"access_token": ""},
        {"access_token": None, "error": "bad_verification_code"},
        {"access_token": None, "error": "interaction_required"},
        {"access_token": "with\nlines"},
        {"access_token": "t" * 40_000},
        {"token_type": "DPoP"},
        {"expires_in": "soon"},
        {"scope": "orders:read\0"},
        {"scope": " ".join(f"orders:{number}" for number in range(1000))},
    ],
)
async def test_an_answer_without_a_usable_token_is_an_error(
    answer: dict[str, Any], status: int
) -> None:
    """CON-24: whatever its status is."""
    async with service(token=answer, token_status=status) as place:
        with pytest.raises(GrantFailed) as failed:
            await place.connect(place.grants())
        assert failed.value.reason == ("over" if "error" in answer else "later")


@pytest.mark.parametrize(
    ("answer", "lasts_s"),
    [
        ({"expires_in": 60}, 60),
        ({"expires_in": "60"}, 60),
        ({"expires_in": -5}, 0),
        ({"expires_in": "inf"}, 0),
        ({"expires_in": None}, UNSAID_S),
        ({"expires_in": None, "refresh_token": None}, None),
    ],
)
async def test_the_end_of_a_token(answer: dict[str, Any], lasts_s: float | None) -> None:
    """CON-24: an hour where nothing is said; without a refresh token, until it is refused."""
    async with service(token=answer) as place:
        assert (await place.connect(place.grants())).lasts_s == lasts_s


@pytest.mark.parametrize(
    ("scope", "granted"),
    [
        (None, SCOPES),
        ("orders:read", ("orders:read",)),
        ("repo,gist", ("repo", "gist")),
        ("repo\ngist\t", ("repo", "gist")),
        ("", ()),
    ],
)
async def test_granted_scopes_come_from_the_answer(
    scope: str | None, granted: tuple[str, ...]
) -> None:
    async with service(token={"scope": scope}) as place:
        assert (await place.connect(place.grants())).scopes == granted


async def test_the_refresh_token_stays_where_none_is_answered() -> None:
    async with service() as place:
        grants = place.grants()
        tokens = await place.connect(grants)
        place.habits.token = {"refresh_token": None}
        assert (await grants.renew(tokens.refresh or "", SCOPES)).refresh == tokens.refresh


async def test_further_parameters_replace_none() -> None:
    """CON-24: Google's `access_type`; the state and the verifier stay those of the gateway."""
    async with service() as place:
        grants = place.grants(
            authorize={"access_type": "offline", "state": "x", "redirect_uri": "https://evil"},
            token={"audience": "a", "code_verifier": "x", "grant_type": "password"},
        )
        await place.connect(grants)
        [asked], [form] = place.habits.forms("/authorize"), place.habits.forms("/token")
        assert (asked["access_type"], asked["state"]) == ("offline", "the state")
        assert asked["redirect_uri"] == CALLBACK
        assert (form["audience"], form["grant_type"]) == ("a", "authorization_code")


def test_the_url_keeps_the_query_of_the_endpoint() -> None:
    server = AuthorizationServer(
        authorization_endpoint="https://auth.example/a?p=sign-in",
        token_endpoint="https://auth.example/t",
    )
    url, attempt = Grants(server, OAuthClient(id="c"), Reach(limits())).begin(CALLBACK, "s", ())
    query = dict(parse_qsl(urlsplit(url).query))
    assert query["p"] == "sign-in"
    assert not {"scope", "resource"} & query.keys()
    assert len(attempt.verifier) >= 43
    assert attempt.verifier not in url


async def test_signed_authentication_reaches_the_server() -> None:
    private = generate_private_key(SECP256R1())
    key = AssertionKey("k1", private)
    async with service() as place:
        client = OAuthClient(id="https://gateway.example/oauth/client.json",
                             method="private_key_jwt")  # fmt: skip
        with pytest.raises(GrantFailed):  # authlib's example knows no such client
            await place.grants(client=client, key=key).renew("r", SCOPES)
        [form] = place.habits.forms("/token")
        claims = jwt.decode(
            form["client_assertion"], private.public_key(), ["ES256"], audience=place.url
        )
        assert claims["sub"] == claims["iss"] == form["client_id"] == client.id
        assert "authorization" not in place.habits.asked[-1][2]
        with pytest.raises(GrantFailed, match="key"):
            await place.grants(client=client).renew("r", SCOPES)
        assert not await place.grants(client=client).revoke("r", "refresh_token")


async def test_tokens_go_to_no_address_inside() -> None:
    """CT5: a pinned server whose address is no longer allowed is not asked."""
    async with service() as place:
        grants = place.grants(reach=Reach(limits()))
        for host in (place.url, "https://localhost"):
            server = replace(place.server, token_endpoint=f"{host}/token",
                             revocation_endpoint=f"{host}/revoke")  # fmt: skip
            grants = place.grants(server=server, reach=Reach(limits()))
            with pytest.raises(GrantFailed) as failed:
                await grants.renew("planted", SCOPES)
            assert failed.value.reason == "later"
            assert not await grants.revoke("planted", "refresh_token")
        assert place.habits.asked == []


@pytest.mark.parametrize(
    ("wanted", "more", "named", "supported", "scopes"),
    [
        ((), (), (), (), ()),
        ((), (), ("a",), (), ("a",)),
        (("b",), (), ("a",), (), ("b",)),
        (("b",), ("a", "b"), (), (), ("b", "a")),
        (("b",), (), (), ("offline_access",), ("b", "offline_access")),
        ((), (), (), ("offline_access",), ()),
        ((), ("a",), (), ("other",), ("a",)),
    ],
)
def test_scopes_join_settings_and_challenge(
    wanted: Any, more: Any, named: Any, supported: Any, scopes: Any
) -> None:
    """A8, A9."""
    server = AuthorizationServer(
        *(), authorization_endpoint="", token_endpoint="", scopes=named, scopes_supported=supported
    )
    assert choose_scopes(server, wanted, more=more) == scopes
