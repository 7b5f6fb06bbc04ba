"""`toolgate doctor` and `toolgate migrate`."""

import json
import re
from contextlib import ExitStack
from pathlib import Path

import anyio
import psycopg
import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings
from gateway.cli.doctor import local_checks as checkup
from gateway.cli.doctor import registry as registry_checks
from registry.database.own_state import LOCK
from tests.fixtures_gateway import pets
from tests.fixtures_servers import free_ports
from tests.gateway.cli.conftest import Toolgate, answering
from tests.servers.tls import Authority, https


@pytest.fixture
def free_port() -> str:
    return str(free_ports(1)[0])


def test_a_healthy_installation_passes(with_pets: Toolgate, free_port: str) -> None:
    with answering({}) as port:
        with_pets(
            *("import", "openapi", "pets.json", "--name", "pets"),
            *("--base-url", f"http://127.0.0.1:{port}"),
        )
        ran = with_pets("doctor", "--json", TOOLGATE_SERVER__PORT=free_port)
    assert ran.code == 0
    assert {check["name"]: check["status"] for check in ran.json} == dict.fromkeys(
        [
            *("python", "shadowing", "files", "settings", "port", "auth"),
            *("database", "migrations", "source", "lists", "embeddings"),
        ],
        "ok",
    )
    details = {check["name"]: check["detail"] for check in ran.json}
    assert details["port"] == f"127.0.0.1:{free_port} is free"
    assert re.fullmatch(r"PostgreSQL 1\d\S* \(database\.url\)", details["database"])
    assert details["source"] == f"pets: 5 tools; http://127.0.0.1:{port} can be reached"


def test_a_sealing_key_beside_the_sealed_data_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "seal").write_text("a secret of the operator\n")
    (tmp_path / "toolgate.yaml").write_text(
        "state: {backend: redis, redis_url: 'redis://127.0.0.1:1', secret: '${file:seal}'}"
    )
    given = load(str(tmp_path / "toolgate.yaml"), {}).state
    assert given.secret == "a secret of the operator"
    assert list(checkup.sealing(given)) == []
    assert list(checkup.sealing(load(None, {}).state)) == []  # nobody reads the memory
    [check] = checkup.sealing(replace(given, secret=""))
    assert (check.name, check.status) == ("sealing", "warning")
    assert "with a key in the redis backend" in check.detail


def test_a_source_at_a_refused_address_is_unhealthy(toolgate: Toolgate, folder: Path) -> None:
    document = {**pets(), "servers": [{"url": "http://127.0.0.1:9"}]}
    (folder / "pets.json").write_text(json.dumps(document))
    assert toolgate("import", "openapi", "pets.json", "--name", "pets").code == 0
    [check] = [one for one in toolgate("doctor", "--json").json if one["name"] == "source"]
    assert check["status"] == "warning"
    assert "calls are refused: http://127.0.0.1:9 is a private address" in check["detail"]
    assert "set sources.pets.base_url" in check["detail"]


def test_a_list_that_no_model_can_read_is_told(
    with_pets: Toolgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        registry_checks, "LARGE_LIST", 100
    )  # instead of a description of a megabyte
    [check] = [one for one in with_pets("doctor", "--json").json if one["name"] == "lists"]
    assert check["status"] == "warning"
    assert "more than most models can read: serve parts of it as `toolsets`" in check["detail"]


def test_in_a_pipe_every_check_is_a_line(with_pets: Toolgate, free_port: str) -> None:
    ran = with_pets("doctor", TOOLGATE_SERVER__PORT=free_port)
    assert ran.code == 0
    assert all(re.match(r"(ok|warning) +[a-z]+ +\S", line) for line in ran.out.splitlines())
    assert "http://127.0.0.1:9 cannot be reached: connection refused" in ran.out


def test_services_in_python_and_keys_are_looked_at(bare: Toolgate, folder: Path) -> None:
    settings = {
        "TOOLGATE_DATABASE__URL": "postgresql://x:9",
        "TOOLGATE_SOURCES__GOOD__PYTHON": "good.py",
        "TOOLGATE_SOURCES__BAD__PYTHON": "bad.py",
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_AUTH__KEY_FILE": "key.pem",
    }
    folder.joinpath("good.py").write_text(
        "from gateway import hybrid\n\n@hybrid.action('a/b/c/1')\ndef c(data): ...\n"
    )
    folder.joinpath("bad.py").write_text("import nothing_of_this_name\n")
    folder.joinpath("key.pem").write_text("no key")
    ran = bare("doctor", "--json", **settings)
    found = {(c["name"], c["status"]): c["detail"] for c in ran.json}
    assert ran.code == 1
    assert found["source", "ok"] == "good: 1 actions in Python"
    assert "bad.py:1: ModuleNotFoundError" in found["source", "failed"]
    assert "nothing_of_this_name" in found["source", "failed"]
    assert "auth.key_file" in found["auth", "failed"]


def test_patterns_of_a_service_in_python_that_match_nothing_are_told(
    bare: Toolgate, folder: Path
) -> None:
    folder.joinpath("good.py").write_text(
        "from gateway import hybrid\n\n@hybrid.action('a/b/c/1')\ndef c(data): ...\n"
    )
    folder.joinpath("toolgate.yaml").write_text(
        "database: {url: 'postgresql://x:9'}\nsources: {good: {python: good.py, include: [x]}}\n"
    )
    found = [c for c in bare("doctor", "--json").json if c["name"] == "source"]
    assert [(c["status"], c["detail"]) for c in found] == [
        ("warning", "good: the pattern 'x' matches no action"),
        ("ok", "good: 0 actions in Python"),
    ]


def test_a_port_in_use_names_its_owner(bare: Toolgate, folder: Path) -> None:
    def port_check(port: int) -> dict[str, str]:
        settings = {
            "TOOLGATE_SERVER__PORT": str(port),
            "TOOLGATE_DATABASE__URL": "postgresql://x:9",
        }
        [check] = [c for c in bare("doctor", "--json", **settings).json if c["name"] == "port"]
        return dict(check)

    with answering({"/": json.dumps({"name": "toolgate"}).encode()}) as port:
        assert port_check(port)["detail"] == f"a gateway serves at 127.0.0.1:{port}"
    for body in (b"hello", b"[]"):
        with answering({"/": body}) as port:
            check = port_check(port)
        assert check["status"] == "warning"
        assert "address already in use; choose another one with server.port" in check["detail"]


def test_foreign_modules_with_our_names_are_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "schemas").mkdir()
    (folder / "schemas" / "__init__.py").touch()
    (folder / "registry").mkdir()  # not importable before ours: it has no __init__.py
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.py").touch()
    monkeypatch.syspath_prepend(elsewhere)
    checks = list(checkup.shadows())
    assert {check.status for check in checks} == {"warning"}
    assert [check.detail.split()[0] for check in checks] == [
        str(elsewhere / "config.py"),
        str(folder / "schemas" / "__init__.py"),
    ]


def test_wrong_settings_are_one_failed_check_each(bare: Toolgate, folder: Path) -> None:
    (folder / "toolgate.yaml").write_text("server: {prot: 1}\nmcp: {page_size: 0}\n")
    ran = bare("doctor", "--json")
    assert ran.code == 1
    failed = [check for check in ran.json if check["status"] == "failed"]
    assert [check["name"] for check in failed] == ["settings", "settings"]
    assert "toolgate.yaml:1: server.prot: there is no such setting" in failed[0]["detail"]
    assert {check["name"] for check in ran.json} >= {"python", "shadowing", "files"}


def test_an_unreachable_database_is_a_failed_check(bare: Toolgate, folder: Path) -> None:
    ran = bare("doctor", TOOLGATE_DATABASE__URL="postgresql://me:hidden@127.0.0.1:9/x")
    assert ran.code == 1
    assert re.search(r"^failed +database +cannot reach the database: ", ran.out, re.MULTILINE)
    assert "hidden" not in ran.out


def test_a_statement_that_fails_is_a_failed_check(
    with_pets: Toolgate, database_settings: DatabaseSettings
) -> None:
    with psycopg.connect(database_settings.url, autocommit=True) as connection:
        connection.execute("DROP TABLE tool_t CASCADE")
    ran = with_pets("doctor", "--json")
    failed = [check for check in ran.json if check["status"] == "failed"]
    assert (ran.code, [check["name"] for check in failed]) == (1, ["database"])
    assert "tool_t" in failed[0]["detail"]


def test_doctor_sums_up_at_a_terminal(bare: Toolgate, folder: Path) -> None:
    ran = bare("doctor", TOOLGATE_DATABASE__URL="postgresql://127.0.0.1:9/x", FORCE_COLOR="1")
    assert "✗" in ran.out
    assert ran.out.rstrip().endswith("1 failed")


def test_migrations_are_pending_until_applied_by_migrate(
    bare: Toolgate, folder: Path, empty_settings: DatabaseSettings
) -> None:
    settings = {"TOOLGATE_DATABASE__URL": empty_settings.url}
    [pending] = [c for c in bare("doctor", "--json", **settings).json if c["name"] == "migrations"]
    assert pending["status"] == "warning"
    assert "`toolgate migrate` now" in pending["detail"]

    status = bare("migrate", "--status", "--json", **settings).json
    assert status["applied"] == []
    assert [one["applied"] for one in status["migrations"]] == [None] * len(status["migrations"])
    shown = bare("migrate", "--status", **settings).out
    assert re.search(r"^registry +0001_tenants_and_sources +pending$", shown, re.M)

    ran = bare("migrate", **settings)
    assert ran.code == 0
    assert "Applied now: registry/0001_tenants_and_sources, " in ran.out
    assert "Applied now: nothing, the database is up to date." in bare("migrate", **settings).out


@pytest.mark.parametrize(
    "command", [["migrate"], ["migrate", "--status"], ["serve"], ["doctor"], ["sources", "list"]]
)
def test_a_database_of_a_development_version_is_refused_by_name(
    bare: Toolgate, folder: Path, empty_settings: DatabaseSettings, command: list[str]
) -> None:
    with psycopg.connect(empty_settings.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE schema_version_t (version integer PRIMARY KEY)")
    ran = bare(*command, TOOLGATE_DATABASE__URL=empty_settings.url, TOOLGATE_SERVER__PORT="0")
    assert ran.code != 0
    told = " ".join((ran.out + ran.err).split())
    assert "made by a development version of Toolgate" in told
    assert "Start with an empty one" in told
    assert "Traceback" not in told


def test_functions_and_scripts_are_tried(
    toolgate: Toolgate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "checked_functions.py").write_text("def one(a: int): ...\n")
    monkeypatch.syspath_prepend(str(folder))
    (folder / "toolgate.yaml").write_text(
        "functions: {one: 'checked_functions:one', two: 'checked_functions:two'}\n"
        "scripts: {enabled: true, time_s: 60}\n"
    )
    checks = toolgate("doctor", "--json").json
    details = {one["detail"]: one["status"] for one in checks if one["name"] == "function"}
    assert list(details.values()) == ["ok", "failed"]
    assert "has no function two" in list(details)[1]
    scripts = [one for one in checks if one["name"] == "scripts"]
    assert [one["detail"].split()[0] for one in scripts] == ["python", "javascript"]
    for one in scripts:  # not everywhere are there namespaces, and a Node.js
        assert ("runs in a sandbox" in one["detail"]) == (one["status"] == "ok")


def test_scripts_that_are_off_are_counted(toolgate: Toolgate, folder: Path) -> None:
    (folder / "one.py").write_text("def main(arguments): return 1\n")
    script = ("--description", "One", "--script", "one.py", "--language", "python")
    assert toolgate("tools", "add", "one", *script).code == 0
    assert scripts_of(toolgate) == [
        ("warning", "1 script tool, but scripts are off (scripts.enabled)")
    ]
    assert toolgate("tools", "add", "two", *script).code == 0
    assert scripts_of(toolgate)[0][1].startswith("2 script tools, but scripts are off")
    (folder / "toolgate.yaml").write_text("scripts: {enabled: true, time_s: 60}\n")
    assert not any("scripts are off" in detail for _, detail in scripts_of(toolgate))


def scripts_of(toolgate: Toolgate) -> list[tuple[str, str]]:
    checks = toolgate("doctor", "--json").json
    return [(one["status"], one["detail"]) for one in checks if one["name"] == "scripts"]


@pytest.mark.anyio
async def test_a_gateway_over_tls_is_recognised(folder: Path) -> None:
    """The port of the own gateway is no foreign one because it speaks TLS (mending 43)."""
    certificate, key = Authority(folder).sign("gateway")
    body = json.dumps({"name": "toolgate"}).encode()
    async with https((certificate, key), body=body) as (url, _):
        port = url.rpartition(":")[2]
        settings = load(
            None,
            {
                "TOOLGATE_SERVER__PORT": port,
                "TOOLGATE_SERVER__TLS__CERT": str(certificate),
                "TOOLGATE_SERVER__TLS__KEY": str(key),
            },
        )
        check = await anyio.to_thread.run_sync(checkup.port, settings.server)
    assert (check.status, check.detail) == ("ok", f"a gateway serves at 127.0.0.1:{port}")


def test_the_doctor_looks_at_wings_and_toolsets_before_the_first_start(
    bare: Toolgate, empty_settings: DatabaseSettings
) -> None:
    """Missing tables do not hide what the settings have wrong (mending 43)."""
    ran = bare(
        *("doctor", "--json"),
        TOOLGATE_DATABASE__URL=empty_settings.url,
        TOOLGATE_MEMORY__ENABLED="true",
        TOOLGATE_TOOLSETS='{"few": {"sources": ["pest"]}}',
    )  # fmt: skip
    found = {one["name"] for one in ran.json}
    assert {"migrations", "wing", "patterns"} <= found


@pytest.mark.parametrize(
    ("wing", "given"),
    [
        ("agent", {"TOOLGATE_AGENT__ENABLED": "true"}),
        (
            "knowledge",
            {"TOOLGATE_KNOWLEDGE__ENABLED": "true", "TOOLGATE_KNOWLEDGE__MODEL": "auto"},
        ),
    ],
)
def test_a_wing_without_its_model_is_a_warning(
    toolgate: Toolgate, wing: str, given: dict[str, str]
) -> None:
    checked = toolgate("config", "check", **given)
    assert checked.code == 0
    assert f"warning: {wing}: The strategy deepseek_single has no key" in checked.err
    key = {"TOOLGATE_MODELS__STRATEGIES__DEEPSEEK_SINGLE__API_KEY": "k"}
    assert "The strategy" not in toolgate("config", "check", **given, **key).err


def test_gateways_with_state_of_their_own_are_counted(
    with_pets: Toolgate, database_settings: DatabaseSettings
) -> None:
    def state_checks() -> list[str]:
        checks = with_pets("doctor", "--json").json
        return [check["detail"] for check in checks if check["name"] == "state"]

    with ExitStack() as gateways:
        for number in range(2):
            assert state_checks() == []
            connection = gateways.enter_context(psycopg.connect(database_settings.url))
            connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", [LOCK, number])
        [detail] = state_checks()
    assert detail.startswith("2 gateways run on this database, each with sessions")
    assert state_checks() == []


def test_approvals_that_no_key_may_decide_are_a_warning(with_pets: Toolgate, folder: Path) -> None:
    """The four-eyes principle: the maker of both keys is the same."""

    def approval_checks() -> list[str]:
        checks = with_pets("doctor", "--json").json
        return [check["detail"] for check in checks if check["name"] == "approvals"]

    for name in ("agent", "approver"):
        assert with_pets("keys", "create", name, "--scope", "admin").code == 0
    (folder / "toolgate.yaml").write_text("auth: {mode: keys}\n")
    assert approval_checks() == []
    rule = "policy: {rules: {ask: {tools: [getPet], effect: approve}}}\n"
    (folder / "toolgate.yaml").write_text("auth: {mode: keys}\n" + rule)
    [detail] = approval_checks()
    assert "(command line) made all keys" in detail
    assert "toolgate keys create approver" in detail
