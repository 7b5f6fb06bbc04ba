"""No call carries another person's token, whatever happens in between at two gateways."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from config.settings import DatabaseSettings
from tests.fixtures_gateway import DEADLINE_S
from tests.gateway.connections.oauth_service import Drive
from tests.gateway.connections.services import Office, link_of, token_of
from tests.gateway.connections.test_oauth import authorize, drive_office
from tests.gateway.login.company import Browser, browsing, fields
from tests.properties import SHARE

pytestmark = pytest.mark.anyio

PEOPLE = ("ann", "bob", "cy")
STEPS = 25
SEEDS = max(1, round(4 * SHARE))


class Pair:
    """Two gateways in front of a service, of which the second may be started again."""

    def __init__(self, database: DatabaseSettings, folder: Path, drive: Drive) -> None:
        self._start = lambda url: drive_office(database, folder, drive, url=url)
        self._second = AsyncExitStack()
        self.gateways: list[Office] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Pair"]:
        async with self._start("") as first:
            self.gateways = [first]
            await self.restart()
            try:
                yield self
            finally:
                await self._second.aclose()

    async def restart(self) -> None:
        await self._second.aclose()
        first = self.gateways[0]
        self.gateways = [first, await self._second.enter_async_context(self._start(first.url))]


async def disconnect(made: Office, browser: Browser) -> None:
    page = await browser.get(f"{made.url}/connect")
    for part in page.text.split('name="end" value="')[1:]:
        form = {**fields(page.text), "end": part.split('"')[0]}
        await browser.post(f"{made.url}/connect", form)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_calls_carry_the_account_of_their_caller(
    database_settings: DatabaseSettings, tmp_path: Path, seed: int
) -> None:
    chosen, drive, calls = random.Random(seed), Drive(), 0
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(Pair(database_settings, tmp_path, drive).running())
        browsers = {name: await stack.enter_async_context(browsing()) for name in PEOPLE}
        first = pair.gateways[0]
        tokens = {name: await token_of(first, browsers[name], name) for name in PEOPLE}
        answers: list[tuple[str, Any]] = []

        async def call(name: str) -> None:
            answer = await chosen.choice(pair.gateways).call(tokens[name])
            answers.append((name, answer))

        for _ in range(STEPS):
            person = chosen.choice(PEOPLE)
            match chosen.choice(("connect", "calls", "calls", "end", "disconnect", "restart")):
                case "connect":
                    answer = await first.call(tokens[person])
                    if answer["result"].get("isError"):
                        drive.person = person
                        await authorize(browsers[person], link_of(answer))
                case "calls":
                    with anyio.fail_after(DEADLINE_S):
                        async with anyio.create_task_group() as tasks:
                            for name in chosen.choices(PEOPLE, k=6):
                                tasks.start_soon(call, name)
                case "end":
                    drive.end_tokens()
                case "disconnect":
                    await disconnect(first, browsers[person])
                case _:
                    await pair.restart()
        for name, answer in answers:
            result = answer["result"]
            if result.get("isError"):
                link_of(answer)
            else:
                assert result["structuredContent"] == {"owner": name}
                calls += 1
    assert calls or seed
