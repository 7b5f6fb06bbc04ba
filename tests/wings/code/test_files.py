"""Files of programs: resources, answers that are links, and arguments that are files."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from config.access import Rule
from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_servers import serving
from tests.servers.mcp_wire import Scripted, Turn
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

PHOTO = bytes(range(256)) * 300
NOTE = "crm://notes/1"
BINARY = {"schema": {"type": "string", "format": "binary"}}


class Photos:
    """A service that gives a photo, and takes others."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.app = Starlette(
            routes=[
                Route("/photo", self.give),
                Route("/photo", self.take, methods=["PUT"]),
            ]
        )

    async def give(self, _request: Request) -> Response:
        return Response(PHOTO, media_type="image/png")

    async def take(self, request: Request) -> Response:
        self.taken.append(await request.body())
        return Response(status_code=204)

    def describe(self, url: str) -> dict[str, Any]:
        content = {"image/png": BINARY}
        answers = {"200": {"description": "ok", "content": content}}
        get = {"operationId": "get_photo", "responses": answers}
        body = {"required": True, "content": content}
        put = {"operationId": "put_photo", "requestBody": body, "responses": answers}
        info = {"title": "Photos", "version": "1"}
        paths = {"/photo": {"get": get, "put": put}}
        return {"openapi": "3.1.0", "info": info, "servers": [{"url": url}], "paths": paths}


async def list_resources(turn: Turn) -> None:
    await turn.result(resources=[{"uri": NOTE, "name": "note"}])


async def read_resource(turn: Turn) -> None:
    if turn.params["uri"] != NOTE:
        await turn.error(-32002, "a secret of the CRM")
        return
    await turn.result(contents=[{"uri": NOTE, "text": "10 left"}])


async def list_nothing(turn: Turn) -> None:
    await turn.result(tools=[])


def crm_server() -> Scripted:
    plays = {"tools/list": list_nothing, "resources/list": list_resources,
             "resources/read": read_resource}  # fmt: skip
    return Scripted(plays, capabilities={"tools": {}, "resources": {}})


@asynccontextmanager
async def photo_shop(
    settings: Settings, folder: Path, **sections: Any
) -> AsyncIterator[tuple[CodeShop, Photos]]:
    photos = Photos()
    async with serving(photos.app) as url, serving(crm_server()) as crm:
        path = folder / "photos.json"
        path.write_text(json.dumps(photos.describe(url)))
        source = convert({"openapi": str(path), "base_url": url}, SourceSettings)
        more = {"photos": source}
        sections = {"answers": replace(settings.answers, inline_bytes=1000), **sections}
        async with code_shop(settings, folder, crm=f"{crm}/mcp", more=more, **sections) as shop:
            yield shop, photos


LINK = "[link] = [p for p in tools.get_photo()['content'] if p['type'] == 'resource_link']\n"
READ = f"{LINK}data = tools.read(link['uri'])\n[type(data).__name__, len(data), data[:3].hex()]"
LINK_JS = (
    "const {content} = await tools.get_photo();\n"
    "const {uri} = content.find(part => part.type === 'resource_link');\n"
)
READ_JS = f"{LINK_JS}const data = await tools.read(uri);\n[data.length, [...data.slice(0, 3)]]"


async def test_programs_read_files_and_upload_their_links(
    settings: Settings, tmp_path: Path
) -> None:
    pytest.importorskip("quickjs", reason="quickjs-ng, the extra javascript, is not installed")
    async with photo_shop(settings, tmp_path) as (shop, photos):
        end = await shop.run(READ)
        assert end["result"] == ["bytes", len(PHOTO), "000102"], end
        assert end["made"] == {"get_photo": 1, "resources/read": 1}
        end = await shop.run(f"{LINK}tools.put_photo(body=link['uri'])", "run_code_writing")
        assert (end["state"], photos.taken) == ("completed", [PHOTO]), end
        end = await shop.run("tools.read(files[0])", files=[NOTE])
        assert end["result"] == "10 left", end
        end = await shop.run(READ_JS, language="javascript")
        assert end["result"] == [len(PHOTO), [0, 1, 2]], end
        end = await shop.run("await tools.read(files[0])", language="javascript", files=[NOTE])
        assert end["result"] == "10 left", end


async def test_unknown_files_are_not_found(settings: Settings, tmp_path: Path) -> None:
    async with photo_shop(settings, tmp_path) as (shop, _):
        others = "toolgate://answers/none", "file:///etc/passwd", "http://127.0.0.1/", "x" * 50_000
        for uri in others:
            end = await shop.run(f"tools.read({uri!r})")
            assert "NotFound [read]: There is no resource" in end["error"], end
            assert [call["ok"] for call in end["calls"]] == [False]


async def test_files_are_limited(settings: Settings, tmp_path: Path) -> None:
    async with photo_shop(settings, tmp_path, code={"call_bytes": 50_000}) as (shop, _):
        assert "code.call_bytes" in (await shop.run(READ))["error"]


async def test_rules_see_the_source_of_a_file(settings: Settings, tmp_path: Path) -> None:
    """A file of a server, and one that another call of the caller has left."""
    rules = {
        name: Rule(effect="deny", tools=("send_mail",), when=f"'{name}' in context.sources")
        for name in ("crm", "photos")
    }
    policy = replace(settings.policy, rules=rules)
    async with photo_shop(settings, tmp_path, policy=policy) as (shop, _):
        end = await shop.run(f"{LINK}link['uri']")
        assert end["state"] == "completed", end
        uri = end["result"]
        for file in (NOTE, uri):
            code = "tools.read(files[0])\ntools.send_mail(text='x')"
            end = await shop.run(code, "run_code_writing", files=[file])
            assert (end["state"], shop.shop.mails) == ("failed", []), end
