"""What the query of an address asks for: `?profile=`, `?mode=` and `?agent=`."""

from collections.abc import Collection
from typing import get_args

from msgspec import ValidationError, convert
from starlette.types import Scope

from config.types import DisclosureMode
from gateway.context import NO_WISHES, QueryOptions
from gateway.transports.request import query_value
from schemas.errors import InvalidRequest

MODES: tuple[str, ...] = get_args(DisclosureMode)


def wishes_of(scope: Scope, profiles: Collection[str]) -> QueryOptions:
    """Raises InvalidRequest for a profile or a mode that there is not; agents are looked up where
    the registry is."""
    if not scope.get("query_string"):
        return NO_WISHES
    profile = query_value(scope, "profile")
    if profile is not None and profile not in profiles:
        raise InvalidRequest(f"There is no such profile; there is {', '.join(sorted(profiles))}")
    try:
        mode = convert(query_value(scope, "mode"), DisclosureMode | None)
    except ValidationError as error:
        raise InvalidRequest(f"There is no such mode; there is {', '.join(MODES)}") from error
    return QueryOptions(profile, mode, query_value(scope, "agent"))
