"""What the command line says about the credentials that sources want."""

import base64
import json
from pathlib import Path

import pytest

from tests.gateway.cli.conftest import Toolgate

OPERATIONS = {"get": {"operationId": "a"}, "put": {"operationId": "b", "security": []}}
DESCRIPTION = {
    "openapi": "3.0.3",
    "info": {"title": "Guarded", "version": "1"},
    "paths": {"/x": OPERATIONS, "/y": {"get": {"operationId": "c"}}},
    "security": [{"appKey": [], "login": []}],
    "components": {
        "securitySchemes": {
            "appKey": {"type": "apiKey", "in": "query", "name": "key"},
            "login": {"type": "http", "scheme": "basic"},
        }
    },
}
SETTINGS = """
sources:
  guarded:
    headers: {Authorization: Basic hunter2}
    credentials: {appKey: {value: hunter2}}
"""
IMPORT = ("import", "openapi", "guarded.json", "--name", "guarded", "--base-url", "http://[::1]:9")
HINT = (
    "Calls of 2 tools are refused without credentials. Set sources.guarded.credentials.appKey "
    "(value) and sources.guarded.credentials.login (username and password), or "
    "sources.guarded.headers, or run `toolgate secrets set guarded SCHEME`."
)


@pytest.fixture
def with_guarded(toolgate: Toolgate, folder: Path) -> Toolgate:
    """Runs commands on a database that has the source `guarded`."""
    (folder / "guarded.json").write_text(json.dumps(DESCRIPTION))
    ran = toolgate(*IMPORT)
    assert ran.code == 0, ran.err
    return toolgate


def credential_checks(toolgate: Toolgate) -> list[tuple[str, str]]:
    """What the doctor says of credentials."""
    checks = toolgate("doctor", "--json").json
    return [(one["status"], one["detail"]) for one in checks if one["name"] == "credentials"]


def test_an_import_lists_credentials_to_configure(with_guarded: Toolgate, folder: Path) -> None:
    assert f"note      {HINT}" in with_guarded(*IMPORT, "--dry-run").out.replace("\n", " ")
    assert with_guarded(*IMPORT, "--json").json["notes"] == [HINT]
    (folder / "toolgate.yaml").write_text(SETTINGS)
    assert with_guarded(*IMPORT, "--json").json["notes"] == []


def test_a_source_without_credentials_names_each_required_scheme(with_guarded: Toolgate) -> None:
    shown = with_guarded("sources", "show", "guarded").out
    assert "wants appKey: query parameter key, not configured\n" in shown
    assert "wants login: user name and password, not configured\n" in shown
    assert HINT in shown.replace("\n", " ")
    assert credential_checks(with_guarded) == [("warning", f"guarded: {HINT}")]
    ran = with_guarded("sources", "show", "guarded", "--json")
    assert ran.json["credentials"] == {"appKey": False, "login": False}


def test_the_most_useful_scheme_comes_first_and_the_rest_is_named(
    toolgate: Toolgate, folder: Path
) -> None:
    wanted = [[{"login": []}], [{"appKey": []}], [{"appKey": []}, {"login": []}], [{"token": []}]]
    schemes = {
        **DESCRIPTION["components"]["securitySchemes"],  # type: ignore[index]
        "token": {"type": "http", "scheme": "bearer"},
    }
    paths = {
        f"/{number}": {"get": {"operationId": f"x{number}", "security": security}}
        for number, security in enumerate([*wanted, [{"appKey": []}]])
    }
    document = {**DESCRIPTION, "paths": paths, "components": {"securitySchemes": schemes}}
    (folder / "guarded.json").write_text(json.dumps(document))
    [note] = toolgate(*IMPORT, "--json").json["notes"]
    assert note == (
        "Calls of 5 tools are refused without credentials. Set sources.guarded.credentials.appKey "
        "(value), or sources.guarded.headers, or run `toolgate secrets set guarded SCHEME`. "
        "That is for 3; others want login, token."
    )


def test_a_source_with_credentials_lists_schemes_and_no_secret(
    with_guarded: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(SETTINGS)
    shown = with_guarded("sources", "show", "guarded").out
    assert "wants appKey: query parameter key, configured\n" in shown
    assert "wants login: user name and password, configured\n" in shown
    assert "refused" not in shown
    assert "hunter2" not in shown
    assert credential_checks(with_guarded) == [("ok", "guarded: appKey, login")]


def test_a_source_that_goes_without_is_no_reason_to_worry(
    with_guarded: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text("sources: {guarded: {require_credentials: false}}")
    assert "refused" not in with_guarded("sources", "show", "guarded").out
    assert credential_checks(with_guarded) == [("ok", "guarded: none, which is allowed")]


def test_a_source_that_wants_nothing_is_not_spoken_of(with_pets: Toolgate) -> None:
    assert "configured" not in with_pets("sources", "show", "pets").out
    assert credential_checks(with_pets) == []


def test_an_import_names_schemes_of_people_that_no_operation_requires(
    with_guarded: Toolgate, folder: Path
) -> None:
    """With a typo there, calls of people would be made with the credentials of the operator."""
    people = "connect: {mode: user, schemes: [SCHEME]}, credentials: {appKey: {value: hunter2}}"
    login = (
        "login: {enabled: true, users: true}\nserver: {public_url: 'http://localhost'}\n"
        "auth: {mode: jwt}\nsecrets: {key: '${file:key}'}\n"
    )
    (folder / "key").write_text(base64.b64encode(bytes(32)).decode())
    for scheme, notes in (("Log_in", 1), ("LOGIN", 0)):
        sources = f"sources: {{guarded: {{{people.replace('SCHEME', scheme)}}}}}"
        (folder / "toolgate.yaml").write_text(login + sources)
        ran = with_guarded(*IMPORT, "--json")
        assert ran.code == 0, ran.err
        found = ran.json["notes"]
        assert len(found) == notes
        assert all("connect.schemes names Log_in, which no operation" in note for note in found)
