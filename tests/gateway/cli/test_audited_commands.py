"""What commands leave in the audit log."""

import json
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from config.settings import Settings
from gateway.audit.verification import verify
from gateway.cli.common.audited_commands import AuditedCommand, actor
from gateway.cli.common.database import open_registry
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
    found = [record["entry"] for record in toolgate("audit", "search", "--json").json]
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


def test_a_command_writes_one_chain(toolgate: Toolgate, settings_file: Path) -> None:
    """All changes of one command are records of one chain, in their order (mending b)."""
    document = str(settings_file.with_name("pets.json"))
    assert toolgate("import", "openapi", document, "--name", "pets").code == 0
    before = toolgate("audit", "verify", "--json").json
    names = ["getPet", "listPets", "createPet"]
    assert toolgate("tools", "disable", *names).code == 0
    after = toolgate("audit", "verify", "--json").json
    assert after["problems"] == []
    assert len(after["heads"]) == len(before["heads"]) + 1
    (head,) = [head for head in after["heads"] if head not in before["heads"]]
    assert head["sequence"] == len(names)
    recorded = toolgate("audit", "search", "--limit", "3", "--json").json
    assert [record["entry"]["subject"] for record in recorded] == names[::-1]


@pytest.mark.anyio
async def test_a_record_that_was_not_stored_stays_in_the_chain(settings: Settings) -> None:
    """A chain that the database refused for a while has all records of the command (mending b)."""
    settings = replace(settings, audit=replace(settings.audit, mode="always"))
    async with open_registry(settings) as registry:
        pool = registry.database.pool

        async def rename(name: str, new: str) -> None:
            statement = sql.SQL("ALTER TABLE {} RENAME TO {}")
            async with pool.connection() as connection:
                await connection.execute(
                    statement.format(sql.Identifier(name), sql.Identifier(new))
                )

        await registry.trail.add(AuditedCommand("createKey", "a").entry(settings, "ok"))
        await rename("audit_t", "absent_t")
        try:
            with pytest.raises(psycopg.Error):
                await registry.trail.add(AuditedCommand("createKey", "b").entry(settings, "ok"))
        finally:
            await rename("absent_t", "audit_t")
    async with open_registry(settings) as registry:
        report = await verify(registry.database.pool, registry.host_id, b"")
    assert (report.problems, report.records, len(report.heads)) == ([], 2, 1)
