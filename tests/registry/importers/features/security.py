"""Security schemes (OpenAPI 3.2, sections 4.27 to 4.30; Swagger 2.0, `securityDefinitions`)."""

from config.sources import SchemeSettings
from tests.registry.importers.features.case import Call, Case

SCHEMES = """
    appKey: {type: apiKey, in: header, name: X-Key}
    queryKey: {type: apiKey, in: query, name: key}
    cookieKey: {type: apiKey, in: cookie, name: sid}
    login: {type: http, scheme: basic}
    bearer: {type: http, scheme: bearer}
    oauth: {type: oauth2, flows: {clientCredentials: {tokenUrl: 'https://id.example/t', scopes:
      {read: Read, write: Write}}}}
    oidc: {type: openIdConnect, openIdConnectUrl: 'https://id.example/c'}
"""
SCHEMES_2 = """
  appKey: {type: apiKey, in: header, name: X-Key}
  queryKey: {type: apiKey, in: query, name: key}
  login: {type: basic}
  oauth: {type: oauth2, flow: application, tokenUrl: 'https://id.example/t', scopes: {read: Read}}
"""
KEY = SchemeSettings(value="k&1")
TOKEN = SchemeSettings(token="t-1")
LOGIN = SchemeSettings(username="me", password="p:1")
BEARER = {"authorization": "Bearer t-1"}
BASIC = {"authorization": "Basic bWU6cDox"}


def guarded_paths(security: str, parameters: str = "[]", everywhere: str = "") -> str:
    """`paths` with one operation that has this `security`; "" leaves it unsaid."""
    stated = f"      security: {security}\n" if security else ""
    return f"""
{everywhere}
paths:
  /x:
    get:
      operationId: THIS
      parameters: {parameters}
{stated}"""


def three(*arguments: str) -> str:
    return guarded_paths(*arguments) + f"components:\n  securitySchemes:{SCHEMES}"


def two(*arguments: str) -> str:
    return guarded_paths(*arguments) + f"securityDefinitions:{SCHEMES_2}"


def scheme(name: str, row: str, entry: SchemeSettings, call: Call, in_2: bool = True) -> Case:
    """One scheme alone."""
    security = f"[{{{name}: []}}]"
    settings = {"credentials": {name: entry}}
    calls = [call]
    return Case(
        f"security_{name.lower()}",
        row,
        calls,
        three=three(security),
        two=two(security) if in_2 else "",
        settings=settings,
    )


REFUSED = "was not called: it requires the credentials"
CASES = [
    scheme("appKey", "apiKey", KEY, Call({}, "GET /x", {"x-key": "k&1"})),
    scheme("queryKey", "apiKey", KEY, Call({}, "GET /x?key=k%261")),
    scheme("cookieKey", "apiKey", KEY, Call({}, "GET /x", {"cookie": "sid=k&1"}), in_2=False),
    scheme("login", "http basic and bearer", LOGIN, Call({}, "GET /x", BASIC)),
    scheme("bearer", "http basic and bearer", TOKEN, Call({}, "GET /x", BEARER), in_2=False),
    scheme("oauth", "oauth2 and openIdConnect", TOKEN, Call({}, "GET /x", BEARER)),
    scheme("oidc", "oauth2 and openIdConnect", TOKEN, Call({}, "GET /x", BEARER), in_2=False),
    Case(
        "security_never_offered",
        "credentials are no arguments",
        [Call({"q": "a"}, "GET /x?q=a", {"x-key": "k&1"}), Call({"X-Key": "b"}, None, error="Key")],
        three=three(
            "[{appKey: []}]",
            "[{name: X-Key, in: header, required: true, schema: {type: string}}, "
            "{name: key, in: query, schema: {type: string}}, "
            "{name: Authorization, in: header, schema: {type: string}}, "
            "{name: q, in: query, schema: {type: string}}]",
        ),
        two=two(
            "[{appKey: []}]",
            "[{name: X-Key, in: header, required: true, type: string}, "
            "{name: key, in: query, type: string}, {name: q, in: query, type: string}]",
        ),
        settings={"credentials": {"appKey": KEY}},
        offers=frozenset({"q"}),
    ),
    Case(
        "security_all_of",
        "AND and OR",
        [Call({}, "GET /x?key=k%261", {"x-key": "k&1", "authorization": None})],
        three=three("[{login: []}, {appKey: [], queryKey: []}]"),
        two=two("[{login: []}, {appKey: [], queryKey: []}]"),
        settings={"credentials": {"appKey": KEY, "queryKey": KEY}},
    ),
    Case(
        "security_any_of",
        "AND and OR",
        [Call({}, "GET /x", {"x-key": None, **BASIC})],
        three=three("[{appKey: [], queryKey: []}, {login: []}]"),
        two=two("[{appKey: [], queryKey: []}, {login: []}]"),
        settings={"credentials": {"appKey": KEY, "login": LOGIN}},
    ),
    Case(
        "security_missing",
        "missing credentials refuse the call",
        [Call({}, None, error=f"{REFUSED} appKey, or oauth (scopes read)")],
        three=three("[{appKey: []}, {oauth: [read]}]"),
        two=two("[{appKey: []}, {oauth: [read]}]"),
    ),
    Case(
        "security_of_the_document",
        "security of the document, none and optional",
        [Call({}, None, error=f"{REFUSED} appKey")],
        three=three("", "[]", "security: [{appKey: []}]"),
        two=two("", "[]", "security: [{appKey: []}]"),
    ),
    Case(
        "security_none",
        "security of the document, none and optional",
        [Call({}, "GET /x", {"x-key": None})],
        three=three("[]", "[]", "security: [{appKey: []}]"),
        two=two("[]", "[]", "security: [{appKey: []}]"),
        settings={"credentials": {"appKey": KEY}},
    ),
    Case(
        "security_optional",
        "security of the document, none and optional",
        [Call({}, "GET /x", {"x-key": None})],
        three=three("[{appKey: []}, {}]"),
        two=two("[{appKey: []}, {}]"),
    ),
    Case(
        "security_by_header",
        "AND and OR",
        [Call({}, "GET /x", {"x-key": "h"})],
        three=three("[{appKey: []}]"),
        two=two("[{appKey: []}]"),
        settings={"headers": {"X-Key": "h"}},
    ),
]
