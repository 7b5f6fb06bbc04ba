"""What a call proves, with what the settings hold."""

from dataclasses import replace

import pytest
from msgspec import Raw

from config.sources import SchemeSettings, SourceSettings
from gateway.context import Context, Identity, Principal
from gateway.upstreams.auth.credentials import missing_credentials
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from schemas.binding import Credential, OpenAPIBinding, Parameter
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, Tool
from tests.gateway.upstreams.conftest import open_client, source
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

CONTEXT = Context(Identity(Principal("p", "t")), V2025_06_18, "r-1")
PARAMETERS = (
    Parameter("q", "q", "query", "form", True),
    Parameter("theme", "theme", "cookie", "form", True),
)
HEADER = Credential("inHeader", "apiKey", "header", "X-Key")
QUERY = Credential("inQuery", "apiKey", "query", "api key")
COOKIE = Credential("inCookie", "apiKey", "cookie", "sid")
BASIC = Credential("basic", "basic")
BEARER = Credential("bearer", "bearer")
OAUTH = Credential("oauth", "oauth2", scopes=("read", "write"))
OIDC = Credential("oidc", "openIdConnect")
DIGEST = Credential("digest", "http")
TLS = Credential("tls", "mutualTLS")
OLD = Credential("old", "apiKey", "header", "Authorization")
KEY = SchemeSettings(value="k-1&;=")


def tool(*security):
    binding = OpenAPIBinding("GET", "/x", PARAMETERS, security=security)
    return Tool("uuid", "x", None, "X", Raw(b"{}"), None, Annotations(), binding, "pets", "digest")


async def call_pets(serve, security, arguments=None, trusted=True, **settings):
    """The result of a call with these requirements and settings, and what the service saw."""
    pets = Recorder()
    of = source(await serve(pets), trusted=trusted)
    async with open_client(SourceSettings(**settings)) as client:
        upstream = OpenAPIUpstream(client)
        result = await upstream.call(tool(*security), of, arguments or {}, CONTEXT)
    return result, pets.seen


async def sent_request(*arguments, **named):
    """The one request that the service saw."""
    result, [seen] = await call_pets(*arguments, **named)
    assert not result.is_error
    return seen


async def refusal_of(*arguments, **named):
    """What the caller was told; nothing went out."""
    result, seen = await call_pets(*arguments, **named)
    assert result.is_error
    assert seen == []
    [content] = result.content
    assert "127.0.0.1" not in content.text
    assert "k-1" not in content.text
    return content.text


@pytest.mark.parametrize(
    ("credential", "entry", "header", "value"),
    [
        (HEADER, KEY, "x-key", "k-1&;="),
        (COOKIE, KEY, "cookie", "sid=k-1&%3B="),
        (
            BASIC,
            SchemeSettings(username="me", password="é:1"),
            "authorization",
            "Basic bWU6w6k6MQ==",
        ),
        (BASIC, SchemeSettings(username="me"), "authorization", "Basic bWU6"),
        (BASIC, SchemeSettings(value="Basic eA=="), "authorization", "Basic eA=="),
        (BEARER, SchemeSettings(token="t"), "authorization", "Bearer t"),
        (BEARER, SchemeSettings(value="token t"), "authorization", "token t"),
        (OAUTH, SchemeSettings(token="t"), "authorization", "Bearer t"),
        (OIDC, SchemeSettings(token="t"), "authorization", "Bearer t"),
        (DIGEST, SchemeSettings(value="Digest x"), "authorization", "Digest x"),
        (OLD, SchemeSettings(value="ApiKey x"), "authorization", "ApiKey x"),
        (OLD, SchemeSettings(token="t"), "authorization", "Bearer t"),
    ],
)
async def test_each_kind_of_credential_goes_to_its_place(serve, credential, entry, header, value):
    seen = await sent_request(serve, [(credential,)], credentials={credential.scheme: entry})
    assert seen.all(header) == [value]


async def test_a_key_in_the_query_follows_the_arguments(serve):
    credentials = {"inQuery": KEY}
    seen = await sent_request(serve, [(QUERY,)], credentials=credentials)
    assert seen.target == "/x?api%20key=k-1%26%3B%3D"
    seen = await sent_request(serve, [(QUERY,)], {"q": "a"}, credentials=credentials)
    assert seen.target == "/x?q=a&api%20key=k-1%26%3B%3D"


async def test_a_cookie_key_is_added_to_cookies_of_the_arguments(serve):
    seen = await sent_request(serve, [(COOKIE,)], {"theme": "dark"}, credentials={"inCookie": KEY})
    assert seen.all("cookie") == ["theme=dark; sid=k-1&%3B="]


async def test_all_members_of_an_alternative_go_along(serve):
    credentials = {"inHeader": KEY, "inQuery": KEY, "basic": SchemeSettings(username="me")}
    seen = await sent_request(serve, [(HEADER, QUERY)], credentials=credentials)
    assert (seen.all("x-key"), seen.all("authorization")) == (["k-1&;="], [])
    assert seen.target.startswith("/x?api%20key=")


async def test_the_first_alternative_that_is_configured_whole_is_taken(serve):
    credentials = {"inHeader": KEY, "bearer": SchemeSettings(token="t")}
    seen = await sent_request(
        serve, [(HEADER, BASIC), (BEARER,), (HEADER,)], credentials=credentials
    )
    assert (seen.all("x-key"), seen.all("authorization")) == ([], ["Bearer t"])


@pytest.mark.parametrize("credential", [BASIC, BEARER, OAUTH, OIDC, DIGEST, OLD])
async def test_an_authorization_header_of_the_settings_is_a_credential(serve, credential):
    seen = await sent_request(serve, [(credential,)], headers={"authorization": "Basic x"})
    assert seen.all("authorization") == ["Basic x"]


async def test_a_configured_header_may_satisfy_a_credential(serve):
    assert (await sent_request(serve, [(HEADER,)], headers={"x-KEY": "k"})).all("x-key") == ["k"]
    both = {"headers": {"X-Key": "k"}, "credentials": {"bearer": SchemeSettings(token="t")}}
    seen = await sent_request(serve, [(HEADER, BEARER)], **both)
    assert (seen.all("x-key"), seen.all("authorization")) == (["k"], ["Bearer t"])
    assert (await sent_request(serve, [(COOKIE,)], headers={"Cookie": "sid=1"})).all("cookie") == [
        "sid=1"
    ]


async def test_credentials_come_before_headers_in_the_choice(serve):
    settings = {"headers": {"X-Key": "k"}, "credentials": {"basic": SchemeSettings(username="me")}}
    seen = await sent_request(serve, [(HEADER,), (BASIC,)], **settings)
    assert seen.all("authorization") == ["Basic bWU6"]


@pytest.mark.parametrize("security", [[(BEARER,), ()], [(), (BEARER,)], [()], []])
async def test_an_operation_that_may_go_without_does(serve, security):
    assert (await sent_request(serve, security)).all("authorization") == []


async def test_optional_credentials_are_sent_if_configured(serve):
    seen = await sent_request(
        serve, [(), (BEARER,)], credentials={"bearer": SchemeSettings(token="t")}
    )
    assert seen.all("authorization") == ["Bearer t"]


async def test_a_call_without_its_credentials_is_refused_with_the_settings(serve):
    told = await refusal_of(serve, [(HEADER, QUERY), (OAUTH,)])
    assert told == (
        "pets was not called: it requires the credentials inHeader and inQuery, or oauth (scopes "
        "read write), and none are configured. Set sources.pets.credentials.inHeader (value) and "
        "sources.pets.credentials.inQuery (value), or sources.pets.credentials.oauth (token, or "
        "client_id, client_secret and token_url), or sources.pets.headers, or run "
        "`toolgate secrets set pets SCHEME`."
    )


@pytest.mark.parametrize(
    ("credential", "entry"),
    [
        (HEADER, SchemeSettings(token="k-1")),
        (HEADER, SchemeSettings(value="")),
        (BASIC, SchemeSettings(token="k-1")),
        (BEARER, SchemeSettings(username="k-1", password="x")),
        (BEARER, SchemeSettings(token="")),
        (DIGEST, SchemeSettings(username="k-1", password="x")),
        (TLS, SchemeSettings(value="k-1")),
        (TLS, None),
    ],
)
async def test_an_entry_of_the_wrong_sort_satisfies_nothing(serve, credential, entry):
    entries = {credential.scheme: entry} if entry else {}
    told = await refusal_of(serve, [(credential,)], credentials=entries)
    assert f"requires the credentials {credential.scheme}, and none are configured" in told


@pytest.mark.parametrize(
    ("credential", "headers"),
    [
        (HEADER, {"Authorization": "k-1"}),
        (QUERY, {"api-key": "k-1"}),
        (BEARER, {"X-Key": "k-1"}),
        (TLS, {"Authorization": "k-1"}),
    ],
)
async def test_an_unrelated_header_satisfies_no_credential(serve, credential, headers):
    assert "and none are configured" in await refusal_of(serve, [(credential,)], headers=headers)


async def test_a_certificate_is_wanted_from_a_proxy(serve):
    told = await refusal_of(serve, [(TLS,)])
    assert "name a proxy that sends one as sources.pets.base_url" in told
    assert "require_credentials: false" in told
    told = await refusal_of(serve, [(TLS,), (BEARER,)])  # the other way is easier
    assert "Set sources.pets.credentials.bearer (token, or client_id" in told


async def test_a_source_may_be_called_without_required_credentials_by_setting(serve):
    seen = await sent_request(serve, [(BEARER,), (TLS,)], require_credentials=False)
    assert seen.all("authorization") == []


async def test_credentials_never_go_where_only_a_description_says(serve):
    told = await refusal_of(serve, [(HEADER,)], trusted=False, credentials={"inHeader": KEY})
    assert told == (
        "pets has credentials, but only its description says where it is: set sources.pets.base_url"
    )


async def test_credentials_do_not_follow_an_operation_to_a_server_of_its_own(serve):
    ours, theirs = Recorder(), Recorder()
    binding = OpenAPIBinding("GET", "/x", security=((HEADER,),), server=await serve(theirs))
    elsewhere = replace(tool(), binding=binding)
    of = source(await serve(ours))
    async with open_client(SourceSettings(credentials={"inHeader": KEY})) as client:
        result = await OpenAPIUpstream(client).call(elsewhere, of, {}, CONTEXT)
    assert not result.is_error
    assert theirs.seen == []
    assert ours.seen[0].all("x-key") == ["k-1&;="]


@pytest.mark.parametrize("name", ["inheader", "INHEADER"])
async def test_a_variable_of_the_environment_need_not_spell_a_name_exactly(serve, name):
    assert (await sent_request(serve, [(HEADER,)], credentials={name: KEY})).all("x-key") == [
        "k-1&;="
    ]


async def test_an_exact_name_precedes_a_similar_name(serve):
    credentials = {"INHEADER": SchemeSettings(value="other"), "inHeader": KEY}
    assert (await sent_request(serve, [(HEADER,)], credentials=credentials)).all("x-key") == [
        "k-1&;="
    ]


async def test_a_bearer_token_described_as_api_key_is_asked_for_as_token():
    text = missing_credentials("s", ((OLD,),))
    assert "sources.s.credentials.old (token; or value, the whole Authorization header)" in text


@pytest.mark.parametrize("entry", [SchemeSettings(token="t-1"), SchemeSettings(value="t-1")])
@pytest.mark.parametrize(
    ("place", "name", "expected"),
    [
        ("query", "token", "token=t-1"),
        ("header", "X-Token", "t-1"),
        ("cookie", "Cookie", "Cookie=t-1"),
    ],
)
async def test_a_secret_parameter_gets_the_bare_token(serve, entry, place, name, expected):
    """A token that fills a parameter has no "Bearer" before it (mending 25)."""
    bare = Credential("oauth", "apiKey", place, name, bare=True)
    seen = await sent_request(serve, [(OAUTH, bare)], credentials={"oauth": entry})
    queried = [seen.target.partition("?")[2]]
    assert (queried if place == "query" else seen.all(name.lower())) == [expected]


async def test_a_secret_parameter_is_sent_to_addresses_of_the_operator_alone(serve):
    """Whoever writes a description cannot have a secret sent to another origin (mending 25)."""
    bare = Credential("oauth", "apiKey", "query", "token", bare=True)
    settings = {"credentials": {"oauth": SchemeSettings(token="t-1")}}
    result, seen = await call_pets(serve, [(bare,)], trusted=False, **settings)
    assert result.is_error
    assert "set sources.pets.base_url" in result.content[0].text
    assert seen == []


async def test_a_secret_parameter_without_a_credential_names_the_setting(serve):
    """A call without the credential is refused with the setting that it needs (mending 25)."""
    bare = Credential("oauth", "apiKey", "query", "token", bare=True)
    result, seen = await call_pets(serve, [(bare,)])
    assert "sources.pets.credentials.oauth (value, or token)" in result.content[0].text
    assert seen == []
