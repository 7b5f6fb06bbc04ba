"""`toolgate token` and `toolgate keys`: made, looked into, revoked."""

import json
import re
from pathlib import Path

import pytest

import gateway as gateway_package
from config.load import load
from gateway.admin.scopes import OWN
from gateway.cli.doctor.identity import identity
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.guards.signing import FOREVER, by_jwks, by_key, signer

SECRET = "0123456789abcdef0123456789abcdef"
DEVELOPMENT = {"TOOLGATE_AUTH__MODE": "jwt", "TOOLGATE_AUTH__DEVELOPMENT_SECRET": SECRET}


def test_a_token_that_was_minted_is_good_here(bare: Toolgate) -> None:
    env = DEVELOPMENT | {"TOOLGATE_AUTH__TENANT_CLAIM": "org"}
    tenant = "11111111-0000-0000-0000-000000000001"
    given = ["--scope", "a.r a.w", "--scope", "b", "--role", "ops", "--tenant", tenant]
    made = bare("token", "mint", "--sub", "ada", *given, "--claim", "team=blue", **env)
    assert made.code == 0, made.err
    shown = bare("token", "show", "-", "--json", stdin=made.out, **env)
    assert shown.code == 0, shown.out
    assert shown.json["header"] == {"alg": "HS256", "typ": "JWT"}
    assert shown.json["claims"]["team"] == "blue"
    assert shown.json["claims"]["exp"] - shown.json["claims"]["iat"] == 3600
    assert shown.json["valid"]
    assert shown.json["principal"] == {
        "id": "ada", "tenant": tenant, "scopes": ["a.r", "a.w", "b"], "roles": ["ops"],
    }  # fmt: skip
    text = bare("token", "show", made.out.strip(), **env).out
    assert "valid: ada of tenant 11111111" in text
    assert "team: blue" in text


def test_a_token_is_for_whom_the_settings_say(bare: Toolgate) -> None:
    env = DEVELOPMENT | {
        "TOOLGATE_SERVER__PUBLIC_URL": "https://gateway.example.com/",
        "TOOLGATE_AUTH__BIND_AUDIENCE": "endpoint",
        "TOOLGATE_TOOLSETS": '{"pets": {}}',
    }
    made = bare("token", "mint", "--sub", "ada", "--json", "--endpoint", "/mcp/pets", **env).json
    assert made["claims"]["aud"] == "https://gateway.example.com/mcp/pets"
    here = bare("token", "show", made["token"], "--endpoint", "/mcp/pets/sse", **env)
    assert here.code == 0, here.out
    there = bare("token", "show", made["token"], "--json", **env)
    assert (there.code, there.json["valid"]) == (1, False)
    assert there.json["reason"] == "its `aud` names another endpoint"


@pytest.mark.parametrize(
    ("arguments", "env", "expected"),
    [
        ([], {"TOOLGATE_AUTH__DEVELOPMENT_SECRET": ""}, "set auth.development_secret to 32"),
        (["--ttl", "soon"], {}, "expected a span of time such as 90s"),
        (["--ttl", "4000d"], {}, "or 30d, at most 3650d"),
        (["--claim", "team"], {}, "--claim 'team': expected NAME=TEXT"),
        (["--tenant", "acme"], {}, "--tenant: auth.tenant_claim is empty"),
        (["--role", "a"], {"TOOLGATE_AUTH__ROLES_CLAIM": ""}, "--role: auth.roles_claim is empty"),
        ([], {"TOOLGATE_AUTH__TENANT_CLAIM": "org"}, "auth.tenant_claim is org: add --tenant"),
        (
            ["--tenant", "acme"],
            {
                "TOOLGATE_AUTH__TENANT_CLAIM": "org",
                "TOOLGATE_AUTH__TENANTS": '{"umbrella": "11111111-0000-0000-0000-000000000001"}',
            },
            "expected one of umbrella",
        ),
        ([], {"TOOLGATE_AUTH__REQUIRED_CLAIMS": "[team]"}, "add --claim team=TEXT"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_token_that_would_be_of_no_use_is_not_made(
    bare: Toolgate, arguments: list[str], env: dict[str, str], expected: str
) -> None:
    mode = {"TOOLGATE_AUTH__MODE": "none"}
    ran = bare("token", "mint", "--sub", "ada", *arguments, **{**DEVELOPMENT, **mode, **env})
    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err
    assert SECRET not in ran.err


def test_the_reason_why_a_token_would_be_refused_is_told(bare: Toolgate, folder: Path) -> None:
    ours, key = signer("ES256", kid="a"), by_jwks(folder, [signer("ES256", kid="a").jwk()])
    env = {
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_AUTH__JWKS_FILE": key.jwks_file,
        "TOOLGATE_AUTH__ISSUER": "https://id.example",
        "TOOLGATE_AUTH__REQUIRED_CLAIMS": "[team]",
    }
    good = {"iss": "https://id.example", "exp": FOREVER, "team": "blue"}
    for wrong, reason in [
        ({}, ""),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "it has no `exp`"),
        ({"iss": "https://evil.example"}, "its `iss` is another one"),
        ({"team": None}, 'Token is missing the "team" claim'),
        ({"sub": None}, "expected a principal"),
    ]:
        ran = bare("token", "show", ours.token(**{**good, **wrong}), "--json", **env)
        assert ran.code == int(bool(reason))
        assert ran.json["reason"].startswith(reason)
    stranger = signer("ES256", "eve", "a").token(**good)
    assert bare("token", "show", stranger, **env).out.endswith(
        "refused: Signature verification failed\n"
    )
    for text, expected in [("x", "this is not a JWT"), ("tgk_a_b", "this is an API key")]:
        ran = bare("token", "show", text, **env)
        assert ran.code == 2
        assert expected in ran.err
    off = bare("token", "show", ours.token(**good))
    assert "auth.mode is none" in off.out


def test_nothing_is_fetched_unless_told_to(bare: Toolgate) -> None:
    env = {
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_AUTH__JWKS_URL": "http://127.0.0.1:9/jwks",  # discard: nobody listens
    }
    token = signer("ES256").token(exp=FOREVER)
    ran = bare("token", "show", token, "--json", **env)
    assert (ran.code, ran.json["valid"]) == (1, None)
    assert "--fetch fetches them" in ran.json["reason"]
    ran = bare("token", "show", token, "--json", "--fetch", **env)
    assert "they cannot be fetched" in ran.json["reason"]


def test_a_key_from_its_making_to_its_revocation(toolgate: Toolgate) -> None:
    made = toolgate(
        *("keys", "create", "deploy", "--scope", "a.r a.w", "--role", "ops", "--expires", "90d"),
        *("--any-scope", "--json"),
    ).json
    key = made["key"]
    assert made["secret"].startswith(f"tgk_{key['id']}_")
    assert (key["principal"], key["roles"]) == ("key:deploy", ["ops"])
    assert key["expires"] is not None
    again = toolgate("keys", "create", "deploy")
    assert again.code == 1
    assert "There is a key 'deploy' already" in again.err
    listed = toolgate("keys", "list").out
    assert "a.r, a.w" in listed
    assert key["id"] in listed
    assert made["secret"] not in listed + toolgate("keys", "list", "--json").out
    assert toolgate("keys", "revoke", "deploy").out == "Revoked deploy.\n"
    (one,) = toolgate("keys", "list", "--json").json
    assert (one["id"], one["revoked"] is None) == (key["id"], False)
    assert toolgate("keys", "revoke", key["id"]).code == 0
    gone = toolgate("keys", "revoke", "deploy")
    assert (gone.code, "There is no key 'deploy'" in gone.err) == (1, True)


def test_a_key_is_rotated_and_revoked_with_its_predecessor(toolgate: Toolgate) -> None:
    """`keys rotate` prints a new key of the same principal (mending 41)."""
    made = toolgate("keys", "create", "ci", "--json").json
    again = toolgate("keys", "rotate", "ci", "--overlap", "2h", "--json").json
    assert again["secret"] != made["secret"]
    assert (again["key"]["name"], again["key"]["principal"]) == ("ci", made["key"]["principal"])
    assert toolgate("keys", "rotate", "nobody").code == 1
    assert toolgate("keys", "revoke", "ci").code == 0
    assert all(key["revoked"] for key in toolgate("keys", "list", "--json").json)


@pytest.mark.parametrize(
    ("scope", "hint"),
    [("wirte", "memory:write"), ("memory:raed", "Did you mean memory:read"), ("pets", "Known: ")],
)
def test_a_scope_that_nothing_asks_for_is_refused(
    toolgate: Toolgate, scope: str, hint: str
) -> None:
    """A misspelled scope makes no key (mending 41)."""
    ran = toolgate("keys", "create", "ci", "--scope", scope)
    assert ran.code == 2
    assert f"nothing asks for the scope '{scope}'" in ran.err
    assert hint in ran.err
    assert toolgate("keys", "list", "--json").json == []


def test_scopes_of_the_gateway_are_known_to_keys() -> None:
    gateway = Path(gateway_package.__file__).parent
    pattern = re.compile(r'"((?:admin|agent|events|knowledge|librarian|memory):[a-z_:]+)"')
    asked = {
        scope
        for part in ("admin", "wings")
        for file in (gateway / part).rglob("*.py")
        for scope in pattern.findall(file.read_text(encoding="utf-8"))
    }
    assert {"admin:keys:write", "memory:on_behalf"} <= asked
    assert asked <= set(OWN)


def test_tokens_are_revoked_singly_and_by_subject(toolgate: Toolgate) -> None:
    token = signer("ES256").token(jti="abc")
    assert toolgate("token", "revoke", token).out == "Revoked the token abc.\n"
    assert toolgate("token", "revoke", "--jti", "def", "--reason", "lost").code == 0
    assert toolgate("token", "revoke", "--sub", "ada").out == "Revoked all tokens of ada.\n"
    nameless = toolgate("token", "revoke", "-", stdin=signer("ES256").token())
    assert (nameless.code, "--sub" in nameless.err) == (2, True)
    assert toolgate("token", "revoke").code == 2
    assert toolgate("token", "revoke", token, "--sub", "ada").code == 2


def test_doctor_looks_at_keys(bare: Toolgate, folder: Path) -> None:
    key = by_key(folder, signer("ES256").pem).key_file
    issuers = {
        "a": {"issuer": "https://a.example", "key_file": key},
        "b": {"issuer": "https://b.example", "jwks_url": "http://127.0.0.1:9/jwks"},
    }
    env = DEVELOPMENT | {
        "TOOLGATE_AUTH__ISSUERS": json.dumps(issuers),
        "TOOLGATE_DATABASE__URL": "postgresql://127.0.0.1:9/none",
        "TOOLGATE_DATABASE__CONNECT_TIMEOUT_S": "1",
    }
    checks = bare("doctor", "--json", **env).json
    found = [(check["status"], check["detail"]) for check in checks if check["name"] == "auth"]
    assert [status for status, _ in found] == ["warning", "warning", "ok", "failed"]
    assert found[1][1].startswith("auth.audience is empty, so tokens that were made for other")
    assert found[2][1] == f"tokens of https://a.example are checked with {key}"
    assert "http://127.0.0.1:9/jwks: it cannot be reached" in found[3][1]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"TOOLGATE_AUTH__MODE": "none"}, ("auth", "failed", "auth.mode is none, so 0.0.0.0")),
        (DEVELOPMENT, ("auth", "failed", "auth.development_secret is set, so 0.0.0.0")),
        ({"TOOLGATE_AUTH__MODE": "keys"}, ("hosts", "warning", "server.allowed_hosts is empty")),
    ],
    ids=["none", "development", "hosts"],
)
async def test_doctor_reports_authentication_unfit_for_remote_callers(
    settings: dict[str, str], expected: tuple[str, str, str]
) -> None:
    checks = [
        one async for one in identity(load(None, settings | {"TOOLGATE_SERVER__HOST": "0.0.0.0"}))
    ]
    found: dict[tuple[str, str], str] = {(one.name, one.status): one.detail for one in checks}
    assert found[expected[:2]].startswith(expected[2])
    safe = [one async for one in identity(load(None, settings))]
    assert not {"failed", "hosts"} & {word for one in safe for word in (one.name, one.status)}


@pytest.mark.anyio
async def test_doctor_is_content_with_an_audience(tmp_path: Path) -> None:
    env = {
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_AUTH__KEY_FILE": by_key(tmp_path, signer("ES256").pem).key_file,
        "TOOLGATE_AUTH__AUDIENCE": "https://gateway.example",
    }
    assert [one.status async for one in identity(load(None, env))] == ["ok"]


def test_with_a_secret_of_development_nothing_but_loopback_is_served(bare: Toolgate) -> None:
    ran = bare("serve", "--host", "0.0.0.0", **DEVELOPMENT)
    assert ran.code == 2
    assert "refusing to listen on 0.0.0.0: auth.development_secret is set" in ran.err


def test_a_revoked_token_is_called_revoked_where_the_registry_is_looked_into(
    toolgate: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(
        "auth: {mode: jwt, development_secret: '${DEVELOPMENT_SECRET}'}"
    )
    env = {"DEVELOPMENT_SECRET": "0123456789abcdef0123456789abcdef"}
    made = toolgate("token", "mint", "--sub", "ada", **env).out.strip()
    good = toolgate("token", "show", made, **env)
    assert "revocations were not checked: add --registry" in good.out
    assert "looked up" not in toolgate("token", "show", made, "--registry", **env).out
    assert toolgate("token", "revoke", made, **env).code == 0
    told = toolgate("token", "show", made, "--registry", **env)
    assert (told.code, told.out.splitlines()[-1]) == (1, "refused: revoked")
