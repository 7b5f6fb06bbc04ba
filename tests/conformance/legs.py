"""The runs: who is tested, in front of what, with which requirement set."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance import suite
from tests.conformance.client import DATABASE
from tests.conformance.expected import EXPECTED
from tests.conformance.login import run_authorization
from tests.conformance.node import Node
from tests.conformance.rig import fixture, gateway
from tests.conformance.sdk import run_clients
from tests.conformance.suite import Check, Scenario
from tests.fuzz.rig import database
from tests.servers.everything_wire import Era

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
CLIENT = f"{sys.executable} -m tests.conformance.client"
CONNECTION = f"{sys.executable} -m tests.conformance.connections"


@dataclass(frozen=True)
class Outcome:
    """What one run found."""

    leg: str
    title: str
    scenarios: list[Scenario]
    upstream: Era = "both"

    def select_scenarios(self, *, scored: bool = True) -> list[Scenario]:
        return [one for one in self.scenarios if one.scored is scored]

    def checks_with_status(self, status: str) -> Iterator[tuple[Scenario, Check, str | None]]:
        """Every scored check of this status, and why it was expected to have it."""
        for scenario in self.select_scenarios():
            for check in scenario.of(status):
                place = (self.upstream, scenario.name, check.id)
                yield scenario, check, EXPECTED.get(place) if self.leg == "translated" else None

    def stale(self) -> Iterator[tuple[str, str]]:
        """Scenario and check of what was expected to fail or to warn, and did not."""
        doubtful = [*self.checks_with_status("FAILURE"), *self.checks_with_status("WARNING")]
        seen = {(scenario.name, check.id) for scenario, check, _ in doubtful}
        for upstream, scenario, check in EXPECTED if self.leg == "translated" else ():
            if upstream == self.upstream and (scenario, check) not in seen:
                yield scenario, check

    @property
    def is_accepted(self) -> bool:
        unexpected = any(reason is None for _, _, reason in self.checks_with_status("FAILURE"))
        return bool(self.scenarios) and not unexpected and not any(self.stale())


Run = Callable[[Node, Path], AsyncIterator[Outcome]]


async def direct(node: Node, folder: Path) -> AsyncIterator[Outcome]:
    """The suite against the fixture: what there is to reach."""
    async with fixture("both", folder / "fixture.log") as url:
        for revision in (HANDSHAKE, STATELESS):
            found = await suite.run_server(node, url, revision, folder / revision)
            yield Outcome("direct", f"{revision}, the fixture itself", found)


@asynccontextmanager
async def front_fixture(era: Era, folder: Path) -> AsyncIterator[str]:
    """URL of a gateway in front of the fixture."""
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(fixture(era, folder / "fixture.log"))
        sources = {"everything": {"mcp": upstream}}
        yield await stack.enter_async_context(gateway(sources, folder / "gateway.log"))


async def through(node: Node, folder: Path) -> AsyncIterator[Outcome]:
    """The suite against the gateway, in front of a server of both eras."""
    async with front_fixture("both", folder) as url:
        for revision in (HANDSHAKE, STATELESS):
            found = await suite.run_server(node, url, revision, folder / revision)
            yield Outcome("gateway", f"{revision}, gateway", found)


@asynccontextmanager
async def front_two_servers(first: str, second: str, folder: Path) -> AsyncIterator[str]:
    """URL of a gateway to two servers that have all names in common, by these rules of prefixes."""
    async with AsyncExitStack() as stack:
        sources = {}
        for name, prefix in (("everything", first), ("other", second)):
            url = await stack.enter_async_context(fixture("both", folder / f"{name}.log"))
            sources[name] = {"mcp": url, "prefix": prefix}
        tools = ("test_simple_text", "other_test_simple_text")
        made = gateway(sources, folder / "gateway.log", tools)
        yield await stack.enter_async_context(made)


async def several(node: Node, folder: Path) -> AsyncIterator[Outcome]:
    """The suite against the gateway, in front of two servers: the names it uses are the first's."""
    for first, second in (("conditional", "conditional"), ("never", "always")):
        async with front_two_servers(first, second, folder / first) as url:
            for revision in (HANDSHAKE, STATELESS):
                found = await suite.run_server(node, url, revision, folder / first / revision)
                title = f"{revision}, two servers ({first}, {second})"
                yield Outcome("several", title, found)


async def run_translated(node: Node, folder: Path) -> AsyncIterator[Outcome]:
    """The suite against the gateway, in front of a server that speaks the other era only."""
    crossed: tuple[tuple[str, Era], ...] = ((HANDSHAKE, "stateless"), (STATELESS, "handshake"))
    for revision, era in crossed:
        async with front_fixture(era, folder / era) as url:
            found = await suite.run_server(node, url, revision, folder / revision)
        yield Outcome("translated", f"{revision}, gateway to a {era} server", found, era)


async def client(node: Node, folder: Path) -> AsyncIterator[Outcome]:
    """The gateway as a client of the suite's servers."""
    with database() as cluster:
        environment = {DATABASE: cluster.url("postgres")}
        for revision in (HANDSHAKE, STATELESS):
            found = await suite.run_client(node, CLIENT, revision, folder / revision, environment)
            yield Outcome("client", f"{revision}, gateway as a client", found)


async def typescript(node: Node, folder: Path) -> AsyncIterator[Outcome]:
    """Clients made with the TypeScript SDKs in front of the gateway."""
    async with front_fixture("both", folder) as url:
        yield Outcome("typescript", "TypeScript SDK clients", await run_clients(node, url))


async def login(node: Node, folder: Path) -> AsyncIterator[Outcome]:
    """The gateway as an authorization server."""
    yield Outcome(
        "login", "the login, as an authorization server", await run_authorization(node, folder)
    )


async def connections(node: Node, folder: Path) -> AsyncIterator[Outcome]:
    """The gateway as a client of authorization servers of services."""
    for revision in (*suite.LEGACY, HANDSHAKE, STATELESS):
        scenarios = await suite.run_logins(node, CONNECTION, revision, folder / revision)
        yield Outcome("connections", f"{revision}, connections, as an OAuth client", scenarios)


LEGS: dict[str, Run] = {
    "direct": direct,
    "gateway": through,
    "several": several,
    "translated": run_translated,
    "client": client,
    "typescript": typescript,
    "login": login,
    "connections": connections,
}
