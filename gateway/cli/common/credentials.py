"""Credentials of sources, for `toolgate doctor`."""

from collections.abc import Iterator, Sequence

from config.settings import Settings
from gateway.app.stored_access import Stored
from gateway.cli.common.checks import Check
from gateway.upstreams.auth.requirements import hint, standing
from gateway.upstreams.http.connections import NO_ENTRIES
from schemas.binding import Binding
from schemas.tool import Tool


def credentials(settings: Settings, tools: Sequence[Tool], stored: Stored) -> Iterator[Check]:
    """For `toolgate doctor`: a check of each source that requires credentials."""
    sources: dict[str, list[Binding]] = {}
    for tool in tools:
        sources.setdefault(tool.source, []).append(tool.binding)
    for name, bindings in sources.items():
        credentials = standing(bindings, settings.sources.get(name), stored.get(name, NO_ENTRIES))
        if credentials.is_wrong:
            yield Check("credentials", "warning", f"{name}: {hint(name, credentials)}")
        elif credentials.guarded:
            given = ", ".join(
                scheme for scheme, (_, is_met) in credentials.schemes.items() if is_met
            )
            yield Check("credentials", "ok", f"{name}: {given or 'none, which is allowed'}")
