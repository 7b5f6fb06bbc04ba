"""Security requirements to the credentials that a call needs."""

import pytest

from config.sources import SchemeSettings, SourceSettings, TokenExchange
from registry.documents.containers import Bundle
from registry.documents.yaml_and_json import parse_yaml
from registry.importers.openapi import read
from registry.importers.openapi.import_options import OpenApiOptions
from registry.importers.openapi.x_toolgate import overlay
from registry.sources.import_specs import configured_import
from registry.sources.source_reader import reread
from schemas.binding import Credential
from schemas.jsonrpc import encode
from schemas.source import CredentialName, DescribedLogin
from tests.registry.importers.describe import (
    describe,
    document,
    import_description,
    json_body,
    only,
)

SCHEMES = {
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "basic": {"type": "http", "scheme": "Basic"},
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "digest": {"type": "http", "scheme": "Digest"},
    "oauth": {"type": "oauth2", "flows": {"implicit": {"scopes": {}}}},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example/x"},
    "tls": {"type": "mutualTLS"},
    "pointed": {"$ref": "#/components/securitySchemes/header"},
    "nowhere": {"$ref": "#/components/securitySchemes/gone"},
    "strange": {"type": "telepathy"},
    "keyless": {"type": "apiKey", "in": "body", "name": "key"},
    "illegal": {"type": "apiKey", "in": "header", "name": "X Key"},
}
KEY = Credential("header", "apiKey", "header", "X-Key")
BASIC = Credential("basic", "basic")


def one(security=None, version="3.1.0", endpoint="GET /x", everywhere=None, **operation):
    stated = {} if security is None else {"security": security}
    rest = {} if everywhere is None else {"security": everywhere}
    return only(
        describe(
            {**operation, **stated},
            endpoint,
            version=version,
            components={"securitySchemes": SCHEMES},
            **rest,
        )
    )


def wanted_security(*arguments, **named):
    found = one(*arguments, **named)
    assert found.outcome.status == "imported", found.reason
    return found.draft.binding.security


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0", "3.2.0"])
@pytest.mark.parametrize(
    ("scheme", "credential"),
    [
        ("header", KEY),
        ("query", Credential("query", "apiKey", "query", "api key")),
        ("cookie", Credential("cookie", "apiKey", "cookie", "sid")),
        ("basic", BASIC),
        ("bearer", Credential("bearer", "bearer")),
        ("digest", Credential("digest", "http")),
        ("oauth", Credential("oauth", "oauth2")),
        ("oidc", Credential("oidc", "openIdConnect")),
        ("tls", Credential("tls", "mutualTLS")),
        ("pointed", Credential("pointed", "apiKey", "header", "X-Key")),
    ],
)
def test_each_kind_of_scheme_says_where_its_credential_goes(scheme, credential, version):
    assert wanted_security([{scheme: []}], version) == ((credential,),)


def test_alternatives_and_combinations_of_schemes_are_distinguished():
    assert wanted_security([{"header": [], "basic": []}, {"basic": []}]) == ((KEY, BASIC), (BASIC,))


def test_security_of_the_document_applies_to_operations_without_security():
    everywhere = [{"header": []}]
    assert wanted_security(everywhere=everywhere) == ((KEY,),)
    assert wanted_security([{"basic": []}], everywhere=everywhere) == ((BASIC,),)
    assert wanted_security([], everywhere=everywhere) == ()
    assert wanted_security([{}], everywhere=everywhere) == ((),)
    assert wanted_security([{"basic": []}, {}], everywhere=everywhere) == ((BASIC,), ())
    assert wanted_security() == ()


def test_scopes_come_from_the_operation():
    oauth = Credential("oauth", "oauth2", scopes=("read", "write"))
    bearer = Credential("bearer", "bearer", scopes=("admin",))  # 3.1: roles
    found = wanted_security([{"oauth": ["read", "write", "read"]}, {"bearer": ["admin"]}])
    assert found == ((oauth,), (bearer,))


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        ("unheard", "security scheme 'unheard' is not defined"),
        ("nowhere", "points at nothing"),
        ("strange", "security scheme 'strange' has the type 'telepathy'"),
        ("keyless", "security scheme 'keyless' does not name the parameter of its key"),
        ("illegal", "security scheme 'illegal' does not name the parameter of its key"),
    ],
)
def test_a_scheme_that_cannot_be_understood_is_wanted_all_the_same(scheme, reason):
    found = one([{scheme: []}])
    assert found.outcome.status == "degraded"
    assert reason in found.reason
    assert found.draft.binding.security == ((Credential(scheme, "http"),),)


def test_a_scheme_can_be_named_by_its_uri():
    found = wanted_security([{"#/components/securitySchemes/basic": []}], "3.2.0")
    assert found == ((BASIC,),)


@pytest.mark.parametrize(
    ("stated", "wanted", "reason"),
    [
        ("basic", BASIC, "`security` is not a list"),
        ({"basic": []}, BASIC, "`security` is not a list"),
        (["basic"], BASIC, "a member of `security` is not an object"),
        ([7], Credential("7", "http"), "security scheme '7' is not defined"),
        (7, Credential("7", "http"), "`security` is not a list"),
    ],
)
def test_security_that_is_written_wrongly_does_not_pass_for_none(stated, wanted, reason):
    found = one(stated)
    assert reason in found.reason
    assert found.draft.binding.security == ((wanted,),)


def test_thousands_of_alternatives_are_not_kept():
    found = one([{"oauth": [str(number)]} for number in range(5000)])
    assert "5000 alternatives" in found.reason
    assert len(found.draft.binding.security) == 32


def test_hundreds_of_scopes_are_counted_and_not_kept():
    found = one([{"oauth": [str(number) for number in range(500)]}])
    assert "of 500 scopes for 'oauth', 100 are read" in found.reason
    [[credential]] = found.draft.binding.security
    assert len(credential.scopes) == 100


PARAMETER = {"name": "x-key", "in": "header", "schema": {"type": "string"}}


@pytest.mark.parametrize("security", [[{"header": []}], [{"basic": []}], [], None])
def test_no_operation_offers_parameters_of_security_schemes(security):
    found = one(security, parameters=[{**PARAMETER, "required": True}])
    assert found.properties == {}
    assert found.draft.binding.parameters == ()


def test_a_key_that_only_stands_among_the_parameters_is_wanted_as_a_scheme_would():
    required = [{**PARAMETER, "required": True}]
    assert wanted_security(parameters=required) == ((KEY,),)
    assert wanted_security([{"basic": []}], parameters=required) == ((BASIC, KEY),)
    assert wanted_security(parameters=[PARAMETER]) == ((KEY,), ())
    assert wanted_security([{"basic": []}], parameters=[PARAMETER]) == ((BASIC,),)
    assert wanted_security([{"header": []}], parameters=required) == ((KEY,),)


def test_one_bad_scheme_leaves_other_operations_alone():
    paths = {
        "/a": {"get": {"security": [{"unheard": []}]}},
        "/b": {"get": {"security": [{"basic": []}]}},
    }
    schemes = {"securitySchemes": SCHEMES}
    found = import_description(document(paths, "3.1.0", components=schemes))
    assert [outcome.status for outcome in found.outcomes] == ["degraded", "imported"]


@pytest.mark.parametrize(
    ("name", "place", "description", "is_secret"),
    [
        ("X-Auth-Token", "header", "", True),
        ("apiKey", "query", "", True),
        ("app_key", "query", "", True),
        ("token", "query", "The access token of your workspace.", True),
        ("token", "query", "Where the next page begins.", False),
        ("key", "query", "Which member to sort by.", False),
        ("pageToken", "query", "An access token is not needed.", False),
    ],
)
def test_arguments_that_look_like_credentials_are_told(name, place, description, is_secret):
    """Credentials described as ordinary parameters are named, with the line that hides them
    (mending 25)."""
    parameter = {
        "name": name,
        "in": place,
        "description": description,
        "schema": {"type": "string"},
    }
    notes = import_description(describe({"parameters": [parameter]}, "GET /rooms")).notes
    assert len(notes) == is_secret
    if is_secret:
        assert f"1 tool asks for {name!r} ({place}), which looks like a credential" in notes[0]


def test_the_suggested_overlay_hides_the_credential():
    """The overlay that a note names sends the credential and ends the note (mending 25)."""
    secret = {"type": "object", "required": ["client_secret"], "properties": {"client_secret": {}}}
    description = describe(json_body(secret, required=True))
    [note] = import_description(description).notes
    line = "defaults: {arguments: {client_secret: {hide: true, value: ...}}}"
    assert line in note
    marks = parse_yaml(line.replace("...", "s-1"), "overlay.yaml")
    result = read(description, OpenApiOptions(overlay=overlay(marks, "overlay.yaml")))
    assert result.notes == ()
    assert result.drafts[0].binding.body.fixed == {"client_secret": "s-1"}


def import_with(credentials, *parameters, security=None, marks=b"{}"):
    """The arguments of an operation, its security, and the notes of its import."""
    operation = {"parameters": list(parameters), "security": security or []}
    description = describe(operation, "GET /rooms", components={"securitySchemes": SCHEMES})
    names = tuple(CredentialName(kind, name) for kind, name in credentials)
    options = OpenApiOptions(
        credentials=names, overlay=overlay(parse_yaml(marks, "marks.yaml"), "marks.yaml")
    )
    result = read(description, options)
    [draft] = result.drafts
    return set(draft.input_schema["properties"]), draft.binding.security, result.notes


def secret(name, place="query", **more):
    return {"name": name, "in": place, "schema": {"type": "string"}, **more}


TOKEN = secret("token", description="Your access token.", required=True)


def test_the_credential_of_a_source_fills_a_secret_parameter():
    """A secret described as an ordinary parameter is no argument where the source has a credential
    for it (mending 25)."""
    bare = Credential("oauth", "apiKey", "query", "token", bare=True)
    oauth = Credential("oauth", "oauth2", scopes=("read",))
    arguments, security, notes = import_with(
        [("token", "oauth")], TOKEN, secret("q"), security=[{"oauth": ["read"]}]
    )
    assert arguments == {"q"}
    assert security == ((oauth, bare),)
    told = "'token' (query) of 1 tool is filled by the credential 'oauth' of the source"
    assert [told in note for note in notes] == [True]


@pytest.mark.parametrize(
    ("credentials", "parameter", "scheme"),
    [
        ([("value", "api_key")], secret("apiKey"), "api_key"),
        ([("value", "a"), ("value", "X-Api-Key")], secret("X-API-KEY", "header"), "X-Api-Key"),
        ([("header", "X-Api-Key")], secret("x-api-key", "header"), "X-Api-Key"),
        ([("value", "main"), ("token", "oauth")], secret("appKey", "cookie"), "main"),
        ([("value", "client-secret")], secret("client_secret"), "client-secret"),
        # an exact name before one that is spelt alike
        ([("value", "apiKey"), ("value", "api_key")], secret("api_key"), "api_key"),
        ([("value", "api_key_2"), ("value", "api_key")], secret("api_key"), "api_key"),
        # which of two, or of another kind: unknown
        ([("value", "apiKey1"), ("value", "apiKey2")], secret("apiKey"), None),
        ([("value", "a"), ("value", "b")], secret("apiKey"), None),
        ([("value", "main")], TOKEN, None),
        ([("token", "oauth")], secret("client_secret"), None),
        ([("header", "X-Api-Key")], secret("apiKey"), None),
        ([("token", "oauth")], secret("token", description="The next page."), None),
        ([("token", "oauth")], secret("name"), None),
        ([], TOKEN, None),
    ],
)
def test_a_secret_is_filled_by_name_or_by_its_only_kind(credentials, parameter, scheme):
    """Parameters without a credential of their own stay arguments, as they are (mending 25)."""
    arguments, security, _ = import_with(credentials, parameter)
    name = parameter["name"]
    if scheme is None:
        assert (arguments, security) == ({name}, ())
    else:
        sent = Credential(scheme, "apiKey", parameter["in"], name, bare=True)
        assert (arguments, security) == (set(), ((sent,),))


def test_marks_of_the_owner_keep_a_secret_an_argument():
    """An overlay that names a secret parameter decides about it (mending 25)."""
    marks = "defaults: {arguments: {token: {description: Of the person.}}}"
    arguments, security, _ = import_with([("token", "oauth")], TOKEN, marks=marks.encode())
    assert (arguments, security) == ({"token"}, ())


def test_every_alternative_includes_the_filling_credential():
    """The parameter is sent whichever of the alternatives a call satisfies (mending 25)."""
    bare = Credential("oauth", "apiKey", "query", "token", bare=True)
    _, security, _ = import_with([("token", "oauth")], TOKEN, security=[{"basic": []}, {}])
    assert security == ((BASIC, bare), (bare,))


ENTRIES = {
    "token": SchemeSettings(token="t-1"),
    "key": SchemeSettings(value="k-1"),
    "whole": SchemeSettings(value="Bearer t-1"),
    "login": SchemeSettings(username="me", password="p-1"),
    "fetched": SchemeSettings(client_id="c", client_secret="s", token_url="https://x.example"),
    "absent": SchemeSettings(token="", value=""),
}
EXCHANGE = TokenExchange("https://id.example/token", "gateway")


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, [("token", "token"), ("value", "key"), ("header", "X-Key")]),
        ({"forward_token": True}, []),  # each caller has a token
        ({"exchange": EXCHANGE}, []),
        ({"require_credentials": False}, []),  # a call may go without
    ],
)
def test_an_import_has_the_names_of_bare_credentials(more, names):
    """The options of an import have names of credentials, never what they hold (mending 25)."""
    settings = SourceSettings(
        openapi="/x.json", credentials=ENTRIES, headers={"X-Key": "h-1", "X-None": ""}, **more
    )
    spec = configured_import("chat", settings)
    credentials = spec.options.credentials or ()
    assert [(known.kind, known.name) for known in credentials] == names
    stored = encode(spec.options)
    assert not any(hidden in stored for hidden in (b"t-1", b"k-1", b"h-1", b"p-1"))
    document = encode(describe({"parameters": [TOKEN]}, "GET /rooms"))
    bundle = Bundle("x.json", {"x.json": document}).pack("/x.json")
    [draft] = reread(spec, bundle).read().drafts
    assert bool(draft.input_schema["properties"]) is not bool(names)


def test_logins_are_read_from_flows_that_people_take() -> None:
    """Where people log in: by absolute URLs of a code flow, or an OpenID Connect document."""
    urls = {"authorizationUrl": "https://id.example/authorize", "tokenUrl": "https://id.example/t"}
    code = {"authorizationCode": {**urls, "scopes": {"read": "", "write": ""}}}
    schemes = {
        "code": {"type": "oauth2", "flows": code},
        "pointed": {"$ref": "#/components/securitySchemes/code"},
        "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example/x"},
        "implicit": {"type": "oauth2", "flows": {"implicit": {**urls, "scopes": {}}}},
        "relative": {"type": "oauth2", "flows": {"authorizationCode": {**urls, "tokenUrl": "/t"}}},
        "broken": {"type": "openIdConnect", "openIdConnectUrl": "https://[x"},
        "script": {"type": "openIdConnect", "openIdConnectUrl": "javascript:alert(1)"},
        "wrong": {"type": "oauth2", "flows": []},
        "nowhere": {"$ref": "#/components/securitySchemes/gone"},
    }
    read_logins = read(describe({}, components={"securitySchemes": schemes})).logins
    login = DescribedLogin(*urls.values(), scopes=("read", "write"))
    oidc = DescribedLogin(document_url="https://id.example/x")
    assert read_logins == {"code": login, "pointed": login, "oidc": oidc}
    swagger = {"type": "oauth2", "flow": "accessCode", **urls, "scopes": {"read": "", "write": ""}}
    old = {"swagger": "2.0", **describe({}), "securityDefinitions": {"code": swagger}}
    del old["openapi"]
    assert read(old).logins == {"code": login}
