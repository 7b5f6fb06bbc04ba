"""Blocks of settings in the chapters of the login, and the people whom they name."""

import re
from pathlib import Path
from typing import Any

import pytest

from config.load import load
from gateway.login.providers import Provider
from tests.documentation.pages import Page
from tests.gateway.login.company import KEY

DOCS = Path(__file__).parents[3] / "docs"
BLOCKS = {
    block
    for name in ("login.md", "login-providers.md")
    for block in Page(DOCS / name).blocks("yaml")
    if "providers:" in block
}
NAME = re.compile(r"providers:\n +(\w+):")
PEOPLE: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "entra": (
        {"sub": "a", "roles": ["2f5f5b0e-0000-4000-8000-0000000000aa", "x"]},
        "entra:a",
        ["clerk"],
    ),
    "keycloak": ({"sub": "a", "realm_access": {"roles": ["clerk"]}}, "keycloak:a", ["clerk"]),
    "okta": ({"sub": "00u", "groups": ["Everyone", "gateway-clerks"]}, "okta:00u", ["clerk"]),
    "google": (
        {"sub": "1", "hd": "example.com", "email": "a@example.com"},
        "google:1",
        ["staff"],
    ),
    "auth0": (
        {"sub": "auth0|1", "https://gateway.example.com/roles": ["clerk"]},
        "auth0:auth0|1",
        ["clerk"],
    ),
    "cognito": ({"sub": "u-1", "cognito:groups": ["clerk"]}, "cognito:u-1", ["clerk"]),
    "adfs": (
        {"sub": "h=", "upn": "ann@example.com", "group": "EXAMPLE\\clerks"},
        "adfs:ann@example.com",
        ["clerk"],
    ),
}


def test_each_block_has_a_person_here() -> None:
    assert {name for block in BLOCKS for name in NAME.findall(block)} == {*PEOPLE}


@pytest.mark.parametrize("name", PEOPLE)
def test_a_block_gives_a_person_their_roles(name: str, tmp_path: Path) -> None:
    (block,) = [block for block in BLOCKS if name in NAME.findall(block)]
    file = tmp_path / "toolgate.yaml"
    file.write_text(block)
    env = {
        "TOOLGATE_SERVER__PUBLIC_URL": "https://gateway.example.com",
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_SECRETS__KEY": KEY,
    }
    for variable in re.findall(r"\$\{(\w+)\}", block):
        env[variable] = "given"
    settings = load(str(file), env)
    claims, principal, roles = PEOPLE[name]
    person = Provider(name, settings.login.providers[name], settings).person_of(claims)
    assert (person.principal, [*person.roles]) == (principal, roles)
