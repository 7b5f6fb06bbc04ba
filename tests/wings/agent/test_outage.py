"""A run outlives an outage of its database."""

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from registry.database.embedded_server import Embedded
from tests.fixtures_database import settings_for
from tests.polling import until
from tests.servers.provider import chat
from tests.wings.agent.rig import open_rig

pytestmark = pytest.mark.anyio

SLOW = ("s1", "slow", "{}")
CREATE = ("c1", "createPet", '{"name": "Rex"}')
OUTAGE_S = 3.0  # three leases of the rig: that of the run expires meanwhile


async def test_a_run_continues_after_an_outage_of_the_database(scratch: Path) -> None:
    """A run continues after an outage of the database (A21)."""
    settings = settings_for(scratch / "agent-outage")
    embedded = Embedded.start(settings)
    try:
        async with open_rig(replace(settings, url=embedded.url), scratch) as rig:
            rig.script(chat("", [SLOW, CREATE]), chat("Done."))
            _, begun = await rig.post("/ask", {"message": "Do both.", "wait": False})
            await until(lambda: rig.service.arrived.is_set())
            await anyio.to_thread.run_sync(embedded.stop)
            rig.service.release.set()  # the result comes while there is no database
            status, problem = await rig.post("/ask", {"message": "Meanwhile"})
            assert status == 503, problem
            await anyio.sleep(OUTAGE_S)
            await anyio.to_thread.run_sync(embedded.ensure)
            run = f"/runs/{begun['run']}"

            async def is_back() -> bool:
                status, _ = await rig.get(run)
                return status == 200

            await until(is_back)
            found = await rig.until(begun["run"], "completed", "failed")
            assert (found["state"], found["answer"]) == ("completed", "Done.")
            assert rig.service_calls.count("POST /pets") == 1
    finally:
        Embedded.start(settings).stop()
