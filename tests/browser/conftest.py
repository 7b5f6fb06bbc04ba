"""A gateway with the console, and Chromium in front of it.

Waits are those of Playwright, up to `WAIT_MS` for each step: a loaded machine is slow, not wrong.
"""

import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, Page, async_playwright

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import Client, Recorder, pets, running

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
            await self.page.evaluate(AXE + ";0")
            report = await self.page.evaluate("axe.run({resultTypes: ['violations']})")
            told = [
                (one["id"], one["nodes"][0]["html"][:200])
                for one in report["violations"]
                if one["impact"] in {"serious", "critical"}
            ]
            assert not told, (path, told)
        assert not self.problems, (path, self.problems)


@pytest.fixture(scope="session", autouse=True)
def pictures() -> Path:
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    return PICTURES


@pytest.fixture
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
async def watched(browser: Browser, base: str, **options: Any) -> AsyncIterator[Watched]:
    context = await browser.new_context(**({"viewport": {"width": 1280, "height": 860}} | options))
    context.set_default_timeout(WAIT_MS)
    await context.add_init_script(LISTEN)
    page = await context.new_page()
    one = Watched(page, base)

    def told(kind: str, text: str) -> None:
        # a refused form is a 4xx, which the browser tells as an error of the network
        if kind in {"error", "warning"} and "Failed to load resource" not in text:
            one.problems.append(text)

    page.on("console", lambda message: told(message.type, message.text))
    page.on("pageerror", lambda error: told("error", str(error)))
    page.on(
        "request",
        lambda asked: (
            None
            if asked.url.startswith((base, "data:", "blob:"))
            else one.problems.append(f"a request to {asked.url}")
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


@pytest.fixture
def console_settings(settings: Settings, service: Recorder, tmp_path: Path) -> Settings:
    """Those of a gateway that lets everybody in, with a good source and a hostile one."""
    (tmp_path / "shop.json").write_text(json.dumps(pets(60)))
    (tmp_path / "evil.json").write_text(json.dumps(hostile()))
    sources = {
        name: SourceSettings(openapi=str(tmp_path / f"{name}.json"), base_url=service.url)
        for name in ("shop", "evil")
    }
    return replace(
        settings,
        sources=sources,
        admin=replace(settings.admin, requests=0),
        audit=replace(
            settings.audit, mode="always", flush_s=0.05, spool_dir=str(tmp_path / "audit")
        ),
        console=replace(settings.console, enabled=True, sample_s=0.5),
    )


@pytest.fixture
async def site(console_settings: Settings) -> AsyncIterator[Client]:
    async with running(console_settings) as client:
        yield client


def picture(name: str) -> Path:
    return PICTURES / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower()).strip('-') or 'overview'}.png"
