"""Tokens: who is known by them, who is refused with which Status, and for how long."""

import base64
import hmac
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jwt.api_jws import PyJWS
from starlette.types import Scope

from config.load import load
from gateway.context import Identity
from gateway.guards.authentication import Authenticator
from schemas.hybrid import StatusFault
from tests.gateway.asgi import http
from tests.gateway.guards.signing import NOW, Signer, by_jwks, by_key, signer

pytestmark = pytest.mark.anyio

RS, ES, ED = signer("RS256"), signer("ES256"), signer("EdDSA")

TENANT = "00000000-0000-0000-0000-000000000001"


class Clock:
    """A time that tests can change."""

    def __init__(self) -> None:
        self.now: float = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


Make = Callable[..., Authenticator]


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Make:
    """Makes an Authenticator of one key, or of a JWKS."""

    def make(key: Signer | list[Signer] = ES, **changes: Any) -> Authenticator:
        if isinstance(key, Signer):
            auth = by_key(tmp_path, key.pem, **changes)
        else:
            auth = by_jwks(tmp_path, [one.jwk() for one in key], **changes)
        return Authenticator(auth, TENANT, clock)

    return make


def request_with_token(token: str, *scope_tokens: str) -> Scope:
    more = [("X-Scope-Token", one) for one in scope_tokens]
    return http(headers=[("Authorization", f"Bearer {token}"), *more])


def code(identity: Identity) -> str | None:
    """The Status that refuses; checks that whoever is refused is nobody."""
    if identity.refusal is None:
        assert identity.verified
        return None
    assert not identity.verified
    assert identity.principal.id == "anonymous"
    assert not identity.principal.scopes
    assert isinstance(identity.refusal, StatusFault)
    return identity.refusal.as_status.code


def cached_principals(authenticator: Authenticator) -> list[str]:
    """Whose tokens, in the order in which they came."""
    known = authenticator._tokens._known.values()
    return [token.principal.id for token in known if token.principal]


def forge_token(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


CLAIMS = {"sub": "ada", "exp": NOW + 60}
INVALID, EXPIRED, MISSING = "ERR10000", "ERR10001", "ERR10002"


async def test_without_authentication_everybody_is_the_same_and_no_token_is_read() -> None:
    authenticator = Authenticator(load(None, {}).auth, TENANT)
    identity = await authenticator.identify(http())
    assert await authenticator.identify(request_with_token("nonsense", "nonsense")) is identity
    assert (identity.refusal, identity.verified, identity.scope_token) == (None, False, None)
    assert identity.principal.key == (TENANT, "anonymous")


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RS, "RS256"), (RS, "PS256"), (ES, "ES256"), (ED, "EdDSA")],
)
async def test_a_token_of_the_right_key_makes_its_subject_known(
    make: Make, key: Signer, algorithm: str
) -> None:
    token = Signer(algorithm, key.private).token(scope="portal.r portal.w", team="blue")
    identity = await make(key).identify(request_with_token(token))
    assert (identity.refusal, identity.verified, identity.scope_token) == (None, True, None)
    assert identity.principal.key == (TENANT, "ada")
    assert identity.principal.scopes == {"portal.r", "portal.w"}
    assert identity.principal.claims["team"] == "blue"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], MISSING),
        ([("Authorization", "Basic YTpi")], MISSING),
        ([("Authorization", "")], MISSING),
        ([("Authorization", "Bearer")], MISSING),
        ([("Authorization", "Bearer ")], MISSING),
        ([("Authorization", ES.token())], MISSING),
        ([("Cookie", f"token={ES.token()}")], MISSING),
        ([("X-Scope-Token", ES.token())], MISSING),
        ([("Authorization", f"Bearer {ES.token()}")] * 2, INVALID),
        ([("Authorization", f"Bearer {ES.token()}"), ("Authorization", "Basic a")], INVALID),
        ([("Authorization", f"Bearer {ES.token()}, Bearer {ES.token()}")], INVALID),
        ([("Authorization", f"bearer {ES.token()}")], None),  # RFC 9110: schemes ignore case
        ([("Authorization", f"BEARER   {ES.token()}")], None),
    ],
)
async def test_the_header_that_a_token_comes_in(
    make: Make, headers: list[tuple[str, str]], expected: str | None
) -> None:
    assert code(await make().identify(http(headers=headers))) == expected


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "a.b.c",
        "....",
        "Bearer",
        "\xe9\xff",
        ES.token()[:-2],
        ES.token() + "A",
        ES.token() + ".",
        f" {ES.token()} {ES.token()}",
        ES.token().rsplit(".", 1)[0] + ".",
        forge_token({"alg": "ES256"}, CLAIMS),
        forge_token({"alg": "ES256"}, CLAIMS, b"\0" * 64),
        forge_token({}, CLAIMS),
        forge_token({"alg": ["ES256"]}, CLAIMS),
        forge_token({"alg": None}, CLAIMS),
        signer("ES256", "somebody else").token(),
        RS.token(),
        ES.token({"crit": ["exp"], "exp": NOW}),
        ES.token({"crit": ["b64"], "b64": False}),
        forge_token({"alg": "ES256", "kid": 5}, CLAIMS),
    ],
)
async def test_tokens_without_a_trusted_signature_are_refused(make: Make, token: str) -> None:
    assert code(await make().identify(request_with_token(token))) == INVALID


async def test_a_token_whose_claims_were_changed_is_refused(make: Make) -> None:
    head, _, signature = ES.token().split(".")
    _, claims, _ = forge_token({}, {**CLAIMS, "sub": "eve"}).split(".")
    assert (
        code(await make().identify(request_with_token(f"{head}.{claims}.{signature}"))) == INVALID
    )


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE"])
async def test_unsigned_tokens_are_refused(make: Make, algorithm: str) -> None:
    token = forge_token({"alg": algorithm, "typ": "JWT"}, CLAIMS)
    assert code(await make().identify(request_with_token(token))) == INVALID


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("key", [RS, ES, ED])
async def test_the_public_key_is_no_shared_secret(make: Make, key: Signer, algorithm: str) -> None:
    """Key confusion: what everybody may read must not be what signs (RFC 8725, 2.1)."""
    start = forge_token({"alg": algorithm, "typ": "JWT"}, CLAIMS).rsplit(".", 1)[0]
    digest = algorithm.replace("HS", "sha")
    signature = hmac.digest(key.pem, start.encode(), digest)
    token = f"{start}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
    assert code(await make(key).identify(request_with_token(token))) == INVALID
    assert code(await make([key]).identify(request_with_token(token))) == INVALID


async def test_an_algorithm_that_is_not_accepted_is_refused(make: Make) -> None:
    token = Signer("RS512", RS.private).token()
    assert code(await make(RS).identify(request_with_token(token))) == INVALID
    assert code(await make(RS, algorithms=("RS512",)).identify(request_with_token(token))) is None
    assert (
        code(await make(RS, algorithms=("RS512",)).identify(request_with_token(RS.token())))
        == INVALID
    )


async def test_a_key_that_comes_inside_a_token_is_not_believed(make: Make) -> None:
    eve = signer("ES256", "eve")
    token = eve.token({"jwk": eve.jwk(), "jku": "https://evil.example/jwks", "x5u": "file:///k"})
    assert code(await make().identify(request_with_token(token))) == INVALID


async def test_a_token_names_one_key_of_several(make: Make) -> None:
    old, new = signer("RS256", "old", "2025"), signer("RS256", "new", "2026")
    authenticator = make([old, new])
    for key in (old, new):
        assert code(await authenticator.identify(request_with_token(key.token()))) is None
    assert (
        code(await authenticator.identify(request_with_token(old.token({"kid": "2026"}))))
        == INVALID
    )
    assert (
        code(await authenticator.identify(request_with_token(old.token({"kid": "2024"}))))
        == INVALID
    )
    assert (
        code(await authenticator.identify(request_with_token(Signer("RS256", old.private).token())))
        == INVALID
    )


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"exp": NOW + 1}, None),
        ({"exp": NOW - 59}, None),  # auth.leeway_s
        ({"exp": NOW - 59.5}, None),
        ({"exp": NOW - 60}, EXPIRED),
        ({"exp": NOW - 3600}, EXPIRED),
        ({"exp": 0}, EXPIRED),
        ({"exp": -1e300}, EXPIRED),
        ({"exp": None}, INVALID),
        ({"exp": "soon"}, INVALID),
        ({"exp": str(NOW + 60)}, INVALID),
        ({"exp": True}, INVALID),
        ({"exp": [NOW + 60]}, INVALID),
        ({"exp": float("inf")}, INVALID),
        ({"exp": float("nan")}, INVALID),
        ({"exp": 10**400}, INVALID),
        ({"nbf": NOW + 60}, None),
        ({"nbf": NOW + 61}, INVALID),
        ({"nbf": "now"}, INVALID),
        ({"nbf": NOW + 61, "exp": NOW + 62}, INVALID),
    ],
)
async def test_a_token_is_good_from_nbf_to_exp(
    make: Make, claims: dict[str, Any], expected: str | None
) -> None:
    assert code(await make().identify(request_with_token(ES.token(**claims)))) == expected


async def test_a_cached_token_ends_at_its_expiry(make: Make, clock: Clock) -> None:
    authenticator, token = make(leeway_s=5), ES.token(exp=NOW + 100)
    for now in (NOW, NOW + 50, NOW + 104.9):
        clock.now = now
        assert code(await authenticator.identify(request_with_token(token))) is None
    for now in (NOW + 105, NOW + 106):
        clock.now = now
        assert code(await authenticator.identify(request_with_token(token))) == EXPIRED


async def test_a_token_that_is_not_valid_yet_is_asked_again(make: Make, clock: Clock) -> None:
    authenticator, token = make(), ES.token(nbf=NOW + 600)
    assert code(await authenticator.identify(request_with_token(token))) == INVALID
    clock.now = NOW + 600
    assert code(await authenticator.identify(request_with_token(token))) is None


async def test_no_more_tokens_are_remembered_than_the_settings_say(make: Make) -> None:
    authenticator = make(cached_tokens=3)
    tokens = [ES.token(sub=f"user {number}") for number in range(5)]
    for token in [*tokens, *tokens]:
        assert code(await authenticator.identify(request_with_token(token))) is None
    assert cached_principals(authenticator) == ["user 2", "user 3", "user 4"]


async def test_a_token_that_comes_again_pushes_no_other_out(make: Make) -> None:
    authenticator = make(cached_tokens=2)
    first, second = ES.token(sub="first"), ES.token(sub="second")
    for token in (first, second, second):
        await authenticator.identify(request_with_token(token))
    assert cached_principals(authenticator) == ["first", "second"]


async def test_refused_tokens_are_not_cached(make: Make, clock: Clock) -> None:
    authenticator, good = make(cached_tokens=1), ES.token()
    await authenticator.identify(request_with_token(good))
    (kept,) = authenticator._tokens._known
    for token in ("x", ES.token(exp=NOW - 99), signer("ES256", "eve").token()):
        assert code(await authenticator.identify(request_with_token(token))) is not None
    assert list(authenticator._tokens._known) == [kept]
    clock.now = NOW + 7200
    await authenticator.identify(request_with_token(good))
    assert not authenticator._tokens._known  # what has ended takes no place


async def test_a_token_of_one_key_says_nothing_to_an_authenticator_of_another(make: Make) -> None:
    token = ES.token()
    assert code(await make(ES).identify(request_with_token(token))) is None
    assert code(await make(signer("ES256", "other")).identify(request_with_token(token))) == INVALID


async def test_issuer_and_audience_are_checked_if_configured(make: Make) -> None:
    strict = make(issuer="https://id.example", audience="toolgate")
    good = {"iss": "https://id.example", "aud": "toolgate"}
    assert code(await strict.identify(request_with_token(ES.token(**good)))) is None
    assert (
        code(
            await strict.identify(request_with_token(ES.token(**good | {"aud": ["a", "toolgate"]})))
        )
        is None
    )
    for wrong in (
        {"iss": "https://id.example/"},
        {"iss": None},
        {"iss": ["https://id.example"]},
        {"aud": "other"},
        {"aud": []},
        {"aud": None},
        {"aud": {"toolgate": 1}},
    ):
        assert (
            code(await strict.identify(request_with_token(ES.token(**good | wrong)))) == INVALID
        ), wrong
    assert (
        code(await make().identify(request_with_token(ES.token(iss="anyone", aud="anything"))))
        is None
    )


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"sub": "ada", "user_id": "b", "client_id": "c"}, "ada"),
        ({"sub": None, "user_id": "b", "client_id": "c"}, "b"),
        ({"sub": "", "userId": "b", "cid": "c"}, "b"),
        ({"sub": None, "client_id": "c"}, "c"),
        ({"sub": None, "cid": "c"}, "c"),
        ({"sub": "Ada Lovelace <ada@example.com>"}, "Ada Lovelace <ada@example.com>"),
        ({"sub": "阿达"}, "阿达"),
        ({"sub": "a" * 255}, "a" * 255),
    ],
)
async def test_the_principal_is_named_by_the_first_usable_claim(
    make: Make, claims: dict[str, Any], name: str
) -> None:
    identity = await make().identify(request_with_token(ES.token(**claims)))
    assert code(identity) is None
    assert identity.principal.id == name


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": None},
        {"sub": ""},
        {"sub": "a" * 256},  # more than OpenID Connect allows, and the database holds
        {"sub": "a\0b"},
        {"sub": "a\nb"},
        {"sub": "\ud800"},
        {"sub": None, "user_id": 5},
        {"sub": None, "user_id": ["a"]},
    ],
)
async def test_a_token_that_names_nobody_usable_is_refused(
    make: Make, claims: dict[str, Any]
) -> None:
    assert code(await make().identify(request_with_token(ES.token(**claims)))) == INVALID


async def test_a_subject_that_is_no_text_is_refused(make: Make) -> None:
    assert code(await make().identify(request_with_token(ES.token(sub=5)))) == INVALID


@pytest.mark.parametrize("text", [b"[]", b"5", b'"a"', b"{", b"", b"[" * 3000])
async def test_claims_that_are_no_object_are_refused(make: Make, text: bytes) -> None:
    assert code(await make().identify(request_with_token(ES.sign(text)))) == INVALID


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({}, set()),
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": " a  b "}, {"a", "b"}),
        ({"scope": ["a", "b"]}, {"a", "b"}),
        ({"scp": ["a"]}, {"a"}),
        ({"scp": "a b"}, {"a", "b"}),
        ({"scope": "a", "scp": ["b"]}, {"a"}),
        ({"scope": ""}, set()),
        ({"scope": {"a": 1}}, set()),
        ({"scope": ["a", 5, None, ["b"]]}, {"a"}),
        ({"scope": 5}, set()),
    ],
)
async def test_scopes_in_every_form(make: Make, claims: dict[str, Any], scopes: set[str]) -> None:
    authenticator = make()
    identity = await authenticator.identify(request_with_token(ES.token(**claims)))
    assert identity.principal.scopes == scopes
    assert (
        await authenticator.identify(request_with_token(ES.token(), ES.token(**claims)))
    ).scope_token == scopes


async def test_a_token_beyond_the_limit_is_not_looked_at(make: Make) -> None:
    token = ES.token(team="x" * 500)
    assert (
        code(await make(token_limit_bytes=len(token)).identify(request_with_token(token))) is None
    )
    assert (
        code(await make(token_limit_bytes=len(token) - 1).identify(request_with_token(token)))
        == INVALID
    )


@pytest.mark.parametrize(
    ("scope_token", "expected"),
    [
        (ES.token(scope="app.r", sub=None, client_id="app"), {"app.r"}),
        ("Bearer " + ES.token(scope="app.r"), {"app.r"}),
        ("bearer " + ES.token(scope="app.r"), {"app.r"}),
        (ES.token(scope="app.r", sub=None), {"app.r"}),  # whose it is does not matter
        (ES.token(exp=NOW - 99), "ERR10004"),
        (ES.token(exp=None), "ERR10003"),
        (signer("ES256", "eve").token(), "ERR10003"),
        ("Basic a", "ERR10003"),
        ("Bearer ", "ERR10003"),
        ("", "ERR10003"),
    ],
)
async def test_a_scope_token_is_judged_but_refuses_nobody_yet(
    make: Make, scope_token: str, expected: set[str] | str
) -> None:
    identity = await make().identify(request_with_token(ES.token(scope="user.r"), scope_token))
    assert code(identity) is None
    assert identity.principal.scopes == {"user.r"}
    found = identity.scope_token
    assert (found.as_status.code if isinstance(found, StatusFault) else found) == expected


async def test_two_scope_tokens_are_one_too_many(make: Make) -> None:
    found = (
        await make().identify(request_with_token(ES.token(), ES.token(), ES.token()))
    ).scope_token
    assert isinstance(found, StatusFault)
    assert found.as_status.code == "ERR10003"


async def test_a_failure_that_is_not_the_token_s_has_a_status_of_its_own(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A mock, because no token is known that gets the library there.
    def fails(*_: object, **__: object) -> None:
        raise ValueError("modulus 0xdeadbeef is of no use")

    authenticator, token = make(), ES.token()
    monkeypatch.setattr(PyJWS, "decode", fails)
    identity = await authenticator.identify(request_with_token(token))
    assert code(identity) == "ERR10090"
    assert str(identity.refusal) == "Token verification exception of Authorization."


async def test_neither_the_log_nor_the_answer_has_anything_of_a_token(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = ES.token({"crit": ["private-extension"], "private-extension": 1}, team="secret-team")
    identity = await make().identify(request_with_token(token, ES.token(exp=NOW - 99)))
    assert code(identity) == INVALID
    said = [(record.getMessage(), vars(record).get("reason")) for record in caplog.records]
    assert said == [("token_refused", "InvalidTokenError")]
    for part in ("private-extension", "secret-team", *token.split(".")):
        assert part not in repr([vars(record) for record in caplog.records])
        assert part not in repr((identity.refusal, vars(identity.refusal or object)))
