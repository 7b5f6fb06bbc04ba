"""`toolgate backup`, `restore` and `migrate --check`."""

from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from tests.gateway.cli.conftest import Toolgate

pytestmark = pytest.mark.usefixtures("folder")


def test_a_restored_gateway_has_the_tools_of_the_first(
    bare: Toolgate, scratch: Path, description: Path
) -> None:
    def at(name: str) -> dict[str, str]:
        return {
            "TOOLGATE_DATABASE__DATA_DIR": str(scratch / name),
            "TOOLGATE_DATABASE__SYSTEM_USER": "nobody",
            "TOOLGATE_EMBEDDING__PROVIDER": "disabled",
        }

    file = str(scratch / "cli.backup")
    imported = bare(
        *("import", "openapi", "pets.json", "--name", "pets", "--base-url", "http://127.0.0.1:9"),
        **at("first"),
    )
    assert imported.code == 0, imported.err
    written = bare("backup", file, **at("first"))
    assert written.code == 0, written.err
    assert "already" in bare("backup", file, **at("first")).err
    restored = bare("restore", file, **at("second"))
    assert (restored.code, "none were pending" in restored.out) == (0, True), restored.err
    tools = bare("tools", "list", "--json", **at("second")).json
    assert tools == bare("tools", "list", "--json", **at("first")).json
    assert len(tools) == 5
    refused = bare("restore", file, **at("second"))
    assert (refused.code, "is not empty" in refused.err) == (3, True)


def test_pending_migrations_fail_the_check(
    bare: Toolgate, empty_settings: DatabaseSettings
) -> None:
    url = {"TOOLGATE_DATABASE__URL": empty_settings.url}
    pending = bare("migrate", "--check", **url)
    assert (pending.code, "are pending: run `toolgate migrate`" in pending.err) == (1, True)
    assert bare("migrate", **url).code == 0
    done = bare("migrate", "--check", "--json", **url)
    assert (done.code, done.json["applied"]) == (0, [])
