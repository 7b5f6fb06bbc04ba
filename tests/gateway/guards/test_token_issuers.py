"""Several issuers: whose token it is, of which tenant, with which roles, for whom."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.access import DEVELOPMENT_ISSUER, Auth, IssuerSettings
from config.load import load
from gateway.context import Identity
from gateway.guards.authentication import Authenticator
from schemas.errors import ToolgateError
from schemas.hybrid import StatusFault
from tests.gateway.asgi import http
from tests.gateway.guards.signing import NOW, Signer, by_key, signer

pytestmark = pytest.mark.anyio

TENANT = "00000000-0000-0000-0000-000000000001"
ACME, UMBRELLA = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000001"
OURS, THEIRS = signer("ES256", "ours", "1"), signer("ES256", "theirs", "1")  # of the same `kid`
A, B = "https://a.example", "https://b.example"
SECRET = "0123456789abcdef0123456789abcdef"
INVALID = "ERR10000"

Make = Callable[..., Authenticator]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes an authenticator that trusts OURS as A; `partner` adds THEIRS as B."""

    def make(partner: dict[str, Any] | None = None, **changes: Any) -> Authenticator:
        public_url, bound = changes.pop("public_url", ""), changes.pop("bound", None)
        auth = by_key(tmp_path, OURS.pem, issuer=A)
        if partner is not None:
            theirs = tmp_path / "partner.pem"
            theirs.write_bytes(THEIRS.pem)
            auth = replace(
                auth, issuers={"partner": IssuerSettings(B, key_file=str(theirs), **partner)}
            )
        auth = replace(auth, **changes)
        return Authenticator(auth, TENANT, lambda: NOW, public_url=public_url, bound=bound)

    return make


async def identify_token(
    authenticator: Authenticator, token: str, *scope_token: str, path: str = "/mcp"
) -> Identity:
    headers = [("Authorization", f"Bearer {token}")]
    headers += [("X-Scope-Token", one) for one in scope_token]
    return await authenticator.identify(http(path=path, headers=headers))


async def code(authenticator: Authenticator, token: str, path: str = "/mcp") -> str | None:
    identity = await identify_token(authenticator, token, path=path)
    if identity.refusal is None:
        return None
    assert isinstance(identity.refusal, StatusFault)
    return identity.refusal.as_status.code


async def test_no_key_of_one_issuer_is_good_for_the_tokens_of_another(make: Make) -> None:
    both = make({})
    assert await code(both, OURS.token(iss=A)) is None
    assert await code(both, THEIRS.token(iss=B)) is None
    for token in (
        OURS.token(iss=B),
        THEIRS.token(iss=A),
        OURS.token(),
        THEIRS.token(iss="https://c.example"),
        OURS.token(iss=[A]),
        OURS.token(iss={"https://a.example": 1}),
        OURS.token(iss=""),
        "a.b.c",
        "a.!.c",
        "a." + "W1tb" * 1000 + ".c",
        "..",
        "x",
    ):
        assert await code(both, token) == INVALID, token


async def test_the_same_subject_of_another_issuer_is_somebody_else(make: Make) -> None:
    both = make({})
    ada, other = OURS.token(iss=A), THEIRS.token(iss=B)
    assert (await identify_token(both, ada)).principal.id == "ada"
    assert (await identify_token(both, other)).principal.id == "partner:ada"
    for name in ("partner:ada", "key:deploy"):  # nobody can call themselves by another's prefix
        assert await code(both, OURS.token(iss=A, sub=name)) == INVALID
    for name in ("partner", "user:partner:ada", "key"):
        assert (await identify_token(both, OURS.token(iss=A, sub=name))).principal.id == name
    odd = await identify_token(both, THEIRS.token(iss=B, sub="key:deploy"))
    assert odd.principal.id == "partner:key:deploy"
    assert await code(both, THEIRS.token(iss=B, sub="a" * 248)) == INVALID  # 256 with the prefix


async def test_settings_left_out_by_an_issuer_are_inherited(make: Make) -> None:
    changes = {"audience": "toolgate", "required_claims": ("team",), "roles_claim": "groups"}
    both = make({}, **changes)
    good = {"iss": B, "aud": "toolgate", "team": "blue", "groups": "a b"}
    assert (await identify_token(both, THEIRS.token(**good))).principal.roles == {"a", "b"}
    assert await code(both, THEIRS.token(**good | {"aud": "other"})) == INVALID
    assert await code(both, THEIRS.token(**good | {"team": None})) == INVALID
    own = {"audience": "theirs", "required_claims": ("x.y",), "roles_claim": "realm.roles"}
    both = make(own, **changes)
    good = {"iss": B, "aud": "theirs", "x": {"y": 1}, "realm": {"roles": ["c", 5]}}
    assert (await identify_token(both, THEIRS.token(**good))).principal.roles == {"c"}
    assert await code(both, THEIRS.token(**good | {"aud": "toolgate"})) == INVALID
    assert await code(both, THEIRS.token(**good | {"x": {}})) == INVALID
    with pytest.raises(ToolgateError, match=r"auth\.issuers\.partner\.key_file: .* ES256"):
        make({"algorithms": ("RS256",)})


@pytest.mark.parametrize(
    ("claims", "roles"),
    [
        ({}, set()),
        ({"roles": ["a", "b"]}, {"a", "b"}),
        ({"roles": "a b"}, {"a", "b"}),
        ({"roles": 5}, set()),
        ({"roles": {"a": 1}}, set()),
        ({"roles": [["a"], None, "b"]}, {"b"}),
    ],
)
async def test_roles_in_every_form(make: Make, claims: dict[str, Any], roles: set[str]) -> None:
    assert (await identify_token(make(), OURS.token(iss=A, **claims))).principal.roles == roles


async def test_a_claim_whose_name_is_the_whole_path_goes_first(make: Make) -> None:
    claims = {"https://x.example/roles": ["a"], "a.b": ["b"], "a": {"b": ["c"]}}
    token = OURS.token(iss=A, **claims)
    for path, found in [("https://x.example/roles", "a"), ("a.b", "b")]:
        assert (await identify_token(make(roles_claim=path), token)).principal.roles == {found}


@pytest.mark.parametrize(
    ("tenants", "org", "expected"),
    [
        ({}, ACME, ACME),
        ({}, ACME.upper(), ACME),
        ({}, "acme", None),
        ({}, None, None),
        ({}, 5, None),
        ({}, [ACME], None),
        ({}, "", None),
        ({}, ACME + "\n", None),
        ({"acme": ACME}, "acme", ACME),
        ({"acme": ACME}, "Acme", None),
        ({"acme": ACME}, ACME, None),
    ],
)
async def test_the_tenant_comes_from_the_token(
    make: Make, tenants: dict[str, str], org: Any, expected: str | None
) -> None:
    authenticator = make(tenant_claim="org", tenants=tenants)
    identity = await identify_token(authenticator, OURS.token(iss=A, org=org))
    assert (identity.principal.tenant if identity.verified else None) == expected


async def test_an_issuer_has_tenants_of_its_own(make: Make) -> None:
    token = THEIRS.token(iss=B, org=ACME, group="u")
    for partner, expected in [
        ({}, TENANT),  # the claim is that of others: an issuer need not be believed about tenants
        ({"tenant": UMBRELLA}, UMBRELLA),
        ({"tenant_claim": "group", "tenants": {"u": UMBRELLA}}, UMBRELLA),
    ]:
        authenticator = make(partner, tenant_claim="org")
        assert (await identify_token(authenticator, token)).principal.tenant == expected


async def test_a_scope_token_of_another_tenant_opens_nothing(make: Make) -> None:
    authenticator = make(tenant_claim="org")
    ours, theirs = (OURS.token(iss=A, org=org, scope="x") for org in (ACME, UMBRELLA))
    assert (await identify_token(authenticator, ours, ours)).scope_token == {"x"}
    found = (await identify_token(authenticator, ours, theirs)).scope_token
    assert isinstance(found, StatusFault)
    assert found.as_status.code == "ERR10003"


@pytest.mark.parametrize(
    ("audience", "expected"),
    [
        ("https://gw.example/api", None),
        ("https://gw.example/api/", None),
        (["x", "https://gw.example/api"], None),
        ("toolgate", None),
        ("https://gw.example", INVALID),
        ("https://gw.example/api/mcp", INVALID),
        ("https://GW.example/api", INVALID),
        (None, INVALID),
        ([], INVALID),
        ([["https://gw.example/api"]], INVALID),
        ({"https://gw.example/api": 1}, INVALID),
    ],
)
async def test_a_token_is_for_this_server(make: Make, audience: Any, expected: str | None) -> None:
    bound = {"bind_audience": "server", "public_url": "https://gw.example/api/"}
    authenticator = make(audience="toolgate", **bound)
    assert await code(authenticator, OURS.token(iss=A, aud=audience)) == expected
    theirs = make({"audience": "toolgate"}, **bound)
    assert await code(theirs, THEIRS.token(iss=B, aud=audience)) == expected


async def test_a_token_for_one_endpoint_opens_no_other(make: Make) -> None:
    def bound_audiences(path: str) -> frozenset[str]:
        return frozenset({f"https://gw.example{path}"})

    authenticator = make(bind_audience="endpoint", bound=bound_audiences)
    token = OURS.token(iss=A, aud="https://gw.example/mcp/pets/")
    for _ in range(2):  # a token that is remembered is looked at again
        assert await code(authenticator, token, "/mcp/pets") is None
        assert await code(authenticator, token, "/mcp") == INVALID
    both = OURS.token(iss=A, aud=["https://gw.example/mcp", "https://gw.example/mcp/pets"])
    assert await code(authenticator, both, "/mcp") is None
    headers = [("Authorization", f"Bearer {both}"), ("X-Scope-Token", token)]
    found = (await authenticator.identify(http(path="/mcp", headers=headers))).scope_token
    assert isinstance(found, StatusFault)


def development_auth(tmp_path: Path, **changes: Any) -> Auth:
    auth = by_key(tmp_path, OURS.pem, issuer=A, development_secret=SECRET)
    return replace(auth, **changes)


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
async def test_the_secret_of_development_signs_for_nobody_else(tmp_path: Path) -> None:
    authenticator = Authenticator(development_auth(tmp_path), TENANT, lambda: NOW)
    secret = Signer("HS256", SECRET)
    good = await identify_token(authenticator, secret.token(iss=DEVELOPMENT_ISSUER))
    assert good.principal.id == "ada"
    assert await code(authenticator, OURS.token(iss=A)) is None
    for token in (
        secret.token(iss=A),
        secret.token(),
        OURS.token(iss=DEVELOPMENT_ISSUER),
        Signer("HS512", SECRET).token(iss=DEVELOPMENT_ISSUER),
        Signer("HS256", "f" * 32).token(iss=DEVELOPMENT_ISSUER),
        Signer("none", None).token(iss=DEVELOPMENT_ISSUER),
    ):
        assert await code(authenticator, token) == INVALID, token
    off = Authenticator(development_auth(tmp_path, development_secret=""), TENANT, lambda: NOW)
    assert await code(off, secret.token(iss=DEVELOPMENT_ISSUER)) == INVALID
    alone = replace(load(None, {}).auth, mode="jwt", development_secret=SECRET)
    only = Authenticator(alone, TENANT, lambda: NOW)
    assert await code(only, secret.token(iss=DEVELOPMENT_ISSUER)) is None
    assert await code(only, secret.token(iss=A)) == INVALID


async def test_files_are_read_again_all_or_none(make: Make, tmp_path: Path) -> None:
    authenticator, before = make({}), OURS.token(iss=A)
    stream = (await identify_token(authenticator, before)).still
    assert stream is not None
    assert stream()
    new = signer("ES256", "new")
    (tmp_path / "key.pem").write_bytes(new.pem)
    (tmp_path / "partner.pem").write_text("nothing")
    with pytest.raises(ToolgateError, match=r"auth\.issuers\.partner\.key_file: .*partner\.pem"):
        authenticator.reload()
    assert await code(authenticator, before) is None
    (tmp_path / "partner.pem").write_bytes(THEIRS.pem)
    authenticator.reload()
    assert await code(authenticator, before) == INVALID  # although it was remembered
    assert not stream()
    assert await code(authenticator, new.token(iss=A)) is None
    theirs = THEIRS.token(iss=B)
    kept = (await identify_token(authenticator, theirs)).still
    assert kept is not None
    authenticator.reload()
    assert kept()
