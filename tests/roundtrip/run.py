"""Sends the operations of a description to an echo, and has a judge read what comes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from config.load import load
from gateway.context import Context, Identity, Principal
from gateway.upstreams.http.client import Client
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from registry.importers.drafts import ImportedDescription
from registry.sources.import_specs import ImportSpec
from registry.sources.source_reader import Origins, find
from schemas.binding import OpenAPIBinding
from schemas.errors import InvalidParams
from schemas.mcp.revisions import V2025_06_18
from schemas.source import OpenAPIOptions, Source
from schemas.tool import Annotations, Tool, ToolDraft
from tests.roundtrip.described import Description, Lost
from tests.roundtrip.echo import Echo, echoing
from tests.roundtrip.finding import Finding
from tests.roundtrip.generate import arguments
from tests.roundtrip.judge import Call
from tests.roundtrip.report import Report

VARIANTS = 5
SETTINGS = load(None, {"TOOLGATE_CONFIG": ""})
_CONTEXT = Context(Identity(Principal("caller", "tenant")), V2025_06_18, "r-1")
# RFC 9110; OpenAPI 3.1, 4.8.12.2: not for callers to say
_OURS = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding"}
    | {"connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "expect"}
    | {"cookie", "content-encoding"}
)


async def import_file(path: Path, media_types: Sequence[str] = ()) -> ImportedDescription:
    options = OpenAPIOptions(media_types=tuple(media_types))
    spec = ImportSpec("described", str(path), options=options)
    found = await find(spec, SETTINGS.imports, Origins())
    return await asyncio.to_thread(found.read)


async def round_trip(
    path: Path,
    seed: int = 1,
    variants: int = VARIANTS,
    only: Sequence[str] = (),
    media_types: Sequence[str] = (),
) -> Report:
    """Every operation of the description in `path`, or those whose keys are in `only`; bodies as
    the first of `media_types` that they may have."""
    read = await import_file(path, media_types)
    return await round_trips(Description(path), read.drafts, seed, variants, only)


async def round_trips(
    description: Description,
    drafts: Sequence[ToolDraft],
    seed: int = 1,
    variants: int = VARIANTS,
    only: Sequence[str] = (),
) -> Report:
    report = Report()
    secrets = frozenset(_secrets(description))
    async with _sender() as send:
        for draft in drafts:
            if only and draft.key not in only:
                continue
            await _operation(
                description, draft, secrets, send, Random(f"{seed} {draft.key}"), variants, report
            )
    return report


class _Sender:
    def __init__(self, echo: Echo, upstream: OpenAPIUpstream, source: Source) -> None:
        self.echo = echo
        self._upstream = upstream
        self._source = source

    async def __call__(self, tool: Tool, made: dict[str, Any]) -> Any:
        return await self._upstream.call(tool, self._source, made, _CONTEXT)


@asynccontextmanager
async def _sender() -> AsyncIterator[_Sender]:
    limits = replace(SETTINGS.upstream, retries=0)
    client = Client(limits, {})
    logging.getLogger("toolgate.upstream").setLevel(logging.ERROR)
    async with echoing() as echo:
        source = Source("id", "described", "openapi", "file", echo.url, True)
        try:
            yield _Sender(echo, OpenAPIUpstream(client), source)
        finally:
            await client.close()


async def _operation(
    description: Description,
    draft: ToolDraft,
    secrets: frozenset[tuple[str, str]],
    send: _Sender,
    r: Random,
    variants: int,
    report: Report,
) -> None:
    assert isinstance(draft.binding, OpenAPIBinding)
    try:
        call = Call(description.operation(draft.key, draft.binding.method), draft.binding)
        files = call.files
    except Lost as lost:
        report.unmade.append(f"{draft.key}: {lost}")
        return
    tool = _tool(draft)
    well = report.add(draft.key, (one for one in call.find_unoffered() if not _ours(one, secrets)))
    sent = 0
    for variant in range(variants):
        made = arguments(draft.input_schema, r, variant, files)
        if made is None:
            continue
        sent += 1
        well &= report.add(draft.key, [one async for one in _send_call(call, tool, send, made)])
    report.calls += sent
    if not sent:
        report.unmade.append(draft.key)
        return
    report.operations += 1
    report.good += well


async def _send_call(
    call: Call, tool: Tool, send: _Sender, made: dict[str, Any]
) -> AsyncIterator[Finding]:
    send.echo.take()
    try:
        result = await send(tool, made)
    except InvalidParams as refusal:
        why = (
            "refused, because one of its values cannot be said"
            if call.inexpressible(made)
            else None
        )
        yield Finding("sent at all", False, why, f"refused: {refusal}; {made!r:.300}")
        return
    except Exception as crash:
        yield Finding("sent at all", False, detail=f"{crash!r:.200}; {made!r:.300}")
        return
    received = send.echo.take()
    if len(received) != 1:
        why = (
            "refused, because one of its values cannot be said"
            if call.inexpressible(made)
            else None
        )
        yield Finding(
            "sent at all", False, why, f"{len(received)} requests: {result!r:.200}; {made!r:.200}"
        )
        return
    yield Finding("sent at all", True)
    try:
        findings = list(call.judge(received[0], made))
    except (Lost, ValueError) as error:
        findings = [Finding("judged at all", False, None, f"{error!r:.200}: {made!r:.200}")]
    for one in findings:
        yield one


def _ours(finding: Finding, secrets: frozenset[tuple[str, str]]) -> bool:
    """Whether it is right that it is not offered."""
    location = finding.feature.removeprefix("offered: ").removesuffix(" parameter")
    name = finding.detail.lower() if location == "header" else finding.detail
    return not finding.arrived and (
        (location == "header" and name in _OURS) or (location, name) in secrets
    )


def _secrets(description: Description) -> Iterator[tuple[str, str]]:
    """Where the security schemes of the description put keys."""
    schemes = description.root.get("components").get("securitySchemes")
    if description.old:
        schemes = description.root.get("securityDefinitions")
    for _, scheme in schemes.entries():
        if scheme.text("type") == "apiKey":
            name, location = scheme.text("name"), scheme.text("in")
            yield location, name.lower() if location == "header" else name


def _tool(draft: ToolDraft) -> Tool:
    """Credentials aside: who has none is refused, which is not what is measured here."""
    assert isinstance(draft.binding, OpenAPIBinding)
    binding = replace(draft.binding, security=())
    return Tool(
        "id", draft.name, None, "", Raw(b"{}"), None, Annotations(), binding, "described", ""
    )
