"""What runs and waits survives a restart of the database, and of the program by its operator."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings, Settings
from registry.database.embedded_server import Embedded
from tests.fixtures_database import settings_for
from tests.fixtures_gateway import DEADLINE_S, Client, Recorder, pets, running
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.cli.processes import serving
from tests.gateway.cli.test_workers import wait_until_gone
from tests.polling import until
from tests.wings.events.rig import ROOT, invoke_skill, wait_for_end, with_events

pytestmark = pytest.mark.anyio


PROGRAM = """
server: {{workers: 2, drain_s: 60}}
embedding: {{provider: disabled}}
auth: {{mode: jwt, jwks_file: {folder}/jwks.json}}
sources: {{pets: {{openapi: {folder}/pets.json, base_url: '{service}'}}}}
events: {{enabled: true, poll_s: 0.1, drain_s: 50}}
"""
SCOPES = "admin events:invoke events:read events:admin"


@pytest.fixture
def server(scratch: Path) -> Iterator[tuple[Embedded, DatabaseSettings]]:
    """A server of the test's own, which it may stop."""
    settings = settings_for(scratch / "restarted")
    embedded = Embedded.start(settings)
    yield embedded, replace(settings, url=embedded.url)
    Embedded.start(settings).stop()


async def test_a_restart_of_the_database_loses_nothing(
    settings: Settings, server: tuple[Embedded, DatabaseSettings], service: Recorder
) -> None:
    """One call runs, others wait, and clients go on to ask for more meanwhile."""
    embedded, database = server
    asked: list[str] = []
    refused: list[int] = []
    long = with_events(replace(settings, database=database), lease_s=3600.0)
    async with running(long) as client:
        slow = await invoke_skill(client, "slow", retry="never")
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
        later = [await invoke_skill(client, "getPet", {"id": 1}, delayS=1.0) for _ in range(10)]
        async with anyio.create_task_group() as group:
            group.start_soon(_asking, client, asked, refused)
            await until(lambda: len(asked) >= 10)
            await anyio.to_thread.run_sync(embedded.stop)
            service.release.set()  # its end comes while there is no database
            await until(lambda: refused)
            await anyio.to_thread.run_sync(embedded.ensure)
            before = len(asked)
            await until(lambda: len(asked) >= before + 10)
            group.cancel_scope.cancel()
        assert set(refused) == {503}
        for id_ in (slow["id"], *(one["id"] for one in later), *asked):
            over = await wait_for_end(client, id_)
            assert (over["status"], over["attempt"]) == ("ACKED", 1), over
    paths = [one["path"] for one in service.requests]
    assert paths.count("/slow") == 1
    assert sorted(paths).count("/pets/1") == 10


async def _asking(client: Client, asked: list[str], refused: list[int]) -> None:
    while True:
        body = {"skillName": "getPet", "arguments": {"id": 2}}
        status, answer, _ = await client.post(ROOT, body)
        if status == 202:
            asked.append(answer["id"])
        else:
            refused.append(status)
        await anyio.sleep(0.01)


async def test_a_restart_by_the_operator_neither_loses_nor_repeats(
    service: Recorder, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """A call that is not repeatable runs in a replaced process; others wait meanwhile (V15)."""
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [KEY.jwk()]}))
    (tmp_path / "pets.json").write_text(json.dumps(pets()))
    config = tmp_path / "toolgate.yaml"
    config.write_text(PROGRAM.format(folder=tmp_path, service=service.url))
    headers = bearer("root", SCOPES, roles=["operator"])
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        serving("-c", str(config), TOOLGATE_DATABASE__URL=database_settings.url) as program,
        aiohttp.ClientSession(connector=connector, headers=headers) as http,
    ):
        await program.ready()

        async def ask_program(method: str, path: str, body: Any = None) -> Any:
            async with http.request(method, program.url + path, json=body) as response:
                assert response.status in (200, 202), await response.text()
                return await response.json()

        async def invoke(skill: str, **more: Any) -> str:
            id_: str = (await ask_program("POST", ROOT, {"skillName": skill, **more}))["id"]
            return id_

        ids = [await invoke("slow", retry="never")]
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
        ids += [await invoke("getPet", arguments={"id": 1}, delayS=2.0) for _ in range(10)]
        assert await ask_program("POST", "/admin/v1/restart") == {"restarts": "program"}
        new = (await program.event("upgrade_started"))["pid"]
        ids += [await invoke("getPet", arguments={"id": 2}) for _ in range(10)]
        service.release.set()
        await wait_until_gone({program.process.pid})
        ids += [await invoke("getPet", arguments={"id": 3}) for _ in range(10)]
        for id_ in ids:
            row = await until(lambda id_=id_: _over(ask_program, id_))
            assert (row["status"], row["attempt"]) == ("ACKED", 1)
        os.kill(new, signal.SIGTERM)
        await wait_until_gone({new})
    paths = sorted(one["path"] for one in service.requests)
    assert paths == [*["/pets/1"] * 10, *["/pets/2"] * 10, *["/pets/3"] * 10, "/slow"]


async def _over(asked: Any, id_: str) -> Any:
    row = await asked("GET", f"{ROOT}/{id_}?waitS=5")
    return row if row["status"] in ("ACKED", "FAILED") else None
