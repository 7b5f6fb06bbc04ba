"""The toy wing."""

import importlib.resources
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct
from prometheus_client import CollectorRegistry, Gauge
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gateway.context import Context
from gateway.operations.resource_view import ResourceView
from gateway.wings.interface import (
    Finding,
    Wing,
    WingContributions,
    WingParts,
    WingPrompt,
    WingResource,
)
from registry.database.migrate import Component
from registry.database.postgres import Pool, borrow
from tests.wings.toy.operations import NoteOperations
from tests.wings.toy.store import KIND, Notes

FILES = importlib.resources.files("tests.wings.toy")
PAGE = ResourceView(
    title="Notes",
    path="toy",
    lists="toy_list",
    columns=(("number", "Number", "code"), ("text", "Text", "text")),
    shows="toy_get",
    key="number",
    acts=("toy_delete",),
    adds=("toy_add",),
)


class ToySettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = False
    limit: int = 10
    fails: bool = False  # until it is repaired
    schedule: str = ""  # of counting
    upload_limit_bytes: int = 1 << 20


@asynccontextmanager
async def open_toy(parts: WingParts) -> AsyncIterator[WingContributions]:
    settings: ToySettings = parts.settings
    if settings.fails and "repaired" not in LIFE:
        raise ValueError("the toy is broken")
    LIFE.append("open")
    notes = NoteOperations(
        Notes(parts.pool, parts.search), parts.call, settings.limit, settings.schedule
    )
    swept = Gauge("toy_sweeps", "Sweeps of the toy.", registry=CollectorRegistry())

    async def sweep() -> None:
        swept.inc()
        await anyio.sleep_forever()

    async def read(context: Context, uri: str) -> str | None:
        number = {"number": uri.rpartition("/")[2]}
        found = await parts.call(context, "toy_get", number)
        return None if found.is_error else bytes(found.structured_content or b"").decode()

    async def ask(context: Context, arguments: Mapping[str, str]) -> str:
        return f"{context.principal.id} wants {arguments['what']}"

    yield WingContributions(
        operations=notes.operations,
        resources=[
            WingResource(
                uri="toy://note/{number}",
                name="note",
                description="A note of the caller.",
                read=read,
                media_type="application/json",
            ),
            WingResource(uri="toy://note/1", name="first", description="The first.", read=read),
        ],
        prompts=[
            WingPrompt(
                name="toy_ask",
                description="Ask for something.",
                arguments={"what": "what is wanted"},
                text=ask,
            )
        ],
        tasks=[sweep],
        collectors=[swept],
        apps={"/toy-app": PlainTextResponse("raw"), "/toy-uploads": count_upload},
        pages=[PAGE],
    )
    LIFE.append("closed")


async def count_upload(scope: Scope, receive: Receive, send: Send) -> None:
    """Counts the bytes of a body as they come."""
    size = 0
    async for part in Request(scope, receive).stream():
        size += len(part)
        LIFE.append("part")
    await PlainTextResponse(str(size))(scope, receive, send)


async def checks(settings: ToySettings, _tenant: str, pool: Pool | None) -> AsyncIterator[Finding]:
    if settings.limit > 1000:
        yield Finding("warning", "more notes than anybody reads")
    if pool is None:
        return
    async with borrow(pool) as connection:
        found = await connection.execute("SELECT to_regclass('toy_note_t') IS NOT NULL")
        [(there,)] = await found.fetchall()
    yield Finding("ok", "has its table") if there else Finding("warning", "has no table yet")


LIFE: list[str] = []  # of all toys, in order
WING = Wing(
    name="toy",
    title="Toy notes",
    open=open_toy,
    migrations=Component("toy", FILES.joinpath("sql")),
    kinds=(KIND,),
    mounts=("/toy-app", "/toy-uploads"),
    body_limits={"/toy-uploads": "upload_limit_bytes"},
    checks=checks,
    commands={"sweep": ("tests.wings.toy.commands:sweep", "Sweep the notes.")},
)
