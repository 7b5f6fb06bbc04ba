"""What commands leave in the audit log."""

import json
from pathlib import Path

import pytest

from gateway.cli.common.acts import actor
from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate


@pytest.fixture
def settings_file(folder: Path) -> Path:
    (folder / "pets.json").write_text(json.dumps(pets()))
    file = folder / "toolgate.yaml"
    file.write_text("embedding: {provider: disabled}\naudit: {mode: always}\n")
    return file


def test_commands_are_audited(
    toolgate: Toolgate, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRETS__KEY", "A" * 43 + "=")
    made = toolgate("keys", "create", "ci", "--json").json
    commands = [
        ("policy", "put", "quiet", '{"effect": "deny", "tools": ["x"]}'),
        ("policy", "remove", "quiet", "--yes"),
        ("keys", "revoke", "ci"),
        ("token", "revoke", "--sub", "eve"),
        ("secrets", "set", "pets", "key", "--value", "s3cret", "--force"),
        ("secrets", "remove", "pets", "key", "--yes"),
        ("import", "openapi", str(settings_file.with_name("pets.json")), "--name", "pets"),
        ("tools", "disable", "getPet"),
        ("sources", "remove", "pets", "--yes"),
    ]
    for command in commands:
        ran = toolgate(*command)
        assert ran.code == 0, (command, ran.err)
    absent = [
        ("approvals", "approve", "none"),
        ("secrets", "remove", "a", "b", "--yes"),
        ("policy", "remove", "none", "--yes"),
        ("sources", "remove", "none", "--yes"),
    ]
    for command in absent:
        assert toolgate(*command).code == 1, command
    found = toolgate("audit", "search", "--json").json
    assert {(one["front"], one["principal"]) for one in found} == {("cli", actor())}
    assert [(one["method"], one["subject"], one["outcome"]) for one in found][::-1] == [
        ("createKey", "ci", "ok"),
        ("putRule", "quiet", "ok"),
        ("deleteRule", "quiet", "ok"),
        ("revokeKey", made["key"]["id"], "ok"),
        ("revokeTokens", "eve", "ok"),
        ("putSecret", "pets/key", "ok"),
        ("deleteSecret", "pets/key", "ok"),
        ("importSource", "pets", "ok"),
        ("disableTool", "getPet", "ok"),
        ("deleteSource", "pets", "ok"),
        ("decide", "none", "404"),
        ("deleteSecret", "a/b", "404"),
        ("deleteRule", "none", "404"),
        ("deleteSource", "none", "404"),
    ]
    assert "s3cret" not in str(found)
    assert toolgate("audit", "verify").code == 0
