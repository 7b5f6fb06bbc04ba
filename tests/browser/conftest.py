"""A gateway with the console, and Chromium in front of it.

Waits are those of Playwright, up to `WAIT_MS` for each step: a loaded machine is slow, not wrong.
"""

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, Page, async_playwright

from config.a2a import A2AAgent
from config.access import Rule
from config.models import Price, Strategy
from config.registries import RegistrySettings
from config.settings import DatabaseSettings, Settings, Toolset
from config.sources import SourceSettings
from gateway.console.visitor_operations import ConsoleOperations
from registry.catalog.catalog import Catalog
from registry.costs.daily_costs import CostKey, CostSum
from tests import polling
from tests.fixtures_database import HOST, TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import Client, Recorder, pets, running, wordless
from tests.fixtures_servers import serving
from tests.servers.mcp_registry import PublishedServers, server_json, serving_registry
from tests.servers.provider import Provider, chat, providing

WAIT_MS = 60_000
PICTURES = Path(__file__).resolve().parents[2] / ".browser"
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
HOSTILE = (
    "<img src=x onerror=document.title='owned'>",
    "{{7*7}}",
    "</script><script>document.title='owned'</script>",
    "javascript:alert(1)",
    "\u202egnp.exe",
    "=cmd|' /C calc'!A0",
    "x" * 20_000,
    "\" autofocus onfocus=\"document.title='owned'",
)
# All rules of axe; what each found that is serious, with the first element.
SERIOUS = """
axe.run({resultTypes: ["violations"]}).then((report) => report.violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => [one.id, one.nodes[0].html.slice(0, 200)]))
"""
# Each response says which inline code it would not run; what the page itself does is none.
LISTEN = """
document.addEventListener("securitypolicyviolation", (event) => {
  (window.violations ??= []).push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


@dataclass
class Watched:
    """A page, with what went wrong in it."""

    page: Page
    base: str
    problems: list[str] = field(default_factory=list)

    async def open(self, path: str) -> None:
        answer = await self.page.goto(f"{self.base}/{path}")
        assert answer is not None
        assert answer.status < 500, path
        await self.page.locator("main").wait_for()

    async def check(self, path: str, *, accessible: bool = True) -> None:
        """The page broke no rule of its policy, and none of accessibility that is serious."""
        violations = await self.page.evaluate("window.violations ?? []")
        assert not violations, (path, violations)
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await self.page.evaluate(wider) <= 0, f"{path} is wider than its window"
        if accessible:
            if not await self.page.evaluate("'axe' in window"):
                await self.page.evaluate(AXE + ";0")
            told = await self.page.evaluate(SERIOUS)
            assert not told, (path, told)
        assert not self.problems, (path, self.problems)


@pytest.fixture(scope="session", autouse=True)
def pictures() -> Path:
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    return PICTURES


@pytest.fixture(scope="session")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    executable = shutil.which("chromium")
    if executable is None:
        pytest.fail("There is no chromium: apt-get install chromium fonts-noto-cjk")
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=executable, chromium_sandbox=False, timeout=WAIT_MS
        )
        yield launched
        await launched.close()


@asynccontextmanager
async def watch_page(browser: Browser, base: str, **options: Any) -> AsyncIterator[Watched]:
    context = await browser.new_context(**({"viewport": {"width": 1280, "height": 860}} | options))
    context.set_default_timeout(WAIT_MS)
    await context.add_init_script(LISTEN)
    page = await context.new_page()
    one = Watched(page, base)

    def note_console_message(kind: str, text: str) -> None:
        # a refused form is a 4xx, which the browser tells as an error of the network
        if kind in {"error", "warning"} and "Failed to load resource" not in text:
            one.problems.append(text)

    page.on("console", lambda message: note_console_message(message.type, message.text))
    page.on("pageerror", lambda error: note_console_message("error", str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((base, "data:", "blob:"))
            else one.problems.append(f"a request to {request.url}")
        ),
    )
    yield one
    await context.close()


def hostile() -> dict[str, Any]:
    """The description of an API whose every text attacks the page that shows it."""
    paths = {}
    for at, text in enumerate(HOSTILE):
        schema = {"type": "string", "enum": [text, "b"], "default": text, "description": text}
        parameter = {"name": f"p{at}", "in": "query", "description": text, "schema": schema}
        paths[f"/evil{at}"] = {
            "get": {
                "operationId": f"evil{at}",
                "summary": text,
                "description": text,
                "parameters": [parameter],
                "responses": {"200": {"description": text}},
            }
        }
    info = {"title": HOSTILE[0], "version": HOSTILE[0], "description": HOSTILE[2]}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


WINGS = ("agent", "memory", "events", "knowledge", "librarian", "code", "a2a")
FIRST = (
    "agent_health",
    "memory_list",
    "events_list",
    "knowledge_collections",
    "librarian_collections",
)
RULES = {
    "a-person-decides": Rule(effect="approve", tools=("deletePet",), reason="It cannot be undone."),
    "nobody": Rule(effect="deny", tools=("more_0001",)),
}


@dataclass
class House:
    """A gateway with its console and all wings."""

    client: Client
    settings: Settings
    provider: Provider

    @property
    def url(self) -> str:
        return f"{self.client.url}/console"

    @property
    def desk(self) -> ConsoleOperations:
        """What visitors of the console do."""
        made = self.client.gateway.console
        assert made is not None
        identity, caller = made._doors._visitor
        return ConsoleOperations(made._parts, identity, caller=caller, client="127.0.0.1")

    @property
    def catalog(self) -> Catalog:
        return self.client.gateway.catalogs.of(self.desk.tenant)

    async def has_wings(self) -> bool:
        answers = [await self.desk.run(one) for one in FIRST]
        return all(one.ok for one in answers)

    async def does(self, id_: str, names: Mapping[str, str] | None = None, **body: Any) -> Any:
        answer = await self.desk.run(id_, names or {}, body=body or None)
        assert answer.ok, (id_, answer.value)
        return answer.value


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for all tests


@pytest.fixture(scope="session")
def house_database(cluster: Cluster) -> Iterator[DatabaseSettings]:
    yield from own_database(cluster, TEMPLATE)


def house_settings(
    database: DatabaseSettings, service: str, model: str, folder: Path, **changes: Any
) -> Settings:
    """Those of a gateway that lets everybody in, with a good source and a hostile one."""
    defaults = wordless()
    (folder / "shop.json").write_text(json.dumps(pets(60)))
    (folder / "evil.json").write_text(json.dumps(hostile()))
    sources = {
        name: SourceSettings(openapi=str(folder / f"{name}.json"), base_url=service)
        for name in ("shop", "evil")
    }
    price = Price(input=0.5, output=2.0)
    scripted = Strategy(url=model, needs_key=False, model="m", max_tokens=2000, price=price)
    models = replace(
        defaults.models, strategy="scripted", strategies={"scripted": scripted}, backoff_s=0.001
    )
    audit = replace(defaults.audit, mode="always", flush_s=0.05, spool_dir=str(folder / "audit"))
    on = {name: replace(getattr(defaults, name), enabled=True) for name in WINGS}
    settings = replace(
        defaults,
        database=database,
        sources=sources,
        models=models,
        policy=replace(defaults.policy, rules=RULES),
        toolsets={"small": Toolset(include=("createPet", "getPet"))},
        admin=replace(defaults.admin, requests=0),
        audit=audit,
        costs=replace(defaults.costs, enabled=True, flush_s=0.5),
        console=replace(defaults.console, enabled=True, sample_s=0.5),
        **on,
    )
    agent, code = replace(settings.agent, poll_s=0.1), replace(settings.code, writes="allow")
    desk = A2AAgent(description="Keeps the pets.", kind="tools")
    a2a = replace(settings.a2a, agents={"desk": desk})
    return replace(settings, agent=agent, code=code, a2a=a2a, **changes)


@pytest.fixture(scope="session")
async def house(
    house_database: DatabaseSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    folder, service = tmp_path_factory.mktemp("house"), Recorder()
    with serving_registry(published_servers()) as registry:
        async with serving(service) as url, providing(chat("Hello.")) as provider:
            registries = {"own": RegistrySettings(registry)}
            settings = house_settings(
                house_database, url, provider.url, folder, registries=registries
            )
            async with running(settings) as client:
                found = House(client, settings, provider)
                await polling.until(found.has_wings)
                await seed(found)
                yield found
            service.release.set()


def published_servers() -> PublishedServers:
    """A server at an address that asks for two inputs, and a program."""
    inputs = [
        {"name": "X-Key", "isSecret": True, "isRequired": True, "description": HOSTILE[0]},
        {"name": "X-Region", "choices": ["eu", "us"], "default": "eu"},
    ]
    remote = {"type": "streamable-http", "url": "https://weather.example/mcp", "headers": inputs}
    package = {
        "registryType": "npm",
        "identifier": "clock",
        "version": "1.0.0",
        "transport": {"type": "stdio"},
    }
    return PublishedServers(
        [
            server_json("io.github.ada/weather", remotes=[remote], title=HOSTILE[0][:100]),
            server_json("io.github.ada/clock", packages=[package]),
        ]
    )


async def seed_good(house: House) -> None:
    """What the crawler may have removed or disabled, with the forms that it posts."""
    disabled = await house.desk.run("listTools", query={"state": "disabled"})
    names = [tool["name"] for tool in disabled.value["items"]]
    for name in names:
        await house.does("enableTool", {"tool": name})
    await polling.until(lambda: all(map(house.catalog.find, names)))
    for text in ("It opens at nine.", "It opens at ten."):
        await house.does("memory_add", scope="user", content=text, slot="shop.opens")
    text = "# Opening hours\n\nThe Pet Shop of Anna Miller opens at nine in Berlin."
    await house.does("knowledge_add", collection="handbook", text=text, path="hours.md")
    for number in (1, 404):
        await house.does("events_invoke", skillName="getPet", arguments={"id": number})


def skill(name: str, *more: str, text: str = "") -> dict[str, Any]:
    head = [f"name: {name}", *more]
    return {"document": "\n".join(["---", *head, "---", text or f"# {name}", ""])}


async def seed(house: House) -> None:
    """Something to see on each screen; texts of others attack it."""
    evil = json.dumps(HOSTILE[0])
    described = "description: Find an animal and sell it to a customer who has paid"
    skills = [
        skill("find-a-pet", "description: Find an animal", "allowed-tools: getPet listPets"),
        skill("take-payment", f"description: {evil}", text="\n\n".join(HOSTILE[:4])),
        skill("sell-a-pet", described, "allowed-tools: createPet deletePet"),
    ]
    await house.does("importSkills", skills=skills)
    for on, required in (("find-a-pet", True), ("take-payment", False)):
        names = {"skill": "sell-a-pet", "dependency": on}
        await house.does("dependSkill", names, required=required)
    await house.does("putAgent", {"agent": "clerk"}, description=HOSTILE[0])
    await house.does("grantSkills", {"agent": "clerk"}, skills=["sell-a-pet"])
    await house.does("createKey", name="nightly", scopes=["admin:registry:read"])
    for text in HOSTILE[:6]:
        await house.does("memory_add", scope="user", content=text)
    await house.does("knowledge_put_collection", {"collection": "handbook"})
    for at, text in enumerate(HOSTILE):
        await house.does("knowledge_add", collection="handbook", text=text, path=f"{at}.md")
    await seed_good(house)
    await seed_costs(house)


async def seed_costs(house: House) -> None:
    """Costs of a month, of callers with hostile names among others."""
    ledger, today = house.client.gateway.costs, datetime.now(UTC).date()
    assert ledger is not None
    for days in range(30):
        for at, caller in enumerate(("ada", HOSTILE[0], "")):
            size = 900 * (at + 1) * (1 + days % 7)
            key = CostKey(
                HOST, today - timedelta(days=days), "model", caller, "small", "scripted/m"
            )
            ledger._add(key._replace(currency="USD"), CostSum(3, size, size // 4, size * 40))
            ledger._add(key._replace(kind="answers", model=""), CostSum(1, 0, size * 2))
    await ledger.flush()
    for name in ("getPet", "evil0", "more_0002"):
        await house.desk.call(name, {"id": "1"})


@pytest.fixture(scope="module")
async def still(house: House, browser: Browser) -> AsyncIterator[Watched]:
    """One visitor for pages that are only looked at, without transitions between colours."""
    async with watch_page(browser, house.url, reduced_motion="reduce") as visitor:
        yield visitor


@pytest.fixture
async def site(house: House) -> Client:
    return house.client


def picture(name: str) -> Path:
    return PICTURES / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower()).strip('-') or 'overview'}.png"
