"""`toolgate database move` and `reopen`: an embedded database on a managed server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from registry.database.embedded_server import Embedded
from tests.fixtures_database import settings_for
from tests.gateway.cli.conftest import Toolgate

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def on_embedded(
    bare: Toolgate, scratch: Path, folder: Path, description: Path
) -> Iterator[Toolgate]:
    """Runs commands on an embedded database with five tools and a key, by a settings file. The
    server runs all the time, because each command would start it, and stop it."""
    (folder / "toolgate.yaml").write_text(
        "# ours\nembedding: {provider: disabled}\n"
        f"database:\n  data_dir: {scratch / folder.name}\n  system_user: nobody\n"
    )
    server = Embedded.start(settings_for(scratch / folder.name))
    ran = bare(
        *("import", "openapi", "pets.json", "--name", "pets", "--base-url", "http://127.0.0.1:9")
    )
    assert ran.code == 0, ran.err
    assert bare("keys", "create", "deploy").code == 0
    yield bare
    server.stop()


def test_an_embedded_database_moves_with_its_tools_keys_and_audit_log(
    on_embedded: Toolgate, empty_settings: DatabaseSettings, folder: Path
) -> None:
    """Issue 42, 7."""
    tools = on_embedded("tools", "list", "--json").json
    url = {"MANAGED_URL": empty_settings.url}
    settings = (folder / "toolgate.yaml").read_text()
    plan = on_embedded("database", "move", "--to", "${MANAGED_URL}", "--dry-run", **url)
    assert plan.code == 0, plan.err
    assert "tool_t" in plan.out
    assert "Would move" in plan.out
    assert (folder / "toolgate.yaml").read_text() == settings

    moved = on_embedded("database", "move", "--to", "${MANAGED_URL}", **url)
    assert moved.code == 0, moved.err
    assert "Wrote database.url to toolgate.yaml. Start the gateways again." in moved.out
    assert 'url: "${MANAGED_URL}"' in (folder / "toolgate.yaml").read_text()
    assert (folder / "toolgate.yaml").read_text().startswith("# ours\n")
    assert on_embedded("tools", "list", "--json", **url).json == tools
    assert "deploy" in on_embedded("keys", "list", **url).out
    assert on_embedded("audit", "verify", **url).code == 0

    old = {"TOOLGATE_DATABASE__URL": "embedded"}
    refused = on_embedded("tools", "list", **old, **url)
    assert (refused.code, "this database was moved to" in refused.err) == (3, True)
    reopened = on_embedded("database", "reopen", **old, **url)
    assert (reopened.code, reopened.out) == (0, "The database can be used again.\n")
    assert on_embedded("tools", "list", "--json", **old, **url).json == tools


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("postgresql://u:secret@127.0.0.1/x", "the list of processes shows a password"),
        ("postgresql://u:secret@${AT:-127.0.0.1}/x", "the list of processes shows a password"),
        ("mysql://127.0.0.1/x", "expected a URL such as postgresql://USER@HOST/NAME"),
        ("${NOT_SET}", "the environment variable NOT_SET is not set"),
        ("postgresql://u@127.0.0.1:1/x", "cannot reach the database"),
    ],
)
def test_an_unusable_target_is_refused(
    bare: Toolgate, target: str, reason: str, scratch: Path, empty_settings: DatabaseSettings
) -> None:
    ran = bare("database", "move", "--to", target, TOOLGATE_DATABASE__URL=empty_settings.url)
    assert ran.code in {2, 3}
    assert reason in ran.err
    assert "secret" not in ran.err
