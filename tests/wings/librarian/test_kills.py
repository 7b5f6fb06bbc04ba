"""L21: processes that are killed at each step of a run, and go on with it: no request that a model
was sent is sent again."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from uuid import uuid4

import anyio
import pytest

from tests.fixtures_database import Cluster
from tests.properties import SHARE, places
from tests.recycling import Recycling
from tests.wings.librarian.rig import Librarian, Script, blocks, librarian_settings, share_librarian
from tests.wings.librarian.test_research import FILES, FINAL

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="code is confined on Linux only"),
    pytest.mark.timeout(600),
]

CELLS = (
    "a, b = llm_query_batched(['first', 'second'])\nimport random\nr = random.random()",
    "print(a, b, r, len(lib.files()), llm_query('third ' + a))",
    FINAL,
)
NEVER = 1000  # writes
ANSWER_S = 60


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def library(cluster: Cluster, with_documents: Recycling) -> AsyncIterator[Librarian]:
    async with share_librarian(cluster, with_documents, FILES) as found:
        ann = found.caller(librarian_settings())
        await found.script(blocks(FINAL))
        if (await ann("research", question="port", strategy="recursive")).incomplete == "sandbox":
            pytest.skip("this machine does not let code be confined")
        yield found


class Victims:
    """Processes that go on with runs. `process` is the one that lives now."""

    def __init__(self, parent: asyncio.subprocess.Process) -> None:
        self._parent = parent
        self.process = 0

    async def run(self, run: str, writes: int) -> int:
        """The exit code of a process that is killed before a write."""
        stdin, stdout = self._parent.stdin, self._parent.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{run} {writes}\n".encode())
        with anyio.fail_after(ANSWER_S):
            self.process = int(await stdout.readline())
            return int(await stdout.readline())


@asynccontextmanager
async def victims(library: Librarian) -> AsyncIterator[Victims]:
    urls = library.rig.database.pool.conninfo, library.provider.url
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.wings.librarian.victim"), *urls, stdin=PIPE, stdout=PIPE
    )
    try:
        yield Victims(parent)
    finally:
        parent.kill()
        await parent.wait()


async def check_run(library: Librarian, run: str) -> bool:
    """Whether a request of a run that has been gone on with was lost. None was sent twice."""
    assert max(Counter(one.raw for one in library.provider.requests).values()) == 1
    ann = library.caller(librarian_settings(), "ann")
    shown = await ann("get_run", run=run)
    assert shown.state == "completed"
    result = json.loads(bytes(shown.result))
    assert result["answer"].startswith("Redis listens on 6380.")
    spent, paid = result["spent"], len(library.prompts)
    lost = sum("was lost" in one.answer for one in shown.steps)
    assert paid <= spent["calls"] + spent["iterations"] <= paid + lost
    return bool(lost)


async def test_kills_before_each_write_pay_nothing_twice(library: Librarian) -> None:
    """Kills before each write pay nothing twice (L21)."""
    lost = []
    async with victims(library) as processes:
        for writes in places():
            await library.script(blocks(*CELLS))
            run = str(uuid4())
            if await processes.run(run, writes) == 0:
                break
            assert await processes.run(run, NEVER) == 0
            lost.append(await check_run(library, run))
    assert writes > 15
    assert any(lost) or SHARE < 1


async def test_kills_while_a_model_is_asked_pay_nothing_twice(library: Librarian) -> None:
    """Kills while a model is asked pay nothing twice (L21)."""
    async with victims(library) as processes:
        for place in places(1):
            await library.script(killing(processes, library, blocks(*CELLS), place))
            run = str(uuid4())
            if await processes.run(run, NEVER) == 0:
                break
            assert await processes.run(run, NEVER) == 0
            assert await check_run(library, run)
    assert place > 5


async def test_a_run_survives_a_kill_before_each_write(library: Librarian) -> None:
    """One run, each of whose processes is killed later than the one before (L21)."""
    asking = (f"print(llm_query('{number}'), len(lib.files()))" for number in range(12))
    await library.script(blocks(*asking, FINAL))
    run = str(uuid4())
    async with victims(library) as processes:
        for writes in count():
            if await processes.run(run, writes) == 0:
                break
    assert writes > 5
    assert await check_run(library, run)


def killing(processes: Victims, library: Librarian, script: Script, place: int) -> Script:
    """The process that makes a request, counted from 1, is killed before it is answered."""

    def answer(told: str, prompt: str) -> str:
        if len(library.prompts) == place:
            os.kill(processes.process, signal.SIGKILL)
        return script(told, prompt)

    return answer
