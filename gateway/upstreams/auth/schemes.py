"""Which secrets of sources are asked for: what nothing asks for has probably another name."""

from collections.abc import Collection

from config.sources import SchemeSettings
from gateway.upstreams.auth.requirements import entry_for
from registry.names.similar_names import meant
from registry.sources.store import ToolStore
from schemas.binding import OpenAPIBinding
from schemas.errors import ToolgateError

ANY = SchemeSettings(value="any")  # of use for every kind of scheme that a secret can satisfy
SHOWN = 8  # schemes


class NotAskedFor(ToolgateError):
    """Nothing would use a secret of this name; says so in sentences, and what was perhaps meant."""


async def check_asked_for(
    store: ToolStore, host_id: str, configured: Collection[str], source: str, scheme: str
) -> None:
    """`configured`: the sources of the settings. Any SCHEME may be right of a source whose tools
    name none: it is not imported yet, or wants a header. Raises NotAskedFor."""
    known = {*configured, *(one.name for one in await store.sources(host_id))}
    if source not in known:
        text = f"There is no source {source!r} in the settings or the registry."
        raise NotAskedFor(f"{text} {meant(source, sorted(known))}".rstrip())
    wanted = {
        credential.scheme: credential
        for tool in await store.tools(host_id)
        if tool.source == source and isinstance(tool.binding, OpenAPIBinding)
        for alternative in tool.binding.security
        for credential in alternative
    }
    if wanted and not any(entry_for({scheme: ANY}, one) for one in wanted.values()):
        more = f" and {len(wanted) - SHOWN} more" if len(wanted) > SHOWN else ""
        text = f"No tool of {source} asks for {scheme!r}, but for {', '.join([*wanted][:SHOWN])}"
        raise NotAskedFor(f"{text}{more}. {meant(scheme, wanted)}".rstrip())
