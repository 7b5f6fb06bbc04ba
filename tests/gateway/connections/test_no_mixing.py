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
from tests.gateway.connections.services import Office, change, link_of, rows_of, token_of
from tests.gateway.connections.test_oauth import authorize, drive_office
from tests.gateway.login.company import browsing
from tests.properties import seeds

pytestmark = pytest.mark.anyio

PEOPLE = {"ann": ["lead"], "bob": ["team"], "cy": []}  # and their roles: ann shares, bob may use it
COUNT = 30
STEPS = ("connect", "calls", "calls", "end", "disconnect", "share", "share", "restart")
LENT = """
SELECT count(*) FROM audit_t WHERE outcome = 'ok' AND source = 'drive'
   AND owner = 'corp:ann' AND principal = 'corp:bob'
"""


class Pair:
    """Two gateways in front of a service, of which the second may be started again."""

    def __init__(self, database: DatabaseSettings, folder: Path, drive: Drive) -> None:
        shared = {"mode": "user_or_shared", "sharers": ["lead"]}
        self._start = lambda url: drive_office(database, folder, drive, url=url, **shared)
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


def owner_of(answer: Any) -> str:
    """The owner of the token that a call had; "" where its caller is asked for an account, or the
    owner of a shared one is."""
    if "error" in answer:
        assert "the account that is shared there" in answer["error"]["message"], answer
        return ""
    if answer["result"].get("isError"):
        link_of(answer)
        return ""
    return str(answer["result"]["structuredContent"]["owner"])


def is_allowed(name: str, owner: str) -> bool:
    return owner in ("", name) or (name, owner) == ("bob", "ann")


@pytest.mark.parametrize("seed", seeds(4))
async def test_calls_carry_the_account_of_their_caller(
    database_settings: DatabaseSettings, tmp_path: Path, seed: int
) -> None:
    chosen, drive = random.Random(seed), Drive()
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(Pair(database_settings, tmp_path, drive).running())
        browsers = {name: await stack.enter_async_context(browsing()) for name in PEOPLE}
        first = pair.gateways[0]
        tokens = {}
        for name, roles in PEOPLE.items():
            first.company.identity.person["roles"] = roles
            tokens[name] = await token_of(first, browsers[name], name)
        answers: list[tuple[str, Any]] = []

        async def call(name: str) -> None:
            answer = await chosen.choice(pair.gateways).call(tokens[name])
            answers.append((name, answer))

        for _ in range(COUNT):
            person = chosen.choice([*PEOPLE])
            match chosen.choice(STEPS):
                case "connect":
                    answer = await first.call(tokens[person])
                    answers.append((person, answer))
                    if answer.get("result", {}).get("isError"):
                        drive.person = person
                        await authorize(browsers[person], link_of(answer))
                case "calls":
                    with anyio.fail_after(DEADLINE_S):
                        async with anyio.create_task_group() as tasks:
                            for name in chosen.choices([*PEOPLE], k=6):
                                tasks.start_soon(call, name)
                case "end":
                    drive.end_tokens()
                case "disconnect":
                    await change(first, browsers[person], "end")
                case "share":
                    lent_to = chosen.choice(("team", "team", ""))
                    await change(first, browsers["ann"], "share", roles=lent_to)
                case _:
                    await pair.restart()
        owners = [(name, owner_of(answer)) for name, answer in answers]
        assert all(is_allowed(*each) for each in owners)
        await pair.gateways[1].company.gateway.access.settle()
        (recorded,) = await rows_of(first, LENT)
        assert recorded == (owners.count(("bob", "ann")),)
    assert recorded[0] or seed
