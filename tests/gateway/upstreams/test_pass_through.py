"""The caller's own token passed on, where the settings say so and it was not issued for us."""

import base64
from dataclasses import replace

import msgspec
import pytest

from config.load import load
from config.sources import SourceSettings
from gateway.context import CallHeaders, Context, Identity
from gateway.upstreams.auth.caller import OwnAudiences, audiences_of
from gateway.upstreams.http.client import Client
from schemas.binding import Credential
from schemas.mcp.revisions import V2025_06_18
from tests.gateway.upstreams.callers import Calling, caller
from tests.gateway.upstreams.conftest import limits
from tests.servers.rest import Recorder
from tests.servers.tokens import Guarded

pytestmark = pytest.mark.anyio

OWN = OwnAudiences(frozenset({"tools"}), "https://gate.example/base")
OURS = (
    "pets was not called: the caller's token was issued for this gateway, and is not passed on. "
    "Set sources.pets.exchange, or sources.pets.same_trust_domain where both are one"
)


async def pass_token(serve, context: Context, own: OwnAudiences = OWN, **settings):
    """What the caller heard, and what the service saw."""
    pets = Recorder()
    adjusted = SourceSettings(forward_token=True, **settings)
    client = Client(limits(), {"pets": adjusted}, own)
    try:
        result = await Calling(client, await serve(pets))(context)
    finally:
        await client.close()
    return result.content[0].text, pets.seen


def jwt(**claims) -> str:
    payload = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


@pytest.mark.parametrize(
    "aud", [None, "pets", ["pets", "other"], "https://gate.example/other", "https://gate.example"]
)
async def test_a_token_for_somebody_else_goes_on(serve, aud):
    _, [seen] = await pass_token(serve, caller("ann", aud=aud))
    assert seen.all("authorization") == ["Bearer ann"]
    assert seen.all("x-scope-token") == []


@pytest.mark.parametrize(
    "aud",
    [
        "tools",
        ["pets", "tools"],
        "https://gate.example/base",
        "https://gate.example/base/",
        "https://gate.example/base/mcp/crm",
        "HTTPS://Gate.Example/base/mcp",
    ],
)
async def test_a_token_for_the_gateway_stays_here(serve, aud):
    text, seen = await pass_token(serve, caller("ann", aud=aud))
    assert (text, seen) == (OURS, [])
    _, [seen] = await pass_token(serve, caller("ann", aud=aud), same_trust_domain=True)
    assert seen.all("authorization") == ["Bearer ann"]


async def test_where_all_tokens_are_bound_to_the_gateway_none_goes_on(serve):
    text, seen = await pass_token(serve, caller("ann", aud="whatever"), replace(OWN, always=True))
    assert (text, seen) == (OURS, [])


@pytest.mark.parametrize(("aud", "goes"), [("pets", True), ("tools", False)])
async def test_the_scope_token_follows_the_same_rule(serve, aud, goes):
    token = jwt(aud=aud)
    identity = Identity(caller().principal, verified=True, scope_token=frozenset({"a"}))
    call_headers = CallHeaders(authorization="ann", scope_token=f"Bearer {token}")
    text, seen = await pass_token(serve, Context(identity, V2025_06_18, "r", headers=call_headers))
    if goes:
        assert seen[0].all("x-scope-token") == [f"Bearer {token}"]
        assert seen[0].all("authorization") == ["Bearer ann"]
    else:
        assert (text, seen) == (OURS, [])


async def test_a_scope_token_that_is_not_verified_goes_nowhere(serve):
    context = caller("ann")
    context.headers = CallHeaders(authorization="Bearer ann", scope_token="junk")
    _, [seen] = await pass_token(serve, context)
    assert seen.all("x-scope-token") == []


async def test_a_refused_token_is_not_tried_twice(serve):
    pets = Guarded("another")
    client = Client(limits(), {"pets": SourceSettings(forward_token=True)})
    result = await Calling(client, await serve(pets))(caller())
    await client.close()
    assert result.is_error
    assert len(pets.seen) == 1


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.!!.c", "a.W10.c", "a.e30.c", jwt(aud=7)])
def test_tokens_without_audience_have_no_audiences(token):
    assert audiences_of(token) == frozenset()


def test_own_audiences_match_the_settings_of_tokens(tmp_path):
    file = tmp_path / "t.yaml"
    file.write_text(
        "server: {public_url: 'https://gate.example/base/'}\n"
        "auth: {mode: jwt, audience: tools, issuers: {other: {issuer: i, audience: too, jwks_url: 'https://i'}}}"
    )
    settings = load(str(file), {})
    own = OwnAudiences.of(settings.auth, settings.server.public_url)
    assert own == OwnAudiences(frozenset({"tools", "too"}), "https://gate.example/base")


async def test_a_configured_scope_token_does_not_replace_that_of_a_caller(serve):
    """The operator's token would lend its scopes to the caller (mending 35)."""
    token = jwt(aud="pets")
    identity = Identity(caller().principal, verified=True, scope_token=frozenset({"a"}))
    call_headers = CallHeaders(authorization="Bearer ann", scope_token=f"Bearer {token}")
    context = Context(identity, V2025_06_18, "r", headers=call_headers)
    _, [seen] = await pass_token(
        serve, context, headers={"X-Scope-Token": "Bearer ours", "X-A": "1"}
    )
    assert seen.all("x-scope-token") == [f"Bearer {token}"]
    assert seen.all("x-a") == ["1"]


async def test_an_argument_that_nobody_fills_any_more_asks_for_another_import(serve):
    """Credentials filled it before callers authenticated themselves (mending 35)."""
    bare = Credential("login", "apiKey", "query", "token", bare=True)
    client = Client(limits(), {"pets": SourceSettings(forward_token=True)})
    pets = Recorder()
    result = await Calling(client, await serve(pets), (Credential("login", "bearer"), bare))(
        caller()
    )
    await client.close()
    assert "Import it again: toolgate sources refresh pets" in result.content[0].text
    assert pets.seen == []
