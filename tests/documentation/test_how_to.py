"""The how-to pages, run block by block as a reader follows them."""

import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from config.settings import DatabaseSettings
from examples.agent.model import complete
from tests.documentation.pages import ROOT, Page
from tests.documentation.test_names import mistake
from tests.documentation.walk import Block, Walk, blocks, walking

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

PAGES = {path.stem: path for path in (ROOT / "docs" / "how-to").glob("*.md")}
TUTORIAL = ROOT / "docs" / "tutorials" / "first-tools.md"
SHOP = [block for block in blocks(TUTORIAL) if block.title in {"shop.py", "shop.yaml"}]
MOVE, FASTAPI, BESIDE = "managed-postgresql", "fastapi", "cli-beside-a-gateway"
OLLAMA, SYSTEMD, UPGRADE = "ollama", "systemd", "upgrade"
APART = {MOVE, FASTAPI, BESIDE, OLLAMA, SYSTEMD, UPGRADE}  # have tests of their own below
WALKED = [
    *sorted(PAGES.keys() - APART),
    pytest.param(
        FASTAPI,
        marks=pytest.mark.skipif(
            find_spec("fastapi") is None or find_spec("uvicorn") is None,
            reason="FastAPI, which the page is about, is not installed",
        ),
    ),
]
UNIT = ROOT / "deploy" / "systemd" / "toolgate.service"
INSTALLED = ("claude mcp add", "ollama pull")  # programs of somebody else


async def follow(reader: Walk, page: Path) -> None:
    """Take the blocks of a page, in the folder of the shop where the page names it."""
    if TUTORIAL.name in page.read_text():
        for block in SHOP:
            await reader.take(block)
    for block in blocks(page):
        if is_step(block):
            await reader.take(block)
    assert "sh" in reader.done


def is_step(block: Block) -> bool:
    """Whether the reader runs a block or stores it as a file; others show alternatives."""
    shown = block.language in {"yaml", "sql", "toml"} and not block.title
    return not shown and not block.text.startswith(INSTALLED)


@pytest.mark.parametrize("name", WALKED)
async def test_every_block_of_a_page_has_the_described_effect(
    name: str,
    tmp_path: Path,
    database_settings: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = {"TOOLGATE_EMBEDDING__PROVIDER": "disabled"}
    async with walking(tmp_path, database_settings, monkeypatch, **env) as reader:
        await follow(reader, PAGES[name])


async def test_a_model_of_ollama_answers(
    tmp_path: Path, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)  # the dialect that Ollama serves
    async with (
        TestServer(app) as ollama,
        walking(tmp_path, database_settings, monkeypatch) as reader,
    ):
        for block in filter(is_step, blocks(PAGES[OLLAMA])):
            text = block.text.replace("11434", str(ollama.port))
            await reader.take(Block(block.language, block.title, text))
        assert reader.printed.strip()


@asynccontextmanager
async def start_embedded(
    folder: Path, data_dir: Path, target: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Walk]:
    """A reader with an embedded database, and the address of an empty one."""
    env = {
        "TOOLGATE_DATABASE__URL": "embedded",
        "TOOLGATE_DATABASE__DATA_DIR": str(data_dir),
        "TOOLGATE_DATABASE__SYSTEM_USER": "nobody",
        "MANAGED_URL": target.url,
    }
    async with walking(folder, target, monkeypatch, **env) as reader:
        yield reader


async def test_the_embedded_database_moves_to_another_server(
    tmp_path: Path,
    scratch: Path,
    empty_settings: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with start_embedded(tmp_path, scratch / "move", empty_settings, monkeypatch) as reader:
        reader.env = {**reader.env}
        del reader.env["TOOLGATE_DATABASE__URL"]  # it would override the settings file
        await reader.take(Block("yaml", "toolgate.yaml", "embedding: {provider: disabled}"))
        await reader.take(Block("sh", "", "toolgate keys create deploy"))
        await reader.take(blocks(PAGES[UPGRADE])[0])
        for block in blocks(PAGES[MOVE]):
            if is_step(block):
                await reader.take(block)


def test_commands_beside_a_gateway_exist() -> None:
    lines = re.findall(
        r"(?:gateway|--) toolgate ([a-z].*?)(?: >.*)?$", Page(PAGES[BESIDE]).text, re.M
    )
    assert len(lines) == 3
    assert {line: wrong for line in lines if (wrong := mistake(line))} == {}


def test_the_page_on_systemd_has_the_places_of_the_unit() -> None:
    [commands] = [block.text for block in blocks(PAGES[SYSTEMD])]
    unit = UNIT.read_text()
    assert str(UNIT.relative_to(ROOT)) in commands
    for place in ("/opt/toolgate/bin/toolgate", "/etc/toolgate/toolgate.yaml", "toolgate.env"):
        assert place in commands
        assert place in unit


def test_the_wrapper_has_the_user_and_the_places_of_the_unit() -> None:
    [script] = [block.text for block in blocks(PAGES[BESIDE]) if "systemd-run" in block.text]
    assert script == (UNIT.parent / "toolgate").read_text()
    given = {word for word in shlex.split(script.replace("\\\n", " ")) if "=" in word}
    wanted = re.findall(
        r"^((?:Environment|EnvironmentFile|DynamicUser|StateDirectory|StateDirectoryMode|"
        r"ConfigurationDirectory|UMask)=.*)$",
        UNIT.read_text(),
        re.MULTILINE,
    )
    assert wanted
    assert set(wanted) - given == set()
