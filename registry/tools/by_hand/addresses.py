"""Where the calls of a tool made by hand go, and what they need there. Pure."""

import re
from collections import Counter

import msgspec

from config.types import HttpUrl, SourceName
from registry.tools.by_hand.changes import Address, ToolRefused
from registry.tools.by_hand.wanted import KnownSources, ToolRequest
from schemas.binding import Credential, OpenAPIBinding
from schemas.source import HybridOptions


def address_of(
    wanted: ToolRequest,
    known: KnownSources,
    base_url: str | None,
    kinds: tuple[str, ...],
    options: HybridOptions | None = None,
) -> Address:
    """Where calls go; `base_url` as far as it is known already."""
    if base_url is not None and wanted.url is not None:
        raise ToolRefused(f"{wanted.name}: it has two addresses, {base_url} and the url")
    url = wanted.url or base_url
    if url is not None:
        if "mcp" in kinds:
            raise ToolRefused(f"{wanted.name}: import the server first, then name it as source")
        url = _checked(wanted.name, url)
        return Address(_source_name(wanted) or _name_of(url), url, options or HybridOptions())
    if wanted.source is None:
        raise ToolRefused(f"{wanted.name}: nothing says where its calls go: give a url or a source")
    source = known.sources.get(wanted.source)
    if source is None:
        there = ", ".join(sorted(known.sources)) or "none"
        raise ToolRefused(f"{wanted.name}: there is no source {wanted.source}; there: {there}")
    if source.kind not in kinds:
        raise ToolRefused(
            f"{wanted.name}: the source {source.name} is of the kind {source.kind}; "
            f"expected {' or '.join(kinds)}"
        )
    return Address(source.name)


def security_of(known: KnownSources, source: str) -> tuple[tuple[Credential, ...], ...]:
    """What most tools of the source need to be called; none for one that nobody imported."""
    counts = Counter(
        one.binding.security
        for one in known.tools
        if one.source == source and isinstance(one.binding, OpenAPIBinding)
    )
    return counts.most_common(1)[0][0] if counts else ()


def _checked(name: str, url: str) -> str:
    try:
        return msgspec.convert(url, HttpUrl)
    except msgspec.ValidationError:
        raise ToolRefused(
            f"{name}: expected an http:// or https:// URL without credentials, query and fragment "
            "(credentials go into the settings, as sources.NAME.headers)"
        ) from None


def _source_name(wanted: ToolRequest) -> str | None:
    """What a new source is to be called."""
    try:
        return wanted.source and msgspec.convert(wanted.source, SourceName)
    except msgspec.ValidationError:
        raise ToolRefused(
            f'{wanted.name}: the name of a source has at most 63 characters out of a-z, 0-9, "_" '
            f'and "-", not {wanted.source!r:.80}'
        ) from None


def _name_of(url: str) -> str:
    """Of a source with this address: api.example.com gives api-example-com."""
    host = url.partition("://")[2].partition("/")[0].lower()
    return re.sub(r"[^a-z0-9_-]+", "-", host).strip("-_")[:63] or "manual"
