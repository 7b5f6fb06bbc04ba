"""A gateway that takes other sources while it runs."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import Guardrail, Rate, Rule
from config.reload import needing_restart, reload_settings
from config.settings import Profile, Settings, Toolset
from config.sources import SourceSettings
from gateway.app.gateway import Gateway
from gateway.app.upstreams import load_services
from schemas.errors import ToolgateError, TooManyRequests
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, META, MODERN, Client, Recorder, running
from tests.gateway.portal import COMMAND, DATA, Portal, legacy, portal, service, with_rules
from tests.polling import until
from tests.servers import rules

pytestmark = pytest.mark.anyio


def write_service(folder: Path, answer: str, name: str = "more.py") -> SourceSettings:
    """A service with one action, which gives `answer`."""
    path = folder / name
    path.write_text(
        "from gateway import hybrid\n"
        f"@hybrid.action({service('more')!r})\n"
        f"def more(data):\n    return {answer!r}\n"
    )
    return SourceSettings(python=str(path))


def adding(settings: Settings, **sources: SourceSettings) -> Settings:
    return replace(settings, sources={**settings.sources, **sources})


async def more(client: Client) -> Any:
    return (await Portal(client).post(COMMAND, legacy("more"))).brief


async def test_a_service_is_added_with_its_tools(settings: Settings, tmp_path: Path) -> None:
    async with running(settings) as client:
        assert (await more(client))[0] == 400
        session = await client.session()
        await client.gateway.reconfigure(adding(settings, more=write_service(tmp_path, "added")))

        async def is_loaded() -> bool:  # the catalog follows the notice of the database
            return (await more(client))[0] != 400

        await until(is_loaded)
        assert await more(client) == (200, "added")
        listed = (await session.call("tools/list"))["result"]["tools"]
        assert "rule_more" in [tool["name"] for tool in listed]
        called = await session.call("tools/call", {"name": "rule_more", "arguments": {}})
        assert called["result"]["content"][0]["text"] == "added"


async def test_a_service_that_cannot_be_loaded_changes_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1/0")
    wanted = adding(
        settings,
        more=write_service(tmp_path, "added"),
        broken=SourceSettings(python=str(broken)),
    )
    async with portal(settings) as to:
        before = to.client.gateway.settings
        with pytest.raises(ToolgateError, match=r"sources\.broken\.python: .*ZeroDivisionError"):
            await to.client.gateway.reconfigure(wanted)
        assert to.client.gateway.settings is before
        assert (await to.post(COMMAND, legacy("deleteRule", data=DATA))).brief == (200, "OK")
        assert (await more(to.client))[0] == 400


async def test_loaded_services_stay_loaded(settings: Settings, tmp_path: Path) -> None:
    """Its module may hold state; new code takes a restart."""
    wanted = adding(settings, more=write_service(tmp_path, "first"))
    async with running(wanted) as client:
        write_service(tmp_path, "second")
        await client.gateway.reconfigure(wanted)
        assert await more(client) == (200, "first")
        moved = adding(settings, more=write_service(tmp_path, "third", "moved.py"))
        await client.gateway.reconfigure(moved)
        assert await more(client) == (200, "third")


async def test_a_service_that_is_taken_away_is_not_called_any_more(settings: Settings) -> None:
    rules.state = rules.State()
    async with running(with_rules(settings)) as client:
        await client.gateway.reconfigure(settings)
        found = await Portal(client).post(COMMAND, legacy("deleteRule", data=DATA))
    assert found.brief == (502, "ERR18502 502")
    assert rules.state.done == []


async def test_every_source_that_cannot_be_loaded_is_named(settings: Settings) -> None:
    nowhere = SourceSettings(python="/nowhere/rules.py")
    wanted = adding(settings, nowhere=nowhere, json=SourceSettings(python="json"))
    text = (
        r"^sources\.nowhere\.python: /nowhere/rules\.py: there is no such file\n"
        r"  sources\.json\.python: json has no actions: "
    )
    with pytest.raises(ToolgateError, match=text):
        Gateway(wanted)
    assert load_services(settings.sources) == {}


def with_policy(settings: Settings, **rules: Rule) -> Settings:
    return replace(settings, policy=replace(settings.policy, rules=rules))


async def list_names(client: Client, path: str = "/mcp") -> list[str]:
    """Names of the tools, by the modern revision."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    status, answer, _ = await client.post(path, request, sent)
    return [tool["name"] for tool in answer["result"]["tools"]] if status == 200 else [str(status)]


async def call_method(client: Client, name: str, **arguments: Any) -> Any:
    return await client.rpc({"jsonrpc": "2.0", "id": 1, "method": name, "params": arguments})


async def test_changed_rules_apply_to_the_next_call_and_clients_are_notified(
    settings: Settings,
) -> None:
    async with running(settings) as client:
        gateway = client.gateway
        version = gateway.shared.hub.version(HOST, None)
        await gateway.reconfigure(with_policy(settings, no=Rule("deny", tools=("listPets",))))
        assert "listPets" not in await list_names(client)
        assert "error" in await call_method(client, "listPets")
        assert gateway.shared.hub.version(HOST, None) != version
        await gateway.reconfigure(settings)
        assert "result" in await call_method(client, "listPets")


async def test_a_running_call_continues_under_its_initial_rules(
    settings: Settings, service: Recorder
) -> None:
    answers: list[Any] = []

    async def slow(client: Client) -> None:
        answers.append(await call_method(client, "slow"))

    with anyio.fail_after(DEADLINE_S):
        async with running(settings) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(slow, client)
            await service.arrived.wait()
            await client.gateway.reconfigure(
                with_policy(settings, no=Rule("deny", tools=("slow",)))
            )
            assert "error" in await call_method(client, "slow")
            service.release.set()
    assert answers[0]["result"]["heard"]["path"] == "/slow"


async def test_calls_that_run_count_against_other_limits(
    settings: Settings, service: Recorder
) -> None:
    limits = replace(settings.limits, sources={"pets": Rate(concurrent=1)})
    async with running(settings) as client, anyio.create_task_group() as tasks:
        with anyio.fail_after(DEADLINE_S):
            await client.gateway.reconfigure(replace(settings, limits=limits))
            tasks.start_soon(call_method, client, "slow")
            await service.arrived.wait()
            wider = replace(limits, sources={"pets": Rate(concurrent=1, calls=100)})
            await client.gateway.reconfigure(replace(settings, limits=wider))
            refused = await call_method(client, "listPets")
            assert "at a time: at most 1" in refused["error"]["message"]
            await client.gateway.reconfigure(settings)
            assert "result" in await call_method(client, "listPets")
            service.release.set()


async def test_toolsets_come_change_and_go(settings: Settings) -> None:
    def having(**toolsets: Toolset) -> Settings:
        return replace(settings, toolsets=toolsets)

    async with running(settings) as client:
        assert await list_names(client, "/mcp/one") == ["404"]
        await client.gateway.reconfigure(having(one=Toolset(include=("getPet",))))
        assert await list_names(client, "/mcp/one") == ["getPet"]
        await client.gateway.reconfigure(having(one=Toolset(include=("listPets",))))
        assert await list_names(client, "/mcp/one") == ["listPets"]
        await client.gateway.reconfigure(settings)
        assert await list_names(client, "/mcp/one") == ["404"]


async def test_guardrails_and_profiles_change(settings: Settings) -> None:
    hides = Guardrail("result", "redact", fields=("heard.path",))
    short = Profile(name_limit=16, name_prefix="")
    changed = replace(
        settings,
        guardrails=replace(settings.guardrails, rules={"paths": hides}),
        profiles=replace(settings.profiles, default="short", custom={"short": short}),
    )
    async with running(settings) as client:
        assert (await call_method(client, "listPets"))["result"]["heard"]["path"] == "/pets"
        await client.gateway.reconfigure(changed)
        assert (await call_method(client, "listPets"))["result"]["heard"].get("path") != "/pets"
        assert client.gateway.catalogs.shaper.profiles.default.name == "short"
        assert await list_names(client, "/mcp?profile=short") == await list_names(client)


async def test_settings_needing_a_restart_are_named_and_unchanged(settings: Settings) -> None:
    wanted = replace(
        settings,
        server=replace(settings.server, port=1),
        limits=replace(settings.limits, headers=50, principal_calls=7),
        imports=replace(settings.imports, prune=True, files_limit=7),
    )
    assert needing_restart(settings, wanted) == [
        "server.port",
        "limits.headers",
        "imports.files_limit",
    ]
    found = reload_settings(settings, wanted)
    assert found.server == settings.server
    assert found.limits == replace(settings.limits, principal_calls=7)
    assert found.imports == replace(settings.imports, prune=True)
    assert needing_restart(settings, found) == []


async def test_bodies_on_their_way_have_the_bounds_of_the_new_settings(client: Client) -> None:
    settings, bounds = client.gateway.settings, client.gateway.access.bounds
    parts = bounds.protocol().parts
    limits = replace(settings.limits, buffered_body_bytes=4000, client_buffered_body_bytes=2000)
    await client.gateway.reconfigure(replace(settings, limits=limits))
    for budget in (parts, bounds.bodies):
        budget.take("192.0.2.1", 1500)
        with pytest.raises(TooManyRequests):
            budget.take("192.0.2.1", 1500)
