"""What becomes of the requests that a tool makes when its binding changes. Pure."""

from collections.abc import Iterator

from registry.sources.compat import SchemaChange
from schemas.binding import Binding, Credential, GraphQLBinding, OpenAPIBinding, ServiceBinding


def request_changes(before: Binding, after: Binding) -> Iterator[SchemaChange]:
    """Where arguments travel, and what callers have to bring along."""
    if isinstance(before, OpenAPIBinding) and isinstance(after, OpenAPIBinding):
        yield from _moved(_places(before), _places(after))
        yield from _media_types(before, after)
        yield from _security(before.security, after.security)
        if before.server != after.server:
            servers = (one.server or "the source's" for one in (before, after))
            yield SchemaChange("wire", "", False, "server was {}, is {}".format(*servers))
    elif isinstance(before, GraphQLBinding) and isinstance(after, GraphQLBinding):
        if before.selection != after.selection:
            yield SchemaChange("wire", "", False, "other fields are selected")
    elif isinstance(before, ServiceBinding) and isinstance(after, ServiceBinding):
        yield from _service(before, after)
    elif type(before) is not type(after):
        yield SchemaChange("wire", "", False, "called by another protocol")


def _places(binding: OpenAPIBinding) -> dict[str, str]:
    """Where each argument travels, as a person says it."""
    found = {one.argument: f"{one.location} {one.name}" for one in binding.parameters}
    if binding.body:
        found |= {name: f"body {property_}" for name, property_ in binding.body.properties or ()}
        if binding.body.argument:
            found[binding.body.argument] = "body"
    return found


def _moved(before: dict[str, str], after: dict[str, str]) -> Iterator[SchemaChange]:
    for name in sorted(before.keys() & after.keys() - {""}):
        if before[name] != after[name]:
            yield SchemaChange("wire", name, False, f"was {before[name]}, is {after[name]}")


def _media_types(before: OpenAPIBinding, after: OpenAPIBinding) -> Iterator[SchemaChange]:
    was, is_ = (one.body.media_type if one.body else None for one in (before, after))
    if was != is_ and was and is_:
        yield SchemaChange("wire", "", False, f"body was {was}, is {is_}")


Alternatives = tuple[tuple[Credential, ...], ...]


def _security(before: Alternatives, after: Alternatives) -> Iterator[SchemaChange]:
    """Breaking if somebody who had all of one alternative has all of none now."""
    was, now = _needs(before), _needs(after)
    if was == now:
        return
    narrower = not all(any(need <= had for need in now) for had in was)
    yield SchemaChange("security", "", narrower, f"needed {_told(was)}, needs {_told(now)}")


def _needs(alternatives: Alternatives) -> list[frozenset[tuple[str, str]]]:
    """What each alternative needs: schemes, and their scopes."""
    return [
        frozenset((one.scheme, scope) for one in needed for scope in ("", *one.scopes))
        for needed in alternatives or ((),)
    ]


def _told(alternatives: list[frozenset[tuple[str, str]]]) -> str:
    texts = [
        " and ".join(f"{scheme} {scope}".strip() for scheme, scope in sorted(needed))
        for needed in alternatives
    ]
    return " or ".join(text or "nothing" for text in texts)


def _service(before: ServiceBinding, after: ServiceBinding) -> Iterator[SchemaChange]:
    """Any one of the scopes will do. Breaking unless whoever might call still may."""
    was, now = _scopes(before), _scopes(after)
    if was != now:
        wider = now is None or (was is not None and (not now or (was and was <= now)))
        text = f"was for {_callers(was)}, is for {_callers(now)}"
        yield SchemaChange("security", "", not wider, text)


def _scopes(binding: ServiceBinding) -> frozenset[str] | None:
    """Of which callers need one; empty: of none. None: callers need not even a token."""
    return None if binding.skip_auth else frozenset((binding.scope or "").split())


def _callers(scopes: frozenset[str] | None) -> str:
    if scopes is None:
        return "all"
    return f"the scope {' or '.join(sorted(scopes))}" if scopes else "all with a token"
