"""`toolgate serve`: what it announces, refuses and does until its last moment."""

import asyncio
import json
import os
import pty
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from config.settings import DatabaseSettings
from tests.fixtures_database import Cluster
from tests.fixtures_gateway import Recorder, pets
from tests.fixtures_servers import serving as serving_app
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.processes import DEADLINE_S, Served, environment, ran, serving
from tests.recycling import Recycling

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
SLOW = {"jsonrpc": "2.0", "id": 1, "method": "slow"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module, as `shared` is used by several tests


def write_settings(folder: Path, service: Recorder) -> Path:
    """The file with the settings: they name the source `pets`, whose service is `service`."""
    (folder / "pets.json").write_text(json.dumps(pets()))
    file = folder / "toolgate.yaml"
    file.write_text(f"sources: {{pets: {{openapi: pets.json, base_url: '{service.url}'}}}}")
    return file


@pytest.fixture
def settings_file(folder: Path, service: Recorder) -> Path:
    return write_settings(folder, service)


@dataclass(frozen=True)
class Shared:
    """A gateway for the tests of reloads, and of what changes nothing."""

    gateway: Served
    file: Path
    service: Recorder


@pytest.fixture(scope="module")
async def started_gateway(
    cluster: Cluster, recycling: Recycling, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Shared]:
    service, database = Recorder(), recycling.take()
    url = {"TOOLGATE_DATABASE__URL": database.url, "TOOLGATE_EMBEDDING__PROVIDER": "disabled"}
    async with serving_app(service) as service.url:
        file = write_settings(tmp_path_factory.mktemp("shared"), service)
        async with serving("--config", str(file), **url) as gateway:
            await gateway.ready()
            yield Shared(gateway, file, service)
            assert (await gateway.stop())[0] == 0
    recycling.give_back(database)


@pytest.fixture
async def shared_gateway(started_gateway: Shared) -> AsyncIterator[Shared]:
    """The gateway with the settings that it began with."""
    yield started_gateway
    write_settings(started_gateway.file.parent, started_gateway.service)
    await reload_settings(started_gateway.gateway)


@pytest.fixture
async def gateway(
    settings_file: Path, database_settings: DatabaseSettings
) -> AsyncIterator[Served]:
    """A gateway for a test that ends it."""
    url = database_settings.url
    async with serving(
        TOOLGATE_DATABASE__URL=url, TOOLGATE_EMBEDDING__PROVIDER="disabled"
    ) as gateway:
        await gateway.ready()
        yield gateway


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(DEADLINE_S)) as http:
        yield http


async def rpc(http: aiohttp.ClientSession, gateway: Served, body: Any) -> Any:
    async with http.post(gateway.url + "/rpc", json=body) as response:
        return await response.json()


async def test_serve_announces_the_mcp_address_first_and_counts(
    settings_file: Path, database_settings: DatabaseSettings, http: aiohttp.ClientSession
) -> None:
    async with serving(TOOLGATE_DATABASE__URL=database_settings.url) as gateway:
        await gateway.ready()
        await check_announcement(gateway, http)


async def check_announcement(gateway: Served, http: aiohttp.ClientSession) -> None:
    assert await gateway.line() == (
        f"5 tools · JSON-RPC at {gateway.url}/rpc · 2024-11-05 clients at {gateway.url}/mcp/sse"
    )
    async with http.get(gateway.url + "/ready") as response:
        assert await response.json() == {
            "status": "ok",
            "database": "ok",
            "catalog": "ok",
            "embeddings": "ok",
            "sources": {"pets": "ok"},
        }
    answer = await rpc(http, gateway, {"jsonrpc": "2.0", "id": 1, "method": "listPets"})
    assert answer["result"]["heard"]["path"] == "/pets"
    async with http.get(gateway.url + "/metrics") as response:
        families = {f.name: f for f in text_string_to_metric_families(await response.text())}
    [count] = [s.value for s in families["toolgate_requests"].samples if s.name.endswith("_total")]
    assert count == 1
    [tools] = families["toolgate_tools"].samples
    assert tools.value == 5


async def test_header_error_and_log_name_the_same_request(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway = shared_gateway.gateway
    body = {"jsonrpc": "2.0", "id": 1, "method": "getPet", "params": {}}
    async with http.post(gateway.url + "/rpc", json=body) as response:
        id_ = response.headers["X-Request-Id"]
        assert (await response.json())["error"]["data"]["requestId"] == id_
    assert (await gateway.event("request_failed"))["request_id"] == id_


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
async def test_a_signal_lets_calls_finish_and_ends_streams(
    gateway: Served, http: aiohttp.ClientSession, service: Recorder, number: signal.Signals
) -> None:
    stream = await http.get(gateway.url + "/mcp/sse")
    assert await stream.content.readline() == b"event: endpoint\n"
    call = asyncio.create_task(rpc(http, gateway, SLOW))
    await service.arrived.wait()
    gateway.process.send_signal(number)
    await gateway.event("stopping", signal=number.name)
    await stream.read()  # to its end, while the call still runs
    assert not call.done()
    service.release.set()
    assert (await call)["result"]["heard"]["path"] == "/slow"
    code, log = await gateway.stop(0)
    assert code == 0
    assert '"event": "stopped"' in log
    assert "Traceback" not in log


async def test_a_second_signal_cuts_calls_off(
    gateway: Served, http: aiohttp.ClientSession, service: Recorder
) -> None:
    call = asyncio.create_task(rpc(http, gateway, SLOW))
    await service.arrived.wait()
    gateway.process.send_signal(signal.SIGINT)
    await gateway.event("stopping")
    code, log = await gateway.stop(signal.SIGINT)
    assert code == 0
    assert "calls_aborted" in log
    assert "Traceback" not in log
    assert service.gone.is_set()
    with pytest.raises(aiohttp.ClientError):
        await call


def test_a_port_in_use_is_an_error_with_advice(bare: Toolgate, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = bare("serve", "--port", port)
    assert (ran.code, ran.out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}: address already in use." in ran.err
    assert "Choose another port with --port or server.port" in ran.err


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--host", "0.0.0.0"], "refusing to listen on 0.0.0.0: auth.mode is none"),
        (["--host", "::"], "Set auth.mode: jwt with auth.key_file, auth.jwks_file or"),
        (["--host", "::"], "server.allowed_hosts"),
    ],
)
def test_unsafe_settings_are_refused_with_the_reason(
    bare: Toolgate, folder: Path, args: list[str], reason: str
) -> None:
    ran = bare("serve", *args)
    assert ran.code == 2
    assert reason in ran.err


async def test_ipv6_loopback_is_served(folder: Path, database_settings: DatabaseSettings) -> None:
    settings = {"TOOLGATE_DATABASE__URL": database_settings.url}
    async with serving("--host", "::1", **settings) as gateway:
        await gateway.ready()
        assert gateway.url.startswith("http://[::1]:")
        assert (await gateway.stop())[0] == 0


async def test_a_database_that_waiting_cannot_mend_ends_serve(folder: Path) -> None:
    code, out, err = await ran(
        *("serve", "--port", "0"),
        TOOLGATE_DATABASE__URL="embedded",
        TOOLGATE_DATABASE__DATA_DIR=str(folder.parent),
    )
    assert (code, out) == (3, "")
    assert err.splitlines()[-1].startswith("toolgate: the data directory")
    assert "set database.data_dir to a directory" in err


async def reload_settings(gateway: Served) -> dict[str, Any]:
    gateway.process.send_signal(signal.SIGHUP)
    return await gateway.event("settings_reloaded")


async def test_a_hangup_takes_changed_sources(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway, settings_file, service = (
        shared_gateway.gateway,
        shared_gateway.file,
        shared_gateway.service,
    )
    settings_file.write_text(
        f"server: {{port: 1}}\n"
        f"logging: {{level: debug}}\n"
        f"upstream: {{python_threads: 3, timeout_s: 7}}\n"
        f"sources:\n"
        f"  pets: {{openapi: pets.json, base_url: '{service.url}/v2'}}\n"
        f"  more: {{openapi: pets.json, base_url: '{service.url}', include: [slow]}}\n"
    )
    assert (await reload_settings(gateway))["changed"] == [
        "server",
        "upstream",
        "logging",
        "sources",
    ]
    waiting = (await gateway.event("restart_required"))["changed"]
    assert waiting == ["server.port", "upstream.python_threads"]
    answer = await rpc(http, gateway, {"jsonrpc": "2.0", "id": 1, "method": "listPets"})
    assert answer["result"]["heard"]["path"] == "/v2/pets"
    names = await rpc(http, gateway, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert "more_slow" in [tool["name"] for tool in names["result"]["tools"]]
    assert (await reload_settings(gateway))["changed"] == ["server", "upstream"]  # they still wait


async def test_a_hangup_reads_the_descriptions_again(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway, settings_file = shared_gateway.gateway, shared_gateway.file
    settings_file.with_name("pets.json").write_text(json.dumps(pets(count=1)))
    assert (await reload_settings(gateway))["changed"] == []
    answer = await rpc(http, gateway, {"jsonrpc": "2.0", "id": 1, "method": "more_0000"})
    assert answer["result"]["heard"]["path"] == "/more/0000"


async def test_a_bad_file_leaves_the_old_settings_in_force(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway, settings_file = shared_gateway.gateway, shared_gateway.file
    settings_file.write_text("sources: {pets: {base_uri: http://x}}")
    gateway.process.send_signal(signal.SIGHUP)
    event = await gateway.event("settings_rejected")
    assert event["level"] == "error"
    assert "sources.pets.base_uri: there is no such setting" in event["reason"]
    answer = await rpc(http, gateway, {"jsonrpc": "2.0", "id": 1, "method": "listPets"})
    assert answer["result"]["heard"]["path"] == "/pets"


async def test_a_hangup_takes_rules_limits_and_toolsets(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway, settings_file = shared_gateway.gateway, shared_gateway.file
    before = settings_file.read_text()
    settings_file.write_text(
        f"{before}\n"
        "policy: {rules: {readers: {effect: deny, tools: [createPet]}}}\n"
        "limits: {sources: {pets: {calls: 1}}, headers: 50}\n"
        "toolsets: {one: {include: [getPet]}}\n"
    )
    assert (await reload_settings(gateway))["changed"] == ["policy", "limits", "toolsets"]
    assert (await gateway.event("restart_required"))["changed"] == ["limits.headers"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "listPets"}
    assert "result" in await rpc(http, gateway, call)
    assert "limits.sources" in (await rpc(http, gateway, call))["error"]["message"]
    listed = await rpc(http, gateway, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert "createPet" not in [tool["name"] for tool in listed["result"]["tools"]]
    async with http.get(gateway.url + "/mcp/one/sse") as stream:
        assert stream.status == 200
    settings_file.write_text(before)
    await reload_settings(gateway)
    assert "result" in await rpc(http, gateway, call)
    async with http.get(gateway.url + "/mcp/one/sse") as stream:
        assert stream.status == 404


async def test_a_mistake_anywhere_in_the_file_changes_nothing(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway, settings_file = shared_gateway.gateway, shared_gateway.file
    settings_file.write_text(
        f"{settings_file.read_text()}\n"
        "policy:\n  default: deny\n  rules:\n    odd: {effect: deny, when: 'tool.name =='}\n"
        "limits: {principal_calls: many}\n"
    )
    gateway.process.send_signal(signal.SIGHUP)
    reason = (await gateway.event("settings_rejected"))["reason"]
    assert "toolgate.yaml:6: limits.principal_calls: expected" in reason
    answer = await rpc(http, gateway, {"jsonrpc": "2.0", "id": 1, "method": "listPets"})
    assert "result" in answer


async def test_a_broken_service_is_reported_and_reloaded_when_mended(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway, settings_file = shared_gateway.gateway, shared_gateway.file
    service = settings_file.with_name("service.py")
    service.write_text("def broken(:")
    settings_file.write_text("sources: {own: {python: service.py}}")
    gateway.process.send_signal(signal.SIGHUP)
    event = await gateway.event("settings_rejected")
    assert "sources.own.python" in event["reason"]
    service.write_text(
        "from gateway import hybrid\n\n@hybrid.action('mended')\ndef mended(data):\n    return 1\n"
    )
    await reload_settings(gateway)
    answer = await rpc(http, gateway, {"jsonrpc": "2.0", "id": 1, "method": "mended"})
    assert answer["result"] == 1


async def serve_at_terminal(database: DatabaseSettings, *prefix: str) -> tuple[Served, int]:
    """A gateway whose session has a terminal, and the descriptor that keeps the terminal open."""
    master, slave = pty.openpty()
    words = (sys.executable, "-m", "tests.gateway.cli.at_terminal", os.ttyname(slave))
    path = {"PYTHONPATH": str(ROOT)} if prefix else {}  # of a new interpreter
    process = await asyncio.create_subprocess_exec(
        *(*prefix, *words, "serve", "--port", "0"),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env=environment(TOOLGATE_DATABASE__URL=database.url, **path),
        start_new_session=True,
    )
    os.close(slave)
    gateway = Served(process)
    await gateway.ready()
    return gateway, master


@pytest.mark.parametrize("ignored", [False, True], ids=["as usual", "under nohup"])
async def test_serve_ends_with_its_terminal_unless_under_nohup(
    folder: Path, database_settings: DatabaseSettings, ignored: bool
) -> None:
    gateway, master = await serve_at_terminal(database_settings, *(["nohup"] if ignored else []))
    os.close(master)
    if ignored:
        await gateway.event("settings_reloaded")
        assert (await gateway.stop())[0] == 0
    else:
        await gateway.event("stopping", signal="SIGHUP")
        assert (await gateway.stop(0))[0] == 0


async def test_a_closed_terminal_that_is_told_of_twice_cuts_nothing_off(
    settings_file: Path, database_settings: DatabaseSettings, service: Recorder
) -> None:
    """Kernel and shell both send SIGHUP, and the second one is no second wish to stop
    (mending 18)."""
    gateway, master = await serve_at_terminal(database_settings)
    async with aiohttp.ClientSession() as http:

        async def call_slow() -> Any:
            async with http.post(gateway.url + "/rpc", json=SLOW) as response:
                return await response.json()

        running = asyncio.create_task(call_slow())
        await service.arrived.wait()
        os.close(master)
        await gateway.event("stopping", signal="SIGHUP")
        gateway.process.send_signal(signal.SIGHUP)
        service.release.set()
        assert (await running)["result"]["heard"]["path"] == "/slow"
    assert (await gateway.stop(0))[0] == 0
