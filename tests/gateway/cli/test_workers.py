"""`toolgate serve --workers`: several processes behind one socket act as one gateway."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from config.settings import DatabaseSettings
from tests.fixtures_database import Cluster
from tests.fixtures_gateway import Recorder, pets
from tests.fixtures_servers import serving as serving_app
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.processes import DEADLINE_S, Served, command, ran, serving
from tests.gateway.events import Events
from tests.gateway.portal import COMMAND, legacy
from tests.gateway.portal import service as service_id
from tests.polling import until
from tests.recycling import Recycling

pytestmark = pytest.mark.anyio

ALL_OK = {"0": "ok", "1": "ok"}
ACCEPT = {"Accept": "application/json, text/event-stream"}
STATELESS = {**ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
CLIENT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
KEPT_S = 600  # an idle connection, which would be made anew to any worker
RESUMING = CLIENT | {"protocolVersion": "2025-11-25"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "listPets"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module, as `shared` is used by several tests


@pytest.fixture
def settings_file(folder: Path, service: Recorder) -> Path:
    return write_settings(folder, service)


def write_settings(folder: Path, service: Recorder) -> Path:
    """The file with the settings, which name `service` as a source."""
    description = folder / "pets.json"
    description.write_text(json.dumps(pets()))
    file = folder / "toolgate.yaml"
    file.write_text(f"sources: {{pets: {{openapi: {description}, base_url: '{service.url}'}}}}")
    return file


@pytest.fixture
async def gateway(
    settings_file: Path, database_settings: DatabaseSettings
) -> AsyncIterator[Served]:
    often = {"TOOLGATE_EMBEDDING__POLL_S": "0.2"}
    async with workers("2", TOOLGATE_DATABASE__URL=database_settings.url, **often) as gateway:
        yield gateway


@dataclass(frozen=True)
class Shared:
    """A gateway of two workers, for the tests that leave it as it was."""

    gateway: Served
    file: Path
    database: DatabaseSettings
    service: Recorder

    async def reload(self, more: str, workers: int = 2) -> None:
        """Have all workers read the settings with this text at their end."""
        self.file.write_text(SHARED.format(workers, self.service.url) + more)
        self.gateway.process.send_signal(signal.SIGHUP)
        for _ in range(2):
            await self.gateway.event("settings_reloaded")


SHARED = """
server: {{workers: {}, keep_alive_s: 600}}
embedding: {{poll_s: 0.2}}
sources:
  pets: {{openapi: pets.json, base_url: '{}'}}
  portal: {{python: more.py}}
limits: {{tools: {{getPet: {{calls: 9, per_s: 3600}}}}}}
policy: {{rules: {{ask: {{effect: approve, tools: [deletePet]}}}}}}
"""
ACTION = """
import os
from gateway import hybrid

@hybrid.action({!r})
def more(data):
    return os.getpid()
"""


@pytest.fixture(scope="module")
async def shared_gateway(
    cluster: Cluster, recycling: Recycling, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Shared]:
    folder, recorder = tmp_path_factory.mktemp("shared"), Recorder()
    (folder / "pets.json").write_text(json.dumps(pets()))
    (folder / "more.py").write_text(ACTION.format(service_id("more")))
    file, database = folder / "toolgate.yaml", recycling.take()
    async with serving_app(recorder) as recorder.url:
        file.write_text(SHARED.format(2, recorder.url))
        url = {"TOOLGATE_DATABASE__URL": database.url}
        async with serving("--config", str(file), **url) as gateway:
            await gateway.ready()
            await wait_until_embedded(gateway)
            settings = replace(cluster.settings, url=database.url)
            yield Shared(gateway, file, settings, recorder)
            await gateway.stop()
        recycling.give_back(database)


@asynccontextmanager
async def workers(count: str, *args: str, **settings: str) -> AsyncIterator[Served]:
    async with serving("--workers", count, *args, **settings) as gateway:
        await gateway.ready()
        yield gateway
        await gateway.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """Each request has a connection of its own, and so reaches any of the workers."""
    connector = aiohttp.TCPConnector(force_close=True)
    timeout = aiohttp.ClientTimeout(DEADLINE_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield http


async def call(http: aiohttp.ClientSession, gateway: Served) -> Any:
    async with http.post(gateway.url + "/rpc", json=CALL) as response:
        return await response.json()


async def children(gateway: Served) -> set[int]:
    """Process ids of the two workers, once they and the process with the model run."""
    await until(lambda: len(processes(gateway)) == 4 and len(_listening(gateway)) == 2)
    return _listening(gateway)


def _listening(gateway: Served) -> set[int]:
    """Process ids of the workers: they have the socket of their supervisor that listens."""
    _supervisor, *others = processes(gateway)
    port = f":{int(gateway.url.rpartition(':')[2]):04X} 00000000:0000 0A "
    [line] = [one for one in Path("/proc/net/tcp").read_text().splitlines() if port in one]
    listener = f"socket:[{line.split()[9]}]"
    return {pid for pid in others if listener in _descriptors(pid)}


def _descriptors(pid: int) -> set[str]:
    found: set[str] = set()
    with suppress(OSError):  # it has ended
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                found.add(str(one.readlink()))
    return found


async def states(http: aiohttp.ClientSession, gateway: Served) -> dict[str, str]:
    async with http.get(gateway.url + "/ready") as response:
        workers: dict[str, str] = (await response.json())["workers"]
        return workers


async def all_ok(
    http: aiohttp.ClientSession, gateway: Served, expected: Mapping[str, str] = ALL_OK
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await states(http, gateway) != expected:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)  # imports of the same source may still run


async def wait_until_gone(pids: set[int]) -> None:
    await until(lambda: all(_has_ended(pid) for pid in pids))


def _has_ended(pid: int) -> bool:
    with suppress(OSError):
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()  # a zombie
    return True


async def test_any_worker_serves_any_session(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway = shared_gateway.gateway
    assert (await gateway.line()).endswith(" · 2 workers")
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}
    async with http.post(gateway.url + "/mcp", json=hello, headers=ACCEPT) as response:
        session = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"], **ACCEPT}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "listPets"}}
    for _ in range(20):
        async with http.post(gateway.url + "/mcp", json=body, headers=session) as response:
            assert response.status == 200, await response.text()
    handled = await requests_by_worker(http, gateway)
    assert sum(handled.values()) >= 20


async def requests_by_worker(http: aiohttp.ClientSession, gateway: Served) -> dict[str, float]:
    """Requests by worker."""
    async with http.get(gateway.url + "/metrics") as response:
        families = {f.name: f for f in text_string_to_metric_families(await response.text())}
    handled: dict[str, float] = {}
    for sample in families["toolgate_requests"].samples:
        if sample.name.endswith("_total"):
            worker = sample.labels["worker"]
            handled[worker] = handled.get(worker, 0) + sample.value
    return handled


async def test_metrics_and_readiness_speak_for_all_workers(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    await all_ok(http, shared_gateway.gateway)
    async with http.get(shared_gateway.gateway.url + "/metrics") as response:
        families = {f.name: f for f in text_string_to_metric_families(await response.text())}
    assert {sample.labels["worker"] for sample in families["toolgate_ready"].samples} == {"0", "1"}


async def test_a_killed_worker_is_replaced_and_calls_go_on(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway = shared_gateway.gateway
    before = await children(gateway)
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    assert (await gateway.event("worker_died"))["code"] == -signal.SIGKILL
    assert (await call(http, gateway))["result"]
    await gateway.event("listening")
    await all_ok(http, gateway)
    after = await children(gateway)
    assert victim not in after
    assert len(after & before) == 1


async def test_a_worker_that_stands_still_is_killed(
    settings_file: Path, database_settings: DatabaseSettings
) -> None:
    timeout = {"TOOLGATE_SERVER__WORKER_TIMEOUT_S": "3"}
    async with workers("2", TOOLGATE_DATABASE__URL=database_settings.url, **timeout) as gateway:
        stopped = min(await children(gateway))
        os.kill(stopped, signal.SIGSTOP)
        await gateway.event("worker_unresponsive", pid=stopped)
        await gateway.event("worker_died", pid=stopped)


@asynccontextmanager
async def call_continuously(
    http: aiohttp.ClientSession, gateway: Served
) -> AsyncIterator[list[str]]:
    """Calls on new connections, one after the other, inside; yields their failures."""
    failures: list[str] = []

    async def hammer() -> None:
        while True:
            try:
                answer = await call(http, gateway)
                if "result" not in answer:
                    failures.append(str(answer))
            except aiohttp.ClientError as error:
                failures.append(repr(error))

    task = asyncio.create_task(hammer())
    try:
        yield failures
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_hangup_reloads_all_workers_and_refuses_no_connection(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway = shared_gateway.gateway
    before = await children(gateway)
    async with call_continuously(http, gateway) as failures:
        await shared_gateway.reload("toolsets: {few: {include: [listPets]}}")
        for _ in range(10):
            url = gateway.url + "/mcp/few"
            async with http.post(url, json=LIST, headers=STATELESS) as response:
                assert len((await response.json())["result"]["tools"]) == 1
        await shared_gateway.reload("")
    assert failures == []
    assert await children(gateway) == before


async def test_every_worker_speaks_for_as_many_as_the_settings_ask_for(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway = shared_gateway.gateway
    await all_ok(http, gateway)
    pids = await children(gateway)
    async with each(gateway, pids) as both:
        await shared_gateway.reload("", workers=3)
        for one in both:  # those that were there before
            await all_ok(one, gateway, {**ALL_OK, "2": "ok"})
        await shared_gateway.reload("")
        for one in both:
            await all_ok(one, gateway)
    assert await children(gateway) == pids


async def test_a_new_program_takes_over_without_a_refused_connection(
    gateway: Served, http: aiohttp.ClientSession
) -> None:
    before = await children(gateway)
    await gateway.line()
    async with call_continuously(http, gateway) as failures:
        gateway.process.send_signal(signal.SIGUSR2)
        new = (await gateway.event("upgrade_started"))["pid"]
        assert gateway.url in await gateway.line()
        await wait_until_gone({*before, gateway.process.pid})
        assert (await call(http, gateway))["result"]
    os.kill(new, signal.SIGTERM)
    await wait_until_gone({new})
    assert failures == []


async def test_a_new_program_of_one_process_takes_over(
    settings_file: Path, database_settings: DatabaseSettings, http: aiohttp.ClientSession
) -> None:
    text = settings_file.read_text()
    settings_file.write_text(f"{text}\nserver: {{workers: 2}}")
    async with serving(TOOLGATE_DATABASE__URL=database_settings.url) as gateway:
        await gateway.ready()
        settings_file.write_text(f"{text}\nserver: {{workers: 1}}")
        gateway.process.send_signal(signal.SIGUSR2)
        new = (await gateway.event("upgrade_started"))["pid"]
        await wait_until_gone({gateway.process.pid})
        assert (await call(http, gateway))["result"]
        os.kill(new, signal.SIGTERM)
        await wait_until_gone({new})


async def test_workers_end_with_a_killed_supervisor(
    gateway: Served, http: aiohttp.ClientSession
) -> None:
    orphans = set(processes(gateway)[1:])
    gateway.process.kill()
    await wait_until_gone(orphans)
    port = int(gateway.url.rpartition(":")[2])
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


async def test_a_killed_supervisor_leaves_calls_their_end(
    gateway: Served, service: Recorder
) -> None:
    """The workers drain, heartbeats or not, and the model goes after them (mending 18)."""
    await wait_until_embedded(gateway)
    slow = {"jsonrpc": "2.0", "id": 1, "method": "slow"}
    orphans = set(processes(gateway)[1:])
    async with aiohttp.ClientSession() as http:

        async def call_slow() -> Any:
            async with http.post(gateway.url + "/rpc", json=slow) as response:
                return await response.json()

        running = asyncio.create_task(call_slow())
        await service.arrived.wait()
        gateway.process.kill()
        for _ in range(2):  # of the workers: no third, of the model, before they have drained
            await gateway.event("stopping", signal="SIGTERM")
        [model] = [pid for pid in orphans if "onnxruntime" in _maps(pid)]
        assert not _has_ended(model)
        service.release.set()
        assert (await running)["result"]["heard"]["path"] == "/slow"
    await wait_until_gone(orphans)


async def test_a_second_supervisor_on_the_port_is_refused(
    shared_gateway: Shared, bare: Toolgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SERVER__WORKERS", "1")  # as below
    port = shared_gateway.gateway.url.rpartition(":")[2]
    url = {"TOOLGATE_DATABASE__URL": "postgresql://127.0.0.1:9/none"}
    ran = bare("serve", "--workers", "2", "--port", port, **url)
    assert ran.code == 1
    assert "Is a gateway running already?" in ran.err


async def test_a_signal_drains_all_workers(gateway: Served, service: Recorder) -> None:
    slow = {"jsonrpc": "2.0", "id": 1, "method": "slow"}
    async with aiohttp.ClientSession() as http:

        async def call_slow() -> Any:
            async with http.post(gateway.url + "/rpc", json=slow) as response:
                return await response.json()

        running = asyncio.create_task(call_slow())
        await service.arrived.wait()
        gateway.process.send_signal(signal.SIGTERM)
        await gateway.event("stopping", processes=3)
        service.release.set()
        assert (await running)["result"]["heard"]["path"] == "/slow"
    code, log = await gateway.stop(0)
    assert code == 0
    assert "Traceback" not in log, log


async def test_workers_that_cannot_start_end_the_command(folder: Path) -> None:
    url = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1"
    folder.joinpath("toolgate.yaml").write_text(
        "sources: {a: {python: missing_module_of_services}}"
    )
    code, _, err = await ran("serve", "--workers", "2", "--port", "0", TOOLGATE_DATABASE__URL=url)
    assert code == 2
    assert "missing_module_of_services" in err


@pytest.mark.parametrize(
    ("count", "settings", "message"),
    [
        ("0", {}, 'server.workers: expected "auto" (one for each CPU core) or a whole number'),
        ("many", {}, 'server.workers: expected "auto" (one for each CPU core) or a whole number'),
        (
            "64",
            {
                "TOOLGATE_DATABASE__URL": "embedded",
                "TOOLGATE_DATABASE__MAX_CONNECTIONS": "50",
                "TOOLGATE_DATABASE__POOL_MAX": "8",
            },
            "database.max_connections of at least 390",
        ),
        ("2", {"TOOLGATE_STATE__BACKEND": "memory"}, "expected auto, postgres or redis"),
    ],
)
def test_unsuitable_numbers_are_refused(
    bare: Toolgate,
    monkeypatch: pytest.MonkeyPatch,
    count: str,
    settings: dict[str, str],
    message: str,
) -> None:
    monkeypatch.setenv("TOOLGATE_SERVER__WORKERS", "1")  # what the option replaces, until the end
    ran = bare("serve", "--workers", count, **settings)
    assert ran.code == 2
    assert message in ran.err


def processes(gateway: Served) -> list[int]:
    """Process ids of the supervisor, the workers and the model."""
    parent = gateway.process.pid
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [parent, *map(int, path.read_text().split())]


def _maps(pid: int) -> str:
    """The libraries that a process has loaded."""
    return Path(f"/proc/{pid}/maps").read_text()


async def search_tools_text(http: aiohttp.ClientSession, gateway: Served, query: str) -> str:
    params = {"name": "search_tools", "arguments": {"query": query}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with http.post(gateway.url + "/rpc", json=body) as response:
        return await response.text()


async def wait_until_embedded(gateway: Served) -> None:
    """Wait until the texts of all tools have vectors."""
    await gateway.event("texts_embedded")


async def test_doctor_names_a_stalled_worker_and_the_status_is_degraded(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    gateway = shared_gateway.gateway
    await all_ok(http, gateway)
    async with stop_process(max(await children(gateway))):
        # A connection of `http` may be one of the worker that stands still.
        async with aiohttp.request("GET", gateway.url + "/ready") as response:
            found = await response.json()
            assert (response.status, found["status"]) == (200, "degraded")
        [away] = [slot for slot, state in found["workers"].items() if state == "away"]
        settings = {
            "TOOLGATE_DATABASE__URL": shared_gateway.database.url,
            "TOOLGATE_SERVER__PORT": gateway.url.rpartition(":")[2],
            "TOOLGATE_SERVER__WORKERS": "2",
        }
        _, out, _ = await command("doctor", "--json", **settings)
    details = [check["detail"] for check in json.loads(out) if check["name"] == "workers"]
    assert details == [
        "2, which share sessions and streams in the registry's PostgreSQL",
        f"worker {away} of the running gateway is away",
    ]


@asynccontextmanager
async def stop_process(pid: int) -> AsyncIterator[None]:
    """A process stands still inside."""
    os.kill(pid, signal.SIGSTOP)
    try:
        await until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def each(
    gateway: Served, pids: Collection[int]
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """A client of each worker, whose one connection was made while the others stood still."""
    async with AsyncExitStack() as stack:
        clients = []
        for pid in pids:
            connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=KEPT_S)
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            async with AsyncExitStack() as others:
                for other in {*pids} - {pid}:
                    await others.enter_async_context(stop_process(other))
                async with http.get(gateway.url + "/health") as response:
                    assert response.status == 200
            clients.append(http)
        yield clients


async def rpc(http: aiohttp.ClientSession, gateway: Served, name: str, **arguments: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body |= {"params": {"name": name, "arguments": arguments}}
    async with http.post(gateway.url + "/rpc", json=body) as response:
        return await response.json()


async def test_the_workers_share_limits(shared_gateway: Shared) -> None:
    gateway = shared_gateway.gateway
    async with each(gateway, await children(gateway)) as both:
        answers = [await rpc(http, gateway, "getPet", id=1) for _ in range(8) for http in both]
    assert ["result" in one for one in answers] == [True] * 9 + [False] * 7


async def test_an_approval_holds_for_one_call_at_any_worker(shared_gateway: Shared) -> None:
    gateway = shared_gateway.gateway
    async with each(gateway, await children(gateway)) as (one, other):
        asked = await rpc(one, gateway, "deletePet", id=1)
        id_ = asked["error"]["data"]["approval"]
        code, _, err = await command(
            "approvals", "approve", id_, TOOLGATE_DATABASE__URL=shared_gateway.database.url
        )
        assert code == 0, err
        done = await rpc(other, gateway, "deletePet", id=1)
        again = await rpc(one, gateway, "deletePet", id=1)
    assert "result" in done
    assert again["error"]["data"]["approval"] != id_


async def test_an_idempotency_key_holds_at_all_workers(shared_gateway: Shared) -> None:
    gateway = shared_gateway.gateway
    async with each(gateway, await children(gateway)) as both:

        async def answers(**headers: str) -> list[Any]:
            found = []
            for http in both:
                url, body = gateway.url + COMMAND, legacy("more")
                async with http.post(url, json=body, headers=headers) as response:
                    found.append(await response.text())
            return found

        for key in ("a", "b"):
            first, again = await answers(**{"Idempotency-Key": key})
            assert again == first
        assert {int(pid) for pid in await answers()} == await children(gateway)


async def test_a_stream_is_resumed_at_another_worker(shared_gateway: Shared) -> None:
    gateway = shared_gateway.gateway
    url = {"TOOLGATE_DATABASE__URL": shared_gateway.database.url}
    async with each(gateway, await children(gateway)) as (one, other):
        session, opened = await listening(one, gateway)
        async with opened as stream:
            events = Events(stream)
            seen = await events.event()
            code, _, err = await command("tools", "disable", "createPet", **url)
            assert code == 0, err
            told = await events.event()
        after = {**session, "Last-Event-ID": seen.id}
        async with other.get(gateway.url + "/mcp", headers=after) as stream:
            events = Events(stream)
            again = await events.event()
            while not again.data:
                again = await events.event()
    assert again.message == told.message
    assert told.message["method"] == "notifications/tools/list_changed"


async def test_streams_of_a_killed_worker_are_resumed_at_the_other(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    """Half of the streams break off; each of their clients comes back with its last event."""
    gateway = shared_gateway.gateway
    url = {"TOOLGATE_DATABASE__URL": shared_gateway.database.url}
    pids = sorted(await children(gateway))
    async with each(gateway, [pid for pid in pids for _ in range(3)]) as clients:
        streams = [await listening(one, gateway) for one in clients]
        seen = [await Events(stream).event() for _, stream in streams]
        os.kill(pids[0], signal.SIGKILL)
        await gateway.event("worker_died", pid=pids[0])
        for _, stream in streams[:3]:
            with pytest.raises((aiohttp.ClientError, EOFError)):
                await Events(stream).event()
        code, _, err = await command("tools", "disable", "slow", **url)
        assert code == 0, err
        for (session, stream), last in zip(streams, seen, strict=True):
            if last in seen[:3]:  # by its id
                after = {**session, "Last-Event-ID": last.id}
                stream = await http.get(gateway.url + "/mcp", headers=after)
            told = await Events(stream).message()
            assert told["method"] == "notifications/tools/list_changed"
            stream.close()
    await all_ok(http, gateway)


async def listening(
    http: aiohttp.ClientSession, gateway: Served
) -> tuple[dict[str, str], aiohttp.ClientResponse]:
    """The headers of a new session, and its stream."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": RESUMING}
    async with http.post(gateway.url + "/mcp", json=hello, headers=ACCEPT) as response:
        session = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"], **ACCEPT}
    session["MCP-Protocol-Version"] = str(RESUMING["protocolVersion"])
    return session, await http.get(gateway.url + "/mcp", headers=session)


async def test_workers_share_a_model_process_replaced_after_a_kill(
    shared_gateway: Shared, http: aiohttp.ClientSession
) -> None:
    """Last of the tests with `shared`: its workers are degraded until the model answers a probe."""
    gateway = shared_gateway.gateway
    for _ in range(10):
        assert "listPets" in await search_tools_text(http, gateway, "all animals of the shop")
    [model] = [pid for pid in processes(gateway) if "onnxruntime" in _maps(pid)]
    os.kill(model, signal.SIGKILL)
    await gateway.event("worker_died", pid=model)
    assert "listPets" in await search_tools_text(http, gateway, "list pets")
    await children(gateway)


async def test_a_source_that_fails_at_one_worker_is_spared_by_all(
    folder: Path, database_settings: DatabaseSettings, http: aiohttp.ClientSession
) -> None:
    """Two failures open its circuit; alone, the other worker would need two of its own."""
    (folder / "pets.json").write_text(json.dumps(pets()))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and refuses connections
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        (folder / "toolgate.yaml").write_text(
            f"sources: {{pets: {{openapi: pets.json, base_url: '{url}'}}}}\n"
            "breaker: {calls: 2, open_s: 600, longest_s: 600}"
        )
        async with workers("2", TOOLGATE_DATABASE__URL=database_settings.url) as gateway:
            for _ in range(2):
                async with aiohttp.ClientSession() as one:  # one connection: one worker
                    await call(one, gateway)
                    await call(one, gateway)
            await gateway.event("breaker_opened")
            async with asyncio.timeout(DEADLINE_S):
                while set(await circuits(http, gateway)) != {1.0}:
                    pass


async def circuits(http: aiohttp.ClientSession, gateway: Served) -> list[float]:
    """State of the breaker at each worker; empty until both have one."""
    async with http.get(gateway.url + "/metrics") as response:
        families = {f.name: f for f in text_string_to_metric_families(await response.text())}
    found = [sample.value for sample in families["toolgate_breaker"].samples]
    return found if len(found) == 2 else []
