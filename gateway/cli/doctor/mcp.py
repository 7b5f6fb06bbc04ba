"""What `toolgate doctor` finds out about other MCP servers: it asks them, as an import would."""

from collections.abc import AsyncIterator, Sequence

from config.settings import Settings
from gateway.cli.doctor.local import Check, CheckStatus
from registry.catalog.toolsets import narrowed
from registry.sources.imports import preview
from registry.sources.pins import Pins
from registry.sources.source_reader import Lister
from registry.sources.specs import configured, spec_of
from schemas.errors import ImportRejected
from schemas.source import Source
from schemas.tool import Tool

SHOWN = 5  # entries of a server's lists that cannot be used


async def mcp_server(source: Source, settings: Settings, lister: Lister) -> AsyncIterator[Check]:
    """Whether the server answers, and what of its lists is of no use."""
    wanted = settings.sources.get(source.name)
    spec = (configured(source.name, wanted) if wanted else None) or spec_of(source)
    subject = f"{source.name}: {source.tool_count} tools"
    try:
        report = await preview(spec, settings.imports, lister)
    except ImportRejected as error:
        yield Check("source", "warning", f"{subject}; {error}")
        return
    facts = report.source.server
    spoken = [one for one in ((facts.stateless, facts.handshake) if facts else ()) if one]
    yield Check("source", "ok", f"{subject}; answers as an MCP server of {' and '.join(spoken)}")
    for note in report.notes:
        yield Check("source", "warning", f"{source.name}: {note}")
    skipped = [one for one in report.outcomes if one.status == "skipped"]
    for outcome in skipped[:SHOWN]:
        detail = f"{source.name}: {outcome.operation} is left out: {outcome.reason}"
        yield Check("source", "warning", detail)
    if len(skipped) > SHOWN:
        more = f"{source.name}: {len(skipped) - SHOWN} more are left out; `toolgate import mcp`"
        yield Check("source", "warning", f"{more} with --dry-run lists them")


async def toolsets(
    settings: Settings, tools: Sequence[Tool], sources: Sequence[Source]
) -> AsyncIterator[Check]:
    """Toolsets that have nothing in them, and sources in them that are none."""
    known = {source.name: source for source in sources}
    for name, toolset in settings.toolsets.items():
        if missing := sorted({*toolset.sources} - known.keys() - settings.sources.keys()):
            yield Check("toolset", "warning", f"{name}: no source {', '.join(missing)}")
        picked, whose, _ = narrowed(name, toolset, tools, known, ())
        status: CheckStatus = "ok" if picked or whose else "warning"
        yield Check("toolset", status, f"{name}: {len(picked)} tools of {len(whose)} sources")


async def held_back(pins: Pins, host_id: str) -> AsyncIterator[Check]:
    """Tools that wait for approval."""
    held = await pins.held(host_id)
    if held:
        names = ", ".join(one.name for one in held[:SHOWN])
        more = f" and {len(held) - SHOWN} more" if len(held) > SHOWN else ""
        hint = "see `toolgate tools approve --help`"
        yield Check("pins", "warning", f"{names}{more} held back until approved; {hint}")
