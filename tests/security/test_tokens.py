"""What the header of a token may not do: choose the key, where it comes from, or how it is used."""

import base64
import hmac
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from jwt.api_jws import PyJWS

from gateway.guards.authentication import Authenticator
from tests.fixtures_servers import Serve
from tests.gateway.asgi import http
from tests.gateway.guards.signing import NOW, Signer, by_jwks, by_key, signer
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

TENANT = "00000000-0000-0000-0000-000000000001"
INVALID = "ERR10000"
KEY, EVE = signer("ES256", kid="2026"), signer("ES256", "eve")

KIDS: dict[str, Any] = {
    "a path": "../../../../dev/null",
    "a file": "/etc/passwd",
    "a file url": "file:///dev/null",
    "sql": "2026' OR '1'='1",
    "sql that joins": "x' UNION SELECT 'secret' --",
    "a command": "2026|/bin/true",
    "a zero byte": "2026\0",
    "a line": "2026\r\nX-Forged: 1",
    "a pattern": ".*",
    "a space": " 2026",
    "another case": "2026".upper() + "\u200b",
    "nothing": "",
    "a number": 2026,
    "a list": ["2026"],
    "an object": {"kid": "2026"},
    "true": True,
    "null": None,
    "huge": "2026" * 500,
}


@pytest.fixture
def authenticator(tmp_path: Path) -> Authenticator:
    """That of two keys, of which no token may be without a name."""
    keys = [KEY.jwk(), signer("ES256", "second", "2027").jwk()]
    return Authenticator(by_jwks(tmp_path, keys), TENANT, lambda: NOW)


async def status(authenticator: Authenticator, token: str) -> str | None:
    """The Status that refuses a token; None when it is good."""
    scope = http(headers=[("Authorization", f"Bearer {token}")])
    refusal: Any = (await authenticator.identify(scope)).refusal
    return None if refusal is None else str(refusal.as_status.code)


def part(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def write_token(header: Any, key: Signer = KEY, **claims: Any) -> str:
    """A token that is signed whatever its header says: libraries refuse to write some."""
    said = {"sub": "ada", "exp": NOW + 3600, **claims}
    text = f"{part(header)}.{part(said)}"
    algorithm = PyJWS().get_algorithm_by_name("ES256")
    return f"{text}.{part(algorithm.sign(text.encode(), key.private))}"


async def test_handmade_tokens_are_good(authenticator: Authenticator) -> None:
    assert await status(authenticator, write_token({"alg": "ES256", "kid": "2026"})) is None


@pytest.mark.parametrize("kid", KIDS.values(), ids=KIDS)
@pytest.mark.parametrize("key", [KEY, EVE], ids=["trusted", "forged"])
async def test_a_kid_selects_only_configured_keys(
    authenticator: Authenticator, kid: Any, key: Signer
) -> None:
    token = write_token({"alg": "ES256", "kid": kid}, key)
    assert await status(authenticator, token) == INVALID


@pytest.mark.parametrize("kid", ["/dev/null", "2026", "../../dev/null"])
@pytest.mark.parametrize("secret", [b"", b"\0", KEY.pem, b"2026"], ids=["", "0", "pem", "kid"])
async def test_no_file_is_a_shared_secret(
    authenticator: Authenticator, kid: str, secret: bytes
) -> None:
    text = f"{part({'alg': 'HS256', 'kid': kid})}.{part({'sub': 'ada', 'exp': NOW + 3600})}"
    signature = hmac.new(secret, text.encode(), sha256).digest()
    assert await status(authenticator, f"{text}.{part(signature)}") == INVALID


@pytest.mark.parametrize("name", ["jku", "x5u", "kid", "url", "iss"])
async def test_no_url_of_a_token_is_asked(
    authenticator: Authenticator, serve: Serve, name: str
) -> None:
    evil = Recorder(200, json.dumps({"keys": [EVE.jwk(kid="2026")]}).encode())
    url = await serve(evil)
    header = {"alg": "ES256", "kid": "2026", name: url}
    assert await status(authenticator, write_token(header, EVE, iss=url)) == INVALID
    assert evil.seen == []


async def test_a_key_that_a_token_brings_along_is_not_believed(
    authenticator: Authenticator,
) -> None:
    header = {"alg": "ES256", "kid": "2026", "jwk": EVE.jwk(kid="2026"), "x5c": [part(EVE.pem)]}
    assert await status(authenticator, write_token(header, EVE)) == INVALID


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "ES256", "kid": "2026", "crit": ["exp"], "exp": 1},
        {"alg": "ES256", "kid": "2026", "crit": ["x"], "x": 1},
        {"alg": "ES256", "kid": "2026", "b64": False, "crit": ["b64"]},
        {"alg": "ES256", "kid": "2026", "crit": []},
        {"alg": "es256", "kid": "2026"},
        {"alg": ["ES256"], "kid": "2026"},
        {"alg": None, "kid": "2026"},
        {"kid": "2026"},
        {"alg": "none", "kid": "2026"},
        {"alg": "NoNe", "kid": "2026"},
        ["ES256"],
        "ES256",
        b'{"alg":"none","alg":"ES256","kid":"2026","kid":{}}',
        b'{"alg":"ES256","kid":"2026"',
        b"\xff",
        b'{"a":' * 500 + b"1" + b"}" * 500,
    ],
    ids=lambda header: str(header)[:40],
)
async def test_a_header_that_says_more_than_we_understand_is_refused(
    authenticator: Authenticator, header: Any
) -> None:
    assert await status(authenticator, write_token(header)) in {INVALID, "ERR10078"}


async def test_a_token_that_is_encrypted_or_nested_is_none(authenticator: Authenticator) -> None:
    good = write_token({"alg": "ES256", "kid": "2026"})
    for token in (f"{good}.a.b", f"{good}.", f".{good}", good.replace(".", "..", 1)):
        assert await status(authenticator, token) == INVALID
    nested = write_token({"alg": "ES256", "kid": "2026", "cty": "JWT"}, EVE, token=good)
    assert await status(authenticator, nested) == INVALID


async def test_a_key_file_ignores_the_kid_of_a_token(tmp_path: Path) -> None:
    authenticator = Authenticator(by_key(tmp_path, KEY.pem), TENANT, lambda: NOW)
    for kid in ("../../dev/null", "2027"):
        header = {"alg": "ES256", "kid": kid}
        assert await status(authenticator, write_token(header)) is None
        assert await status(authenticator, write_token(header, EVE)) == INVALID
