"""`toolgate secrets`: stored and used, and never shown again."""

import base64
import json
from pathlib import Path

import pytest

from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.test_credentials import DESCRIPTION, IMPORT, credential_checks

CANARY = "hunter2-canary"
KEY = {"TOOLGATE_SECRETS__KEY": base64.b64encode(bytes(32)).decode()}
SET = ("secrets", "set", "guarded")
OTHER = {"TOOLGATE_SECRETS__KEY": base64.b64encode(bytes([1]) * 32).decode()}


def test_secrets_are_stored_used_and_removed_without_being_shown(
    toolgate: Toolgate, folder: Path
) -> None:
    (folder / "guarded.json").write_text(json.dumps(DESCRIPTION))
    said = [
        toolgate("secrets", "list", **KEY),
        toolgate(*SET, "appKey", "--force", stdin=f"{CANARY}\n", **KEY),
        toolgate(*SET, "login", "--force", "--username", "me", stdin=CANARY, **KEY),
        toolgate(*IMPORT, **KEY),
        toolgate("secrets", "list", **KEY),
        toolgate("secrets", "list", "--json", **KEY),
        toolgate("sources", "show", "guarded", **KEY),
        toolgate("sources", "show", "guarded", "--json", **KEY),
        toolgate("config", "show", **KEY),
    ]
    assert [ran.code for ran in said] == [0] * len(said)
    assert CANARY not in str(said)
    assert KEY["TOOLGATE_SECRETS__KEY"] not in str(said)
    assert said[0].out == ""
    assert said[1].out == "Stored the secret appKey of guarded.\n"
    assert "without credentials" not in said[3].out  # the import knows of them
    assert [(one["scheme"], one["kind"]) for one in said[5].json] == [
        ("appKey", "value"), ("login", "username"),
    ]  # fmt: skip
    assert said[7].json["credentials"] == {"appKey": True, "login": True}
    wrong = toolgate("secrets", "set", "guarded", "appKey", stdin=CANARY, **OTHER)
    assert (wrong.code, CANARY in wrong.err) == (1, False)
    assert "is secrets.key the right one?" in wrong.err
    assert toolgate("secrets", "rotate", **OTHER).code == 1
    old = {"TOOLGATE_SECRETS__OLD_KEYS": f'["{KEY["TOOLGATE_SECRETS__KEY"]}"]'}
    rotated = toolgate("secrets", "rotate", **OTHER, **old)
    assert rotated.out == "Encrypted 2 with secrets.key.\n"
    assert toolgate("secrets", "remove", "guarded", "appKey", "--yes", **OTHER).code == 0
    gone = toolgate("secrets", "remove", "guarded", "appKey", "--yes", **OTHER)
    assert gone.code == 1
    assert "There is no secret 'guarded/appKey'. `toolgate secrets list` lists" in gone.err
    assert credential_checks(lambda *args: toolgate(*args, **OTHER))[0][0] == "warning"


def test_a_secret_of_a_source_that_is_not_there_needs_force(
    toolgate: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text("sources: {guarded: {openapi: guarded.json}}")
    ran = toolgate("secrets", "set", "gaurded", "appKey", stdin=CANARY, **KEY)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "toolgate: There is no source 'gaurded' in the settings or the registry. Did you mean "
        "guarded? Add --force to store it anyway.\n"
    )
    assert toolgate("secrets", "list", **KEY).out == ""
    forced = toolgate("secrets", "set", "gaurded", "appKey", "--force", stdin=CANARY, **KEY)
    assert forced.out == "Stored the secret appKey of gaurded.\n"
    assert toolgate(*SET, "anything", stdin=CANARY, **KEY).code == 0  # nobody knows yet


def test_a_secret_that_no_tool_asks_for_needs_force(toolgate: Toolgate, folder: Path) -> None:
    (folder / "guarded.json").write_text(json.dumps(DESCRIPTION))
    assert toolgate(*IMPORT, **KEY).code == 0
    ran = toolgate(*SET, "appKye", stdin=CANARY, **KEY)
    assert (ran.code, ran.out) == (1, "")
    assert "No tool of guarded uses 'appKye', only " in ran.err
    assert "Did you mean appKey? Add --force to store it anyway." in ran.err
    for scheme in ("appKey", "APPKEY"):  # as a variable of the environment would spell it
        assert toolgate(*SET, scheme, stdin=CANARY, **KEY).code == 0
    assert toolgate(*SET, "appKye", "--force", stdin=CANARY, **KEY).code == 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (["--value", "-", "--token", "-"], "x", "found --value and --token"),
        ([], "", "expected the value on standard input"),
        (["--client-id", "a"], "", "expected the client secret on standard input"),
        ([], "x" * 65_537, "expected at most 65536 characters as the value"),
    ],
)
def test_invalid_secrets_are_refused_before_the_database_is_opened(
    bare: Toolgate, arguments: list[str], stdin: str, expected: str
) -> None:
    ran = bare("secrets", "set", "pets", "key", *arguments, stdin=stdin, **KEY)
    assert ran.code == 2
    assert expected in ran.err
