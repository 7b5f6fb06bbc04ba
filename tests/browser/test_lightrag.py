"""LightRAG's own web interface, of its wheel, in front of the gateway."""

import json
import mimetypes
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, FilePayload, Page, Response, Route, expect

from registry.access.api_keys import ApiKeys
from tests.browser.conftest import WAIT_MS, House, picture, watch_page
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import running, wordless

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
expect.set_options(timeout=WAIT_MS)

# With its hash, so that nothing else runs in the browser.
WHEEL = (
    "lightrag-hku==1.5.7"
    " --hash=sha256:895b81d94ca447afc6290c0e049d339f6caed46fbf29e4324f6db987046c6fcb"
)
FOLDER = "lightrag/api/webui/"
CONFIG = "<!-- __LIGHTRAG_RUNTIME_CONFIG__ -->"
PREFIX = "/lightrag/webui"
DOWNLOAD_S = 120
TEXT = b"# Ines Okafor\n\nInes Okafor worked at Lake Tarn with Bela Kovacs.\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, of the file that LIGHTRAG_WHEEL names, or of the package index."""
    folder = tmp_path_factory.mktemp("wheel")
    named = os.environ.get("LIGHTRAG_WHEEL")
    if named is None:
        wanted = folder / "wheel.txt"
        wanted.write_text(f"{WHEEL}\n")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--dest", str(folder), "--requirement", str(wanted)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=DOWNLOAD_S)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"LightRAG's wheel could not be downloaded: {error}")
    path = Path(named) if named is not None else next(folder.glob("*.whl"))
    with zipfile.ZipFile(path) as opened:
        yield opened


async def serve(page: Page, base: str, wheel: zipfile.ZipFile) -> None:
    """Answer requests below /webui/ of the gateway's origin with the files of the wheel."""
    config = json.dumps({"apiPrefix": PREFIX, "webuiPrefix": "/webui/"})

    async def answer(route: Route) -> None:
        name = urlsplit(route.request.url).path.removeprefix("/webui/") or "index.html"
        body = wheel.read(FOLDER + name)
        if name == "index.html":
            script = f"<script>window.__LIGHTRAG_CONFIG__ = {config};</script>"
            body = body.replace(CONFIG.encode(), script.encode())
        type_ = mimetypes.guess_type(name)[0] or "application/octet-stream"
        await route.fulfill(body=body, content_type=type_)

    await page.route(f"{base}/webui/**", answer)


async def ask(page: Page, question: str) -> None:
    await page.get_by_role("tab", name="Retrieval").click()
    await page.get_by_placeholder("Enter your query").fill(question)
    await page.get_by_role("button", name="Send").click()


@asynccontextmanager
async def open_first_page(
    browser: Browser, base: str, wheel: zipfile.ZipFile
) -> AsyncIterator[tuple[Page, list[str]]]:
    """LightRAG's first page, and which requests of it fail."""
    async with watch_page(browser, base, locale="en-GB") as visitor:
        failures: list[str] = []

        def note(answer: Response) -> None:
            if not answer.ok:
                failures.append(f"{answer.status} {answer.url}")

        visitor.page.on("response", note)
        await serve(visitor.page, base, wheel)
        await visitor.page.goto(f"{base}/webui/")
        yield visitor.page, failures


async def test_the_pages_of_lightrag_work(
    house: House, browser: Browser, wheel: zipfile.ZipFile
) -> None:
    """LightRAG's pages of documents, graph and query work against the gateway (mending 31)."""
    async with open_first_page(browser, house.client.url, wheel) as (page, failures):
        await page.get_by_role("button", name="Upload").click()
        file: FilePayload = {"name": "tarn.md", "mimeType": "text/markdown", "buffer": TEXT}
        await page.locator("input[type=file]").set_input_files([file])
        documents = page.locator("table")
        await expect(documents).to_contain_text("Completed")
        await expect(documents).to_contain_text("Ines Okafor worked at Lake Tarn")
        await page.get_by_role("button", name="Close", exact=True).click()
        await page.screenshot(path=picture("lightrag-1-documents"))
        await ask(page, "Who worked at Lake Tarn?")
        await expect(page.locator("body")).to_contain_text("tarn.md")
        await page.screenshot(path=picture("lightrag-2-query"))
        assert not failures
    async with open_first_page(browser, house.client.url, wheel) as (page, failures):
        await page.get_by_role("tab", name="Knowledge Graph").click()
        await expect(page.locator("body")).to_contain_text(re.compile(r"node: 4\s*edge: 6"))
        await page.screenshot(path=picture("lightrag-3-graph"))
        assert not failures


async def test_lightrag_asks_for_the_key_of_the_gateway(
    cluster: Cluster, browser: Browser, wheel: zipfile.ZipFile
) -> None:
    """LightRAG's pages ask for an API key where the gateway wants one, and send it (mending 31)."""
    knowledge = replace(wordless().knowledge, enabled=True)
    for database in own_database(cluster, TEMPLATE):
        settings = replace(wordless(), database=database, knowledge=knowledge)
        settings = replace(settings, auth=replace(settings.auth, mode="keys", api_keys=True))
        async with (
            running(settings) as client,
            open_first_page(browser, client.url, wheel) as (page, _),
        ):
            assert client.gateway.feed.pool is not None
            keys = ApiKeys(client.gateway.feed.pool, settings.tenant.host_id)
            _, key = await keys.create("ui", "ada", ["knowledge:read"])
            dialog = page.get_by_role("alertdialog")
            await expect(dialog).to_contain_text("API Key is required")
            await dialog.get_by_placeholder("Enter your API key").fill(key)
            await dialog.get_by_role("button", name="Save").click()
            await expect(page.locator("body")).to_contain_text("Connected")
            await ask(page, "Who worked at Lake Tarn?")
            await expect(page.locator("body")).to_contain_text("Who worked at Lake Tarn?")
            await page.screenshot(path=picture("lightrag-4-key"))
